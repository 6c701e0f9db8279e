//! Usage of namespaces: sums over other tables, so that asking costs one row. Who writes or removes a row that counts
//! changes the sum in the same transaction.

use holdfast_types::ids::NamespaceId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::OrCatalogError;
use crate::Result;

/// Changes the sum in the column `sum` of `namespace_usage`.
pub(crate) fn change(connection: &Connection, namespace: NamespaceId, sum: &str, by: i64) -> Result<()> {
    connection
        .prepare_cached(&format!("UPDATE namespace_usage SET {sum} = {sum} + ? WHERE namespace_id = ?"))
        .and_then(|mut s| s.execute(params![by, namespace.to_bytes()]))
        .or_error("write")?;
    Ok(())
}

/// Makes the row of a new namespace.
pub(crate) fn begin(connection: &Connection, namespace: NamespaceId) -> Result<()> {
    connection
        .execute("INSERT INTO namespace_usage (namespace_id) VALUES (?)", [namespace.to_bytes()])
        .or_error("write")?;
    Ok(())
}

/// Runs `write`, which adds or removes restore points of `vm`: the newest one afterwards is what it has protected.
pub(crate) fn of_vm<T>(
    tx: &Transaction<'_>,
    namespace: NamespaceId,
    vm: [u8; 16],
    write: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let before = newest_bytes(tx, vm)?.unwrap_or(0);
    let value = write()?;
    let after = newest_bytes(tx, vm)?.unwrap_or(0);
    change(tx, namespace, "protected_bytes", after.saturating_sub(before))?;
    Ok(value)
}

/// Data of the newest restore point of `vm`; `None`: it has none.
pub(crate) fn newest_bytes(connection: &Connection, vm: [u8; 16]) -> Result<Option<i64>> {
    connection
        .prepare_cached(
            "SELECT (SELECT coalesce(sum(k.data_bytes), 0) FROM disks k WHERE k.backup_id = b.id) \
             FROM backups b WHERE b.vm_id = ? ORDER BY b.ordinal DESC LIMIT 1",
        )
        .and_then(|mut s| s.query_row([vm], |row| row.get(0)).optional())
        .or_error("read")
}

/// The sums and the rows they are of, by column; `u` is the row of the sums.
const SUMS: [(&str, &str); 5] = [
    ("stored_bytes", "SELECT coalesce(sum(c.stored_bytes), 0) FROM containers c WHERE c.namespace_id = n.id"),
    (
        "protected_bytes",
        "SELECT coalesce(sum(k.data_bytes), 0) FROM vms v JOIN backups b ON b.vm_id = v.id AND b.ordinal = \
         (SELECT max(l.ordinal) FROM backups l WHERE l.vm_id = v.id) JOIN disks k ON k.backup_id = b.id \
         WHERE v.namespace_id = n.id",
    ),
    ("restore_points", "SELECT count(*) FROM backups b WHERE b.namespace_id = n.id"),
    ("vms", "SELECT count(*) FROM vms v WHERE v.namespace_id = n.id"),
    ("jobs", "SELECT count(*) FROM jobs j WHERE j.namespace_id = n.id"),
];

/// Adds all sums up anew.
pub(crate) fn add_up(tx: &Transaction<'_>) -> Result<()> {
    tx.execute(
        "INSERT INTO namespace_usage (namespace_id) SELECT id FROM namespaces WHERE true ON CONFLICT DO NOTHING",
        [],
    )
    .or_error("write")?;
    for (sum, counted) in SUMS {
        let sql = format!(
            "UPDATE namespace_usage SET {sum} = ({counted}) FROM namespaces n WHERE n.id = namespace_usage.namespace_id"
        );
        tx.execute(&sql, []).or_error("write")?;
    }
    Ok(())
}

/// Sums that are not what they should be, for the integrity check: the rows themselves are added up.
pub(crate) fn problems(connection: &Connection) -> Result<Vec<String>> {
    let kept = SUMS.map(|(sum, _)| format!("u.{sum}")).join(", ");
    let counted = SUMS.map(|(_, counted)| format!("({counted})")).join(", ");
    let sql = format!(
        "SELECT n.name, {kept}, {counted} FROM namespaces n LEFT JOIN namespace_usage u ON u.namespace_id = n.id"
    );
    let read = |row: &Row<'_>| -> rusqlite::Result<Vec<String>> {
        let name: String = row.get(0)?;
        let mut problems = Vec::new();
        for (number, (sum, _)) in SUMS.iter().enumerate() {
            let (kept, counted): (Option<i64>, i64) =
                (row.get(1 + number)?, row.get(1 + SUMS.len() + number)?);
            if kept != Some(counted) {
                let kept = kept.map_or_else(|| "nothing".to_owned(), |kept| kept.to_string());
                let what = sum.replace('_', " ");
                problems.push(format!(
                    "namespace {name:?} is on record with {kept} {what}, but its rows add up to {counted}"
                ));
            }
        }
        Ok(problems)
    };
    let found: Vec<Vec<String>> =
        connection.prepare(&sql).and_then(|mut s| s.query_map([], read)?.collect()).or_error("check")?;
    Ok(found.into_iter().flatten().collect())
}
