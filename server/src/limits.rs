//! Every limit of the front door: what a peer may cost before it has shown a valid token, and how long anything it
//! began may take. `docs/SECURITY.md` quotes the figures; a test compares them.
//!
//! The bounds on a *caller with a token* are in `grpc/bounds.rs` and `http/bounds.rs`.
//!
//! The arithmetic, for the default of 1,024 connections of agents (`max_connections`) and 256 of browsers:
//! * Strangers, that is connections without a valid token so far, hold at most three quarters of the slots: 768 and 192.
//! * A stranger is read from until [`STRANGER_BYTES`] have arrived and then no more, whatever its HTTP/2 windows are:
//!   960 × 64 KiB = 60 MiB.
//! * The fields of a request take at most [`HEADER_LIST_BYTES`] when decoded.

use std::time::Duration;

/// A TLS handshake is two round trips.
pub(crate) const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);

/// An agent sends its token right after the handshake; who has not by then is disconnected (gRPC).
pub(crate) const STRANGER_DEADLINE: Duration = Duration::from_secs(20);

/// Bytes read from a connection before it has shown a valid token. The UI is some 20 requests of 500 bytes.
pub(crate) const STRANGER_BYTES: u64 = 64 << 10;

/// Connections of strangers from one address (of IPv6: one /64 network). Beyond it, the oldest is dropped.
pub(crate) const STRANGERS_PER_ORIGIN_MAX: usize = 256;

/// One slot in so many is kept for callers that have shown a valid token, or come from an address that has.
pub(crate) const RESERVED_FOR_KNOWN: usize = 4;

/// One slot in so many is kept from callers with a token, so that health checks and new callers find one.
pub(crate) const RESERVED_FOR_STRANGERS: usize = 8;

/// One token may hold this share of the slots.
pub(crate) const TOKEN_SHARE: usize = 2;

/// Time for which an address counts as known after a caller from it showed a valid token.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// Addresses that are remembered: some 100 bytes each.
pub(crate) const ORIGINS_MAX: usize = 4096;

/// Fields of a request, decoded. A token is under 100 bytes, what browsers send some 2 KiB.
pub(crate) const HEADER_LIST_BYTES: u32 = 16 << 10;

/// Time until the head of a request is complete (HTTP/1); also how long a connection of a stranger may be idle.
pub(crate) const HEADER_DEADLINE: Duration = Duration::from_secs(30);

/// Time until the whole body of a gRPC call with one message is there.
pub(crate) const BODY_DEADLINE: Duration = Duration::from_secs(30);

/// A connection of a caller with a token may be idle for this long.
pub(crate) const IDLE_DEADLINE: Duration = Duration::from_secs(600);

/// An HTTP/2 peer that does not answer a ping for this long is gone.
pub(crate) const PING_DEADLINE: Duration = Duration::from_secs(20);

/// A peer whose socket takes no byte for this long is disconnected.
pub(crate) const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// A client that takes nothing more of an answer of the API, or of anything else over HTTPS, for this long is
/// disconnected.
pub(crate) const READ_DEADLINE: Duration = Duration::from_secs(30);

/// An agent that takes nothing more of a restore for this long is disconnected; its disk may be slow.
pub(crate) const RESTORE_READ_DEADLINE: Duration = Duration::from_secs(600);

/// Read deadline once the server is shutting down or the caller's token has ended.
pub(crate) const LAST_READ_DEADLINE: Duration = Duration::from_secs(2);

/// Interval at which a connection's deadlines are checked.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Streams that a peer may open and reset before they are answered, per connection (rapid reset).
pub(crate) const PENDING_RESETS_MAX: usize = 20;

/// Streams that a peer's errors may make the server reset, per connection.
pub(crate) const ERROR_RESETS_MAX: usize = 256;

/// A stream of a disk coming in, without any message for this long, is ended; the agent may open it again.
pub(crate) const INGEST_IDLE: Duration = Duration::from_secs(900);

/// Silence after which a stream is ended when messages of the disk came whose number is after one that is missing: the
/// engine has nothing to do, and nothing else can come. Numbers are given as messages are sent, so the missing one is
/// on its way or lost. On the slowest line that agents are for it takes seconds.
pub(crate) const ORDER_PATIENCE: Duration = Duration::from_secs(120);

/// Streams that wait for their turn, of each kind. Each is a call without a thread: some 10 KiB, and its connection.
pub(crate) const WAITING_MAX: usize = 1024;

/// Streams of one token that wait for their turn, of each kind.
pub(crate) const WAITING_PER_TOKEN_MAX: usize = 256;

/// Interval at which a stream that waits is told its place, changed or not.
pub(crate) const TURN_TOLD_EVERY: Duration = Duration::from_secs(5);

/// Wait after which the next in line gets a slot of a tenant that holds at least two more than its own, or of a stream
/// that could move [`MOVES_BYTES`](holdfast_proto::limits::MOVES_BYTES) in that time and does not.
pub(crate) const TURN_PATIENCE: Duration = Duration::from_secs(60);

/// Calls of one token at once, streams included, on all its connections.
pub(crate) const CALLS_PER_TOKEN_MAX: usize = 512;

/// Answers in lines that count or walk, at once: each has a thread, which waits while its client does not read. Those that change
/// something keep the slot of their request instead.
pub(crate) const ANSWERS_MAX: usize = 8;

/// Such answers of one token.
pub(crate) const ANSWERS_PER_TOKEN_MAX: usize = 4;

/// REST requests of one token that are answered at once. On the agents' listener it may have [`CALLS_PER_TOKEN_MAX`].
pub(crate) const REQUESTS_PER_TOKEN_MAX: usize = 48;

/// Requests without a token (pages of the UI) that are answered at once.
pub(crate) const PUBLIC_REQUESTS_MAX: usize = 32;

/// Body of a login.
pub(crate) const LOGIN_BODY_BYTES: usize = 1 << 10;

/// Time until a login is complete.
pub(crate) const LOGIN_DEADLINE: Duration = Duration::from_secs(10);

/// Logins that are not complete, from one address. Beyond it, the oldest is refused.
pub(crate) const LOGINS_PER_ORIGIN_MAX: usize = 4;

/// Logins that are not complete, in all. Beyond it, the oldest of the address with most of them is refused.
pub(crate) const LOGINS_MAX: usize = 32;

/// Calls of one address that wait for their token to be looked up, other than with tokens known to be good.
pub(crate) const LOOKUPS_PER_ORIGIN_MAX: usize = 256;

/// Such calls while the address is backed off.
pub(crate) const LOOKUPS_BACKED_OFF_MAX: usize = 2;

/// Wrong tokens that an address may show before it is backed off; one is forgiven every [`FORGIVE_EVERY`].
pub(crate) const FAILURES_FREE: u32 = 32;

/// See [`FAILURES_FREE`].
pub(crate) const FORGIVE_EVERY: Duration = Duration::from_secs(2);

/// The longest that an address is told to wait after wrong tokens; the first time it is one second.
pub(crate) const BACK_OFF_MAX: Duration = Duration::from_secs(60);

/// Tokens known to be good are remembered for [`KNOWN_FOR`], so many of them.
pub(crate) const GOOD_TOKENS_MAX: usize = 4096;

/// After this long a shutdown cuts off what is not a commit.
pub(crate) const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

/// After this long a shutdown cuts off commits as well.
pub(crate) const COMMIT_GRACE: Duration = Duration::from_secs(30);
