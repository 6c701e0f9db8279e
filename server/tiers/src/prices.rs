//! Amazon S3's prices by storage class, as published for one region at one time. For figures labelled with both;
//! contracts, other regions, taxes and traffic out of Amazon's network are not included.
//!
//! Amounts are whole billionths of a dollar, so sums are exact; a GB is 2³⁰ bytes, as Amazon counts.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

/// Region of the prices.
pub const REGION: &str = "us-east-1";

/// Year and month in which they were published.
pub const AS_OF: &str = "2025-06";

/// Bytes of a GB in the price list.
pub const GB: u64 = 1 << 30;

/// Class of an object put without one.
pub const DEFAULT_CLASS: &str = "STANDARD";

/// An amount, in billionths of a US dollar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub u64);

impl Dollars {
    /// Converts millionths of a dollar.
    const fn of_millionths(millionths: u64) -> Self {
        Self(millionths * 1_000)
    }

    /// Price of `count` units.
    #[must_use]
    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    /// Price of `bytes` at this price a GB; rounded up.
    #[must_use]
    pub fn for_bytes(self, bytes: u64) -> Self {
        let sum = (u128::from(self.0) * u128::from(bytes)).div_ceil(u128::from(GB));
        Self(u64::try_from(sum).unwrap_or(u64::MAX))
    }

    /// Price of storage at this price a GB and month, for months of `month_ms` milliseconds; rounded up. `byte_ms`:
    /// bytes times milliseconds.
    #[must_use]
    pub fn for_byte_ms(self, byte_ms: u128, month_ms: u64) -> Self {
        let gb_ms = u128::from(GB) * u128::from(month_ms.max(1));
        let whole = u128::from(self.0).saturating_mul(byte_ms / gb_ms);
        let rest = (u128::from(self.0) * (byte_ms % gb_ms)).div_ceil(gb_ms);
        Self(u64::try_from(whole.saturating_add(rest)).unwrap_or(u64::MAX))
    }

    /// Dollars as a floating-point number, for display.
    #[expect(clippy::cast_precision_loss, reason = "exact up to nine million dollars")]
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Dollars {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Dollars {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Dollars {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

/// Shows two digits, or, below a cent, enough digits to be non-zero; rounded up, so that nothing looks free that is
/// not.
impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const CENT: u64 = 10_000_000;
        const HUNDREDTH: u64 = CENT / 100;
        if self.0 == 0 || self.0 > 99 * HUNDREDTH {
            let cents = self.0.div_ceil(CENT);
            write!(f, "${}.{:02}", cents / 100, cents % 100)
        } else {
            write!(f, "$0.{:04}", self.0.div_ceil(HUNDREDTH))
        }
    }
}

/// Retrieval speed of archived objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thaw {
    /// Cheapest.
    Bulk,
    Standard,
    /// Fastest.
    Expedited,
}

impl Thaw {
    pub const ALL: [Self; 3] = [Self::Bulk, Self::Standard, Self::Expedited];

    /// Name in S3 requests.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Bulk => "Bulk",
            Self::Standard => "Standard",
            Self::Expedited => "Expedited",
        }
    }

    /// Parses a speed, ignoring case.
    pub fn named(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.text().eq_ignore_ascii_case(text))
    }
}

/// Price of making an archived object readable at one speed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThawPrice {
    pub thaw: Thaw,
    pub request: Dollars,
    pub gb: Dollars,
    /// Usual duration, in hours.
    pub hours: u32,
}

/// The prices of a storage class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassPrices {
    /// Name in S3 requests.
    pub class: &'static str,
    /// A GB kept for a month (the first 50 TB, where more is cheaper).
    pub gb_month: Dollars,
    /// A PUT, or another request that changes an object; DELETE is free.
    pub put: Dollars,
    /// A GET or HEAD.
    pub get: Dollars,
    /// A GB read, without traffic out of Amazon's network.
    pub read_gb: Dollars,
    /// Minimum billed storage duration, in days.
    pub days_min: u32,
    /// Minimum billed object size.
    pub bytes_min: u64,
    /// Overhead billed for each object, in the same class.
    pub overhead_bytes: u64,
    /// Overhead billed for each object in class `STANDARD`.
    pub standard_overhead_bytes: u64,
    /// Retrieval speeds; empty if objects can be read at once.
    pub thaws: &'static [ThawPrice],
}

