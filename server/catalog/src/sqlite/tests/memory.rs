//! An answer's memory does not grow with history. Asserted on the peak of a process of its own, over rows each of which is
//! a run of its own.

use std::process::Command;

use super::*;
use crate::{DetailFilter, DetailSort, SortOrder, TotalsBy, TotalsOrder, TotalsSort};

const ROWS: u64 = 150_000;

/// SQLite's caches and sorters, and what a page needs. Each of 150,000 rows kept takes 80 bytes or more.
const ALLOWED_KIB: u64 = 12 << 10;

/// Makes this test ask, in the process that it starts.
const ASK: &str = "HOLDFAST_TEST_ASK";

#[test]
fn answers_hold_no_history() {
    if let Some(folder) = std::env::var_os(ASK) {
        return ask(Path::new(&folder));
    }
    let home = Home::new();
    let fixture = home.create();
    fixture.committed("web", "nightly");
    home.raw()
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN; \
             CREATE TEMP TABLE one AS SELECT d.*, r.owner FROM details d JOIN runs r ON r.id = d.run_id \
                 WHERE d.position = 0; \
             CREATE TEMP TABLE many AS WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ROWS}) \
                 SELECT n, unhex(printf('%032x', n)) AS id FROM n; \
             INSERT INTO runs (id, namespace_id, job_id, started_ms, finished_ms, owner) \
                 SELECT m.id, namespace_id, job_id, started_ms + n, finished_ms + n, owner FROM many m, one; \
             INSERT INTO details SELECT m.id, position, namespace_id, job_id, m.id, vm_id, disk, m.id, status, \
                 started_ms + n, finished_ms + n, virtual_bytes, bytes, read_bytes, unchanged_bytes, dup_bytes, new_bytes, \
                 (n * 7919) % 100000, meta_bytes, wire_bytes, chunks, new_chunks, error FROM many m, one; \
             COMMIT",
        ))
        .unwrap();
    drop(fixture);
    let name = "sqlite::tests::memory::answers_hold_no_history";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ASK, &home.path)
        .status()
        .unwrap();
    assert!(status.success(), "see above");
}

fn ask(path: &Path) {
    let catalog = open(path).unwrap();
    let (none, by) = (DetailFilter::default(), TotalsSort::Column(DetailSort::PostLc));
    let order = |by| SortOrder { by, descending: true };
    let total = ROWS + 2;
    let small = |what: &str, ask: &dyn Fn()| {
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = peak_kib();
        ask();
        let grown = peak_kib() - before;
        assert!(grown <= ALLOWED_KIB, "{what} took {grown} KiB");
    };
    for column in [DetailSort::PostLc, DetailSort::Started, DetailSort::TotalFactor, DetailSort::Vm] {
        for offset in [total / 2, total - 1, 99_999_999] {
            small(&format!("{column:?} at {offset}"), &|| {
                let (page, found) = catalog.details_sorted(&none, order(column), offset, 200).unwrap();
                let expected = total.saturating_sub(offset).min(200);
                assert_eq!((page.len() as u64, found), (expected, total));
            });
        }
        small(&format!("all by {column:?}"), &|| {
            let mut sorted = catalog.all_sorted(&none, order(column)).unwrap();
            let mut rows = 0;
            while let Some(page) = sorted.next(1000).unwrap() {
                rows += page.len() as u64;
            }
            assert_eq!(rows, total);
        });
    }
    for (by_what, groups) in [(TotalsBy::Vm, 1), (TotalsBy::Repository, 1), (TotalsBy::Run, ROWS + 1)] {
        small(&format!("sums by {by_what:?}"), &|| {
            let order = TotalsOrder { by, descending: true };
            let (page, found) = catalog.detail_totals(&none, by_what, order, 0, 100).unwrap();
            assert_eq!((page.len() as u64, found), (groups.min(100), groups));
            assert!(by_what == TotalsBy::Run || page[0].runs == ROWS + 1);
        });
    }
    small("what was protected", &|| {
        assert!(!catalog.protected_days(&none, TotalsBy::Vm).unwrap().is_empty());
    });
    small("the overview", &|| {
        assert_eq!(catalog.repository_overview(None, &[None]).unwrap().windows[0].runs, ROWS + 1);
    });
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
