//! Rows added up per group, sorted, a page at a time, in one pass over the rows, run by run.
//!
//! (H11) Memory is what the groups need, and these are VMs, jobs and disks: what grows with history, runs, is counted as it
//! comes and forgotten, but for the latest of each group, for the trend. Of groups that are runs, only the first ones are
//! kept.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet, VecDeque};

use holdfast_proto::api::{TotalsRow, UsedNow};
use holdfast_proto::details::{Factors, Totals};
use holdfast_types::ids::RunId;
use rusqlite::Connection;

use super::super::select::{Names, Window};
use super::filter;
use super::sorted::{Number, SortRoom, compare_keys, counted};
use super::sums::{self, Group, Reading, RowRefs, Summand};
use super::used;
use crate::{
    CatalogError, DetailFilter, DetailSort, RUNS_LISTED_MAX, Result, RowStatus, TREND_POINTS, TotalsBy,
    TotalsOrder, TotalsSort,
};

/// A page of the groups, and how many there are.
pub(crate) fn page(
    connection: &Connection,
    asked: &DetailFilter,
    by: TotalsBy,
    order: TotalsOrder,
    window: Window,
    room: &SortRoom,
) -> Result<(Vec<TotalsRow>, u64)> {
    let Some(conditions) = filter::of_all(connection, asked)? else { return Ok((Vec::new(), 0)) };
    // (W17) Otherwise the index of runs has them in order.
    if conditions.led {
        room.expect(counted(connection, asked)?)?;
    }
    let names = Names::load(connection)?;
    let beyond = by == TotalsBy::Run && window.limit > 0 && window.offset >= RUNS_LISTED_MAX;
    let limit = if by == TotalsBy::Run {
        window.limit.min(RUNS_LISTED_MAX.saturating_sub(window.offset))
    } else {
        window.limit
    };
    let window = Window { limit, ..window };
    let mut found = First { by: order.by, descending: order.descending, window, total: 0, kept: Vec::new() };
    let mut groups: HashMap<Group, Sums> = HashMap::new();
    let mut jobs = JobTrends::default();
    let mut run = None;
    sums::each(connection, conditions, by == TotalsBy::Disk, Reading::ByRun, |summand| {
        // Every row of a run comes before those of the next.
        if by == TotalsBy::Run && run.replace(summand.refs.run).is_some_and(|run| run != summand.refs.run) {
            for (_, sums) in groups.drain() {
                let trend = jobs.after(&sums);
                found.add(Listed::new(by, sums, &names, trend)?);
            }
        }
        groups.entry(summand.group(by)).or_insert_with(|| Sums::new(by, summand)).add(by, summand);
        Ok(())
    })?;
    for sums in groups.into_values() {
        let trend = if by == TotalsBy::Run { jobs.after(&sums) } else { sums.trend() };
        found.add(Listed::new(by, sums, &names, trend)?);
    }
    let total = found.total;
    if beyond && usize::try_from(total).is_ok_and(|total| window.offset < total) {
        return Err(CatalogError::invalid(format!(
            "a list of runs shows the first {RUNS_LISTED_MAX} of {total}; filter, or sort by something else"
        )));
    }
    let tell = |listed: Listed<'_>| {
        let used = used::now(connection, by, &listed.sums.refs)?;
        Ok(listed.tell(used))
    };
    Ok((found.page().into_iter().map(tell).collect::<Result<_>>()?, total))
}

/// The first groups in some order, as many as are needed for a window, of any number.
struct First<'a> {
    by: TotalsSort,
    descending: bool,
    window: Window,
    total: u64,
    kept: Vec<Listed<'a>>,
}

impl<'a> First<'a> {
    fn wanted(&self) -> usize {
        self.window.offset.saturating_add(self.window.limit).min(RUNS_LISTED_MAX)
    }

    fn add(&mut self, listed: Listed<'a>) {
        self.total += 1;
        // Groups that are not runs are in memory anyway.
        if listed.name.run.is_some() && self.kept.len() >= KEPT_MIN.max(self.wanted().saturating_mul(2)) {
            let (wanted, by, descending) = (self.wanted(), self.by, self.descending);
            self.kept.select_nth_unstable_by(wanted, |a, b| a.compare(b, by, descending));
            self.kept.truncate(wanted);
        }
        self.kept.push(listed);
    }

    fn page(self) -> Vec<Listed<'a>> {
        let Self { by, descending, window, kept, .. } = self;
        window.of(kept, |a, b| a.compare(b, by, descending))
    }
}

/// Groups below which none is given up: less would be sorted too often.
const KEPT_MIN: usize = 4096;

/// The sums of a group.
struct Sums {
    refs: RowRefs,
    disk: Box<str>,
    totals: Totals,
    /// VMs of the group; empty where a group is of one VM.
    vms: HashSet<[u8; 16]>,
    runs: u64,
    last: RowRefs,
    /// `done_bytes` and `done_post_lc` of its latest runs, oldest first.
    latest: VecDeque<(u64, u64)>,
}

impl Sums {
    fn new(by: TotalsBy, first: &Summand<'_>) -> Self {
        let mut vms = HashSet::new();
        if !matches!(by, TotalsBy::Vm | TotalsBy::Disk) {
            vms.insert(first.refs.vm);
        }
        Self {
            refs: first.refs,
            disk: first.disk.into(),
            totals: Totals::default(),
            vms,
            runs: 0,
            last: first.refs,
            latest: VecDeque::new(),
        }
    }

