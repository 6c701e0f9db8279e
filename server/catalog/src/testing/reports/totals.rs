//! Rows added up.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use holdfast_proto::api::TotalsRow;
use holdfast_proto::details::{Factors, Totals};

use super::cases;
use super::model::{filters, make, matches};
use crate::testing::fixture::Fixture;
use crate::{
    CatalogError, DayTotals, DetailEntry, DetailFilter, DetailRow, DetailSort, REPORT_PAGE_MAX, RowStatus,
    TREND_POINTS, TotalsBy, TotalsOrder, TotalsSort,
};

cases![
    groups_add_up_and_sort_by_any_column,
    every_filter_holds_for_sums,
    pages_of_sums_are_parts_of_the_list,
    trends_are_of_the_latest_runs,
    days_add_up,
    sums_are_bounded,
];

const EVERY: [TotalsBy; 6] =
    [TotalsBy::Run, TotalsBy::Vm, TotalsBy::Job, TotalsBy::Disk, TotalsBy::Namespace, TotalsBy::Repository];

/// Names of a row's group: namespace, job, VM, disk, run.
fn names(by: TotalsBy, row: &DetailRow) -> [String; 5] {
    let told = match by {
        TotalsBy::Run => [true, true, false, false, true],
        TotalsBy::Vm => [true, false, true, false, false],
        TotalsBy::Job => [true, true, false, false, false],
        TotalsBy::Disk => [true, false, true, true, false],
        TotalsBy::Namespace => [true, false, false, false, false],
        TotalsBy::Repository => [false; 5],
    };
    let all = [&row.namespace, &row.job, &row.vm, &row.disk, &row.run];
    std::array::from_fn(|n| if told[n] { all[n].clone() } else { String::new() })
}

/// The groups of these rows, in order of their names; runs in order of time.
fn model(by: TotalsBy, rows: &[&DetailRow]) -> Vec<TotalsRow> {
    let mut groups: BTreeMap<[String; 5], Vec<&DetailRow>> = BTreeMap::new();
    for row in rows {
        groups.entry(names(by, row)).or_default().push(row);
    }
    let mut totals: Vec<_> = groups
        .into_iter()
        .map(|([namespace, job, vm, disk, run], members)| {
            let mut sums = Totals::default();
            members.iter().for_each(|row| sums.add(row));
            let distinct = |of: fn(&DetailRow) -> (&str, &str)| {
                members.iter().map(|row| of(row)).collect::<BTreeSet<_>>().len() as u64
            };
            let related: Vec<&DetailRow> = match by {
                TotalsBy::Run => {
                    let of_job = |row: &&&DetailRow| row.namespace == namespace && row.job == job;
                    rows.iter().filter(of_job).filter(|row| row.run <= run).copied().collect()
                }
                _ => members.clone(),
            };
            let vms = distinct(|row| (&row.namespace, &row.vm));
            let runs = distinct(|row| ("", &row.run));
            let trend = trend(&related);
            TotalsRow { namespace, job, vm, disk, run, vms, runs, sums: sums.into(), trend, used: None }
        })
        .collect();
    if by == TotalsBy::Run {
        totals.sort_by(|a, b| (a.sums.totals.started_ms, &a.run).cmp(&(b.sums.totals.started_ms, &b.run)));
    }
    totals
}

fn trend(rows: &[&DetailRow]) -> Vec<Option<f64>> {
    let mut runs: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for row in rows {
        let sums = runs.entry(&row.run).or_default();
        if row.status == RowStatus::Done {
            *sums = (sums.0 + row.bytes, sums.1 + row.post_lc + row.retried_post_lc);
        }
    }
    let factors = runs.values().map(|sums| Factors::of(sums.0, 0, sums.1).total);
    factors.skip(runs.len().saturating_sub(TREND_POINTS as usize)).collect()
}

