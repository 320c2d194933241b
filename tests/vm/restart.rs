//! A power cut, and a machine that comes back with its disks on other buses and in another order.

use std::collections::{BTreeSet, HashMap};

use crate::bench::Bench;
use crate::cases::{Expected, UNCLAIMED};
use crate::csi::Use;
use crate::disks::{Bus, Disk};
use crate::report::Report;
use crate::{hotplug, verdicts};

pub fn check(bench: &mut Bench, report: &mut Report) {
    let name = "after a power cut, on other buses and under other names: the same volumes with the same data";
    if !report.wants(name) {
        return;
    }
    if !bench.guest.is_own() {
        return report.skipped(name, "the guest is kept up by another run");
    }
    let mut volumes = Vec::new();
    report.check("volumes can be made on disks of every set", || {
        for (set, mib, usage) in [
            ("nvme", 100, Use::Block),
            ("flash", 64, Use::Ext4),
            ("turning", 64, Use::Ext4),
            ("shared", 100, Use::Block),
            ("hot-usb", 200, Use::Ext4),
        ] {
            volumes.push(bench.volume(&format!("kept-{set}"), set, mib, usage));
        }
    });
    let mut before = HashMap::new();
    report.check("a machine whose disks are all somewhere else boots", || {
        before = bench.csi(async |csi| csi.list().await);
        let places = places(bench);
        bench.boot_again(recabled);
        let same: Vec<_> = places.intersection(&self::places(bench)).cloned().collect();
        assert!(same.is_empty(), "where they were before: {same:?}");
    });
    verdicts(bench, report);
    report.check(name, || {
        bench.driver();
        for (disk, _) in hotplug::BUSES {
            hotplug::await_ours(bench, disk);
        }
        bench.eventually("the same volumes are there, and well", |bench| {
            let after = bench.csi(async |csi| csi.list().await);
            let unwell: Vec<_> = after.iter().filter(|(_, condition)| condition.abnormal).collect();
            let missing: Vec<_> = before.keys().filter(|id| !after.contains_key(*id)).collect();
            let more: Vec<_> = after.keys().filter(|id| !before.contains_key(*id)).collect();
            let same = unwell.is_empty() && missing.is_empty() && more.is_empty();
            if same { Ok(()) } else { Err(format!("missing: {missing:?}, more: {more:?}, unwell: {unwell:?}")) }
        });
        for volume in &volumes {
            bench.use_again(volume);
            bench.has_its_data(volume);
            bench.put_away(volume);
        }
    });
}

/// Serial and bus of the disks that can be on any bus: by the first letters of the kernel's name, and by the transport.
fn places(bench: &mut Bench) -> BTreeSet<(String, String)> {
    let word = |device: &serde_json::Value, name: &str| device[name].as_str().unwrap_or_default().to_owned();
    let bus = |device: &serde_json::Value| {
        let sort: String = word(device, "path").chars().skip("/dev/".len()).take(2).collect();
        format!("{sort} {}", word(device, "transport"))
    };
    let all = bench.devices().into_iter().map(|device| (word(&device, "serial"), bus(&device)));
    let places: BTreeSet<_> = all.filter(|(serial, _)| hotplug::BUSES.iter().any(|(name, _)| name == serial)).collect();
    assert_eq!(places.len(), hotplug::BUSES.len(), "{places:?}");
    places
}

/// The verdict on every disk after the power cut, before a driver runs.
fn verdicts(bench: &mut Bench, report: &mut Report) {
    let ours = Expected { verdict: "Ours", message: "in pool" };
    // Disks that were free have been taken since.
    verdicts::judge(bench, report, " after a power cut", |judged| {
        let is_taken = judged.set.is_some() && judged.now.verdict == UNCLAIMED.verdict;
        judged.later.map(|later| if is_taken { ours } else { later })
    });
}

/// In reverse order, and most of them on another bus.
fn recabled(disks: &[Disk]) -> Vec<Disk> {
    // As many as fit.
    let (mut virtio, mut sata) = (12, 5);
    let mut other_bus = |disk: &Disk| match disk.bus {
        _ if disk.read_only || disk.removable || disk.wwn.is_some() => disk.bus,
        Bus::Nvme => Bus::Scsi,
        Bus::Virtio => Bus::Nvme,
        Bus::Sata => Bus::Usb,
        Bus::Usb => Bus::Virtio,
        Bus::Scsi if disk.sector == 512 && sata > 0 => {
            sata -= 1;
            Bus::Sata
        }
        Bus::Scsi if virtio > 0 => {
            virtio -= 1;
            Bus::Virtio
        }
        other => other,
    };
    disks.iter().rev().map(|disk| Disk { bus: other_bus(disk), ..disk.clone() }).collect()
}
