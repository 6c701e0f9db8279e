//! A [`DetailFilter`] as conditions.

use rusqlite::Connection;
use rusqlite::types::Value;

use super::super::convert::OrCatalogError;
use super::super::select::{Conditions, indexed, named, unindexed};
use crate::{DetailFilter, Result, RowStatus};

/// Conditions for rows that are wanted in the order of a list: the narrowest of the names given leads, in its
/// own index; that of another would lose the order, or read more. `None`: nothing can match.
pub(crate) fn in_order(connection: &Connection, filter: &DetailFilter) -> Result<Option<Conditions>> {
    let Some(parts) = Parts::of(connection, filter)? else { return Ok(None) };
    let leader = parts.names.iter().position(|part| part.ids.len() == 1);
    let mut conditions = Conditions::default();
    for (place, part) in parts.names.iter().enumerate() {
        // Of several identifiers none leads: the index on the list's order is better.
        let leads = leader.map_or(place == 0, |leader| leader == place);
        conditions.one_of(&part.column(leads), &part.ids);
    }
    parts.push_times(&mut conditions, STARTED, true);
    parts.push_times(&mut conditions, FINISHED, false);
    push_rest(&mut conditions, filter);
    Ok(Some(conditions))
}

/// Conditions for rows that are all read, in whatever order: an index leads only where it leaves out most of the
/// rows, because a row found by index costs several times one found by reading on. `None`: nothing can match.
pub(crate) fn of_all(connection: &Connection, filter: &DetailFilter) -> Result<Option<Conditions>> {
    let Some(parts) = Parts::of(connection, filter)? else { return Ok(None) };
    let mut led = false;
    let mut conditions = Conditions::default();
    for part in &parts.names {
        let mut alone = Conditions::default();
        alone.one_of(&part.column(true), &part.ids);
        let leads = !led && part.ids.len() == 1 && are_few(connection, alone)?;
        led |= leads;
        conditions.one_of(&part.column(leads), &part.ids);
    }
    for column in [STARTED, FINISHED] {
        let mut alone = Conditions::default();
        parts.push_times(&mut alone, column, true);
        let in_time = parts.times(column) != [None; 2];
        let leads = in_time && !led && are_few(connection, alone)?;
        led |= leads;
        parts.push_times(&mut conditions, column, leads);
    }
    push_rest(&mut conditions, filter);
    let not_done = filter.statuses.as_ref().is_some_and(|statuses| !statuses.contains(&RowStatus::Done));
    conditions.led = led || not_done;
    Ok(Some(conditions))
}

/// Rows read on for one found by index, at least.
const SHARE: i64 = 8;

/// Returns true if less than an eighth of the rows match what an index can tell. Counts no further, and only
/// in the index: a small part of what is saved.
fn are_few(connection: &Connection, conditions: Conditions) -> Result<bool> {
    let limit = rows_max(connection)? / SHARE + 1;
    let (mut found, part) = (0, format!("LIMIT {limit}) few"));
    conditions.each(connection, ("SELECT count(*) FROM (SELECT 1 FROM details d", &part), |row| {
        found = row.get(0).or_error("read")?;
        Ok(())
    })?;
    Ok(found < limit)
}

/// The number of the last row: there are no more.
pub(crate) fn rows_max(connection: &Connection) -> Result<i64> {
    connection
        .prepare_cached("SELECT coalesce(max(number), 0) FROM details")
        .and_then(|mut s| s.query_row([], |row| row.get(0)))
        .or_error("read")
}

const STARTED: &str = "d.started_ms";
const FINISHED: &str = "d.finished_ms";

/// Conditions that indexes can check.
struct Parts {
    /// The narrowest first.
    names: Vec<Part>,
    started: [Option<i64>; 2],
    finished: [Option<i64>; 2],
}

/// One of some identifiers in a column.
struct Part {
    column: &'static str,
    ids: Vec<[u8; 16]>,
}

impl Part {
    fn column(&self, leads: bool) -> String {
        indexed(&format!("d.{}", self.column), leads)
    }
}

