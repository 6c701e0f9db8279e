//! Cost of a bucket, by the price list: of requests that were counted, and of bytes for as long as they were kept, each
//! in its storage class.
//!
//! Not in it: taxes and contracts, what leaves Amazon's network, and what is removed earlier than its class wants it to be.

use holdfast_s3::RequestKind;
use holdfast_tiers::prices::{ClassPrices, Dollars, LIST, Thaw};

use super::usage::{Kept, Month, Span, Thawed};

/// Requests of less time than this say nothing of the rest of a month.
const OBSERVED_MIN_MS: i64 = 86_400_000;

/// Days of a month, as prices of copies that can be read count.
const THAWED_MONTH_DAYS: u128 = 30;

/// Cost, by what is paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) storage: Dollars,
    /// Giving objects another storage class included.
    pub(crate) requests: Dollars,
    /// Reading from classes that ask for it by the byte.
    pub(crate) reading: Dollars,
    /// Asking the archive for copies that can be read, and keeping these for as long as was asked.
    pub(crate) thawing: Dollars,
}

impl Cost {
    pub(crate) fn sum(&self) -> Dollars {
        self.storage + self.requests + self.reading + self.thawing
    }
}

/// Cost of the objects in a storage class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClassCost {
    pub(crate) class: String,
    /// Cost since counting began.
    pub(crate) so_far: Dollars,
    /// Cost of its present content for a whole month.
    pub(crate) keeping: Dollars,
}

/// A month's costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MonthCost {
    /// Cost since counting began.
    pub(crate) so_far: Cost,
    /// Cost by the end of the month: what is kept now stays, and requests go on as they were; nothing more is thawed.
    /// `None`: they were not counted for a day yet.
    pub(crate) by_end: Option<Cost>,
    /// Keeping what lies there now, for a whole month.
    pub(crate) keeping: Dollars,
    /// Costs by storage class.
    pub(crate) classes: Vec<ClassCost>,
}

fn keeping(prices: &ClassPrices, kept: &Kept, month_ms: u64) -> Dollars {
    let least = kept.blob_ms.saturating_mul(u128::from(prices.bytes_min));
    let beside = kept.blob_ms.saturating_mul(u128::from(prices.overhead_bytes));
    let standard = kept.blob_ms.saturating_mul(u128::from(prices.standard_overhead_bytes));
    prices.gb_month.for_byte_ms(kept.byte_ms.max(least).saturating_add(beside), month_ms)
        + ClassPrices::standard().gb_month.for_byte_ms(standard, month_ms)
}

/// Cost of thawed objects; `None`: a price is not known.
pub(crate) fn thawing(class: &str, speed: &str, thawed: &Thawed) -> Option<Dollars> {
    let asked = ClassPrices::of(class)?.thawing(Thaw::named(speed)?, thawed.objects, thawed.bytes)?;
    let days = u64::try_from(thawed.byte_days.div_ceil(THAWED_MONTH_DAYS)).unwrap_or(u64::MAX);
    Some(asked + ClassPrices::standard().gb_month.for_bytes(days))
}

/// Giving so many objects a class.
pub(crate) fn changing(class: &str, objects: u64) -> Option<Dollars> {
    Some(ClassPrices::of(class)?.put.times(objects))
}

/// Keeping, by storage class, as of a moment.
fn kept(month: &Month, at_ms: i64, month_ms: u64) -> Option<Vec<ClassCost>> {
    let month = month.as_of(at_ms);
    let of_class = |(class, kept): (&String, &Kept)| {
        let prices = ClassPrices::of(class)?;
        let keeping_now = prices.month(kept.blobs, kept.bytes);
        Some(ClassCost {
            class: class.clone(),
            so_far: keeping(prices, kept, month_ms),
            keeping: keeping_now,
        })
    };
    month.classes.iter().map(of_class).collect()
}

