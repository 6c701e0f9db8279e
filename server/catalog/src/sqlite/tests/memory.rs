//! An answer's memory does not grow with history. Asserted on the peak of a process of its own, over rows each of which is
//! a run of its own.

use std::process::Command;

use super::*;
use crate::{DetailFilter, DetailSort, RowStatus, SortOrder, TotalsBy, TotalsOrder, TotalsSort};

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
             INSERT INTO details SELECT NULL, m.id, position, namespace_id, job_id, m.id, vm_id, disk, m.id, status, \
                 started_ms + n, finished_ms + n, virtual_bytes, bytes, read_bytes, unchanged_bytes, dup_bytes, new_bytes, \
                 (n * 7919) % 100000, meta_bytes, wire_bytes, chunks, new_chunks, error, \
                 retried_new_bytes, retried_post_lc, \
                 first_full, level, host, agent, reading_ms, compressing_ms, waiting_ms FROM many m, one; \
             COMMIT",
        ))
        .unwrap();
    fixture.add_up().unwrap();
    drop(fixture);
    let name = "sqlite::tests::memory::answers_hold_no_history";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ASK, &home.path)
        .status()
        .unwrap();
    assert!(status.success(), "see above");
}

/// A run of 500 VMs takes a page no more memory than one of a single VM.
#[test]
fn a_deep_page_of_runs_of_many_vms_holds_none_of_them() {
    let name = "sqlite::tests::memory::a_deep_page_of_runs_of_many_vms_holds_none_of_them";
    if let Some(path) = std::env::var_os(ASK) {
        let catalog = open(Path::new(&path)).unwrap();
        let none = DetailFilter::default();
        let order = TotalsOrder { by: TotalsSort::Rows, descending: false };
        let grown = grown_kib(&|| {
            let (page, total) = catalog.detail_totals(&none, TotalsBy::Run, order, 300, 100).unwrap();
            assert_eq!((page.len(), total, page[0].vms), (100, 401, 500));
        });
        // As sets of VMs, the runs take 9 MB.
        assert!(grown <= 6 << 10, "took {grown} KiB");
        return;
    }
    let home = Home::new();
    fill(&home, 400);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(ASK, &home.path)
        .status()
        .unwrap();
    assert!(status.success(), "see above");
}

/// (W17) Many rows are sorted on the disk: not where that would take what must stay free, nor for longer than wanted.
#[test]
fn a_sort_of_many_rows_ends_where_room_does() {
    let home = Home::new();
    fill(&home, 50);
    // Found by their index, failures are sorted by run before they are added up.
    home.raw()
        .execute_batch(
            "PRAGMA synchronous = OFF; \
             UPDATE details SET status = 'failed', backup_id = NULL",
        )
        .unwrap();
    let catalog = home.open().unwrap();
    let failed = DetailFilter { statuses: Some(vec![RowStatus::Failed]), ..DetailFilter::default() };
    let vms = |filter: &DetailFilter| {
        let totals = catalog.detail_totals(filter, TotalsBy::Vm, TotalsOrder::WORST_FIRST, 0, 9);
        totals.map(|(_, total)| total)
    };
    let (none, order) = (DetailFilter::default(), SortOrder { by: DetailSort::PostLc, descending: true });
    let sorted = |go_on: bool| catalog.all_sorted(&none, order, Box::new(move || go_on)).map(drop);
    let page = |offset| catalog.details_sorted(&none, order, offset, 200).map(|(page, _)| page.len());
    sorted(true).unwrap();
    assert_eq!((page(24_000).unwrap(), vms(&failed).unwrap()), (200, 501));
    let refused = sorted(false).unwrap_err();
    assert!(matches!(refused, CatalogError::Io { .. }), "{refused:?}");
    catalog.leave_free(1 << 60);
    for refused in [sorted(true).unwrap_err(), page(24_000).unwrap_err(), vms(&failed).unwrap_err()] {
        assert!(matches!(refused, CatalogError::Full), "{refused:?}");
    }
    assert_eq!(page(0).unwrap(), 200, "the first ones are kept in memory");
    assert_eq!(vms(&none).unwrap(), 501, "an index has them in order of their runs");
}

/// So many runs of 500 VMs each.
fn fill(home: &Home, runs: u64) {
    home.create().committed("web", "nightly");
    let rows = runs * 500;
    home.raw()
        .execute_batch(&format!(
            "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; BEGIN; \
             CREATE TEMP TABLE one AS SELECT d.*, r.owner FROM details d JOIN runs r ON r.id = d.run_id \
                 WHERE d.position = 0; \
             CREATE TEMP TABLE many AS WITH RECURSIVE n(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n + 1 < {rows}) \
                 SELECT n, unhex(printf('%032x', n + 1)) AS id, unhex(printf('%032x', n / 500 + 1)) AS run, \
                 unhex(printf('%032x', n % 500 + 1)) AS vm FROM n; \
             INSERT INTO vms (id, namespace_id, name, created_ms) SELECT m.id, namespace_id, 'vm-' || n, 0 \
                 FROM many m, one WHERE n < 500; \
             INSERT INTO runs (id, namespace_id, job_id, started_ms, finished_ms, owner) \
                 SELECT DISTINCT m.run, namespace_id, job_id, started_ms, finished_ms, owner FROM many m, one; \
             INSERT INTO details SELECT NULL, m.id, position, namespace_id, job_id, m.run, m.vm, disk, m.id, status, \
                 started_ms, finished_ms, virtual_bytes, bytes, read_bytes, unchanged_bytes, dup_bytes, new_bytes, \
                 post_lc, meta_bytes, wire_bytes, chunks, new_chunks, error, \
                 retried_new_bytes, retried_post_lc, \
                 first_full, level, host, agent, reading_ms, compressing_ms, waiting_ms FROM many m, one; \
             COMMIT",
        ))
        .unwrap();
}

fn grown_kib(ask: &dyn Fn()) -> u64 {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak_kib();
    ask();
    peak_kib() - before
}

fn ask(path: &Path) {
    let catalog = open(path).unwrap();
    let (none, by) = (DetailFilter::default(), TotalsSort::Column(DetailSort::PostLc));
    let order = |by| SortOrder { by, descending: true };
    let total = ROWS + 2;
    let small = |what: &str, ask: &dyn Fn()| {
        let grown = grown_kib(ask);
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
            let mut sorted = catalog.all_sorted(&none, order(column), Box::new(|| true)).unwrap();
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
