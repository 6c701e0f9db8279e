//! Errors of the agent. Messages name the object and say what to do next.
//!
//! [`ClientError::exit_code`] is the one mapping to the exit codes the command line documents.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_proto::cert_fingerprint::CertFingerprint;
use holdfast_proto::details::escape_line;
use holdfast_proto::region::RegionError;
use holdfast_proto::{ErrorCode, RETRY_AFTER_METADATA};

use crate::source::SourceError;

/// Exit code of a command that did only some of what was asked.
pub const EXIT_PARTLY: u8 = 3;
/// Exit code of a command ended by Ctrl-C or SIGTERM.
pub const EXIT_INTERRUPTED: u8 = 130;
/// Exit code of a command that cannot be understood.
pub const EXIT_USAGE: u8 = 2;

/// Any failure of the agent library.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Arguments or settings are missing, or contradict each other.
    #[error("{0}")]
    Usage(String),
    /// The server could not be reached, or is not the one it should be.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The server refused a call.
    #[error("{message}")]
    Refused {
        code: ErrorCode,
        message: String,
        /// True if the server says that the same call may work later.
        passes: bool,
    },
    /// The connection broke, and did not come back in time.
    #[error("the connection to the server was lost: {0}")]
    Lost(String),
    /// The server broke the protocol.
    #[error("the server sent an unexpected answer: {0}; agent and server may be of different versions")]
    Protocol(String),
    /// Agent and server would cut data differently.
    #[error("this repository cuts data with {theirs}, this agent with {ours}; upgrade the older of the two")]
    Chunker { ours: String, theirs: String },
    /// A disk to back up cannot be read, changed its size or vanished.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Restored data is not what was backed up.
    #[error("disk {disk:?} is damaged: {what}")]
    Damaged { disk: String, what: String },
    /// Extents are what was sent when they were backed up, but do not hash to what the backup says they hash to.
    #[error(
        "disk {disk:?} is damaged: {count} extents do not hash to what their backup recorded, the first of them extent {}: they hold what was sent, but that may not be what was on the disk; try an earlier restore point, and run 'holdfast verify', after which the next backup reads these extents again",
        .extents.first().copied().unwrap_or_default()
    )]
    FalseDigests { disk: String, count: u64, extents: Vec<u64> },
    /// The restore stream does not describe a disk.
    #[error("the server sent an invalid restore stream: {0}; agent and server may be of different versions")]
    Window(#[from] WindowError),
    /// A region could not be compressed.
    #[error("compressing a region failed: {0}")]
    Region(#[from] RegionError),
    /// A namespace's key is missing, cannot be read or is another than what it is wanted for.
    #[error("{0}")]
    Key(String),
    /// A hook of the agent failed.
    #[error("{0}")]
    Hook(String),
    /// The restore target exists.
    #[error("{} already exists; add --force to overwrite it", .0.display())]
    Exists(PathBuf),
    /// Reading or writing a file of this machine failed. `what` is done to it: `writing`.
    #[error("{what} {} failed: {source}", .path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    /// The profile file does not parse.
    #[error("{}: {message}; correct the file, or delete it and run 'holdfast login'", .path.display())]
    Profile { path: PathBuf, message: String },
    /// A backup failed after it had begun. The server's log names the session, too.
    #[error("{source} (session {session}; the server's log may say more)")]
    OfSession { session: String, source: Box<ClientError> },
    /// A thread could not be started or panicked, or an invariant does not hold.
    #[error("internal error: {0}")]
    Internal(&'static str),
    /// A command failed, and this is what it leaves behind.
    #[error("{source}; {left}")]
    Leaving { source: Box<ClientError>, left: String },
    /// The user ended the command.
    #[error("interrupted")]
    Interrupted,
    /// Likewise, for a reason.
    #[error("interrupted: {0}")]
    Stopped(String),
}

impl ClientError {
    /// The exit code of a command that ends with this error.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => EXIT_USAGE,
            Self::Connect(error) => error.exit_code(),
            Self::Refused { code, .. } => code.exit_code(),
            Self::Lost(_) => ErrorCode::Unavailable.exit_code(),
            Self::Chunker { .. } => ErrorCode::Unsupported.exit_code(),
            Self::Damaged { .. } | Self::FalseDigests { .. } => ErrorCode::Damaged.exit_code(),
            Self::Interrupted | Self::Stopped(_) => EXIT_INTERRUPTED,
            Self::OfSession { source, .. } | Self::Leaving { source, .. } => source.exit_code(),
            Self::Protocol(_)
            | Self::Source(_)
            | Self::Window(_)
            | Self::Region(_)
            | Self::Key(_)
            | Self::Hook(_)
            | Self::Exists(_)
            | Self::File { .. }
            | Self::Profile { .. }
            | Self::Internal(_) => ErrorCode::Internal.exit_code(),
        }
    }

    /// Returns true if a new connection may help.
    pub const fn is_connection_loss(&self) -> bool {
        match self {
            Self::Lost(_) | Self::Refused { code: ErrorCode::Unavailable, .. } => true,
            Self::Connect(error) => error.is_unreachable(),
            Self::OfSession { source, .. } | Self::Leaving { source, .. } => source.is_connection_loss(),
            _ => false,
        }
    }

    /// Returns true if the server has as much to do as it allows: the same call may work later. What is too large for it never
    /// will.
    pub const fn is_limit(&self) -> bool {
        match self {
            Self::Refused { code: ErrorCode::Limit, passes, .. } => *passes,
            Self::OfSession { source, .. } | Self::Leaving { source, .. } => source.is_limit(),
            _ => false,
        }
    }

    /// Returns true if something else is at work on the same VM: it ends, or its lease does.
    pub const fn is_busy(&self) -> bool {
        match self {
            Self::Refused { code: ErrorCode::Busy, .. } => true,
            Self::OfSession { source, .. } | Self::Leaving { source, .. } => source.is_busy(),
            _ => false,
        }
    }

    /// Returns true if the server ended a stream for one that waited longer: it is to be opened again, and nothing is out of
    /// order.
    pub const fn is_giving_way(&self) -> bool {
        match self {
            Self::Refused { code: ErrorCode::Unavailable, passes, .. } => *passes,
            Self::OfSession { source, .. } | Self::Leaving { source, .. } => source.is_giving_way(),
            _ => false,
        }
    }

    /// Returns true if the server takes nothing with this token, not even what became of the work.
    pub const fn is_unauthenticated(&self) -> bool {
        match self {
            Self::Refused { code: ErrorCode::Unauthenticated, .. } => true,
            Self::OfSession { source, .. } | Self::Leaving { source, .. } => source.is_unauthenticated(),
            _ => false,
        }
    }

    /// Returns true if it says that stored data is damaged.
    pub const fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. }
            | Self::FalseDigests { .. }
            | Self::Refused { code: ErrorCode::Damaged, .. } => true,
            Self::Leaving { source, .. } => source.is_damage(),
            _ => false,
        }
    }

    /// Returns whether the user ended the command.
    pub const fn is_interrupted(&self) -> bool {
        match self {
            Self::Interrupted | Self::Stopped(_) => true,
            Self::Leaving { source, .. } => source.is_interrupted(),
            _ => false,
        }
    }

    /// Adds what the failed command leaves behind.
    #[must_use]
    pub fn leaving(self, left: impl Into<String>) -> Self {
        Self::Leaving { source: Box::new(self), left: left.into() }
    }

    /// Adds the session it happened in.
    #[must_use]
    pub fn of_session(self, session: impl Into<String>) -> Self {
        Self::OfSession { session: session.into(), source: Box::new(self) }
    }

    /// The session it happened in, if it is known.
    pub fn session(&self) -> Option<&str> {
        match self {
            Self::OfSession { session, .. } => Some(session),
            Self::Leaving { source, .. } => source.session(),
            _ => None,
        }
    }

    /// Returns true if the server no longer knows the session.
    pub const fn is_session_gone(&self) -> bool {
        matches!(self, Self::Refused { code: ErrorCode::SessionGone, .. })
    }
}

