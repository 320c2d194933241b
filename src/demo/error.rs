//! The demo's one error, and short ways to it.

use std::io;

use crate::host::HostError;
use crate::host::stdout::PrintError;

/// Why the demo did not finish.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    #[error("the demo makes loop devices and mounts filesystems, for which it needs root: run it as root")]
    NotRoot,
    #[error("{0}")]
    Place(String),
    #[error("could not {what} {object}")]
    Io {
        what: &'static str,
        object: String,
        #[source]
        source: io::Error,
    },
    #[error("could not {what}")]
    Host {
        what: String,
        #[source]
        source: HostError,
    },
    #[error("the driver {0}")]
    Driver(String),
    /// The words of the driver's status.
    #[error("{call} of {object} failed: {code}: {message}")]
    Refused { call: &'static str, object: String, code: tonic::Code, message: String },
    /// The driver reported success, but that is wrong.
    #[error("{object}: {what}")]
    Wrong { object: String, what: String },
    #[error("the demo succeeded, but the report could not be printed")]
    Unprinted(#[from] PrintError),
    #[error("stopped by {0}")]
    Stopped(&'static str),
    #[error("not everything was removed: {}", .0.join("; "))]
    LeftBehind(Vec<String>),
}

impl DemoError {
    pub(super) fn io(what: &'static str, object: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        let object = object.to_string();
        move |source| Self::Io { what, object, source }
    }

    pub(super) fn host(what: impl Into<String>) -> impl FnOnce(HostError) -> Self {
        let what = what.into();
        move |source| Self::Host { what, source }
    }

    pub(super) fn wrong(object: &str, what: impl Into<String>) -> Self {
        Self::Wrong { object: object.to_owned(), what: what.into() }
    }
}