impl ClassPrices {
    /// Returns the prices of a class by its name in S3 requests; `None`: they are not known here.
    pub fn of(class: &str) -> Option<&'static Self> {
        CLASSES.iter().find(|prices| prices.class == class)
    }

    /// Prices of the default class, for [`ClassPrices::standard_overhead_bytes`] and list requests.
    pub const fn standard() -> &'static Self {
        &STANDARD
    }

    /// Billed bytes of `objects` objects with `bytes` bytes in total, if either all or none of them are smaller than
    /// [`ClassPrices::bytes_min`].
    pub fn paid_bytes(&self, objects: u64, bytes: u64) -> u64 {
        bytes
            .max(objects.saturating_mul(self.bytes_min))
            .saturating_add(objects.saturating_mul(self.overhead_bytes))
    }

    /// Monthly cost of storing these objects.
    pub fn month(&self, objects: u64, bytes: u64) -> Dollars {
        let beside = objects.saturating_mul(self.standard_overhead_bytes);
        self.gb_month.for_bytes(self.paid_bytes(objects, bytes)) + STANDARD.gb_month.for_bytes(beside)
    }

    /// Cost of making these objects readable; `None`: the class has no such speed.
    pub fn thawing(&self, thaw: Thaw, objects: u64, bytes: u64) -> Option<Dollars> {
        let price = self.thaws.iter().find(|price| price.thaw == thaw)?;
        Some(price.request.times(objects) + price.gb.for_bytes(bytes))
    }
}

/// A LIST request, whatever the classes of the listed objects.
pub const LIST: Dollars = per_1000(5_000);

/// A GB sent from Amazon to the Internet, beyond the first 100 GB of a month; within the region it is free.
pub const INTERNET_GB: Dollars = Dollars::of_millionths(90_000);

/// Price of one request, given the price of a thousand in millionths of a dollar.
const fn per_1000(millionths: u64) -> Dollars {
    Dollars(millionths)
}

const IA_BYTES_MIN: u64 = 128 << 10;
const ARCHIVE_OVERHEAD: u64 = 32 << 10;
const ARCHIVE_STANDARD_OVERHEAD: u64 = 8 << 10;

const STANDARD: ClassPrices = ClassPrices {
    class: DEFAULT_CLASS,
    gb_month: Dollars::of_millionths(23_000),
    put: per_1000(5_000),
    get: per_1000(400),
    read_gb: Dollars(0),
    days_min: 0,
    bytes_min: 0,
    overhead_bytes: 0,
    standard_overhead_bytes: 0,
    thaws: &[],
};

const STANDARD_IA: ClassPrices = ClassPrices {
    class: "STANDARD_IA",
    gb_month: Dollars::of_millionths(12_500),
    put: per_1000(10_000),
    get: per_1000(1_000),
    read_gb: Dollars::of_millionths(10_000),
    days_min: 30,
    bytes_min: IA_BYTES_MIN,
    ..STANDARD
};

