//! Tasks: long work that people or schedules start and watch. Reclaim, scrub, verification, policy runs.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | start, list, pause, resume and cancel tasks; schedules |
//! | `work` | what a kind of task is |
//! | `control` | what an attempt's work is told, and tells |
//! | `board` | the tasks that have not ended, and how they are written |
//! | `runner` | the loop that begins attempts; what schedules start, and when |
//! | one file a kind | `audit`, `policy`, `reclaim`, `scrub`, `thaw`, `verify` |
//!
//! Invariants:
//! * Of each kind one attempt works at a time (of thaws several, which mostly wait), on a thread that may block; the others wait in the order they were started.
//! * An attempt ends within a moment of being told to (a shutdown, a cancellation), and its task goes on later where its
//!   kind can: work never depends on an attempt's end.
//! * What a schedule starts is started once, and what was missed is made up for once.
//! * What people do is in the catalog, and in the audit log, before they are answered; a crash loses none of it.
//!
//! Background jobs (`jobs/`) are something else: they always run, in short steps, and leave no history.

mod audit;
mod board;
mod control;
mod policy;
mod reclaim;
mod runner;
mod scrub;
#[cfg(test)]
mod tests;
mod thaw;
mod verify;
mod work;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use holdfast_engine::catalog::{
    Catalog, PageRequest, ScheduleMark, ScheduleRecord, TASK_LINES_MAX, TaskKind, TaskLine, TaskRecord,
    TaskStatus,
};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::TaskId;
use holdfast_proto::ErrorCode;
use holdfast_volume::Timer;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::activity::{Activity, Change};
use crate::error::ServiceError;
use crate::metrics::Counters;
use crate::tasks::runner::{Due, Plan};
pub(crate) use crate::tasks::work::Limits;
pub(crate) use audit::AuditWork;
use board::{Board, New};
use control::Control;
pub(crate) use policy::PolicyWork;
pub(crate) use reclaim::{Archiving, ReclaimWork};
pub(crate) use runner::TaskRunner;
pub(crate) use scrub::ScrubWork;
pub(crate) use thaw::{Options as ThawOptions, ThawWork};
pub(crate) use verify::VerifyWork;
pub(crate) use work::Work;
use work::{DefaultSchedule, Order, OwnSchedule, WorkError};

/// Caller of tasks that the clock starts.
const BY_SCHEDULE: &str = "schedule";

/// The time zone of default schedules.
const DEFAULT_TIME_ZONE: &str = "UTC";

/// Mark in the name of a schedule that a kind keeps itself.
const OWN_MARK: char = '/';

/// Interval between looks at the schedules: the most by which a task begins late.
const LOOK_INTERVAL_MS: i64 = 10_000;

/// Tasks of one kind that have ended and are kept: a year of daily ones, and more.
const KEPT_PER_KIND: u32 = 500;

/// Time for which tasks are kept that have ended: two years of monthly ones.
const KEPT_MS: i64 = 750 * 86_400_000;

/// The server around the tasks: backups and restores they make way for, and watchers of tasks.
pub(crate) trait Surroundings: Send + Sync + fmt::Debug {
    /// Returns true if a backup or a restore is in progress, which tasks must not slow down.
    fn is_busy(&self) -> bool;
    /// Tasks have changed: tell those who watch.
    fn tasks_changed(&self);
}

impl Surroundings for Activity {
    fn is_busy(&self) -> bool {
        self.streams.count() > 0
    }

    fn tasks_changed(&self) {
        self.note(Change::Tasks);
    }
}

/// Parts that tasks are built from.
#[derive(Debug)]
pub(crate) struct TaskParts {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) timer: Arc<dyn Timer>,
    pub(crate) surroundings: Arc<dyn Surroundings>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) limits: Limits,
    /// Work of each kind that there is.
    pub(crate) works: Vec<Arc<dyn Work>>,
}

