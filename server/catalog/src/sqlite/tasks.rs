//! Tasks and their logs.

use holdfast_types::clock::Clock;
use holdfast_types::ids::TaskId;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::audit;
use super::convert::{OrCatalogError, bad_value, count, id, int};
use super::select::Conditions;
use crate::limits::BACKUPS_PER_PAGE;
use crate::limits::{TASK_LINES_MAX, UNFINISHED_TASKS_MAX};
use crate::page::{self, List};
use crate::{
    AuditEntry, BACKUPS_PER_PAGE_MAX, CatalogError, Page, PageRequest, Result, TaskKind, TaskLine,
    TaskProgress, TaskRecord, TaskStatus, validate,
};

pub(crate) const SELECT: &str = "SELECT * FROM tasks";
pub(crate) const ORDER: &str = "ORDER BY id DESC";

pub(crate) fn add(tx: &Transaction<'_>, clock: &dyn Clock, task: &TaskRecord) -> Result<()> {
    if by_id(tx, task.id)?.is_some() {
        return Err(CatalogError::exists("task", task.id));
    }
    let unfinished: i64 = tx
        .query_row("SELECT count(*) FROM tasks WHERE finished_ms IS NULL", [], |row| row.get(0))
        .or_error("read")?;
    if unfinished >= i64::from(UNFINISHED_TASKS_MAX) {
        return Err(CatalogError::invalid(format!(
            "{unfinished} tasks have not ended, which is all there may be; cancel some"
        )));
    }
    let TaskProgress { done, total, unit } = &task.progress;
    tx.execute(
        "INSERT INTO tasks (id, kind, status, who, scheduled, options, created_ms, started_ms, finished_ms, \
         attempts, done, total, unit, place, figures, error) \
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, ?, ?, ?, ?, ?, ?)",
        params![
            task.id.to_bytes(),
            task.kind.word(),
            task.status.word(),
            validate::clip(&task.who),
            task.scheduled,
            task.options,
            task.created_ms,
            task.started_ms,
            task.attempts,
            int("done", *done)?,
            int("total", *total)?,
            validate::clip(unit),
            task.place,
            task.figures,
            validate::clip(&task.error),
        ],
    )
    .or_error("write")?;
    let by = if task.scheduled { "by schedule" } else { "asked for" };
    let entry = AuditEntry {
        who: task.who.clone(),
        action: "task.start".to_owned(),
        object: task.id.to_string(),
        detail: format!("{}, {by}: {}", task.kind.word(), task.options),
    };
    audit::add(tx, clock, &entry)
}

pub(crate) fn update(tx: &Transaction<'_>, task: &TaskRecord) -> Result<()> {
    let known = by_id(tx, task.id)?.ok_or_else(|| CatalogError::not_found("task", task.id))?;
    if known.status.has_ended() && known.status != task.status {
        let (is, wanted) = (known.status.word(), task.status.word());
        return Err(CatalogError::invalid(format!("task {} is {is} and cannot be {wanted}", task.id)));
    }
    let TaskProgress { done, total, unit } = &task.progress;
    tx.prepare_cached(
        "UPDATE tasks SET status = ?, started_ms = ?, finished_ms = ?, attempts = ?, done = ?, total = ?, unit = ?, \
         paused_until_ms = ?, place = ?, figures = ?, error = ? WHERE id = ?",
    )
    .and_then(|mut s| {
        s.execute(params![
            task.status.word(),
            task.started_ms,
            task.finished_ms,
            task.attempts,
            // Bounded by what is counted: bytes of a volume, rows of a catalog.
            i64::try_from(*done).unwrap_or(i64::MAX),
            i64::try_from(*total).unwrap_or(i64::MAX),
            validate::clip(unit),
            task.paused_until_ms,
            task.place,
            task.figures,
            validate::clip(&task.error),
            task.id.to_bytes(),
        ])
    })
    .or_error("write")?;
    Ok(())
}