    fn add(&mut self, by: TotalsBy, summand: &Summand<'_>) {
        let Summand { refs, row, .. } = summand;
        self.totals.add(row);
        // Neighbours are mostly of one session.
        if self.last.vm != refs.vm && !matches!(by, TotalsBy::Vm | TotalsBy::Disk) {
            self.vms.insert(refs.vm);
        }
        if self.runs == 0 || self.last.run != refs.run {
            self.runs += 1;
            push(&mut self.latest, (0, 0));
        }
        self.last = *refs;
        if let Some((bytes, post_lc)) = self.latest.back_mut()
            && row.status == RowStatus::Done
        {
            *bytes = bytes.saturating_add(row.bytes);
            *post_lc = post_lc.saturating_add(row.post_lc).saturating_add(row.retried_post_lc);
        }
    }

    /// Factors of the latest runs, oldest first.
    fn trend(&self) -> Vec<Option<f64>> {
        self.latest.iter().map(|(bytes, post_lc)| Factors::of(*bytes, 0, *post_lc).total).collect()
    }
}

/// Adds a point to a trend, which has the latest only.
fn push<T>(trend: &mut VecDeque<T>, point: T) {
    if trend.len() >= TREND_POINTS as usize {
        trend.pop_front();
    }
    trend.push_back(point);
}

/// The latest runs of each job.
#[derive(Default)]
struct JobTrends(HashMap<[u8; 16], VecDeque<Option<f64>>>);

impl JobTrends {
    /// The trend of a run that comes after all those before.
    fn after(&mut self, run: &Sums) -> Vec<Option<f64>> {
        let trend = self.0.entry(run.refs.job).or_default();
        push(trend, run.totals.factors().total);
        trend.iter().copied().collect()
    }
}

/// A group's names, those that its kind has; the others are empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a> {
    /// Runs are in order of time, not of names.
    run: Option<(i64, [u8; 16])>,
    namespace: &'a str,
    job: &'a str,
    vm: &'a str,
}

impl<'a> Name<'a> {
    fn of(by: TotalsBy, sums: &Sums, names: &'a Names) -> Result<Self> {
        use TotalsBy as B;
        let RowRefs { namespace, job, vm, run } = sums.refs;
        let unless = |absent: bool, name: Result<&'a str>| if absent { Ok("") } else { name };
        Ok(Self {
            run: (by == B::Run).then_some((sums.totals.started_ms, run)),
            namespace: unless(by == B::Repository, names.namespace(namespace))?,
            job: unless(!matches!(by, B::Job | B::Run), names.job(job))?,
            vm: unless(!matches!(by, B::Vm | B::Disk), names.vm(vm))?,
        })
    }
}

/// Sort key of a group.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Count(i128),
    Number(Number),
    Text(&'a str),
    Id([u8; 16]),
}

impl<'a> Key<'a> {
    fn of(by: TotalsSort, listed: &'a Listed<'_>) -> Option<Self> {
        use DetailSort as S;
        let Listed { name, sums: Sums { totals: t, disk, .. }, .. } = listed;
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
            S::Disk => return text(disk),
            S::Run => return name.run.map(|(_, id)| Key::Id(id)),
            S::Seconds => return number(Some(t.seconds())),
            S::GlobalFactor => return number(t.factors().global),
            S::LocalFactor => return number(t.factors().local),
            S::TotalFactor => return number(t.factors().total),
            S::ReductionPct => return number(t.factors().reduction_pct),
            S::MbPerS => return number(sums::mb_per_s(t)),
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
            | S::DeletedBy => return None,
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

/// A group with its names.
struct Listed<'a> {
    name: Name<'a>,
    trend: Vec<Option<f64>>,
    /// Number of different VMs; the set itself is in `sums` no more: thousands of runs are kept.
    vms: u64,
    sums: Sums,
}

impl<'a> Listed<'a> {
    fn new(by: TotalsBy, mut sums: Sums, names: &'a Names, trend: Vec<Option<f64>>) -> Result<Self> {
        let vms = std::mem::take(&mut sums.vms).len() as u64;
        sums.latest = VecDeque::new();
        Ok(Self { name: Name::of(by, &sums, names)?, trend, vms: vms.max(1), sums })
    }

    fn compare(&self, other: &Self, by: TotalsSort, descending: bool) -> Ordering {
        compare_keys(Key::of(by, self).as_ref(), Key::of(by, other).as_ref(), descending)
            .then_with(|| (self.name, &self.sums.disk).cmp(&(other.name, &other.sums.disk)))
    }

    fn tell(self, used: Option<UsedNow>) -> TotalsRow {
        let Name { run, namespace, job, vm } = self.name;
        TotalsRow {
            namespace: namespace.to_owned(),
            job: job.to_owned(),
            vm: vm.to_owned(),
            disk: self.sums.disk.into(),
            run: run.map(|(_, id)| RunId::from_bytes(id).to_string()).unwrap_or_default(),
            vms: self.vms,
            runs: self.sums.runs,
            sums: self.sums.totals.into(),
            trend: self.trend,
            used,
        }
    }
}
