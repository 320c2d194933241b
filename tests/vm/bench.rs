//! What all checks share: the guest, its disks, and what is made on them only once.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use serde_json::Value;
use tokio::runtime::Runtime;

use crate::cases::{Case, cases};
use crate::csi::Csi;
use crate::disks::Disk;
use crate::guest::{Guest, LIMIT};
use crate::report::Report;
use crate::{arrays, directories, hotplug, storm};

pub struct Bench {
    pub folder: PathBuf,
    pub guest: Guest,
    pub cases: Vec<Case>,
    /// The systemd unit of the driver in the guest.
    pub unit: &'static str,
    /// The connection to that driver.
    pub connection: Option<(Runtime, Csi)>,
}

pub const UNIT: &str = "localpool";

impl Bench {
    pub fn start() -> Self {
        let (folder, logs) = folders();
        let cases = cases();
        let disks = all_disks(&cases);
        println!("booting a guest with {} disks", disks.len());
        let begun = Instant::now();
        let guest = Guest::start(&folder, &logs, &disks, 1);
        println!("up after {:.0} s", begun.elapsed().as_secs_f64());
        Self { folder, guest, cases, unit: UNIT, connection: None }
    }

    pub fn attach() -> Self {
        let (folder, logs) = folders();
        let guest = Guest::attach(&folder, &logs);
        Self { folder, guest, cases: cases(), unit: UNIT, connection: None }
    }

    /// Makes the disks look as their cases say, once in a guest's life.
    pub fn fill(&mut self, report: &mut Report) {
        if self.guest.try_run("test -e /run/filled", crate::guest::LIMIT).is_ok() {
            return;
        }
        self.guest.run("touch /run/filled");
        for case in self.cases.iter().filter(|case| !case.fill.is_empty()) {
            let begun = Instant::now();
            let made = self.guest.try_run(&case.script(), crate::guest::LIMIT);
            println!("{:6.1} s  made: {}", begun.elapsed().as_secs_f64(), case.name);
            if let Err(error) = made {
                report.outcome(&format!("{}: its disks can be made", case.name), begun, Err(error.to_string()));
            }
        }
        self.guest.run("udevadm settle; sync");
    }

    /// The output of `localpool devices`, as a program reads it.
    pub fn devices(&mut self) -> Vec<Value> {
        let text = self.guest.run("/opt/localpool devices --node-name guest -o json");
        let list: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        list["devices"].as_array().unwrap().clone()
    }

    /// Pulls out a disk of one check, which the guest will not boot with again, and gives it up.
    pub fn take_out(&mut self, disk: &Disk) {
        let device = self.devices().into_iter().find(|device| device["serial"] == disk.serial.as_str());
        self.guest.unplug(disk);
        self.guest.remove_drive(disk);
        if let Some(id) = device.as_ref().and_then(|device| device["diskId"].as_str()) {
            self.release(id);
        }
    }

    /// Gives up a disk without volumes.
    pub fn release(&mut self, id: &str) {
        let release =
            format!("for try in {{1..20}}; do /opt/localpool disk release {id} && exit; sleep 1; done; exit 1");
        if let Err(error) = self.guest.try_run(&release, LIMIT) {
            println!("    {id} is missed from here on: {error}");
        }
    }

    /// Pulls out the disks that no further check needs before the next power cut: each scan of all devices
    /// by the driver takes that much less time.
    pub fn thin_out(&mut self) {
        // The disks of a guest that stays up are there for the next run.
        if !self.guest.is_own() {
            return;
        }
        self.driver();
        self.stop_driver();
        let idle = self.idle();
        self.guest.unplug_all(&idle.iter().collect::<Vec<_>>());
        self.guest.run("udevadm settle");
        println!("{} disks were pulled out", idle.len());
    }

    /// The disks that only their verdicts need.
    pub fn idle(&self) -> Vec<Disk> {
        self.cases.iter().filter(|case| case.is_idle()).flat_map(|case| case.disks.clone()).collect()
    }

    /// A power cut; then the same disks, as `recabled` attaches them.
    pub fn boot_again(&mut self, recabled: impl FnOnce(&[Disk]) -> Vec<Disk>) {
        self.connection = None;
        self.guest.boot_again(&self.folder, &recabled(&all_disks(&self.cases)));
    }

    /// For a person who edits a check.
    pub fn stay(self) -> ExitCode {
        println!("the guest is up; `scripts/test-vm run COMMAND` runs in it, Ctrl-C ends it");
        self.guest.stay();
        ExitCode::SUCCESS
    }
}

pub fn all_disks(cases: &[Case]) -> Vec<Disk> {
    let of_cases = cases.iter().flat_map(|case| case.disks.clone());
    let own = [storm::disk(), directories::disk()].into_iter().chain(arrays::disks());
    own.chain(of_cases).chain(hotplug::disks()).collect()
}

fn folders() -> (PathBuf, PathBuf) {
    let folder =
        |name| PathBuf::from(std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: scripts/test-vm")));
    (folder("LOCALPOOL_VM_DIR"), folder("LOCALPOOL_VM_LOGS"))
}
