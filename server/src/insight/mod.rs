//! Figures in words: unusual runs and why they are, when the repository will be full, what is lost, what only agents can
//! prove. Pure functions of rows, without I/O.

pub(crate) mod explain;

use holdfast_engine::catalog::{AgentsProofs, DamagedDisk};
use holdfast_proto::details::{RowExt as _, bytes, shell_word, status_word};
use holdfast_proto::v1::{DetailRow, RowStatus};
use holdfast_proto::when::timestamp;

/// "2.6×", "130×".
fn factor(factor: f64) -> String {
    if factor < 100.0 { format!("{factor:.1}×") } else { format!("{factor:.0}×") }
}

/// "12 ×", "4.5 ×".
fn times(times: f64) -> String {
    if times < 10.0 { format!("{times:.1} ×") } else { format!("{times:.0} ×") }
}

/// A share of something in whole percent, never rounded to 0 or 100 when it is not.
fn percent(part: u64, whole: u64) -> String {
    let share = 100.0 * ratio(part, whole);
    if part == whole {
        "100 %".to_owned()
    } else if share > 99.0 {
        "over 99 %".to_owned()
    } else if share < 1.0 && part > 0 {
        "under 1 %".to_owned()
    } else {
        format!("{share:.0} %")
    }
}

/// 0 when there is no divisor.
fn ratio(a: u64, b: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    let ratio = if b == 0 { 0.0 } else { a as f64 / b as f64 };
    ratio
}

/// A namespace of which a VM was not verified by an agent for so long is reminded of: two weeks, so that a weekly timer may
/// fail once.
pub(crate) const REMIND_AFTER_MS: i64 = 14 * 86_400_000;

/// Returns true if something of it was not proved for too long.
pub(crate) const fn is_overdue(found: &AgentsProofs, now_ms: i64) -> bool {
    now_ms.saturating_sub(found.unproved_since_ms) > REMIND_AFTER_MS
}

/// One sentence for people about a namespace whose content only agents can prove: an end-to-end encrypted one.
pub(crate) fn agents_sentence(found: &AgentsProofs) -> String {
    let AgentsProofs { name, vms, never, oldest_ms, .. } = found;
    let proved = match (oldest_ms, never) {
        (None, _) => "no agent has verified any of it yet".to_owned(),
        (Some(oldest), 0) => {
            format!("agents verified all of its {vms} VMs, the first of them {}", timestamp(*oldest))
        }
        (Some(oldest), never) => {
            format!(
                "agents verified {} of its {vms} VMs, the first of them {}",
                vms - never,
                timestamp(*oldest)
            )
        }
    };
    format!(
        "namespace {name:?} is end-to-end encrypted, so its content is proved only by agents; the server proves that it has \
         what it was sent. {}",
        capital(&proved)
    )
}

/// Returns the reminder to verify, when it is due.
pub(crate) fn agents_reminder(found: &AgentsProofs, now_ms: i64) -> Option<String> {
    is_overdue(found, now_ms).then(|| {
        format!(
            "{}. Run {} at an agent with the key, best by a timer",
            agents_sentence(found),
            agents_command(found)
        )
    })
}

/// The command that has an agent prove all of it, to be pasted.
pub(crate) fn agents_command(found: &AgentsProofs) -> String {
    format!("holdfast verify --all --namespace={}", shell_word(&found.name))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// New bytes are unusual from this many times the usual amount on …
const MUCH_NEW_TIMES: u64 = 4;

/// … and from this many bytes on: a few megabytes more do not matter.
const MUCH_NEW_MIN_BYTES: u64 = 64 << 20;

/// A total factor is unusual when it falls to this share of the usual one …
const FACTOR_DROP_SHARE: f64 = 0.5;

/// … and at least this many bytes were stored: the factor of a run that stores next to nothing varies a lot.
const FACTOR_DROP_MIN_STORED_BYTES: u64 = 32 << 20;

/// Something unusual about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FlagKind {
    Failed,
    MuchNew,
    FactorDrop,
}

/// A run that is out of line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) kind: FlagKind,
    /// One sentence for people.
    pub(crate) text: String,
}

/// Flags a `row` that is out of line with what is usual for its disk. Without enough history only failures are.
pub(crate) fn flag(row: &DetailRow, usual: Option<&Usual>) -> Option<Flag> {
    if row.status != RowStatus::Done as i32 {
        return Some(Flag { kind: FlagKind::Failed, text: failure(row) });
    }
    let usual = usual?;
    if let Some(text) = much_new(row, usual) {
        return Some(Flag { kind: FlagKind::MuchNew, text });
    }
    factor_drop(row, usual).map(|text| Flag { kind: FlagKind::FactorDrop, text })
}

fn failure(row: &DetailRow) -> String {
    let word = status_word(row.status);
    if row.error.is_empty() {
        format!("No restore point: {word}")
    } else {
        format!("No restore point: {}", row.error)
    }
}

