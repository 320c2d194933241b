//! What is said by the file that has the diskUUID of a filesystem which an administrator mounted. Pure.

use uuid::Uuid;

use super::directory::DocumentError;
use crate::host::{HostError, SharedError, chain};

/// What is said by the file that has the diskUUID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigFile {
    Absent,
    /// It is not there any more: by what the pool has on the filesystem, it is this one, and of this node.
    Lost(Uuid),
    /// It is of this node.
    Ours(Uuid),
    /// It is there, or is not and the claim of a pool is there, and says nothing that counts here.
    Unusable(UnusableFile),
    /// It was not there, and could not be written.
    NotWritten(SharedError<HostError>),
}

/// A file that says nothing that counts here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} there cannot be used: {}; it is not changed", chain(.why))]
pub struct UnusableFile {
    /// For people.
    pub file: &'static str,
    pub why: ConfigProblem,
}

/// Why such a file says nothing that counts here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigProblem {
    #[error(transparent)]
    Unread(SharedError<HostError>),
    #[error(transparent)]
    Refused(SharedError<DocumentError>),
}
