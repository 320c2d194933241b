//! What disks are called on record, in messages and by people: the ids themselves. `id` derives them.

use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::host::text_type;

/// How an id begins if only its node distinguishes the device from others.
const PATH: &str = "path-";
/// How a [`HardwareId`] begins.
const SORTS: [&str; 7] = ["wwid-", "serial-", "part-", "dm-", "md-", "loop-", PATH];

/// Whether a text could be a [`HardwareId`], and not the id of one of our disks.
pub fn may_be_hardware(text: &str) -> bool {
    SORTS.iter().any(|sort| text.starts_with(sort)) && !text.contains(char::is_whitespace)
}

/// What a device is called by its hardware, whatever is on it: `wwid-<wwid>`, `serial-<model>-<serial>`, `part-<uuid>`,
/// `dm-<uuid>`, `md-<uuid>`, `loop-<dev>-<inode>`, or `path-<path>` if there is nothing better.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HardwareId(String);

/// Which disk it is, never by size: `gpt-<guid>` of a labelled disk, and the [`HardwareId`] of any other.
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

    /// Whether it identifies a device, wherever that is plugged in.
    pub fn is_stable(&self) -> bool {
        !self.is_path()
    }
}

impl DiskId {
    /// The id of one of our disks, by its GPT disk GUID.
    pub fn labelled(disk: Uuid) -> Self {
        Self(format!("gpt-{disk}"))
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