impl Parts {
    /// `None`: nothing can match.
    fn of(connection: &Connection, filter: &DetailFilter) -> Result<Option<Self>> {
        let DetailFilter { namespaces, job, vm, run, statuses, .. } = filter;
        if namespaces.as_ref().is_some_and(Vec::is_empty) || statuses.as_ref().is_some_and(Vec::is_empty) {
            return Ok(None);
        }
        let mut names = Vec::new();
        names.extend(run.map(|run| Part { column: "run_id", ids: vec![run.to_bytes()] }));
        for (table, column, name) in [("vms", "vm_id", vm), ("jobs", "job_id", job)] {
            let Some(name) = name else { continue };
            let ids = named(connection, table, name, namespaces.as_deref())?;
            if ids.is_empty() {
                return Ok(None);
            }
            names.push(Part { column, ids });
        }
        if let Some(namespaces) = namespaces {
            let ids = namespaces.iter().map(|id| id.to_bytes()).collect();
            names.push(Part { column: "namespace_id", ids });
        }
        Ok(Some(Self {
            names,
            started: [filter.since_ms, filter.until_ms],
            finished: [filter.finished_since_ms, filter.finished_until_ms],
        }))
    }

    /// From when on, and before when.
    fn times(&self, column: &str) -> [Option<i64>; 2] {
        if column == STARTED { self.started } else { self.finished }
    }

    fn push_times(&self, conditions: &mut Conditions, column: &str, leads: bool) {
        let times = self.times(column);
        let column = indexed(column, leads);
        for (time_ms, comparison) in times.into_iter().zip([">=", "<"]) {
            if let Some(time_ms) = time_ms {
                conditions.push(&format!("{column} {comparison} ?"), [Value::Integer(time_ms)]);
            }
        }
    }
}

/// Adds the conditions that need the row itself.
fn push_rest(conditions: &mut Conditions, filter: &DetailFilter) {
    let DetailFilter { disk, statuses, search, .. } = filter;
    if let Some(disk) = disk {
        conditions.push("d.disk = ?", [Value::Text(disk.clone())]);
    }
    if let Some(statuses) = statuses {
        // In the words of the indexes on rows that are not done, for they are few.
        if !statuses.contains(&RowStatus::Done) {
            conditions.push("d.status <> 'done'", []);
        }
        let others = RowStatus::ALL.iter().filter(|status| **status != RowStatus::Done);
        if !others.eq(statuses) {
            let marks = vec!["?"; statuses.len()].join(", ");
            let words = statuses.iter().map(|status| Value::Text(status.word().to_owned()));
            conditions.push(&format!("d.status IN ({marks})"), words);
        }
    }
    if filter.existing {
        conditions.push("EXISTS (SELECT 1 FROM backups b WHERE b.id = d.backup_id)", []);
    }
    if let Some(search) = search.as_deref().filter(|text| !text.is_empty()) {
        push_search(conditions, search);
    }
}

/// Names are looked up once, in their small tables, and rows are then compared by identifier. An index for each name would
/// lose the order, and cost memory.
fn push_search(conditions: &mut Conditions, text: &str) {
    let pattern = Value::Text(like_pattern(text));
    let named =
        [("vm_id", "vms"), ("job_id", "jobs"), ("namespace_id", "namespaces")].map(|(column, table)| {
            let column = unindexed(&format!("d.{column}"));
            format!("{column} IN (SELECT id FROM {table} WHERE name LIKE ? ESCAPE '\\')")
        });
    let any = format!("({} OR d.disk LIKE ? ESCAPE '\\' OR d.error LIKE ? ESCAPE '\\')", named.join(" OR "));
    conditions.push(&any, std::iter::repeat_n(pattern, 5));
}

/// The pattern of texts that contain `text`, in any case of ASCII.
pub(crate) fn like_pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for char in text.chars() {
        if matches!(char, '%' | '_' | '\\') {
            pattern.push('\\');
        }
        pattern.push(char);
    }
    pattern.push('%');
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_mean_themselves() {
        assert_eq!(like_pattern(r"50%_a\b"), r"%50\%\_a\\b%");
    }
}
