//! Rows in any order, a page at a time.
//!
//! No index can serve every column and filter, so every row that matches is read, but only the little that
//! sorting needs: its key and its place among equals. Of these a page's worth is kept; names and all other
//! columns are read for the page only.

use std::cmp::Ordering;
use std::collections::HashMap;

use holdfast_proto::details::RowExt;
use rusqlite::{Connection, Row};

use super::super::convert::{OrCatalogError, bad_value};
use super::super::select::Conditions;
use super::{Place, SELECT, filter, read};
use crate::{DetailEntry, DetailFilter, DetailRow, DetailSort, Result, SortOrder};

/// A page of the rows that match, and how many do.
pub(in crate::sqlite) fn page(
    connection: &Connection,
    filter: &DetailFilter,
    order: SortOrder,
    window: Window,
) -> Result<(Vec<DetailEntry>, u64)> {
    let Some(conditions) = filter::of_all(connection, filter)? else { return Ok((Vec::new(), 0)) };
    let (rows, total) = Sort { connection, conditions, descending: order.descending, window }.by(order.by)?;
    let sql = format!("{SELECT} WHERE d.rowid = ?");
    let mut statement = connection.prepare_cached(&sql).or_error("read")?;
    let entries = rows.into_iter().map(|rowid| {
        statement.query_row([rowid], read).map(|(row, place)| place.entry(row)).or_error("read")
    });
    Ok((entries.collect::<Result<_>>()?, total))
}

/// Which part of a sorted list is wanted.
#[derive(Debug, Clone, Copy)]
pub(in crate::sqlite) struct Window {
    pub(in crate::sqlite) offset: usize,
    pub(in crate::sqlite) limit: usize,
}

impl Window {
    pub(in crate::sqlite) fn new(offset: u64, limit: u32) -> Self {
        let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Self { offset: size(offset), limit: size(limit.into()) }
    }

    /// The part of `items`, sorted; the rest is not looked at more than it must be.
    pub(in crate::sqlite) fn of<T>(self, mut items: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Vec<T> {
        let Self { offset, limit } = self;
        if offset >= items.len() || limit == 0 {
            return Vec::new();
        }
        if offset > 0 {
            items.select_nth_unstable_by(offset, &compare);
            items.drain(..offset);
        }
        if limit < items.len() {
            items.select_nth_unstable_by(limit, &compare);
            items.truncate(limit);
        }
        items.sort_unstable_by(compare);
        items
    }
}

/// The order of two values of which nothing comes last, whatever the direction.
pub(in crate::sqlite) fn compare_keys<K: Ord>(a: Option<&K>, b: Option<&K>, descending: bool) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if descending => b.cmp(a),
        (Some(a), Some(b)) => a.cmp(b),
        (a, b) => a.is_none().cmp(&b.is_none()),
    }
}

/// A number with a total order; there is no NaN among them.
#[derive(Debug, Clone, Copy)]
pub(in crate::sqlite) struct Number(pub(in crate::sqlite) f64);

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

/// What sorting knows of a row.
struct Candidate<K> {
    key: Option<K>,
    place: Place,
    rowid: i64,
}

/// Candidates below which none is given up: less would be sorted too often.
const KEPT_MIN: usize = 4096;

struct Sort<'a> {
    connection: &'a Connection,
    conditions: Conditions,
    descending: bool,
    window: Window,
}

/// Where the columns that a key is made of begin.
const KEY: usize = 5;

