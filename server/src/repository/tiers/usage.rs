//! Usage of a bucket in a month: requests, bytes sent and received, objects kept in each storage class and for how
//! long, and requests to the archive.
//!
//! It is written into the record with the state of the copies, whenever a request was made: at most once a second, and not
//! at all while nothing happens, because what is kept is counted for all the time until the next look. A crash loses what was
//! counted since the last look. What other commands ask of the bucket, such as a recovery, is not in it.

use std::collections::BTreeMap;

use holdfast_s3::{RequestCounts, RequestKind};
use holdfast_tiers::{ArchiveAsked, ClassTotals};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};
use serde::{Deserialize, Serialize};

/// Requests of one bucket, or of several processes' worth of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Requests {
    /// Requests in the order of [`RequestKind::ALL`].
    pub(super) made: [u64; RequestKind::ALL.len()],
    pub(crate) failed: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

impl Requests {
    pub(super) fn of(counts: &RequestCounts) -> Self {
        Self {
            made: RequestKind::ALL.map(|kind| counts.made(kind)),
            failed: counts.failed(),
            sent_bytes: counts.sent_bytes(),
            received_bytes: counts.received_bytes(),
        }
    }

    /// Both together.
    pub(crate) fn and(mut self, other: Self) -> Self {
        for (sum, more) in self.made.iter_mut().zip(other.made) {
            *sum += more;
        }
        self.failed += other.failed;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self
    }

    /// Returns the requests made since `earlier`, which is of the same process.
    fn since(mut self, earlier: &Self) -> Self {
        for (made, before) in self.made.iter_mut().zip(earlier.made) {
            *made = made.saturating_sub(before);
        }
        self.failed = self.failed.saturating_sub(earlier.failed);
        self.sent_bytes = self.sent_bytes.saturating_sub(earlier.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_sub(earlier.received_bytes);
        self
    }

    /// Returns the requests of a kind.
    pub(crate) fn made(&self, kind: RequestKind) -> u64 {
        RequestKind::ALL.into_iter().zip(self.made).find(|(of, _)| *of == kind).map_or(0, |(_, made)| made)
    }

    /// Kind and number.
    pub(crate) fn by_kind(&self) -> BTreeMap<&'static str, u64> {
        RequestKind::ALL.into_iter().map(RequestKind::text).zip(self.made).collect()
    }
}

/// Blobs and bytes of a storage class, and for how long they were kept: times milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) blobs: u64,
    pub(crate) bytes: u64,
    pub(crate) blob_ms: u128,
    pub(crate) byte_ms: u128,
}

/// Objects that were asked to be thawed, of one storage class at one speed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Thawed {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
    /// Bytes times the days for which copies of them are kept.
    pub(crate) byte_days: u128,
}

/// A month, as far as it was counted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Month {
    /// Year and month in UTC, such as `2026-11`.
    pub(crate) name: String,
    /// Time at which counting began: with the month, or later.
    pub(crate) since_ms: i64,
    /// Up to when what is kept was counted.
    pub(crate) until_ms: i64,
    pub(crate) requests: Requests,
    /// Bytes kept, by storage class.
    #[serde(default)]
    pub(crate) classes: BTreeMap<String, Kept>,
    /// Thaws by storage class and speed, as requests of S3 name it.
    #[serde(default)]
    pub(crate) thaws: BTreeMap<String, BTreeMap<String, Thawed>>,
    /// Objects that were given a storage class, by that.
    #[serde(default)]
    pub(crate) changes: BTreeMap<String, u64>,
}

/// Requests to the bucket since the last count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) requests: Requests,
    pub(crate) archive: ArchiveAsked,
}

impl Asked {
    /// Requests since `earlier`, which is of the same process.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.since(&earlier.requests),
            archive: self.archive.since(&earlier.archive),
        }
    }
}

/// This month, and the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub(crate) month: Month,
    pub(crate) last: Option<Month>,
}

