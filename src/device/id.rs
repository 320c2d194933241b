//! Which disk a device is, and by which link people should name it.
//!
//! Takes in what the kernel says and the label; gives out a [`DiskId`]: never a size, never a partition number, and a
//! `/dev` path only if there is nothing else (`path-…`, marked as not stable).

use std::path::{Path, PathBuf};

use uuid::Uuid;

use super::disk_id::{DiskId, HardwareId};
use super::label::{Hardware, Label};
use crate::host::{DeviceKind, Partition, RawDisk};

/// Which disk it is. With a label, its GPT disk GUID; else what the hardware says.
pub fn identify(raw: &RawDisk, disk: Option<&RawDisk>, label: Option<&Label>) -> DiskId {
    match label {
        Some(label) => DiskId::labelled(label.disk),
        None => hardware_id(raw, disk).into(),
    }
}

/// Which disk it is by its hardware alone, label or not: what a label records to tell a disk from a copy. `disk` is the
/// disk of a partition.
pub fn hardware_id(raw: &RawDisk, disk: Option<&RawDisk>) -> HardwareId {
    let own = match &raw.kind {
        DeviceKind::Partition(partition) => partition_id(partition, disk),
        DeviceKind::Loop(Some(backing)) => {
            backing.inode.map(|(dev, inode)| HardwareId::named(format!("loop-{dev}-{inode}")))
        }
        DeviceKind::Dm(dm) => tidy(&dm.uuid).map(|uuid| HardwareId::named(format!("dm-{uuid}"))),
        DeviceKind::Md(md) => md.uuid.as_deref().and_then(tidy).map(|uuid| HardwareId::named(format!("md-{uuid}"))),
        DeviceKind::Loop(None) | DeviceKind::Ram | DeviceKind::Zram => None,
        DeviceKind::Disk | DeviceKind::Rom | DeviceKind::Floppy | DeviceKind::Network | DeviceKind::Other(_) => {
            wwid(raw).or_else(|| serial(raw))
        }
    };
    own.unwrap_or_else(|| HardwareId::of_path(&raw.path))
}

/// Whether a disk's id may be the name of its USB bridge, such as a dock: with another disk in it the name stays the
/// same. A partition with a GUID of its own is known by that GUID.
pub fn may_be_of_bridge(raw: &RawDisk, disk: Option<&RawDisk>) -> bool {
    let on_usb = |raw: &RawDisk| raw.transport.as_deref() == Some("usb");
    match &raw.kind {
        DeviceKind::Partition(partition) => guid_of(partition).is_none() && disk.is_some_and(on_usb),
        DeviceKind::Dm(_) | DeviceKind::Md(_) | DeviceKind::Loop(_) | DeviceKind::Ram | DeviceKind::Zram => false,
        DeviceKind::Disk | DeviceKind::Rom | DeviceKind::Floppy | DeviceKind::Network | DeviceKind::Other(_) => {
            on_usb(raw)
        }
    }
}

/// The whole disk that a device is or is a partition of, as its claim records it: a copy of a partition has the same
/// GUID. `None`: nothing distinguishes that disk from another one.
pub fn whole_disk(raw: &RawDisk, disk: Option<&RawDisk>) -> Option<Hardware> {
    let whole = match &raw.kind {
        DeviceKind::Partition(_) => disk?,
        _ => raw,
    };
    let id = hardware_id(whole, None);
    let is_distinct = !id.is_path() && !may_be_of_bridge(whole, None);
    is_distinct.then(|| Hardware::of(id, whole))
}

/// GPT: the partition's GUID. DOS: the PARTUUID ends in the partition number, so we take the disk's own id and the
/// start instead.
fn partition_id(partition: &Partition, disk: Option<&RawDisk>) -> Option<HardwareId> {
    if let Some(guid) = guid_of(partition) {
        return Some(HardwareId::named(format!("part-{guid}")));
    }
    let disk = hardware_id(disk?, None);
    (!disk.is_path()).then(|| HardwareId::named(format!("part-{disk}-at-{}", partition.start)))
}

fn guid_of(partition: &Partition) -> Option<Uuid> {
    let guid = partition.part_uuid.as_deref().and_then(|uuid| Uuid::try_parse(uuid.trim()).ok());
    guid.filter(|guid| !guid.is_nil())
}

fn wwid(raw: &RawDisk) -> Option<HardwareId> {
    let wwid = tidy(raw.wwid.as_deref()?)?;
    let number = wwid.split_once('.').map_or(wwid.as_str(), |(_, number)| number);
    (!is_junk(number)).then(|| HardwareId::named(format!("wwid-{wwid}")))
}

