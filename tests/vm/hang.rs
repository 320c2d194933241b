//! A device that answers nobody: reads wait in the kernel, as on a disk with a stuck controller.

use serde_json::Value;

use crate::bench::Bench;
use crate::disks::{Bus, Disk};
use crate::report::Report;

const NAME: &str = "hanging";

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "a device that hangs is Unknown, the scan goes on, and it is read again when it answers";
    if !report.wants(name) {
        return;
    }
    report.check(name, || hang(bench));
    // Everything that waits for it continues, also if the check ended early.
    bench.guest.run("for name in hang-below hang; do dmsetup resume $name 2>/dev/null || true; done; udevadm settle");
    bench.guest.run("for name in hang hang-below; do dmsetup remove $name 2>/dev/null || true; done");
}

/// A mapping over a suspended one: nothing in sysfs shows that it does not answer.
fn hang(bench: &mut Bench) {
    // Larger than the disks that the sets of this guest take.
    let disk = Disk::new(NAME, Bus::Scsi).mib(1000);
    bench.guest.add_drive(&disk);
    bench.guest.plug(&disk);
    let node = bench.eventually("the disk is there", |bench| {
        bench.guest.try_run(&format!("disk {NAME}"), crate::guest::LIMIT).map_err(|error| error.to_string())
    });
    let node = node.trim();
    bench.guest.run(&format!(
        "dmsetup create hang-below --table \"0 $(blockdev --getsz {node}) linear {node} 0\"
         dmsetup create hang --table \"0 $(blockdev --getsz {node}) linear /dev/mapper/hang-below 0\"
         udevadm settle; dmsetup suspend hang-below; sync -f /; echo 3 >/proc/sys/vm/drop_caches"
    ));
    let devices = bench.by_path();
    let mapped = bench.guest.run("readlink -f /dev/mapper/hang").trim().to_owned();
    let said = |devices: &std::collections::HashMap<String, Value>| {
        let device = &devices[&mapped];
        (device["verdict"].as_str().unwrap().to_owned(), device["reason"].as_str().unwrap().to_owned())
    };
    let (verdict, reason) = said(&devices);
    assert!(verdict == "Unknown" && reason.contains("took more than"), "{verdict}: {reason}");
    assert!(devices.values().filter(|device| device["verdict"] == "Theirs").count() > 20, "the others are looked at");
    bench.guest.run("dmsetup resume hang-below; udevadm settle");
    assert_eq!(said(&bench.by_path()).0, "Unclaimed");
}
