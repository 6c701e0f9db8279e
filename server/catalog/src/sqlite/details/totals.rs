//! Rows added up per group, sorted, a page at a time, in one pass over the rows.
//!
//! Memory is what the groups need: sums, and for each run among a group's rows three numbers, for the trend.

use std::collections::{HashMap, HashSet};

use holdfast_proto::details::{Factors, Totals};
use holdfast_types::ids::RunId;
use rusqlite::Connection;

use super::super::select::Names;
use super::filter;
use super::sorted::{Number, Window, compare_keys};
use super::sums::{self, Group, RowRefs, Summand};
use crate::wire::add_to;
use crate::{
    DetailFilter, DetailSort, DetailTotals, Result, TREND_POINTS, TotalsBy, TotalsOrder, TotalsSort,
};

/// A page of the groups, and how many there are.
pub(in crate::sqlite) fn page(
    connection: &Connection,
    filter: &DetailFilter,
    by: TotalsBy,
    order: TotalsOrder,
    window: Window,
) -> Result<(Vec<DetailTotals>, u64)> {
    let groups = groups(connection, filter, by)?;
    let total = groups.len() as u64;
    let names = Names::load(connection)?;
    let trends = (by == TotalsBy::Run).then(|| JobTrends::of(groups.values()));
    let mut listed = Vec::with_capacity(groups.len());
    for sums in groups.values() {
        let name = Name::of(by, sums, &names)?;
        listed.push(Listed { key: Key::of(order.by, &sums.totals, name), name, sums });
    }
    let page = window.of(listed, |a, b| {
        compare_keys(a.key.as_ref(), b.key.as_ref(), order.descending).then_with(|| a.name.cmp(&b.name))
    });
    let tell = |listed: Listed<'_>| {
        let trend = trends.as_ref().map_or_else(|| listed.sums.trend(), |jobs| jobs.up_to(listed.sums));
        listed.tell(trend)
    };
    Ok((page.into_iter().map(tell).collect(), total))
}

/// What a job's rows add up to.
pub(in crate::sqlite) struct JobSums {
    pub(in crate::sqlite) namespace: [u8; 16],
    pub(in crate::sqlite) job: [u8; 16],
    pub(in crate::sqlite) runs: u64,
    pub(in crate::sqlite) vms: u64,
    /// The run begun last.
    pub(in crate::sqlite) last_run: Option<[u8; 16]>,
    pub(in crate::sqlite) sums: Totals,
}

/// Every job, in no order.
pub(in crate::sqlite) fn jobs(connection: &Connection, filter: &DetailFilter) -> Result<Vec<JobSums>> {
    let job = |sums: Sums| JobSums {
        namespace: sums.refs.namespace,
        job: sums.refs.job,
        runs: sums.runs.len() as u64,
        vms: sums.vms.len() as u64,
        last_run: sums.runs.iter().max_by_key(|(id, run)| (run.started_ms, **id)).map(|(id, _)| *id),
        sums: sums.totals,
    };
    Ok(groups(connection, filter, TotalsBy::Job)?.into_values().map(job).collect())
}

fn groups(connection: &Connection, filter: &DetailFilter, by: TotalsBy) -> Result<HashMap<Group, Sums>> {
    let mut groups: HashMap<Group, Sums> = HashMap::new();
    let Some(conditions) = filter::of_all(connection, filter)? else { return Ok(groups) };
    sums::each(connection, conditions, by == TotalsBy::Disk, |summand| {
        groups.entry(summand.group(by)).or_insert_with(|| Sums::new(summand)).add(summand);
        Ok(())
    })?;
    Ok(groups)
}

/// The sums of a group.
struct Sums {
    refs: RowRefs,
    disk: Box<str>,
    totals: Totals,
    vms: HashSet<[u8; 16]>,
    runs: HashMap<[u8; 16], RunSums>,
    last: RowRefs,
}

/// What a run stored for a group.
#[derive(Debug, Clone, Copy)]
struct RunSums {
    started_ms: i64,
    bytes: u64,
    post_lc: u64,
}

impl RunSums {
    fn factor(&self) -> Option<f64> {
        Factors::of(self.bytes, 0, self.post_lc).total
    }
}

impl Sums {
    fn new(first: &Summand<'_>) -> Self {
        Self {
            refs: first.refs,
            disk: first.disk.into(),
            totals: Totals::default(),
            vms: HashSet::from([first.refs.vm]),
            runs: HashMap::new(),
            last: first.refs,
        }
    }

    fn add(&mut self, summand: &Summand<'_>) {
        let Summand { refs, row, .. } = summand;
        add_to(&mut self.totals, row);
        // Neighbours are mostly of one session.
        if self.last.vm != refs.vm {
            self.vms.insert(refs.vm);
        }
        self.last = *refs;
        let run =
            self.runs.entry(refs.run).or_insert(RunSums { started_ms: row.started_ms, bytes: 0, post_lc: 0 });
        run.started_ms = run.started_ms.min(row.started_ms);
        run.bytes = run.bytes.saturating_add(row.bytes);
        run.post_lc = run.post_lc.saturating_add(row.post_lc);
    }

    /// Factors of the latest runs, oldest first.
    fn trend(&self) -> Vec<Option<f64>> {
        let runs = self.runs.iter().map(|(id, run)| (run.started_ms, *id, run.factor()));
        latest(runs.collect())
    }
}

const POINTS: usize = TREND_POINTS as usize;

type Point = (i64, [u8; 16], Option<f64>);