fn serial(raw: &RawDisk) -> Option<HardwareId> {
    let serial = tidy(raw.serial.as_deref()?).filter(|serial| !is_junk(serial))?;
    let model = raw.model.as_deref().and_then(tidy).unwrap_or_default();
    Some(HardwareId::named(format!("serial-{model}-{serial}")))
}

/// One word: blanks, slashes and control characters become `_`, as in the names of by-id links.
fn tidy(text: &str) -> Option<String> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    let word = |c: char| if c.is_whitespace() || c.is_control() || c == '/' { '_' } else { c };
    (!text.is_empty()).then(|| text.chars().map(word).collect())
}

const FILLERS: [&str; 8] =
    ["none", "null", "n/a", "n_a", "unknown", "default_string", "serial_number", "to_be_filled_by_o.e.m."];
/// What USB bridges and virtual disks report if nobody set a serial, whole or cut short.
const COUNTINGS: [&str; 2] = ["0123456789abcdef", "12345678901234567890"];

/// A serial that identifies nothing, as the next disk would have it too.
fn is_junk(serial: &str) -> bool {
    let serial = serial.trim_matches('_').to_lowercase();
    let all_one = |c: char| serial.chars().all(|other| other == c);
    let counting = |row: &str| serial.len() >= 8 && row.starts_with(serial.as_str());
    serial.chars().next().is_none_or(|first| all_one(first) && (first == '0' || serial.len() >= 6))
        || FILLERS.contains(&serial.as_str())
        || COUNTINGS.iter().any(|row| counting(row))
}

/// The operator's order of link names; one that matches none of them comes last.
const LINK_ORDER: [&str; 10] =
    ["wwn", "scsi-3", "scsi-2", "scsi-8", "scsi-S", "scsi-1", "scsi-0", "scsi", "nvme-eui", "nvme"];