/// All tasks of a server.
#[derive(Debug)]
pub(crate) struct Tasks {
    parts: TaskParts,
    board: Mutex<Board>,
    /// Time of the next look at schedules, by the clock that never jumps.
    next_look_ms: Mutex<i64>,
    wake: Notify,
}

/// A schedule as it is in force, and when it comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    pub(crate) kind: TaskKind,
    pub(crate) expression: String,
    pub(crate) time_zone: String,
    pub(crate) options: String,
    pub(crate) enabled: bool,
    /// Caller who set it, and the time; `None`: it is the default.
    pub(crate) set: Option<(String, i64)>,
    /// `None`: it is off, or never comes.
    pub(crate) next_ms: Option<i64>,
}

/// An attempt that is to be made, on a thread that may block.
#[derive(Debug)]
struct Attempt {
    id: TaskId,
    work: Arc<dyn Work>,
    order: Order,
    control: Arc<Control>,
}

impl Tasks {
    pub(crate) fn new(parts: TaskParts) -> Arc<Self> {
        let board = Mutex::new(Board::new(Arc::clone(&parts.catalog), Arc::clone(&parts.clock)));
        Arc::new(Self { board, next_look_ms: Mutex::new(i64::MIN), wake: Notify::new(), parts })
    }

    /// Starts a task; one that waits to do exactly the same, or is [shared](Work::is_shared) and does it, is returned instead.
    /// Blocks.
    ///
    /// # Errors
    /// `Invalid`: the options; `NotFound`: this server has no such kind; `Limit`; the catalog's.
    pub(crate) fn start(&self, kind: TaskKind, options: &str, who: &str) -> Result<TaskRecord, ServiceError> {
        let work = self.work(kind)?;
        let new = new(&**work, work.check(options)?, who, None);
        let started = self.board.lock().add(new)?;
        self.changed();
        Ok(started)
    }

    /// A task that does not begin by itself.
    #[cfg(test)]
    pub(crate) fn start_paused(&self, kind: TaskKind, options: &str) -> TaskRecord {
        let mut board = self.board.lock();
        let new = new(&**self.work(kind).unwrap(), options.to_owned(), "test", None);
        let task = board.add(new).unwrap();
        board.pause(task.id, "test").unwrap()
    }

    /// Pauses a task. Blocks.
    ///
    /// # Errors
    /// `NotFound`; `Invalid` when it has ended.
    pub(crate) fn pause(&self, id: TaskId, who: &str) -> Result<TaskRecord, ServiceError> {
        let record = self.board.lock().pause(id, who)?;
        self.changed();
        Ok(record)
    }

    /// Ends a pause. Blocks.
    ///
    /// # Errors
    /// As [`Tasks::pause`].
    pub(crate) fn resume(&self, id: TaskId, who: &str) -> Result<TaskRecord, ServiceError> {
        let record = self.board.lock().resume(id, who)?;
        self.changed();
        Ok(record)
    }

    /// Ends a task. Blocks.
    ///
    /// # Errors
    /// As [`Tasks::pause`].
    pub(crate) fn cancel(&self, id: TaskId, who: &str) -> Result<TaskRecord, ServiceError> {
        let record = self.board.lock().cancel(id, who)?;
        self.changed();
        Ok(record)
    }

    /// A task as it is now, with the newest `lines` of its log. Blocks.
    ///
    /// # Errors
    /// `NotFound`; the catalog's.
    pub(crate) fn get(&self, id: TaskId, lines: usize) -> Result<(TaskRecord, Vec<TaskLine>), ServiceError> {
        let live = self.board.lock().live(id);
        let known = if live.is_some() { None } else { self.parts.catalog.task(id)? };
        let (record, unsaved) = live
            .or_else(|| known.map(|task| (task, Vec::new())))
            .ok_or_else(|| ServiceError::new(ErrorCode::NotFound, format!("there is no task {id}")))?;
        let limit = u32::try_from(lines).unwrap_or(TASK_LINES_MAX);
        let mut log = self.parts.catalog.task_lines(id, limit)?;
        let mut next = log.last().map_or(1, |line| line.number.saturating_add(1));
        for line in unsaved {
            log.push(TaskLine { number: next, ..line });
            next = next.saturating_add(1);
        }
        log.drain(..log.len().saturating_sub(lines));
        Ok((record, log))
    }

