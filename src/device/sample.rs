//! Made-up devices for tests: a plain one of each sort, to be changed as a case needs it.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::label::{Hardware, Label, Layout, SetRef};
use super::{Believed, Device, HardwareId, Verdict, id};
use crate::device::set_name::SetName;
use crate::host::{DevNo, DeviceKind, Dm, LoopBacking, Md, Partition, Probe, ProbeResult, RawDisk};

pub const GIB: u64 = 1 << 30;

/// A blank 100 GiB disk of a model, without wwid, serial or links.
pub fn disk(name: &str) -> RawDisk {
    with_kind(name, DeviceKind::Disk)
}

pub fn with_kind(name: &str, kind: DeviceKind) -> RawDisk {
    let number = name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(byte)));
    let devno = DevNo { major: 8, minor: number };
    RawDisk {
        size: 100 * GIB,
        logical_sector: 512,
        physical_sector: 4096,
        offloads_zeroes: true,
        discards: true,
        diskseq: Some(1),
        ..RawDisk::named(name.into(), format!("/dev/{name}").into(), devno, kind)
    }
}

pub fn partition(disk: &str, number: u32, part_uuid: Option<&str>) -> RawDisk {
    let dash = if disk.ends_with(|c: char| c.is_ascii_digit()) { "p" } else { "" };
    let kind = DeviceKind::Partition(Partition {
        disk: disk.into(),
        number,
        start: u64::from(number) * GIB,
        part_uuid: part_uuid.map(str::to_owned),
        part_label: None,
    });
    RawDisk { size: GIB, ..with_kind(&format!("{disk}{dash}{number}"), kind) }
}

pub fn loop_over(name: &str, file: &str) -> RawDisk {
    with_kind(name, DeviceKind::Loop(Some(LoopBacking { file: file.into(), inode: Some((1, 1)), deleted: false })))
}

pub fn dm(name: &str, uuid: &str, slaves: &[&str]) -> RawDisk {
    let kind = DeviceKind::Dm(Dm { name: format!("name-of-{name}"), uuid: uuid.into(), suspended: false });
    RawDisk { slaves: slaves.iter().map(|s| (*s).into()).collect(), ..with_kind(name, kind) }
}

pub fn md(name: &str, slaves: &[&str]) -> RawDisk {
    let kind = DeviceKind::Md(Md { uuid: Some("u".into()), level: Some("raid1".into()), state: Some("clean".into()) });
    RawDisk { slaves: slaves.iter().map(|s| (*s).into()).collect(), ..with_kind(name, kind) }
}

pub fn blank() -> Probe {
    Probe::Read(ProbeResult::default())
}

pub fn label(cluster: &str, node: &str) -> Label {
    Label {
        disk: Uuid::from_u128(7),
        cluster: cluster.into(),
        node: node.into(),
        hardware: Hardware { id: HardwareId::named("wwid-naa.1"), model: None, serial: None },
        set: set("pool"),
        layout: Layout::Whole {},
        releasing: false,
        used: false,
        given_up: false,
        clean: Vec::new(),
        volumes: BTreeMap::new(),
        erasing: BTreeMap::new(),
    }
}

pub fn set(name: &str) -> SetRef {
    SetRef::new(SetName::new("default", name), format!("uid-{name}"))
}

/// An unclaimed device with a stable identity.
pub fn unclaimed(name: &str) -> Device {
    let raw = RawDisk { serial: Some(format!("SN-{name}")), ..disk(name) };
    device(raw, Verdict::Unclaimed)
}

pub fn device(raw: RawDisk, verdict: Verdict) -> Device {
    Device {
        id: id::hardware_id(&raw, None).into(),
        link: raw.path.clone(),
        verdict,
        label: None,
        probe: blank(),
        unread: None,
        believed: Believed::Yes,
        raw,
    }
}

/// Compares a text with the file of that name below `src`, or writes the file if `UPDATE_DOCS` is set. Programs rely
/// on these texts, so that each change of them has to be seen in a diff.
#[cfg(test)]
pub fn holds(file: &str, text: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is made");
        std::fs::write(&path, text).expect("the file is written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == text, "src/{file} differs; UPDATE_DOCS=1 writes it. The text is now:\n{text}");
}