fn latest(runs: Vec<Point>) -> Vec<Option<f64>> {
    let newest_first = |a: &Point, b: &Point| (b.0, b.1).cmp(&(a.0, a.1));
    let mut runs = Window { offset: 0, limit: POINTS }.of(runs, newest_first);
    runs.reverse();
    runs.into_iter().map(|(.., factor)| factor).collect()
}

/// The runs of each job in order of time.
struct JobTrends(HashMap<[u8; 16], Vec<Point>>);

impl JobTrends {
    /// From sums of one run each.
    fn of<'a>(runs: impl Iterator<Item = &'a Sums>) -> Self {
        let mut jobs: HashMap<[u8; 16], Vec<Point>> = HashMap::new();
        for sums in runs {
            jobs.entry(sums.refs.job).or_default().push(point(sums));
        }
        for points in jobs.values_mut() {
            points.sort_unstable_by_key(|(started_ms, id, _)| (*started_ms, *id));
        }
        Self(jobs)
    }

    fn up_to(&self, run: &Sums) -> Vec<Option<f64>> {
        let points = self.0.get(&run.refs.job).map(Vec::as_slice).unwrap_or_default();
        let (started_ms, id, _) = point(run);
        let end = points.partition_point(|point| (point.0, point.1) <= (started_ms, id));
        let part = points.get(end.saturating_sub(POINTS)..end).unwrap_or_default();
        part.iter().map(|(.., factor)| *factor).collect()
    }
}

fn point(run: &Sums) -> Point {
    (run.totals.started_ms, run.refs.run, run.totals.factors().total)
}

/// A group's names, those that its kind has; the others are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a> {
    /// Runs are in order of time, not of names.
    run: Option<(i64, [u8; 16])>,
    namespace: &'a str,
    job: &'a str,
    vm: &'a str,
    disk: &'a str,
}

impl<'a> Name<'a> {
    fn of(by: TotalsBy, sums: &'a Sums, names: &'a Names) -> Result<Self> {
        use TotalsBy as B;
        let RowRefs { namespace, job, vm, run } = sums.refs;
        let unless = |absent: bool, name: Result<&'a str>| if absent { Ok("") } else { name };
        Ok(Self {
            run: (by == B::Run).then_some((sums.totals.started_ms, run)),
            namespace: unless(by == B::Repository, names.namespace(namespace))?,
            job: unless(!matches!(by, B::Job | B::Run), names.job(job))?,
            vm: unless(!matches!(by, B::Vm | B::Disk), names.vm(vm))?,
            disk: if by == B::Disk { &sums.disk } else { "" },
        })
    }
}

/// What groups are sorted by.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Count(i128),
    Number(Number),
    Text(&'a str),
    Id([u8; 16]),
}

impl<'a> Key<'a> {
    fn of(by: TotalsSort, totals: &Totals, name: Name<'a>) -> Option<Self> {
        use DetailSort as S;
        let t = totals;
        let text = |text: &'a str| (!text.is_empty()).then_some(Key::Text(text));
        let number = |number: Option<f64>| number.map(|number| Key::Number(Number(number)));
        let column = match by {
            TotalsSort::Rows => return Some(Key::Count(t.rows.into())),
            TotalsSort::Failed => return Some(Key::Count(t.failed.into())),
            TotalsSort::Column(column) => column,
        };
        let count: i128 = match column {
            S::Namespace => return text(name.namespace),
            S::Job => return text(name.job),
            S::Vm => return text(name.vm),
            S::Disk => return text(name.disk),
            S::Run => return name.run.map(|(_, id)| Key::Id(id)),
            S::Seconds => return number(Some(t.seconds())),
            S::GlobalFactor => return number(t.factors().global),
            S::LocalFactor => return number(t.factors().local),
            S::TotalFactor => return number(t.factors().total),
            S::ReductionPct => return number(t.factors().reduction_pct),
            S::MbPerS => return number(sums::mb_per_s(t)),
            S::Backup | S::Status | S::Error => return None,
            S::Started => t.started_ms.into(),
            S::Finished => t.finished_ms.into(),
            S::VirtualBytes => t.virtual_bytes.into(),
            S::Bytes => t.bytes.into(),
            S::ReadBytes => t.read_bytes.into(),
            S::UnchangedBytes => t.unchanged_bytes.into(),
            S::DupBytes => t.dup_bytes.into(),
            S::NewBytes => t.new_bytes.into(),
            S::PostLc => t.post_lc.into(),
            S::MetaBytes => t.meta_bytes.into(),
            S::WireBytes => t.wire_bytes.into(),
            S::Chunks => t.chunks.into(),
            S::NewChunks => t.new_chunks.into(),
        };
        Some(Key::Count(count))
    }
}

/// A group with its names and what it is sorted by.
struct Listed<'a> {
    key: Option<Key<'a>>,
    name: Name<'a>,
    sums: &'a Sums,
}

impl Listed<'_> {
    fn tell(&self, trend: Vec<Option<f64>>) -> DetailTotals {
        let Name { run, namespace, job, vm, disk } = self.name;
        DetailTotals {
            namespace: namespace.to_owned(),
            job: job.to_owned(),
            vm: vm.to_owned(),
            disk: disk.to_owned(),
            run: run.map(|(_, id)| RunId::from_bytes(id).to_string()).unwrap_or_default(),
            vms: self.sums.vms.len() as u64,
            runs: self.sums.runs.len() as u64,
            sums: self.sums.totals.clone(),
            trend,
        }
    }
}
