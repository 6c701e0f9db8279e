//! Errors of calls, whichever protocol they came by: a code and a message for a person.

use std::fmt;
use std::io;
use std::time::Duration;

use holdfast_engine::EngineError;
use holdfast_engine::catalog::CatalogError;
use holdfast_proto::ErrorCode;
use holdfast_proto::version::NotSpoken;

/// Wait before a new try of a call that is refused because of what others do.
const AT_CAPACITY_WAIT: Duration = Duration::from_secs(5);

/// A refusal. `grpc/call.rs` turns it into a gRPC status, `http/problem.rs` into an HTTP answer, and
/// [`ErrorCode`] into an exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServiceError {
    pub code: ErrorCode,
    pub message: String,
    /// Seconds after which another try makes sense, if that is known.
    pub retry_after_secs: Option<u64>,
}

impl ServiceError {
    /// Of `code`, saying `message`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_secs: None }
    }

    /// The caller may try again after so long: `Retry-After` over HTTP, `retry-after` in gRPC's metadata.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after_secs = Some(wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX).max(1));
        self
    }

    /// `Limit`, because there is as much under way as there may be: the same call may work a little later.
    pub fn at_capacity(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Limit, message).retry_after(AT_CAPACITY_WAIT)
    }

    /// The request makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    /// A rule of this program itself was broken. `what` says which, with the values.
    pub(crate) fn defect(what: impl fmt::Display) -> Self {
        Self::new(ErrorCode::Internal, format!("internal error, please report it: {what}"))
    }

    /// The server is shutting down.
    pub(crate) fn shutting_down() -> Self {
        Self::new(ErrorCode::Unavailable, "the server is shutting down; try again when it is back")
    }

    /// Logs what the administrator has to know. Called where an error becomes an answer.
    pub(crate) fn log(&self) {
        match self.code {
            ErrorCode::Internal | ErrorCode::Damaged | ErrorCode::ReadOnly | ErrorCode::Full => {
                tracing::error!(code = %self.code, "{}", self.message);
            }
            _ => tracing::debug!(code = %self.code, "refused: {}", self.message),
        }
    }
}

/// The code of an I/O error on a file of ours.
pub(crate) fn io_code(error: &io::Error) -> ErrorCode {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::Full,
        _ => ErrorCode::Internal,
    }
}

impl From<EngineError> for ServiceError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Limit(message) => Self::at_capacity(message),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

impl From<CatalogError> for ServiceError {
    fn from(error: CatalogError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<NotSpoken> for ServiceError {
    fn from(error: NotSpoken) -> Self {
        let code = match error {
            NotSpoken::Missing => ErrorCode::Invalid,
            NotSpoken::Unsupported(_) => ErrorCode::Unsupported,
        };
        Self::new(code, error.to_string())
    }
}

impl From<tokio::task::JoinError> for ServiceError {
    /// A task that panicked, or was dropped by a runtime that is shutting down.
    fn from(error: tokio::task::JoinError) -> Self {
        if error.is_cancelled() {
            return Self::shutting_down();
        }
        Self::new(ErrorCode::Internal, "the server failed with an internal error; its log says more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So that a command that needs more room ends with the code that says so.
    #[test]
    fn a_full_disk_is_full_whoever_meets_it() {
        for (kind, code) in [
            (io::ErrorKind::StorageFull, ErrorCode::Full),
            (io::ErrorKind::QuotaExceeded, ErrorCode::Full),
            (io::ErrorKind::PermissionDenied, ErrorCode::Internal),
        ] {
            assert_eq!(io_code(&io::Error::from(kind)), code);
        }
    }
}
