//! What went wrong on the machine, as an answer to the caller: whether the request, the state or the
//! machine is at fault.

use std::path::{Path, PathBuf};

use crate::device::VolumeId;
use crate::health::Condition;
use crate::host::{FsUsage, HostError, chain};
use crate::volume::error::Error;
use crate::volume::publish::checked_path;

/// A filesystem that has shut down cannot be measured, and whoever asks learns why.
pub(super) fn measured(usage: Result<FsUsage, HostError>, condition: &Condition) -> Result<Option<FsUsage>, Error> {
    match usage {
        Ok(usage) => Ok(Some(usage)),
        Err(_) if !condition.is_accessible() => Ok(None),
        Err(error) => Err(failed("measure the filesystem", error)),
    }
}

/// The volume cannot be at a path that is not valid.
pub(super) fn known_path(id: VolumeId, path: &str) -> Result<PathBuf, Error> {
    checked_path("volume_path", path).map_err(|e| Error::NotFound(format!("volume {id} is not there: {e}")))
}

pub(super) fn failed(what: &str, error: HostError) -> Error {
    let message = format!("could not {what}: {}", chain(&error));
    match error {
        HostError::Busy { .. } | HostError::Changed { .. } => Error::Precondition(message),
        HostError::Io { .. }
        | HostError::Command { .. }
        | HostError::Timeout { .. }
        | HostError::Kept { .. }
        | HostError::Unsupported { .. } => Error::Internal(message),
    }
}

/// EINVAL means options that the filesystem does not know: the request is at fault, not the machine.
pub(super) fn mount_failed(flags: &[String], error: HostError) -> Error {
    let invalid = match &error {
        HostError::Io { source, .. } => source.kind() == std::io::ErrorKind::InvalidInput,
        // Options that are not even tried, such as `bind`.
        HostError::Unsupported { .. } => true,
        HostError::Busy { .. } | HostError::Changed { .. } => false,
        HostError::Command { .. } | HostError::Timeout { .. } | HostError::Kept { .. } => false,
    };
    match invalid && !flags.is_empty() {
        true => Error::Invalid(format!("mount_flags {} were refused: {}", flags.join(","), chain(&error))),
        false => failed("mount the filesystem", error),
    }
}

pub(super) fn bad_target(field: &str, error: HostError) -> Error {
    Error::Precondition(format!("{field} cannot be used: {}", chain(&error)))
}

pub(super) fn occupied(field: &str, path: &Path, what: &str) -> Error {
    Error::Precondition(format!("{field} {} has another mount on it: {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::{Finding, HealthReason};

    #[test]
    fn a_filesystem_that_cannot_be_measured_is_an_error_unless_it_is_known_that_it_cannot_be_used() {
        let fails = || {
            let source = std::io::Error::from_raw_os_error(5);
            Err(HostError::Io { what: "look at", object: "/target".to_owned(), source })
        };
        let condition = |reason| Condition::from(Finding::new(reason, "words"));
        assert!(measured(fails(), &Condition::default()).is_err());
        assert!(measured(fails(), &condition(HealthReason::DiskWornOut)).is_err());
        let shut_down = condition(HealthReason::FilesystemShutDown);
        assert_eq!(measured(fails(), &shut_down).expect("its condition says it"), None);
        let usage = measured(Ok(FsUsage::default()), &shut_down).expect("measured");
        assert!(usage.is_some());
    }
}
