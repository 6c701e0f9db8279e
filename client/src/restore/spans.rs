//! Distribution of a disk's extents among several streams.
//!
//! A disk is handed out from its start in spans of consecutive extents, so that every stream is busy until nearly the
//! end: spans are a share of what is left, and at first no longer than lets 16 streams have room for theirs. Streams
//! never get far ahead of each other ([`SPANS_AHEAD`]), so what has been read is a growing beginning of the disk and a
//! few gaps after it. What a lost stream did not finish is handed out again, before anything new.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Extents of a span at first: a window of their own.
const SPAN_FIRST: u64 = 4;
/// Extents of a span at most: 4 GiB.
const SPAN_MAX: u64 = 1024;
/// Asking for a span costs a round trip. Where spans take less than this (holes, a fast line), they become longer,
const SHORT: Duration = Duration::from_secs(1);
/// and shorter again where they take more than this.
const LONG: Duration = Duration::from_secs(20);
/// Distance, in longest spans for each stream, that the furthest stream may be ahead of the first extent missing.
const SPANS_AHEAD: u64 = 4;

/// Consecutive extents that one stream reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    /// The first when it was handed out. No other span being read has the same.
    start: u64,
    /// The first that is not complete.
    pub(super) first: u64,
    /// The first after it.
    pub(super) end: u64,
}

/// Next step of a stream.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Span(Span),
    /// Wait until another stream advances or ends.
    Wait,
    /// All extents are complete.
    Done,
}

/// The spans of one disk.
#[derive(Debug)]
struct Ledger {
    /// Extents of the disk.
    end: u64,
    /// The first that was never handed out.
    next: u64,
    /// Set once a span was handed out: a disk without extents is read by a stream as well, which says its size.
    begun: bool,
    /// Extents of a span at most.
    longest: u64,
    /// First and end of what came back unfinished.
    returned: BTreeMap<u64, u64>,
    /// Spans being read, by their start.
    out: BTreeMap<u64, Span>,
}

impl Ledger {
    const fn new(end: u64) -> Self {
        Self {
            end,
            next: 0,
            begun: false,
            longest: SPAN_FIRST,
            returned: BTreeMap::new(),
            out: BTreeMap::new(),
        }
    }

    /// Returns the extent before which everything is complete.
    fn reached(&self) -> u64 {
        let out = self.out.values().map(|span| span.first);
        out.chain(self.returned.keys().copied()).fold(self.next, u64::min)
    }

    /// A span for one of `streams`; the only one gets all that is left.
    fn take(&mut self, streams: u64) -> Next {
        if let Some((first, end)) = self.returned.pop_first() {
            return self.hand_out(first, end);
        }
        let left = self.end - self.next;
        if left > 0 || !self.begun {
            let count = if streams <= 1 { left } else { self.share(left, streams) };
            if count == 0 && left > 0 {
                return Next::Wait;
            }
            let first = self.next;
            (self.next, self.begun) = (first + count, true);
            return self.hand_out(first, first + count);
        }
        if self.out.is_empty() { Next::Done } else { Next::Wait }
    }

    fn hand_out(&mut self, first: u64, end: u64) -> Next {
        let span = Span { start: first, first, end };
        self.out.insert(first, span);
        Next::Span(span)
    }

    fn share(&self, left: u64, streams: u64) -> u64 {
        let count = (left / (2 * streams)).clamp(1, self.longest);
        let limit = self.reached() + SPANS_AHEAD * self.longest * streams;
        count.min(limit.saturating_sub(self.next)).min(left)
    }

    /// Records how much of a span is complete.
    fn advance(&mut self, span: Span) {
        self.out.insert(span.start, span);
    }

    /// A span is not read any more. What is not complete of it is handed out again.
    fn end(&mut self, span: Span) {
        self.out.remove(&span.start);
        // A disk without extents has this one span.
        if span.first < span.end || self.end == 0 {
            self.returned.insert(span.first, span.end);
        }
    }

    /// Records that all of a span is complete.
    fn complete(&mut self, span: Span) {
        self.out.remove(&span.start);
    }

    /// Learns from how long a span of `extents` took.
    fn took(&mut self, extents: u64, time: Duration) {
        // A short one at the end of the disk says nothing.
        if extents >= self.longest && time < SHORT {
            self.longest = (self.longest * 2).min(SPAN_MAX);
        } else if time > LONG {
            self.longest = (self.longest / 2).max(1);
        }
    }
}

/// The spans of one disk, shared by the streams that read it.
#[derive(Debug)]
pub(super) struct Spans {
    ledger: Mutex<Ledger>,
    /// Wakes streams that wait, to look again.
    changed: watch::Sender<()>,
}

