//! Marks runs that are out of line with their disk's history.

use holdfast_proto::details::{RowExt as _, bytes, status_word};
use holdfast_proto::v1::{DetailRow, RowStatus};

use super::{Usual, factor, ratio, times};

/// New bytes are unusual from this many times the usual amount on …
const MUCH_NEW_TIMES: u64 = 4;

/// … and from this many bytes on: a few megabytes more do not matter.
const MUCH_NEW_MIN_BYTES: u64 = 64 << 20;

/// A total factor is unusual when it falls to this share of the usual one …
const FACTOR_DROP_SHARE: f64 = 0.5;

/// … and at least this many bytes were stored: the factor of a run that stores next to nothing varies a lot.
const FACTOR_DROP_MIN_STORED_BYTES: u64 = 32 << 20;

/// What is unusual about a run.
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

/// Whether `row` is out of line with what is usual for its disk. Without enough history only failures are.
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
pub(super) fn much_new(row: &DetailRow, usual: &Usual) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, done};
    use super::*;

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
}