    /// Tasks as they are now, newest first, and the token of the next page. Blocks.
    ///
    /// # Errors
    /// The catalog's.
    pub(crate) fn list(
        &self,
        kind: Option<TaskKind>,
        page: PageRequest<'_>,
    ) -> Result<(Vec<TaskRecord>, Option<String>), ServiceError> {
        let found = self.parts.catalog.list_tasks(kind, page)?;
        let board = self.board.lock();
        let live = |task: TaskRecord| board.live(task.id).map_or(task, |(live, _)| live);
        let mut items: Vec<TaskRecord> = found.items.into_iter().map(live).collect();
        if page.token.is_empty() {
            let unknown = board.unknown_to_catalog().into_iter();
            drop(items.splice(..0, unknown.filter(|task| kind.is_none_or(|kind| task.kind == kind))));
        }
        Ok((items, found.next))
    }

    /// The schedules in force, of kinds that have one. Blocks.
    ///
    /// # Errors
    /// The catalog's.
    pub(crate) fn schedules(&self) -> Result<Vec<Schedule>, ServiceError> {
        let set = self.parts.catalog.schedules()?;
        let now_ms = self.parts.clock.now_ms();
        let marks = self.marks()?;
        let of_work = |work: &Arc<dyn Work>| {
            let default = work.default_schedule()?;
            let stored = set.iter().find(|schedule| schedule.kind == work.kind());
            Some(in_force(work.kind(), default, stored, marks.get(work.kind().word()), now_ms))
        };
        Ok(self.parts.works.iter().filter_map(of_work).collect())
    }

    /// Sets a kind's schedule. Blocks.
    ///
    /// # Errors
    /// `Invalid`: the expression, the time zone or the options; `NotFound`: the kind has no schedule of its own.
    pub(crate) fn set_schedule(&self, schedule: ScheduleRecord) -> Result<Schedule, ServiceError> {
        let work = self.work(schedule.kind)?;
        let default = work.default_schedule().ok_or_else(|| {
            let kind = schedule.kind.word();
            ServiceError::new(
                ErrorCode::NotFound,
                format!("tasks of kind {kind} have no schedule of their own"),
            )
        })?;
        let options = work.check(&schedule.options)?;
        runner::next_occurrence(&schedule.expression, &schedule.time_zone, self.parts.clock.now_ms())?;
        let record = ScheduleRecord { options, updated_ms: self.parts.clock.now_ms(), ..schedule };
        self.parts.catalog.set_schedule(&record)?;
        self.changed();
        let mark = ScheduleMark { name: record.kind.word().to_owned(), at_ms: record.updated_ms };
        Ok(in_force(record.kind, default, Some(&record), Some(&mark), record.updated_ms))
    }

    fn work(&self, kind: TaskKind) -> Result<&Arc<dyn Work>, ServiceError> {
        self.parts.works.iter().find(|work| work.kind() == kind).ok_or_else(|| {
            let message = format!("this server has no tasks of kind {}", kind.word());
            ServiceError::new(ErrorCode::NotFound, message)
        })
    }

    fn marks(&self) -> Result<HashMap<String, ScheduleMark>, ServiceError> {
        let marks = self.parts.catalog.schedule_marks()?;
        Ok(marks.into_iter().map(|mark| (mark.name.clone(), mark)).collect())
    }

    fn changed(&self) {
        self.wake.notify_one();
        self.parts.surroundings.tasks_changed();
    }

