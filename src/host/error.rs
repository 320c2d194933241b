//! What goes wrong on the machine, and how an error is said to people.

use std::path::PathBuf;

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
    #[error("{what}")]
    Unsupported { what: String },
}

impl HostError {
    /// Whether a later try may succeed. No event says when.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Io { .. } | Self::Busy { .. } | Self::Command { .. } | Self::Timeout { .. } => true,
            Self::Changed { .. } | Self::Unsupported { .. } => false,
        }
    }

    /// It could be read, but is no text.
    pub fn is_no_text(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::InvalidData)
    }
}

/// An error with all its causes, in one line: what people get to read.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Many errors contain the words of their causes.
        if !words.contains(&next) {
            words.push_str(": ");
            words.push_str(&next);
        }
        cause = error.source();
    }
    words
}
