//! Long work that people or schedules start and watch, and when it is due.

use holdfast_types::ids::TaskId;

use crate::sqlite::{Catalog, audit, schedules, tasks};
use crate::{
    AuditEntry, Page, PageRequest, Result, ScheduleMark, ScheduleRecord, TASK_LINES_MAX, TaskKind, TaskLine,
    TaskRecord, validate,
};

/// Tasks and schedules. A task is changed until it has ended, by the one process that runs it; its log only grows, at
/// its end. Across processes: each function is one transaction.
impl Catalog {
    /// Adds a task that has not ended, with an audit entry in its `who`'s name. With `mark`, the schedule's mark moves
    /// in the same transaction: what a schedule starts is started once, whatever crashes. `Exists`: there is one of that
    /// id. `Invalid`: it has ended, a text is too long, or there are [`crate::UNFINISHED_TASKS_MAX`].
    pub fn add_task(&self, task: &TaskRecord, mark: Option<&ScheduleMark>) -> Result<()> {
        validate::new_task(task)?;
        mark.map_or(Ok(()), validate::schedule_mark)?;
        self.write(|tx| {
            tasks::add(tx, self.clock.as_ref(), task)?;
            mark.map_or(Ok(()), |mark| schedules::set_mark(tx, mark))
        })
    }

    /// Writes what can change of a task: status, times, attempts, progress, place, figures, error. Adds `lines` to its
    /// log, of which the newest [`TASK_LINES_MAX`](crate::TASK_LINES_MAX) stay, and `audit` to the audit log.
    /// `NotFound`: there is no such task. `Invalid`: it has ended already, with another status, or a text is too long.
    pub fn update_task(
        &self,
        task: &TaskRecord,
        lines: &[TaskLine],
        audit: Option<&AuditEntry>,
    ) -> Result<()> {
        validate::task(task)?;
        self.write(|tx| {
            tasks::update(tx, task)?;
            tasks::add_lines(tx, task.id, lines)?;
            audit.map_or(Ok(()), |entry| audit::add(tx, self.clock.as_ref(), entry))
        })
    }

    /// A task.
    pub fn task(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        self.look_up(|c| tasks::by_id(c, id))
    }

    /// Tasks, newest first; `None`: of every kind. `Invalid`: the page token is not of this list.
    pub fn list_tasks(&self, kind: Option<TaskKind>, page: PageRequest<'_>) -> Result<Page<TaskRecord>> {
        self.report(|c| tasks::list(c, kind, page))
    }

    /// Tasks that have not ended, oldest first.
    pub fn unfinished_tasks(&self) -> Result<Vec<TaskRecord>> {
        self.look_up(tasks::unfinished)
    }

    /// The latest task of a kind that is done.
    pub fn last_done_task(&self, kind: TaskKind) -> Result<Option<TaskRecord>> {
        self.look_up(|c| tasks::last_done(c, kind))
    }

    /// The newest `limit` lines of a task's log, oldest first. None for a task that does not exist.
    pub fn task_lines(&self, id: TaskId, limit: u32) -> Result<Vec<TaskLine>> {
        self.look_up(|c| tasks::lines(c, id, limit.min(TASK_LINES_MAX)))
    }

    /// Forgets tasks that have ended: those that ended before `before_ms`, and of each kind all but the newest `keep`. The
    /// latest of each kind that is done stays. Returns how many.
    pub fn prune_tasks(&self, before_ms: i64, keep: u32) -> Result<u64> {
        self.write(|tx| tasks::prune(tx, before_ms, keep))
    }

    /// The schedules that were set, by kind.
    pub fn schedules(&self) -> Result<Vec<ScheduleRecord>> {
        self.look_up(schedules::all)
    }

    /// Sets a kind's schedule, with an audit entry, and moves its mark to `updated_ms`: what would have been due before is
    /// not. `Invalid`: a text is too long.
    pub fn set_schedule(&self, schedule: &ScheduleRecord) -> Result<()> {
        validate::schedule(schedule)?;
        self.write(|tx| schedules::set(tx, self.clock.as_ref(), schedule))
    }

    /// Returns all marks, by name.
    pub fn schedule_marks(&self) -> Result<Vec<ScheduleMark>> {
        self.look_up(schedules::marks)
    }

    /// Moves a mark, or makes it. `Invalid`: its name is empty or too long, or there are
    /// [`SCHEDULE_MARKS_MAX`](crate::SCHEDULE_MARKS_MAX).
    pub fn set_schedule_mark(&self, mark: &ScheduleMark) -> Result<()> {
        validate::schedule_mark(mark)?;
        self.write(|tx| schedules::set_mark(tx, mark))
    }

    /// Forgets marks. Does nothing for names that there are not.
    pub fn drop_schedule_marks(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.write(|tx| schedules::drop_marks(tx, names))
    }
}
