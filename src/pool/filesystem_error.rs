//! Why something was not done on a pool filesystem.

use crate::device::DiskId;
use crate::host::{HostError, LockTimeout};

#[derive(Debug, thiserror::Error)]
pub enum FilesystemError {
    #[error("the filesystem of disk {disk} {why}")]
    Away { disk: DiskId, why: String },
    /// Nothing has changed, and the caller may come back.
    #[error("the filesystem of disk {disk} was not changed: {stuck}")]
    Stuck { disk: DiskId, stuck: LockTimeout },
    #[error("the filesystem of disk {disk} has no room for it any more")]
    Taken { disk: DiskId },
    #[error(
        "the filesystem of the disk contains files or folders that do not belong to the pool: {0}; move them away first"
    )]
    Others(String),
    #[error("it is mounted at {0}")]
    Mounted(String),
    /// Nothing of what was asked for exists there.
    #[error("the filesystem of disk {disk} was not changed")]
    Unchanged {
        disk: DiskId,
        #[source]
        source: HostError,
    },
    /// What was asked for may exist, or not: it is read again before anything else is done there.
    #[error("the filesystem of disk {disk} failed")]
    Failed {
        disk: DiskId,
        #[source]
        source: HostError,
    },
    #[error("the disk still holds {volumes} volumes and {erasing} that are being erased")]
    NotEmpty { volumes: usize, erasing: usize },
}

impl FilesystemError {
    /// Nothing of what was asked for can be there.
    pub fn left_no_trace(&self) -> bool {
        match self {
            Self::Away { .. } | Self::Stuck { .. } | Self::Taken { .. } | Self::Unchanged { .. } => true,
            Self::Mounted(_) | Self::NotEmpty { .. } | Self::Others(_) => true,
            Self::Failed { .. } => false,
        }
    }

    /// Others had the disk: nothing has changed, and the caller may come back.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Stuck { .. })
    }
}
