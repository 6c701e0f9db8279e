//! Ranges of a disk that cannot be read back, and why: what a restore that goes on past damage has to tell.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use holdfast_proto::details::escape_line;
use holdfast_proto::v1;
use parking_lot::Mutex;

/// Bytes kept of a reason. It comes from the server.
const REASON_MAX_BYTES: usize = 500;

/// Action of a restore on data that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnDamage {
    /// The restore ends with an error.
    #[default]
    End,
    /// The restore writes zeros there, and goes on.
    Zero,
    /// The restore writes nothing there, and goes on.
    Skip,
}

impl OnDamage {
    /// Returns true if a restore goes on after damage.
    pub const fn goes_on(self) -> bool {
        matches!(self, Self::Zero | Self::Skip)
    }
}

/// Bytes of a disk that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRange {
    /// Offset on the disk.
    pub offset: u64,
    pub len: u64,
    /// One line, safe to show.
    pub reason: Arc<str>,
    /// The server's container that is damaged; empty when none is known to be.
    pub container: Arc<str>,
}

impl BadRange {
    /// Creates a bad range from the server's report, its texts made harmless.
    pub(super) fn said(offset: u64, len: u64, damage: &v1::Damage) -> Self {
        let harmless = |text: &str| {
            let mut text = escape_line(text).into_owned();
            text.truncate(text.floor_char_boundary(REASON_MAX_BYTES));
            text.into()
        };
        Self { offset, len, reason: harmless(&damage.reason), container: harmless(&damage.container) }
    }
}

/// The bad ranges of one disk. Memory: some 60 bytes a range; of each reason one copy.
#[derive(Debug, Default)]
pub(super) struct BadRanges(Mutex<Collected>);

#[derive(Debug, Default)]
struct Collected {
    by_offset: BTreeMap<u64, BadRange>,
    texts: HashSet<Arc<str>>,
}

impl Collected {
    fn shared(&mut self, text: Arc<str>) -> Arc<str> {
        match self.texts.get(&text) {
            Some(known) => Arc::clone(known),
            None => {
                self.texts.insert(Arc::clone(&text));
                text
            }
        }
    }
}

impl BadRanges {
    pub(super) fn add(&self, range: BadRange) {
        let mut collected = self.0.lock();
        let reason = collected.shared(range.reason);
        let container = collected.shared(range.container);
        collected.by_offset.insert(range.offset, BadRange { reason, container, ..range });
    }

    /// Forgets what begins within `bytes` of the disk: that part is read again.
    pub(super) fn forget(&self, bytes: &Range<u64>) {
        self.0.lock().by_offset.retain(|offset, _| !bytes.contains(offset));
    }

    /// Returns all ranges in order; neighbours of one cause are one.
    pub(super) fn merged(&self) -> Vec<BadRange> {
        let mut merged: Vec<BadRange> = Vec::new();
        for range in self.0.lock().by_offset.values() {
            match merged.last_mut() {
                Some(last)
                    if last.offset + last.len == range.offset
                        && last.reason == range.reason
                        && last.container == range.container =>
                {
                    last.len += range.len;
                }
                _ => merged.push(range.clone()),
            }
        }
        merged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(offset: u64, len: u64, reason: &str) -> BadRange {
        BadRange { offset, len, reason: reason.into(), container: "000000000a".into() }
    }

    #[test]
    fn neighbours_of_one_cause_are_one_range() {
        let bad = BadRanges::default();
        for one in [range(300, 50, "b"), range(0, 100, "a"), range(200, 100, "b"), range(100, 10, "a")] {
            bad.add(one);
        }
        assert_eq!(bad.merged(), [range(0, 110, "a"), range(200, 150, "b")]);
        bad.forget(&(110..300));
        assert_eq!(bad.merged(), [range(0, 110, "a"), range(300, 50, "b")]);
    }

    #[test]
    fn what_a_server_says_is_one_short_harmless_line() {
        let reason = format!("a\nb\u{1b}[2J{}", "é".repeat(1000));
        let said = BadRange::said(0, 1, &v1::Damage { reason, container: "c\n".into() });
        assert!(said.reason.starts_with("a\\u{a}b\\u{1b}[2J") && said.reason.len() <= REASON_MAX_BYTES);
        assert_eq!(&*said.container, "c\\u{a}");
    }
}
