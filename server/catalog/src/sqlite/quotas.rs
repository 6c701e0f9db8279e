//! Limits of namespaces, and what counts against them.

use holdfast_types::clock::Clock;
use holdfast_types::ids::NamespaceId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, count, int, kept_sum};
use super::select::{Conditions, named};
use super::{audit, namespaces, usage};
use crate::sqlite::convert::day_of;
use crate::{AuditEntry, CatalogError, NamespaceQuota, Quota, Result, StartAccount, Usage};

const SELECT: &str = "SELECT n.id, n.name, n.created_ms, n.key_id, u.stored_bytes, u.protected_bytes, u.restore_points, u.vms, \
     u.jobs, u.sessions_day, u.sessions, q.stored_bytes AS stored_max, q.protected_bytes AS protected_max, \
     q.restore_points AS points_max, q.sessions_per_day AS sessions_max FROM namespaces n \
     JOIN namespace_usage u ON u.namespace_id = n.id LEFT JOIN namespace_quotas q ON q.namespace_id = n.id";

pub(crate) fn set(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    namespace: NamespaceId,
    quota: &Quota,
    who: &str,
) -> Result<Quota> {
    let record =
        namespaces::by_id(tx, namespace)?.ok_or_else(|| CatalogError::not_found("namespace", namespace))?;
    let before = of(tx, clock, namespace)?.quota;
    let limit = |what, value: Option<u64>| value.map(|value| int(what, value)).transpose();
    tx.execute(
        "INSERT INTO namespace_quotas (namespace_id, stored_bytes, protected_bytes, restore_points, sessions_per_day) \
         VALUES (?, ?, ?, ?, ?) ON CONFLICT (namespace_id) DO UPDATE SET stored_bytes = excluded.stored_bytes, \
         protected_bytes = excluded.protected_bytes, restore_points = excluded.restore_points, \
         sessions_per_day = excluded.sessions_per_day",
        params![
            namespace.to_bytes(),
            limit("the limit of stored bytes", quota.stored_bytes)?,
            limit("the limit of protected bytes", quota.protected_bytes)?,
            limit("the limit of restore points", quota.restore_points)?,
            limit("the limit of sessions a day", quota.sessions_per_day)?,
        ],
    )
    .or_error("write")?;
    let entry = AuditEntry {
        who: who.to_owned(),
        action: "namespace.quota".to_owned(),
        object: record.name,
        detail: format!("before: {}; now: {}", in_words(&before), in_words(quota)),
    };
    audit::add(tx, clock, &entry)?;
    Ok(before)
}

fn in_words(quota: &Quota) -> String {
    let limit = |value: Option<u64>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
    format!(
        "stored bytes {}, protected bytes {}, restore points {}, sessions a day {}",
        limit(quota.stored_bytes),
        limit(quota.protected_bytes),
        limit(quota.restore_points),
        limit(quota.sessions_per_day)
    )
}

pub(crate) fn list(
    connection: &Connection,
    clock: &dyn Clock,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<NamespaceQuota>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let mut conditions = Conditions::default();
    conditions.in_namespaces("n.id", namespaces);
    let today = today(clock);
    let mut found = Vec::new();
    conditions.each(connection, (SELECT, "ORDER BY n.name"), |row| {
        found.push(read(row, today).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

fn of(connection: &Connection, clock: &dyn Clock, namespace: NamespaceId) -> Result<NamespaceQuota> {
    let today = today(clock);
    connection
        .prepare_cached(&format!("{SELECT} WHERE n.id = ?"))
        .and_then(|mut s| s.query_row([namespace.to_bytes()], |row| read(row, today)).optional())
        .or_error("read")?
        .ok_or_else(|| CatalogError::not_found("namespace", namespace))
}

pub(crate) fn start_account(
    connection: &Connection,
    clock: &dyn Clock,
    namespace: NamespaceId,
    vm: &str,
    job: &str,
) -> Result<StartAccount> {
    let NamespaceQuota { quota, usage: used, .. } = of(connection, clock, namespace)?;
    let vm = named(connection, "vms", vm, Some(&[namespace]))?.first().copied();
    let newest = vm.map(|vm| usage::newest_bytes(connection, vm)).transpose()?.flatten();
    let vm_protected_bytes = newest.map(|bytes| bytes.max(0).unsigned_abs());
    let knows_job = !named(connection, "jobs", job, Some(&[namespace]))?.is_empty();
    Ok(StartAccount { quota, usage: used, knows_vm: vm.is_some(), knows_job, vm_protected_bytes })
}

pub(crate) fn count_session(tx: &Transaction<'_>, clock: &dyn Clock, namespace: NamespaceId) -> Result<bool> {
    let NamespaceQuota { quota, usage, .. } = of(tx, clock, namespace)?;
    if quota.sessions_per_day.is_some_and(|limit| usage.sessions_today >= limit) {
        return Ok(false);
    }
    tx.execute(
        "UPDATE namespace_usage SET sessions = ?, sessions_day = ? WHERE namespace_id = ?",
        params![int("sessions", usage.sessions_today.saturating_add(1))?, today(clock), namespace.to_bytes()],
    )
    .or_error("write")?;
    Ok(true)
}

fn read(row: &Row<'_>, today: i32) -> rusqlite::Result<NamespaceQuota> {
    let limit = |column: &str| -> rusqlite::Result<Option<u64>> {
        let value: Option<i64> = row.get(column)?;
        value.map(|_| count(row, column)).transpose()
    };
    let is_today = row.get::<_, i64>("sessions_day")? == i64::from(today);
    let sum = |column: &str| kept_sum(row, column);
    Ok(NamespaceQuota {
        namespace: namespaces::read(row)?,
        quota: Quota {
            stored_bytes: limit("stored_max")?,
            protected_bytes: limit("protected_max")?,
            restore_points: limit("points_max")?,
            sessions_per_day: limit("sessions_max")?,
        },
        usage: Usage {
            stored_bytes: sum("stored_bytes")?,
            protected_bytes: sum("protected_bytes")?,
            restore_points: sum("restore_points")?,
            sessions_today: if is_today { sum("sessions")? } else { 0 },
            vms: sum("vms")?,
            jobs: sum("jobs")?,
        },
    })
}

fn today(clock: &dyn Clock) -> i32 {
    day_of(clock.now_ms())
}
