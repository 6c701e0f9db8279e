//! Which chunks were seen, and on which disk last: one table answers both *new on this disk* and *new
//! anywhere*, as disks are read in turn.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

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

/// See the module. 12 bytes per entry, in tables 7/16 to 7/8 full.
#[derive(Debug, Default)]
pub(super) struct SeenChunks(HashMap<[u32; 2], u32, BuildHasherDefault<KeyHasher>>);

/// Where a chunk is new.
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
