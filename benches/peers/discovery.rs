//! Looking at the machine's disks, beside `lsblk -J -O`: on this machine with eight loop disks, and on a
//! server of 256 NVMe disks that is kept in a folder.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use localpool::device::{Discovery, Owner};
use localpool::host::{Host, RealFilesystems, RealHost, Roots, StateDir, sysfs::scan};
use localpool_testing::machines;
use serde_json::Value;

use crate::lab::{Image, Lab};
use crate::measure::{Aim, Better, Measurement, Report, Samples};
use crate::pace::Size;
use crate::process::printed;

const REAL: u64 = 8;
const MANY: Size = Size { full: 64, short: 4 };
const FIXTURES: Size = Size { full: 256, short: 8 };
const ROUNDS: Size = Size { full: 50, short: 2 };

pub fn measure(lab: &Lab, report: &mut Report) -> Result<()> {
    real(lab, report)?;
    resync(lab, report)?;
    fixtures(lab, report)
}

/// The eight disks carry what disks carry: half of them a table with a partition, the others nothing.
fn real(lab: &Lab, report: &mut Report) -> Result<()> {
    let disks = lab.disks("disk", REAL, 64 << 20, Image::Sparse)?;
    for disk in disks.iter().step_by(2) {
        lab.run("sgdisk", &["-n", "1:0:+16M", disk.text()])?;
        lab.run("partx", &["-u", disk.text()])?;
    }
    let (mut scanned, mut scanned_all, mut asked, mut listed) =
        (Samples::default(), Samples::default(), Samples::default(), Samples::default());
    let roots = Roots::default();
    for _ in 0..lab.pace().of(ROUNDS) {
        scanned.push(timed(|| Ok(scan(&roots)?))?);
        scanned_all.push(timed(|| scan_all(lab))?);
        asked.push(timed(|| devices(lab))?);
        listed.push(timed(|| lsblk(lab, None))?);
    }
    let devices = scan(&roots)?.len();
    let lines = count(&lsblk(lab, None)?);
    report.note(format!(
        "Real disks: the scan names {devices} devices, which are all that the kernel has; lsblk lists {lines}, as it leaves \
         out loop devices without a file. {REAL} of them are this run's. `lsblk` runs as a process, the scan inside the driver; \
         `localpool devices` runs as a process too, and also reads signatures, partition tables and labels of every disk."
    ));
    let rows = [
        ("discovery-8-scan", "scan of sysfs inside the driver", &scanned, vec![Aim::RatioAtLeast(1.0)]),
        ("discovery-8-look", "scan and what is on every disk, inside the driver", &scanned_all, Vec::new()),
        ("discovery-8-command", "`localpool devices -o json`, a process", &asked, Vec::new()),
    ];
    for (name, what, samples, aims) in rows {
        let what = format!("Discovery with {REAL} loop disks: {what}");
        report.add(row(name, what, "lsblk -J -O", samples, &listed, aims));
    }
    Ok(())
}

/// What an agent or a discovery pays each time it reads everything again, as it does once in `resync`.
fn resync(lab: &Lab, report: &mut Report) -> Result<()> {
    let many = lab.pace().of(MANY);
    let _disks = lab.disks("many", many, 64 << 20, Image::Sparse)?;
    let host = host(lab);
    let mut discovery = Discovery::new(home(), Duration::from_secs(600));
    let (mut scanned_all, mut listed) = (Samples::default(), Samples::default());
    for _ in 0..lab.pace().of(ROUNDS) {
        discovery.all_changed();
        scanned_all.push(timed(|| Ok(discovery.scan(&host)?))?);
        listed.push(timed(|| lsblk(lab, None))?);
    }
    let what = format!("Resync of {many} blank loop disks: all of them scanned, read and probed again");
    report.add(row(&format!("discovery-{many}-resync"), what, "lsblk -J -O", &scanned_all, &listed, Vec::new()));
    Ok(())
}

fn fixtures(lab: &Lab, report: &mut Report) -> Result<()> {
    let root = lab.path("machine");
    std::fs::create_dir(&root)?;
    let fixtures = u32::try_from(lab.pace().of(FIXTURES))?;
    machines::nvme_server(&root, fixtures);
    let roots = Roots::under(&root);
    let (mut scanned, mut listed) = (Samples::default(), Samples::default());
    for round in 0..lab.pace().of(ROUNDS) {
        scanned.push(timed(|| Ok(scan(&roots)?))?);
        // It takes seconds.
        if round % 10 == 0 {
            listed.push(timed(|| lsblk(lab, Some(&root)))?);
        }
    }
    let devices = scan(&roots)?.len();
    let lines = count(&lsblk(lab, Some(&root))?);
    let wanted = 2 * fixtures as usize;
    if devices != wanted || lines != wanted {
        bail!("of {wanted} disks and partitions the scan found {devices} and lsblk {lines}");
    }
    report.note(format!(
        "{fixtures} disks: a folder with the /sys, /proc and /dev of a server, each disk with one mounted partition; both list {wanted} devices."
    ));
    let what = format!("Discovery of {fixtures} NVMe disks: scan of sysfs");
    let aims = vec![Aim::RatioAtLeast(1.0)];
    report.add(row(&format!("discovery-{fixtures}-scan"), what, "lsblk -J -O --sysroot", &scanned, &listed, aims));
    std::fs::remove_dir_all(&root)?;
    Ok(())
}

fn row(name: &str, what: String, beside: &str, ours: &Samples, lsblk: &Samples, aims: Vec<Aim>) -> Measurement {
    Measurement {
        name: name.to_owned(),
        what,
        beside: beside.to_owned(),
        unit: "ms",
        ours: ours.median(),
        baseline: lsblk.median(),
        better: Better::Smaller,
        n: ours.len(),
        aims,
    }
}

fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<Duration> {
    let began = Instant::now();
    let result = work()?;
    let took = began.elapsed();
    drop(result);
    Ok(took)
}

/// What the agent does at its first scan: nothing is remembered.
fn scan_all(lab: &Lab) -> Result<usize> {
    let snapshot = Discovery::new(home(), Duration::ZERO).scan(&host(lab))?;
    Ok(snapshot.devices.len())
}

fn host(lab: &Lab) -> Arc<dyn Host> {
    let state = StateDir::at(&lab.path("no-state"));
    Arc::new(RealHost::new(Roots::default(), RealFilesystems::default(), state))
}

fn home() -> Owner {
    Owner { cluster: "bench".to_owned(), node: "bench".into() }
}

fn devices(lab: &Lab) -> Result<String> {
    let mut command = lab.command(env!("CARGO_BIN_EXE_localpool"));
    printed(command.args(["devices", "-o", "json", "--state-dir"]).arg(lab.path("no-state")))
}

fn lsblk(lab: &Lab, root: Option<&Path>) -> Result<String> {
    let mut command = lab.command("lsblk");
    command.args(["-J", "-O"]);
    if let Some(root) = root {
        command.arg("--sysroot").arg(root);
    }
    printed(&mut command)
}

/// Devices in lsblk's tree.
fn count(json: &str) -> usize {
    fn below(device: &Value) -> usize {
        let children = device["children"].as_array();
        1 + children.map_or(0, |all| all.iter().map(below).sum::<usize>())
    }
    let tree: Value = serde_json::from_str(json).unwrap_or_default();
    tree["blockdevices"].as_array().map_or(0, |all| all.iter().map(below).sum())
}
