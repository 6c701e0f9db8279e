//! Rows in any order: a page, or all of them.
//!
//! No index can serve every column and filter, so SQLite reads every row that matches and sorts it by its key and its
//! place among equals; names and all other columns are read for what is shown only. What does not fit SQLite's cache
//! it sorts on the disk (H11). Pages are asked for by offset, from anywhere: there is no
//! row before them to go on from.

use std::cmp;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::convert::{OrCatalogError, bad_value, count};
use super::super::select::{Conditions, Window, unindexed};
use super::super::{room, schema};
use super::{SELECT, fate, filter, locked, read};
use crate::{CatalogError, DetailEntry, DetailFilter, DetailRow, DetailSort, GoOn, Result, SortOrder};

/// Rows up to which the first ones are kept while others are read; SQLite sorts all of them for a page beyond, which
/// costs more for few and less for many.
const FIRST_ROWS_MAX: usize = 20_000;

/// A page of the rows that match, and how many do.
pub(crate) fn page(
    connection: &Connection,
    asked: &DetailFilter,
    order: SortOrder,
    window: Window,
    room: &SortRoom,
) -> Result<(Vec<DetailEntry>, u64)> {
    let Window { offset, limit } = window;
    let total = counted(connection, asked)?;
    let past_end = usize::try_from(total).is_ok_and(|total| offset >= total);
    let Some(conditions) = filter::of_all(connection, asked)?.filter(|_| !past_end && limit > 0) else {
        return Ok((Vec::new(), total));
    };
    let mut end = by(order, &conditions);
    let last = offset.saturating_add(limit);
    let mut sorted = total;
    if last <= FIRST_ROWS_MAX {
        end = format!("{end} LIMIT {last}");
        sorted = sorted.min(last as u64);
    }
    let mut numbers: Vec<i64> = Vec::new();
    room.expect(sorted)?;
    conditions.part(connection, ("SELECT d.number FROM details d", &end), window, |row| {
        numbers.push(row.get(0).or_error("read")?);
        Ok(())
    })?;
    Ok((entries(connection, &numbers)?, total))
}

/// Returns the number of rows that match.
pub(super) fn counted(connection: &Connection, asked: &DetailFilter) -> Result<u64> {
    let mut total = 0;
    let Some(conditions) = filter::of_all(connection, asked)? else { return Ok(0) };
    conditions.each(connection, ("SELECT count(*) AS rows FROM details d", ""), |row| {
        total = count(row, "rows").or_error("read")?;
        Ok(())
    })?;
    Ok(total)
}

/// Bytes that SQLite writes for a row it sorts, at most as a rule: 70 of numbers and identifiers, and a name, twice where
/// sorted parts are merged.
const ROW_BYTES: u64 = 256;

/// Steps of SQLite between two looks at whether to go on: some milliseconds.
const STEPS: i32 = 100_000;

/// (W17) The file system on which SQLite sorts what does not fit its cache, for one report.
#[derive(Debug)]
pub(crate) struct SortRoom {
    path: PathBuf,
    /// Bytes that must stay free there.
    floor_bytes: u64,
    /// Set once there are so many rows that SQLite uses it.
    is_used: Arc<AtomicBool>,
}

impl SortRoom {
    pub(crate) fn new(path: PathBuf, floor_bytes: u64) -> Self {
        Self { path, floor_bytes, is_used: Arc::default() }
    }

    /// Announces the number of rows to sort.
    pub(crate) fn expect(&self, rows: u64) -> Result<()> {
        // Fewer fit SQLite's cache, or nearly.
        if rows <= FIRST_ROWS_MAX as u64 {
            return Ok(());
        }
        self.is_used.store(true, Ordering::Relaxed);
        room::check(&self.path, rows.saturating_mul(ROW_BYTES), self.floor_bytes)
    }

    /// Runs `sort` as long as there is room and `go_on` says so.
    pub(crate) fn watch<T>(
        &self,
        connection: &mut Connection,
        mut go_on: GoOn,
        sort: impl FnOnce(&Connection) -> Result<T>,
    ) -> Result<T> {
        let (path, floor_bytes, is_used) = (self.path.clone(), self.floor_bytes, Arc::clone(&self.is_used));
        let full = Arc::new(AtomicBool::new(false));
        let is_full = Arc::clone(&full);
        let ends = move || {
            let lacks_room = is_used.load(Ordering::Relaxed) && room::check(&path, 0, floor_bytes).is_err();
            is_full.fetch_or(lacks_room, Ordering::Relaxed);
            lacks_room || !go_on()
        };
        connection.progress_handler(STEPS, Some(ends)).or_error("sort")?;
        let sorted = sort(connection);
        connection.progress_handler(0, None::<fn() -> bool>).or_error("sort")?;
        if sorted.is_err() && full.load(Ordering::Relaxed) { Err(CatalogError::Full) } else { sorted }
    }
}