/// A month of the calendar, in UTC.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) begin_ms: i64,
    pub(crate) end_ms: i64,
}

impl Span {
    /// The month of a moment; `None`: the clock shows no time of this era.
    pub(crate) fn of(at_ms: i64) -> Option<Self> {
        let date = Timestamp::from_millisecond(at_ms).ok()?.to_zoned(TimeZone::UTC).date();
        let first = date.first_of_month();
        let next = first.checked_add(1.month()).ok()?;
        let begin = |date: jiff::civil::Date| {
            date.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp().as_millisecond())
        };
        let name = format!("{:04}-{:02}", first.year(), first.month());
        Some(Self { name, begin_ms: begin(first)?, end_ms: begin(next)? })
    }

    pub(crate) fn len_ms(&self) -> u64 {
        u64::try_from(self.end_ms - self.begin_ms).unwrap_or(1)
    }
}

fn elapsed(from_ms: i64, to_ms: i64) -> u64 {
    u64::try_from(to_ms.saturating_sub(from_ms)).unwrap_or(0)
}

impl Month {
    /// Counted from now on.
    fn begin(span: &Span, since_ms: i64, kept: &BTreeMap<String, Kept>) -> Self {
        let fresh = |(class, kept): (&String, &Kept)| {
            (class.clone(), Kept { blobs: kept.blobs, bytes: kept.bytes, ..Kept::default() })
        };
        Self {
            name: span.name.clone(),
            since_ms,
            until_ms: since_ms,
            classes: kept.iter().filter(|(_, kept)| kept.blobs > 0).map(fresh).collect(),
            ..Self::default()
        }
    }

    /// Counts what was kept at the last look as kept until now.
    fn pass(&mut self, now_ms: i64) {
        let ms = u128::from(elapsed(self.until_ms, now_ms));
        for kept in self.classes.values_mut() {
            kept.blob_ms += u128::from(kept.blobs) * ms;
            kept.byte_ms += u128::from(kept.bytes) * ms;
        }
        self.until_ms = self.until_ms.max(now_ms);
    }

    fn add(&mut self, asked: Asked) {
        self.requests = self.requests.and(asked.requests);
        for ((class, speed), more) in asked.archive.thaws {
            let of = self.thaws.entry(class).or_default().entry(speed.text().to_owned()).or_default();
            of.objects = of.objects.saturating_add(more.objects);
            of.bytes = of.bytes.saturating_add(more.bytes);
            of.byte_days = of.byte_days.saturating_add(more.byte_days);
        }
        for (class, objects) in asked.archive.changes {
            *self.changes.entry(class).or_default() += objects;
        }
    }

    /// Requests to thaw: storage class, speed (as requests of S3 name it), and amount.
    pub(crate) fn all_thaws(&self) -> impl Iterator<Item = (&str, &str, &Thawed)> {
        self.thaws.iter().flat_map(|(class, speeds)| {
            speeds.iter().map(move |(speed, thawed)| (class.as_str(), speed.as_str(), thawed))
        })
    }

    /// The month as if nothing happened until `now_ms`: for a look between two counts.
    pub(crate) fn as_of(&self, now_ms: i64) -> Self {
        let mut later = self.clone();
        later.pass(now_ms);
        later
    }
}

