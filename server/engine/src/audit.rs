//! The audit: every container of the catalog against the volume and the index, in the background.
//!
//! A start looks only at what may have changed (S6); this looks at everything else after the server is ready: a
//! [`Job`] that looks at one folder of containers a step, in pieces between which it can stop. It is due after every
//! start without the mark of a clean stop, and how far it came is kept in the next mark. Only numbers handed out
//! before this start are looked at: what the running process writes is its own business.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

use crate::container::ContainerName;
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, JobProgress, Step};
use crate::jobs::{NoProgress, Progress};
use crate::recovery::{self, ContainerFile, Files, GROUP_CONTAINERS, OpenSummary, list_group};

/// Containers looked at between two looks at the budget. Nearly all cost a look-up in memory; one that the index does
/// not cover costs reading its directory, some 10 ms on a rotating disk: a stop waits for 0.6 s at most. A folder is
/// listed again for each step that ended within it: at most 4096 ÷ 64 = 64 times.
const PIECE_CONTAINERS: u64 = 64;

/// The audit: progress so far, and the range of container numbers it covers.
#[derive(Debug)]
pub(crate) struct Audit {
    /// Numbers below were looked at; `u64::MAX`: all were.
    from: AtomicU64,
    /// The lowest number this process may hand out.
    end: u64,
    /// Set once a file without a row was found that cannot be read now, so that it could not be adopted.
    met_unread: AtomicBool,
    /// Held while a step works; set when there are to be no more.
    closed: Mutex<bool>,
}

impl Audit {
    /// Looks at the containers of these numbers, from `from` on.
    pub(crate) const fn new(from: u64, end: u64) -> Self {
        Self {
            from: AtomicU64::new(from),
            end,
            met_unread: AtomicBool::new(false),
            closed: Mutex::new(false),
        }
    }

    /// The number it goes on from; `u64::MAX` when it has ended.
    pub(crate) fn from(&self) -> u64 {
        self.from.load(Ordering::Acquire)
    }

    pub(crate) fn finished(&self) -> bool {
        self.from() == u64::MAX
    }

    /// Returns true if a file without a row could not be read: the next start has to look for it again.
    pub(crate) fn met_unread(&self) -> bool {
        self.met_unread.load(Ordering::Acquire)
    }

    fn progress(&self) -> JobProgress {
        JobProgress { done: self.from().min(self.end), total: self.end, unit: "containers" }
    }

    /// Waits for the step under way and lets no other begin: a clean stop tells how far it came.
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
    }

    /// Looks at one folder of containers, or as much of it as the budget allows. What failed is looked at again by
    /// the next step.
    fn step(&self, core: &Core, budget: &Budget, summary: &mut OpenSummary) -> Result<(), EngineError> {
        let closed = self.closed.lock();
        if *closed {
            return Err(EngineError::Unavailable);
        }
        let from = self.from();
        if from < self.end {
            let group = from / GROUP_CONTAINERS;
            let end = ((group + 1) * GROUP_CONTAINERS).min(self.end);
            let look = Look::at(core, group, from..end)?;
            let mut piece = from..from;
            while piece.end < end && (piece.is_empty() || !budget.is_spent()) {
                piece = piece.end..end.min(piece.end.saturating_add(PIECE_CONTAINERS));
                if look.audit(core, &piece, summary)? {
                    self.met_unread.store(true, Ordering::Release);
                }
                self.from.store(piece.end, Ordering::Release);
                budget.charge(piece.end - piece.start, 0);
            }
        }
        if self.from() >= self.end && !self.finished() {
            // (S8) Containers that this audit does not look at may wait for their rows, too.
            core.unrecorded.check()?;
            // (S6) Before it counts as finished: every file has its row.
            if !self.met_unread() {
                core.catalog.settle_containers(self.end)?;
            }
            self.from.store(u64::MAX, Ordering::Release);
        }
        Ok(())
    }

    /// Runs all remaining steps.
    pub(crate) fn run(&self, core: &Core, progress: &dyn Progress) -> Result<OpenSummary, EngineError> {
        let mut summary = OpenSummary::default();
        loop {
            self.step(core, &Budget::unlimited(), &mut summary)?;
            let at = self.progress();
            progress.step("container numbers looked up", at.done, at.total);
            if self.finished() {
                return Ok(summary);
            }
        }
    }
}

