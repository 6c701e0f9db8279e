//! Quote for bringing parts of an archive back: what is cold among them, and what each speed costs.

use std::collections::BTreeMap;

use holdfast_proto::api;
use holdfast_tiers::Thawing;
use holdfast_tiers::prices::{Dollars, GB, Thaw};

use super::Part;
use super::prices::Prices;

/// Days of a month, as prices count.
const MONTH_DAYS: u64 = 30;

/// Number of objects, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sum {
    objects: u64,
    bytes: u64,
}

impl Sum {
    fn of<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Self {
        parts
            .into_iter()
            .fold(Self::default(), |sum, part| Self { objects: sum.objects + 1, bytes: sum.bytes + part.len })
    }
}

/// Returns the quote for bringing `parts` back for `days`.
pub(super) fn of(prices: &Prices, parts: &[Part], days: u32) -> api::Thaw {
    let with = |thawing: Thawing| Sum::of(parts.iter().filter(|part| part.thawing == thawing));
    let (cold, under_way, readable) = (with(Thawing::Cold), with(Thawing::UnderWay), with(Thawing::Readable));
    let mut classes: BTreeMap<&str, Vec<&Part>> = BTreeMap::new();
    for part in parts.iter().filter(|part| part.thawing == Thawing::Cold) {
        classes.entry(&part.class).or_default().push(part);
    }
    let classes: BTreeMap<&str, Sum> =
        classes.into_iter().map(|(class, parts)| (class, Sum::of(parts))).collect();
    let offers = Thaw::ALL.into_iter().filter_map(|speed| offer(prices, &classes, cold, speed, days));
    api::Thaw {
        objects: cold.objects,
        bytes: cold.bytes,
        objects_under_way: under_way.objects,
        bytes_under_way: under_way.bytes,
        objects_readable: readable.objects,
        bytes_readable: readable.bytes,
        days,
        offers: if cold.objects == 0 { Vec::new() } else { offers.collect() },
        region: prices.region.clone(),
        as_of: prices.as_of.clone(),
        classes: classes.keys().map(|class| (*class).to_owned()).collect(),
        task: None,
    }
}

/// `None`: not all of it comes back at this speed.
fn offer(
    prices: &Prices,
    classes: &BTreeMap<&str, Sum>,
    all: Sum,
    speed: Thaw,
    days: u32,
) -> Option<api::ThawOffer> {
    let (mut hours, mut requests, mut retrieved) = (0, Dollars(0), Dollars(0));
    for (class, sum) in classes {
        let price = prices.thaws.get(&((*class).to_owned(), speed))?;
        hours = hours.max(price.hours);
        requests += price.request.times(sum.objects);
        retrieved += price.gb.for_bytes(sum.bytes);
    }
    // (bytes × days / 30) at the price of a GB for a month.
    let copies = Dollars(prices.copy_gb_month.0.saturating_mul(u64::from(days)).div_ceil(MONTH_DAYS));
    let gb = |bytes: u64| format!("{:.1} GiB", gibibytes(bytes));
    // Item, cost, and true if it may not apply.
    let lines = [
        (format!("{} requests to thaw", all.objects), requests, false),
        (format!("{} retrieved", gb(all.bytes)), retrieved, false),
        (format!("copies to read, kept for {days} days"), copies.for_bytes(all.bytes), false),
        ("requests to read".to_owned(), prices.get.times(all.objects), false),
        (
            format!("{} of traffic, if this server is not in the bucket's region", gb(all.bytes)),
            prices.internet_gb.for_bytes(all.bytes),
            true,
        ),
    ];
    let cost = Dollars(lines.iter().filter(|(.., extra)| !extra).map(|(_, cost, _)| cost.0).sum()).as_f64();
    let lines =
        lines.into_iter().map(|(what, cost, extra)| api::ThawLine { what, cost: cost.as_f64(), extra });
    let speed = speed.text().to_ascii_lowercase();
    Some(api::ThawOffer { speed, hours, cost, lines: lines.collect() })
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gibibytes(bytes: u64) -> f64 {
    bytes as f64 / GB as f64
}

#[cfg(test)]
mod tests {
    use holdfast_volume::BlobName;

    use super::*;

    fn part(number: u32, class: &str, thawing: Thawing) -> Part {
        let name = BlobName::new(format!("containers/0000000/{number:010}.data")).unwrap();
        Part { name, len: GB, class: class.to_owned(), thawing }
    }

    #[test]
    fn only_what_is_cold_is_paid_for() {
        let parts = [
            part(1, "DEEP_ARCHIVE", Thawing::Cold),
            part(2, "DEEP_ARCHIVE", Thawing::Cold),
            part(3, "DEEP_ARCHIVE", Thawing::UnderWay),
            part(4, "DEEP_ARCHIVE", Thawing::Readable),
        ];
        let quote = of(&Prices::built_in(), &parts, 30);
        assert_eq!((quote.objects, quote.bytes), (2, 2 * GB));
        assert_eq!((quote.objects_under_way, quote.objects_readable), (1, 1));
        let offers: Vec<_> =
            quote.offers.iter().map(|offer| (offer.speed.as_str(), offer.hours, offer.cost)).collect();
        // By hand: 2 × $0.025/1000 + 2 × $0.0025 + 2 × $0.023 + 2 × $0.0004/1000, and so on.
        let bulk = Dollars(50_000 + 5_000_000 + 46_000_000 + 800).as_f64();
        let standard = Dollars(200_000 + 40_000_000 + 46_000_000 + 800).as_f64();
        assert_eq!(offers, [("bulk", 48, bulk), ("standard", 12, standard)]);
        let extra: Vec<_> = quote.offers[0].lines.iter().filter(|line| line.extra).collect();
        assert_eq!(extra.len(), 1, "what may not apply is told apart");
        assert_eq!(extra[0].cost, Dollars(180_000_000).as_f64());
    }

    #[test]
    fn a_speed_is_offered_only_for_all_of_it() {
        let mixed = [part(1, "DEEP_ARCHIVE", Thawing::Cold), part(2, "GLACIER", Thawing::Cold)];
        let speeds = |parts: &[Part]| -> Vec<String> {
            of(&Prices::built_in(), parts, 1).offers.into_iter().map(|offer| offer.speed).collect()
        };
        assert_eq!(speeds(&mixed), ["bulk", "standard"]);
        assert_eq!(speeds(&mixed[1..]), ["bulk", "standard", "expedited"]);
        assert!(speeds(&[]).is_empty());
    }
}