/// The rows of these numbers that are still there.
fn entries(connection: &Connection, numbers: &[i64]) -> Result<Vec<DetailEntry>> {
    let sql = format!("{SELECT} WHERE d.number = ?");
    let mut statement = connection.prepare_cached(&sql).or_error("read")?;
    let one = |number: &i64| statement.query_row([number], read).optional().or_error("read").transpose();
    let found = numbers.iter().filter_map(one);
    found.map(|found| found.map(|(row, place)| place.entry(row))).collect()
}

/// All rows that match, sorted once, on the disk; then read a page at a time, with no snapshot in between: a slow reader
/// must not hold up the folding of the log. Which rows and their order are of one moment. Rows are not changed, except
/// that old ones of failed attempts are added up: those are left out, and their sum shown instead.
#[derive(Debug)]
pub(crate) struct AllSorted {
    /// A connection of its own: the order is in a temporary table.
    connection: Connection,
    /// The place of the row given last.
    last: i64,
}

impl AllSorted {
    pub(crate) fn new(
        mut connection: Connection,
        asked: &DetailFilter,
        order: SortOrder,
        room: &SortRoom,
        go_on: GoOn,
    ) -> Result<Self> {
        room.watch(&mut connection, go_on, |connection| {
            room.expect(counted(connection, asked)?)?;
            let conditions = filter::of_all(connection, asked)?;
            let conditions = conditions.unwrap_or_else(Conditions::never);
            schema::make_sorted(connection)?;
            let select = "INSERT INTO sorted (row) SELECT d.number FROM details d";
            let order = by(order, &conditions);
            conditions.each(connection, (select, &order), |_| Ok(()))
        })?;
        Ok(Self { connection, last: 0 })
    }
}

impl crate::SortedRows for AllSorted {
    fn next(&mut self, limit: u32) -> Result<Option<Vec<DetailRow>>> {
        let snapshot = self.connection.unchecked_transaction().or_error("read")?;
        let numbers: Vec<i64> = snapshot
            .prepare_cached("SELECT row FROM sorted WHERE place > ? ORDER BY place LIMIT ?")
            .and_then(|mut s| s.query_map(params![self.last, limit], |row| row.get(0))?.collect())
            .or_error("read")?;
        if numbers.is_empty() {
            return Ok(None);
        }
        let rows = entries(&snapshot, &numbers)?.into_iter().map(|entry| entry.row).collect();
        drop(snapshot);
        self.last = self.last.saturating_add(i64::try_from(numbers.len()).unwrap_or(i64::MAX));
        Ok(Some(rows))
    }
}

/// Returns the SQL of this order.
pub(crate) fn by(order: SortOrder, conditions: &Conditions) -> String {
    let key = match order.by {
        DetailSort::Run if conditions.led => unindexed("d.run_id"),
        by => key(by),
    };
    // Null is least. Said of a column that is never null, it would keep the planner from its index.
    let direction = match order.descending {
        true => "DESC",
        false if key.starts_with("d.") && order.by != DetailSort::Backup => "ASC",
        false => "ASC NULLS LAST",
    };
    format!("ORDER BY {key} {direction}, d.started_ms, d.run_id, d.session_id, d.position")
}

/// Returns the sort key as SQL; null comes last. The empty text counts as none.
fn key(by: DetailSort) -> String {
    use DetailSort as S;
    let name = |table: &str, column: &str| format!("(SELECT o.name FROM {table} o WHERE o.id = d.{column})");
    match by {
        S::Namespace => name("namespaces", "namespace_id"),
        S::Job => name("jobs", "job_id"),
        S::Vm => name("vms", "vm_id"),
        S::Run => "d.run_id".to_owned(),
        S::Backup => "d.backup_id".to_owned(),
        S::Disk | S::Status | S::Error | S::Host | S::Agent => format!("nullif(d.{}, '')", by.column()),
        S::Point => of_point(fate!()),
        S::Locked => of_point(locked!()),
        S::Deleted => of_deletion("x.deleted_ms"),
        S::DeletedBy => of_deletion("nullif(x.deleted_by, '')"),
        S::Started => "d.started_ms".to_owned(),
        S::Finished => "d.finished_ms".to_owned(),
        S::VirtualBytes
        | S::Bytes
        | S::ReadBytes
        | S::UnchangedBytes
        | S::DupBytes
        | S::NewBytes
        | S::PostLc
        | S::MetaBytes
        | S::WireBytes
        | S::Chunks
        | S::NewChunks
        | S::RetriedPostLc
        | S::FirstFull
        | S::Level
        | S::ReadingMs
        | S::CompressingMs
        | S::WaitingMs => format!("d.{}", by.column()),
        S::Seconds | S::MbPerS | S::GlobalFactor | S::LocalFactor | S::TotalFactor | S::ReductionPct => {
            let place = DetailSort::ALL.iter().position(|sort| *sort == by).unwrap_or_default();
            format!(
                "{NUMBER}({place}, d.started_ms, d.finished_ms, d.bytes, d.new_bytes + d.retried_new_bytes, \
                 d.post_lc + d.retried_post_lc)"
            )
        }
    }
}

