//! Random rows with many ties, and the model that answers for them.

use std::cmp::Ordering;

use holdfast_types::ids::{BackupId, ContainerClass, RunId};

use crate::testing::backups::move_to;
use crate::testing::fixture::{Fixture, add_retried, done, numbers, row};
use crate::{DetailEntry, DetailFilter, DetailRow, DetailSort, FailedRun, PointFate, RowStatus, SortOrder};

/// A sequence of numbers without a pattern, the same for the same seed.
#[derive(Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.roll(from.len() as u64)).unwrap()].clone()
    }
}

const VMS: [&str; 5] = ["web", "WEB-2", "db", "50%_off", "b\\s"];
const JOBS: [&str; 3] = ["nightly", "Weekly", "web"];
const DISKS: [&str; 4] = ["root", "data", "Log_1", "logs1"];
const ERRORS: [&str; 3] = ["cannot read root: I/O error", "no heartbeat for 120 s", "100% full"];

/// Sessions of several VMs, jobs and runs in two namespaces, some failed; every row, in the order of a list.
pub(super) fn make(f: &Fixture, sessions: u64) -> Vec<DetailEntry> {
    let lab = f.ensure_namespace("lab").unwrap();
    let mut dice = Dice::new(7);
    let mut all = Vec::new();
    let mut runs: Vec<(String, bool, RunId)> = Vec::new();
    for _ in 0..sessions {
        let (vm, job, in_lab) = (dice.pick(&VMS), dice.pick(&JOBS), dice.roll(3) == 0);
        // Two hours at most, so that a few days come together.
        f.clock.advance_ms(i64::try_from(dice.roll(7_200_000)).unwrap());
        let mut attempt = f.attempt(vm, job);
        attempt.finished_ms = attempt.started_ms + i64::try_from(dice.roll(3) * 700).unwrap();
        match runs.iter().rfind(|(known, lab, _)| *known == job && *lab == in_lab) {
            Some((.., run)) if dice.roll(2) == 0 => attempt.run = *run,
            _ => runs.push((job.to_owned(), in_lab, attempt.run)),
        }
        let disks = usize::try_from(1 + dice.roll(DISKS.len() as u64)).unwrap();
        let (mut rows, mut containers) = (Vec::new(), Vec::new());
        for disk in &DISKS[..disks] {
            let bytes = |dice: &mut Dice| dice.roll(4) * 100_000;
            let random = numbers(DetailRow {
                unchanged_bytes: bytes(&mut dice),
                dup_bytes: bytes(&mut dice),
                new_bytes: bytes(&mut dice),
                post_lc: bytes(&mut dice),
                meta_bytes: dice.roll(3),
                ..row(&attempt, disk)
            });
            for (class, bytes) in
                [(ContainerClass::Data, random.post_lc), (ContainerClass::Recipe, random.meta_bytes)]
            {
                if bytes > 0 {
                    containers.push(f.sealed(&attempt, class, bytes));
                }
            }
            rows.push(random);
        }
        let mut commit = done(attempt, BackupId(f.ulid()), rows, containers);
        if in_lab {
            move_to(&mut commit, lab.id, "lab");
        }
        let session = commit.attempt.session;
        if dice.roll(5) == 0 {
            let status = dice.pick(&[RowStatus::Failed, RowStatus::Aborted, RowStatus::Expired]);
            for row in &mut commit.details {
                row.status = status;
                row.backup = String::new();
                row.point = PointFate::None;
                row.error = if dice.roll(4) == 0 { String::new() } else { dice.pick(&ERRORS).into() };
            }
            let failed = FailedRun {
                attempt: commit.attempt,
                details: commit.details.clone(),
                containers: commit.containers,
            };
            f.record_failed_run(&failed).unwrap();
        } else {
            f.commit_backup(&commit).unwrap();
        }
        let entries = (0..).zip(commit.details);
        all.extend(entries.map(|(position, row)| DetailEntry { session, position, row }));
    }
    all.sort_by(in_order);
    add_retried(all.iter_mut().map(|entry| &mut entry.row));
    all
}

/// The order of a list.
pub(super) fn in_order(a: &DetailEntry, b: &DetailEntry) -> Ordering {
    let place = |e: &DetailEntry| (e.row.started_ms, e.row.run.clone(), e.session, e.position);
    place(a).cmp(&place(b))
}

/// Returns true if a row matches the filter.
pub(super) fn matches(f: &Fixture, filter: &DetailFilter, row: &DetailRow) -> bool {
    let contains = |text: &str, part: &str| text.to_ascii_lowercase().contains(&part.to_ascii_lowercase());
    let DetailFilter { namespaces, job, vm, disk, run, statuses, search, since_ms, until_ms, .. } = filter;
    let is = |wanted: &Option<String>, found: &String| wanted.as_ref().is_none_or(|wanted| wanted == found);
    let in_scope = |id: &holdfast_types::ids::NamespaceId| {
        f.namespace(*id).unwrap().is_some_and(|n| n.name == row.namespace)
    };
    namespaces.as_ref().is_none_or(|ids| ids.iter().any(in_scope))
        && is(job, &row.job)
        && is(vm, &row.vm)
        && is(disk, &row.disk)
        && run.is_none_or(|run| run.to_string() == row.run)
        && statuses.as_ref().is_none_or(|all| all.contains(&row.status))
        && search.as_ref().is_none_or(|part| {
            [&row.namespace, &row.job, &row.vm, &row.disk, &row.error].iter().any(|text| contains(text, part))
        })
        && since_ms.is_none_or(|since| row.started_ms >= since)
        && until_ms.is_none_or(|until| row.started_ms < until)
        && filter.finished_since_ms.is_none_or(|since| row.finished_ms >= since)
        && filter.finished_until_ms.is_none_or(|until| row.finished_ms < until)
}

