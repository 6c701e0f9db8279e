//! One way of cutting and what it has seen so far.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use fastcdc::v2020::FastCDC;
use holdfast_proto::chunker::{Chunker, is_zero};
use holdfast_proto::limits::{CHUNK_AVG_BYTES, EXTENT_BYTES, REGION_PLAIN_MAX_BYTES};
use holdfast_proto::region::{DEFAULT_LEVEL, Encoder};

use crate::error::ClientError;
use crate::estimate::sample::{Compressed, Distinct};
use crate::estimate::{EstimateOptions, SAMPLE_STRIDE};
use crate::pool::ObjectPool;
use crate::slices::{part, piece_bytes};

/// Data gathered before chunks of up to 4 MiB are cut from it: four of them, so that few cuts are forced.
const LONG_BUFFER_BYTES: usize = 16 << 20;

/// A region to be compressed at some levels.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) variant: usize,
    pub(super) scope: Scope,
    pub(super) plain: Vec<u8>,
    /// Indexes of levels.
    pub(super) levels: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    Disk,
    Together,
}

/// Chunks and regions counted within a scope.
#[derive(Debug, Clone, Default)]
pub(super) struct Count {
    pub(super) chunks: u64,
    pub(super) distinct: Distinct,
    /// One per level.
    pub(super) compressed: Vec<Compressed>,
    /// The region being filled; its bytes only when it will be compressed.
    open: Vec<u8>,
    open_bytes: usize,
    open_any: bool,
    open_wanted: bool,
    /// Regions so far.
    regions: u64,
}

/// A way of cutting and what it has seen so far.
#[derive(Debug)]
pub(super) struct Variant {
    pub(super) number: usize,
    pub(super) name: &'static str,
    pub(super) production: bool,
    cutter: Cutter,
    seen: SeenChunks,
    /// Counts of the disk being read.
    pub(super) disk: Count,
    pub(super) together: Count,
    levels: Vec<i32>,
    share: f64,
    /// One in this many regions is compressed at every level.
    stride: u64,
    /// True if the disk's scope differs from all together.
    both_scopes: bool,
    carry: Vec<u8>,
    next_extent: u64,
}

