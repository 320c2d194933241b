//! A machine for tests: each fact is on one of its devices, and one device has none.

use super::listed::ListedDevice;
use crate::device::{
    Believed, Device, DiskId, Reason, Verdict,
    sample::{device, disk, dm, label, loop_over, partition, with_kind},
};
use crate::host::{DeviceKind, Probe, ProbeResult, RawDisk, Signature};

fn plain(device: Device) -> ListedDevice {
    ListedDevice { device, note: None }
}

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn whole() -> Device {
    let raw = RawDisk {
        size: 1_920_383_410_176,
        logical_sector: 4096,
        rotational: true,
        read_only: true,
        removable: true,
        vendor: text("ATA     "),
        model: text("Samsung SSD 870 EVO 2TB"),
        serial: text("S6PXNM0T"),
        wwid: text("naa.5002538f7142a3b1"),
        transport: text("sas"),
        links: vec![
            "/dev/disk/by-id/wwn-0x5002538f7142a3b1".into(),
            "/dev/disk/by-path/pci-0000:3b:00.0-sas-phy1-lun-0".into(),
        ],
        holders: vec!["dm-0".into()],
        partitions: vec!["sda1".into(), "sda2".into()],
        fs_type: text("ext4"),
        zoned: text("host-aware"),
        numa_node: Some(1),
        ..disk("sda")
    };
    let mounted = Reason::Mounted { device: "sda1".into(), target: "/var".into() };
    Device { link: raw.links[0].clone(), ..device(raw, Verdict::Theirs(mounted)) }
}

fn signed() -> Device {
    let found = Signature { kind: "xfs".into(), usage: "filesystem".into(), label: None, uuid: None, offset: 0 };
    let probe = Probe::Read(ProbeResult { signatures: vec![found], ..ProbeResult::default() });
    let raw = RawDisk {
        model: text("evil\u{1b}[2J\n\"é\""),
        wwid: text("t10.ATA     QEMU"),
        discards: false,
        fs_type: text("ext4"),
        transport: text("iscsi"),
        ..disk("sdd")
    };
    Device { probe, believed: Believed::No("has the identity of /dev/sde".into()), ..device(raw, Verdict::Unclaimed) }
}

/// A device of each verdict and sort: one with all facts, and one with none.
pub fn machine() -> Vec<ListedDevice> {
    let own = label("c", "n");
    let id = DiskId::labelled(own.disk);
    let nvme = RawDisk {
        wwid: text("eui.002538b7142a3b10"),
        transport: text("nvme"),
        numa_node: Some(0),
        partitions: vec!["nvme0n1p1".into()],
        ..disk("nvme0n1")
    };
    let pool = Device { label: Some(own.into()), id: id.clone(), ..device(nvme, Verdict::Ours) };
    let foreign = Verdict::Foreign { cluster: "west".into(), node: "worker-3".into() };
    let foreign = Device { label: Some(label("west", "worker-3").into()), id, ..device(disk("sdc"), foreign) };
    let ebs = RawDisk { model: text("Amazon Elastic Block Store"), size: u64::MAX, ..disk("nvme2n1") };
    let idle = |name| RawDisk { size: 0, ..with_kind(name, DeviceKind::Loop(None)) };
    vec![
        plain(whole()),
        ListedDevice { device: pool, note: text("in pool, 3.2 GiB free") },
        plain(device(partition("nvme0n1", 1, None), Verdict::Ours)),
        plain(device(partition("sdq", 1, None), Verdict::Ours)),
        plain(foreign),
        plain(signed()),
        plain(device(ebs, Verdict::Unclaimed)),
        plain(device(disk("vda"), Verdict::Unclaimed)),
        plain(device(dm("dm-0", "LVM-abc", &["sda"]), Verdict::Unknown("it hangs".into()))),
        plain(device(loop_over("loop1", "/var/a.img"), Verdict::Unclaimed)),
        plain(device(idle("loop7"), Verdict::Theirs(Reason::NoMedium))),
        plain(device(RawDisk { size: 0, ..disk("sr0") }, Verdict::Theirs(Reason::NoMedium))),
    ]
}
