//! Errors over gRPC.

use holdfast_proto::RETRY_AFTER_METADATA;
use tonic::Status;

use crate::error::ServiceError;

impl ServiceError {
    /// As a gRPC status. This is where a call's error is handled, so it is logged here.
    pub(super) fn into_status(self) -> Status {
        self.log();
        let mut status = self.code.status(self.message);
        if let Some(secs) = self.retry_after_secs {
            status.metadata_mut().insert(RETRY_AFTER_METADATA, secs.into());
        }
        status
    }
}
