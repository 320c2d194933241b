//! The type of a device, in lsblk's words and in those that a set can ask for.

use std::fmt;

use crate::host::{DeviceKind, RawDisk};

/// Device types as the operator and lsblk name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceType {
    Disk,
    Part,
    Loop,
    Mpath,
    /// Only where a LocalVolume names it: no set asks for it.
    Lvm,
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk => "disk",
            Self::Part => "part",
            Self::Loop => "loop",
            Self::Mpath => "mpath",
            Self::Lvm => "lvm",
        })
    }
}

/// The type that a set can ask for, where there is one.
pub fn device_type(raw: &RawDisk) -> Option<DeviceType> {
    match &raw.kind {
        DeviceKind::Disk => Some(DeviceType::Disk),
        DeviceKind::Partition(_) => Some(DeviceType::Part),
        DeviceKind::Loop(_) => Some(DeviceType::Loop),
        DeviceKind::Dm(dm) if dm.uuid.starts_with("mpath-") => Some(DeviceType::Mpath),
        DeviceKind::Dm(dm) if dm.uuid.starts_with("LVM-") => Some(DeviceType::Lvm),
        DeviceKind::Dm(_)
        | DeviceKind::Md(_)
        | DeviceKind::Rom
        | DeviceKind::Floppy
        | DeviceKind::Ram
        | DeviceKind::Zram => None,
        DeviceKind::Network | DeviceKind::Other(_) => None,
    }
}

/// The type of a device by its name in lsblk, as near as the facts go.
pub fn type_name(raw: &RawDisk) -> &'static str {
    match &raw.kind {
        DeviceKind::Disk | DeviceKind::Ram | DeviceKind::Zram | DeviceKind::Floppy | DeviceKind::Network => "disk",
        DeviceKind::Partition(_) => "part",
        DeviceKind::Loop(_) => "loop",
        DeviceKind::Dm(dm) => match dm.uuid.split('-').next() {
            Some("LVM") => "lvm",
            Some("CRYPT") => "crypt",
            Some("mpath") => "mpath",
            // kpartx's `part1-mpath-…` too: it is no partition that a set could ask for.
            _ => "dm",
        },
        DeviceKind::Md(_) => "raid",
        DeviceKind::Rom => "rom",
        DeviceKind::Other(_) => "other",
    }
}
