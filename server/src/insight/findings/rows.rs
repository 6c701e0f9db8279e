//! Single disks: what a row says by itself, and how it compares with earlier rows of its disk.

use holdfast_engine::catalog::{Amounts, RunSums};
use holdfast_proto::api::{DetailRow, Figures, Finding, FindingKind, RowStatus};

use super::usual::{Past, RECENT_RUNS};
use super::{Found, Subject, finding, latest};

/// A failure, or attempts in vain: what needs no history.
pub(crate) fn of_row(row: &DetailRow) -> Option<Finding> {
    let (run, sum) = (run(row, true), amounts(row));
    if row.status != RowStatus::Done {
        let failed =
            finding(&Found::of_run(FindingKind::Failed, &run, sum, 0), subject(row), row.finished_ms);
        let why = if row.error.is_empty() { row.status.word() } else { row.error.as_str() };
        return Some(Finding { text: format!("{}: {why}", failed.text), ..failed });
    }
    let retried = Found::of_run(FindingKind::Retried, &run, sum, row.retried_post_lc);
    (row.retried_post_lc > 0).then(|| finding(&retried, subject(row), row.finished_ms))
}

/// Comparison of a disk with its own past.
#[derive(Debug, Default)]
pub(crate) struct DiskPast {
    /// Runs that `usual` is taken over, or that there are where there is too little to say.
    pub(crate) runs: usize,
    pub(crate) usual: Option<Figures>,
    pub(crate) finding: Option<Finding>,
}

impl DiskPast {
    /// Compares a row with the earlier rows of a disk, oldest first.
    pub(crate) fn of(row: &DetailRow, earlier: &[DetailRow]) -> Self {
        let done = earlier.iter().filter(|row| row.status == RowStatus::Done);
        // The oldest may or may not be the first full, which is unlike all that follow.
        let mut runs: Vec<RunSums> =
            done.enumerate().map(|(place, row)| run(row, place == 0 || row.first_full)).collect();
        let mut past = Past::default();
        runs.iter().skip(1).for_each(|run| past.push(*run));
        let (count, usual) = (runs.len().min(RECENT_RUNS), past.usual(row.started_ms));
        let mut found = None;
        if row.status == RowStatus::Done && count > 0 {
            runs.push(run(row, false));
            found = latest(&runs);
        }
        let disk = format!("{}, disk {}", row.vm, row.disk);
        let words = |found| finding(&found, Subject { vm: &disk, ..subject(row) }, row.finished_ms);
        Self { runs: count, usual: usual.map(|usual| usual.figures), finding: found.map(words) }
    }
}

fn subject(row: &DetailRow) -> Subject<'_> {
    Subject { namespace: &row.namespace, job: &row.job, vm: &row.vm }
}

fn run(row: &DetailRow, is_first: bool) -> RunSums {
    let (sum, none) = (amounts(row), Amounts::default());
    let (known, first) = if is_first { (none, sum) } else { (sum, none) };
    RunSums { started_ms: row.started_ms, finished_ms: row.finished_ms, known, first }
}

const fn amounts(row: &DetailRow) -> Amounts {
    Amounts {
        bytes: row.bytes,
        read_bytes: row.read_bytes,
        dup_bytes: row.dup_bytes.saturating_sub(row.retried_new_bytes),
        new_bytes: row.new_bytes.saturating_add(row.retried_new_bytes),
        stored_bytes: row.post_lc.saturating_add(row.retried_post_lc),
        retried_bytes: row.retried_post_lc,
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::explain::tests::{MIB, done, past};
    use super::*;

    #[test]
    fn failures_are_told_with_their_reason() {
        let row = DetailRow { status: RowStatus::Expired, ..done(1) };
        assert_eq!(of_row(&row).unwrap().text, "nightly/db: no restore point: expired");
        let row = DetailRow { error: "disk gone".into(), ..row };
        assert_eq!(of_row(&row).unwrap().text, "nightly/db: no restore point: disk gone");
        assert_eq!(of_row(&done(1)), None);
    }

    #[test]
    fn a_retry_is_told_with_what_was_stored_before_it() {
        let retry = DetailRow { retried_new_bytes: 90 * MIB, retried_post_lc: 45 * MIB, ..done(10) };
        let found = of_row(&retry).unwrap();
        let text = "nightly/db: the attempts before it stored 45.0 MiB, which its factors count";
        assert_eq!((found.kind, found.text.as_str()), (FindingKind::Retried, text));
        assert_eq!(found.more_bytes, 45 * MIB);
    }

    /// An attempt that fails leaves what it stored, and the next finds it there.
    #[test]
    fn what_a_retry_found_of_its_own_is_new() {
        let retry = DetailRow { dup_bytes: 7000 * MIB, retried_new_bytes: 7000 * MIB, ..done(1000) };
        let sum = amounts(&retry);
        assert_eq!((sum.dup_bytes, sum.new_bytes), (0, 8000 * MIB));
    }

    #[test]
    fn a_disk_is_compared_with_its_own_past() {
        let found = DiskPast::of(&done(8000), &past(20));
        assert_eq!((found.runs, found.usual.unwrap().new_bytes), (20, 100 * MIB));
        let text = "nightly/db, disk sda: 205× → 2.6×, 3.86 GiB more than usual, since ";
        assert!(found.finding.unwrap().text.starts_with(text));
        let found = DiskPast::of(&done(8000), &past(3));
        assert_eq!((found.runs, found.usual, found.finding), (3, None, None));
        assert_eq!(DiskPast::of(&done(8000), &[]).finding, None);
    }

    /// Failed rows count only once they were made up for.
    #[test]
    fn failed_rows_are_no_past() {
        let mut rows = past(10);
        rows.push(DetailRow { status: RowStatus::Failed, ..done(9000) });
        assert_eq!(DiskPast::of(&done(100), &rows).runs, 10);
        let failed = DetailRow { status: RowStatus::Failed, ..done(9000) };
        assert_eq!(DiskPast::of(&failed, &past(10)).finding, None);
    }
}
