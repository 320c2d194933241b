//! Why a disk was not claimed, in the order of the steps, and why none is.

use crate::agent::blank::NotBlank;
use crate::agent::question::VolumesUnknown;
use crate::claim::NoAnswer;
use crate::device::{DiscoveryError, Reason};
use crate::host::{
    HostError, IoError,
    timeout::{TimeoutError, TooLate},
};
use crate::pool::{ApplyError, BareError, StoreError};

/// Each leaves the disk as it was, or as a claim that the next opening ends; the next pass decides again.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum ClaimError {
    #[error("it is gone")]
    Gone,
    #[error(transparent)]
    Take(#[from] TakeError),
    /// Another provisioner gave it out.
    #[error("{0}")]
    Promised(Reason),
    #[error(transparent)]
    Content(#[from] NotBlank),
    #[error(transparent)]
    Scan(#[from] DiscoveryError),
    /// It does not answer, or not yet.
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    /// The next pass decides again what was decided for this one.
    #[error(transparent)]
    Late(#[from] TooLate),
    /// It could not be opened, or somebody else has it open.
    #[error(transparent)]
    Host(#[from] HostError),
    #[error("{0}")]
    Probe(String),
    #[error("it is not blank any more")]
    NotBlank,
    #[error(transparent)]
    Read(#[from] IoError),
    #[error("it holds unrecognised data, and a bare device must read as zeros")]
    NotZeros,
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error("it is blank again after it was claimed")]
    BlankAgain,
    #[error(transparent)]
    Journal(#[from] StoreError),
    #[error(transparent)]
    Bare(#[from] BareError),
}

impl ClaimError {
    /// Whether a later try may succeed without an event of the disk. For example, a signature on it stays until
    /// somebody removes it, and that is an event.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Hangs(_) | Self::Late(_) | Self::Probe(_) | Self::Read(_) => true,
            Self::Take(error) => error.retryable(),
            // No event of this machine says that it is over.
            Self::Promised(reason) => reason.may_pass(),
            Self::Content(error) => error.retryable(),
            Self::Scan(error) => error.retryable(),
            Self::Host(error) => error.retryable(),
            Self::Apply(error) => error.retryable(),
            Self::Journal(error) => error.retryable(),
            Self::Bare(error) => error.retryable(),
            Self::Gone | Self::NotBlank | Self::NotZeros | Self::BlankAgain => false,
        }
    }
}

/// Why nothing is claimed or wiped in this pass.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum TakeError {
    /// The journal does not know the devices of the pool.
    #[error(transparent)]
    Journal(StoreError),
    #[error("nothing is claimed while it is not known which devices have the volumes of this node")]
    Volumes(#[from] VolumesUnknown),
    /// This pass saw the device before it was known.
    #[error("a volume is on a device that the journal does not know; all devices are read again first")]
    Learnt,
    #[error("nothing is claimed while it is not known which devices other PersistentVolumes promise")]
    Promises(#[from] NoAnswer),
}

impl TakeError {
    /// Whether the next pass may know more. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Journal(error) => error.retryable(),
            Self::Volumes(error) => error.retryable(),
            Self::Promises(error) => error.retryable(),
            Self::Learnt => true,
        }
    }
}