/// Requests, reading and thawing. Requests count as those for what is put (`usual`), reading as if all were of the dearest
/// class that something lies in.
fn asked(month: &Month, usual: &ClassPrices) -> Option<Cost> {
    let classes = month.classes.keys().map(|class| ClassPrices::of(class)).collect::<Option<Vec<_>>>()?;
    let dearest = |price: fn(&ClassPrices) -> Dollars| {
        classes.iter().map(|class| price(class)).max().unwrap_or_default().max(price(usual))
    };
    let made = |kind| month.requests.made(kind);
    let changed: u64 = month.changes.values().sum();
    let changes: Option<Vec<_>> =
        month.changes.iter().map(|(class, objects)| changing(class, *objects)).collect();
    let thaws: Option<Vec<_>> =
        month.all_thaws().map(|(class, speed, thawed)| thawing(class, speed, thawed)).collect();
    let requests = usual.put.times(made(RequestKind::Put).saturating_sub(changed))
        + changes?.into_iter().sum()
        + usual.get.times(made(RequestKind::Head))
        + dearest(|class| class.get).times(made(RequestKind::Get))
        + LIST.times(made(RequestKind::List));
    let reading = dearest(|class| class.read_gb).for_bytes(month.requests.received_bytes);
    Some(Cost { storage: Dollars::default(), requests, reading, thawing: thaws?.into_iter().sum() })
}

/// Cost of a month as of `now_ms`; new objects are of the class `usual`. `None`: the prices of a class are not known.
pub(crate) fn cost(month: &Month, now_ms: i64, usual: &str) -> Option<MonthCost> {
    let usual = ClassPrices::of(usual)?;
    let span = Span::of(now_ms).filter(|span| span.name == month.name)?;
    let month_ms = span.len_ms();
    let storage = |classes: &[ClassCost]| classes.iter().map(|class| class.so_far).sum();
    let classes = kept(month, now_ms, month_ms)?;
    let so_far = Cost { storage: storage(&classes), ..asked(month, usual)? };
    let (observed, left) = (now_ms.saturating_sub(month.since_ms), span.end_ms.saturating_sub(now_ms));
    let by_end = if observed < OBSERVED_MIN_MS {
        None
    } else {
        let more = |amount: Dollars| {
            let (left, observed) = (u128::from(left.unsigned_abs()), u128::from(observed.unsigned_abs()));
            amount + Dollars(u64::try_from(u128::from(amount.0) * left / observed).unwrap_or(u64::MAX))
        };
        let storage = storage(&kept(month, span.end_ms, month_ms)?);
        Some(Cost { storage, requests: more(so_far.requests), reading: more(so_far.reading), ..so_far })
    };
    let keeping = classes.iter().map(|class| class.keeping).sum();
    Some(MonthCost { so_far, by_end, keeping, classes })
}

#[cfg(test)]
mod tests {
    use holdfast_tiers::ClassTotals;
    use holdfast_tiers::prices::GB;