impl From<tonic::Status> for ClientError {
    /// A status with a Holdfast code is the server's refusal. One without comes from the transport or from
    /// something in between, and is a lost connection unless the peer does not speak the protocol at all.
    fn from(status: tonic::Status) -> Self {
        if let Some(error) = ConnectError::in_chain(&status) {
            return Self::Connect(error);
        }
        // One line: a message with line breaks could pass for lines of this program.
        let message = escape_line(status.message()).into_owned();
        if let Some(code) = ErrorCode::of_status(&status) {
            let passes = status.metadata().contains_key(RETRY_AFTER_METADATA);
            return Self::Refused { code, message, passes };
        }
        match status.code() {
            tonic::Code::Unimplemented => Self::Protocol(format!(
                "it does not know the call ({message}) and may not be a Holdfast server"
            )),
            tonic::Code::Unauthenticated | tonic::Code::PermissionDenied => {
                Self::Refused { code: ErrorCode::Forbidden, message, passes: false }
            }
            tonic::Code::OutOfRange | tonic::Code::ResourceExhausted | tonic::Code::InvalidArgument => {
                Self::Protocol(message)
            }
            // The first byte of an answer in HTTP or JSON.
            _ if message.contains("invalid compression flag") => Self::Protocol(
                "it answers as a web server does; agents use the other port, 7440 unless it was changed"
                    .to_owned(),
            ),
            _ => Self::Lost(describe(&status)),
        }
    }
}

