//! udev's database: what its rules found out about a device and sysfs does not say.
//!
//! Takes in `/run/udev/data/b<major>:<minor>`, fills the gaps of a [`RawDisk`], keeps the links.
//! It may be absent, and may be older than the device: what sysfs says takes precedence.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use super::raw::{DevNo, DeviceKind, RawDisk, gpt_uuid};

/// The links that udev gave each device, in case `/dev/disk` itself cannot be seen.
#[derive(Debug, Default)]
pub struct UdevDatabase {
    links: HashMap<DevNo, (i32, Vec<PathBuf>)>,
}

impl UdevDatabase {
    /// Reads the record of each device and fills in what sysfs left out.
    pub fn read(run: &Path, disks: &mut [RawDisk]) -> Self {
        let folder = run.join("udev/data");
        let mut database = Self::default();
        if !folder.is_dir() {
            return database;
        }
        for disk in disks {
            match std::fs::read(folder.join(format!("b{}", disk.devno))) {
                Ok(text) => {
                    let record = UdevRecord::parse(&text);
                    record.fill(disk);
                    database.links.insert(disk.devno, (record.priority, record.links));
                }
                Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
                Err(why) => disk.cannot_be_known(&format!("its record of udev cannot be read: {why}")),
            }
        }
        database
    }

    /// The device that has a link, relative to /dev: the one of the highest priority, as udev decides
    /// it; none if two are equal.
    pub fn owners(&self) -> HashMap<&Path, DevNo> {
        let mut best: HashMap<&Path, (i32, Option<DevNo>)> = HashMap::new();
        for (devno, (priority, links)) in &self.links {
            for link in links {
                let entry = best.entry(link).or_insert((*priority, Some(*devno)));
                if entry.1 == Some(*devno) {
                    continue;
                }
                match priority.cmp(&entry.0) {
                    std::cmp::Ordering::Greater => *entry = (*priority, Some(*devno)),
                    std::cmp::Ordering::Equal => entry.1 = None,
                    std::cmp::Ordering::Less => {}
                }
            }
        }
        best.into_iter().filter_map(|(link, (_, owner))| Some((link, owner?))).collect()
    }
}

/// What udev found out about one device under this key; `None`: nothing, or there is no database.
pub(super) fn property(run: &Path, device: DevNo, key: &str) -> Option<String> {
    let text = std::fs::read(run.join("udev/data").join(format!("b{device}"))).ok()?;
    UdevRecord::parse(&text).property(key)
}

/// One file of the database.
#[derive(Debug, Default)]
struct UdevRecord {
    links: Vec<PathBuf>,
    priority: i32,
    properties: HashMap<String, String>,
}

impl UdevRecord {
    fn parse(text: &[u8]) -> Self {
        let mut record = Self::default();
        for (kind, value) in String::from_utf8_lossy(text).lines().filter_map(|line| line.split_once(':')) {
            match kind {
                "S" => record.links.extend(link(value)),
                "L" => record.priority = value.trim().parse().unwrap_or(0),
                "E" => {
                    if let Some((key, value)) = value.split_once('=') {
                        record.properties.insert(key.to_owned(), value.to_owned());
                    }
                }
                _ => {}
            }
        }
        record
    }

    fn property(&self, key: &str) -> Option<String> {
        self.properties.get(key).map(|value| value.trim()).filter(|value| !value.is_empty()).map(str::to_owned)
    }