/// All classes with known prices.
pub const CLASSES: &[ClassPrices] = &[
    STANDARD,
    STANDARD_IA,
    ClassPrices { class: "ONEZONE_IA", gb_month: Dollars::of_millionths(10_000), ..STANDARD_IA },
    ClassPrices {
        class: "GLACIER_IR",
        gb_month: Dollars::of_millionths(4_000),
        put: per_1000(20_000),
        get: per_1000(10_000),
        read_gb: Dollars::of_millionths(30_000),
        days_min: 90,
        ..STANDARD_IA
    },
    ClassPrices {
        class: "GLACIER",
        gb_month: Dollars::of_millionths(3_600),
        put: per_1000(30_000),
        days_min: 90,
        overhead_bytes: ARCHIVE_OVERHEAD,
        standard_overhead_bytes: ARCHIVE_STANDARD_OVERHEAD,
        thaws: &[
            ThawPrice { thaw: Thaw::Bulk, request: Dollars(0), gb: Dollars(0), hours: 12 },
            ThawPrice {
                thaw: Thaw::Standard,
                request: per_1000(50_000),
                gb: Dollars::of_millionths(10_000),
                hours: 5,
            },
            ThawPrice {
                thaw: Thaw::Expedited,
                request: per_1000(10_000_000),
                gb: Dollars::of_millionths(30_000),
                hours: 1,
            },
        ],
        ..STANDARD
    },
    ClassPrices {
        class: "DEEP_ARCHIVE",
        gb_month: Dollars::of_millionths(990),
        put: per_1000(50_000),
        days_min: 180,
        overhead_bytes: ARCHIVE_OVERHEAD,
        standard_overhead_bytes: ARCHIVE_STANDARD_OVERHEAD,
        thaws: &[
            ThawPrice {
                thaw: Thaw::Bulk,
                request: per_1000(25_000),
                gb: Dollars::of_millionths(2_500),
                hours: 48,
            },
            ThawPrice {
                thaw: Thaw::Standard,
                request: per_1000(100_000),
                gb: Dollars::of_millionths(20_000),
                hours: 12,
            },
        ],
        ..STANDARD
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    const TB: u64 = 1 << 40;

    /// In the units of the price list: by the GB and month, and by the thousand requests.
    #[test]
    fn prices_are_those_of_the_list() {
        let listed = |class| {
            let found = ClassPrices::of(class).unwrap();
            (found.gb_month.as_f64(), found.put.times(1000).as_f64(), found.get.times(1000).as_f64())
        };
        assert_eq!(listed("STANDARD"), (0.023, 0.005, 0.0004));
        assert_eq!(listed("STANDARD_IA"), (0.0125, 0.01, 0.001));
        assert_eq!(listed("ONEZONE_IA"), (0.01, 0.01, 0.001));
        assert_eq!(listed("GLACIER_IR"), (0.004, 0.02, 0.01));
        assert_eq!(listed("GLACIER"), (0.0036, 0.03, 0.0004));
        assert_eq!(listed("DEEP_ARCHIVE"), (0.00099, 0.05, 0.0004));
        assert_eq!(LIST.times(1000).as_f64(), 0.005);
        assert_eq!(ClassPrices::of("OUTPOSTS"), None);
    }

    #[test]
    fn a_month_counts_what_is_paid_for() {
        assert_eq!(ClassPrices::standard().month(32_768, TB).to_string(), "$23.56");
        let deep = ClassPrices::of("DEEP_ARCHIVE").unwrap();
        // 1 TB, and 32,768 × 32 KiB of the class and × 8 KiB of STANDARD.
        assert_eq!(deep.month(32_768, TB), Dollars(1_013_760_000 + 990_000 + 5_750_000));
        let ia = ClassPrices::of("STANDARD_IA").unwrap();
        assert_eq!(ia.paid_bytes(1000, 5_000), 1000 * (128 << 10), "small ones count as 128 KiB");
        assert_eq!(ia.paid_bytes(1, TB), TB);
    }

    #[test]
    fn speeds_are_named_in_either_case() {
        assert_eq!(
            (Thaw::named("Bulk"), Thaw::named("expedited")),
            (Some(Thaw::Bulk), Some(Thaw::Expedited))
        );
        assert_eq!(Thaw::named("at once"), None);
    }

    #[test]
    fn thawing_costs_by_the_request_and_by_the_byte() {
        let deep = ClassPrices::of("DEEP_ARCHIVE").unwrap();
        assert_eq!(deep.thawing(Thaw::Bulk, 1000, 100 * GB), Some(Dollars(25_000_000 + 250_000_000)));
        assert_eq!(deep.thawing(Thaw::Expedited, 1, 1), None);
        let flexible = ClassPrices::of("GLACIER").unwrap();
        assert_eq!(flexible.thawing(Thaw::Bulk, 1000, TB), Some(Dollars(0)));
        assert_eq!(ClassPrices::standard().thawing(Thaw::Standard, 1, 1), None);
    }

    #[test]
    fn time_is_counted_to_the_millisecond() {
        let month_ms = 30 * 86_400_000;
        let price = ClassPrices::standard().gb_month;
        assert_eq!(price.for_byte_ms(u128::from(GB) * u128::from(month_ms), month_ms), price);
        assert_eq!(
            price.for_byte_ms(u128::from(GB) * u128::from(month_ms) / 2, month_ms),
            Dollars(11_500_000)
        );
        assert_eq!(price.for_byte_ms(1, month_ms), Dollars(1), "rounded up");
        // An exabyte for a century neither overflows nor fails.
        assert!(price.for_byte_ms(u128::from(u64::MAX) * 1_200 * u128::from(month_ms), month_ms) > price);
    }

    #[test]
    fn amounts_are_shown_with_what_matters() {
        for (nanos, shown) in [
            (0, "$0.00"),
            (1, "$0.0001"),
            (4_200_000, "$0.0042"),
            (9_900_000, "$0.0099"),
            (9_900_001, "$0.01"),
            (10_000_001, "$0.02"),
            (23_000_000_000, "$23.00"),
        ] {
            assert_eq!(Dollars(nanos).to_string(), shown, "{nanos}");
        }
    }
}