/// The audit as background work.
#[derive(Debug)]
pub(crate) struct AuditJob {
    pub(crate) core: Arc<Core>,
    pub(crate) audit: Arc<Audit>,
}

impl Job for AuditJob {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let mut found = OpenSummary::default();
        let done = self.audit.step(&self.core, budget, &mut found);
        if found != OpenSummary::default() {
            tracing::warn!(
                ?found,
                "the audit found containers that catalog or index did not know as they are"
            );
        }
        done?;
        Ok(if self.audit.finished() { Step::Finished } else { Step::More })
    }

    fn progress(&self) -> Option<JobProgress> {
        Some(self.audit.progress())
    }

    /// The number of a container; the mark of a clean stop keeps it.
    fn resume_point(&self) -> Option<u64> {
        Some(self.audit.from()).filter(|_| !self.audit.finished())
    }
}

/// The records and files of one folder of containers, to be compared.
struct Look {
    records: Vec<ContainerRecord>,
    files: Files,
}

impl Look {
    fn at(core: &Core, group: u64, numbers: Range<u64>) -> Result<Self, EngineError> {
        // Rows before files: a row is written after its file, so a file missing below was there once.
        let records = records(core, &numbers)?;
        let listing = list_group(&*core.volume, group)?;
        for name in listing.strays {
            tracing::warn!(%name, "ignored an unexpected file among the containers");
        }
        let inside = |(name, bytes): (ContainerName, u64)| {
            numbers.contains(&name.id.get()).then_some((name.id, ContainerFile { class: name.class, bytes }))
        };
        Ok(Self { records, files: listing.containers.into_iter().filter_map(inside).collect() })
    }

    /// Compares the containers of these numbers. Returns true if a file is left that has no row.
    fn audit(&self, core: &Core, piece: &Range<u64>, summary: &mut OpenSummary) -> Result<bool, EngineError> {
        let inside = |id: ContainerId| piece.contains(&id.get());
        for record in self.records.iter().filter(|record| inside(record.id)) {
            core.store.look_again(record.id)?;
            // (R4) A listing alone says nothing: what it makes suspect is opened.
            if record.state == ContainerState::Live
                && !recovery::agrees(record, self.files.get(&record.id).copied())
                && core.catalog.container(record.id)?.is_some_and(|now| now.state == ContainerState::Live)
            {
                recovery::note_if_damaged(&core.store, record, summary)?;
            }
            // A container that is absent only for the moment keeps its entries.
            if !self.files.contains_key(&record.id) && core.store.absence().is_none() {
                core.store.index.forget_container(record.id);
            }
        }
        let files: Files =
            self.files.iter().filter(|(id, _)| inside(**id)).map(|(&id, &file)| (id, file)).collect();
        let before = summary.damaged_containers;
        let left = recovery::take_in(&core.catalog, &core.store, &files, summary, &NoProgress)?;
        if let Some((_, error)) = left.refused {
            return Err(error.into());
        }
        let is_unread = summary.damaged_containers > before || !left.unread.is_empty();
        // (S12) With a row or without: the index lacks them.
        core.unrecorded.note_unread(|unread| unread.containers.extend(left.unread));
        if is_unread {
            for &id in files.keys().filter(|id| !core.store.leftovers.is_gone(**id)) {
                if core.catalog.container(id)?.is_none() {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// The catalog's rows of these numbers.
fn records(core: &Core, numbers: &Range<u64>) -> Result<Vec<ContainerRecord>, EngineError> {
    let after = numbers.start.checked_sub(1).and_then(ContainerId::new);
    let limit = u32::try_from(numbers.end - numbers.start).unwrap_or(u32::MAX);
    let mut records = core.catalog.containers(after, limit)?;
    records.retain(|record| numbers.contains(&record.id.get()));
    Ok(records)
}