/// "12 × the usual amount of new data: 3.2 GiB instead of 270 MiB".
fn much_new(row: &DetailRow, usual: &Usual) -> Option<String> {
    if row.new_bytes < MUCH_NEW_MIN_BYTES || row.new_bytes < usual.new_bytes.saturating_mul(MUCH_NEW_TIMES) {
        return None;
    }
    let new = bytes(row.new_bytes);
    Some(if usual.new_bytes == 0 {
        format!("{new} of new data, where there is usually none")
    } else {
        let (times, usually) = (times(ratio(row.new_bytes, usual.new_bytes)), bytes(usual.new_bytes));
        format!("{times} the usual amount of new data: {new} instead of {usually}")
    })
}

fn factor_drop(row: &DetailRow, usual: &Usual) -> Option<String> {
    let (now, then) = (row.factors().total?, usual.total_factor?);
    if row.post_lc < FACTOR_DROP_MIN_STORED_BYTES || now > then * FACTOR_DROP_SHARE {
        return None;
    }
    Some(format!("Total factor {} instead of the usual {}", factor(now), factor(then)))
}

/// Ranges of a disk shown at most.
const RANGES_SHOWN: usize = 8;

/// One sentence: which bytes of which disk of which restore point.
pub(crate) fn lost_text(disk: &DamagedDisk) -> String {
    let DamagedDisk { backup, namespace_name, vm, started_ms, disk: name, lost, .. } = disk;
    let shown = lost.listed.iter().take(RANGES_SHOWN);
    let ranges: Vec<String> = shown
        .map(|range| format!("{} to {}", range.start, range.start.saturating_add(range.bytes)))
        .collect();
    let more = lost.ranges.saturating_sub(ranges.len() as u64);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "VM {vm:?} (namespace {namespace_name:?}), restore point {backup} of {}, disk {name:?}: {} bytes cannot be restored: \
         {}{more}",
        timestamp(*started_ms),
        lost.bytes,
        ranges.join(", ")
    )
}

/// Runs taken into account.
pub(crate) const LOOK_BACK: u32 = 12;

/// With fewer runs nothing is usual.
pub(crate) const RUNS_MIN: usize = 3;

/// Usual cost of a disk: medians over its last runs that ended well, which one odd run does not affect.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usual {
    /// How many runs.
    pub(crate) rows: usize,
    pub(crate) new_bytes: u64,
    /// `None` when most stored nothing.
    pub(crate) total_factor: Option<f64>,
    pub(crate) local_factor: Option<f64>,
}

