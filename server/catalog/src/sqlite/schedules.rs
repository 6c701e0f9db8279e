//! Schedules of tasks.

use holdfast_types::clock::Clock;
use rusqlite::{Connection, Row, Transaction, params};

use super::convert::OrCatalogError;
use super::{audit, tasks};
use crate::limits::SCHEDULE_MARKS_MAX;
use crate::{AuditEntry, CatalogError, Result, ScheduleMark, ScheduleRecord, validate};

pub(crate) fn all(connection: &Connection) -> Result<Vec<ScheduleRecord>> {
    let read = |row: &Row<'_>| {
        Ok(ScheduleRecord {
            kind: tasks::kind(row)?,
            expression: row.get("expression")?,
            time_zone: row.get("time_zone")?,
            options: row.get("options")?,
            enabled: row.get("enabled")?,
            who: row.get("who")?,
            updated_ms: row.get("updated_ms")?,
        })
    };
    connection
        .prepare_cached("SELECT * FROM schedules ORDER BY kind")
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")
}

pub(crate) fn set(tx: &Transaction<'_>, clock: &dyn Clock, schedule: &ScheduleRecord) -> Result<()> {
    let ScheduleRecord { kind, expression, time_zone, options, enabled, who, updated_ms } = schedule;
    tx.execute(
        "INSERT INTO schedules (kind, expression, time_zone, options, enabled, who, updated_ms) \
         VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind) DO UPDATE SET expression = excluded.expression, \
         time_zone = excluded.time_zone, options = excluded.options, enabled = excluded.enabled, \
         who = excluded.who, updated_ms = excluded.updated_ms",
        params![kind.word(), expression, time_zone, options, enabled, validate::clip(who), updated_ms],
    )
    .or_error("write")?;
    set_mark(tx, &ScheduleMark { name: kind.word().to_owned(), at_ms: *updated_ms })?;
    let state = if *enabled { "on" } else { "off" };
    let entry = AuditEntry {
        who: who.clone(),
        action: "schedule.set".to_owned(),
        object: kind.word().to_owned(),
        detail: format!("{state}: {expression} ({time_zone}), options {options}"),
    };
    audit::add(tx, clock, &entry)
}

pub(crate) fn marks(connection: &Connection) -> Result<Vec<ScheduleMark>> {
    let read = |row: &Row<'_>| Ok(ScheduleMark { name: row.get("name")?, at_ms: row.get("at_ms")? });
    connection
        .prepare_cached("SELECT * FROM schedule_marks ORDER BY name")
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")
}

pub(crate) fn set_mark(tx: &Transaction<'_>, mark: &ScheduleMark) -> Result<()> {
    let moved = tx
        .execute("UPDATE schedule_marks SET at_ms = ? WHERE name = ?", params![mark.at_ms, mark.name])
        .or_error("write")?;
    if moved > 0 {
        return Ok(());
    }
    let known: i64 =
        tx.query_row("SELECT count(*) FROM schedule_marks", [], |row| row.get(0)).or_error("read")?;
    if known >= i64::from(SCHEDULE_MARKS_MAX) {
        return Err(CatalogError::invalid(format!("there are {known} schedules, which is all there may be")));
    }
    tx.execute("INSERT INTO schedule_marks (name, at_ms) VALUES (?, ?)", params![mark.name, mark.at_ms])
        .or_error("write")?;
    Ok(())
}

pub(crate) fn drop_marks(tx: &Transaction<'_>, names: &[String]) -> Result<()> {
    let mut drop = tx.prepare_cached("DELETE FROM schedule_marks WHERE name = ?").or_error("write")?;
    for name in names {
        drop.execute([name]).or_error("write")?;
    }
    Ok(())
}
