//! Which rows: a [`DetailFilter`] as conditions.

use holdfast_proto::details::status_word;
use rusqlite::Connection;
use rusqlite::types::Value;

use super::super::select::{Conditions, named};
use crate::catalog::{DetailFilter, Result};

/// `None`: nothing can match.
pub(in crate::catalog::sqlite) fn conditions(
    connection: &Connection,
    filter: &DetailFilter,
) -> Result<Option<Conditions>> {
    let DetailFilter { namespaces, job, vm, disk, run, statuses, search, since_ms, until_ms } = filter;
    let mut conditions = Conditions::default();
    // The narrowest of the filters given leads; the index of another would lose the order, or read more.
    let mut leads = true;
    if let Some(run) = run {
        conditions.one_of("d.run_id", &[run.to_bytes()]);
        leads = false;
    }
    for (table, column, name) in [("vms", "vm_id", vm), ("jobs", "job_id", job)] {
        let Some(name) = name else { continue };
        let ids = named(connection, table, name, namespaces.as_deref())?;
        if ids.is_empty() {
            return Ok(None);
        }
        conditions.one_of(&format!("{}d.{column}", if leads { "" } else { "+" }), &ids);
        leads = false;
    }
    if namespaces.as_ref().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    conditions.in_namespaces(if leads { "d.namespace_id" } else { "+d.namespace_id" }, namespaces.as_deref());
    if let Some(since_ms) = since_ms {
        conditions.push("d.started_ms >= ?", [Value::Integer(*since_ms)]);
    }
    if let Some(until_ms) = until_ms {
        conditions.push("d.started_ms < ?", [Value::Integer(*until_ms)]);
    }
    if let Some(disk) = disk {
        conditions.push("d.disk = ?", [Value::Text(disk.clone())]);
    }
    if let Some(statuses) = statuses {
        if statuses.is_empty() {
            return Ok(None);
        }
        let marks = vec!["?"; statuses.len()].join(", ");
        let words = statuses.iter().map(|&status| Value::Text(status_word(status.into()).to_owned()));
        conditions.push(&format!("d.status IN ({marks})"), words);
    }
    if let Some(search) = search.as_deref().filter(|text| !text.is_empty()) {
        push_search(&mut conditions, search);
    }
    Ok(Some(conditions))
}

/// Names are looked up once, in their small tables, and rows are then compared by identifier. The `+` keeps
/// the planner from walking an index a name: order and memory would be lost.
fn push_search(conditions: &mut Conditions, text: &str) {
    let pattern = Value::Text(like_pattern(text));
    conditions.push(
        "(+d.vm_id IN (SELECT id FROM vms WHERE name LIKE ? ESCAPE '\\') \
         OR +d.job_id IN (SELECT id FROM jobs WHERE name LIKE ? ESCAPE '\\') \
         OR +d.namespace_id IN (SELECT id FROM namespaces WHERE name LIKE ? ESCAPE '\\') \
         OR d.disk LIKE ? ESCAPE '\\' OR d.error LIKE ? ESCAPE '\\')",
        std::iter::repeat_n(pattern, 5),
    );
}

/// The pattern of texts that contain `text`, in any case of ASCII.
pub(in crate::catalog::sqlite) fn like_pattern(text: &str) -> String {
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