/// Filters of every kind, and some together; most match something.
pub(super) fn filters(f: &Fixture, all: &[DetailEntry]) -> Vec<DetailFilter> {
    let none = DetailFilter::default();
    let lab = f.namespace_by_name("lab").unwrap().unwrap().id;
    let (early, late) = (all[all.len() / 4].row.started_ms, all[all.len() * 3 / 4].row.started_ms);
    let run = all[all.len() / 2].row.run.parse().unwrap();
    let search = |text: &str| DetailFilter { search: Some(text.into()), ..none.clone() };
    let failed = Some(vec![RowStatus::Failed, RowStatus::Expired]);
    let mut filters = vec![
        none.clone(),
        DetailFilter { namespaces: Some(vec![lab]), ..none.clone() },
        DetailFilter { namespaces: Some(vec![lab, f.default.id]), ..none.clone() },
        DetailFilter { namespaces: Some(vec![]), ..none.clone() },
        DetailFilter { vm: Some("web".into()), ..none.clone() },
        DetailFilter { vm: Some("web".into()), namespaces: Some(vec![lab]), ..none.clone() },
        DetailFilter { job: Some("web".into()), since_ms: Some(early), ..none.clone() },
        DetailFilter { disk: Some("data".into()), until_ms: Some(late), ..none.clone() },
        DetailFilter { finished_since_ms: Some(early), finished_until_ms: Some(late), ..none.clone() },
        DetailFilter { job: Some("web".into()), finished_since_ms: Some(late), ..none.clone() },
        DetailFilter { vm: Some("db".into()), disk: Some("root".into()), ..none.clone() },
        DetailFilter { run: Some(run), ..none.clone() },
        DetailFilter { statuses: failed.clone(), ..none.clone() },
        DetailFilter { statuses: Some(vec![RowStatus::Done]), disk: Some("data".into()), ..none.clone() },
        DetailFilter { statuses: Some(vec![]), ..none.clone() },
        DetailFilter { statuses: failed, search: Some("sign of".into()), ..none.clone() },
    ];
    let parts = ["web", "WEB", "LAB", "log_", "%", "\\", "50%_", "i/o", "ROOT", "nothing like it", ""];
    filters.extend(parts.map(search));
    filters
}

/// Returns the sort key of a row, as text for texts and as a number for numbers; `None` comes last.
fn key(by: DetailSort, row: &DetailRow) -> Option<(String, f64)> {
    use DetailSort as S;
    let text = |text: &str| (!text.is_empty()).then(|| (text.to_owned(), 0.0));
    let number = |number: Option<f64>| number.map(|number| (String::new(), number));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let count = |count: u64| Some((String::new(), count as f64));
    match by {
        S::Namespace => text(&row.namespace),
        S::Job => text(&row.job),
        S::Run => text(&row.run),
        S::Vm => text(&row.vm),
        S::Disk => text(&row.disk),
        S::Backup => text(&row.backup),
        S::Status => text(row.status.word()),
        S::Error => text(&row.error),
        S::Started => count(row.started_ms.try_into().unwrap()),
        S::Finished => count(row.finished_ms.try_into().unwrap()),
        S::Seconds => number(Some(row.seconds())),
        S::VirtualBytes => count(row.virtual_bytes),
        S::Bytes => count(row.bytes),
        S::ReadBytes => count(row.read_bytes),
        S::UnchangedBytes => count(row.unchanged_bytes),
        S::DupBytes => count(row.dup_bytes),
        S::NewBytes => count(row.new_bytes),
        S::PostLc => count(row.post_lc),
        S::MetaBytes => count(row.meta_bytes),
        S::WireBytes => count(row.wire_bytes),
        S::GlobalFactor => number(row.factors().global),
        S::LocalFactor => number(row.factors().local),
        S::TotalFactor => number(row.factors().total),
        S::ReductionPct => number(row.factors().reduction_pct),
        S::Chunks => count(row.chunks),
        S::NewChunks => count(row.new_chunks),
        S::RetriedPostLc => count(row.retried_post_lc),
        S::FirstFull => count(row.first_full.into()),
        S::Level => count(row.level.into()),
        S::Host => text(&row.host),
        S::Agent => text(&row.agent),
        S::ReadingMs => count(row.reading_ms),
        S::CompressingMs => count(row.compressing_ms),
        S::WaitingMs => count(row.waiting_ms),
        S::Point => text(row.point.word()),
        S::Locked => count(row.locked.into()),
        S::Deleted => (row.deleted_ms != 0).then(|| count(row.deleted_ms.try_into().unwrap())).flatten(),
        S::DeletedBy => text(&row.deleted_by),
        S::MbPerS => number(row.mb_per_s()),
    }
}

/// Sorts rows that are in the order of a list.
pub(super) fn sort(rows: &mut [DetailEntry], order: SortOrder) {
    rows.sort_by(|a, b| match (key(order.by, &a.row), key(order.by, &b.row)) {
        (Some(a), Some(b)) if order.descending => b.partial_cmp(&a).unwrap(),
        (Some(a), Some(b)) => a.partial_cmp(&b).unwrap(),
        (a, b) => a.is_none().cmp(&b.is_none()),
    });
}
