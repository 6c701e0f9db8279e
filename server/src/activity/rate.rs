//! How fast a backup is: the mean since its start at first, then a moving mean.

/// The shortest time over which a rate is taken.
const INTERVAL_MS: i64 = 900;

/// Weight of the newest rate in the moving mean.
const WEIGHT: f64 = 0.3;

/// Where a backup was when it was last looked at, and how fast it was until then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    at_ms: i64,
    bytes: u64,
    pub(super) per_second: f64,
}

impl Rate {
    /// The rate now, when `bytes` are done. `last` is the one before; `None` at the first look.
    pub(super) fn next(last: Option<Self>, started_ms: i64, now_ms: i64, bytes: u64) -> Self {
        let since = |from_ms: i64, from: u64| {
            let span_ms = now_ms.saturating_sub(from_ms).max(1);
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = bytes.saturating_sub(from) as f64 * 1000.0 / span_ms as f64;
            rate
        };
        match last {
            None => Self { at_ms: now_ms, bytes, per_second: since(started_ms, 0) },
            Some(last) if now_ms.saturating_sub(last.at_ms) < INTERVAL_MS => last,
            Some(last) => {
                let per_second = last.per_second * (1.0 - WEIGHT) + since(last.at_ms, last.bytes) * WEIGHT;
                Self { at_ms: now_ms, bytes, per_second }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_begin_with_the_mean_and_follow_what_happens() {
        let first = Rate::next(None, 0, 10_000, 5000);
        assert!((first.per_second - 500.0).abs() < 1e-9);
        assert_eq!(Rate::next(Some(first), 0, 10_100, 9000).bytes, 5000, "too soon to tell");
        let mut rate = first;
        for second in 1..=30 {
            rate = Rate::next(Some(rate), 0, 10_000 + second * 1000, 5000 + second.unsigned_abs() * 2000);
        }
        assert!((rate.per_second - 2000.0).abs() < 10.0, "{rate:?}");
        let stalled =
            (1..=30).fold(rate, |rate, second| Rate::next(Some(rate), 0, 40_000 + second * 1000, 65_000));
        assert!(stalled.per_second < 1.0, "{stalled:?}");
    }
}
