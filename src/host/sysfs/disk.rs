//! One disk and its partitions, from their directories in sysfs.
//!
//! Takes in the name of an entry of /sys/block, gives out [`RawDisk`]s without what only /dev, /proc and
//! udev know.

use std::io::{Error, ErrorKind};
use std::path::Path;

use super::directory::{Directory, Notes, printable};
use super::identity::{self, NumaNodes, SysfsIdentity, kind};
use crate::host::kernel_name::KernelName;
use crate::host::raw::{DevNo, DeviceKind, Partition, RawDisk, gpt_uuid};

/// sysfs counts in these, whatever the disk's own sector is.
const SECTOR: u64 = 512;

/// Reads one disk after the other from `/sys/block`.
pub(super) struct Reader<'a> {
    pub block: Directory,
    pub dev: &'a Path,
    pub numa: NumaNodes,
}

impl Reader<'_> {
    /// A disk and its partitions; nothing if it has gone or has no node to open it by.
    pub fn disk(&mut self, entry: &str) -> Vec<RawDisk> {
        let mut notes = Notes::default();
        let node = match self.block.child(entry) {
            Ok(node) => node,
            Err(why) if gone(&why) => return Vec::new(),
            Err(why) => {
                notes.add("its directory in sysfs", &why);
                return vec![RawDisk { unreadable: notes.into_message(), ..blank(entry, self.dev) }];
            }
        };
        let Some((mut disk, entries)) = self.facts(entry, &node, &mut notes) else { return Vec::new() };
        if !notes.is_empty() && self.block.link(entry).is_err_and(|why| gone(&why)) {
            return Vec::new();
        }
        let inherited = notes.into_message();
        let mut partitions: Vec<RawDisk> = entries
            .iter()
            .filter_map(|name| Some((name, partition_number(&disk.name, &KernelName::of_sysfs(name))?)))
            .filter_map(|(name, number)| self.partition(&node, name, number, &disk, inherited.as_deref()))
            .collect();
        partitions.sort_by_key(|partition| match &partition.kind {
            DeviceKind::Partition(partition) => partition.number,
            _ => 0,
        });
        disk.unreadable = inherited;
        disk.partitions = partitions.iter().map(|partition| partition.name.clone()).collect();
        partitions.insert(0, disk);
        partitions
    }

    /// The disk itself, and the names in its directory. `None` for the hidden path of an NVMe multipath
    /// head: it has no device node, and the head is the disk.
    fn facts(&mut self, entry: &str, node: &Directory, notes: &mut Notes) -> Option<(RawDisk, Vec<String>)> {
        let entries = node.entries(".").unwrap_or_else(|why| {
            notes.add("its directory in sysfs", &why);
            Vec::new()
        });
        let has = |name: &str| entries.iter().any(|entry| entry == name);
        let uevent = Uevent::read(node);
        if uevent.devno.is_none() && node.positive("hidden") {
            return None;
        }
        let place = self.block.link(entry).unwrap_or_default();
        let kind = kind(node, entry, self.dev, has, notes);
        let SysfsIdentity { vendor, model, serial, wwid, transport, state } =
            identity::identity(node, entry, &place, has, notes);
        let state = match &kind {
            DeviceKind::Dm(dm) => Some(if dm.suspended { "suspended".into() } else { "running".into() }),
            _ => state,
        };
        let logical_sector = notes.number(node, "queue/logical_block_size").unwrap_or(0);
        let disk = RawDisk {
            devno: devno(node, &uevent, notes),
            kind,
            size: bytes(notes, node, "size"),
            logical_sector,
            physical_sector: number(node, "queue/physical_block_size").unwrap_or(logical_sector),
            read_only: notes.flag(node, "ro"),
            removable: notes.flag(node, "removable"),
            rotational: node.positive("queue/rotational"),
            vendor,
            model,
            serial,
            wwid,
            transport,
            sysfs_path: place.strip_prefix("..").unwrap_or(&place).to_owned(),
            state,
            // The device that bcache makes has such a link too, to its backing device, which does not hold it.
            holders: holders(node, || has("bcache") && !entry.starts_with("bcache"), notes),
            slaves: notes.devices(node, "slaves"),
            offloads_zeroes: node.positive("queue/write_zeroes_max_bytes"),
            discards: node.positive("queue/discard_max_bytes"),
            zoned: zoned(node, notes),
            numa_node: self.numa.of(&self.block, &place),
            diskseq: uevent.diskseq(node),
            ..blank(entry, self.dev)
        };
        Some((disk, entries))
    }

    /// `None` if it has gone.
    fn partition(
        &self,
        parent: &Directory,
        entry: &str,
        number: u32,
        disk: &RawDisk,
        above: Option<&str>,
    ) -> Option<RawDisk> {
        let mut notes = Notes::default();
        let nothing = Partition { disk: disk.name.clone(), number, start: 0, part_uuid: None, part_label: None };
        let node = match parent.child(entry) {
            Ok(node) => node,
            Err(why) if gone(&why) => return None,
            Err(why) => {
                notes.add("its directory in sysfs", &why);
                let kind = DeviceKind::Partition(nothing);
                return Some(RawDisk { kind, unreadable: notes.into_message(), ..blank(entry, self.dev) });
            }
        };
        let uevent = Uevent::read(&node);
        let kind = DeviceKind::Partition(Partition {
            start: bytes(&mut notes, &node, "start"),
            part_uuid: uevent.part_uuid.as_deref().and_then(gpt_uuid),
            part_label: uevent.part_label.clone(),
            ..nothing
        });
        let partition = RawDisk {
            devno: devno(&node, &uevent, &mut notes),
            kind,
            size: bytes(&mut notes, &node, "size"),
            read_only: notes.flag(&node, "ro") || disk.read_only,
            holders: holders(&node, || node.child("bcache").is_ok(), &mut notes),
            slaves: Vec::new(),
            vendor: None,
            model: None,
            serial: None,
            wwid: None,
            name: KernelName::of_sysfs(entry),
            path: self.dev.join(KernelName::of_sysfs(entry).as_str()),
            ..disk.clone()
        };
        if !notes.is_empty() && parent.child(entry).is_err_and(|why| gone(&why)) {
            return None;
        }
        if let Some(message) = above {
            notes.say(format!("its disk {}: {message}", disk.name));
        }
        Some(RawDisk { unreadable: notes.into_message(), ..partition })
    }
}

