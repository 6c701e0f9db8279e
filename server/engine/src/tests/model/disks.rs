//! Contents of disks: a few chunks that all of them share, among zeros, so that chunks that one restore point gives up
//! come back with another.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{CHUNK_MAX_BYTES, EXTENT_BYTES};
use holdfast_proto::v1;
use parking_lot::Mutex;

use crate::tests::{lines, noise};

/// Chunks that all disks are made of.
pub(super) const CHUNKS: usize = 56;

/// Chunks of an extent at most: they fit its shortest length.
const CHUNKS_PER_EXTENT: usize = 9;

/// The last extent of every disk is so short that restoring it costs nothing.
const TAIL_BYTES: u32 = 32 << 10;

/// Random numbers that are the same for the same seed (SplitMix64, by Sebastiano Vigna).
#[derive(Debug, Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    /// True once in `times`.
    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// A chunk by its number: every third is text, which compresses better at a higher level.
static POOL: LazyLock<Vec<(Fingerprint, Vec<u8>)>> = LazyLock::new(|| {
    let bytes = |number: usize| match number % 3 {
        0 => lines(number as u64, 60),
        _ => noise(9_000_000 + number as u64, 64 + number * 37 % 400),
    };
    (0..CHUNKS).map(bytes).map(|bytes| (Fingerprint::of(&bytes), bytes)).collect()
});

pub(super) fn chunk(number: usize) -> &'static [u8] {
    &POOL[number].1
}

pub(super) fn name(number: usize) -> Fingerprint {
    POOL[number].0
}

/// The chunk of that name.
pub(super) fn number(name: &Fingerprint) -> usize {
    POOL.iter().position(|(known, _)| known == name).unwrap()
}

/// A disk: the chunks at the beginning of each extent. The rest is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk(pub(super) Vec<Vec<usize>>);

impl Disk {
    pub(super) fn new(extents: usize, random: &mut Random) -> Self {
        let mut disk = Self(vec![Vec::new(); extents]);
        (0..extents).for_each(|extent| disk.renew(extent, random));
        disk
    }

    fn renew(&mut self, extent: usize, random: &mut Random) {
        let count = random.below(CHUNKS_PER_EXTENT + 1);
        self.0[extent] = (0..count).map(|_| random.below(CHUNKS)).collect();
    }

    /// Changes some of it, or nothing.
    pub(super) fn change(&mut self, random: &mut Random) {
        for extent in 0..self.0.len() {
            match random.below(4) {
                0 => self.renew(extent, random),
                1 if !self.0[extent].is_empty() => {
                    let place = random.below(self.0[extent].len());
                    self.0[extent][place] = random.below(CHUNKS);
                }
                _ => {}
            }
        }
    }

    pub(super) fn size_bytes(&self) -> u64 {
        (self.0.len() as u64 - 1) * u64::from(EXTENT_BYTES) + u64::from(TAIL_BYTES)
    }

    fn extent_bytes(&self, extent: usize) -> u32 {
        if extent + 1 == self.0.len() { TAIL_BYTES } else { EXTENT_BYTES }
    }

    fn extent(&self, extent: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.0[extent].iter().flat_map(|number| chunk(*number)).copied().collect();
        assert!(bytes.len() <= TAIL_BYTES as usize, "chunks fit the shortest extent");
        bytes.resize(self.extent_bytes(extent) as usize, 0);
        bytes
    }

    pub(super) fn image(&self) -> Vec<u8> {
        (0..self.0.len()).flat_map(|extent| self.extent(extent)).collect()
    }

    /// The ranges of the image in which these chunks are.
    pub(super) fn ranges_of(&self, chunks: &BTreeSet<usize>) -> Vec<(usize, usize)> {
        let mut ranges = Vec::new();
        for (extent, numbers) in self.0.iter().enumerate() {
            let mut at = extent * EXTENT_BYTES as usize;
            for number in numbers {
                let end = at + chunk(*number).len();
                if chunks.contains(number) {
                    ranges.push((at, end));
                }
                at = end;
            }
        }
        ranges
    }

    pub(super) fn chunks(&self) -> BTreeSet<usize> {
        self.0.iter().flatten().copied().collect()
    }

    /// Digest of an extent.
    pub(super) fn digest(&self, extent: usize) -> Fingerprint {
        type Known = HashMap<(Vec<usize>, u32), Fingerprint>;
        static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
        if self.0[extent].is_empty() {
            return Fingerprint::ZERO;
        }
        let key = (self.0[extent].clone(), self.extent_bytes(extent));
        *KNOWN.lock().entry(key).or_insert_with(|| Fingerprint::of(&self.extent(extent)))
    }

    /// An extent as an agent describes it.
    pub(super) fn describe(&self, extent: usize) -> v1::ChunkedExtent {
        let mut fingerprints: Vec<u8> = Vec::new();
        let mut lengths = Vec::new();
        for number in &self.0[extent] {
            fingerprints.extend(name(*number).as_bytes());
            lengths.push(u32::try_from(chunk(*number).len()).unwrap());
        }
        let mut left = self.extent_bytes(extent) - lengths.iter().sum::<u32>();
        while left > 0 {
            let zeros = left.min(CHUNK_MAX_BYTES);
            fingerprints.extend(Fingerprint::ZERO.as_bytes());
            lengths.push(zeros);
            left -= zeros;
        }
        v1::ChunkedExtent {
            index: extent as u64,
            digest: self.digest(extent).as_bytes().to_vec().into(),
            fingerprints: fingerprints.into(),
            lengths,
        }
    }
}