impl Variant {
    /// Returns all variants.
    pub(super) fn all(options: &EstimateOptions, both_scopes: bool) -> Vec<Self> {
        let empty =
            Count { compressed: vec![Compressed::default(); options.levels.len()], ..Count::default() };
        let make = |(number, (name, avg, cutter)): (usize, (&'static str, u32, Cutter))| Self {
            number,
            name,
            production: avg == CHUNK_AVG_BYTES && matches!(cutter, Cutter::Extent(_)),
            cutter,
            seen: SeenChunks::default(),
            disk: empty.clone(),
            together: empty.clone(),
            levels: options.levels.clone(),
            share: options.share,
            stride: stride(options.share),
            both_scopes,
            carry: Vec::new(),
            next_extent: 0,
        };
        cutters().into_iter().enumerate().map(make).collect()
    }

    /// Takes an extent of disk number `disk`. Extents come in order; those that are all zeros are left out.
    pub(super) fn extent(&mut self, disk: u32, index: u64, bytes: &[u8], jobs: &mut Vec<Job>) {
        match self.cutter {
            Cutter::Extent(chunker) => {
                for piece in chunker.cut(bytes).iter().filter(|piece| !piece.zero) {
                    self.chunk(disk, piece_bytes(bytes, piece), jobs);
                }
            }
            Cutter::Fixed(block) => {
                for chunk in bytes.chunks(block) {
                    if !is_zero(chunk) {
                        self.chunk(disk, chunk, jobs);
                    }
                }
            }
            Cutter::Long(bounds) => {
                if index != self.next_extent {
                    self.cut_carry(bounds, disk, true, jobs);
                }
                self.next_extent = index + 1;
                for piece in &Chunker::default().cut(bytes) {
                    if piece.zero {
                        self.cut_carry(bounds, disk, true, jobs);
                    } else {
                        self.carry.extend_from_slice(piece_bytes(bytes, piece));
                    }
                }
                if self.carry.len() >= LONG_BUFFER_BYTES {
                    self.cut_carry(bounds, disk, false, jobs);
                }
            }
        }
    }

    /// The disk ends: finishes its regions. Its figures are then in `disk`, until [`Self::next_disk`].
    pub(super) fn end_disk(&mut self, disk: u32, jobs: &mut Vec<Job>) {
        if let Cutter::Long(bounds) = self.cutter {
            self.cut_carry(bounds, disk, true, jobs);
        }
        self.next_extent = 0;
        self.seal(Scope::Disk, jobs);
    }

    /// Forgets the figures of the disk.
    pub(super) fn next_disk(&mut self) {
        let compressed = vec![Compressed::default(); self.levels.len()];
        self.disk = Count { compressed, ..Count::default() };
    }

    /// Ends the variant once all disks have been read.
    pub(super) fn end(&mut self, jobs: &mut Vec<Job>) {
        self.seal(Scope::Together, jobs);
    }

    /// Takes in how a region of `plain` bytes compressed, by level index.
    pub(super) fn measured(&mut self, scope: Scope, plain: u64, stored: &[(usize, u64)]) {
        let base_level = self.base_level();
        let at_base = stored.iter().find(|(level, _)| Some(*level) == base_level).map(|(_, bytes)| *bytes);
        for &(level, bytes) in stored {
            let base = at_base.filter(|_| Some(level) != base_level).unwrap_or(plain);
            let Some(compressed) = self.count(scope).compressed.get_mut(level) else {
                unreachable!("a region was compressed at level {level}, which is not compared");
            };
            compressed.add(plain, base, bytes);
        }
    }

    /// Index of the level at which all regions are compressed, if there is one: other levels are then
    /// estimated by their ratio to it.
    pub(super) fn base_level(&self) -> Option<usize> {
        self.levels.iter().position(|&level| self.production && level == DEFAULT_LEVEL)
    }

    fn count(&mut self, scope: Scope) -> &mut Count {
        match scope {
            Scope::Disk => &mut self.disk,
            Scope::Together => &mut self.together,
        }
    }

    /// Cuts what was gathered, up to where the last chunk may go on; all of it when a run of zeros or the
    /// disk's end follows.
    fn cut_carry(&mut self, bounds: Bounds, disk: u32, last: bool, jobs: &mut Vec<Job>) {
        let mut carry = std::mem::take(&mut self.carry);
        let mut ends: Vec<usize> = bounds.ends(&carry).collect();
        if !last {
            ends.pop();
        }
        let mut start = 0;
        for end in ends {
            self.chunk(disk, part(&carry, start, end - start), jobs);
            start = end;
        }
        assert!(!last || start == carry.len(), "{start} of {} bytes were cut", carry.len());
        carry.drain(..start);
        self.carry = carry;
    }

    fn chunk(&mut self, disk: u32, chunk: &[u8], jobs: &mut Vec<Job>) {
        let name = blake3::hash(chunk);
        let (key, lot) = two_words(name.as_bytes());
        self.disk.chunks += 1;
        self.together.chunks += 1;
        if self.share < 1.0 && !drawn(lot, self.share) {
            return;
        }
        let novelty = self.seen.insert(key, disk);
        if novelty.on_disk && self.both_scopes {
            self.new_chunk(Scope::Disk, chunk, jobs);
        }
        if novelty.anywhere {
            self.new_chunk(Scope::Together, chunk, jobs);
        }
    }

    fn new_chunk(&mut self, scope: Scope, chunk: &[u8], jobs: &mut Vec<Job>) {
        let room = REGION_PLAIN_MAX_BYTES as usize;
        if self.count(scope).open_bytes + chunk.len() > room {
            self.seal(scope, jobs);
        }
        if !self.count(scope).open_any {
            let number = self.count(scope).regions;
            self.count(scope).open_wanted = !self.levels_of(number).is_empty();
        }
        let count = self.count(scope);
        count.distinct.add(chunk.len() as u64);
        count.open_bytes += chunk.len();
        count.open_any = true;
        if count.open_wanted {
            count.open.extend_from_slice(chunk);
        }
        // Chunks larger than a region are regions of their own.
        if count.open_bytes > room {
            self.seal(scope, jobs);
        }
    }

    fn seal(&mut self, scope: Scope, jobs: &mut Vec<Job>) {
        let (variant, levels) = (self.number, self.levels.len());
        let number = self.count(scope).regions;
        let wanted = self.levels_of(number);
        let count = self.count(scope);
        if !count.open_any {
            return;
        }
        count.open_any = false;
        count.open_bytes = 0;
        count.regions += 1;
        count.compressed.iter_mut().take(levels).for_each(|compressed| compressed.regions += 1);
        let plain = std::mem::take(&mut count.open);
        if !wanted.is_empty() {
            jobs.push(Job { variant, scope, plain, levels: wanted });
        }
    }

    /// Returns the levels at which region `number` is compressed.
    fn levels_of(&self, number: u64) -> Vec<usize> {
        let sampled = number.is_multiple_of(self.stride);
        (0..self.levels.len()).filter(|index| sampled || Some(*index) == self.base_level()).collect()
    }
}

/// With a share of the chunks there are fewer regions by the same factor; the number compressed stays the same.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to SAMPLE_STRIDE")]
#[expect(clippy::cast_precision_loss, reason = "16")]
fn stride(share: f64) -> u64 {
    (SAMPLE_STRIDE as f64 * share.clamp(0.0, 1.0)).round().max(1.0) as u64
}

/// Two independent words of a hash: the chunk's key, and its lot.
fn two_words(name: &[u8; 32]) -> (u64, u64) {
    let (words, _) = name.as_chunks::<8>();
    let [first, second, ..] = words else { unreachable!("32 bytes are four words") };
    (u64::from_le_bytes(*first), u64::from_le_bytes(*second))
}

#[expect(clippy::cast_precision_loss, reason = "a lot of 53 bits")]
fn drawn(lot: u64, share: f64) -> bool {
    ((lot >> 11) as f64) < share * (1u64 << 53) as f64
}

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
    /// Returns the ends of the chunks of `data`. A chunk's end depends on nothing before its start.
    pub(super) fn ends(self, data: &[u8]) -> impl Iterator<Item = usize> {
        let Self { min_bytes, avg_bytes, max_bytes } = self;
        FastCDC::new(data, min_bytes, avg_bytes, max_bytes).map(|chunk| chunk.offset + chunk.length)
    }
}

