//! The parent's extent digests, as they stream in. Claims go forward through the disk, so one block is held
//! and a few wait in the channel: a disk of any size costs under a megabyte.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::DIGESTS_PER_BLOCK;
use holdfast_proto::reread::Reread;
use holdfast_proto::{Fingerprint, v1};
use tokio::sync::mpsc;

use crate::error::ClientError;

/// Blocks that may wait (256 KiB each).
pub(crate) const BLOCKS_AHEAD: usize = 2;

/// Source of the parent's digest blocks.
pub(crate) type Blocks = mpsc::Receiver<Result<v1::DigestBlock, ClientError>>;

/// Digests by extent, asked for in ascending order.
#[derive(Debug)]
pub(crate) struct ParentDigests {
    /// `None`: there is no parent, or it has ended.
    blocks: Option<Blocks>,
    first: u64,
    digests: Bytes,
    /// The extent last asked for.
    asked: u64,
    reread: Option<Rereading>,
}

/// Extents to be read whatever their digest, and how many there were.
#[derive(Debug)]
pub(crate) struct Rereading {
    /// `None`: all.
    pub(crate) due: Option<Reread>,
    pub(crate) count: Arc<AtomicU64>,
}

impl Rereading {
    /// Returns true if extent `index` is to be read, and counts it.
    fn takes(&self, index: u64) -> bool {
        let due = self.due.is_none_or(|due| due.is_due(index));
        if due {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        due
    }
}

impl ParentDigests {
    /// No parent: nothing is known.
    pub(crate) const fn none() -> Self {
        Self { blocks: None, first: 0, digests: Bytes::new(), asked: 0, reread: None }
    }

    /// Says of extents that are to be read again that nothing is known of them, whatever the server says.
    pub(crate) fn rereading(self, reread: Option<Rereading>) -> Self {
        Self { reread, ..self }
    }

    /// Reads the digests from a stream of blocks.
    pub(crate) fn streamed(blocks: Blocks) -> Self {
        Self { blocks: Some(blocks), ..Self::none() }
    }

    /// The digest of extent `index`; [`Fingerprint::UNKNOWN`] where there is none. Blocks the thread until
    /// the digest is there.
    ///
    /// # Errors
    /// The stream's error, or [`ClientError::Protocol`] for a malformed block.
    ///
    /// # Panics
    /// When `index` is less than in the call before: its block may be gone.
    pub(crate) fn of_extent(&mut self, index: u64) -> Result<Fingerprint, ClientError> {
        assert!(index >= self.asked, "digest of extent {index} asked for after that of {}", self.asked);
        self.asked = index;
        if self.reread.as_ref().is_some_and(|reread| reread.takes(index)) {
            return Ok(Fingerprint::UNKNOWN);
        }
        while index >= self.end() {
            let Some(blocks) = &mut self.blocks else { return Ok(Fingerprint::UNKNOWN) };
            match blocks.blocking_recv() {
                Some(block) => self.accept(block?)?,
                None => self.blocks = None,
            }
        }
        let digest = index
            .checked_sub(self.first)
            .and_then(|at| usize::try_from(at).ok()?.checked_mul(FINGERPRINT_BYTES))
            .and_then(|at| self.digests.get(at..at.checked_add(FINGERPRINT_BYTES)?))
            .and_then(Fingerprint::from_slice);
        Ok(digest.unwrap_or(Fingerprint::UNKNOWN))
    }

    fn end(&self) -> u64 {
        self.first + (self.digests.len() / FINGERPRINT_BYTES) as u64
    }

    fn accept(&mut self, block: v1::DigestBlock) -> Result<(), ClientError> {
        let count = block.digests.len() / FINGERPRINT_BYTES;
        let whole = block.digests.len().is_multiple_of(FINGERPRINT_BYTES);
        let in_order = block.first_extent >= self.end() && block.first_extent <= u64::MAX / 2;
        if !whole || !in_order || count == 0 || count > DIGESTS_PER_BLOCK {
            return Err(ClientError::Protocol(format!(
                "a block of {} digest bytes from extent {} after extent {}",
                block.digests.len(),
                block.first_extent,
                self.end()
            )));
        }
        self.first = block.first_extent;
        self.digests = block.digests;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(first_extent: u64, bytes: &[u8]) -> v1::DigestBlock {
        let digests: Vec<u8> = bytes.iter().flat_map(|byte| [*byte; FINGERPRINT_BYTES]).collect();
        v1::DigestBlock { first_extent, digests: digests.into() }
    }

    fn digests(blocks: Vec<v1::DigestBlock>) -> ParentDigests {
        let (sender, receiver) = mpsc::channel(16);
        for block in blocks {
            sender.try_send(Ok(block)).unwrap();
        }
        ParentDigests::streamed(receiver)
    }

    #[test]
    fn digests_are_found_and_gaps_are_unknown() {
        let mut parent = digests(vec![block(0, &[1, 2]), block(4, &[5, 6])]);
        let of = |byte| Fingerprint::from_bytes([byte; FINGERPRINT_BYTES]);
        let found: Vec<_> = [0, 1, 2, 3, 5, 6, 100].map(|index| parent.of_extent(index).unwrap()).into();
        let unknown = Fingerprint::UNKNOWN;
        assert_eq!(found, [of(1), of(2), unknown, unknown, of(6), unknown, unknown]);
        assert_eq!(ParentDigests::none().of_extent(3).unwrap(), unknown);
    }

    #[test]
    fn extents_to_be_read_again_are_unknown_and_counted() {
        let blocks = || vec![block(0, &[7; 60])];
        let count = Arc::new(AtomicU64::new(0));
        let day = 86_400_000;
        for (due, expected) in [(Reread::since(30, 0, 3 * day), 6), (None, 60)] {
            count.store(0, Ordering::Relaxed);
            let rereading = Rereading { due, count: Arc::clone(&count) };
            let mut parent = digests(blocks()).rereading(Some(rereading));
            let unknown = (0..60).filter(|index| parent.of_extent(*index).unwrap() == Fingerprint::UNKNOWN);
            assert_eq!(unknown.count(), expected);
            assert_eq!(count.load(Ordering::Relaxed), expected as u64);
        }
    }

    #[test]
    fn malformed_blocks_are_refused() {
        let ragged = v1::DigestBlock { first_extent: 0, digests: vec![0; 33].into() };
        let long = v1::DigestBlock { first_extent: 0, digests: vec![0; 32 * (DIGESTS_PER_BLOCK + 1)].into() };
        for blocks in [
            vec![ragged],
            vec![long],
            vec![block(0, &[])],
            vec![block(0, &[1, 2]), block(1, &[3])],
            vec![block(u64::MAX, &[1])],
        ] {
            assert!(digests(blocks).of_extent(7).is_err());
        }
    }

    #[test]
    #[should_panic(expected = "extent 3 asked for after that of 4")]
    fn going_back_is_a_defect() {
        let mut parent = digests(vec![block(0, &[1, 2, 3, 4, 5])]);
        for index in [4, 3] {
            drop(parent.of_extent(index));
        }
    }
}