/// The link for people: the best one in `/dev/disk/by-id`, else the kernel's node.
pub fn best_link(raw: &RawDisk) -> PathBuf {
    let rank = |link: &Path| {
        let name = link.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        LINK_ORDER.iter().position(|prefix| name.starts_with(prefix)).unwrap_or(LINK_ORDER.len())
    };
    let by_id = raw.links.iter().filter(|link| link.parent() == Some(Path::new("/dev/disk/by-id")));
    by_id.min_by_key(|link| (rank(link), link.as_path())).unwrap_or(&raw.path).clone()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::sample::{self, disk, label, partition};
    use super::*;
    use crate::host::{Dm, LoopBacking, Md};

    fn text(raw: &RawDisk) -> String {
        hardware_id(raw, None).to_string()
    }

    #[test]
    fn a_labelled_disk_is_its_disk_guid_whatever_the_hardware_says() {
        let label = label("c", "n");
        let mut raw = disk("sda");
        raw.wwid = Some("naa.5000c500a1b2c3d4".into());
        assert_eq!(identify(&raw, None, Some(&label)).to_string(), format!("gpt-{}", label.disk));
        assert_eq!(identify(&raw, None, None).to_string(), "wwid-naa.5000c500a1b2c3d4");
    }

    #[test]
    fn a_disk_is_its_wwid_else_its_model_and_serial_else_its_path() {
        let mut raw = disk("sda");
        raw.model = Some("Samsung SSD 870".into());
        raw.serial = Some(" S5Y1NJ0R ".into());
        raw.wwid = Some("t10.ATA     Samsung SSD 870  S5Y1NJ0R".into());
        assert_eq!(text(&raw), "wwid-t10.ATA_____Samsung_SSD_870__S5Y1NJ0R");
        raw.wwid = None;
        assert_eq!(text(&raw), "serial-Samsung_SSD_870-S5Y1NJ0R");
        raw.serial = None;
        assert_eq!(text(&raw), "path-/dev/sda");
        assert!(hardware_id(&raw, None).is_path());
    }

    #[test]
    fn junk_serials_and_wwids_count_as_absent() {
        let junk = [
            "0",
            "0000000000000000",
            "none",
            "None",
            "  ",
            "\t",
            "",
            "0123456789ABCDEF",
            "0123456789",
            "123456789012",
            "FFFFFFFF",
            "to be filled by O.E.M.",
            "unknown",
            "N/A",
        ];
        for serial in junk {
            let mut raw = disk("sdb");
            raw.serial = Some(serial.into());
            assert_eq!(text(&raw), "path-/dev/sdb", "{serial:?}");
            raw.wwid = Some(format!("naa.{serial}"));
            assert_eq!(text(&raw), "path-/dev/sdb", "naa.{serial:?}");
        }
        for serial in ["1", "7", "vol-0a1b2c3d", "WD-WX11", "01234567-89", "0000000000000001", "aaaab"] {
            let mut raw = disk("sdb");
            raw.serial = Some(serial.into());
            assert_eq!(text(&raw), format!("serial--{serial}"));
        }
    }

    #[test]
    fn a_partition_is_its_guid_and_with_dos_its_disk_and_start() {
        let mut parent = disk("sda");
        parent.wwid = Some("naa.5000".into());
        let guid = "6C6F6361-0000-4000-8000-00000000ABCD";
        let gpt = partition("sda", 2, Some(guid));
        assert_eq!(hardware_id(&gpt, Some(&parent)).to_string(), format!("part-{}", guid.to_lowercase()));
        let DeviceKind::Partition(part) = &gpt.kind else { unreachable!() };
        let dos_id = format!("part-wwid-naa.5000-at-{}", part.start);
        for number_in_it in [Some("9f2c1a3b-02"), Some("00000000-0000-0000-0000-000000000000"), None] {
            let dos = partition("sda", 2, number_in_it);
            assert_eq!(hardware_id(&dos, Some(&parent)).to_string(), dos_id);
            assert!(hardware_id(&dos, None).is_path());
        }
    }

    #[test]
    fn mapped_array_and_loop_devices_are_what_they_were_made_as() {
        let dm = |uuid: &str| {
            sample::with_kind("dm-0", DeviceKind::Dm(Dm { name: "a".into(), uuid: uuid.into(), suspended: false }))
        };
        assert_eq!(text(&dm("mpath-3600a098")), "dm-mpath-3600a098");
        assert_eq!(text(&dm("")), "path-/dev/dm-0");
        let md = |uuid: Option<&str>| {
            sample::with_kind("md0", DeviceKind::Md(Md { uuid: uuid.map(str::to_owned), level: None, state: None }))
        };
        assert_eq!(text(&md(Some("3aaa0122:29827cfa"))), "md-3aaa0122:29827cfa");
        assert_eq!(text(&md(None)), "path-/dev/md0");
        let backing = LoopBacking { file: "/img".into(), inode: Some((66305, 42)), deleted: false };
        assert_eq!(text(&sample::with_kind("loop0", DeviceKind::Loop(Some(backing.clone())))), "loop-66305-42");
        let lost = LoopBacking { inode: None, ..backing };
        assert_eq!(text(&sample::with_kind("loop0", DeviceKind::Loop(Some(lost)))), "path-/dev/loop0");
    }

    #[test]
    fn links_are_chosen_in_the_operators_order() {
        let ordered = [
            "wwn-0x5000",
            "scsi-35000",
            "scsi-2500",
            "scsi-8500",
            "scsi-SATA_X",
            "scsi-1ATA",
            "scsi-0QEMU",
            "scsi-X",
            "nvme-eui.0025",
            "nvme-Samsung",
            "ata-Samsung",
        ];
        for best in 0..ordered.len() {
            let mut raw = disk("sda");
            raw.links = ordered[best..].iter().rev().map(|name| Path::new("/dev/disk/by-id").join(name)).collect();
            raw.links.insert(0, "/dev/disk/by-path/pci-0000:00:1f.2-ata-1".into());
            assert_eq!(best_link(&raw), Path::new("/dev/disk/by-id").join(ordered[best]));
        }
        let mut bare = disk("vda");
        bare.links = vec!["/dev/disk/by-path/pci-0000:00:05.0".into(), "/dev/disk/by-uuid/x".into()];
        assert_eq!(best_link(&bare), Path::new("/dev/vda"));
    }

    proptest! {
        #[test]
        fn the_link_does_not_depend_on_the_order_of_the_links(mut names in prop::collection::vec("(wwn|scsi-3|scsi|nvme|ata)-[a-c]{1,2}", 1..8), seed in any::<u64>()) {
            let raw = |names: &[String]| RawDisk {
                links: names.iter().map(|name| Path::new("/dev/disk/by-id").join(name)).collect(), ..disk("sda")
            };
            let first = best_link(&raw(&names));
            let turn = usize::try_from(seed % 8).unwrap() % names.len();
            names.rotate_left(turn);
            prop_assert_eq!(best_link(&raw(&names)), first);
        }

        #[test]
        fn an_id_never_holds_a_size_or_an_unprintable_character(size in any::<u64>(), serial in any::<String>(), model in any::<Option<String>>()) {
            let mut raw = disk("sda");
            raw.serial = Some(serial);
            raw.model = model;
            let before = text(&raw);
            raw.size = size;
            prop_assert_eq!(&text(&raw), &before);
            prop_assert!(!before.chars().any(char::is_control));
        }
    }
}