/// Returns all ways of cutting that are compared: name, average length, how.
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

/// Encoders of every level, one per thread and level.
pub(super) struct Encoders {
    levels: Vec<(i32, ObjectPool<Encoder>)>,
    scratch: ObjectPool<Vec<u8>>,
}

impl Encoders {
    pub(super) fn new(options: &EstimateOptions) -> Self {
        let levels = options.levels.iter().map(|&level| (level, ObjectPool::default())).collect();
        Self { levels, scratch: ObjectPool::default() }
    }

    /// Returns the bytes `plain` takes at the level with this index, compressed or as it is, as in a region.
    pub(super) fn stored_bytes(&self, level: usize, plain: &[u8]) -> Result<u64, ClientError> {
        let Some((level, pool)) = self.levels.get(level) else {
            return Err(ClientError::Internal("a level that is not estimated"));
        };
        let mut encoder = pool.take_or(|| Encoder::new(*level))?;
        let mut frame = self.scratch.take_or(|| Ok::<_, ClientError>(Vec::new()))?;
        let worthwhile = encoder.compress(plain, &mut frame);
        let bytes = frame.len();
        pool.put(encoder);
        self.scratch.put(frame);
        Ok(if worthwhile? { bytes } else { plain.len() } as u64)
    }
}

/// The key is part of a hash.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    /// The length before the words is always the same.
    fn write_usize(&mut self, _: usize) {}
}

/// Chunks seen so far, each with the disk it was last seen on: one table answers both *new on this disk* and *new
/// anywhere*, as disks are read in turn.
///
/// 12 bytes per entry, in tables 7/16 to 7/8 full.
#[derive(Debug, Default)]
pub(super) struct SeenChunks(HashMap<[u32; 2], u32, BuildHasherDefault<KeyHasher>>);

/// Scopes in which a chunk is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Novelty {
    pub(super) on_disk: bool,
    pub(super) anywhere: bool,
}

impl SeenChunks {
    /// Takes a chunk of disk number `disk` in. Disk numbers never fall.
    pub(super) fn insert(&mut self, key: u64, disk: u32) -> Novelty {
        let bytes = key.to_le_bytes();
        let [a, b, c, d, e, f, g, h] = bytes;
        // Halves keep the entry at 12 bytes: a u64 would pad it to 16.
        let halves = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])];
        match self.0.insert(halves, disk) {
            None => Novelty { on_disk: true, anywhere: true },
            Some(last) => Novelty { on_disk: last != disk, anywhere: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_on_a_disk_and_new_anywhere() {
        let mut seen = SeenChunks::default();
        let of = |on_disk, anywhere| Novelty { on_disk, anywhere };
        assert_eq!(seen.insert(u64::MAX - 1, 0), of(true, true));
        assert_eq!(seen.insert(u64::MAX - 1, 0), of(false, false));
        assert_eq!(seen.insert(u64::MAX - 1, 1), of(true, false));
        assert_eq!(seen.insert(u64::MAX - 2, 1), of(true, true));
        assert_eq!(std::mem::size_of::<([u32; 2], u32)>(), 12);
    }
}
