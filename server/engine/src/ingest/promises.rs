//! Chunks that extents of one stream name and that were not there when they did: other streams bring them, or they are
//! gone and must be sent again.

use std::collections::{BTreeMap, HashMap, HashSet};

use holdfast_proto::Fingerprint;
use holdfast_proto::v1;

use crate::error::EngineError;

/// Promises after which those that can be are settled. The next such number is so many above what is left, or a quarter.
const MANY: usize = 1 << 12;

/// (C5) Promises for which others seal what they have not finished: memory of 2 MB a stream, and containers of fifty
/// clones that have 3 MiB each by then.
const SEALED_FOR: usize = 1 << 14;

/// Promises from which on the agent is told to send what others bring as well: more than this come when nothing can be
/// sealed, as on a disk that is very slow. So many fill their table, which would double.
const PENDING_MAX: usize = 7 << 12;

/// Promises of a stream at most. An honest agent has [`PENDING_MAX`], and what it asked for before and names after.
const OPEN_MAX: usize = 7 << 14;

/// Chunks promised to a stream: named by its extents and not there yet. They are counted as duplicates until this
/// stream brings them.
#[derive(Debug)]
pub(super) struct Promises {
    open: HashMap<Fingerprint, Promise>,
    /// Chunks the agent was asked to send again since it opened the stream.
    asked: HashSet<Fingerprint>,
    many: usize,
}

#[derive(Debug, Clone, Copy)]
struct Promise {
    bytes: u32,
    /// One that names it. Others may, too: they stay as they are, only bytes can be missing.
    extent: u64,
}

impl Default for Promises {
    fn default() -> Self {
        Self { open: HashMap::new(), asked: HashSet::new(), many: MANY }
    }
}

impl Promises {
    /// Returns true if the chunk is promised already, with the same length.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if it is promised with another length.
    pub(super) fn check(&self, fingerprint: &Fingerprint, bytes: u32) -> Result<bool, EngineError> {
        match self.open.get(fingerprint) {
            Some(promise) if promise.bytes != bytes => Err(wrong_length(fingerprint, promise.bytes, bytes)),
            promise => Ok(promise.is_some()),
        }
    }

    /// # Errors
    /// [`EngineError::Invalid`]: there are too many.
    pub(super) fn make(
        &mut self,
        fingerprint: Fingerprint,
        bytes: u32,
        extent: u64,
    ) -> Result<(), EngineError> {
        if self.open.len() >= OPEN_MAX {
            return Err(EngineError::Invalid(format!(
                "chunk {fingerprint} is not there, and neither are {OPEN_MAX} others that were named; ask which chunks are needed, and send these before they are named"
            )));
        }
        self.open.insert(fingerprint, Promise { bytes, extent });
        Ok(())
    }

    /// Settles a chunk: it is there, and `length` bytes long. Returns true if it was promised.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if the extent that names it gives another length.
    pub(super) fn settle(&mut self, fingerprint: &Fingerprint, length: u32) -> Result<bool, EngineError> {
        let Some(promise) = self.open.get(fingerprint).copied() else { return Ok(false) };
        // (C2)
        if promise.bytes != length {
            return Err(match wrong_length(fingerprint, length, promise.bytes) {
                EngineError::Invalid(message) => {
                    EngineError::Invalid(format!("extent {}: {message}", promise.extent))
                }
                other => other,
            });
        }
        self.open.remove(fingerprint);
        self.asked.remove(fingerprint);
        Ok(true)
    }

    pub(super) fn is_open(&self, fingerprint: &Fingerprint) -> bool {
        self.open.contains_key(fingerprint)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// All promised chunks, in the order of their extents.
    pub(super) fn all(&self) -> Vec<Fingerprint> {
        let mut all: Vec<(u64, Fingerprint)> =
            self.open.iter().map(|(fingerprint, promise)| (promise.extent, *fingerprint)).collect();
        all.sort_unstable_by_key(|(extent, fingerprint)| (*extent, *fingerprint.as_bytes()));
        all.into_iter().map(|(_, fingerprint)| fingerprint).collect()
    }

    /// Returns true if there are so many that it pays to settle some.
    pub(super) fn are_many(&self) -> bool {
        self.open.len() >= self.many
    }

    /// Returns true if other streams should seal their open containers.
    pub(super) fn are_to_be_sealed(&self) -> bool {
        self.open.len() >= SEALED_FOR
    }

    /// Returns true if there is room for more promises.
    pub(super) fn have_room(&self) -> bool {
        self.open.len() < PENDING_MAX
    }

    /// Adjusts the limit after all that could be settled were.
    pub(super) fn were_settled(&mut self) {
        let left = self.open.len();
        self.many = MANY.max(left + left.min(MANY).max(left / 4));
        self.open.shrink_to(self.many);
    }

    /// Asks the agent for chunks that no one else brings.
    pub(super) fn ask_again(&mut self, lost: &[Fingerprint]) -> v1::Again {
        let mut extents: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for fingerprint in lost {
            if let Some(promise) = self.open.get(fingerprint) {
                extents.entry(promise.extent).or_default().extend(fingerprint.as_bytes());
                self.asked.insert(*fingerprint);
            }
        }
        let extent = |(index, fingerprints): (u64, Vec<u8>)| v1::AgainExtent {
            index,
            fingerprints: fingerprints.into(),
        };
        v1::Again { extents: extents.into_iter().map(extent).collect() }
    }

    /// Checks that the agent sent all chunks it was asked for again.
    ///
    /// # Errors
    /// [`EngineError::Invalid`] if not: asking once more would lead nowhere.
    pub(super) fn check_asked(&self) -> Result<(), EngineError> {
        let Some(fingerprint) = self.asked.iter().find(|fingerprint| self.is_open(fingerprint)) else {
            return Ok(());
        };
        let (count, extent) =
            (self.asked.len(), self.open.get(fingerprint).map_or(0, |promise| promise.extent));
        Err(EngineError::Invalid(format!(
            "extent {extent}: chunk {fingerprint} was asked for again, with {count} in all, and not sent; if the disk changed while it was read, back it up from a snapshot"
        )))
    }

    /// Notes that the agent sent these when others had brought some of the chunks it was asked for, so that none of
    /// them was taken: missing ones are asked for once more.
    pub(super) fn were_sent(&mut self, fingerprints: &[Fingerprint]) {
        for fingerprint in fingerprints {
            self.asked.remove(fingerprint);
        }
    }

    /// The agent that was asked again is gone.
    pub(super) fn forget_asked(&mut self) {
        self.asked = HashSet::new();
    }

    /// Memory they take, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        const PROMISE_BYTES: usize = 56;
        const ASKED_BYTES: usize = 40;
        (self.open.capacity() * PROMISE_BYTES + self.asked.capacity() * ASKED_BYTES) as u64
    }
}

/// Error for an extent that gives a chunk the wrong length.
pub(super) fn wrong_length(fingerprint: &Fingerprint, length: u32, named: u32) -> EngineError {
    EngineError::Invalid(format!("chunk {fingerprint} is {length} bytes long, not {named}"))
}
