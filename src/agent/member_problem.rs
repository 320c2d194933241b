//! Why a disk of the pool that is here cannot be used now, and whether the next pass may try it.

use crate::host::{chain, timeout::TimeoutError};
use crate::pool::{ApplyError, BareError};

/// Why a disk with our label cannot be used now.
#[derive(Debug)]
pub(super) enum MemberProblem {
    /// Until an event of a disk says that something has changed.
    Stays(String),
    /// It failed, or somebody holds it, and no event announces when that is over.
    Passes(String),
}

/// Why a bare device cannot be used now.
#[derive(Debug, thiserror::Error)]
pub(super) enum BareProblem {
    #[error("opening or reading it hangs")]
    ScanHangs,
    #[error(transparent)]
    Hangs(#[from] TimeoutError),
    #[error(transparent)]
    Device(#[from] BareError),
}

impl BareProblem {
    /// Whether the next pass may open it. No event says when.
    pub(super) fn retryable(&self) -> bool {
        match self {
            Self::ScanHangs | Self::Hangs(_) => true,
            Self::Device(error) => error.retryable(),
        }
    }
}

impl MemberProblem {
    pub(super) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Passes(chain(error))
    }

    pub(super) fn of_opening(error: &ApplyError) -> Self {
        match error.retryable() {
            true => Self::of(error),
            false => Self::Stays(chain(error)),
        }
    }

    pub(super) fn message(&self) -> &str {
        let (Self::Stays(why) | Self::Passes(why)) = self;
        why
    }
}
