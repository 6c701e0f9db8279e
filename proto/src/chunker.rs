//! How an extent is cut: runs of zeros first, then FastCDC (Xia et al. 2020, gear hash, normalisation 1)
//! over what lies between them. Cutting restarts at every extent, so extents are independent of each other.
//!
//! Cut points are a contract: two agents that cut differently share nothing. The golden tests pin them, and
//! the repository records the parameters.

use fastcdc::v2020::FastCDC;

use crate::limits::{
    CHUNK_AVG_BYTES, CHUNK_MAX_BYTES, CHUNK_MIN_BYTES, EXTENT_BYTES, REGION_PLAIN_MAX_BYTES,
    ZERO_RUN_ALIGN_BYTES, ZERO_RUN_MIN_BYTES,
};
use crate::v1;

/// Name of the algorithm in [`v1::ChunkerParams`].
pub const ALGORITHM: &str = "fastcdc-2020";

/// The parameters of this version, as recorded in repositories and told to agents.
pub fn params() -> v1::ChunkerParams {
    v1::ChunkerParams {
        algorithm: ALGORITHM.to_owned(),
        min_bytes: CHUNK_MIN_BYTES,
        avg_bytes: CHUNK_AVG_BYTES,
        max_bytes: CHUNK_MAX_BYTES,
        extent_bytes: EXTENT_BYTES,
        region_bytes: REGION_PLAIN_MAX_BYTES,
    }
}

/// A piece of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Start of the piece, in bytes from the extent's start.
    pub offset: u32,
    /// Length of the piece, in bytes; never 0.
    pub len: u32,
    /// Set for a run of zeros rather than a chunk.
    pub zero: bool,
}

/// Cuts extents with given FastCDC bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunker {
    min_bytes: usize,
    avg_bytes: usize,
    max_bytes: usize,
}

impl Default for Chunker {
    /// The contract's bounds.
    fn default() -> Self {
        Self {
            min_bytes: CHUNK_MIN_BYTES as usize,
            avg_bytes: CHUNK_AVG_BYTES as usize,
            max_bytes: CHUNK_MAX_BYTES as usize,
        }
    }
}

impl Chunker {
    /// A chunker with other bounds, to estimate what they would give. `None` unless all are even,
    /// ascending and within what FastCDC supports.
    pub fn with_bounds(min_bytes: usize, avg_bytes: usize, max_bytes: usize) -> Option<Self> {
        use fastcdc::v2020 as f;
        let even = [min_bytes, avg_bytes, max_bytes].iter().all(|n| n % 2 == 0);
        let ascending = min_bytes <= avg_bytes && avg_bytes <= max_bytes;
        let supported = (f::MINIMUM_MIN..=f::MINIMUM_MAX).contains(&min_bytes)
            && (f::AVERAGE_MIN..=f::AVERAGE_MAX).contains(&avg_bytes)
            && (f::MAXIMUM_MIN..=f::MAXIMUM_MAX).contains(&max_bytes);
        (even && ascending && supported).then_some(Self { min_bytes, avg_bytes, max_bytes })
    }

    /// Cuts `extent` (at most 4 MiB) into pieces that cover it exactly, in order.
    pub fn cut(&self, extent: &[u8]) -> Vec<Piece> {
        let mut pieces = Vec::with_capacity(extent.len() / self.avg_bytes.max(1) + 8);
        let mut data_start = 0;
        for (zero_start, zero_end) in ZeroRuns::new(extent) {
            self.cut_data(extent, data_start, zero_start, &mut pieces);
            pieces.push(piece(zero_start, zero_end - zero_start, true));
            data_start = zero_end;
        }
        self.cut_data(extent, data_start, extent.len(), &mut pieces);
        pieces
    }

    /// Length of the first chunk of data that begins where a chunk once did, and goes on at least as far: 0 only for
    /// nothing. One that once ended because its data did is not found this way.
    pub fn first_chunk(&self, data: &[u8]) -> usize {
        FastCDC::new(data, self.min_bytes, self.avg_bytes, self.max_bytes)
            .next()
            .map_or(0, |chunk| chunk.length)
    }

    fn cut_data(&self, extent: &[u8], start: usize, end: usize, pieces: &mut Vec<Piece>) {
        let data = extent.get(start..end).unwrap_or_default();
        if data.is_empty() {
            return;
        }
        let chunks = FastCDC::new(data, self.min_bytes, self.avg_bytes, self.max_bytes);
        pieces.extend(chunks.map(|chunk| piece(start + chunk.offset, chunk.length, false)));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "offsets within an extent of at most 4 MiB")]
const fn piece(offset: usize, len: usize, zero: bool) -> Piece {
    Piece { offset: offset as u32, len: len as u32, zero }
}

/// Returns true if every byte is zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Most data fails in its first bytes; whole 128-byte lines then compile to vector instructions.
    let (head, _) = bytes.split_at(bytes.len().min(16));
    if head.iter().any(|&byte| byte != 0) {
        return false;
    }
    let (lines, rest) = bytes.as_chunks::<128>();
    lines.iter().all(|line| line.iter().fold(0, |all, byte| all | byte) == 0) && rest.iter().all(|&b| b == 0)
}

