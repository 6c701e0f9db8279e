//! Forecast of a full repository: the growth of the bytes stored, and the days that the free space is enough for.

/// Days taken into account: older ones say little about the next months.
pub(crate) const DAYS_MAX: usize = 90;

/// Days without which there is no trend.
const DAYS_MIN: usize = 3;

/// Ten years: no one plans further ahead.
const HORIZON_DAYS: f64 = 3652.5;

/// Confidence of the interval, in percent.
pub(crate) const CONFIDENCE_PCT: u32 = 90;

/// 95 % points of Student's t for 1 to 30 degrees of freedom; beyond, the normal one is near.
const T_95: [f64; 30] = [
    6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753,
    1.746, 1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697,
];
const T_95_BEYOND: f64 = 1.66;

/// Growth of the bytes stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    pub(crate) days_observed: usize,
    pub(crate) bytes_per_day: f64,
    /// Ends of the interval.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Forecast of when the repository will be full: days from the last one observed; `None`: not within ten years.
///
/// A straight line is fitted (least squares) to the bytes stored at the end of each day. Its slope is the growth; the
/// slope's standard error gives the interval, widened for days that resemble their neighbours (the residuals
/// of a sum are correlated, and treating them as independent would promise too much). The free space
/// divided by the slope and by the interval's ends gives the dates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Forecast {
    TooEarly,
    NotGrowing,
    Growing { full_in: Option<f64>, earliest: Option<f64>, latest: Option<f64> },
}

/// The growth of `stored`, bytes at the end of consecutive days; `None` when there are too few of them.
pub(crate) fn growth(stored: &[u64]) -> Option<Growth> {
    let from = stored.len().saturating_sub(DAYS_MAX);
    let days = stored.get(from..)?;
    if days.len() < DAYS_MIN {
        return None;
    }
    let (count, points) =
        (float(days.len()), || days.iter().enumerate().map(|(x, y)| (float(x), float_bytes(*y))));
    let mean_x = (count - 1.0) / 2.0;
    let mean_y = points().map(|(_, y)| y).sum::<f64>() / count;
    let spread: f64 = points().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = points().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / spread;
    let residuals: Vec<f64> = points().map(|(x, y)| y - mean_y - slope * (x - mean_x)).collect();
    let squares: f64 = residuals.iter().map(|r| r * r).sum();
    let error = (squares / (count - 2.0) / spread).sqrt() * widening(&residuals, squares);
    let margin = student(days.len() - 2) * error;
    Some(Growth {
        days_observed: days.len(),
        bytes_per_day: slope,
        low: slope - margin,
        high: slope + margin,
    })
}

/// `sqrt((1 + r) / (1 − r))` for the correlation `r` of neighbouring residuals (a first-order process).
fn widening(residuals: &[f64], squares: f64) -> f64 {
    if squares <= 0.0 {
        return 1.0;
    }
    let products: f64 = residuals.iter().zip(residuals.iter().skip(1)).map(|(a, b)| a * b).sum();
    let correlation = (products / squares).clamp(0.0, 0.9);
    ((1.0 + correlation) / (1.0 - correlation)).sqrt()
}

fn student(freedom: usize) -> f64 {
    freedom.checked_sub(1).and_then(|index| T_95.get(index)).copied().unwrap_or(T_95_BEYOND)
}

/// Forecast of the day when `room_bytes` are used up at that growth.
pub(crate) fn forecast(growth: Option<&Growth>, room_bytes: u64) -> Forecast {
    let Some(growth) = growth else { return Forecast::TooEarly };
    // Less than a byte a day is rounding.
    if growth.bytes_per_day < 1.0 {
        return Forecast::NotGrowing;
    }
    let room = float_bytes(room_bytes);
    let days = |rate: f64| (rate >= 1.0).then(|| room / rate).filter(|days| *days <= HORIZON_DAYS);
    Forecast::Growing {
        full_in: days(growth.bytes_per_day),
        earliest: days(growth.high),
        latest: days(growth.low),
    }
}

fn float(number: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "at most DAYS_MAX")]
    let float = number as f64;
    float
}

fn float_bytes(count: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a forecast")]
    let float = count as f64;
    float
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-6 * b.abs().max(1.0)
    }

    #[test]
    fn steady_growth_has_an_exact_date() {
        let stored: Vec<u64> = (0..10).map(|day| 100 * GIB + day * GIB).collect();
        let growth = growth(&stored).unwrap();
        assert!(near(growth.bytes_per_day, GIB as f64), "{growth:?}");
        assert!(near(growth.low, growth.high), "nothing is uncertain: {growth:?}");
        let Forecast::Growing { full_in, earliest, latest } = forecast(Some(&growth), 50 * GIB) else {
            panic!()
        };
        for days in [full_in, earliest, latest] {
            assert!((days.unwrap() - 50.0).abs() < 1e-3, "{days:?}");
        }
    }

    #[test]
    fn the_interval_is_that_of_the_textbook() {
        // Slope 2 with residuals of no correlation between neighbours worth widening for.
        let stored = [10, 13, 13, 17, 17, 21, 21];
        let growth = growth(&stored).unwrap();
        // By hand: Sxx = 28, Sxy = 53, Syy = 106; s² = (106 − 53²/28)/5; t(5) = 2.015.
        let slope = 53.0 / 28.0;
        let error = ((106.0 - 53.0 * 53.0 / 28.0) / 5.0_f64 / 28.0).sqrt();
        assert!(near(growth.bytes_per_day, slope), "{growth:?}");
        assert!(
            near(growth.high, slope + 2.015 * error) && near(growth.low, slope - 2.015 * error),
            "{growth:?}"
        );
    }

    #[test]
    fn neighbours_that_resemble_each_other_widen_it() {
        let independent: Vec<u64> = (0..40).map(|day| 1000 * day + 400 * (day % 2)).collect();
        let alike: Vec<u64> = (0..40).map(|day| 1000 * day + 400 * (day / 10 % 2)).collect();
        let width = |stored: &[u64]| growth(stored).map(|g| g.high - g.low).unwrap();
        assert!(width(&alike) > 2.0 * width(&independent), "{} {}", width(&alike), width(&independent));
    }

    #[test]
    fn what_cannot_be_said_is_not_said() {
        assert_eq!(forecast(growth(&[1, 2]).as_ref(), GIB), Forecast::TooEarly);
        assert_eq!(forecast(growth(&[5, 5, 5, 5]).as_ref(), GIB), Forecast::NotGrowing);
        assert_eq!(forecast(growth(&[9, 8, 7, 6]).as_ref(), GIB), Forecast::NotGrowing);
        let slow = growth(&[0, 10, 20]).unwrap();
        let never = Forecast::Growing { full_in: None, earliest: None, latest: None };
        assert_eq!(forecast(Some(&slow), GIB), never, "beyond ten years");
        let jumpy = growth(&[0, GIB, GIB / 2, 2 * GIB]).unwrap();
        let Forecast::Growing { full_in, earliest, latest } = forecast(Some(&jumpy), 100 * GIB) else {
            panic!()
        };
        assert!(earliest < full_in && latest.is_none(), "it may as well not grow at all");
    }

    #[test]
    fn only_the_last_days_count() {
        let mut stored: Vec<u64> = vec![0; 300];
        stored.extend((1..=90).map(|day| day * GIB));
        let growth = growth(&stored).unwrap();
        assert_eq!(growth.days_observed, DAYS_MAX);
        assert!(near(growth.bytes_per_day, GIB as f64));
    }
}
