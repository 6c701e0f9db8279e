//! Bounds on the cost of one agent over gRPC.
//!
//! The arithmetic, for the default settings (`max_streams` 16, `max_restores` 16, `max_connections` 1,024):
//! * A disk coming in queues at most [`INGEST_QUEUE_BYTES`], the message that the engine works on included, and
//!   holds one more message that waits for room: 16 × 2 × 8 MiB = 256 MiB, if every agent sends the largest
//!   messages there are.
//! * Its lanes take their room from that queue: 16 × 448 KiB for one message each, which leaves 1 MiB
//!   ([`CONTROL_QUEUE_BYTES`]) to the stream itself. What waits in their connections' windows is counted with these.
//! * For proofs of its digests it keeps 5 MiB of what it decoded, and two extents being hashed: 16 × 14 MiB = 224 MiB at
//!   worst.
//! * A disk going out queues [`OUTGOING_QUEUE_MESSAGES`] of about 1 MiB: 16 × 2 MiB = 32 MiB.
//! * A call with one message that is not read holds [`SMALL_CHUNK_BYTES`].
//! * Connections hold what no call has read yet: each at most [`CONNECTION_WINDOW_BYTES`], all together their share of
//!   memory (`net/mod.rs`).
//! * A stream that waits for its turn holds no thread and none of the above: its call, and one message of at most
//!   [`OPEN_MAX_BYTES`].

use std::time::Duration;

use holdfast_proto::limits::{LANE_MESSAGE_MAX_BYTES, LANES_MAX, MESSAGE_MAX_BYTES};

use crate::net::WINDOW_MAX_BYTES;

/// Large frames cost fewer system calls and locks.
pub(super) const FRAME_BYTES: u32 = 64 << 10;

/// Flow-control window of one stream: 80 ms of a 100 MB/s line.
pub(super) const STREAM_WINDOW_BYTES: u32 = 8 << 20;

/// Flow-control window of a connection, for all its streams together; also the memory that unread messages may occupy.
pub(super) const CONNECTION_WINDOW_BYTES: u32 = {
    #[expect(clippy::cast_possible_truncation, reason = "16 MiB")]
    let bytes = WINDOW_MAX_BYTES as u32;
    bytes
};

/// Bytes of each call's answers that a connection buffers.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// Bytes of an answer handed to a connection at a time.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

/// The same of an answer that is one message: what lies in buffers of calls that are not read is no more than this each.
pub(super) const SMALL_CHUNK_BYTES: usize = 16 << 10;

/// A call's message, other than of a disk coming in. The largest legitimate one starts a backup of
/// [`DISKS_PER_BACKUP_MAX`](holdfast_proto::limits::DISKS_PER_BACKUP_MAX) disks with the longest names: 256 × 215 bytes.
pub(super) const UNARY_MAX_BYTES: usize = 128 << 10;

/// The first message of a disk coming in, which only says which disk it is: it is read before the disk has its turn.
pub(super) const OPEN_MAX_BYTES: usize = 4 << 10;

/// Calls of one connection at once.
pub(super) const CALLS_PER_CONNECTION_MAX: u32 = 128;

/// Bytes of a disk's messages that wait for the engine: one of the largest kind.
pub(super) const INGEST_QUEUE_BYTES: u32 = {
    assert!(MESSAGE_MAX_BYTES <= u32::MAX as usize, "semaphores count in u32");
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let bytes = MESSAGE_MAX_BYTES as u32;
    bytes
};

/// Part of its queue that a stream itself keeps once it has lanes: the rest is one message for each of them.
pub(super) const CONTROL_QUEUE_BYTES: u32 = {
    let lanes = LANES_MAX as usize * LANE_MESSAGE_MAX_BYTES;
    assert!(lanes + (1 << 20) <= INGEST_QUEUE_BYTES as usize, "the queues of all lanes fit, and 1 MiB");
    #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
    let lanes = lanes as u32;
    INGEST_QUEUE_BYTES - lanes
};

/// Messages of a disk that wait for the engine. Each takes at least this part of the queue's bytes.
pub(super) const INGEST_QUEUE_MESSAGES: u32 = 8;

/// Answers to a disk's messages that wait for the line; each is a bitmap or a counter, under 1 KiB, but for one that asks
/// for chunks again, under 64 KiB: the agent is silent before it.
pub(super) const INGEST_ANSWERS: usize = 16;

/// Longest time for an agent to say which disk it sends.
pub(super) const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval at which the engine may report progress while no message comes.
pub(super) const IDLE_INTERVAL: Duration = Duration::from_millis(200);

/// Messages on their way to a client. Each is up to about 1 MiB; the engine reads ahead on its own.
pub(super) const OUTGOING_QUEUE_MESSAGES: usize = 2;
