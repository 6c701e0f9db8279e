//! Runs that are out of line with what is usual for their disk: failed, much new data, a total factor that fell, or attempts
//! before them that failed.

use holdfast_proto::api::{DetailRow, RowStatus};
use holdfast_proto::details::bytes;

use super::{factor, ratio, times};

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
    Retried,
}

/// A run that is out of line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flag {
    pub(crate) kind: FlagKind,
    /// One sentence for people.
    pub(crate) text: String,
}

/// Flags a `row` that is out of line with what is usual for its disk. Without enough history only failures
/// and what came of them are.
pub(crate) fn flag(row: &DetailRow, usual: Option<&Usual>) -> Option<Flag> {
    if row.status != RowStatus::Done {
        return Some(Flag { kind: FlagKind::Failed, text: failure(row) });
    }
    let found = |kind| move |text| Flag { kind, text };
    usual
        .and_then(|usual| much_new(row, usual))
        .map(found(FlagKind::MuchNew))
        .or_else(|| factor_drop(row, usual?).map(found(FlagKind::FactorDrop)))
        .or_else(|| retried(row).map(found(FlagKind::Retried)))
}

/// "The attempts before it stored 461 GiB, which its factors count".
pub(super) fn retried(row: &DetailRow) -> Option<String> {
    let stored = row.retried_post_lc;
    (stored > 0).then(|| format!("The attempts before it stored {}, which its factors count", bytes(stored)))
}

/// New bytes of a run and of the attempts before it that failed.
const fn new_bytes(row: &DetailRow) -> u64 {
    row.new_bytes.saturating_add(row.retried_new_bytes)
}

fn failure(row: &DetailRow) -> String {
    let word = row.status.word();
    if row.error.is_empty() {
        format!("No restore point: {word}")
    } else {
        format!("No restore point: {}", row.error)
    }
}

/// "12 × the usual amount of new data: 3.2 GiB instead of 270 MiB".
pub(super) fn much_new(row: &DetailRow, usual: &Usual) -> Option<String> {
    let new_bytes = new_bytes(row);
    if new_bytes < MUCH_NEW_MIN_BYTES || new_bytes < usual.new_bytes.saturating_mul(MUCH_NEW_TIMES) {
        return None;
    }
    let new = bytes(new_bytes);
    Some(if usual.new_bytes == 0 {
        format!("{new} of new data, where there is usually none")
    } else {
        let (times, usually) = (times(ratio(new_bytes, usual.new_bytes)), bytes(usual.new_bytes));
        format!("{times} the usual amount of new data: {new} instead of {usually}")
    })
}

fn factor_drop(row: &DetailRow, usual: &Usual) -> Option<String> {
    let (now, then) = (row.factors().total?, usual.total_factor?);
    if row.post_lc.saturating_add(row.retried_post_lc) < FACTOR_DROP_MIN_STORED_BYTES
        || now > then * FACTOR_DROP_SHARE
    {
        return None;
    }
    Some(format!("Total factor {} instead of the usual {}", factor(now), factor(then)))
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
        let done = earlier.iter().rev().filter(|row| row.status == RowStatus::Done);
        let rows: Vec<&DetailRow> = done.take(LOOK_BACK as usize).collect();
        if rows.len() < RUNS_MIN {
            return None;
        }
        // A run that stored nothing has no factor; it counts as the best possible.
        let factors = |of: fn(&DetailRow) -> Option<f64>| {
            let found = median(rows.iter().map(|row| of(row).unwrap_or(f64::INFINITY)).collect());
            found.filter(|factor| factor.is_finite())
        };
        let mut new_bytes: Vec<u64> = rows.iter().map(|row| new_bytes(row)).collect();
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) const MIB: u64 = 1 << 20;

    /// A done row of a disk of 10 GiB with that much new, stored at half.
    pub(crate) fn done(new_mib: u64) -> DetailRow {
        let (bytes, new_bytes) = (10_240 * MIB, new_mib * MIB);
        DetailRow {
            status: RowStatus::Done,
            virtual_bytes: 2 * bytes,
            bytes,
            read_bytes: new_bytes,
            new_bytes,
            unchanged_bytes: bytes - new_bytes,
            post_lc: new_bytes / 2,
            ..DetailRow::default()
        }
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
        let row = DetailRow { status: RowStatus::Expired, ..done(1) };
        assert_eq!(flagged(&row, &[]).unwrap().text, "No restore point: expired");
        let row = DetailRow { error: "disk gone".into(), ..row };
        assert_eq!(flagged(&row, &[]).unwrap().text, "No restore point: disk gone");
    }

    #[test]
    fn a_retry_is_flagged_with_what_was_stored_before_it() {
        let retry = DetailRow { retried_new_bytes: 90 * MIB, retried_post_lc: 45 * MIB, ..done(10) };
        let found = flagged(&retry, &[]).unwrap();
        assert_eq!(
            (found.kind, found.text.as_str()),
            (FlagKind::Retried, "The attempts before it stored 45.0 MiB, which its factors count")
        );
        let kind = |row, earlier: &[DetailRow]| flagged(&row, earlier).map(|flag| flag.kind);
        assert_eq!(
            kind(retry.clone(), &[done(25), done(25), done(25)]),
            Some(FlagKind::MuchNew),
            "100 MiB in all"
        );
        assert_eq!(
            kind(retry, &[done(50), done(50), done(50)]),
            Some(FlagKind::FactorDrop),
            "205× and not 2048×"
        );
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
        rows.push(DetailRow { status: RowStatus::Failed, ..done(9000) });
        assert_eq!(Usual::of(&rows).unwrap().new_bytes, 10 * MIB);
        assert_eq!(Usual::of(&rows[..2]), None);
        assert_eq!(Usual::of(&[]), None);
    }

    #[test]
    fn runs_that_store_nothing_have_no_factor() {
        assert_eq!(Usual::of(&[done(0), done(0), done(0)]).unwrap().total_factor, None);
    }
}
