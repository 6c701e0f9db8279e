//! Why a restore stream is refused.

use holdfast_proto::region::RegionError;

/// Why a restore stream was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WindowError {
    #[error("{got} came where {expected} was due")]
    Order { got: &'static str, expected: &'static str },
    #[error("a disk of {size_bytes} bytes in extents of {extent_bytes}; the disk has {expected_bytes} bytes")]
    Header { size_bytes: u64, extent_bytes: u32, expected_bytes: u64 },
    #[error("a window of {count} extents from extent {first}; extent {due} was due, with {left} left")]
    Span { first: u64, count: usize, due: u64, left: u64 },
    #[error("a window of {fingerprints} chunks with {lengths} lengths")]
    Chunks { fingerprints: usize, lengths: usize },
    #[error("chunk {chunk} of the window from extent {first} is {bytes} bytes long")]
    ChunkLength { first: u64, chunk: usize, bytes: u32 },
    #[error("the layout of extent {extent} is wrong: {what}")]
    Layout { extent: u64, what: &'static str },
    #[error("chunk {chunk} of the window from extent {first} is not used")]
    Unused { first: u64, chunk: usize },
    #[error("a message of regions is empty")]
    NoRegions,
    #[error("a region that delivers {chunks} chunks at {offsets} offsets")]
    RegionLists { chunks: usize, offsets: usize },
    #[error("a region that delivers chunk {chunk}, which {what}")]
    RegionChunk { chunk: u32, what: &'static str },
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error("the window from extent {first} ended with {missing} chunks missing")]
    Missing { first: u64, missing: usize },
}