impl Spans {
    /// Creates the spans of a disk of `extents`.
    pub(super) fn new(extents: u64) -> Self {
        Self { ledger: Mutex::new(Ledger::new(extents)), changed: watch::Sender::new(()) }
    }

    /// These extents of a disk of `extents`, each by itself.
    pub(super) fn of(extents: u64, again: &BTreeSet<u64>) -> Self {
        let returned = again.iter().map(|extent| (*extent, extent + 1)).collect();
        let ledger = Ledger { next: extents, begun: true, returned, ..Ledger::new(extents) };
        Self { ledger: Mutex::new(ledger), changed: watch::Sender::new(()) }
    }

    /// Takes the next span to read, for one of as many streams as `streams` says; `None` when the disk is complete.
    pub(super) async fn take(&self, streams: impl Fn() -> u64) -> Option<Span> {
        let mut changed = self.changed.subscribe();
        loop {
            let next = self.ledger.lock().take(streams());
            match next {
                Next::Span(span) => return Some(span),
                Next::Done => return None,
                // The sender lives as long as `self`.
                Next::Wait => drop(changed.changed().await),
            }
        }
    }

    /// Records that all extents before `to` of a span being read are complete.
    pub(super) fn advance(&self, span: &mut Span, to: u64) {
        span.first = to;
        self.ledger.lock().advance(*span);
        self.changed.send_replace(());
    }

    /// Records that all of a span is complete, and took `time`.
    pub(super) fn complete(&self, span: Span, time: Duration) {
        {
            let mut ledger = self.ledger.lock();
            ledger.complete(span);
            ledger.took(span.end - span.start, time);
        }
        self.changed.send_replace(());
    }

    /// A stream ended before its span: others may have the rest.
    pub(super) fn give_back(&self, span: Span) {
        self.ledger.lock().end(span);
        self.changed.send_replace(());
    }

    /// The number of streams changed.
    pub(super) fn look_again(&self) {
        self.changed.send_replace(());
    }

    /// Returns true once all of the disk is complete.
    pub(super) fn is_complete(&self) -> bool {
        let ledger = self.ledger.lock();
        ledger.begun && ledger.next == ledger.end && ledger.out.is_empty() && ledger.returned.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn span(next: Next) -> Span {
        match next {
            Next::Span(span) => span,
            other => panic!("a span was due, not {other:?}"),
        }
    }

    fn extents(span: Span) -> (u64, u64) {
        (span.first, span.end)
    }

    #[test]
    fn one_stream_gets_all_of_the_disk_and_the_rest_of_it_again() {
        for count in [0, 1, 100_000] {
            let mut ledger = Ledger::new(count);
            let mut whole = span(ledger.take(1));
            assert_eq!(extents(whole), (0, count));
            assert_eq!(ledger.take(1), Next::Wait, "{count}: it is being read");
            whole.first = count / 2;
            ledger.advance(whole);
            ledger.end(whole);
            assert_eq!(ledger.reached(), count / 2);
            let mut rest = span(ledger.take(1));
            assert_eq!(extents(rest), (count / 2, count));
            rest.first = count;
            ledger.complete(rest);
            assert_eq!(ledger.take(1), Next::Done);
        }
    }

    #[test]
    fn a_stream_lost_at_the_end_of_its_span_leaves_nothing_and_the_next_span_alone() {
        let mut ledger = Ledger::new(4);
        let (mut first, second) = (span(ledger.take(2)), span(ledger.take(2)));
        first.first = first.end;
        ledger.advance(first);
        assert_eq!(ledger.reached(), second.first);
        ledger.end(first);
        assert_eq!(span(ledger.take(2)).first, second.end);
        assert_eq!(ledger.reached(), second.first, "the second is still being read");
    }

    #[test]
    fn spans_grow_where_they_are_quick_and_shrink_where_they_are_slow() {
        let mut ledger = Ledger::new(1 << 20);
        let first = span(ledger.take(4));
        assert_eq!(first.end - first.first, SPAN_FIRST);
        for _ in 0..20 {
            let longest = ledger.longest;
            ledger.took(longest, SHORT / 2);
        }
        assert_eq!(ledger.longest, SPAN_MAX);
        ledger.took(1, SHORT / 2);
        ledger.took(SPAN_MAX, SHORT * 2);
        assert_eq!(ledger.longest, SPAN_MAX);
        for _ in 0..20 {
            ledger.took(1, LONG * 2);
        }
        assert_eq!(ledger.longest, 1);
    }

    #[test]
    fn the_end_of_a_disk_is_shared() {
        let mut ledger = Ledger::new(40);
        let lengths: Vec<u64> =
            (0..8).map(|_| span(ledger.take(4))).map(|span| span.end - span.first).collect();
        assert_eq!(lengths, [4, 4, 4, 3, 3, 2, 2, 2]);
    }

    #[test]
    fn who_is_far_ahead_waits_for_what_is_missing() {
        let mut ledger = Ledger::new(1 << 20);
        let stuck = span(ledger.take(2));
        let mut furthest = stuck.end;
        while let Next::Span(span) = ledger.take(2) {
            furthest = span.end;
            ledger.complete(span);
        }
        assert_eq!(furthest, 2 * SPANS_AHEAD * SPAN_FIRST);
        ledger.advance(Span { first: 3, ..stuck });
        assert_eq!(extents(span(ledger.take(2))), (furthest, furthest + 3));
    }

    #[tokio::test]
    async fn a_waiting_stream_gets_what_another_gives_back() {
        let spans = Spans::new(10);
        let mut whole = spans.take(|| 1).await.unwrap();
        spans.advance(&mut whole, 4);
        let (rest, ()) = tokio::join!(spans.take(|| 2), async { spans.give_back(whole) });
        let rest = rest.unwrap();
        assert_eq!(extents(rest), (4, 10));
        let (none, ()) = tokio::join!(spans.take(|| 2), async { spans.complete(rest, SHORT) });
        assert_eq!((none, spans.is_complete()), (None, true));
    }

    #[derive(Debug, Clone)]
    enum Act {
        Take,
        Advance(usize, u64),
        Complete(usize, u64),
        Lose(usize, u64),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            3 => Just(Act::Take),
            2 => (any::<usize>(), 1u64..20).prop_map(|(which, by)| Act::Advance(which, by)),
            2 => (any::<usize>(), 0u64..40_000).prop_map(|(which, millis)| Act::Complete(which, millis)),
            1 => (any::<usize>(), 0u64..20).prop_map(|(which, by)| Act::Lose(which, by)),
        ]
    }

