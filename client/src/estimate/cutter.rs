//! The ways of cutting that are compared.

use fastcdc::v2020::FastCDC;
use holdfast_proto::chunker::Chunker;
use holdfast_proto::limits::EXTENT_BYTES;

/// A way of cutting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cutter {
    /// Restarted at every extent, as in production.
    Extent(Chunker),
    /// Across extents, between the runs of zeros found within them.
    Long(Bounds),
    /// Into blocks of this many bytes.
    Fixed(usize),
}

/// `FastCDC`'s bounds for chunks longer than the contract's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) min_bytes: usize,
    pub(super) avg_bytes: usize,
    pub(super) max_bytes: usize,
}

impl Bounds {
    /// Where chunks of `data` end. A chunk's end depends on nothing before its start.
    pub(super) fn ends(self, data: &[u8]) -> impl Iterator<Item = usize> {
        let Self { min_bytes, avg_bytes, max_bytes } = self;
        FastCDC::new(data, min_bytes, avg_bytes, max_bytes).map(|chunk| chunk.offset + chunk.length)
    }
}

/// All ways of cutting that are compared: name, average length, how.
pub(super) fn cutters() -> Vec<(&'static str, u32, Cutter)> {
    let fastcdc = |avg: usize| {
        let chunker = Chunker::with_bounds(avg / 2, avg, avg * 4);
        Cutter::Extent(chunker.unwrap_or_else(|| unreachable!("FastCDC supports chunks of {avg} bytes")))
    };
    let sizes = [
        ("fastcdc 4 KiB", 4 << 10),
        ("fastcdc 8 KiB", 8 << 10),
        ("fastcdc 16 KiB", 16 << 10),
        ("fastcdc 32 KiB", 32 << 10),
        ("fastcdc 64 KiB", 64 << 10),
    ];
    let mut all: Vec<_> = sizes.into_iter().map(|(name, avg)| (name, avg, fastcdc(avg as usize))).collect();
    let bounds = Bounds { min_bytes: 512 << 10, avg_bytes: 1 << 20, max_bytes: 4 << 20 };
    all.push(("fastcdc 1 MiB", 1 << 20, Cutter::Long(bounds)));
    all.push(("fixed 4 KiB", 4 << 10, Cutter::Fixed(4 << 10)));
    all.push(("fixed 4 MiB", EXTENT_BYTES, Cutter::Fixed(EXTENT_BYTES as usize)));
    all
}
