//! Why something was not done on a pool filesystem.

use std::path::PathBuf;

use super::directory::{DocumentError, HOST_MOUNT};
use crate::device::{DiskId, VolumeId};
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
    #[error("each project of the filesystem of disk {disk} is in use")]
    NoProject { disk: DiskId },
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
    /// The same, because files use all of it: with `overprovision` volumes are promised more than there is.
    #[error("the filesystem of disk {disk} is full, as files use more of it than was counted on")]
    Full {
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
    /// It may be sound: what it says is kept.
    #[error("the record of volume {id} on disk {disk} cannot be read, and is not replaced")]
    Record {
        id: VolumeId,
        disk: DiskId,
        #[source]
        source: RecordError,
    },
    /// It can be used all the same.
    #[error("its filesystem is not mounted for the node at {}", at.display())]
    NotOnHost {
        at: PathBuf,
        #[source]
        source: HostError,
    },
    #[error("{HOST_MOUNT} of its filesystem says where the node has it mounted, and cannot be used: {why}")]
    HostMountUnread { why: String },
    #[error("its filesystem is mounted for the node at {}", at.display())]
    HostMountUsed {
        at: PathBuf,
        #[source]
        source: HostError,
    },
    #[error("{count} folders of deleted volumes could not be removed: {why}")]
    NotRemoved { why: String, count: usize },
    #[error("the disk still holds {volumes} volumes and {erasing} that are being erased")]
    NotEmpty { volumes: usize, erasing: usize },
}

impl FilesystemError {
    /// Nothing of what was asked for can be there.
    pub fn left_no_trace(&self) -> bool {
        match self {
            Self::Away { .. } | Self::Stuck { .. } | Self::Taken { .. } | Self::Unchanged { .. } => true,
            Self::Full { .. } | Self::NoProject { .. } | Self::Record { .. } => true,
            Self::Mounted(_) | Self::NotEmpty { .. } | Self::Others(_) | Self::NotRemoved { .. } => true,
            Self::NotOnHost { .. } | Self::HostMountUnread { .. } | Self::HostMountUsed { .. } => true,
            Self::Failed { .. } => false,
        }
    }

    /// Nothing of what was asked for exists there.
    pub fn unchanged(disk: &DiskId, source: HostError) -> Self {
        let disk = disk.clone();
        match source.is_no_space() {
            true => Self::Full { disk, source },
            false => Self::Unchanged { disk, source },
        }
    }

    /// Others had the disk: nothing has changed, and the caller may come back.
    pub fn is_locked(&self) -> bool {
        matches!(self, Self::Stuck { .. })
    }
}

/// Why nobody knows what the record of a volume says.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error(transparent)]
    Unread(#[from] HostError),
    #[error(transparent)]
    Document(#[from] DocumentError),
}

impl RecordError {
    /// No later read, and no later version, learns anything of it.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::Unread(error) => error.is_no_text(),
            Self::Document(DocumentError::Damaged(_)) => true,
            Self::Document(
                DocumentError::Newer(_) | DocumentError::OtherDisk { .. } | DocumentError::OtherNode { .. },
            ) => false,
        }
    }
}
