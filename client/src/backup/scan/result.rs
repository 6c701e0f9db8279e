//! What scanning finds out about a part of the disk.

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::Piece;

use crate::error::ClientError;
use crate::pool::Buffer;

/// What was found out about one or more extents.
#[derive(Debug)]
pub(crate) enum ScanResult {
    Zero { first: u64, count: u64 },
    Accepted { first: u64, count: u64 },
    Unchanged { index: u64 },
    Changed(Changed),
}

/// A result with its number in disk order, or the error that ends the scan.
pub(crate) type Scanned = Result<(u64, ScanResult), ClientError>;

impl ScanResult {
    /// The first extent it is about, and how many.
    pub(crate) const fn extents(&self) -> (u64, u64) {
        match self {
            Self::Zero { first, count } | Self::Accepted { first, count } => (*first, *count),
            Self::Unchanged { index } | Self::Changed(Changed { index, .. }) => (*index, 1),
        }
    }
}

/// An extent that differs from its parent, cut into chunks.
#[derive(Debug)]
pub(crate) struct Changed {
    pub(crate) index: u64,
    pub(crate) digest: Fingerprint,
    pub(crate) pieces: Vec<Piece>,
    /// One per piece; [`Fingerprint::ZERO`] for runs of zeros.
    pub(crate) fingerprints: Vec<Fingerprint>,
    /// The extent's bytes, from the start; it may be longer than the extent.
    pub(crate) buffer: Buffer,
}

impl Changed {
    /// # Panics
    /// When the pieces are not exactly the extent's `len` bytes, or have other fingerprints than pieces:
    /// the server would be told of another extent than was read.
    pub(crate) fn new(
        index: u64,
        len: u32,
        digest: Fingerprint,
        pieces: Vec<Piece>,
        fingerprints: Vec<Fingerprint>,
        buffer: Buffer,
    ) -> Self {
        let mut end = 0;
        for piece in &pieces {
            assert!(piece.offset == end && piece.len > 0, "extent {index}: {piece:?} at {end}");
            end += piece.len;
        }
        assert!(
            end == len && len as usize <= buffer.len(),
            "extent {index}: pieces of {end} bytes, not {len}"
        );
        assert_eq!(fingerprints.len(), pieces.len(), "extent {index}: fingerprints, pieces");
        Self { index, digest, pieces, fingerprints, buffer }
    }
}
