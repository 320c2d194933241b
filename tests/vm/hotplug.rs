//! Disks that leave and come back while their volumes are in use, on each bus that supports it; and new ones.

use localpool::rpc::proto::volume_health::VolumeHealthEntry;

use crate::bench::Bench;
use crate::csi::Use;
use crate::disks::{Bus, Disk};
use crate::driver::AT_ONCE;
use crate::faces;
use crate::report::Report;

pub const BUSES: [(&str, Bus); 4] =
    [("hot-nvme", Bus::Nvme), ("hot-scsi", Bus::Scsi), ("hot-virtio", Bus::Virtio), ("hot-usb", Bus::Usb)];

/// One disk of 1 GiB for each bus.
pub fn disks() -> Vec<Disk> {
    BUSES.iter().map(|(name, bus)| Disk::new(name, *bus).mib(1024)).collect()
}

pub fn check(bench: &mut Bench, report: &mut Report) {
    for disk in disks() {
        let name = format!("{:?}: volumes in use outlive that their disk is pulled and plugged in elsewhere", disk.bus);
        report.check(&name, || pull_and_plug(bench, &disk));
    }
    report.check(
        "a disk that is plugged in is taken after its minimum age if it is blank, and never if it is not",
        || plug_new(bench),
    );
}

fn pull_and_plug(bench: &mut Bench, disk: &Disk) {
    let name = disk.name.as_str();
    await_ours(bench, name);
    let block = bench.volume(&format!("{name}-block"), name, 32, Use::Block);
    let files = bench.volume(&format!("{name}-files"), name, 64, Use::Ext4);
    // They write all the time, as nobody stops for a disk that dies; beside the data that is checked later.
    let targets = (crate::csi::target(&files.id), crate::csi::target(&block.id));
    bench.guest.run(&format!(
        "writer() {{ systemd-run --quiet --collect --unit=$1 bash -c \"while dd if=/dev/zero of=$2 bs=64k count=16 conv=fsync,notrunc ${{3:-}}; do :; done\"; }}
         writer writer-files {}/other; writer writer-block {} seek=128",
        targets.0, targets.1
    ));
    bench.guest.unplug(disk);
    let pulled = faces::now(bench);
    let seen = bench.eventually("the driver sees that the disk is away", |bench| {
        let both = bench.csi(async |csi| [csi.health(&block.id).await, csi.health(&files.id).await]);
        let is_missing = |[on_node, _]: &[Vec<VolumeHealthEntry>; 2]| matches!(&on_node[..], [VolumeHealthEntry { reason, .. }] if reason == "DiskMissing");
        if both.iter().all(is_missing) { Ok(faces::now(bench)) } else { Err(format!("{both:?}")) }
    });
    let took = seen.saturating_sub(pulled);
    println!("    {name} is missed {:.1} s after it was pulled", took.as_secs_f64());
    assert!(took <= AT_ONCE, "{name} is missed only after {took:?}");
    bench.guest.run("systemctl stop writer-files writer-block 2>/dev/null || true");
    bench.put_away(&block);
    bench.put_away(&files);
    bench.guest.plug(disk);
    await_ours(bench, name);
    for volume in [&block, &files] {
        bench.eventually("the volume is well again", |bench| {
            let listed = bench.csi(async |csi| csi.list().await);
            match listed.get(&volume.id) {
                Some(condition) if !condition.abnormal => Ok(()),
                other => Err(format!("{other:?}")),
            }
        });
        bench.use_again(volume);
        bench.has_its_data(volume);
        bench.put_away(volume);
    }
}

/// Waits until a disk is in the pool.
pub fn await_ours(bench: &mut Bench, serial: &str) {
    bench.driver();
    bench.eventually(&format!("{serial} is in the pool"), |bench| {
        let devices = bench.devices();
        let device = devices.iter().find(|device| device["serial"] == serial).ok_or("it is not there")?;
        match (device["verdict"].as_str(), device["reason"].as_str()) {
            (Some("Ours"), Some(reason)) if is_in_pool(reason) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
}

fn plug_new(bench: &mut Bench) {
    let blank = Disk::new("new-blank", Bus::Nvme);
    let used = Disk::new("new-used", Bus::Scsi).used();
    bench.guest.add_drive(&blank);
    bench.guest.add_drive(&used);
    bench.guest.plug(&used);
    bench.guest.plug(&blank);
    await_ours(bench, "new-blank");
    let devices = bench.devices();
    let device = devices.iter().find(|device| device["serial"] == "new-used").unwrap();
    assert_eq!(device["verdict"], "Theirs", "{device}");
    // They are not among the disks that the guest boots with again, so no volume may be placed on them.
    bench.guest.unplug(&blank);
    bench.guest.unplug(&used);
    bench.eventually("the driver sees that both are away", |bench| {
        let devices = bench.devices();
        let left = devices.iter().filter(|device| device["serial"] == "new-blank" || device["serial"] == "new-used");
        match left.count() {
            0 => Ok(()),
            left => Err(format!("{left} are listed")),
        }
    });
}

/// Labelled or bare, and present.
fn is_in_pool(reason: &str) -> bool {
    (reason.starts_with("in pool,") || reason.starts_with("in pool as a bare device,")) && !reason.contains("missing")
}
