//! The tasks that have not ended, and what people tell them.
//!
//! Memory leads, the catalog follows at once: what people do is written before they are answered, progress every
//! [`SAVE_INTERVAL_MS`]. Where the catalog takes no changes (a full disk, most of all) tasks go on without it, for reclaim is
//! what makes room, and are written once it does.
//!
//! | a crash leaves a task | the next start |
//! |---|---|
//! | `running` | queues it again; after [`ATTEMPTS_MAX`] attempts it has failed |
//! | `interrupted` (a shutdown) | queues it again |
//! | `queued`, `paused` | finds it as it was |

use std::sync::Arc;

use holdfast_engine::catalog::{
    AuditEntry, Catalog, CatalogError, ScheduleMark, TASK_LINES_MAX, TaskKind, TaskLine, TaskProgress,
    TaskRecord, TaskStatus, UNFINISHED_TASKS_MAX, new_id,
};
use holdfast_engine::clock::{Clock, utc_text};
use holdfast_engine::ids::TaskId;
use holdfast_proto::ErrorCode;

use super::control::Control;
use super::work::Share;
use crate::error::ServiceError;

/// Interval at which the progress of a task is written. A crash loses this much of it, and nothing of the work.
const SAVE_INTERVAL_MS: i64 = 5_000;

/// Attempts of a task that a crash ended the last of: what brings the server down must not do so for ever.
pub(super) const ATTEMPTS_MAX: u32 = 10;

/// A paused attempt keeps its place in memory this long; then it ends, and the next one begins with `place`. What an attempt
/// holds (a mark of gigabytes, containers that must stay) is not held for a pause of days.
const HELD_MAX_MS: i64 = 600_000;

/// (G11) A pause ends by itself after so long: one that is forgotten would switch off what its schedule starts.
pub(super) const PAUSE_MAX_MS: i64 = 86_400_000;

/// Places that only reclaim takes: room is made by it, whatever else waits.
const RECLAIM_PLACES: usize = 4;

/// A task that has not ended.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: TaskRecord,
    /// Control of the attempt, while it works or is held by a pause.
    pub(super) attempt: Option<Arc<Control>>,
    /// Caller who wants it ended.
    cancelled_by: Option<String>,
    /// Set once the catalog has it.
    added: bool,
    /// Moves when it is added.
    mark: Option<ScheduleMark>,
    dirty: bool,
    saved_ms: i64,
    paused_ms: Option<i64>,
    lines: Vec<TaskLine>,
    audit: Vec<AuditEntry>,
}

/// The tasks that have not ended.
#[derive(Debug)]
pub(super) struct Board {
    catalog: Arc<Catalog>,
    clock: Arc<dyn Clock>,
    pub(super) entries: Vec<Entry>,
    /// Set once no attempt begins any more.
    pub(super) stopping: bool,
}

/// A new task, before it is added.
#[derive(Debug)]
pub(super) struct New {
    pub(super) kind: TaskKind,
    pub(super) options: String,
    pub(super) who: String,
    /// Mark of the schedule that starts it.
    pub(super) mark: Option<ScheduleMark>,
    /// See [`super::work::Work`].
    pub(super) unfinished_max: usize,
    pub(super) shares: &'static [Share],
    pub(super) is_shared: bool,
}

impl Entry {
    fn new(record: TaskRecord, added: bool) -> Self {
        Self {
            record,
            attempt: None,
            cancelled_by: None,
            added,
            mark: None,
            dirty: false,
            saved_ms: 0,
            paused_ms: None,
            lines: Vec::new(),
            audit: Vec::new(),
        }
    }

    fn note(&mut self, at_ms: i64, text: impl Into<String>) {
        self.lines.push(TaskLine { number: 0, at_ms, text: text.into() });
        self.dirty = true;
    }

    fn audit(&mut self, who: &str, action: &str, detail: &str) {
        let kind = self.record.kind.word();
        self.audit.push(AuditEntry {
            who: who.to_owned(),
            action: action.to_owned(),
            object: self.record.id.to_string(),
            detail: if detail.is_empty() { kind.to_owned() } else { format!("{kind}, {detail}") },
        });
        self.dirty = true;
    }