/// Runs of at least [`ZERO_RUN_MIN_BYTES`] zeros on the [`ZERO_RUN_ALIGN_BYTES`] grid, as half-open ranges.
struct ZeroRuns<'a> {
    extent: &'a [u8],
    position: usize,
}

impl<'a> ZeroRuns<'a> {
    const fn new(extent: &'a [u8]) -> Self {
        Self { extent, position: 0 }
    }

    fn block_is_zero(&self, start: usize) -> bool {
        let end = (start + ZERO_RUN_ALIGN_BYTES as usize).min(self.extent.len());
        self.extent.get(start..end).is_some_and(|block| !block.is_empty() && is_zero(block))
    }
}

impl Iterator for ZeroRuns<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let step = ZERO_RUN_ALIGN_BYTES as usize;
        while self.position < self.extent.len() {
            let start = self.position;
            let mut end = start;
            while self.block_is_zero(end) {
                end = (end + step).min(self.extent.len());
            }
            if end - start >= ZERO_RUN_MIN_BYTES as usize {
                self.position = end;
                return Some((start, end));
            }
            self.position = end.max(start) + step;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fingerprint;
    use crate::limits::EXTENT_PIECES_MAX;
    use proptest::prelude::*;

    fn noise(seed: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn covers(extent: &[u8], pieces: &[Piece]) {
        let mut position = 0;
        for piece in pieces {
            assert_eq!(piece.offset as usize, position);
            assert!(piece.len > 0);
            let bytes = &extent[position..position + piece.len as usize];
            assert!(!piece.zero || is_zero(bytes));
            assert!(piece.zero || piece.len <= CHUNK_MAX_BYTES);
            position += piece.len as usize;
        }
        assert_eq!(position, extent.len());
        assert!(pieces.len() <= EXTENT_PIECES_MAX);
    }

    /// Cut points of a known extent. If this fails, every repository in the world has just lost its
    /// deduplication against new backups: do not change the expectation, find out why.
    #[test]
    fn cut_points_are_golden() {
        let mut extent = noise(1, 1 << 20);
        extent[300_000..400_000].fill(0);
        let pieces = Chunker::default().cut(&extent);
        covers(&extent, &pieces);
        let text: String =
            pieces.iter().map(|p| format!("{}{}\n", p.offset, if p.zero { "z" } else { "" })).collect();
        assert_eq!(pieces.len(), 47, "{text}");
        assert_eq!(Fingerprint::of(text.as_bytes()).short(), "b408a9ca396d", "{text}");
    }

    #[test]
    fn zeros_become_runs() {
        let extent = vec![0; EXTENT_BYTES as usize];
        assert_eq!(Chunker::default().cut(&extent), [Piece { offset: 0, len: EXTENT_BYTES, zero: true }]);
        let mut extent = noise(2, 200_000);
        extent[8192..8192 + 32768].fill(0);
        let pieces = Chunker::default().cut(&extent);
        assert!(pieces.contains(&Piece { offset: 8192, len: 32768, zero: true }), "{pieces:?}");
        extent[8192..8192 + 32768].copy_from_slice(&noise(3, 32768));
        extent[8192..8192 + 28672].fill(0);
        assert!(!Chunker::default().cut(&extent).iter().any(|p| p.zero), "28 KiB is too short a run");
    }

    #[test]
    fn alternating_zeros_stay_within_the_piece_limit() {
        let mut extent = vec![0; EXTENT_BYTES as usize];
        for block in extent.chunks_mut(36 << 10) {
            block[0] = 1;
        }
        let pieces = Chunker::default().cut(&extent);
        covers(&extent, &pieces);
        assert!(pieces.iter().filter(|p| p.zero).count() > 100);
    }

    #[test]
    fn an_edit_moves_few_cuts() {
        let extent = noise(4, 4 << 20);
        let mut edited = extent.clone();
        edited.splice(2_000_000..2_000_000, *b"inserted");
        edited.truncate(4 << 20);
        let names = |bytes: &[u8]| -> std::collections::HashSet<Fingerprint> {
            let cut = Chunker::default().cut(bytes);
            cut.iter()
                .map(|p| Fingerprint::of(&bytes[p.offset as usize..(p.offset + p.len) as usize]))
                .collect()
        };
        let (old, new) = (names(&extent), names(&edited));
        assert!(new.difference(&old).count() <= 6, "{} chunks differ", new.difference(&old).count());
    }

    proptest! {
        #[test]
        fn any_extent_is_covered(seed: u64, len in 0usize..600_000,
                                 zeros in proptest::collection::vec((0usize..600_000, 0usize..100_000), 0..8)) {
            let mut extent = noise(seed, len);
            for (start, run) in zeros {
                let start = start.min(len);
                let end = (start + run).min(len);
                extent[start..end].fill(0);
            }
            covers(&extent, &Chunker::default().cut(&extent));
        }

        #[test]
        fn zero_test_agrees_with_the_plain_one(bytes in proptest::collection::vec(prop_oneof![9 => Just(0u8), 1 => any::<u8>()], 0..400)) {
            prop_assert_eq!(is_zero(&bytes), bytes.iter().all(|&b| b == 0));
        }
    }
}
