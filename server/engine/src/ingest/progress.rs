//! Progress of a disk's stream, for readers that must not wait for it.
//!
//! A stream stores its position after each message; a reader takes what is there. The numbers may be of two
//! neighbouring messages. Each of them only grows, but for duplicates: a chunk that another stream was to bring is new
//! when this one brings it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1::FinishStream;

use crate::error::EngineError;

/// Position of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) extents: u64,
    pub(super) unchanged_bytes: u64,
    pub(super) dup_bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) wire_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) finished: bool,
}

impl Position {
    /// The position without the counters that any message moves, even one with no news.
    pub(super) const fn work(self) -> Self {
        Self { wire_bytes: 0, ..self }
    }
}

/// The position a stream stored last.
#[derive(Debug, Default)]
pub(super) struct DiskProgress {
    extents: AtomicU64,
    unchanged_bytes: AtomicU64,
    dup_bytes: AtomicU64,
    new_bytes: AtomicU64,
    wire_bytes: AtomicU64,
    stored_bytes: AtomicU64,
    finished: AtomicBool,
}

impl DiskProgress {
    /// A few plain stores, on a path that has just handled up to a megabyte.
    pub(super) fn store(&self, at: Position) {
        let store = |to: &AtomicU64, value| to.store(value, Ordering::Relaxed);
        store(&self.extents, at.extents);
        store(&self.unchanged_bytes, at.unchanged_bytes);
        store(&self.dup_bytes, at.dup_bytes);
        store(&self.new_bytes, at.new_bytes);
        store(&self.wire_bytes, at.wire_bytes);
        store(&self.stored_bytes, at.stored_bytes);
        self.finished.store(at.finished, Ordering::Relaxed);
    }

    pub(super) fn load(&self) -> Position {
        let load = |from: &AtomicU64| from.load(Ordering::Relaxed);
        Position {
            extents: load(&self.extents),
            unchanged_bytes: load(&self.unchanged_bytes),
            dup_bytes: load(&self.dup_bytes),
            new_bytes: load(&self.new_bytes),
            wire_bytes: load(&self.wire_bytes),
            stored_bytes: load(&self.stored_bytes),
            finished: self.finished.load(Ordering::Relaxed),
        }
    }
}

/// Maximum number of times an agent may claim to have read its disk. An honest one reads it once; a claim without bound
/// would make every sum it enters meaningless.
const READS_MAX: u64 = 16;

/// The end of what threads can have spent on a disk, some 34,000 years: sums of it have room.
const TIME_MAX_MS: u64 = 1 << 50;

/// (A8) `bytes` of a row is the sum of the first three.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counters {
    pub(super) unchanged_bytes: u64,
    pub(super) dup_bytes: u64,
    pub(super) new_bytes: u64,
    pub(super) read_bytes: u64,
    /// Milliseconds of the agent's threads, as it says.
    pub(super) reading_ms: u64,
    pub(super) compressing_ms: u64,
    pub(super) waiting_ms: u64,
    pub(super) wire_bytes: u64,
    pub(super) chunks: u64,
    pub(super) new_chunks: u64,
    pub(super) first_message_ms: i64,
}

impl Counters {
    /// Bytes of the disk that are not zero, as far as they are described.
    pub(super) const fn data_bytes(&self) -> u64 {
        // At most the disk's size, of which every addition made sure.
        self.unchanged_bytes + self.dup_bytes + self.new_bytes
    }

    /// Counts an extent that the parent has as well.
    ///
    /// # Errors
    /// [`EngineError::Internal`]: more than the disk's size would be counted.
    pub(super) fn unchanged(&mut self, bytes: u32, size_bytes: u64) -> Result<(), EngineError> {
        self.check_room(bytes, size_bytes)?;
        self.unchanged_bytes += u64::from(bytes);
        Ok(())
    }

    /// Counts a chunk that an extent names; `new`: this stream brought it, and no extent named it before.
    ///
    /// # Errors
    /// As [`Counters::unchanged`].
    pub(super) fn chunk(&mut self, new: bool, bytes: u32, size_bytes: u64) -> Result<(), EngineError> {
        self.check_room(bytes, size_bytes)?;
        self.chunks += 1;
        if new {
            self.new_chunks += 1;
            self.new_bytes += u64::from(bytes);
        } else {
            self.dup_bytes += u64::from(bytes);
        }
        Ok(())
    }

    /// Chunks that extents named, expecting them from elsewhere, were brought by this stream after all: what was
    /// counted as duplicate is new. (A8)
    ///
    /// # Errors
    /// [`EngineError::Internal`]: more than was counted.
    pub(super) fn brought(&mut self, chunks: u64, bytes: u64) -> Result<(), EngineError> {
        let had = self.dup_bytes;
        self.dup_bytes = had.checked_sub(bytes).ok_or_else(|| {
            EngineError::Internal(format!("{bytes} bytes are new that were among {had} bytes of duplicates"))
        })?;
        self.new_bytes += bytes;
        self.new_chunks += chunks;
        Ok(())
    }

    fn check_room(&self, bytes: u32, size_bytes: u64) -> Result<(), EngineError> {
        let counted = self.data_bytes();
        if counted.checked_add(bytes.into()).is_some_and(|sum| sum <= size_bytes) {
            return Ok(());
        }
        Err(EngineError::Internal(format!("{counted} + {bytes} bytes counted of a disk of {size_bytes}")))
    }

    /// Counts a message.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] when the sum cannot be kept.
    pub(super) fn message(&mut self, wire_bytes: u64, now_ms: i64) -> Result<(), EngineError> {
        let sum = self.wire_bytes.checked_add(wire_bytes).filter(|sum| i64::try_from(*sum).is_ok());
        let had = self.wire_bytes;
        self.wire_bytes = sum.ok_or_else(|| {
            EngineError::Invalid(format!("{had} + {wire_bytes} bytes received are too many to count"))
        })?;
        if self.first_message_ms == 0 {
            self.first_message_ms = now_ms;
        }
        Ok(())
    }

    /// Takes what the agent says of its reading of a disk of `size_bytes`. Nothing changes when that is refused.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] for more than [`READS_MAX`] times the disk.
    pub(super) fn read(&mut self, finish: &FinishStream, size_bytes: u64) -> Result<(), EngineError> {
        // Reads may be rounded up to whole extents.
        let FinishStream { read_bytes, reading_ms, compressing_ms, waiting_ms } = *finish;
        let limit = (size_bytes.saturating_add(EXTENT_BYTES.into())).saturating_mul(READS_MAX);
        if read_bytes > limit {
            return Err(EngineError::Invalid(format!(
                "{read_bytes} bytes are said to have been read of a disk of {size_bytes} bytes; the limit is {limit}"
            )));
        }
        self.read_bytes = read_bytes;
        [self.reading_ms, self.compressing_ms, self.waiting_ms] =
            [reading_ms, compressing_ms, waiting_ms].map(|time_ms| time_ms.min(TIME_MAX_MS));
        Ok(())
    }
}