    fn resume(&mut self) {
        (self.paused_ms, self.record.paused_until_ms) = (None, None);
        self.record.status = match &self.attempt {
            Some(control) => {
                control.pause(false);
                TaskStatus::Running
            }
            None => TaskStatus::Queued,
        };
    }

    /// Takes over what its attempt has told.
    fn collect(&mut self) {
        let Some(control) = &self.attempt else { return };
        let progress = control.progress();
        let (lines, figures, place) = control.take_told();
        self.dirty |= !lines.is_empty() || figures.is_some() || place.is_some();
        self.dirty |= self.record.progress != progress;
        self.record.progress = progress;
        self.lines.extend(lines);
        self.record.figures = figures.unwrap_or_else(|| std::mem::take(&mut self.record.figures));
        self.record.place = place.unwrap_or_else(|| std::mem::take(&mut self.record.place));
    }
}

impl Board {
    pub(super) fn new(catalog: Arc<Catalog>, clock: Arc<dyn Clock>) -> Self {
        Self { catalog, clock, entries: Vec::new(), stopping: false }
    }

    /// Takes up what an earlier process left.
    pub(super) fn load(&mut self) -> Result<(), ServiceError> {
        let now_ms = self.clock.now_ms();
        for record in self.catalog.unfinished_tasks()? {
            let mut entry = Entry::new(record, true);
            let crashed = entry.record.status == TaskStatus::Running;
            if crashed && entry.record.attempts >= ATTEMPTS_MAX {
                let attempts = entry.record.attempts;
                entry.record.error = format!(
                    "the server has ended while it ran, in the last of {attempts} attempts; start it again"
                );
                end(&mut entry, TaskStatus::Failed, now_ms);
            } else if crashed || entry.record.status == TaskStatus::Interrupted {
                entry.record.status = TaskStatus::Queued;
                entry.note(now_ms, "interrupted by the end of the server; begins again");
            } else if entry.record.status == TaskStatus::Paused && entry.record.paused_until_ms.is_none() {
                // (G11) By an earlier version, which did not note when its pause ends.
                entry.record.paused_until_ms = Some(now_ms.saturating_add(PAUSE_MAX_MS));
                entry.dirty = true;
            }
            self.entries.push(entry);
        }
        self.save_all(true);
        Ok(())
    }

    /// Adds a task, or finds the one that waits already to do exactly that.
    pub(super) fn add(&mut self, new: New) -> Result<TaskRecord, ServiceError> {
        if self.stopping {
            return Err(ServiceError::shutting_down());
        }
        let waits = |entry: &&mut Entry| {
            let record = &entry.record;
            let counts = record.status == TaskStatus::Queued
                || (new.is_shared && !record.status.has_ended() && entry.cancelled_by.is_none());
            counts && record.kind == new.kind && record.options == new.options
        };
        if let Some(entry) = self.entries.iter_mut().find(waits) {
            return Ok(entry.record.clone());
        }
        self.check_room(&new)?;
        let record = TaskRecord {
            id: TaskId(new_id(&*self.clock)?),
            kind: new.kind,
            status: TaskStatus::Queued,
            who: new.who,
            scheduled: new.mark.is_some(),
            options: new.options,
            created_ms: self.clock.now_ms(),
            started_ms: None,
            finished_ms: None,
            paused_until_ms: None,
            attempts: 0,
            progress: TaskProgress::default(),
            place: String::new(),
            figures: String::new(),
            error: String::new(),
        };
        let mut entry = Entry::new(record.clone(), false);
        entry.mark = new.mark;
        match self.catalog.add_task(&record, entry.mark.as_ref()) {
            Ok(()) => (entry.added, entry.mark) = (true, None),
            // Room is made by reclaim, which must not need room to be started.
            Err(error) if error.refuses_changes() && record.kind == TaskKind::Reclaim => {
                tracing::warn!(%error, task = %record.id, "a reclaim begins that the catalog does not know yet");
            }
            Err(error) => return Err(error.into()),
        }
        self.entries.push(entry);
        Ok(record)
    }

