//! A sector that cannot be read until it is written again, at each place where a pool disk keeps its own record; and
//! all of them at once, beside a copy of the disk.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::bench::Bench;
use crate::csi::Use;
use crate::disks::{Bus, Disk, MIB};
use crate::driver::MIN_AGE;
use crate::guest::LIMIT;
use crate::hotplug::await_ours;
use crate::report::Report;

/// A disk; its set has the same name.
const NAME: &str = "bad-sectors";
const SIZE: u64 = 1000;
const SECTORS: u64 = SIZE * MIB / 512;

/// The content of a sector.
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
    let (each, all) = (
        "a sector of table or label that cannot be read is written again, and no volume is lost by it",
        "a copy of a pool disk that cannot be read is not used in its place, and the disk is back when it can be read",
    );
    if !report.wants(each) && !report.wants(all) {
        return;
    }
    let disk = Disk::new(NAME, Bus::Scsi).mib(SIZE);
    bench.guest.add_drive(&disk);
    bench.guest.plug(&disk);
    report.check(each, || lose_each(bench, &disk));
    report.check(all, || lose_all(bench, &disk));
    bench.take_out(&disk);
}

fn lose_each(bench: &mut Bench, disk: &Disk) {
    await_ours(bench, NAME);
    let volume = bench.volume("on-bad-sectors", NAME, 64, Use::Ext4);
    for (place, sector) in PLACES {
        bench.put_away(&volume);
        bench.guest.unplug(disk);
        bench.guest.run("dmesg --clear");
        bench.guest.change_drive(disk, |folder| unreadable(disk, folder, &[sector]));
        bench.guest.plug(disk);
        await_ours(bench, NAME);
        bench.eventually(&format!("{place}: the sector is written again"), |bench| {
            let read =
                format!("dd if=$(disk {NAME}) of=/dev/null bs=512 skip={sector} count=1 iflag=direct status=none");
            bench.guest.try_run(&read, LIMIT).map(drop).map_err(|error| error.to_string())
        });
        // The kernel reports the failure; otherwise nothing was tested here.
        bench.guest.run(&format!("dmesg | grep -E \"error, dev $(basename $(disk {NAME})), sector\""));
        bench.use_again(&volume);
        bench.has_its_data(&volume);
    }
    let verified = bench.guest.run(&format!("sgdisk --verify $(disk {NAME})"));
    assert!(verified.contains("No problems found"), "{verified}");
    bench.put_away(&volume);
    bench.csi(async |csi| csi.delete(&volume.id).await.unwrap());
}

/// Nobody saw the copy beside the disk before, so nothing else is known about it.
fn lose_all(bench: &mut Bench, disk: &Disk) {
    let copy = Disk::new("bad-sectors-copy", Bus::Scsi).mib(SIZE);
    await_ours(bench, NAME);
    let volume = bench.volume("beside-a-copy", NAME, 64, Use::Ext4);
    bench.put_away(&volume);
    bench.guest.unplug(disk);
    let image = |disk: &Disk| bench.folder.join("images").join(&disk.image);
    let copied = Command::new("cp").arg("--sparse=always").args([image(disk), image(&copy)]).status().unwrap();
    assert!(copied.success(), "{copied}");
    bench.guest.change_drive(disk, |folder| unreadable(disk, folder, &PLACES.map(|(_, sector)| sector)));
    bench.guest.plug(disk);
    bench.guest.add_drive(&copy);
    bench.guest.plug(&copy);
    bench.eventually("disk and copy are looked at", |bench| {
        says(bench, &disk.serial, "could not be read")?;
        says(bench, &copy.serial, "a copy of the pool disk")?;
        says(bench, &copy.serial, "the original is present")
    });
    bench.guest.run(&format!("sleep {}; udevadm settle", 2 * MIN_AGE.as_secs()));
    let staged = bench.csi(async |csi| csi.stage(&volume.id, volume.usage).await);
    assert!(staged.is_err(), "the volume was found on the copy");
    // A sector that is not in use; QEMU does not notice a write of zeros.
    bench.guest.run(&format!("dd if=/dev/urandom of=$(disk {NAME}) bs=512 seek=1000 count=1 oflag=direct status=none"));
    await_ours(bench, NAME);
    bench.use_again(&volume);
    bench.has_its_data(&volume);
    bench.put_away(&volume);
    bench.eventually("the copy is called one", |bench| says(bench, &copy.serial, "has the same identity"));
    bench.guest.unplug(&copy);
    bench.guest.remove_drive(&copy);
    bench.csi(async |csi| csi.delete(&volume.id).await.unwrap());
}

/// Whether `localpool devices` has these words in the reason for a disk.
fn says(bench: &mut Bench, serial: &str, message: &str) -> Result<(), String> {
    let devices = bench.devices();
    let device = devices.iter().find(|device| device["serial"] == serial).ok_or("it is not there")?;
    let reason = device["reason"].as_str().unwrap_or_default();
    if reason.contains(message) { Ok(()) } else { Err(device.to_string()) }
}

/// The same image, with these sectors unreadable until the disk is written to.
fn unreadable(disk: &Disk, folder: &Path, sectors: &[u64]) -> Value {
    let mut drive = disk.blockdev(folder).unwrap();
    let file = drive["file"].take();
    // An injected rule remains until another one takes its place.
    let rules = |sector: &u64| {
        [(1, 5), (2, 0)].map(|(state, errno)| {
            json!({"event": "read_aio", "iotype": "read", "state": state, "sector": sector, "errno": errno})
        })
    };
    drive["file"] = json!({
        "driver": "blkdebug", "image": file,
        "inject-error": sectors.iter().flat_map(rules).collect::<Vec<_>>(),
        "set-state": [{"event": "write_aio", "state": 1, "new_state": 2}],
    });
    drive
}
