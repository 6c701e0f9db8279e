//! Tells sequential reads from others, and how far to read ahead of them.

use std::ops::Range;

use holdfast_proto::limits::EXTENT_BYTES;

/// Sequences followed at a time: the connections of a client that copies, each with its own.
const SEQUENCES_MAX: usize = 16;
/// Reads of one sequence may come this far out of their order: clients have several under way.
const SLACK_BYTES: u64 = 4 * EXTENT_BYTES as u64;
/// Reads that follow each other before anything is read ahead of them.
const PROOF: u32 = 2;
/// Bytes read ahead of a sequence, and those asked for at a time.
pub(super) const AHEAD_BYTES: u64 = 8 * EXTENT_BYTES as u64;
const STEP_BYTES: u64 = 2 * EXTENT_BYTES as u64;

/// Sequences of reads of one disk, the one used last at the end.
#[derive(Debug, Default)]
pub(super) struct Sequences(Vec<Sequence>);

#[derive(Debug)]
struct Sequence {
    /// End of its furthest read.
    next: u64,
    /// Up to where it was read ahead.
    ahead: u64,
    reads: u32,
}

impl Sequences {
    /// Takes note of a read. Returns what to read ahead, on a disk of `size_bytes`.
    pub(super) fn read(&mut self, bytes: &Range<u64>, size_bytes: u64) -> Option<Range<u64>> {
        let follows = |sequence: &Sequence| {
            bytes.end.saturating_add(SLACK_BYTES) > sequence.next
                && bytes.start <= sequence.next + SLACK_BYTES
        };
        let Some(found) = self.0.iter().rposition(follows) else {
            if self.0.len() >= SEQUENCES_MAX {
                self.0.remove(0);
            }
            self.0.push(Sequence { next: bytes.end, ahead: bytes.end, reads: 1 });
            return None;
        };
        let mut sequence = self.0.remove(found);
        // Reading the same again is no sequence.
        if bytes.end > sequence.next {
            sequence.next = bytes.end;
            sequence.reads = sequence.reads.saturating_add(1);
        }
        let from = sequence.ahead.max(sequence.next);
        // Ends with an extent, so that the next begins with one.
        let to = (sequence.next + AHEAD_BYTES) / u64::from(EXTENT_BYTES) * u64::from(EXTENT_BYTES);
        let to = to.min(size_bytes);
        let is_due = sequence.reads > PROOF && (from + STEP_BYTES <= to || (to == size_bytes && from < to));
        if is_due {
            sequence.ahead = to;
        }
        self.0.push(sequence);
        is_due.then_some(from..to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn all_of_a_sequence_is_asked_for_once_and_nothing_for_random_reads() {
        let size = 300 * MIB + 5;
        let mut sequences = Sequences::default();
        let mut ahead: Option<Range<u64>> = None;
        for read in 0..300 {
            // Two by two in the wrong order.
            let at = (read ^ 1) * MIB;
            if let Some(more) = sequences.read(&(at..at + MIB), size) {
                assert!(
                    more.end <= at + MIB + AHEAD_BYTES + MIB && more.end - more.start <= AHEAD_BYTES + MIB
                );
                let before = ahead.replace(more.clone());
                assert!(before.is_none_or(|before| before.end == more.start), "{more:?}");
            }
        }
        assert_eq!(ahead.map(|ahead| ahead.end), Some(size));
        let mut at = 1;
        for _ in 0..1000 {
            // Far from each other.
            at = (at * 48271) % 2_147_483_647;
            let read = at * 64 * MIB..at * 64 * MIB + 4096;
            assert_eq!(sequences.read(&read, u64::MAX / 2), None);
        }
        for _ in 0..10 {
            assert_eq!(Sequences::default().read(&(0..4096), size), None);
        }
    }

    #[test]
    fn the_same_again_is_no_sequence() {
        let mut sequences = Sequences::default();
        for _ in 0..100 {
            assert_eq!(sequences.read(&(4096..8192), 1 << 40), None);
        }
    }
}