impl Sort<'_> {
    fn by(self, by: DetailSort) -> Result<(Vec<i64>, u64)> {
        use DetailSort as S;
        match by {
            S::Namespace => self.by_name("namespaces", "d.namespace_id"),
            S::Job => self.by_name("jobs", "d.job_id"),
            S::Vm => self.by_name("vms", "d.vm_id"),
            S::Run => self.run("d.run_id", |row| row.get::<_, [u8; 16]>(KEY).map(Some)),
            S::Backup => self.run("d.backup_id", |row| row.get::<_, Option<[u8; 16]>>(KEY)),
            S::Disk => self.by_text("d.disk"),
            S::Status => self.by_text("d.status"),
            S::Error => self.by_text("d.error"),
            S::Started => self.by_count("started_ms"),
            S::Finished => self.by_count("finished_ms"),
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
            | S::NewChunks => self.by_count(by.column()),
            S::Seconds => self.by_number(|row| Some(row.seconds())),
            S::MbPerS => self.by_number(DetailRow::mb_per_s),
            S::GlobalFactor => self.by_number(|row| row.factors().global),
            S::LocalFactor => self.by_number(|row| row.factors().local),
            S::TotalFactor => self.by_number(|row| row.factors().total),
            S::ReductionPct => self.by_number(|row| row.factors().reduction_pct),
        }
    }

    fn by_count(self, column: &str) -> Result<(Vec<i64>, u64)> {
        self.run(&format!("d.{column}"), |row| row.get::<_, i64>(KEY).map(Some))
    }

    /// By a text; the empty one counts as none.
    fn by_text(self, column: &str) -> Result<(Vec<i64>, u64)> {
        self.run(column, |row| {
            let text = row.get_ref(KEY)?.as_str()?;
            Ok((!text.is_empty()).then(|| Box::<str>::from(text)))
        })
    }

    /// By the name of what the row refers to. Names are ranked once; rows are compared by rank.
    fn by_name(self, table: &str, column: &str) -> Result<(Vec<i64>, u64)> {
        let mut ranks: HashMap<[u8; 16], u32> = HashMap::new();
        let mut last: Option<(String, u32)> = None;
        let mut statement = self
            .connection
            .prepare_cached(&format!("SELECT id, name FROM {table} ORDER BY name"))
            .or_error("read")?;
        let mut names = statement.query([]).or_error("read")?;
        while let Some(row) = names.next().or_error("read")? {
            let (id, name): ([u8; 16], String) =
                row.get(0).and_then(|id| Ok((id, row.get(1)?))).or_error("read")?;
            let rank = match &last {
                Some((known, rank)) if *known == name => *rank,
                Some((_, rank)) => rank.saturating_add(1),
                None => 0,
            };
            ranks.insert(id, rank);
            last = Some((name, rank));
        }
        self.run(column, |row| {
            let id: [u8; 16] = row.get(KEY)?;
            ranks.get(&id).copied().map(Some).ok_or_else(|| bad_value(column, "refers to nothing"))
        })
    }

    /// By a number that follows from others, as a report shows it.
    fn by_number(self, number: impl Fn(&DetailRow) -> Option<f64>) -> Result<(Vec<i64>, u64)> {
        self.run("d.started_ms, d.finished_ms, d.bytes, d.new_bytes, d.post_lc", |row| {
            let count = |offset: usize| -> rusqlite::Result<u64> {
                let value: i64 = row.get(KEY + offset)?;
                u64::try_from(value).map_err(|cause| bad_value("a count", cause))
            };
            let numbers = DetailRow {
                started_ms: row.get(KEY)?,
                finished_ms: row.get(KEY + 1)?,
                bytes: count(2)?,
                new_bytes: count(3)?,
                post_lc: count(4)?,
                ..DetailRow::default()
            };
            Ok(number(&numbers).map(Number))
        })
    }

    /// The numbers of the window's rows in order, and how many rows there are in all.
    fn run<K: Ord>(
        self,
        columns: &str,
        key: impl Fn(&Row<'_>) -> rusqlite::Result<Option<K>>,
    ) -> Result<(Vec<i64>, u64)> {
        let Self { connection, conditions, descending, window } = self;
        let compare = |a: &Candidate<K>, b: &Candidate<K>| {
            compare_keys(a.key.as_ref(), b.key.as_ref(), descending).then_with(|| a.place.cmp(&b.place))
        };
        let wanted = window.offset.saturating_add(window.limit);
        let select = format!(
            "SELECT d.rowid, d.started_ms, d.run_id, d.session_id, d.position, {columns} FROM details d"
        );
        let (mut kept, mut total) = (Vec::new(), 0u64);
        conditions.each(connection, (&select, ""), |row| {
            total += 1;
            if kept.len() >= KEPT_MIN.max(wanted.saturating_mul(2)) {
                kept.select_nth_unstable_by(wanted, compare);
                kept.truncate(wanted);
            }
            let candidate = || -> rusqlite::Result<_> {
                let place = Place {
                    started_ms: row.get(1)?,
                    run: row.get(2)?,
                    session: row.get(3)?,
                    position: row.get(4)?,
                };
                Ok(Candidate { key: key(row)?, place, rowid: row.get(0)? })
            };
            kept.push(candidate().or_error("read")?);
            Ok(())
        })?;
        let rows = window.of(kept, compare).into_iter().map(|candidate| candidate.rowid).collect();
        Ok((rows, total))
    }
}

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