/// The innermost cause of a status: it says what happened, while the layers around it only say where.
fn describe(status: &tonic::Status) -> String {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    // rustls adds a link to its manual, which is for programmers.
    let text = text.split(": https://").next().unwrap_or_default();
    if text.is_empty() { status.code().description().to_owned() } else { escape_line(text).into_owned() }
}

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
    /// None of the addresses of a join code leads to its server.
    #[error(
        "no address in the join code leads to the server with the certificate {expected}:\n{failures}\nIf the server has \
         other addresses, set 'advertise' there, or have the code made with --advertise"
    )]
    NoneReached { expected: CertFingerprint, failures: String },
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
            Self::Unreachable { .. } | Self::Timeout { .. } | Self::Tls { .. } | Self::NoneReached { .. } => {
                ErrorCode::Unavailable.exit_code()
            }
            Self::WrongCertificate { .. } | Self::Untrusted { .. } => ErrorCode::Forbidden.exit_code(),
            Self::CaFile { .. } => ErrorCode::Internal.exit_code(),
        }
    }

    /// Returns true if trying again later may help.
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

/// Why a restore stream was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error("{got} came where {expected} was due")]
    Order { got: &'static str, expected: &'static str },
    #[error("a disk of {size_bytes} bytes in extents of {extent_bytes}; the disk has {expected_bytes} bytes")]
    Header { size_bytes: u64, extent_bytes: u32, expected_bytes: u64 },
    #[error("a window of {count} extents from extent {first}; extent {due} was due, with {left} left")]
    Span { first: u64, count: usize, due: u64, left: u64 },
    #[error("a window of {fingerprints} chunks with {lengths} lengths")]
    Chunks { fingerprints: usize, lengths: usize },
    #[error("chunk {chunk} of the window from extent {first} is {bytes} bytes long")]
    ChunkLength { first: u64, chunk: usize, bytes: u32 },
    #[error("the layout of extent {extent} is wrong: {what}")]
    Layout { extent: u64, what: &'static str },
    #[error("chunk {chunk} of the window from extent {first} is not used")]
    Unused { first: u64, chunk: usize },
    #[error("a message of regions is empty")]
    NoRegions,
    #[error("a region that delivers {chunks} chunks at {offsets} offsets")]
    RegionLists { chunks: usize, offsets: usize },
    #[error("a region that delivers chunk {chunk}, which {what}")]
    RegionChunk { chunk: u32, what: &'static str },
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error("the window from extent {first} ended with {missing} chunks missing")]
    Missing { first: u64, missing: usize },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_keep_their_code_and_transport_errors_are_losses() {
        let refused = ClientError::from(ErrorCode::Busy.status("another backup of web runs"));
        assert_eq!((refused.exit_code(), refused.is_connection_loss()), (6, false));
        assert!(ClientError::from(ErrorCode::Unavailable.status("stopping")).is_connection_loss());
        assert!(ClientError::from(ErrorCode::SessionGone.status("expired")).is_session_gone());
        let lost = ClientError::from(tonic::Status::unknown("h2 protocol error"));
        assert_eq!((lost.exit_code(), lost.is_connection_loss()), (9, true));
        assert!(!ClientError::from(tonic::Status::unimplemented("")).is_connection_loss());
        assert_eq!(ClientError::from(tonic::Status::permission_denied("proxy")).exit_code(), 4);
    }

    #[test]
    fn only_a_limit_that_passes_is_waited_for() {
        let too_large = ErrorCode::Limit.status("a message of 9 bytes; the limit is 8");
        assert!(!ClientError::from(too_large.clone()).is_limit());
        let mut at_capacity = too_large;
        at_capacity.metadata_mut().insert(RETRY_AFTER_METADATA, 5u64.into());
        let refused = ClientError::from(at_capacity);
        assert!(refused.is_limit() && refused.of_session("01ABC").is_limit());
    }

    #[test]
    fn a_stream_that_gives_way_is_no_outage_and_a_server_that_stops_is() {
        let stopping = ErrorCode::Unavailable.status("the server is stopping");
        assert!(!ClientError::from(stopping.clone()).is_giving_way());
        let mut gives_way = stopping;
        gives_way.metadata_mut().insert(RETRY_AFTER_METADATA, 1u64.into());
        let refused = ClientError::from(gives_way);
        assert!(refused.is_giving_way() && !refused.is_limit());
        assert!(refused.of_session("01ABC").is_giving_way());
        let mut full = ErrorCode::Limit.status("full");
        full.metadata_mut().insert(RETRY_AFTER_METADATA, 1u64.into());
        assert!(!ClientError::from(full).is_giving_way());
    }

    #[test]
    fn a_message_of_the_server_is_one_harmless_line() {
        let words = "busy\nholdfast: done\u{1b}[2J\u{202e}";
        for status in [ErrorCode::Busy.status(words), tonic::Status::unknown(words)] {
            let text = ClientError::from(status).to_string();
            assert!(text.contains("busy\\u{a}holdfast: done\\u{1b}[2J\\u{202e}"), "{text:?}");
            assert!(!text.chars().any(holdfast_proto::details::is_unsafe), "{text:?}");
        }
    }

    #[test]
    fn saying_what_is_left_changes_only_the_words() {
        let ended = ClientError::Interrupted.leaving("nothing of this run was kept");
        assert_eq!((ended.exit_code(), ended.is_interrupted()), (EXIT_INTERRUPTED, true));
        assert_eq!(ended.to_string(), "interrupted; nothing of this run was kept");
        let lost = ClientError::Lost("gone".to_owned()).of_session("01ABC").leaving("it is partly written");
        assert_eq!(
            (lost.is_connection_loss(), lost.is_interrupted(), lost.session()),
            (true, false, Some("01ABC"))
        );
        let damaged = ClientError::Damaged { disk: "root".into(), what: "rot".into() };
        assert!(damaged.leaving("it is partly written").is_damage());
    }

    #[test]
    fn naming_the_session_changes_only_the_words() {
        let refused = ClientError::from(ErrorCode::Full.status("no room")).of_session("01ABC");
        assert_eq!((refused.exit_code(), refused.session()), (8, Some("01ABC")));
        assert!(refused.to_string().starts_with("no room (session 01ABC"), "{refused}");
        assert!(ClientError::Lost("gone".to_owned()).of_session("01ABC").is_connection_loss());
    }
}
