//! Why the filesystem of a disk of the pool is not used.

use std::path::PathBuf;

use super::directory::CONFIG;
use super::error::ApplyError;
use crate::device::VolumeId;
use crate::host::HostError;

/// Why the filesystem of a disk is not used.
#[derive(Debug, thiserror::Error)]
pub enum OpeningError {
    #[error(transparent)]
    Carrier(#[from] ApplyError),
    #[error("its partition table has no pool filesystem")]
    NoEntry,
    #[error("its partition should hold localpool's filesystem, but holds {found}: it is not touched")]
    Other { found: String },
    #[error("{CONFIG} of its filesystem cannot be used: {why}; the filesystem is not touched")]
    Config { why: String },
    #[error("its filesystem lacks the folder {0}: it is not touched; look for it in lost+found")]
    NoFolder(&'static str),
    #[error(
        "its filesystem has the record of volume {0}, which was there, and not its folder: look for it in lost+found"
    )]
    Lost(VolumeId),
    #[error("its partition table is older than its filesystem, and volumes were made since: it is not touched")]
    EarlierTable,
    #[error("something else is mounted at {0}: unmount it")]
    Occupied(PathBuf),
    #[error("its filesystem could not be {what}")]
    System {
        what: &'static str,
        #[source]
        source: HostError,
    },
}

impl OpeningError {
    /// Whether a later try may succeed. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Carrier(error) => error.retryable(),
            Self::NoEntry | Self::Other { .. } | Self::Config { .. } | Self::EarlierTable => false,
            Self::NoFolder(_) | Self::Lost(_) => false,
            Self::Occupied(_) | Self::System { .. } => true,
        }
    }

    pub(super) fn system(what: &'static str) -> impl Fn(HostError) -> Self {
        move |source| Self::System { what, source }
    }
}
