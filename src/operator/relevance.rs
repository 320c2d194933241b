//! Which of a set's devices are reported if there is no room for all: those that it nearly takes come first. Pure.

use crate::claim::Rule;
use crate::device::{DeviceType, device_type};
use crate::host::{DeviceKind, RawDisk};

/// How different a device is from a disk that somebody put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Disk,
    /// Made of disks, of files, or of a server's storage.
    Made,
    /// Memory, a drive for removable media, or an unknown kind.
    Other,
    /// Its disk is in the list, and says the same in fewer lines.
    Partition,
}

/// The sort of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    asked: Option<DeviceType>,
    rank: Rank,
}

impl Sort {
    pub fn of(raw: &RawDisk) -> Self {
        let asked = device_type(raw);
        let rank = match &raw.kind {
            DeviceKind::Disk => Rank::Disk,
            DeviceKind::Dm(_) if asked == Some(DeviceType::Mpath) => Rank::Disk,
            DeviceKind::Dm(_) | DeviceKind::Md(_) | DeviceKind::Loop(_) | DeviceKind::Network => Rank::Made,
            DeviceKind::Ram | DeviceKind::Zram | DeviceKind::Rom | DeviceKind::Floppy | DeviceKind::Other(_) => {
                Rank::Other
            }
            DeviceKind::Partition(_) => Rank::Partition,
        };
        Self { asked, rank }
    }
}

/// Items of devices in the order in which a person looks for them; equal ones keep their order. Devices of the set's
/// own types come before all others.
pub fn nearest_first<T>(rule: &Rule, mut items: Vec<T>, sort: impl Fn(&T) -> Option<Sort>) -> Vec<T> {
    items.sort_by_key(|item| {
        let sort = sort(item);
        let asked = sort.and_then(|sort| sort.asked).is_some_and(|is| rule.filter.types.contains(&is));
        (!asked, sort.map_or(Rank::Partition, |sort| sort.rank))
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
        let sorts = kinds.map(|(name, kind)| {
            let raw = RawDisk::named(name.into(), "/dev/x".into(), DevNo { major: 1, minor: 1 }, kind);
            (name, Sort::of(&raw))
        });
        let order = |types: &[DeviceType]| {
            let mut rule = rule("a");
            rule.filter.types = types.to_vec();
            let names = nearest_first(&rule, sorts.to_vec(), |(_, sort)| Some(*sort));
            names.into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(&[DeviceType::Disk]), "sdb sda dm-0 loop0 md0 dm-1 ram0 sr0 sda1");
        assert_eq!(order(&[DeviceType::Part]), "sda1 dm-0 sdb sda loop0 md0 dm-1 ram0 sr0");
        assert_eq!(order(&[DeviceType::Disk, DeviceType::Loop]), "sdb sda loop0 dm-0 md0 dm-1 ram0 sr0 sda1");
    }
}