    /// Checks that there is room for one more task.
    fn check_room(&self, new: &New) -> Result<(), ServiceError> {
        let kept_free = if new.kind == TaskKind::Reclaim { 0 } else { RECLAIM_PLACES };
        if self.entries.len() + kept_free >= UNFINISHED_TASKS_MAX as usize {
            return Err(ServiceError::at_capacity(format!(
                "{} tasks have not ended, which is all there may be; cancel some",
                self.entries.len()
            )));
        }
        let kind = new.kind.word();
        let of_kind = || self.entries.iter().filter(|entry| entry.record.kind == new.kind);
        for Share { option, unfinished_max, what } in new.shares {
            let wanted = value_of(&new.options, option);
            let count = of_kind().filter(|of| wanted == value_of(&of.record.options, option)).count();
            if wanted.is_some() && count >= *unfinished_max {
                return Err(ServiceError::at_capacity(format!(
                    "{count} tasks of kind {kind} of this {what} have not ended, which is all there may be of one; wait until one \
                     has, or have an administrator cancel one"
                )));
            }
        }
        let of_kind = of_kind().count();
        if of_kind >= new.unfinished_max {
            return Err(ServiceError::at_capacity(format!(
                "{of_kind} tasks of kind {kind} have not ended, which is all there may be; wait for some, or cancel them"
            )));
        }
        Ok(())
    }

    /// Pauses a task for [`PAUSE_MAX_MS`]. One that is paused is paused anew.
    pub(super) fn pause(&mut self, id: TaskId, who: &str) -> Result<TaskRecord, ServiceError> {
        let now_ms = self.clock.now_ms();
        let monotonic_ms = self.clock.monotonic_ms();
        let entry = self.find(id, "paused")?;
        let until_ms = now_ms.saturating_add(PAUSE_MAX_MS);
        entry.record.paused_until_ms = Some(until_ms);
        entry.note(now_ms, format!("paused by {who}, until {} at the latest", utc_text(until_ms)));
        if entry.record.status != TaskStatus::Paused {
            entry.record.status = TaskStatus::Paused;
            entry.paused_ms = Some(monotonic_ms);
            entry.audit(who, "task.pause", "");
            if let Some(control) = &entry.attempt {
                control.pause(true);
            }
        }
        let record = entry.record.clone();
        self.save_all(true);
        Ok(record)
    }

    /// Ends a pause. Does nothing to a task that is not paused.
    pub(super) fn resume(&mut self, id: TaskId, who: &str) -> Result<TaskRecord, ServiceError> {
        let now_ms = self.clock.now_ms();
        let entry = self.find(id, "resumed")?;
        if entry.record.status == TaskStatus::Paused {
            entry.resume();
            entry.note(now_ms, format!("resumed by {who}"));
            entry.audit(who, "task.resume", "");
        }
        let record = entry.record.clone();
        self.save_all(true);
        Ok(record)
    }

    /// Ends a task: at once when no attempt works, else as soon as it can.
    pub(super) fn cancel(&mut self, id: TaskId, who: &str) -> Result<TaskRecord, ServiceError> {
        let now_ms = self.clock.now_ms();
        let entry = self.find(id, "cancelled")?;
        if entry.cancelled_by.is_none() {
            entry.cancelled_by = Some(who.to_owned());
            entry.note(now_ms, format!("cancelled by {who}"));
            entry.audit(who, "task.cancel", "");
            match &entry.attempt {
                Some(control) => control.stop(),
                None => end(entry, TaskStatus::Cancelled, now_ms),
            }
        }
        let record = entry.record.clone();
        self.save_all(true);
        Ok(record)
    }

