//! Chunks that the server asks for once more, after Finish: another backup was to bring them and did not.
//!
//! Pure state, no I/O. [`AgainRequests`] believes nothing the server says; [`Again`] is one request that was checked.
//! The server cannot ask for ever: no chunk is asked for twice, as far as it is remembered, and never more
//! than a disk can have.

use std::collections::BTreeMap;

use holdfast_proto::limits::{AGAIN_CHUNKS_MAX, EXTENT_PIECES_MAX, extent_count};
use holdfast_proto::{Fingerprint, v1};

use super::known::{FingerprintSet, Known};
use super::scan::{Changed, ScanResult};
use crate::error::ClientError;
use crate::slices::piece_bytes;

/// Chunks the server asked for again on one stream.
#[derive(Debug)]
pub(crate) struct AgainRequests {
    size_bytes: u64,
    /// The most recent chunks.
    asked: Known,
    /// Number of chunks that may still be asked for.
    left: u64,
}

/// Chunks to send again, by the extents that have them: 1,024 at most.
#[derive(Debug, Default)]
pub(crate) struct Again {
    extents: BTreeMap<u64, FingerprintSet>,
    /// Chunks not sent yet; one that several extents have is sent once.
    unsent: FingerprintSet,
}

/// An extent read again does not have a chunk that it should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Absent {
    pub(crate) extent: u64,
    pub(crate) chunk: Fingerprint,
}

impl AgainRequests {
    /// Creates the state of a stream of a disk of `size_bytes`.
    pub(crate) fn new(size_bytes: u64) -> Self {
        let left = extent_count(size_bytes).saturating_mul(EXTENT_PIECES_MAX as u64);
        Self { size_bytes, asked: Known::new(), left }
    }

    /// Checks a request.
    ///
    /// # Errors
    /// [`ClientError::Protocol`] when it asks for nothing, for too much, for an extent the disk does not have, or for
    /// a chunk it has asked for before.
    pub(crate) fn check(&mut self, wire: &v1::Again) -> Result<Again, ClientError> {
        let count: usize = wire.extents.iter().map(|extent| extent.fingerprints.len().div_ceil(32)).sum();
        if !(1..=AGAIN_CHUNKS_MAX).contains(&count) {
            return refuse(format!("it asked for {count} chunks again; the limit is {AGAIN_CHUNKS_MAX}"));
        }
        let Some(left) = self.left.checked_sub(count as u64) else {
            return refuse("it asked again for more chunks than the disk can have".to_owned());
        };
        self.left = left;
        let mut again = Again::default();
        for extent in &wire.extents {
            self.check_extent(extent, &mut again)?;
        }
        if let Some(chunk) = again.unsent.iter().find(|chunk| !self.asked.insert(**chunk)) {
            return refuse(format!("it asked again for chunk {}, which it was sent", chunk.short()));
        }
        Ok(again)
    }

    fn check_extent(&self, extent: &v1::AgainExtent, again: &mut Again) -> Result<(), ClientError> {
        let (index, bytes) = (extent.index, extent.fingerprints.len());
        let extents = extent_count(self.size_bytes);
        if index >= extents {
            return refuse(format!("it asked for extent {index} again, of a disk that has {extents}"));
        }
        let chunks: Option<FingerprintSet> =
            Fingerprint::split_list(&extent.fingerprints).map(Iterator::collect);
        let Some(chunks) = chunks.filter(|chunks| !chunks.is_empty() && !chunks.contains(&Fingerprint::ZERO))
        else {
            return refuse(format!(
                "it asked for extent {index} again with {bytes} bytes that name no chunks"
            ));
        };
        again.unsent.extend(&chunks);
        match again.extents.insert(index, chunks) {
            Some(_) => refuse(format!("it asked for extent {index} twice in one message")),
            None => Ok(()),
        }
    }
}

impl Again {
    /// Returns the number of extents to read.
    pub(crate) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// Extents that need not be read, of a disk of `count` extents.
    pub(crate) fn others(&self, count: u64) -> Vec<v1::ExtentRange> {
        let mut others = Vec::with_capacity(self.extents.len() + 1);
        let mut first = 0;
        for &index in self.extents.keys().chain([&count]) {
            if index > first {
                others.push(v1::ExtentRange { first, count: index - first });
            }
            first = index + 1;
        }
        others
    }

    /// Returns true if everything asked for was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Takes a result of reading again: calls `send` with each chunk to be sent.
    ///
    /// # Errors
    /// A chunk that the extent no longer has; nothing of the extent was sent then.
    pub(crate) fn take(
        &mut self,
        result: &ScanResult,
        mut send: impl FnMut(Fingerprint, &[u8]),
    ) -> Result<(), Absent> {
        let (first, count) = result.extents();
        match result {
            // Not read.
            ScanResult::Accepted { .. } => Ok(()),
            ScanResult::Changed(changed) => self.take_changed(changed, &mut send),
            ScanResult::Zero { .. } | ScanResult::Unchanged { .. } => {
                let mut within = self.extents.range(first..first + count);
                let wanted = within.find_map(|(extent, chunks)| Some((*extent, *chunks.iter().next()?)));
                wanted.map_or(Ok(()), |(extent, chunk)| Err(Absent { extent, chunk }))
            }
        }
    }

    fn take_changed(
        &mut self,
        changed: &Changed,
        send: &mut impl FnMut(Fingerprint, &[u8]),
    ) -> Result<(), Absent> {
        let Some(wanted) = self.extents.get(&changed.index) else { return Ok(()) };
        let present: FingerprintSet = changed.fingerprints.iter().copied().collect();
        if let Some(&chunk) = wanted.iter().find(|chunk| !present.contains(*chunk)) {
            return Err(Absent { extent: changed.index, chunk });
        }
        for (piece, fingerprint) in changed.pieces.iter().zip(&changed.fingerprints) {
            if wanted.contains(fingerprint) && self.unsent.remove(fingerprint) {
                send(*fingerprint, piece_bytes(&changed.buffer, piece));
            }
        }
        Ok(())
    }
}

fn refuse<T>(what: String) -> Result<T, ClientError> {
    Err(ClientError::Protocol(what))
}

#[cfg(test)]
mod tests;