/// `3` of `sda3` in `sda` and of `nvme0n1p3` in `nvme0n1`; `None` for what is no partition, such as
/// `mmcblk0boot0`, a disk of its own in the directory of `mmcblk0`.
fn partition_number(disk: &KernelName, name: &KernelName) -> Option<u32> {
    let rest = name.strip_prefix(disk.as_str())?;
    let digits = rest.strip_prefix('p').filter(|_| disk.ends_with(|c: char| c.is_ascii_digit())).unwrap_or(rest);
    digits.starts_with(|c: char| c.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A device of which nothing but the name is known.
fn blank(entry: &str, dev: &Path) -> RawDisk {
    let name = KernelName::of_sysfs(entry);
    let path = dev.join(name.as_str());
    RawDisk::named(name, path, DevNo { major: 0, minor: 0 }, DeviceKind::Other("unreadable".into()))
}

/// What the `uevent` file says in one read; old kernels say less, and have a file for each instead.
#[derive(Default)]
pub(super) struct Uevent {
    pub devno: Option<DevNo>,
    diskseq: Option<u64>,
    part_label: Option<String>,
    part_uuid: Option<String>,
}

impl Uevent {
    pub fn read(node: &Directory) -> Self {
        let bytes = node.bytes("uevent").unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let mut uevent = Self::default();
        let (mut major, mut minor) = (None, None);
        for (key, value) in text.lines().filter_map(|line| line.split_once('=')) {
            match key {
                "MAJOR" => major = value.parse().ok(),
                "MINOR" => minor = value.parse().ok(),
                "DISKSEQ" => uevent.diskseq = value.parse().ok(),
                "PARTNAME" => uevent.part_label = printable(value.as_bytes()),
                "PARTUUID" => uevent.part_uuid = Some(value.to_owned()),
                _ => {}
            }
        }
        uevent.devno = major.zip(minor).map(|(major, minor)| DevNo { major, minor });
        uevent
    }

    pub fn diskseq(&self, node: &Directory) -> Option<u64> {
        self.diskseq.or_else(|| number(node, "diskseq"))
    }
}

fn devno(node: &Directory, uevent: &Uevent, notes: &mut Notes) -> DevNo {
    let unknown = DevNo { major: 0, minor: 0 };
    uevent.devno.unwrap_or_else(|| {
        let text = notes.word(node, "dev");
        let number = text.split_once(':').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        if number.is_none() {
            notes.say(format!("dev is `{text}`, not a device number"));
        }
        number.map_or(unknown, |(major, minor)| DevNo { major, minor })
    })
}

fn bytes(notes: &mut Notes, node: &Directory, attribute: &str) -> u64 {
    let sectors: u64 = notes.number(node, attribute).unwrap_or(0);
    sectors.checked_mul(SECTOR).unwrap_or_else(|| {
        notes.say(format!("{attribute} is {sectors} sectors, which no disk has"));
        0
    })
}

fn number<T: std::str::FromStr>(node: &Directory, attribute: &str) -> Option<T> {
    node.text(attribute)?.parse().ok()
}

/// bcache shows the holder of a backing device only; its cache devices are held all the same.
fn holders(node: &Directory, bcache: impl Fn() -> bool, notes: &mut Notes) -> Vec<KernelName> {
    let mut holders = notes.devices(node, "holders");
    if holders.is_empty() && bcache() {
        let set = node.entries("bcache/set").unwrap_or_default();
        let backed = |name: &String| node.link(&format!("bcache/set/{name}/dev")).ok();
        holders.extend(
            set.iter().filter_map(backed).filter_map(|dev| Some(KernelName::of_sysfs(dev.file_name()?.to_str()?))),
        );
        holders.sort();
        if holders.is_empty() {
            holders.push("bcache".into());
        }
    }
    holders
}

fn zoned(node: &Directory, notes: &mut Notes) -> Option<String> {
    match node.bytes("queue/zoned") {
        Ok(text) => printable(&text).filter(|model| model != "none"),
        Err(why) if why.kind() == ErrorKind::NotFound => None,
        Err(why) => {
            notes.add("queue/zoned", &why);
            None
        }
    }
}

/// The device went away between two scans.
fn gone(why: &Error) -> bool {
    matches!(why.raw_os_error(), Some(code) if [nix::libc::ENOENT, nix::libc::ENODEV, nix::libc::ENXIO].contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_told_from_disks_that_live_in_a_disks_directory() {
        for (disk, entry, number) in [
            ("sda", "sda1", Some(1)),
            ("sda", "sda128", Some(128)),
            ("nvme0n1", "nvme0n1p3", Some(3)),
            ("cciss!c0d0", "cciss!c0d0p1", Some(1)),
            ("mmcblk0", "mmcblk0p2", Some(2)),
            ("mmcblk0", "mmcblk0boot0", None),
            ("sda", "slaves", None),
            ("sda", "sdap1", None),
            ("loop1", "loop1", None),
        ] {
            let [disk, name] = [disk, entry].map(KernelName::of_sysfs);
            assert_eq!(partition_number(&disk, &name), number, "{entry}");
        }
    }
}
