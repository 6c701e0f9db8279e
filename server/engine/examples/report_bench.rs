//! Times the questions that tables and charts ask, on a catalog made by `fill_details`.
//!
//! `cargo run --release -p holdfast-engine --example report_bench -- DIR [overview]`
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use holdfast_catalog::{
    Catalog, DetailFilter, DetailSort, DiskQuery, RowStatus, SortOrder, TotalsBy, TotalsOrder, VmQuery,
    VmSort,
};
use holdfast_types::clock::{Clock, SystemClock};

/// Times each question is asked; the median counts.
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    let dir = std::env::args().nth(1).context("usage: report_bench DIR")?;
    let catalog = Catalog::open(&Path::new(&dir).join("catalog.db"), Arc::new(SystemClock))?;
    let none = DetailFilter::default();
    let lab = catalog.namespace_overviews(None)?.pop().context("no namespace")?.namespace.id;
    let (page, total) = catalog.details_sorted(&none, SortOrder::OLDEST_FIRST, 0, 200)?;
    println!("{total} rows; median of {ROUNDS}, ms");
    overview(&catalog)?;
    if std::env::args().nth(2).is_some_and(|only| only == "overview") {
        return Ok(());
    }
    let deep = total.saturating_sub(500);
    for by in DetailSort::ALL {
        let ask = |offset, descending| {
            median(|| catalog.details_sorted(&none, SortOrder { by, descending }, offset, 200).map(drop))
        };
        let times = [ask(0, false)?, ask(0, true)?, ask(deep, true)?];
        let [up, down, deep] = times;
        println!(
            "sorted by {:<16} ascending {up:>6.1}  descending {down:>6.1}  at the end {deep:>6.1}",
            by.column()
        );
    }
    let filters = [
        ("nothing", none.clone()),
        ("search, all columns", DetailFilter { search: Some("data".into()), ..none.clone() }),
        ("search, few", DetailFilter { search: Some("sign of".into()), ..none.clone() }),
        ("status", DetailFilter { statuses: Some(vec![RowStatus::Failed]), ..none.clone() }),
        ("namespace", DetailFilter { namespaces: Some(vec![lab]), ..none.clone() }),
        ("job", DetailFilter { job: Some("file-servers".into()), ..none.clone() }),
        ("VM", DetailFilter { vm: page.first().map(|entry| entry.row.vm.clone()), ..none.clone() }),
        ("90 days", DetailFilter { since_ms: Some(SystemClock.now_ms() - 90 * 86_400_000), ..none.clone() }),
        ("7 days", DetailFilter { since_ms: Some(SystemClock.now_ms() - 7 * 86_400_000), ..none.clone() }),
    ];
    let order = SortOrder { by: DetailSort::TotalFactor, descending: false };
    for (name, filter) in &filters {
        let rows = median(|| catalog.details_sorted(filter, order, 0, 200).map(drop))?;
        let sums = median(|| {
            catalog.detail_totals(filter, TotalsBy::Vm, TotalsOrder::WORST_FIRST, 0, 100).map(drop)
        })?;
        println!("filtered by {name:<22} rows {rows:>6.1}  sums by VM {sums:>6.1}");
    }
    for by in [TotalsBy::Run, TotalsBy::Vm, TotalsBy::Job, TotalsBy::Disk, TotalsBy::Repository] {
        let sums = median(|| catalog.detail_totals(&none, by, TotalsOrder::WORST_FIRST, 0, 100).map(drop))?;
        println!("sums by {by:<26?} {sums:>6.1}");
    }
    for by in [TotalsBy::Vm, TotalsBy::Job, TotalsBy::Repository] {
        let days = median(|| catalog.detail_days(&none, by).map(drop))?;
        let protected = median(|| catalog.protected_days(&none, by).map(drop))?;
        println!("per day by {by:<15?} sums {days:>6.1}  protected {protected:>6.1}");
    }
    let now_ms = SystemClock.now_ms();
    let vms = vms(now_ms);
    let disks = DiskQuery { vm: None, offset: 0, limit: 100, now_ms };
    println!("200 histories of 12   {:>6.1}", median(|| catalog.detail_histories(&page, 12).map(drop))?);
    println!("VMs                   {:>6.1}", median(|| catalog.vm_overviews(None, &vms).map(drop))?);
    println!("disks                 {:>6.1}", median(|| catalog.disk_overviews(None, &disks).map(drop))?);
    println!("jobs                  {:>6.1}", median(|| catalog.job_overviews(None).map(drop))?);
    Ok(())
}

/// Times the questions of the page that a browser shows all night.
fn overview(catalog: &Catalog) -> Result<()> {
    let now_ms = SystemClock.now_ms();
    let since = [1, 7].map(|days| Some(now_ms - days * 86_400_000));
    let windows = [since[0], since[1], None];
    let week = DetailFilter { since_ms: since[1], ..DetailFilter::default() };
    let not_done = vec![RowStatus::Failed, RowStatus::Aborted, RowStatus::Expired];
    let failed = DetailFilter { statuses: Some(not_done), ..DetailFilter::default() };
    let newest = SortOrder { by: DetailSort::Finished, descending: true };
    let stale = VmQuery { sort: VmSort::Latest, stale: Some(true), limit: 6, ..vms(now_ms) };
    println!(
        "overview: totals      {:>6.1}",
        median(|| catalog.repository_overview(None, &windows).map(drop))?
    );
    println!("overview: jobs        {:>6.1}", median(|| catalog.job_overviews(None).map(drop))?);
    println!(
        "overview: failures    {:>6.1}",
        median(|| catalog.details_sorted(&failed, newest, 0, 5).map(drop))?
    );
    println!("overview: stale VMs   {:>6.1}", median(|| catalog.vm_overviews(None, &stale).map(drop))?);
    let worst = || catalog.detail_totals(&week, TotalsBy::Vm, TotalsOrder::WORST_FIRST, 0, 6).map(drop);
    println!("overview: worst VMs   {:>6.1}", median(worst)?);
    Ok(())
}

fn vms(now_ms: i64) -> VmQuery {
    VmQuery {
        vm: None,
        search: None,
        stale_before_ms: now_ms,
        stale: None,
        sort: VmSort::StoredBytes,
        descending: true,
        offset: 0,
        limit: 100,
        now_ms,
    }
}

/// Milliseconds.
fn median<E: std::error::Error + Send + Sync + 'static>(
    mut ask: impl FnMut() -> Result<(), E>,
) -> Result<f64> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        ask()?;
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    times.sort_by(f64::total_cmp);
    times.get(ROUNDS / 2).copied().context("no rounds")
}
