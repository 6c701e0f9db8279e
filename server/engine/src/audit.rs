//! The audit: every container of the catalog against the volume and the index, in the background.
//!
//! A start looks only at what may have changed ([S6]); this looks at everything else, one folder of containers a
//! step, after the server is ready. It is due after every start without the mark of a clean stop, and how far
//! it came is kept in the next mark. Only numbers handed out before this start are looked at: what the running
//! process writes is its own business.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_types::ids::ContainerId;
use parking_lot::Mutex;

use crate::container::ContainerName;
use crate::core::Core;
use crate::error::EngineError;
use crate::progress::{NoProgress, Progress};
use crate::recovery::{self, ContainerFile, Files, GROUP_CONTAINERS, OpenSummary, list_group};

/// How far the audit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditProgress {
    /// Container numbers looked at, and all there are to look at.
    pub done: u64,
    pub total: u64,
    pub finished: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Audit {
    /// Numbers below were looked at; `u64::MAX`: all were.
    from: AtomicU64,
    /// The lowest number this process may hand out.
    end: u64,
    /// Held while a step works; set when there are to be no more.
    closed: Mutex<bool>,
}

impl Audit {
    /// Looks at the containers of these numbers, from `from` on.
    pub(crate) const fn new(from: u64, end: u64) -> Self {
        Self { from: AtomicU64::new(from), end, closed: Mutex::new(false) }
    }

    /// The number it goes on from; `u64::MAX` when it has ended.
    pub(crate) fn from(&self) -> u64 {
        self.from.load(Ordering::Acquire)
    }

    pub(crate) fn progress(&self) -> AuditProgress {
        let from = self.from();
        let done = from.min(self.end);
        AuditProgress { done, total: self.end, finished: from == u64::MAX }
    }

    /// Waits for the step under way and lets no other begin: a clean stop tells how far it came.
    pub(crate) fn close(&self) {
        *self.closed.lock() = true;
    }

    /// Looks at one folder of containers. What failed is looked at again by the next step.
    pub(crate) fn step(&self, core: &Core, summary: &mut OpenSummary) -> Result<AuditProgress, EngineError> {
        let closed = self.closed.lock();
        if *closed {
            return Err(EngineError::Unavailable);
        }
        let from = self.from();
        if from < self.end {
            let group = from / GROUP_CONTAINERS;
            let end = ((group + 1) * GROUP_CONTAINERS).min(self.end);
            audit_group(core, group, from..end, summary)?;
            self.from.store(end, Ordering::Release);
        }
        if self.from() >= self.end {
            self.from.store(u64::MAX, Ordering::Release);
        }
        Ok(self.progress())
    }

    /// All steps that are left.
    pub(crate) fn run(&self, core: &Core, progress: &dyn Progress) -> Result<OpenSummary, EngineError> {
        let mut summary = OpenSummary::default();
        loop {
            let at = self.step(core, &mut summary)?;
            progress.step("containers audited", at.done, at.total);
            if at.finished {
                return Ok(summary);
            }
        }
    }
}

fn audit_group(
    core: &Core,
    group: u64,
    numbers: Range<u64>,
    summary: &mut OpenSummary,
) -> Result<(), EngineError> {
    // Rows before files: a row is written after its file, so a file missing below was there once.
    let records = records(core, &numbers)?;
    let listing = list_group(&*core.volume, group)?;
    for name in listing.strays {
        tracing::warn!(%name, "ignored an unexpected file among the containers");
    }
    let inside = |(name, bytes): (ContainerName, u64)| {
        numbers.contains(&name.id.get()).then_some((name.id, ContainerFile { class: name.class, bytes }))
    };
    let files: Files = listing.containers.into_iter().filter_map(inside).collect();
    for record in &records {
        core.store.look_again(record.id)?;
        // A listing alone says nothing: what it makes suspect is opened.
        if record.state == ContainerState::Live
            && !recovery::agrees(record, files.get(&record.id).copied())
            && core.catalog.container(record.id)?.is_some_and(|now| now.state == ContainerState::Live)
        {
            recovery::note_if_damaged(&core.store, record, summary)?;
        }
        // What is only absent for the moment keeps its entries.
        if !files.contains_key(&record.id) && core.store.absence().is_none() {
            core.store.index.forget_container(record.id);
        }
    }
    recovery::take_in(&*core.catalog, &core.store, &files, summary, &NoProgress)
}

/// The catalog's rows of these numbers.
fn records(core: &Core, numbers: &Range<u64>) -> Result<Vec<ContainerRecord>, EngineError> {
    let after = numbers.start.checked_sub(1).and_then(ContainerId::new);
    let limit = u32::try_from(numbers.end - numbers.start).unwrap_or(u32::MAX);
    let mut records = core.catalog.containers(after, limit)?;
    records.retain(|record| numbers.contains(&record.id.get()));
    Ok(records)
}
