//! Why a request was not done.

/// Why a request was not done, grouped by what the caller can do about it. The texts are for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    NotFound(String),
    /// Another volume has that name, or another mount is at that path.
    #[error("{0}")]
    Exists(String),
    /// No room now; elsewhere or later there may be.
    #[error("{0}")]
    Exhausted(String),
    /// Sizes that are not possible.
    #[error("{0}")]
    OutOfRange(String),
    /// The volume is in a state that somebody has to change first.
    #[error("{0}")]
    Precondition(String),
    /// Another operation on the volume is under way: come back.
    #[error("{0}")]
    Aborted(String),
    /// The machine failed; a retry may help.
    #[error("{0}")]
    Internal(String),
}