    /// Takes up what an earlier process left, and forgets what is old. Blocks.
    fn load(&self) {
        if let Err(error) = self.board.lock().load() {
            tracing::error!(%error, "cannot look up the tasks that an earlier start left");
        }
        self.prune();
    }

    fn prune(&self) {
        let before_ms = self.parts.clock.now_ms().saturating_sub(KEPT_MS);
        if let Err(error) = self.parts.catalog.prune_tasks(before_ms, KEPT_PER_KIND) {
            tracing::warn!(%error, "cannot forget old tasks");
        }
    }

    /// Starts what is due, adapts the throttle, writes progress, and returns the attempts that begin. Blocks for
    /// moments.
    fn tick(&self) -> Vec<Attempt> {
        self.look_for_due();
        let throttle = self.parts.limits.now(self.parts.surroundings.is_busy());
        let mut board = self.board.lock();
        for control in board.entries.iter().filter_map(|entry| entry.attempt.as_ref()) {
            control.set_throttle(throttle);
        }
        board.release_held();
        let (clock, timer) = (&self.parts.clock, &self.parts.timer);
        let at_once = |kind| self.work(kind).map_or(1, |work| work.at_once());
        let begun = board.begin(at_once, || Control::new(Arc::clone(clock), Arc::clone(timer), throttle));
        let changed = board.save_all(false);
        drop(board);
        if changed || !begun.is_empty() {
            self.parts.surroundings.tasks_changed();
        }
        begun.into_iter().filter_map(|(record, control)| self.attempt(record, control)).collect()
    }

    fn attempt(&self, record: TaskRecord, control: Arc<Control>) -> Option<Attempt> {
        match self.work(record.kind) {
            Ok(work) => {
                let order = Order { options: record.options, place: record.place, who: record.who };
                Some(Attempt { id: record.id, work: Arc::clone(work), order, control })
            }
            // Left by a version that has this kind.
            Err(error) => {
                self.board.lock().ended(record.id, Err(Some(error.to_string())));
                None
            }
        }
    }

    /// An attempt has ended.
    fn ended(&self, id: TaskId, kind: TaskKind, outcome: Result<(), WorkError>) {
        let outcome = outcome.map_err(|error| match error {
            WorkError::Stopped => None,
            WorkError::Failed(error) => {
                tracing::warn!(task = %id, kind = kind.word(), %error, "a task failed");
                Some(error.to_string())
            }
        });
        self.board.lock().ended(id, outcome);
        self.prune();
        self.changed();
    }

    /// Starts what is due, every now and then.
    fn look_for_due(&self) {
        let monotonic_ms = self.parts.clock.monotonic_ms();
        {
            let mut next = self.next_look_ms.lock();
            if monotonic_ms < *next {
                return;
            }
            *next = monotonic_ms.saturating_add(LOOK_INTERVAL_MS);
        }
        if let Err(error) = self.start_due() {
            tracing::warn!(%error, "cannot look up what is due");
        }
    }

    fn start_due(&self) -> Result<(), ServiceError> {
        let now_ms = self.parts.clock.now_ms();
        let (marks, plans) = (self.marks()?, self.plans()?);
        for plan in &plans {
            match runner::due(plan, marks.get(&plan.name), now_ms) {
                Ok(Due::Later) => {}
                // One that cannot be noted keeps no other from being looked at.
                Ok(Due::Begin(mark)) => {
                    if let Err(error) = self.parts.catalog.set_schedule_mark(&mark) {
                        tracing::warn!(%error, schedule = plan.name, "a schedule cannot begin");
                    }
                }
                Ok(Due::Now(mark)) => match self.start_plan(plan, mark) {
                    // It stays due until there is room.
                    Err(error) if error.code == ErrorCode::Limit => {
                        tracing::debug!(%error, schedule = plan.name, "what is due waits for its turn");
                    }
                    Err(error) => tracing::warn!(%error, schedule = plan.name, "cannot start what is due"),
                    Ok(()) => {}
                },
                Err(error) => tracing::warn!(%error, schedule = plan.name, "a schedule cannot be read"),
            }
        }
        // Marks of policies that are gone are dropped: marks are bounded. (G11) They wait for a catalog that takes
        // changes.
        let planned: HashSet<&String> = plans.iter().map(|plan| &plan.name).collect();
        let is_left = |name: &&String| name.contains(OWN_MARK) && !planned.contains(name);
        let left: Vec<String> = marks.keys().filter(is_left).cloned().collect();
        if !left.is_empty()
            && let Err(error) = self.parts.catalog.drop_schedule_marks(&left)
        {
            tracing::warn!(%error, "the marks of schedules that are gone cannot be dropped now");
        }
        Ok(())
    }

