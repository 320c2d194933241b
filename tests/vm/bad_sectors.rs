//! A sector that the medium does not give back until it is written again, at each place where a pool disk keeps what it
//! knows of itself.

use std::path::Path;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::csi::Use;
use crate::disks::{Bus, Disk, MIB};
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;

/// A disk, and the set of its own.
const NAME: &str = "bad-sectors";
const SIZE: u64 = 1000;
const SECTORS: u64 = SIZE * MIB / 512;

/// What is at a sector.
const PLACES: [(&str, u64); 7] = [
    ("protective MBR", 0),
    ("primary header", 1),
    ("primary entries", 2),
    ("one half of the label", MIB / 512),
    ("the other half of the label", (MIB + MIB / 2) / 512),
    ("backup entries", SECTORS - 33),
    ("backup header", SECTORS - 1),
];

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "a sector of table or label that cannot be read is written again, and no volume is lost by it";
    if !report.wants(name) {
        return;
    }
    let disk = Disk::new(NAME, Bus::Scsi).mib(SIZE);
    bench.guest.add_drive(&disk);
    bench.guest.plug(&disk);
    report.check(name, || lose_each(bench, &disk));
    bench.take_out(&disk);
}

fn lose_each(bench: &mut Bench, disk: &Disk) {
    await_ours(bench, NAME);
    let volume = bench.volume("on-bad-sectors", NAME, 64, Use::Ext4);
    for (place, sector) in PLACES {
        bench.put_away(&volume);
        bench.guest.unplug(disk);
        bench.guest.run("dmesg --clear");
        bench.guest.change_drive(disk, |folder| unreadable(disk, folder, sector));
        bench.guest.plug(disk);
        await_ours(bench, NAME);
        bench.eventually(&format!("{place}: the sector is written again"), |bench| {
            let read =
                format!("dd if=$(disk {NAME}) of=/dev/null bs=512 skip={sector} count=1 iflag=direct status=none");
            bench.guest.try_run(&read, LIMIT).map(drop).map_err(|error| error.to_string())
        });
        // The kernel tells of the failure, else nothing was tried here.
        bench.guest.run(&format!("dmesg | grep -E \"error, dev $(basename $(disk {NAME})), sector\""));
        bench.use_again(&volume);
        bench.has_its_data(&volume);
    }
    let verified = bench.guest.run(&format!("sgdisk --verify $(disk {NAME})"));
    assert!(verified.contains("No problems found"), "{verified}");
    bench.put_away(&volume);
    bench.csi(async |csi| csi.delete(&volume.id).await.unwrap());
}

/// The same image, of which a sector cannot be read until the disk is written to.
fn unreadable(disk: &Disk, folder: &Path, sector: u64) -> Value {
    let mut drive = disk.blockdev(folder).unwrap();
    let file = drive["file"].take();
    drive["file"] = json!({
        "driver": "blkdebug", "image": file,
        "inject-error": [
            {"event": "read_aio", "iotype": "read", "state": 1, "sector": sector, "errno": 5},
            // What was injected stays so until another rule takes its place.
            {"event": "read_aio", "iotype": "read", "state": 2, "sector": sector, "errno": 0},
        ],
        "set-state": [{"event": "write_aio", "state": 1, "new_state": 2}],
    });
    drive
}
