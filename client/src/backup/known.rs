//! Chunks that need not be asked about again, and sets of fingerprints.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use holdfast_proto::Fingerprint;
use holdfast_proto::fingerprint::FingerprintHasher;

/// Entries of one generation: 7/8 of 2¹⁸ slots of 33 bytes, so 8.3 MiB, 17 MiB for both.
const GENERATION_MAX: usize = 229_376;

/// A set of fingerprints.
pub(crate) type FingerprintSet = HashSet<Fingerprint, BuildHasherDefault<FingerprintHasher>>;

/// Chunks that the server is known to have, was sent or was asked about, on this stream, which need not be asked about again.
/// Two generations: when the young one is full it becomes the old one, and the old one is forgotten. So the most recent
/// 229,376 to 458,752 chunks (3.5 to 7 GiB of data) are always remembered.
///
/// Forgetting costs another query, never correctness.
#[derive(Debug, Default)]
pub(crate) struct Known {
    young: FingerprintSet,
    old: FingerprintSet,
    generation_max: usize,
}

impl Known {
    /// Creates an empty set.
    pub(crate) fn new() -> Self {
        Self { generation_max: GENERATION_MAX, ..Self::default() }
    }

    /// Takes a fingerprint in; false when it was known.
    pub(crate) fn insert(&mut self, fingerprint: Fingerprint) -> bool {
        if self.young.contains(&fingerprint) {
            return false;
        }
        if self.young.len() >= self.generation_max {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        let known = self.old.contains(&fingerprint);
        // Fingerprints that come up again stay remembered.
        self.young.insert(fingerprint);
        !known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_recent_are_remembered_and_memory_is_bounded() {
        let of = |number: u64| Fingerprint::of(&number.to_le_bytes());
        let mut known = Known { generation_max: 100, ..Known::default() };
        for number in 0..1000 {
            assert!(known.insert(of(number)));
            for back in 0..number.min(99) {
                assert!(!known.insert(of(number - back)), "{back} before {number}");
            }
            assert!(known.young.len() <= 100 && known.old.len() <= 100);
        }
        assert!(known.insert(of(1)), "long forgotten");
    }
}