    fn start_plan(&self, plan: &Plan, mark: ScheduleMark) -> Result<(), ServiceError> {
        let work = self.work(plan.kind)?;
        let options = work.check(&plan.options)?;
        let mut board = self.board.lock();
        if let Some(status) = board.status_of(plan.kind, &options) {
            // The task in progress does the same; two in a row would do nothing more.
            drop(board);
            // First, so that what is left out is counted once also where the catalog takes no changes for a while.
            self.parts.catalog.set_schedule_mark(&mark)?;
            if status == TaskStatus::Paused {
                // (G11) Someone may have forgotten it.
                tracing::warn!(
                    schedule = plan.name,
                    "what is due is left out: a task that does the same is paused"
                );
                self.parts.counters.schedule_skipped(plan.kind.word());
            }
            return Ok(());
        }
        board.add(new(&**work, options, BY_SCHEDULE, Some(mark)))?;
        drop(board);
        self.parts.surroundings.tasks_changed();
        Ok(())
    }

    /// Plans of everything that the clock starts.
    fn plans(&self) -> Result<Vec<Plan>, ServiceError> {
        let mut plans = Vec::new();
        for schedule in self.schedules()?.into_iter().filter(|schedule| schedule.enabled) {
            let Schedule { kind, expression, time_zone, options, .. } = schedule;
            plans.push(Plan { name: kind.word().to_owned(), kind, expression, time_zone, options });
        }
        for work in &self.parts.works {
            for OwnSchedule { name, expression, time_zone, options } in work.own_schedules()? {
                plans.push(Plan { name, kind: work.kind(), expression, time_zone, options });
            }
        }
        Ok(plans)
    }
}

fn new(work: &dyn Work, options: String, who: &str, mark: Option<ScheduleMark>) -> New {
    let (unfinished_max, shares, is_shared) = (work.unfinished_max(), work.shares(), work.is_shared());
    New { kind: work.kind(), options, who: who.to_owned(), mark, unfinished_max, shares, is_shared }
}

/// A kind's schedule: what was set, else the default.
fn in_force(
    kind: TaskKind,
    default: DefaultSchedule,
    stored: Option<&ScheduleRecord>,
    mark: Option<&ScheduleMark>,
    now_ms: i64,
) -> Schedule {
    let mut schedule = match stored {
        Some(stored) => Schedule {
            kind,
            expression: stored.expression.clone(),
            time_zone: stored.time_zone.clone(),
            options: stored.options.clone(),
            enabled: stored.enabled,
            set: Some((stored.who.clone(), stored.updated_ms)),
            next_ms: None,
        },
        None => Schedule {
            kind,
            expression: default.expression.to_owned(),
            time_zone: DEFAULT_TIME_ZONE.to_owned(),
            options: "{}".to_owned(),
            enabled: default.enabled,
            set: None,
            next_ms: None,
        },
    };
    if schedule.enabled {
        let after_ms = mark.map_or(now_ms, |mark| mark.at_ms.min(now_ms));
        schedule.next_ms =
            runner::next_occurrence(&schedule.expression, &schedule.time_zone, after_ms).ok().flatten();
    }
    schedule
}