/// Returns the sort key of a group; `None` comes last.
fn key(by: TotalsSort, group: &TotalsRow) -> Option<(String, f64)> {
    use DetailSort as S;
    let t = &group.sums.totals;
    let text = |text: &String| (!text.is_empty()).then(|| (text.clone(), 0.0));
    let number = |number: Option<f64>| number.map(|number| (String::new(), number));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let count = |count: u64| Some((String::new(), count as f64));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let rate = (t.seconds() > 0.0).then(|| t.bytes as f64 / 1e6 / t.seconds());
    match by {
        TotalsSort::Rows => count(t.rows),
        TotalsSort::Failed => count(t.failed),
        TotalsSort::Column(column) => match column {
            S::Namespace => text(&group.namespace),
            S::Job => text(&group.job),
            S::Vm => text(&group.vm),
            S::Disk => text(&group.disk),
            S::Run => text(&group.run),
            S::Started => count(t.started_ms.try_into().unwrap()),
            S::Finished => count(t.finished_ms.try_into().unwrap()),
            S::Seconds => number(Some(t.seconds())),
            S::MbPerS => number(rate),
            S::VirtualBytes => count(t.virtual_bytes),
            S::Bytes => count(t.bytes),
            S::ReadBytes => count(t.read_bytes),
            S::UnchangedBytes => count(t.unchanged_bytes),
            S::DupBytes => count(t.dup_bytes),
            S::NewBytes => count(t.new_bytes),
            S::PostLc => count(t.post_lc),
            S::MetaBytes => count(t.meta_bytes),
            S::WireBytes => count(t.wire_bytes),
            S::Chunks => count(t.chunks),
            S::NewChunks => count(t.new_chunks),
            S::GlobalFactor => number(t.factors().global),
            S::LocalFactor => number(t.factors().local),
            S::TotalFactor => number(t.factors().total),
            S::ReductionPct => number(t.factors().reduction_pct),
            S::Backup
            | S::Status
            | S::Error
            | S::RetriedPostLc
            | S::FirstFull
            | S::Level
            | S::Host
            | S::Agent
            | S::ReadingMs
            | S::CompressingMs
            | S::WaitingMs
            | S::Point
            | S::Locked
            | S::Deleted
            | S::DeletedBy => panic!("sums have no {column:?}"),
        },
    }
}

fn sort(groups: &mut [TotalsRow], order: TotalsOrder) {
    groups.sort_by(|a, b| match (key(order.by, a), key(order.by, b)) {
        (Some(a), Some(b)) if order.descending => b.partial_cmp(&a).unwrap(),
        (Some(a), Some(b)) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.is_none().cmp(&b.is_none()).then(Ordering::Equal),
    });
}

fn of(entries: &[DetailEntry]) -> Vec<&DetailRow> {
    entries.iter().map(|entry| &entry.row).collect()
}

fn groups_add_up_and_sort_by_any_column(f: &Fixture) {
    let all = make(f, 60);
    for by in EVERY {
        let groups = model(by, &of(&all));
        for sort_by in TotalsSort::all() {
            for descending in [false, true] {
                let order = TotalsOrder { by: sort_by, descending };
                let mut expected = groups.clone();
                sort(&mut expected, order);
                let (found, total) = f.detail_totals(&DetailFilter::default(), by, order, 0, 2000).unwrap();
                assert_eq!(total, groups.len() as u64);
                assert_eq!(found, expected, "{by:?} {order:?}");
            }
        }
    }
    let (whole, _) = f
        .detail_totals(&DetailFilter::default(), TotalsBy::Repository, TotalsOrder::WORST_FIRST, 0, 9)
        .unwrap();
    let post_lc: u64 = all.iter().map(|entry| entry.row.post_lc).sum();
    assert_eq!(
        (whole.len(), whole[0].sums.totals.post_lc, whole[0].sums.totals.rows),
        (1, post_lc, all.len() as u64)
    );
}

fn every_filter_holds_for_sums(f: &Fixture) {
    let all = make(f, 40);
    for filter in filters(f, &all) {
        let rows: Vec<_> = all.iter().map(|e| &e.row).filter(|row| matches(f, &filter, row)).collect();
        for by in EVERY {
            let mut expected = model(by, &rows);
            sort(&mut expected, TotalsOrder::WORST_FIRST);
            let (found, total) = f.detail_totals(&filter, by, TotalsOrder::WORST_FIRST, 0, 2000).unwrap();
            assert_eq!((total, found), (expected.len() as u64, expected), "{by:?} {filter:?}");
        }
    }
}

