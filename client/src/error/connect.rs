//! Why no connection to a server was made.

use std::error::Error;
use std::sync::Arc;

use holdfast_proto::ErrorCode;

use crate::cert_fingerprint::CertFingerprint;

/// Why a connection was not made. It can be cloned, to take it out of the errors the transport wraps around
/// it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectError {
    /// Nothing listens at the address, or it cannot be reached.
    #[error("cannot reach the server at {server}: {source}; is it running, and is the address right?")]
    Unreachable { server: String, source: Arc<std::io::Error> },
    /// There was no answer in time.
    #[error("the server at {server} did not answer within {seconds} s; is the address right?")]
    Timeout { server: String, seconds: u64 },
    /// The server that answers is not the expected one.
    #[error(
        "the server at {server} presents a different certificate than expected\n  expected {expected}\n  got      \
         {got}\nIf the server was set up again, compare this with the fingerprint it prints when it starts, and \
         run 'holdfast login'. If not, another machine may be posing as the server."
    )]
    WrongCertificate { server: String, expected: CertFingerprint, got: CertFingerprint },
    /// The certificate does not verify against the given CA.
    #[error(
        "the certificate of {server} (SHA-256 {got}) does not verify against {ca}: {reason}; use the CA that \
         signed it, or pin the certificate with --fingerprint"
    )]
    Untrusted { server: String, ca: String, got: String, reason: String },
    /// TLS failed in another way.
    #[error("cannot make a TLS connection to {server}: {reason}; is it a Holdfast server?")]
    Tls { server: String, reason: String },
    /// The CA file is unusable.
    #[error("CA file {path}: {reason}")]
    CaFile { path: String, reason: String },
}

impl ConnectError {
    /// The exit code of a command that ends with this error.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Tls { .. } => {
                ErrorCode::Unavailable.exit_code()
            }
            Self::WrongCertificate { .. } | Self::Untrusted { .. } => ErrorCode::Forbidden.exit_code(),
            Self::CaFile { .. } => ErrorCode::Internal.exit_code(),
        }
    }

    /// Whether trying again later may help.
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Timeout { .. } | Self::Tls { .. })
    }

    /// The connection error among the causes of `error`, if there is one.
    pub(crate) fn in_chain(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Self>() {
                return Some(found.clone());
            }
            next = error.source();
        }
        None
    }
}