impl Usual {
    /// Computed from the last [`LOOK_BACK`] done rows of `earlier`, oldest first; `None` when there are fewer than
    /// [`RUNS_MIN`].
    pub(crate) fn of(earlier: &[DetailRow]) -> Option<Self> {
        let done = earlier.iter().rev().filter(|row| row.status == RowStatus::Done as i32);
        let rows: Vec<&DetailRow> = done.take(LOOK_BACK as usize).collect();
        if rows.len() < RUNS_MIN {
            return None;
        }
        // A run that stored nothing has no factor; it counts as the best possible.
        let factors = |of: fn(&DetailRow) -> Option<f64>| {
            let found = median(rows.iter().map(|row| of(row).unwrap_or(f64::INFINITY)).collect());
            found.filter(|factor| factor.is_finite())
        };
        let mut new_bytes: Vec<u64> = rows.iter().map(|row| row.new_bytes).collect();
        new_bytes.sort_unstable();
        Some(Self {
            rows: rows.len(),
            // The lower of two middle ones, so that the number shown is one that occurred.
            new_bytes: new_bytes.get((new_bytes.len() - 1) / 2).copied()?,
            total_factor: factors(|row| row.factors().total),
            local_factor: factors(|row| row.factors().local),
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

/// Days taken into account: older ones say little about the next months.
pub(crate) const DAYS_MAX: usize = 90;

/// With fewer days there is no trend.
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

/// How fast it grows.
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
/// of a sum that only grows are correlated, and treating them as independent would promise too much). The free space
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

/// When `room_bytes` are used up at that growth.
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
pub(crate) mod tests {
    use holdfast_engine::ids::NamespaceId;

    use super::*;

    pub(crate) const MIB: u64 = 1 << 20;

    /// A done row of a disk of 10 GiB with that much new, stored at half.
    pub(crate) fn done(new_mib: u64) -> DetailRow {
        let (bytes, new_bytes) = (10_240 * MIB, new_mib * MIB);
        DetailRow {
            status: RowStatus::Done.into(),
            virtual_bytes: 2 * bytes,
            bytes,
            read_bytes: new_bytes,
            new_bytes,
            unchanged_bytes: bytes - new_bytes,
            post_lc: new_bytes / 2,
            ..DetailRow::default()
        }
    }

    #[test]
    fn shares_are_never_rounded_to_nothing_or_all() {
        assert_eq!(percent(0, 10), "0 %");
        assert_eq!(percent(1, 1000), "under 1 %");
        assert_eq!(percent(999, 1000), "over 99 %");
        assert_eq!(percent(10, 10), "100 %");
        assert_eq!(percent(1, 3), "33 %");
    }

    const DAY_MS: i64 = 86_400_000;

    fn proofs(vms: u64, never: u64, oldest_ms: Option<i64>, since_ms: i64) -> AgentsProofs {
        AgentsProofs {
            namespace: NamespaceId::from_bytes([1; 16]),
            name: "vault".to_owned(),
            vms,
            never,
            oldest_ms,
            unproved_since_ms: since_ms,
        }
    }

    #[test]
    fn a_namespace_is_reminded_of_after_two_weeks() {
        let now = 1000 * DAY_MS;
        let fresh = proofs(3, 0, Some(now - 13 * DAY_MS), now - 13 * DAY_MS);
        assert_eq!(agents_reminder(&fresh, now), None);
        assert!(agents_sentence(&fresh).contains("proved only by agents"), "{}", agents_sentence(&fresh));
        let late = proofs(3, 1, Some(now - DAY_MS), now - 15 * DAY_MS);
        let told = agents_reminder(&late, now).unwrap();
        assert!(
            told.contains("2 of its 3 VMs") && told.contains("holdfast verify --all --namespace=vault"),
            "{told}"
        );
        let never = proofs(1, 1, None, now - 15 * DAY_MS);
        assert!(agents_reminder(&never, now).unwrap().contains("No agent has verified"));
        assert_eq!(
            agents_reminder(&proofs(1, 1, None, now + DAY_MS), now),
            None,
            "a clock that was set back"
        );
    }

    fn flagged(row: &DetailRow, earlier: &[DetailRow]) -> Option<Flag> {
        flag(row, Usual::of(earlier).as_ref())
    }

    #[test]
    fn much_new_data_is_flagged_with_figures() {
        let earlier = [done(270), done(260), done(280)];
        let found = flagged(&done(3277), &earlier).unwrap();
        assert_eq!(found.kind, FlagKind::MuchNew);
        assert_eq!(found.text, "12 × the usual amount of new data: 3.20 GiB instead of 270 MiB");
        let kind = |row| flagged(&row, &earlier).map(|flag| flag.kind);
        assert_eq!(kind(done(1080)), Some(FlagKind::MuchNew));
        assert_eq!(kind(done(1079)), Some(FlagKind::FactorDrop), "just below four times");
        assert_eq!(kind(done(530)), None);
        let quiet = [done(0), done(0), done(0)];
        assert_eq!(flagged(&done(63), &quiet), None, "a few megabytes are no news");
        assert!(flagged(&done(64), &quiet).unwrap().text.contains("usually none"));
    }

    #[test]
    fn a_drop_of_the_factor_is_one_by_half() {
        let earlier = [done(100), done(100), done(100)];
        // Not more new than usual, but it does not compress.
        let worse = DetailRow { post_lc: 100 * MIB, ..done(100) };
        let found = flagged(&worse, &earlier).unwrap();
        assert_eq!(
            (found.kind, found.text.as_str()),
            (FlagKind::FactorDrop, "Total factor 102× instead of the usual 205×")
        );
        assert_eq!(flagged(&DetailRow { post_lc: 99 * MIB, ..done(100) }, &earlier), None);
        let tiny = [done(1), done(1), done(1)];
        assert_eq!(flagged(&DetailRow { post_lc: 4 * MIB, ..done(4) }, &tiny), None, "too little to matter");
    }

    #[test]
    fn a_disk_without_history_is_not_judged() {
        assert_eq!(flagged(&done(10_240), &[]), None, "a first full");
        assert_eq!(flagged(&done(5000), &[done(10_240), done(1)]), None);
    }

    #[test]
    fn failures_are_flagged_with_their_reason() {
        let row = DetailRow { status: RowStatus::Expired.into(), ..done(1) };
        assert_eq!(flagged(&row, &[]).unwrap().text, "No restore point: expired");
        let row = DetailRow { error: "disk gone".into(), ..row };
        assert_eq!(flagged(&row, &[]).unwrap().text, "No restore point: disk gone");
    }

    #[test]
    fn one_odd_run_does_not_affect_it() {
        let usual = Usual::of(&[done(10_000), done(100), done(102), done(98)]).unwrap();
        assert_eq!((usual.rows, usual.new_bytes), (4, 100 * MIB));
        assert_eq!(usual.local_factor, Some(2.0));
    }

    #[test]
    fn only_the_last_good_runs_count() {
        let mut rows = vec![done(5000); 20];
        rows.extend(vec![done(10); 12]);
        rows.push(DetailRow { status: RowStatus::Failed.into(), ..done(9000) });
        assert_eq!(Usual::of(&rows).unwrap().new_bytes, 10 * MIB);
        assert_eq!(Usual::of(&rows[..2]), None);
        assert_eq!(Usual::of(&[]), None);
    }

    #[test]
    fn runs_that_store_nothing_have_no_factor() {
        assert_eq!(Usual::of(&[done(0), done(0), done(0)]).unwrap().total_factor, None);
    }

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
