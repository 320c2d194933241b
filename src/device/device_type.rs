//! Of which type a device is, in lsblk's words and in those that a set can ask for.

use std::fmt;

use crate::host::{Kind, RawDisk};

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
        Kind::Disk => Some(DeviceType::Disk),
        Kind::Partition(_) => Some(DeviceType::Part),
        Kind::Loop(_) => Some(DeviceType::Loop),
        Kind::Dm(dm) if dm.uuid.starts_with("mpath-") => Some(DeviceType::Mpath),
        Kind::Dm(dm) if dm.uuid.starts_with("LVM-") => Some(DeviceType::Lvm),
        Kind::Dm(_) | Kind::Md(_) | Kind::Rom | Kind::Floppy | Kind::Ram | Kind::Zram => None,
        Kind::Network | Kind::Other(_) => None,
    }
}

/// What lsblk calls the type of a device, as near as the facts go.
pub fn type_name(raw: &RawDisk) -> &'static str {
    match &raw.kind {
        Kind::Disk | Kind::Ram | Kind::Zram | Kind::Floppy | Kind::Network => "disk",
        Kind::Partition(_) => "part",
        Kind::Loop(_) => "loop",
        Kind::Dm(dm) => match dm.uuid.split('-').next() {
            Some("LVM") => "lvm",
            Some("CRYPT") => "crypt",
            Some("mpath") => "mpath",
            // kpartx's `part1-mpath-…` too: it is no partition that a set could ask for.
            _ => "dm",
        },
        Kind::Md(_) => "raid",
        Kind::Rom => "rom",
        Kind::Other(_) => "other",
    }
}