    proptest! {
        /// Whatever streams do, and however many there are: every extent once, none far ahead of what is missing.
        #[test]
        fn every_extent_is_completed_once(extents in 0u64..3000, streams in 2u64..9,
                                          acts in proptest::collection::vec(act(), 0..400)) {
            let mut ledger = Ledger::new(extents);
            let mut times = vec![0u32; usize::try_from(extents).unwrap()];
            let mut reading: Vec<Span> = Vec::new();
            let mut count = |from: u64, to: u64| {
                for extent in from..to {
                    times[usize::try_from(extent).unwrap()] += 1;
                }
            };
            let advance = |ledger: &mut Ledger, span: &mut Span, to: u64, count: &mut dyn FnMut(u64, u64)| {
                let to = to.min(span.end);
                count(span.first, to);
                span.first = to;
                ledger.advance(*span);
            };
            // Of all spans so far: one that comes back is as far ahead as it was when spans were longer.
            let mut limit = 0;
            for act in acts {
                match act {
                    Act::Take if (reading.len() as u64) < streams => {
                        limit = limit.max(ledger.reached() + SPANS_AHEAD * ledger.longest * streams);
                        if let Next::Span(span) = ledger.take(streams) {
                            prop_assert!(span.end <= limit && span.end - span.first <= SPAN_MAX);
                            reading.push(span);
                        }
                    }
                    Act::Advance(which, by) if !reading.is_empty() => {
                        let which = which % reading.len();
                        let to = reading[which].first + by;
                        advance(&mut ledger, &mut reading[which], to, &mut count);
                    }
                    Act::Complete(which, millis) if !reading.is_empty() => {
                        let mut span = reading.swap_remove(which % reading.len());
                        advance(&mut ledger, &mut span, u64::MAX, &mut count);
                        ledger.complete(span);
                        ledger.took(span.end - span.start, Duration::from_millis(millis));
                    }
                    Act::Lose(which, by) if !reading.is_empty() => {
                        let mut span = reading.swap_remove(which % reading.len());
                        let to = span.first + by;
                        advance(&mut ledger, &mut span, to, &mut count);
                        ledger.end(span);
                    }
                    _ => {}
                }
                let missing = reading.iter().map(|span| span.first).min().unwrap_or(u64::MAX);
                prop_assert!(ledger.reached() <= missing);
            }
            // The last one finishes what the others left.
            for mut span in reading {
                advance(&mut ledger, &mut span, u64::MAX, &mut count);
                ledger.complete(span);
            }
            while let Next::Span(mut span) = ledger.take(1) {
                advance(&mut ledger, &mut span, u64::MAX, &mut count);
                ledger.complete(span);
            }
            prop_assert_eq!(ledger.reached(), extents);
            prop_assert!(times.iter().all(|times| *times == 1));
        }
    }
}
