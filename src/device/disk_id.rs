//! The names of disks on record, in messages and for people: the ids themselves. `id` derives them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::host::text_type;

/// How an id begins if only its node distinguishes the device from others.
const PATH: &str = "path-";
/// How the id of an md array begins.
const ARRAY: &str = "md-";
/// How the id of a filesystem of an administrator begins.
const FILESYSTEM: &str = "fs-";
/// How a [`HardwareId`] begins.
const SORTS: [&str; 7] = ["wwid-", "serial-", "part-", "dm-", ARRAY, "loop-", PATH];

/// Whether a text could be a [`HardwareId`], and not the id of one of our disks.
pub fn may_be_hardware(text: &str) -> bool {
    SORTS.iter().any(|sort| text.starts_with(sort)) && !text.contains(char::is_whitespace)
}

/// The name of a device by its hardware, whatever is on it: `wwid-<wwid>`, `serial-<model>-<serial>`, `part-<uuid>`,
/// `dm-<uuid>`, `md-<uuid>`, `loop-<dev>-<inode>`, or `path-<path>` if there is nothing better.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HardwareId(String);

/// Which disk it is, never by size: `gpt-<guid>` of a labelled disk, `fs-<diskUUID>` of a named filesystem, and the [`HardwareId`] of any other.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiskId(String);

text_type!(HardwareId);
text_type!(DiskId);

impl HardwareId {
    /// For a device that only its node distinguishes from others.
    pub fn of_path(path: &Path) -> Self {
        Self(format!("{PATH}{}", path.display()))
    }

    /// An id that is on record, or that a person named; it is not checked whether any device has it.
    pub fn named(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it is only the place where something is plugged in now, which does not identify a device.
    pub fn is_path(&self) -> bool {
        self.0.starts_with(PATH)
    }

    /// The md array that it is; `None`: it is something else.
    pub fn array(&self) -> Option<Uuid> {
        Uuid::try_parse(self.0.strip_prefix(ARRAY)?).ok()
    }

    /// Whether it identifies a device, wherever that is plugged in.
    pub fn is_stable(&self) -> bool {
        !self.is_path()
    }

    /// Whether these are certainly not of one device. A device that is dying may say less of itself than it did, so names of
    /// different kinds prove nothing.
    pub fn is_surely_other(&self, other: &Self) -> bool {
        let kind = |id: &Self| {
            let (kind, name) = id.0.split_once('-').unwrap_or((&id.0, ""));
            let sort = if kind == "wwid" { name.split_once('.').map_or("", |(sort, _)| sort) } else { "" };
            (kind.to_owned(), sort.to_owned())
        };
        self.is_stable() && other.is_stable() && kind(self) == kind(other) && self != other
    }
}

impl DiskId {
    /// The id of one of our disks, by its GPT disk GUID.
    pub fn labelled(disk: Uuid) -> Self {
        Self(format!("gpt-{disk}"))
    }

    /// An md array by the id that it has without a label.
    pub fn of_array(array: Uuid) -> Self {
        Self(format!("{ARRAY}{}", array.hyphenated()))
    }

    /// The id of a filesystem that an administrator mounted and named, by its diskUUID.
    pub fn of_filesystem(disk_uuid: Uuid) -> Self {
        Self(format!("{FILESYSTEM}{}", disk_uuid.hyphenated()))
    }

    /// Whether it is one of these.
    pub fn is_filesystem(&self) -> bool {
        self.0.strip_prefix(FILESYSTEM).is_some_and(|uuid| Uuid::try_parse(uuid).is_ok())
    }

    /// An id that is on record, or that a person named; it is not checked whether any disk has it.
    pub fn named(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it is only the place where something is plugged in now: such a disk can be used with a label only.
    pub fn is_path(&self) -> bool {
        self.0.starts_with(PATH)
    }
}

/// A disk without a label is called by its hardware.
impl From<HardwareId> for DiskId {
    fn from(HardwareId(text): HardwareId) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_names_of_one_kind_prove_that_two_devices_are_not_one() {
        let is_other = |a: &str, b: &str| HardwareId::named(a).is_surely_other(&HardwareId::named(b));
        assert!(is_other("serial-M-1", "serial-M-2") && is_other("wwid-naa.1", "wwid-naa.2"));
        for (a, b) in [
            ("serial-M-1", "serial-M-1"),
            ("serial-M-1", "wwid-naa.1"),
            ("wwid-naa.1", "wwid-t10.1"),
            ("path-/dev/sda", "path-/dev/sdb"),
            ("serial-M-1", "path-/dev/sdb"),
        ] {
            assert!(!is_other(a, b) && !is_other(b, a), "{a} {b}");
        }
    }
}