fn pages_of_sums_are_parts_of_the_list(f: &Fixture) {
    let all = make(f, 40);
    let mut expected = model(TotalsBy::Disk, &of(&all));
    let count = expected.len();
    let order = TotalsOrder { by: TotalsSort::Column(DetailSort::GlobalFactor), descending: false };
    sort(&mut expected, order);
    for (offset, limit) in [(0, 3), (4, 5), (count - 2, 9), (count, 1), (9, 0), (usize::MAX, 9)] {
        let part: Vec<_> = expected.iter().skip(offset).take(limit).cloned().collect();
        let limit = u32::try_from(limit).unwrap();
        let (found, total) =
            f.detail_totals(&DetailFilter::default(), TotalsBy::Disk, order, offset as u64, limit).unwrap();
        assert_eq!((found, total), (part, count as u64));
    }
}

fn trends_are_of_the_latest_runs(f: &Fixture) {
    let all = make(f, 200);
    let (vms, _) =
        f.detail_totals(&DetailFilter::default(), TotalsBy::Vm, TotalsOrder::WORST_FIRST, 0, 2000).unwrap();
    assert!(vms.iter().any(|vm| vm.trend.len() == TREND_POINTS as usize && vm.runs > TREND_POINTS.into()));
    assert_eq!(model(TotalsBy::Repository, &of(&all))[0].trend.len(), TREND_POINTS as usize);
    let (runs, _) =
        f.detail_totals(&DetailFilter::default(), TotalsBy::Run, TotalsOrder::WORST_FIRST, 0, 2000).unwrap();
    for run in &runs {
        assert_eq!(run.trend.last(), Some(&run.sums.total_factor), "a run's trend ends with it");
    }
    assert!(runs.iter().any(|run| run.trend.len() == 1) && runs.iter().any(|run| run.trend.len() == 12));
}

fn days_add_up(f: &Fixture) {
    let all = make(f, 60);
    for filter in filters(f, &all) {
        for by in [TotalsBy::Vm, TotalsBy::Job, TotalsBy::Namespace, TotalsBy::Repository] {
            let mut groups: BTreeMap<(i32, String, String), Totals> = BTreeMap::new();
            for entry in all.iter().filter(|entry| matches(f, &filter, &entry.row)) {
                let day = i32::try_from(entry.row.finished_ms / 86_400_000).unwrap();
                let [namespace, job, vm, ..] = names(by, &entry.row);
                groups.entry((day, namespace, job + &vm)).or_default().add(&entry.row);
            }
            let expected: Vec<_> = groups
                .into_iter()
                .map(|((day, namespace, name), sums)| DayTotals { day, namespace, name, sums })
                .collect();
            assert_eq!(f.detail_days(&filter, by).unwrap(), expected, "{by:?} {filter:?}");
        }
    }
    let days = f.detail_days(&DetailFilter::default(), TotalsBy::Repository).unwrap();
    assert!(days.len() > 2, "{days:?}");
}

fn sums_are_bounded(f: &Fixture) {
    let none = DetailFilter::default();
    let long = DetailFilter { search: Some("x".repeat(999)), ..none.clone() };
    for error in [
        f.detail_totals(&none, TotalsBy::Vm, TotalsOrder::WORST_FIRST, 0, REPORT_PAGE_MAX + 1).unwrap_err(),
        f.detail_totals(&long, TotalsBy::Vm, TotalsOrder::WORST_FIRST, 0, 1).unwrap_err(),
        f.detail_days(&long, TotalsBy::Vm).unwrap_err(),
        f.detail_days(&none, TotalsBy::Run).unwrap_err(),
        f.detail_days(&none, TotalsBy::Disk).unwrap_err(),
    ] {
        assert!(matches!(error, CatalogError::Invalid { .. }), "{error}");
    }
    assert_eq!(f.detail_days(&none, TotalsBy::Vm).unwrap(), []);
    let found = f.detail_totals(&none, TotalsBy::Repository, TotalsOrder::WORST_FIRST, 0, 10).unwrap();
    assert_eq!(found, (vec![], 0), "nothing has no sum");
}
