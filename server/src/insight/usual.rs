//! What a disk usually costs: medians over its last runs, which one odd run does not affect.

use holdfast_proto::details::RowExt as _;
use holdfast_proto::v1::{DetailRow, RowStatus};

/// Runs taken into account.
pub(crate) const LOOK_BACK: u32 = 12;

/// With fewer runs nothing is usual.
pub(crate) const RUNS_MIN: usize = 3;

/// Medians over runs that ended well.
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
    /// Of the last [`LOOK_BACK`] done rows of `earlier`, oldest first; `None` when there are fewer than
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

#[cfg(test)]
mod tests {
    use super::super::tests::{MIB, done};
    use super::*;

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
}
