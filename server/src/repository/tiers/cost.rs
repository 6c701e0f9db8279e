//! What a bucket costs, by the price list: of requests that were counted, and of what was kept for as long as it was.
//!
//! Not in it: taxes and contracts, what leaves Amazon's network, and what is removed earlier than its class wants it to be.

use holdfast_s3::RequestKind;
use holdfast_tiers::prices::{ClassPrices, Dollars, LIST};

use super::usage::{Kept, Month, Span};

/// Requests of less time than this say nothing of the rest of a month.
const OBSERVED_MIN_MS: i64 = 86_400_000;

/// What something costs, by what is paid for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) storage: Dollars,
    pub(crate) requests: Dollars,
    /// Reading from classes that ask for it by the byte.
    pub(crate) reading: Dollars,
}

impl Cost {
    pub(crate) fn sum(&self) -> Dollars {
        self.storage + self.requests + self.reading
    }
}

/// A month's costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MonthCost {
    /// Since counting began.
    pub(crate) so_far: Cost,
    /// By the end of the month: what is kept now stays, and requests go on as they were. `None`: they were not
    /// counted for a day yet.
    pub(crate) by_end: Option<Cost>,
    /// Keeping what lies there now, for a whole month.
    pub(crate) keeping: Dollars,
}

fn keeping(prices: &ClassPrices, kept: &Kept, month_ms: u64) -> Dollars {
    let least = kept.blob_ms.saturating_mul(u128::from(prices.bytes_min));
    let beside = kept.blob_ms.saturating_mul(u128::from(prices.overhead_bytes));
    let standard = kept.blob_ms.saturating_mul(u128::from(prices.standard_overhead_bytes));
    prices.gb_month.for_byte_ms(kept.byte_ms.max(least).saturating_add(beside), month_ms)
        + ClassPrices::standard().gb_month.for_byte_ms(standard, month_ms)
}

/// Of a month as of `now_ms`; `prices` of each kind of blob. Requests are counted as if all were for the dearest of the
/// classes.
pub(crate) fn cost<'a>(
    month: &Month,
    now_ms: i64,
    prices: impl Fn(&str) -> Option<&'a ClassPrices>,
) -> Option<MonthCost> {
    let span = Span::of(now_ms).filter(|span| span.name == month.name)?;
    let month_ms = span.len_ms();
    let rest = |until_ms: i64| -> Option<(Dollars, Dollars)> {
        let (mut storage, mut whole) = (Dollars::default(), Dollars::default());
        for (kind, kept) in &month.as_of(until_ms).kept {
            let prices = prices(kind)?;
            storage += keeping(prices, kept, month_ms);
            whole += prices.month(kept.blobs, kept.bytes);
        }
        Some((storage, whole))
    };
    let (storage, keeping) = rest(now_ms)?;
    let classes = month.kept.keys().map(|kind| prices(kind)).collect::<Option<Vec<_>>>()?;
    let dearest = |price: fn(&ClassPrices) -> Dollars| {
        classes.iter().map(|class| price(class)).max().unwrap_or_default()
    };
    let made = |kind| month.requests.made(kind);
    let reads = made(RequestKind::Get).saturating_add(made(RequestKind::Head));
    let so_far = Cost {
        storage,
        requests: dearest(|class| class.put).times(made(RequestKind::Put))
            + dearest(|class| class.get).times(reads)
            + LIST.times(made(RequestKind::List)),
        reading: dearest(|class| class.read_gb).for_bytes(month.requests.received_bytes),
    };
    let (observed, left) = (now_ms.saturating_sub(month.since_ms), span.end_ms.saturating_sub(now_ms));
    let by_end = if observed < OBSERVED_MIN_MS {
        None
    } else {
        let more = |amount: Dollars| {
            let (left, observed) = (u128::from(left.unsigned_abs()), u128::from(observed.unsigned_abs()));
            amount + Dollars(u64::try_from(u128::from(amount.0) * left / observed).unwrap_or(u64::MAX))
        };
        let (storage, _) = rest(span.end_ms)?;
        Some(Cost { storage, requests: more(so_far.requests), reading: more(so_far.reading) })
    };
    Some(MonthCost { so_far, by_end, keeping })
}

#[cfg(test)]
mod tests {
    use holdfast_tiers::KindTotals;
    use holdfast_tiers::prices::GB;

    use super::super::Requests;
    use super::super::usage::Usage;
    use super::*;

    fn at(text: &str) -> i64 {
        text.parse::<jiff::Timestamp>().unwrap().as_millisecond()
    }

    fn used(begin: &str, gb: u64, made: [u64; 5]) -> Month {
        let [put, get, head, list, delete] = made;
        let made = [put, get, head, list, delete, 0];
        let mut usage = Usage::default();
        let totals = [KindTotals { folder: "containers".to_owned(), blobs: gb * 32, bytes: gb * GB }];
        let requests = Requests { made, failed: 0, sent_bytes: gb * GB, received_bytes: GB };
        usage.count(at(begin), requests, &totals);
        usage.month
    }

    fn of_class(class: &'static str) -> impl Fn(&str) -> Option<&'static ClassPrices> {
        move |_| ClassPrices::of(class)
    }

    /// Written out: 1,000 GB for 15 of 30 days at $0.023, and requests by their kinds.
    #[test]
    fn a_month_is_added_up_by_the_price_list() {
        let month = used("2026-11-01T00:00:00Z", 1000, [10_000, 5_000, 5_000, 1_000, 9_999]);
        let found = cost(&month, at("2026-11-16T00:00:00Z"), of_class("STANDARD")).unwrap();
        assert_eq!(found.so_far.storage, Dollars(11_500_000_000));
        // $0.05 of PUTs, $0.004 of GETs and HEADs, $0.005 of LISTs; DELETEs are free.
        assert_eq!(found.so_far.requests, Dollars(59_000_000));
        assert_eq!(found.so_far.reading, Dollars(0));
        assert_eq!(found.keeping, Dollars(23_000_000_000));
        let by_end = found.by_end.unwrap();
        assert_eq!((by_end.storage, by_end.requests), (Dollars(23_000_000_000), Dollars(118_000_000)));
        assert_eq!(by_end.sum(), Dollars(23_118_000_000));

        let found = cost(&month, at("2026-11-16T00:00:00Z"), of_class("STANDARD_IA")).unwrap();
        assert_eq!((found.so_far.reading, found.keeping), (Dollars(10_000_000), Dollars(12_500_000_000)));
    }

    /// A first hour, which copies everything, says nothing of the rest of the month.
    #[test]
    fn requests_are_forecast_after_a_day_only() {
        let month = used("2026-11-10T00:00:00Z", 10, [1; 5]);
        assert_eq!(cost(&month, at("2026-11-10T23:59:59Z"), of_class("STANDARD")).unwrap().by_end, None);
        assert!(cost(&month, at("2026-11-11T00:00:00Z"), of_class("STANDARD")).unwrap().by_end.is_some());
    }

    #[test]
    fn nothing_is_made_up() {
        let month = used("2026-11-01T00:00:00Z", 1, [1; 5]);
        assert_eq!(cost(&month, at("2026-11-02T00:00:00Z"), of_class("OF_MY_OWN")), None);
        assert_eq!(cost(&month, at("2026-12-02T00:00:00Z"), of_class("STANDARD")), None, "of another month");
    }
}
