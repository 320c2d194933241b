//! What goes wrong on the machine, and how an error is said to people.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// What went wrong on the machine: operation, object and cause.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("{what} {object}")]
    Io {
        what: &'static str,
        object: String,
        #[source]
        source: std::io::Error,
    },
    /// The node is not the same device as before, or it is gone.
    #[error("{path} is not the same device as before: {why}")]
    Changed { path: PathBuf, why: String },
    /// In use by somebody: O_EXCL, mount or unmap said EBUSY.
    #[error("{object} is in use")]
    Busy { object: String },
    /// A command that ended with an error; `stderr` is its last lines.
    #[error("{program} failed with {status}: {stderr}")]
    Command { program: String, status: String, stderr: String },
    /// A command that did not end in time and was killed.
    #[error("{program} did not end within {seconds} s and was stopped")]
    Timeout { program: String, seconds: u64 },
    /// It is in a folder that is to be removed, and stays there.
    #[error("{path} cannot be removed: {why}{}", more(*.others))]
    Kept { path: String, why: String, others: usize },
    #[error("{what}")]
    Unsupported { what: String },
}

fn more(others: usize) -> String {
    match others {
        0 => String::new(),
        more => format!("; and so {more} more"),
    }
}

impl HostError {
    /// Whether a later try may succeed. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Busy { .. } | Self::Command { .. } | Self::Timeout { .. } | Self::Kept { .. } => {
                true
            }
            Self::Changed { .. } | Self::Unsupported { .. } => false,
        }
    }

    /// A filesystem has no space for it.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }

    /// It could be read, but is no text.
    pub fn is_no_text(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::InvalidData)
    }
}

/// An error that is kept to be told again. Two of them are equal if they say the same.
pub struct SharedError<E>(Arc<E>);

impl<E> Clone for SharedError<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> From<E> for SharedError<E> {
    fn from(error: E) -> Self {
        Self(Arc::new(error))
    }
}

impl<E> AsRef<E> for SharedError<E> {
    fn as_ref(&self) -> &E {
        &self.0
    }
}

impl<E: Error> PartialEq for SharedError<E> {
    fn eq(&self, other: &Self) -> bool {
        chain(&*self.0) == chain(&*other.0)
    }
}

impl<E: Error> Eq for SharedError<E> {}

impl<E: fmt::Debug> fmt::Debug for SharedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: fmt::Display> fmt::Display for SharedError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<E: Error> Error for SharedError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

/// An error with all its causes, in one line: what people get to read.
pub fn chain(error: &dyn Error) -> String {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many errors contain the words of their causes.
        if !message.contains(&next) {
            message.push_str(": ");
            message.push_str(&next);
        }
        cause = error.source();
    }
    message
}
