//! Domain errors as gRPC statuses: the one table of codes, for CSI (1.13, "Error Scheme") and for people's requests.

use tonic::{Code, Status};

use crate::agent::{AdminError, Stopped};
use crate::host::chain;
use crate::show::devices::{ShowError, UnknownFormat};
use crate::volume::Error;

/// What a call gets that names a volume which is not there.
pub fn no_volume(id: &str) -> Status {
    Status::not_found(format!("there is no volume {id}"))
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Invalid(_) => Code::InvalidArgument,
            Error::NotFound(_) => Code::NotFound,
            Error::Exists(_) => Code::AlreadyExists,
            Error::Exhausted(_) => Code::ResourceExhausted,
            Error::OutOfRange(_) => Code::OutOfRange,
            Error::Precondition(_) => Code::FailedPrecondition,
            Error::Aborted(_) => Code::Aborted,
            Error::Internal(_) => Code::Internal,
        };
        Status::new(code, error.to_string())
    }
}

impl From<AdminError> for Status {
    fn from(error: AdminError) -> Self {
        let code = match &error {
            AdminError::NoSuchDisk(_) => Code::NotFound,
            AdminError::Several { .. } => Code::InvalidArgument,
            AdminError::NotInPool { .. }
            | AdminError::Here { .. }
            | AdminError::Missing(_)
            | AdminError::NotYet { .. }
            | AdminError::NotAdoptable { .. }
            | AdminError::NotLocatable { .. }
            | AdminError::NoLight { .. }
            | AdminError::ArrayHolds { .. }
            | AdminError::Disk(_)
            | AdminError::Pool(_) => Code::FailedPrecondition,
            AdminError::VolumesNotRead { .. } => Code::Unavailable,
            AdminError::Scan(_) | AdminError::Open(_) | AdminError::Array(_) | AdminError::Light(_) => Code::Internal,
        };
        Status::new(code, chain(&error))
    }
}

impl From<Stopped> for Status {
    fn from(stopped: Stopped) -> Self {
        Status::unavailable(stopped.to_string())
    }
}

impl From<ShowError> for Status {
    fn from(error: ShowError) -> Self {
        Status::internal(chain(&error))
    }
}

impl From<UnknownFormat> for Status {
    fn from(unknown: UnknownFormat) -> Self {
        Status::invalid_argument(unknown.to_string())
    }
}
