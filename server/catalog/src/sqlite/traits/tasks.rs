//! [`Tasks`] on SQLite.

use holdfast_types::ids::TaskId;

use super::super::{SqliteCatalog, audit, schedules, tasks};
use crate::{
    AuditEntry, Page, PageRequest, Result, ScheduleMark, ScheduleRecord, TASK_LINES_MAX, TaskKind, TaskLine,
    TaskRecord, Tasks, validate,
};

impl Tasks for SqliteCatalog {
    fn add_task(&self, task: &TaskRecord, mark: Option<&ScheduleMark>) -> Result<()> {
        validate::new_task(task)?;
        mark.map_or(Ok(()), validate::schedule_mark)?;
        self.write(|tx| {
            tasks::add(tx, self.clock.as_ref(), task)?;
            mark.map_or(Ok(()), |mark| schedules::set_mark(tx, mark))
        })
    }

    fn update_task(&self, task: &TaskRecord, lines: &[TaskLine], audit: Option<&AuditEntry>) -> Result<()> {
        validate::task(task)?;
        self.write(|tx| {
            tasks::update(tx, task)?;
            tasks::add_lines(tx, task.id, lines)?;
            audit.map_or(Ok(()), |entry| audit::add(tx, self.clock.as_ref(), entry))
        })
    }

    fn task(&self, id: TaskId) -> Result<Option<TaskRecord>> {
        self.look_up(|c| tasks::by_id(c, id))
    }

    fn list_tasks(&self, kind: Option<TaskKind>, page: PageRequest<'_>) -> Result<Page<TaskRecord>> {
        self.report(|c| tasks::list(c, kind, page))
    }

    fn unfinished_tasks(&self) -> Result<Vec<TaskRecord>> {
        self.look_up(tasks::unfinished)
    }

    fn last_done_task(&self, kind: TaskKind) -> Result<Option<TaskRecord>> {
        self.look_up(|c| tasks::last_done(c, kind))
    }

    fn task_lines(&self, id: TaskId, limit: u32) -> Result<Vec<TaskLine>> {
        self.look_up(|c| tasks::lines(c, id, limit.min(TASK_LINES_MAX)))
    }

    fn prune_tasks(&self, before_ms: i64, keep: u32) -> Result<u64> {
        self.write(|tx| tasks::prune(tx, before_ms, keep))
    }

    fn schedules(&self) -> Result<Vec<ScheduleRecord>> {
        self.look_up(schedules::all)
    }

    fn set_schedule(&self, schedule: &ScheduleRecord) -> Result<()> {
        validate::schedule(schedule)?;
        self.write(|tx| schedules::set(tx, self.clock.as_ref(), schedule))
    }

    fn schedule_marks(&self) -> Result<Vec<ScheduleMark>> {
        self.look_up(schedules::marks)
    }

    fn set_schedule_mark(&self, mark: &ScheduleMark) -> Result<()> {
        validate::schedule_mark(mark)?;
        self.write(|tx| schedules::set_mark(tx, mark))
    }

    fn drop_schedule_marks(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.write(|tx| schedules::drop_marks(tx, names))
    }
}