    fn find(&mut self, id: TaskId, to_be: &str) -> Result<&mut Entry, ServiceError> {
        if !self.entries.iter().any(|entry| entry.record.id == id && !entry.record.status.has_ended()) {
            let Some(ended) = self.catalog.task(id)? else {
                return Err(ServiceError::new(ErrorCode::NotFound, format!("there is no task {id}")));
            };
            let status = ended.status.word();
            return Err(ServiceError::invalid(format!("task {id} is {status} and cannot be {to_be}")));
        }
        let entry = self.entries.iter_mut().find(|entry| entry.record.id == id);
        entry.ok_or_else(|| ServiceError::defect(format!("task {id} vanished")))
    }

    /// Begins the oldest waiting tasks of each kind, as many as may work at once, with a control each from `make`.
    pub(super) fn begin(
        &mut self,
        at_once: impl Fn(TaskKind) -> usize,
        make: impl Fn() -> Control,
    ) -> Vec<(TaskRecord, Arc<Control>)> {
        let mut begun = Vec::new();
        if self.stopping {
            return begun;
        }
        let now_ms = self.clock.now_ms();
        for kind in TaskKind::ALL {
            let of_kind = |entry: &&Entry| entry.record.kind == kind && entry.attempt.is_some();
            let room = at_once(kind).saturating_sub(self.entries.iter().filter(of_kind).count());
            let waits =
                |entry: &&mut Entry| entry.record.kind == kind && entry.record.status == TaskStatus::Queued;
            for entry in self.entries.iter_mut().filter(waits).take(room) {
                let control = Arc::new(make());
                entry.record.status = TaskStatus::Running;
                entry.record.started_ms = entry.record.started_ms.or(Some(now_ms));
                entry.record.attempts = entry.record.attempts.saturating_add(1);
                entry.attempt = Some(Arc::clone(&control));
                let attempt = entry.record.attempts;
                entry.note(
                    now_ms,
                    if attempt == 1 { "begun".to_owned() } else { format!("begun, attempt {attempt}") },
                );
                begun.push((entry.record.clone(), control));
            }
        }
        if !begun.is_empty() {
            self.save_all(true);
        }
        begun
    }

    /// An attempt has ended: `Ok` with its work done, else with why not (`None`: it was stopped).
    pub(super) fn ended(&mut self, id: TaskId, outcome: Result<(), Option<String>>) {
        let (now_ms, stopping) = (self.clock.now_ms(), self.stopping);
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.record.id == id) else { return };
        entry.collect();
        entry.attempt = None;
        entry.paused_ms = None;
        match outcome {
            Ok(()) => end(entry, TaskStatus::Done, now_ms),
            Err(Some(error)) => {
                entry.record.error.clone_from(&error);
                entry.note(now_ms, format!("failed: {error}"));
                end(entry, TaskStatus::Failed, now_ms);
            }
            Err(None) if entry.cancelled_by.is_some() => end(entry, TaskStatus::Cancelled, now_ms),
            // It goes on when it is resumed.
            Err(None) if entry.record.status == TaskStatus::Paused => entry.dirty = true,
            Err(None) => {
                entry.record.status = if stopping { TaskStatus::Interrupted } else { TaskStatus::Queued };
                entry.note(now_ms, "interrupted");
            }
        }
        self.save_all(true);
    }

    /// Ends pauses that are over, and attempts that have been held by one for long.
    pub(super) fn release_held(&mut self) {
        let (now_ms, utc_ms) = (self.clock.monotonic_ms(), self.clock.now_ms());
        for entry in &mut self.entries {
            // (G11) One that ends further ahead than any can is from before the clock was set back.
            let left_ms = entry.record.paused_until_ms.unwrap_or(0).saturating_sub(utc_ms);
            if entry.record.status == TaskStatus::Paused && !(1..=PAUSE_MAX_MS).contains(&left_ms) {
                entry.resume();
                entry.note(utc_ms, "the pause is over");
                continue;
            }
            let long = entry.paused_ms.is_some_and(|since| now_ms.saturating_sub(since) >= HELD_MAX_MS);
            if let Some(control) = entry.attempt.as_ref().filter(|_| long) {
                control.stop();
            }
        }
    }

    /// Writes what has changed; progress alone only every now and then, unless `all`. Returns whether anything changed.
    pub(super) fn save_all(&mut self, all: bool) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let mut changed = false;
        for entry in &mut self.entries {
            entry.collect();
            changed |= entry.dirty;
            let due = all || now_ms.saturating_sub(entry.saved_ms) >= SAVE_INTERVAL_MS;
            if entry.dirty && due {
                entry.saved_ms = now_ms;
                save(&self.catalog, entry);
            }
        }
        self.entries.retain(|entry| entry.dirty || !entry.record.status.has_ended());
        changed
    }

    /// Status of a task that does exactly this and has not ended, or is not written yet: paused only if all such tasks
    /// are.
    pub(super) fn status_of(&self, kind: TaskKind, options: &str) -> Option<TaskStatus> {
        let does_it = |entry: &&Entry| entry.record.kind == kind && entry.record.options == options;
        let found = self.entries.iter().filter(does_it).map(|entry| entry.record.status);
        found.min_by_key(|status| *status == TaskStatus::Paused)
    }

    /// Tells all attempts to end; none begins any more.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        for control in self.entries.iter().filter_map(|entry| entry.attempt.as_ref()) {
            control.stop();
        }
    }

    /// A task that the catalog may not know as it is: its record, and the lines that are not written.
    pub(super) fn live(&self, id: TaskId) -> Option<(TaskRecord, Vec<TaskLine>)> {
        let entry = self.entries.iter().find(|entry| entry.record.id == id)?;
        Some((shown(entry), entry.lines.clone()))
    }

    /// Tasks that the catalog could not be told of yet, newest first.
    pub(super) fn unknown_to_catalog(&self) -> Vec<TaskRecord> {
        self.entries.iter().rev().filter(|entry| !entry.added).map(shown).collect()
    }
}

