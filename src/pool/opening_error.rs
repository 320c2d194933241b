//! Why the filesystem of a disk of the pool is not used.

use std::path::PathBuf;

use super::directory::CONFIG;
use super::error::ApplyError;
use super::filesystem_claim::{CLAIM, OWN_FOLDER};
use super::filesystem_error::FilesystemError;
use crate::device::VolumeId;
use crate::host::{HostError, NoMountPoint, QuotaState};

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
    #[error("nothing would keep its volumes within their sizes: {0}")]
    NoQuota(HostError),
    #[error(
        "its filesystem {why}, so nothing would keep its volumes within their sizes",
        why = .0.why_off().unwrap_or("keeps limits")
    )]
    QuotaOff(QuotaState),
    #[error("something else is mounted at {0}: unmount it")]
    Occupied(PathBuf),
    #[error("at its path {0}")]
    NotMounted(NoMountPoint),
    #[error("{0}")]
    NotTaken(String),
    #[error("{0}, which it is mounted from, is another device, or none that the agent sees")]
    NoDevice(PathBuf),
    #[error("the folder {OWN_FOLDER} with {CLAIM} is not there: put it back; nothing is made instead")]
    NoClaim,
    #[error("{OWN_FOLDER}/{CLAIM} cannot be used: {why}; nothing there is touched")]
    Claim { why: String },
    #[error(
        "at {at} a volume of it is mounted from another device ({source_device}), so one of the two is a copy: mount that one \
         at the path, or end the pods that use it"
    )]
    Elsewhere { at: PathBuf, source_device: String },
    #[error("it has a folder {OWN_FOLDER} already, without {CLAIM}: move it away, and localpool makes its own")]
    OthersFolder,
    #[error("it is not open now")]
    NotOpen,
    #[error(transparent)]
    Filesystem(#[from] FilesystemError),
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
            Self::NoClaim | Self::Claim { .. } | Self::OthersFolder | Self::NotTaken(_) => false,
            Self::Elsewhere { .. } | Self::NotMounted(_) | Self::NoDevice(_) | Self::NotOpen | Self::Filesystem(_) => {
                true
            }
            // Who has loaded a module, or allowed a system call, says nothing.
            Self::NoQuota(_) | Self::Occupied(_) | Self::QuotaOff(_) | Self::System { .. } => true,
        }
    }

    pub(super) fn system(what: &'static str) -> impl Fn(HostError) -> Self {
        move |source| Self::System { what, source }
    }
}
