//! Numbers known from a part, with how sure they are.

use serde::Serialize;

/// Standard errors of a 95 % interval.
const Z95: f64 = 1.96;

/// A number of bytes and half the width of its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Estimated {
    pub value: u64,
    /// 0 for what was counted; `None` when too little was seen to say.
    pub margin: Option<u64>,
}

impl Estimated {
    /// Counted, not estimated.
    pub const fn exact(value: u64) -> Self {
        Self { value, margin: Some(0) }
    }

    /// Returns true if the value was counted, not estimated.
    pub fn is_exact(self) -> bool {
        self.margin == Some(0)
    }

    fn of(value: f64, variance: Option<f64>) -> Self {
        let margin = variance.map(|variance| rounded(Z95 * variance.max(0.0).sqrt()));
        Self { value: rounded(value), margin }
    }

    /// The variance behind the margin, if known.
    #[expect(clippy::cast_precision_loss, reason = "an error of an error")]
    fn variance(self) -> Option<f64> {
        self.margin.map(|margin| (margin as f64 / Z95).powi(2))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range of u64")]
fn rounded(value: f64) -> u64 {
    value.round().clamp(0.0, 1.8e19) as u64
}

/// Distinct chunks looked at with probability `share` each: their number, length and squared length.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Distinct {
    pub(crate) count: u64,
    pub(crate) bytes: u64,
    pub(crate) squares: f64,
}

impl Distinct {
    #[expect(clippy::cast_precision_loss, reason = "lengths of chunks")]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes += bytes;
        self.squares += (bytes as f64).powi(2);
    }

    /// Horvitz–Thompson, see the module above.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn total_bytes(&self, share: f64) -> Estimated {
        if share >= 1.0 {
            return Estimated::exact(self.bytes);
        }
        let variance = self.squares * (1.0 - share) / (share * share);
        Estimated::of(self.bytes as f64 / share, (self.count > 1).then_some(variance))
    }

    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn total_count(&self, share: f64) -> u64 {
        if share >= 1.0 { self.count } else { rounded(self.count as f64 / share) }
    }
}

/// Regions of which some were compressed: sums over those for the ratio estimate (Cochran, *Sampling
/// Techniques*, §2.11). The base is what the ratio is to: a region's plain bytes, or what it takes at a level
/// at which all regions were compressed, which says far more.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Compressed {
    /// Regions there were, compressed or not.
    pub(crate) regions: u64,
    measured: u64,
    /// Plain bytes of those that were compressed.
    pub(crate) plain: u64,
    base: u64,
    stored: u64,
    base_squares: f64,
    stored_squares: f64,
    products: f64,
}

impl Compressed {
    #[expect(clippy::cast_precision_loss, reason = "lengths of regions")]
    pub(crate) fn add(&mut self, plain: u64, base: u64, stored: u64) {
        let (x, y) = (base as f64, stored as f64);
        self.measured += 1;
        self.plain += plain;
        self.base += base;
        self.stored += stored;
        self.base_squares += x * x;
        self.stored_squares += y * y;
        self.products += x * y;
    }

    /// Estimates the stored bytes of all regions, when their bases are `base_bytes` together.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(crate) fn total_stored(&self, base_bytes: Estimated) -> Estimated {
        if self.base == 0 {
            return Estimated { value: base_bytes.value, margin: (base_bytes.value == 0).then_some(0) };
        }
        if self.measured == self.regions && base_bytes.is_exact() {
            return Estimated::exact(self.stored);
        }
        let (count, regions) = (self.measured as f64, self.regions.max(self.measured) as f64);
        let ratio = self.stored as f64 / self.base as f64;
        let value = base_bytes.value as f64 * ratio;
        let residuals = self.stored_squares - 2.0 * ratio * self.products + ratio * ratio * self.base_squares;
        let of_ratio = (self.measured > 1).then(|| {
            let mean_base = self.base as f64 / count;
            (1.0 - count / regions) * residuals.max(0.0) / (count - 1.0) / count / (mean_base * mean_base)
        });
        let variance = of_ratio.zip(base_bytes.variance()).map(|(of_ratio, of_bytes)| {
            of_ratio * (base_bytes.value as f64).powi(2) + of_bytes * ratio * ratio
        });
        Estimated::of(value, variance)
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small positive test values")]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_has_no_margin() {
        let mut distinct = Distinct::default();
        distinct.add(100);
        distinct.add(50);
        assert_eq!(distinct.total_bytes(1.0), Estimated::exact(150));
        let mut compressed = Compressed { regions: 2, ..Compressed::default() };
        compressed.add(100, 100, 30);
        compressed.add(50, 50, 20);
        assert_eq!(compressed.total_stored(Estimated::exact(150)), Estimated::exact(50));
        assert_eq!(Compressed::default().total_stored(Estimated::exact(0)), Estimated::exact(0));
        assert_eq!(Compressed::default().total_stored(Estimated::exact(7)).margin, None);
    }

    /// Samples drawn a thousand times: the mean is right and 95 % of the intervals hold the truth.
    #[test]
    fn intervals_hold_what_they_promise() {
        let mut state = 88_172_645_463_325_252u64;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let chunks: Vec<u64> = (0..2000).map(|_| 8192 + (random() * 57_344.0) as u64).collect();
        let truth: u64 = chunks.iter().sum();
        let (mut held, mut sum) = (0, 0.0);
        for _ in 0..1000 {
            let mut distinct = Distinct::default();
            chunks.iter().filter(|_| random() < 0.1).for_each(|&bytes| distinct.add(bytes));
            let total = distinct.total_bytes(0.1);
            sum += total.value as f64;
            held += u32::from(total.value.abs_diff(truth) <= total.margin.unwrap());
        }
        assert!((sum / 1000.0 / truth as f64 - 1.0).abs() < 0.01, "unbiased");
        assert!((930..=970).contains(&held), "{held} of 1,000 intervals hold the truth");
    }

    #[test]
    fn a_ratio_from_some_regions_holds_too() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1u64 << 31) as f64
        };
        let regions: Vec<(u64, u64)> = (0..1600)
            .map(|_| {
                let plain = 200_000.0 + random() * 60_000.0;
                (plain as u64, (plain * (0.2 + 0.5 * random())) as u64)
            })
            .collect();
        let (plain, truth) = regions.iter().fold((0, 0), |sum, r| (sum.0 + r.0, sum.1 + r.1));
        let mut held = 0;
        for start in 0..16 {
            let mut compressed = Compressed { regions: 1600, ..Compressed::default() };
            regions
                .iter()
                .skip(start)
                .step_by(16)
                .for_each(|&(plain, stored)| compressed.add(plain, plain, stored));
            let total = compressed.total_stored(Estimated::exact(plain));
            held += u32::from(total.value.abs_diff(truth) <= total.margin.unwrap());
        }
        assert!(held >= 14, "{held} of 16 intervals hold the truth");
    }
}
