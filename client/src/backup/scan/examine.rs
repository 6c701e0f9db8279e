//! One extent: read, hashed while it is in the cache, compared with the parent, and cut when it changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::{Chunker, Piece, is_zero};
use holdfast_proto::limits::extent_len;

use crate::backup::scan::{Changed, ScanResult};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::pool::Buffer;
use crate::slices::{part, part_mut, piece_bytes};
use crate::source::{Segment, Source, extent_bytes, read};
use crate::stages::{Lap, Stage, Stages, Stopwatch};

/// Read and hashed at a time: small enough that hashing finds it in a core's own cache (1 to 2 MiB).
const STEP_BYTES: usize = 256 << 10;

/// Examines the extents of one disk, on many threads.
#[derive(Debug)]
pub(super) struct Examiner {
    pub(super) disk: Arc<dyn Source>,
    pub(super) cipher: Cipher,
    pub(super) stages: Arc<Stages>,
    pub(super) read_bytes: AtomicU64,
}

impl Examiner {
    /// Reads extent `index`, which is laid out as `segments`, and says what it is beside `parent`, the digest
    /// it had in the parent backup. The buffer comes back unless the extent changed.
    pub(super) fn examine(
        &self,
        index: u64,
        segments: &[Segment],
        parent: Fingerprint,
        mut buffer: Buffer,
    ) -> Result<(ScanResult, Option<Buffer>), ClientError> {
        let len = extent_len(self.disk.size_bytes(), index);
        let extent = part_mut(&mut buffer, 0, len as usize);
        let Some(digest) = self.read_and_digest(index, segments, extent)? else {
            return Ok((ScanResult::Zero { first: index, count: 1 }, Some(buffer)));
        };
        if digest == parent {
            return Ok((ScanResult::Unchanged { index }, Some(buffer)));
        }
        let extent: &[u8] = extent;
        let bytes = u64::from(len);
        let pieces = self.stages.measure(Stage::Chunk, bytes, || Chunker::default().cut(extent));
        let fingerprint = |piece: &Piece| {
            if piece.zero { Fingerprint::ZERO } else { self.cipher.fingerprint(piece_bytes(extent, piece)) }
        };
        let fingerprints =
            self.stages.measure(Stage::Fingerprint, bytes, || pieces.iter().map(fingerprint).collect());
        let changed = Changed::new(index, len, digest, pieces, fingerprints, buffer);
        Ok((ScanResult::Changed(changed), None))
    }

    /// Fills `extent` from the disk and hashes it step by step, while each step is in the cache. `None`: all
    /// zeros.
    fn read_and_digest(
        &self,
        index: u64,
        segments: &[Segment],
        extent: &mut [u8],
    ) -> Result<Option<Fingerprint>, ClientError> {
        let range = extent_bytes(self.disk.size_bytes(), index, 1);
        assert_eq!(extent.len() as u64, range.end - range.start, "bytes of extent {index}");
        let (mut reading, mut hashing) = (Lap::default(), Lap::default());
        let mut watch = Stopwatch::start();
        let mut hasher = self.cipher.digest_hasher();
        let (mut filled, mut zero, mut read_bytes) = (0, true, 0);
        while filled < extent.len() {
            let len = STEP_BYTES.min(extent.len() - filled);
            let step = part_mut(extent, filled, len);
            read_bytes += read(&*self.disk, segments, range.start + filled as u64, step)?;
            reading += watch.lap();
            if zero && !is_zero(step) {
                zero = false;
                hasher.update(part(extent, 0, filled));
            }
            if !zero {
                hasher.update(part(extent, filled, len));
            }
            hashing += watch.lap();
            filled += len;
        }
        self.stages.add(Stage::Read, reading, read_bytes);
        self.stages.add(Stage::Digest, hashing, filled as u64);
        self.read_bytes.fetch_add(read_bytes, Ordering::Relaxed);
        Ok((!zero).then(|| Fingerprint::from_bytes(*hasher.finalize().as_bytes())))
    }
}