impl Usage {
    /// Time has passed, and this was asked in it; `totals` are kept from now on. A clock that was set back counts nothing until
    /// it is where it was.
    pub(crate) fn count(&mut self, now_ms: i64, asked: Asked, totals: &[ClassTotals]) {
        let Some(now) = Span::of(now_ms) else { return };
        if self.month.name.is_empty() {
            self.month = Month::begin(&now, now_ms, &BTreeMap::new());
        }
        // Months that no one looked at are passed one by one; a clock that was wrong may skip any number of them.
        if self.month.name < now.name {
            if let Some(span) = Span::of(self.month.until_ms) {
                self.month.pass(span.end_ms);
            }
            let next = Month::begin(&now, now.begin_ms, &self.month.classes);
            self.last = Some(std::mem::replace(&mut self.month, next));
        }
        self.month.pass(now_ms);
        self.month.add(asked);
        let kept = &mut self.month.classes;
        for of_class in kept.values_mut() {
            (of_class.blobs, of_class.bytes) = (0, 0);
        }
        for ClassTotals { class, blobs, bytes, .. } in totals {
            let of_class = kept.entry(class.clone()).or_default();
            (of_class.blobs, of_class.bytes) = (*blobs, *bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_tiers::prices::Thaw;

    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn at(text: &str) -> i64 {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    fn totals(blobs: u64, bytes: u64) -> Vec<ClassTotals> {
        vec![ClassTotals { class: "STANDARD".to_owned(), blobs, bytes, thawed: 0 }]
    }

    fn requests(made: u64) -> Requests {
        Requests { made: [made; 6], failed: 0, sent_bytes: made * 10, received_bytes: 0 }
    }

    fn asked(made: u64) -> Asked {
        Asked { requests: requests(made), ..Asked::default() }
    }

    #[test]
    fn months_are_those_of_the_calendar_in_utc() {
        let span = Span::of(at("2028-02-29T23:59:59.999Z")).unwrap();
        assert_eq!(span.name, "2028-02");
        assert_eq!(span.len_ms(), 29 * 86_400_000);
        assert_eq!(span.end_ms, at("2028-03-01T00:00:00Z"));
        assert_eq!(Span::of(span.end_ms).unwrap().begin_ms, span.end_ms);
        assert_eq!(Span::of(i64::MAX), None);
    }

    #[test]
    fn what_is_kept_is_counted_for_as_long_as_it_is_kept() {
        let begin = at("2026-11-10T00:00:00Z");
        let mut usage = Usage::default();
        usage.count(begin, asked(3), &totals(2, 100));
        assert_eq!((usage.month.since_ms, usage.month.requests), (begin, requests(3)));
        usage.count(begin + DAY_MS, asked(1), &totals(1, 70));
        assert_eq!(usage.month.requests, requests(4));
        let kept = usage.month.classes["STANDARD"];
        assert_eq!((kept.byte_ms, kept.blob_ms), (100 * 86_400_000, 2 * 86_400_000));
        assert_eq!((kept.blobs, kept.bytes), (1, 70));
        // Between two counts, and after all of a kind is gone.
        let later = usage.month.as_of(begin + 2 * DAY_MS);
        assert_eq!(later.classes["STANDARD"].byte_ms, 170 * 86_400_000);
        usage.count(begin + 2 * DAY_MS, asked(0), &[]);
        assert_eq!(usage.month.as_of(begin + 9 * DAY_MS).classes["STANDARD"].byte_ms, 170 * 86_400_000);
    }

    /// Also while the server is off.
    #[test]
    fn a_month_ends_at_its_end() {
        let mut usage = Usage::default();
        usage.count(at("2026-11-30T00:00:00Z"), asked(5), &totals(1, 100));
        usage.count(at("2026-12-02T12:00:00Z"), asked(2), &totals(1, 100));
        let last = usage.last.as_ref().unwrap();
        assert_eq!((last.name.as_str(), last.requests), ("2026-11", requests(5)));
        assert_eq!(last.classes["STANDARD"].byte_ms, 100 * 86_400_000);
        assert_eq!((usage.month.name.as_str(), usage.month.requests), ("2026-12", requests(2)));
        assert_eq!(usage.month.since_ms, at("2026-12-01T00:00:00Z"));
        assert_eq!(usage.month.classes["STANDARD"].byte_ms, 150 * 86_400_000);
    }

    #[test]
    fn a_clock_that_was_set_back_counts_nothing_twice() {
        let mut usage = Usage::default();
        usage.count(at("2026-12-02T00:00:00Z"), asked(1), &totals(1, 100));
        usage.count(at("2026-11-30T00:00:00Z"), asked(1), &totals(1, 100));
        assert_eq!((usage.month.name.as_str(), usage.last.clone()), ("2026-12", None));
        assert_eq!(usage.month.classes["STANDARD"].byte_ms, 0);
        usage.count(at("2026-12-03T00:00:00Z"), asked(1), &totals(1, 100));
        assert_eq!(usage.month.classes["STANDARD"].byte_ms, 100 * 86_400_000);
        assert_eq!(usage.month.requests, requests(3));
    }

    /// An object that changes its class is kept in the old one until then, and in the new one from then on.
    #[test]
    fn each_class_is_counted_for_the_time_in_which_something_lay_in_it() {
        let begin = at("2026-11-10T00:00:00Z");
        let deep = ClassTotals { class: "DEEP_ARCHIVE".to_owned(), blobs: 1, bytes: 60, thawed: 0 };
        let mut usage = Usage::default();
        usage.count(begin, asked(0), &totals(2, 100));
        usage.count(begin + DAY_MS, asked(0), &[totals(1, 40), vec![deep.clone()]].concat());
        let month = usage.month.as_of(begin + 3 * DAY_MS);
        assert_eq!(month.classes["STANDARD"].byte_ms, (100 + 2 * 40) * 86_400_000);
        assert_eq!(month.classes["DEEP_ARCHIVE"].byte_ms, 2 * 60 * 86_400_000);
        // The next month begins with what is there.
        usage.count(begin + 3 * DAY_MS, asked(0), &[deep]);
        usage.count(at("2026-12-02T00:00:00Z"), asked(0), &[]);
        let classes: Vec<_> =
            usage.month.classes.iter().map(|(name, kept)| (name.as_str(), kept.byte_ms)).collect();
        assert_eq!(classes, [("DEEP_ARCHIVE", 60 * 86_400_000)]);
    }

    fn thaw(speed: Thaw, bytes: u64) -> Asked {
        let one = holdfast_tiers::AskedThaws { objects: 1, bytes, byte_days: u128::from(bytes) * 7 };
        let archive = ArchiveAsked {
            thaws: BTreeMap::from([(("GLACIER".to_owned(), speed), one)]),
            changes: BTreeMap::from([("GLACIER".to_owned(), 2)]),
        };
        Asked { archive, ..Asked::default() }
    }

    #[test]
    fn what_was_asked_of_the_archive_adds_up_by_class_and_speed() {
        let mut usage = Usage::default();
        for (speed, bytes) in [(Thaw::Bulk, 10), (Thaw::Expedited, 5), (Thaw::Bulk, 30)] {
            usage.count(at("2026-11-10T00:00:00Z"), thaw(speed, bytes), &[]);
        }
        let of = |speed: &str| usage.month.thaws["GLACIER"][speed];
        assert_eq!(of("Bulk"), Thawed { objects: 2, bytes: 40, byte_days: 280 });
        assert_eq!(of("Expedited"), Thawed { objects: 1, bytes: 5, byte_days: 35 });
        assert_eq!(usage.month.changes["GLACIER"], 6);
        usage.count(at("2026-12-10T00:00:00Z"), asked(0), &[]);
        assert!(usage.month.thaws.is_empty() && usage.month.changes.is_empty(), "of the month before");
    }

    /// Whatever it comes to.
    #[test]
    fn it_is_read_as_it_was_written() {
        let mut usage = Usage::default();
        usage.count(at("2026-11-01T00:00:00Z"), thaw(Thaw::Bulk, u64::MAX / 3), &[]);
        usage.count(at("2026-11-01T00:00:00Z"), asked(u64::MAX / 20), &totals(u64::MAX, u64::MAX));
        usage.count(at("2026-12-30T00:00:00Z"), asked(1), &totals(1, 1));
        let text = serde_json::to_string(&usage).unwrap();
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), usage);
    }
}
