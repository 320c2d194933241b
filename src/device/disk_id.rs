//! What disks are called on record, in messages and by people: the ids themselves. How they come about is in `id`.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How the id begins of what nothing but its node tells from others.
const PATH: &str = "path-";
/// How a [`HardwareId`] begins.
const SORTS: [&str; 7] = ["wwid-", "serial-", "part-", "dm-", "md-", "loop-", PATH];

/// Whether a text could be a [`HardwareId`], and not the id of a disk of ours.
pub fn may_be_hardware(text: &str) -> bool {
    SORTS.iter().any(|sort| text.starts_with(sort)) && !text.contains(char::is_whitespace)
}

/// What a device is called by its hardware, whatever it carries: `wwid-<wwid>`, `serial-<model>-<serial>`, `part-<uuid>`,
/// `dm-<uuid>`, `md-<uuid>`, `loop-<dev>-<inode>`, or `path-<path>` where nothing better is to be had.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HardwareId(String);

/// Who a disk is, never by size: `gpt-<guid>` of a labelled one, and of any other its [`HardwareId`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DiskId(String);

impl HardwareId {
    /// Of a device that nothing but its node tells from others.
    pub fn of_path(path: &Path) -> Self {
        Self(format!("{PATH}{}", path.display()))
    }

    /// One that is on record, or that a person named: whether any device has it is not asked.
    pub fn named(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it is but the place where something is plugged in now: no device is told from another by it.
    pub fn is_path(&self) -> bool {
        self.0.starts_with(PATH)
    }

    /// Whether it tells a device from others, wherever it is plugged in.
    pub fn is_stable(&self) -> bool {
        !self.is_path()
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl DiskId {
    /// The id of a disk of ours, by its GPT disk GUID.
    pub fn labelled(disk: Uuid) -> Self {
        Self(format!("gpt-{disk}"))
    }

    /// One that is on record, or that a person named: whether any disk has it is not asked.
    pub fn named(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Whether it is but the place where something is plugged in now: such a disk can be labelled, but not used raw.
    pub fn is_path(&self) -> bool {
        self.0.starts_with(PATH)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A disk without a label is called by its hardware.
impl From<HardwareId> for DiskId {
    fn from(HardwareId(text): HardwareId) -> Self {
        Self(text)
    }
}

impl fmt::Display for HardwareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As its text.
impl fmt::Debug for HardwareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// As its text.
impl fmt::Debug for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}
