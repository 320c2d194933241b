//! Which of a set's devices are reported if there is no room for all: those that it nearly takes come first. Pure.

use crate::claim::Rule;
use crate::device::{DeviceType, device_type};
use crate::host::{DeviceKind, RawDisk};

/// How different a device is from a disk that somebody put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DiskLikeness {
    Disk,
    /// Made of disks, of files, or of a server's storage.
    Made,
    /// Memory, a drive for removable media, or an unknown kind.
    Other,
    /// Its disk is in the list, and says the same in fewer lines.
    Partition,
}

/// By what a device comes before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relevance {
    asked: Option<DeviceType>,
    likeness: DiskLikeness,
}

impl Relevance {
    pub fn of(raw: &RawDisk) -> Self {
        let asked = device_type(raw);
        let likeness = match &raw.kind {
            DeviceKind::Disk => DiskLikeness::Disk,
            DeviceKind::Dm(_) if asked == Some(DeviceType::Mpath) => DiskLikeness::Disk,
            DeviceKind::Dm(_) | DeviceKind::Md(_) | DeviceKind::Loop(_) | DeviceKind::Network => DiskLikeness::Made,
            DeviceKind::Ram | DeviceKind::Zram | DeviceKind::Rom | DeviceKind::Floppy | DeviceKind::Other(_) => {
                DiskLikeness::Other
            }
            DeviceKind::Partition(_) => DiskLikeness::Partition,
        };
        Self { asked, likeness }
    }
}

/// Items of devices in the order in which a person looks for them; equal ones keep their order. Devices of the set's
/// own types come before all others.
pub fn most_relevant_first<T>(rule: &Rule, mut items: Vec<T>, relevance: impl Fn(&T) -> Option<Relevance>) -> Vec<T> {
    items.sort_by_key(|item| {
        let relevance = relevance(item);
        let asked = relevance.and_then(|found| found.asked).is_some_and(|is| rule.filter.types.contains(&is));
        (!asked, relevance.map_or(DiskLikeness::Partition, |found| found.likeness))
    });
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::sample::rule;
    use crate::host::{DevNo, Dm, Md, Partition};

    fn dm(uuid: &str) -> DeviceKind {
        DeviceKind::Dm(Dm { name: "x".to_owned(), uuid: uuid.to_owned(), suspended: false })
    }

    #[test]
    fn devices_of_the_sets_types_come_first_then_real_disks_and_partitions_last() {
        let partition = DeviceKind::Partition(Partition {
            disk: "sda".into(),
            number: 1,
            start: 0,
            part_uuid: None,
            part_label: None,
        });
        let kinds = [
            ("ram0", DeviceKind::Ram),
            ("sda1", partition),
            ("loop0", DeviceKind::Loop(None)),
            ("dm-0", dm("mpath-1")),
            ("md0", DeviceKind::Md(Md { uuid: None, level: None, state: None })),
            ("sdb", DeviceKind::Disk),
            ("dm-1", dm("CRYPT-1")),
            ("sda", DeviceKind::Disk),
            ("sr0", DeviceKind::Rom),
        ];
        let devices = kinds.map(|(name, kind)| {
            let raw = RawDisk::named(name.into(), "/dev/x".into(), DevNo { major: 1, minor: 1 }, kind);
            (name, Relevance::of(&raw))
        });
        let order = |types: &[DeviceType]| {
            let mut rule = rule("a");
            rule.filter.types = types.to_vec();
            let names = most_relevant_first(&rule, devices.to_vec(), |(_, relevance)| Some(*relevance));
            names.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(&[DeviceType::Disk]), "sdb sda dm-0 loop0 md0 dm-1 ram0 sr0 sda1");
        assert_eq!(order(&[DeviceType::Part]), "sda1 dm-0 sdb sda loop0 md0 dm-1 ram0 sr0");
        assert_eq!(order(&[DeviceType::Disk, DeviceType::Loop]), "sdb sda loop0 dm-0 md0 dm-1 ram0 sr0 sda1");
    }
}
