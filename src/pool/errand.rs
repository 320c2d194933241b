//! On which disk somebody works: the key by which the agent waits for what hangs.

use std::fmt;

use crate::device::{DiskId, VolumeId};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrandKey {
    Disk(DiskId),
    /// All disks that have it.
    Volume(VolumeId),
    /// The light of the slot that it is in.
    Light(DiskId),
}

impl From<&DiskId> for ErrandKey {
    fn from(disk: &DiskId) -> Self {
        Self::Disk(disk.clone())
    }
}

impl fmt::Display for ErrandKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(disk) => write!(f, "disk {disk}"),
            Self::Volume(volume) => write!(f, "a disk of volume {volume}"),
            Self::Light(disk) => write!(f, "the enclosure of disk {disk}"),
        }
    }
}