    use super::super::usage::{Asked, Requests, Usage};
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
    }

    fn totals(class: &str, gb: u64) -> ClassTotals {
        ClassTotals { class: class.to_owned(), blobs: gb * 32, bytes: gb * GB, thawed: 0 }
    }

    fn made(gb: u64, made: [u64; 5]) -> Asked {
        let [put, get, head, list, delete] = made;
        let made = [put, get, head, list, delete, 0];
        let requests = Requests { made, failed: 0, sent_bytes: gb * GB, received_bytes: GB };
        Asked { requests, ..Asked::default() }
    }

    fn used(begin: &str, gb: u64, of_kinds: [u64; 5], class: &str) -> Month {
        let mut usage = Usage::default();
        usage.count(at(begin), made(gb, of_kinds), &[totals(class, gb)]);
        usage.month
    }

    /// Written out: 1,000 GB for 15 of 30 days at $0.023, and requests by their kinds.
    #[test]
    fn a_month_is_added_up_by_the_price_list() {
        let counted = [10_000, 5_000, 5_000, 1_000, 9_999];
        let month = used("2026-11-01T00:00:00Z", 1000, counted, "STANDARD");
        let found = cost(&month, at("2026-11-16T00:00:00Z"), "STANDARD").unwrap();
        assert_eq!(found.so_far.storage, Dollars(11_500_000_000));
        // $0.05 of PUTs, $0.004 of GETs and HEADs, $0.005 of LISTs; DELETEs are free.
        assert_eq!(found.so_far.requests, Dollars(59_000_000));
        assert_eq!((found.so_far.reading, found.so_far.thawing), (Dollars(0), Dollars(0)));
        assert_eq!(found.keeping, Dollars(23_000_000_000));
        let by_end = found.by_end.unwrap();
        assert_eq!((by_end.storage, by_end.requests), (Dollars(23_000_000_000), Dollars(118_000_000)));
        assert_eq!(by_end.sum(), Dollars(23_118_000_000));

        let month = used("2026-11-01T00:00:00Z", 1000, counted, "STANDARD_IA");
        let found = cost(&month, at("2026-11-16T00:00:00Z"), "STANDARD_IA").unwrap();
        assert_eq!((found.so_far.reading, found.keeping), (Dollars(10_000_000), Dollars(12_500_000_000)));
    }

    /// Written out: half a month of 100 GB in STANDARD, then 60 of these in DEEP_ARCHIVE, with 40 KiB for each of 1,920 objects,
    /// which were moved there; and a thaw of one GB in bulk for 15 days.
    #[test]
    fn each_class_costs_what_it_does() {
        let mut usage = Usage::default();
        usage.count(at("2026-11-01T00:00:00Z"), Asked::default(), &[totals("STANDARD", 100)]);
        let mut asked = made(0, [1_920 + 1_000, 0, 0, 0, 0]);
        asked.archive.changes.insert("DEEP_ARCHIVE".to_owned(), 1_920);
        let thaw = holdfast_tiers::AskedThaws { objects: 32, bytes: GB, byte_days: 15 * u128::from(GB) };
        asked.archive.thaws.insert(("DEEP_ARCHIVE".to_owned(), Thaw::Bulk), thaw);
        let now = [totals("STANDARD", 40), totals("DEEP_ARCHIVE", 60)];
        usage.count(at("2026-11-16T00:00:00Z"), asked, &now);
        let found = cost(&usage.month, at("2026-11-16T00:00:00Z"), "STANDARD").unwrap();
        assert_eq!(found.so_far.storage, Dollars(1_150_000_000));
        // 1,920 × $0.05/1000 and 1,000 × $0.005/1000.
        assert_eq!(found.so_far.requests, Dollars(96_000_000 + 5_000_000));
        // 32 × $0.025/1000, $0.0025 and half of $0.023.
        let thawing = Dollars(800_000 + 2_500_000 + 11_500_000);
        assert_eq!(found.so_far.thawing, thawing);
        // 60 GB and 60 MB at $0.00099; 15 MB at $0.023.
        let deep = Dollars(59_400_000 + 58_008 + 336_915);
        let classes: Vec<_> =
            found.classes.iter().map(|of| (of.class.as_str(), of.so_far, of.keeping)).collect();
        let expected =
            [("DEEP_ARCHIVE", Dollars(0), deep), ("STANDARD", Dollars(1_150_000_000), Dollars(920_000_000))];
        assert_eq!(classes, expected);
        assert_eq!(found.keeping, deep + Dollars(920_000_000));
        // Thawed objects are not thawed again.
        let by_end = found.by_end.unwrap();
        assert_eq!((by_end.thawing, by_end.requests), (thawing, Dollars(202_000_000)));
        let kept = Dollars(1_150_000_000 + 460_000_000) + Dollars(deep.0.div_ceil(2));
        assert!(by_end.storage.0.abs_diff(kept.0) <= 2, "{by_end:?}");
    }

    /// A first hour, which copies everything, says nothing of the rest of the month.
    #[test]
    fn requests_are_forecast_after_a_day_only() {
        let month = used("2026-11-10T00:00:00Z", 10, [1; 5], "STANDARD");
        assert_eq!(cost(&month, at("2026-11-10T23:59:59Z"), "STANDARD").unwrap().by_end, None);
        assert!(cost(&month, at("2026-11-11T00:00:00Z"), "STANDARD").unwrap().by_end.is_some());
    }

    #[test]
    fn nothing_is_made_up() {
        let month = used("2026-11-01T00:00:00Z", 1, [1; 5], "STANDARD");
        assert_eq!(cost(&month, at("2026-11-02T00:00:00Z"), "OF_MY_OWN"), None);
        assert_eq!(cost(&month, at("2026-12-02T00:00:00Z"), "STANDARD"), None, "of another month");
        let month = used("2026-11-01T00:00:00Z", 1, [1; 5], "OF_MY_OWN");
        assert_eq!(cost(&month, at("2026-11-02T00:00:00Z"), "STANDARD"), None);
    }
}
