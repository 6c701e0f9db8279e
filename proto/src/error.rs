//! One set of error codes for everything a user can meet, and its mapping to gRPC status and exit code.
//! The HTTP mapping belongs to the server, which alone speaks HTTP.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// gRPC metadata key that carries an [`ErrorCode`] beside the status.
pub const ERROR_CODE_METADATA: &str = "holdfast-code";

/// gRPC metadata key that says after how many seconds the same call may work. Only refusals that pass have it: of
/// what is too large there is none.
pub const RETRY_AFTER_METADATA: &str = "retry-after";

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:tt, $grpc:ident, $exit:literal;)*) => {
        /// The error as a stable word: the same as in gRPC and for exit codes
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub enum ErrorCode { $($(#[$doc])* #[serde(rename = $text)] $name,)* }

        impl ErrorCode {
            /// Every code, for tests and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The gRPC status that carries it.
            pub const fn grpc(self) -> tonic::Code {
                match self { $(Self::$name => tonic::Code::$grpc,)* }
            }

            /// The exit code of the command line.
            pub const fn exit_code(self) -> u8 {
                match self { $(Self::$name => $exit,)* }
            }
        }

        impl FromStr for ErrorCode {
            type Err = ();
            fn from_str(text: &str) -> Result<Self, ()> {
                match text { $($text => Ok(Self::$name),)* _ => Err(()) }
            }
        }
    };
}

codes! {
    /// The request makes no sense, whatever the state.
    Invalid = "invalid", InvalidArgument, 1;
    /// No or a wrong token.
    Unauthenticated = "unauthenticated", Unauthenticated, 4;
    /// The token may not do this, or not in this namespace.
    Forbidden = "forbidden", PermissionDenied, 4;
    /// The named object does not exist.
    NotFound = "not-found", NotFound, 1;
    /// In use by another client: one backup of a VM at a time.
    Busy = "busy", Aborted, 6;
    /// The state changed after it was shown; look again, and decide anew.
    Changed = "changed", FailedPrecondition, 1;
    /// The session is unknown, ended or its lease ran out; start a new one.
    SessionGone = "session-gone", FailedPrecondition, 1;
    /// A newer format or protocol than this build knows.
    Unsupported = "unsupported", Unimplemented, 7;
    /// The repository has no room; nothing was accepted.
    Full = "full", ResourceExhausted, 8;
    /// The namespace has reached one of its quotas; make room in it or have the limit raised.
    Quota = "quota", ResourceExhausted, 8;
    /// A bound of this server was reached. What passes says when to try again ([`RETRY_AFTER_METADATA`], `Retry-After`
    /// over HTTP); without that, the call is too large and will never succeed.
    Limit = "limit", ResourceExhausted, 1;
    /// The repository stopped accepting writes after an I/O error.
    ReadOnly = "read-only", FailedPrecondition, 8;
    /// Stored data does not match its checksum or fingerprint.
    Damaged = "damaged", DataLoss, 5;
    /// Part of what was asked for lies in an archive, and must be thawed before it can be read.
    Archived = "archived", FailedPrecondition, 10;
    /// The server is shutting down or not ready; try again.
    Unavailable = "unavailable", Unavailable, 9;
    /// A defect or an I/O error at the server.
    Internal = "internal", Internal, 1;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ErrorCode {
    /// A gRPC status of this code.
    pub fn status(self, message: impl Into<String>) -> tonic::Status {
        let mut status = tonic::Status::new(self.grpc(), message);
        status
            .metadata_mut()
            .insert(ERROR_CODE_METADATA, tonic::metadata::MetadataValue::from_static(self.as_str()));
        status
    }

    /// The code a status carries; `None` when it came from something else than a Holdfast server.
    pub fn of_status(status: &tonic::Status) -> Option<Self> {
        status.metadata().get(ERROR_CODE_METADATA)?.to_str().ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_wire() {
        for code in ErrorCode::ALL {
            assert_eq!(ErrorCode::of_status(&code.status("x")), Some(*code));
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert_eq!(serde_json::from_value::<ErrorCode>(code.as_str().into()).unwrap(), *code);
            assert_ne!(code.exit_code(), 0);
            assert_ne!(code.exit_code(), 2, "2 is a usage error");
        }
    }
}
