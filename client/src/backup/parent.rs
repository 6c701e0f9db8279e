//! The parent's extent digests, as they stream in. Claims go forward through the disk, so one block is held
//! and a few wait in the channel: a disk of any size costs under a megabyte.

use bytes::Bytes;
use holdfast_proto::fingerprint::FINGERPRINT_BYTES;
use holdfast_proto::limits::DIGESTS_PER_BLOCK;
use holdfast_proto::{Fingerprint, v1};
use tokio::sync::mpsc;

use crate::error::ClientError;

/// Blocks that may wait (256 KiB each).
pub(crate) const BLOCKS_AHEAD: usize = 2;

/// Where blocks come from.
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
}

impl ParentDigests {
    /// No parent: nothing is known.
    pub(crate) const fn none() -> Self {
        Self { blocks: None, first: 0, digests: Bytes::new(), asked: 0 }
    }

    /// From a stream of blocks.
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