/// Value of one option in a task's options.
fn value_of(options: &str, option: &str) -> Option<String> {
    let options: serde_json::Value = serde_json::from_str(options).ok()?;
    Some(options.get(option)?.as_str()?.to_owned())
}

fn shown(entry: &Entry) -> TaskRecord {
    let progress = entry.attempt.as_ref().map_or_else(|| entry.record.progress.clone(), |c| c.progress());
    TaskRecord { progress, ..entry.record.clone() }
}

fn end(entry: &mut Entry, status: TaskStatus, now_ms: i64) {
    entry.record.status = status;
    entry.record.paused_until_ms = None;
    entry.record.finished_ms = Some(now_ms);
    let who = entry.cancelled_by.clone().unwrap_or_else(|| entry.record.who.clone());
    let told = if entry.record.error.is_empty() { &entry.record.figures } else { &entry.record.error };
    let detail = format!("{}: {told}", status.word());
    entry.audit(&who, "task.end", &detail);
    entry.note(now_ms, status.word());
}

/// Tries to write all of an entry; what cannot be written now is tried again.
fn save(catalog: &Catalog, entry: &mut Entry) {
    let mut write = || -> Result<(), CatalogError> {
        if !entry.added {
            // As it was when it was added: what has ended is not.
            let queued = TaskRecord { status: TaskStatus::Queued, finished_ms: None, ..entry.record.clone() };
            catalog.add_task(&queued, entry.mark.as_ref())?;
            (entry.added, entry.mark) = (true, None);
        }
        catalog.update_task(&entry.record, &entry.lines, entry.audit.first())?;
        entry.lines.clear();
        entry.audit.drain(..entry.audit.len().min(1));
        while let Some(more) = entry.audit.first() {
            catalog.audit(more)?;
            entry.audit.remove(0);
        }
        Ok(())
    };
    match write() {
        Ok(()) => entry.dirty = false,
        Err(error) if error.refuses_changes() => {
            tracing::warn!(%error, task = %entry.record.id, "a task cannot be written to the catalog now");
            let excess = entry.lines.len().saturating_sub(TASK_LINES_MAX as usize);
            entry.lines.drain(..excess);
        }
        Err(error) => {
            // No later try would do better.
            tracing::error!(%error, task = %entry.record.id, "the catalog refuses a task");
            entry.lines.clear();
            entry.audit.clear();
            entry.dirty = false;
        }
    }
}