/// Returns an expression of the restore point `b` of a row, or of none.
fn of_point(expression: &str) -> String {
    format!("(SELECT {expression} FROM (SELECT 1 AS one) o LEFT JOIN backups b ON b.id = d.backup_id)")
}

/// Returns a column of the deletion `x` of a row's restore point; null where it was not deleted.
fn of_deletion(column: &str) -> String {
    format!(
        "(SELECT {column} FROM deleted_backups x WHERE x.id = d.backup_id \
         AND NOT EXISTS (SELECT 1 FROM backups b WHERE b.id = x.id))"
    )
}

/// The function of SQL that gives a number as a report shows it.
const NUMBER: &str = "shown_number";

/// Makes [`NUMBER`] known to a connection that reads.
pub(crate) fn add_number(connection: &Connection) -> rusqlite::Result<()> {
    // Not for a schema that was tampered with.
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_DIRECTONLY;
    connection.create_scalar_function(NUMBER, 6, flags, shown_number)
}

fn shown_number(context: &Context<'_>) -> rusqlite::Result<Option<f64>> {
    let count = |index: usize| -> rusqlite::Result<u64> {
        let value: i64 = context.get(index)?;
        u64::try_from(value).map_err(|cause| bad_value("a count", cause))
    };
    let row = DetailRow {
        started_ms: context.get(1)?,
        finished_ms: context.get(2)?,
        bytes: count(3)?,
        new_bytes: count(4)?,
        post_lc: count(5)?,
        ..DetailRow::default()
    };
    let factors = row.factors();
    let column: u8 = context.get(0)?;
    Ok(match DetailSort::ALL.get(usize::from(column)) {
        Some(DetailSort::Seconds) => Some(row.seconds()),
        Some(DetailSort::MbPerS) => row.mb_per_s(),
        Some(DetailSort::GlobalFactor) => factors.global,
        Some(DetailSort::LocalFactor) => factors.local,
        Some(DetailSort::TotalFactor) => factors.total,
        Some(DetailSort::ReductionPct) => factors.reduction_pct,
        _ => None,
    })
}

/// The order of two values of which nothing comes last, whatever the direction.
pub(crate) fn compare_keys<K: Ord>(a: Option<&K>, b: Option<&K>, descending: bool) -> cmp::Ordering {
    match (a, b) {
        (Some(a), Some(b)) if descending => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

/// A number with a total order; there is no NaN among them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number(pub(crate) f64);

impl Ord for Number {
    fn cmp(&self, other: &Self) -> cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_parts_of_the_sorted_list() {
        let items: Vec<u32> = (0..200u32).map(|n| n.wrapping_mul(2_654_435_761) % 50).collect();
        let mut sorted = items.clone();
        sorted.sort_unstable();
        for offset in [0, 1, 7, 199, 200, 1000, usize::MAX] {
            for limit in [0, 1, 3, 199, 200, usize::MAX] {
                let expected: Vec<u32> = sorted.iter().copied().skip(offset).take(limit).collect();
                assert_eq!(
                    Window { offset, limit }.of(items.clone(), Ord::cmp),
                    expected,
                    "{offset} {limit}"
                );
            }
        }
    }

    #[test]
    fn nothing_comes_last_both_ways() {
        let mut keys = [None, Some(2), Some(1), None, Some(3)];
        keys.sort_by(|a, b| compare_keys(a.as_ref(), b.as_ref(), false));
        assert_eq!(keys, [Some(1), Some(2), Some(3), None, None]);
        keys.sort_by(|a, b| compare_keys(a.as_ref(), b.as_ref(), true));
        assert_eq!(keys, [Some(3), Some(2), Some(1), None, None]);
    }
}
