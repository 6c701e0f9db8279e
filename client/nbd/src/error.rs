//! Why a disk cannot be read or written over NBD.

use std::io;

/// Why an export cannot be opened, or can no longer be read or written.
#[derive(Debug, thiserror::Error)]
pub enum NbdError {
    /// An address that cannot be followed.
    #[error("{text} is not an NBD address: {why}")]
    Address { text: String, why: String },
    /// Certificates that cannot be used, or a server that is not the one they are for.
    #[error("TLS with the NBD server failed: {0}")]
    Tls(String),
    /// The server declined an option of the negotiation.
    #[error("the NBD server refused {what}: {why}")]
    Refused { what: &'static str, why: String },
    /// The server answered a request with an error. The connection can still be used.
    #[error("the NBD server answered: {0}")]
    Answered(String),
    /// The server sent what the protocol does not allow.
    #[error("the NBD server broke the protocol: {0}")]
    Violation(String),
    /// More was asked for than the export has.
    #[error("the export ends at {0}")]
    PastEnd(u64),
    /// The connection failed.
    #[error("the connection to the NBD server failed: {0}")]
    Io(#[from] io::Error),
    /// Every connection failed before.
    #[error("there is no connection to the NBD server any more")]
    Lost,
}

impl NbdError {
    pub(crate) fn violation(what: impl Into<String>) -> Self {
        Self::Violation(what.into())
    }

    /// Returns true if the connection is still in step with the server.
    pub(crate) const fn leaves_connection(&self) -> bool {
        matches!(self, Self::Answered(_) | Self::PastEnd(_))
    }
}

impl From<NbdError> for io::Error {
    fn from(error: NbdError) -> Self {
        let kind = match &error {
            NbdError::Io(source) => source.kind(),
            _ => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A server's text as one line that is safe on a terminal.
pub(crate) fn printable(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
