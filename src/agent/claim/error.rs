//! Why a disk was not claimed, in the order of the steps.

use crate::device::discovery::DiscoveryError;
use crate::host::patience::{PatienceError, TooLate};
use crate::host::{HostError, IoError};
use crate::pool::{ApplyError, BareError, StoreError};

/// Each leaves the disk as it was, or as a claim that the next opening ends; the next pass decides anew.
#[derive(Debug, thiserror::Error)]
pub(in crate::agent) enum ClaimError {
    #[error("it is gone")]
    Gone,
    #[error(transparent)]
    Look(#[from] DiscoveryError),
    /// It does not answer, or not yet.
    #[error(transparent)]
    Hangs(#[from] PatienceError),
    /// What was decided for this pass is decided anew by the next one.
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
    #[error("it holds bytes that nothing recognises, and a raw device must read as zeros")]
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