pub(crate) fn add_lines(tx: &Transaction<'_>, task: TaskId, lines: &[TaskLine]) -> Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let id = task.to_bytes();
    let mut add = tx
        .prepare_cached(
            "INSERT INTO task_log (task_id, number, at_ms, text) VALUES (?1, \
             (SELECT coalesce(max(number), 0) + 1 FROM task_log WHERE task_id = ?1), ?2, ?3)",
        )
        .or_error("write")?;
    for line in lines {
        add.execute(params![id, line.at_ms, validate::clip(&line.text)]).or_error("write")?;
    }
    tx.execute(
        "DELETE FROM task_log WHERE task_id = ?1 AND number <= \
         (SELECT max(number) FROM task_log WHERE task_id = ?1) - ?2",
        params![id, TASK_LINES_MAX],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn by_id(connection: &Connection, id: TaskId) -> Result<Option<TaskRecord>> {
    connection
        .prepare_cached("SELECT * FROM tasks WHERE id = ?")
        .and_then(|mut s| s.query_row([id.to_bytes()], read).optional())
        .or_error("read")
}

pub(crate) fn list(
    connection: &Connection,
    kind: Option<TaskKind>,
    page: PageRequest<'_>,
) -> Result<Page<TaskRecord>> {
    let mut conditions = of_kind(kind);
    if let Some(key) = page::decode(List::Tasks, &kind, page.token)? {
        conditions.push("id < ?", [Value::Blob(key)]);
    }
    let limit = page.size_within(BACKUPS_PER_PAGE, BACKUPS_PER_PAGE_MAX);
    let (items, more) =
        conditions.page(connection, (SELECT, ORDER), limit, |row| read(row).or_error("read"), weight)?;
    let next =
        items.last().filter(|_| more).map(|last| page::encode(List::Tasks, &kind, &last.id.to_bytes()));
    Ok(Page { items, next })
}

pub(crate) fn of_kind(kind: Option<TaskKind>) -> Conditions {
    let mut conditions = Conditions::default();
    if let Some(kind) = kind {
        conditions.push("kind = ?", [Value::Text(kind.word().to_owned())]);
    }
    conditions
}

/// Bytes of a task in a message, roughly and rather more.
fn weight(task: &TaskRecord) -> usize {
    256 + task.who.len() + task.options.len() + task.place.len() + task.figures.len() + task.error.len()
}

pub(crate) fn unfinished(connection: &Connection) -> Result<Vec<TaskRecord>> {
    connection
        .prepare_cached("SELECT * FROM tasks WHERE finished_ms IS NULL ORDER BY id")
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")
}

pub(crate) fn last_done(connection: &Connection, kind: TaskKind) -> Result<Option<TaskRecord>> {
    connection
        .prepare_cached("SELECT * FROM tasks WHERE kind = ? AND status = 'done' ORDER BY id DESC LIMIT 1")
        .and_then(|mut s| s.query_row([kind.word()], read).optional())
        .or_error("read")
}

pub(crate) fn lines(connection: &Connection, task: TaskId, limit: u32) -> Result<Vec<TaskLine>> {
    let read = |row: &Row<'_>| {
        Ok(TaskLine { number: count(row, "number")?, at_ms: row.get("at_ms")?, text: row.get("text")? })
    };
    let mut lines: Vec<TaskLine> = connection
        .prepare_cached("SELECT * FROM task_log WHERE task_id = ? ORDER BY number DESC LIMIT ?")
        .and_then(|mut s| s.query_map(params![task.to_bytes(), limit], read)?.collect())
        .or_error("read")?;
    lines.reverse();
    Ok(lines)
}

pub(crate) fn prune(tx: &Transaction<'_>, before_ms: i64, keep: u32) -> Result<u64> {
    let mut gone = 0;
    for kind in TaskKind::ALL {
        let kept = last_done(tx, kind)?.map_or([0; 16], |task| task.id.to_bytes());
        gone += tx
            .execute(
                "DELETE FROM tasks WHERE kind = ?1 AND finished_ms IS NOT NULL AND id <> ?2 AND (finished_ms < ?3 \
                 OR id <= (SELECT id FROM tasks WHERE kind = ?1 AND finished_ms IS NOT NULL \
                           ORDER BY id DESC LIMIT 1 OFFSET ?4))",
                params![kind.word(), kept, before_ms, keep],
            )
            .or_error("write")?;
    }
    u64::try_from(gone).map_err(|_| CatalogError::invalid("more tasks than can be counted"))
}

fn read(row: &Row<'_>) -> rusqlite::Result<TaskRecord> {
    let status: String = row.get("status")?;
    let known = TaskStatus::ALL.into_iter().find(|known| known.word() == status);
    Ok(TaskRecord {
        id: TaskId::from_bytes(id(row, "id")?),
        kind: kind(row)?,
        status: known.ok_or_else(|| bad_value("status", status))?,
        who: row.get("who")?,
        scheduled: row.get("scheduled")?,
        options: row.get("options")?,
        created_ms: row.get("created_ms")?,
        started_ms: row.get("started_ms")?,
        finished_ms: row.get("finished_ms")?,
        paused_until_ms: row.get("paused_until_ms")?,
        attempts: row.get("attempts")?,
        progress: TaskProgress {
            done: count(row, "done")?,
            total: count(row, "total")?,
            unit: row.get("unit")?,
        },
        place: row.get("place")?,
        figures: row.get("figures")?,
        error: row.get("error")?,
    })
}

/// The column `kind`.
pub(crate) fn kind(row: &Row<'_>) -> rusqlite::Result<TaskKind> {
    row.get::<_, String>("kind")?.parse().map_err(|error| bad_value("kind", error))
}
