//! What the tenant of a volume builds on it is the tenant's, though it looks like a blank device of the machine.

use crate::bench::Bench;
use crate::csi::{Use, target};
use crate::hotplug::await_ours;
use crate::report::Report;

/// A disk; its set has the same name.
const NAME: &str = "hot-virtio";

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "a mapping and a loop device that a tenant builds on a volume are Theirs";
    if !report.wants(name) {
        return;
    }
    report.check(name, || build(bench));
    // Also if it ended early.
    bench.guest.run("for name in tenant tenant-over-loop; do dmsetup remove $name 2>/dev/null || true; done");
    bench.guest.run("losetup --detach /dev/loop5 2>/dev/null || true");
}

fn build(bench: &mut Bench) {
    await_ours(bench, NAME);
    let id = bench.csi(async |csi| {
        let id = csi.create("tenant", NAME, 64, Use::Block).await.unwrap();
        csi.stage(&id, Use::Block).await.unwrap();
        csi.publish(&id, Use::Block).await.unwrap();
        id
    });
    let mapped = bench.guest.run(&format!(
        "losetup /dev/loop5 {0}
         dmsetup create tenant --table \"0 $(blockdev --getsz {0}) linear {0} 0\"
         dmsetup create tenant-over-loop --table \"0 $(blockdev --getsz {0}) linear /dev/loop5 0\"
         udevadm settle; readlink -f /dev/mapper/tenant /dev/mapper/tenant-over-loop",
        target(&id)
    ));
    let devices = bench.by_path();
    let of_disk = |path| (path, "which belongs to a pool disk, by the user of that volume");
    let over = [("/dev/loop5", "a loop device over the block device")];
    for (path, message) in mapped.lines().map(of_disk).chain(over) {
        let device = &devices[path];
        let (verdict, reason) = (device["verdict"].as_str().unwrap(), device["reason"].as_str().unwrap());
        assert!(verdict == "Theirs" && reason.contains(message), "{path} is {verdict}: {reason}");
    }
    bench.guest.run("dmsetup remove tenant tenant-over-loop; losetup --detach /dev/loop5");
    bench.csi(async |csi| {
        csi.unpublish(&id).await.unwrap();
        csi.unstage(&id).await.unwrap();
        csi.delete(&id).await.unwrap();
    });
}
