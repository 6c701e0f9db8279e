//! What a call can be refused with, whichever protocol it came by: a code and a message for a person.

use std::fmt;

use holdfast_engine::EngineError;
use holdfast_engine::catalog::CatalogError;
use holdfast_proto::ErrorCode;
use tonic::Status;

/// A refusal. [`ErrorCode`] maps it to gRPC and exit codes, [`crate::http::problem`] to HTTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ServiceError {
    pub code: ErrorCode,
    pub message: String,
}

impl ServiceError {
    /// Of `code`, saying `message`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// The request makes no sense.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    /// Says what was being done when it happened.
    #[must_use]
    pub fn during(self, what: impl fmt::Display) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// As a gRPC status. This is where a call's error is handled, so it is logged here.
    pub fn into_status(self) -> Status {
        self.log();
        self.code.status(self.message)
    }

    /// Logs what the administrator has to know of; for whoever turns an error into an answer.
    pub(crate) fn log(&self) {
        match self.code {
            ErrorCode::Internal | ErrorCode::Damaged | ErrorCode::ReadOnly | ErrorCode::Full => {
                tracing::error!(code = %self.code, "{}", self.message);
            }
            _ => tracing::debug!(code = %self.code, "refused: {}", self.message),
        }
    }
}

impl From<EngineError> for ServiceError {
    fn from(error: EngineError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<CatalogError> for ServiceError {
    fn from(error: CatalogError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<tokio::task::JoinError> for ServiceError {
    /// A blocking task that panicked (or was dropped by a runtime that is going down).
    fn from(error: tokio::task::JoinError) -> Self {
        if error.is_cancelled() {
            return Self::new(
                ErrorCode::Unavailable,
                "the server is shutting down; try again when it is back",
            );
        }
        Self::new(ErrorCode::Internal, "the server met a defect in itself; its log says more")
    }
}
