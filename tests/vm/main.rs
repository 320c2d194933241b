//! The vm tier: the real binary in a Debian guest with real NVMe, SCSI, SATA, virtio and USB disks, real udev, md, dm
//! and LVM. `scripts/test-vm` makes the guest's root and runs this; one boot serves many checks, in the order of `all`.
//!
//! Usage: vm all | up | check [WORD] | run COMMAND      (folders by LOCALPOOL_VM_DIR and LOCALPOOL_VM_LOGS)

// clippy sees tests only in functions that are marked as such, not in what they share.
#![allow(clippy::unwrap_used, reason = "a check may end where a step fails")]

mod agent;
mod arrays;
mod bad_sectors;
mod bare;
mod bench;
mod cases;
#[path = "../loop_csi/client.rs"]
#[allow(dead_code, reason = "some requests are those of the loop tests alone")]
mod client;
mod compare;
mod console;
mod csi;
mod directories;
mod disks;
mod driver;
mod faces;
mod facts;
mod failures;
mod guest;
mod hang;
mod health;
mod host_rules;
mod hotplug;
mod images;
mod members;
mod qmp;
mod report;
mod restart;
mod storm;
mod stuck;
mod tenants;
mod verdicts;
mod volumes;

use std::process::ExitCode;

use bench::Bench;
use report::Report;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let word = arguments.next().unwrap_or_default();
    let mut report = Report::new(&word);
    match command.as_str() {
        "all" => all(&mut Bench::start(), &mut report),
        "check" => all(&mut Bench::attach(), &mut report),
        "up" => {
            let mut bench = Bench::start();
            bench.fill(&mut report);
            return bench.stay();
        }
        "run" => {
            print!("{}", Bench::attach().guest.run(&word));
            return ExitCode::SUCCESS;
        }
        // `cargo test -F testing --test vm` without a guest.
        _ => {
            failures::hold();
            eprintln!("skipped: the vm tier needs a guest: make test-vm");
            return ExitCode::SUCCESS;
        }
    }
    report.end()
}

fn all(bench: &mut Bench, report: &mut Report) {
    bench.fill(report);
    verdicts::check(bench, report);
    compare::check(bench, report);
    facts::check(bench, report);
    health::check(bench, report);
    members::check(bench, report);
    bench.thin_out();
    tenants::check(bench, report);
    bare::check(bench, report);
    bad_sectors::check(bench, report);
    hang::check(bench, report);
    stuck::check(bench, report);
    failures::check(bench, report);
    hotplug::check(bench, report);
    directories::check(bench, report);
    let on_arrays = arrays::check(bench, report);
    restart::check(bench, report);
    arrays::check_after_power_cut(bench, report, &on_arrays);
    directories::check_after_power_cut(bench, report);
    host_rules::check(bench, report);
    storm::check(bench, report);
}
