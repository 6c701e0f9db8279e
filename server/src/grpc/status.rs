//! Errors over gRPC.

use tonic::Status;

use crate::error::ServiceError;

impl ServiceError {
    /// As a gRPC status. This is where a call's error is handled, so it is logged here.
    pub(super) fn into_status(self) -> Status {
        self.log();
        self.code.status(self.message)
    }
}
