//! Domain errors as gRPC statuses: the one table of codes (CSI 1.13, "Error Scheme").

use tonic::{Code, Status};

use crate::volume::Error;

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