    fn fill(&self, disk: &mut RawDisk) {
        disk.fs_type = self.property("ID_FS_TYPE").map(|kind| decode(&kind));
        match &mut disk.kind {
            DeviceKind::Partition(partition) => {
                let uuid = || self.property("ID_PART_ENTRY_UUID").as_deref().and_then(gpt_uuid);
                partition.part_uuid = partition.part_uuid.take().or_else(uuid);
                let label = || self.property("ID_PART_ENTRY_NAME").map(|name| decode(&name));
                partition.part_label = partition.part_label.take().or_else(label);
            }
            DeviceKind::Md(md) => {
                md.uuid = md.uuid.take().or_else(|| self.property("MD_UUID").as_deref().and_then(md_uuid));
            }
            DeviceKind::Disk | DeviceKind::Rom | DeviceKind::Network => {
                // ID_SERIAL contains the model or the wwid, so it is the last resort.
                let serial = ["ID_SCSI_SERIAL", "ID_SERIAL_SHORT", "ID_SERIAL"];
                disk.serial = disk.serial.take().or_else(|| serial.iter().find_map(|key| self.property(key)));
                let wwid = ["ID_WWN_WITH_EXTENSION", "ID_WWN"];
                let found = || wwid.iter().find_map(|key| self.property(key)).map(|name| as_wwid(&name));
                disk.wwid = disk.wwid.take().or_else(found);
            }
            DeviceKind::Loop(_)
            | DeviceKind::Dm(_)
            | DeviceKind::Floppy
            | DeviceKind::Ram
            | DeviceKind::Zram
            | DeviceKind::Other(_) => {}
        }
    }
}

/// A link below /dev; a path that climbs out of it is no link.
fn link(value: &str) -> Option<PathBuf> {
    let path = PathBuf::from(value);
    (!value.is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)))).then_some(path)
}

/// udev writes a NAA name as `0x5000…`, sysfs as `naa.5000…`; a disk must not change its name with the source.
fn as_wwid(name: &str) -> String {
    name.strip_prefix("0x").map_or_else(|| name.to_owned(), |hex| format!("naa.{}", hex.to_ascii_lowercase()))
}

/// mdadm writes four words with colons, the kernel a UUID; the bytes are the same. All zeros is no name.
pub(super) fn md_uuid(words: &str) -> Option<String> {
    let uuid = uuid::Uuid::try_parse(&words.replace(':', "")).ok().filter(|uuid| !uuid.is_nil())?;
    Some(uuid.hyphenated().to_string())
}

/// Undoes udev's `\x20`.
fn decode(value: &str) -> String {
    let mut plain = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = rest.strip_prefix(b"\\x").and_then(|tail| tail.split_at_checked(2));
        let byte = hex.and_then(|(digits, tail)| {
            let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            Some((byte, tail))
        });
        let (byte, tail) = byte.unwrap_or((*first, after));
        plain.push(byte);
        rest = tail;
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn links_that_climb_out_of_dev_are_dropped() {
        let record = UdevRecord::parse(
            b"S:disk/by-id/ata-X\nS:../etc/passwd\nS:/etc/passwd\nS:disk/../../x\nS:\nL:-100\nE:A=b=c\n",
        );
        assert_eq!(record.links, [PathBuf::from("disk/by-id/ata-X")]);
        assert_eq!((record.priority, record.property("A").as_deref()), (-100, Some("b=c")));
    }

    #[test]
    fn a_link_of_two_devices_goes_to_the_higher_priority_and_to_nobody_between_equals() {
        let [a, b, c] = [1, 2, 3].map(|minor| DevNo { major: 8, minor });
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        let links = HashMap::from([
            (a, (0, paths(&["wwn", "label"]))),
            (b, (50, paths(&["wwn"]))),
            (c, (0, paths(&["label", "own"]))),
        ]);
        let database = UdevDatabase { links };
        let owners = database.owners();
        assert_eq!(owners.get(Path::new("wwn")), Some(&b));
        assert_eq!(owners.get(Path::new("label")), None);
        assert_eq!(owners.get(Path::new("own")), Some(&c));
    }

    #[test]
    fn names_are_the_same_whether_udev_or_sysfs_tells_them() {
        assert_eq!(as_wwid("0x5000C500A1B2C3D4"), "naa.5000c500a1b2c3d4");
        assert_eq!(as_wwid("eui.0025385791b2a3c4"), "eui.0025385791b2a3c4");
        assert_eq!(
            md_uuid("1f2e3d4c:5b6a7988:00112233:44556677").as_deref(),
            Some("1f2e3d4c-5b6a-7988-0011-223344556677")
        );
        assert_eq!(decode(r"EFI\x20System\x2"), r"EFI System\x2");
    }

    proptest! {
        #[test]
        fn records_of_any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), text in r"[SLE:\\x0-9=/\n]{0,60}") {
            UdevRecord::parse(&bytes);
            UdevRecord::parse(text.as_bytes());
            decode(&text);
        }
    }
}
