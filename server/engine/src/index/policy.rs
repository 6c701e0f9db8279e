//! When to merge what: pure decisions from sizes, so that the promise (few sorted runs to ask, few times written)
//! is tested without any data.
//!
//! A full memtable becomes a *wide* sorted run, of all shards: one durable file, not 64. Four wide runs become one
//! (while they are small) or one run a shard. A shard's runs merge when there are more than a few, the
//! newest first, and older ones as long as they are not much larger than the merged: that writes each entry
//! O(log n) times with few runs at any time.

/// Wide runs that trigger a merge.
const WIDE_RUNS_MAX: usize = 4;
/// Wide runs at which flushing waits for merging, so that insertion does (back-pressure).
pub(super) const WIDE_RUNS_STALL: usize = 12;
/// Runs of a shard at which splitting waits for merging.
const SHARD_RUNS_STALL: usize = 12;
/// An arriving slice is merged at once with runs up to this many times its size.
const FOLD_FACTOR: u64 = 4;

/// What to do with the wide runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WideMerge {
    /// Merge this many of the newest into one.
    Together(usize),
    /// Distribute all of them to the shards.
    Split,
}

/// Decides about the wide runs, given their sizes newest first, how many entries are worth a split, and the
/// most runs any shard has.
pub(super) fn wide_merge(sizes: &[u64], split_entries: u64, shard_runs: usize) -> Option<WideMerge> {
    if sizes.len() < WIDE_RUNS_MAX {
        None
    } else if sizes.iter().sum::<u64>() < split_entries {
        Some(WideMerge::Together(suffix(sizes)))
    } else if shard_runs < SHARD_RUNS_STALL {
        Some(WideMerge::Split)
    } else {
        None
    }
}

/// How many of a shard's newest runs to merge, if any, given the sizes newest first.
pub(super) fn shard_merge(sizes: &[u64]) -> Option<usize> {
    (sizes.len() > shard_runs_max(sizes)).then(|| suffix(sizes))
}

/// How many of a shard's newest runs an arriving slice is merged with.
pub(super) fn fold(arriving: u64, sizes: &[u64]) -> usize {
    let with: Vec<u64> = std::iter::once(arriving).chain(sizes.iter().copied()).collect();
    let count = shard_merge(&with).unwrap_or(1) - 1;
    let folded: u64 = sizes.iter().take(count).sum();
    if folded <= arriving.saturating_mul(FOLD_FACTOR) { count } else { 0 }
}

/// Runs a shard may have: 3 up to 32 times what arrives, one more for every further factor of 8, because
/// the write amplification of k runs grows with the k-th root of that ratio.
fn shard_runs_max(sizes: &[u64]) -> usize {
    let smallest = sizes.iter().copied().min().unwrap_or(1).max(1);
    match sizes.iter().sum::<u64>() / smallest {
        0..32 => 3,
        32..256 => 4,
        256..2048 => 5,
        _ => 6,
    }
}

/// The two newest, and older ones while they are not twice as large as what is merged already.
fn suffix(sizes: &[u64]) -> usize {
    let mut merged: u64 = sizes.iter().take(2).sum();
    let mut count = sizes.len().min(2);
    for &older in sizes.iter().skip(2) {
        if older >= merged.saturating_mul(2) {
            break;
        }
        merged = merged.saturating_add(older);
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPLIT: u64 = 2 << 20;

    /// Plays `flushes` flushes of the default write buffer; returns how many times an entry was written on
    /// average, and the most runs a lookup ever had to ask.
    fn play(flushes: u64) -> (f64, usize) {
        const FLUSH: u64 = 1_400_000;
        let (mut wide, mut shard, mut written, mut depth) = (Vec::new(), Vec::new(), 0, 0);
        for _ in 0..flushes {
            wide.insert(0, FLUSH);
            written += FLUSH;
            match wide_merge(&wide, SPLIT, shard.len()) {
                Some(WideMerge::Split) => {
                    let arriving = wide.drain(..).sum();
                    let folded = fold(arriving, &shard);
                    let merged = arriving + shard.drain(..folded).sum::<u64>();
                    shard.insert(0, merged);
                    written += merged;
                }
                Some(WideMerge::Together(_)) => panic!("full memtables are large enough to split"),
                None => {}
            }
            if let Some(count) = shard_merge(&shard) {
                let merged = shard.drain(..count).sum();
                shard.insert(0, merged);
                written += merged;
            }
            depth = depth.max(wide.len() + shard.len());
        }
        (written as f64 / (flushes * FLUSH) as f64, depth)
    }

    #[test]
    fn amplification_and_depth_stay_bounded() {
        for (flushes, amplification_max, depth_max) in [(71, 4.0, 6), (710, 6.5, 7), (7100, 10.0, 9)] {
            let (amplification, depth) = play(flushes);
            assert!(amplification <= amplification_max, "{flushes} flushes: written {amplification} times");
            assert!(depth <= depth_max, "{flushes} flushes: {depth} runs");
        }
    }

    #[test]
    fn small_wide_runs_stay_one_file() {
        let (mut wide, mut written) = (Vec::new(), 0);
        for _ in 0..100 {
            wide.insert(0, 1000);
            if let Some(merge) = wide_merge(&wide, SPLIT, 0) {
                let WideMerge::Together(count) = merge else { panic!("too small to split") };
                assert!(count >= 2);
                let merged = wide.drain(..count).sum();
                wide.insert(0, merged);
                written += merged;
            }
            assert!(wide.len() < WIDE_RUNS_MAX);
        }
        assert!(written < 100 * 1000 * 8, "written {written}");
    }

    #[test]
    fn a_full_shard_holds_back_splits() {
        let wide = [1_400_000; 5];
        assert_eq!(wide_merge(&wide, SPLIT, 0), Some(WideMerge::Split));
        assert_eq!(wide_merge(&wide, SPLIT, SHARD_RUNS_STALL), None);
        assert!(shard_merge(&[1; SHARD_RUNS_STALL]).is_some(), "or nothing would ever go on");
    }
}
