//! Retention policies, and the locks that follow from them.

use holdfast_proto::api::Rules;
use holdfast_types::clock::{Clock, utc_text};
use holdfast_types::ids::{BackupId, NamespaceId, PolicyId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, id};
use super::locks::{self, DAY_MS};
use super::select::Conditions;
use super::{audit, lock_clock, namespaces, point_states};
use crate::limits::POLICIES_PER_NAMESPACE_MAX;
use crate::{
    Attempt, AuditEntry, CatalogError, Named, Rename, Result, RetentionLock, RetentionPolicy, validate,
};

/// A commit may be tried again for that long without its lock being counted anew.
const COMMIT_TAKES_MS: i64 = 3600 * 1000;

const SELECT: &str =
    "SELECT p.*, n.name AS namespace FROM retention_policies p JOIN namespaces n ON n.id = p.namespace_id";

pub(crate) fn list(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<RetentionPolicy>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let mut conditions = Conditions::default();
    conditions.in_namespaces("p.namespace_id", namespaces);
    let mut found = Vec::new();
    conditions.each(connection, (SELECT, "ORDER BY n.name, p.name"), |row| {
        found.push(read(row).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

pub(crate) fn by_id(connection: &Connection, id: PolicyId) -> Result<Option<RetentionPolicy>> {
    connection
        .prepare_cached(&format!("{SELECT} WHERE p.id = ?"))
        .and_then(|mut s| s.query_row([id.to_bytes()], read).optional())
        .or_error("read")
}

fn read(row: &Row<'_>) -> rusqlite::Result<RetentionPolicy> {
    Ok(RetentionPolicy {
        id: PolicyId::from_bytes(id(row, "id")?),
        name: row.get("name")?,
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        vm: row.get("vm")?,
        job: row.get("job")?,
        rules: Rules {
            keep_last: row.get("keep_last")?,
            keep_hourly: row.get("keep_hourly")?,
            keep_daily: row.get("keep_daily")?,
            keep_weekly: row.get("keep_weekly")?,
            keep_monthly: row.get("keep_monthly")?,
            keep_yearly: row.get("keep_yearly")?,
            keep_within_days: row.get("keep_within_days")?,
        },
        schedule: row.get("schedule")?,
        time_zone: row.get("time_zone")?,
        lock_days: row.get("lock_days")?,
        archive_after_days: row.get("archive_after_days")?,
        enabled: row.get("enabled")?,
        resting_since_ms: row.get("resting_since_ms")?,
        updated_ms: row.get("updated_ms")?,
        updated_by: row.get("updated_by")?,
    })
}

pub(crate) fn set(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    policy: &RetentionPolicy,
    who: &str,
) -> Result<()> {
    let namespace = namespaces::by_id(tx, policy.namespace)?
        .ok_or_else(|| CatalogError::not_found("namespace", policy.namespace))?;
    let of_namespace = list(tx, Some(&[policy.namespace]))?;
    let before = by_id(tx, policy.id)?;
    if before.as_ref().is_some_and(|before| before.namespace != policy.namespace) {
        return Err(CatalogError::invalid(format!(
            "policy {:?} is of another namespace; remove it there and create it here",
            policy.name
        )));
    }
    if of_namespace.iter().any(|other| other.id != policy.id && other.name == policy.name) {
        return Err(CatalogError::exists("policy", format!("{:?}", policy.name)));
    }
    let limit = usize::try_from(POLICIES_PER_NAMESPACE_MAX).unwrap_or(usize::MAX);
    if before.is_none() && of_namespace.len() >= limit {
        return Err(CatalogError::invalid(format!(
            "namespace {:?} has {limit} policies; remove one first",
            namespace.name
        )));
    }
    write(tx, policy, clock.now_ms(), who)?;
    let had = before.map_or_else(|| "none".to_owned(), |before| in_words(&before));
    let detail = format!("namespace {:?}: before: {had}; now: {}", namespace.name, in_words(policy));
    tell(tx, clock, who, "policy.set", policy.id, detail)
}

/// Replaces a policy, which rests no more.
fn write(tx: &Transaction<'_>, policy: &RetentionPolicy, now_ms: i64, who: &str) -> Result<()> {
    tx.execute("DELETE FROM retention_policies WHERE id = ?", [policy.id.to_bytes()]).or_error("write")?;
    tx.execute(
        "INSERT INTO retention_policies (id, namespace_id, name, vm, job, keep_last, keep_hourly, \
         keep_daily, keep_weekly, keep_monthly, keep_yearly, keep_within_days, schedule, time_zone, lock_days, \
         archive_after_days, enabled, updated_ms, updated_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            policy.id.to_bytes(),
            policy.namespace.to_bytes(),
            policy.name,
            policy.vm,
            policy.job,
            policy.rules.keep_last,
            policy.rules.keep_hourly,
            policy.rules.keep_daily,
            policy.rules.keep_weekly,
            policy.rules.keep_monthly,
            policy.rules.keep_yearly,
            policy.rules.keep_within_days,
            policy.schedule,
            policy.time_zone,
            policy.lock_days,
            policy.archive_after_days,
            policy.enabled,
            now_ms,
            validate::clip(who),
        ],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn remove(tx: &Transaction<'_>, clock: &dyn Clock, id: PolicyId, who: &str) -> Result<()> {
    let found = by_id(tx, id)?.ok_or_else(|| CatalogError::not_found("policy", id))?;
    tx.execute("DELETE FROM retention_policies WHERE id = ?", [id.to_bytes()]).or_error("write")?;
    tell(tx, clock, who, "policy.remove", id, format!("it was: {}", in_words(&found)))
}

fn tell(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    who: &str,
    action: &str,
    id: PolicyId,
    detail: String,
) -> Result<()> {
    let (who, action) = (who.to_owned(), action.to_owned());
    audit::add(tx, clock, &AuditEntry { who, action, object: id.to_string(), detail })
}

fn in_words(policy: &RetentionPolicy) -> String {
    let scope =
        |name: &Option<String>| name.as_ref().map_or_else(|| "all".to_owned(), |name| format!("{name:?}"));
    format!(
        "{:?}, VM {}, job {}, keep last {}, hourly {}, daily {}, weekly {}, monthly {}, yearly {}, within {} days, \
         lock {} days, {}schedule {:?} {}, {}",
        policy.name,
        scope(&policy.vm),
        scope(&policy.job),
        policy.rules.keep_last,
        policy.rules.keep_hourly,
        policy.rules.keep_daily,
        policy.rules.keep_weekly,
        policy.rules.keep_monthly,
        policy.rules.keep_yearly,
        policy.rules.keep_within_days,
        policy.lock_days,
        policy.archive_after_days.map(|days| format!("archive after {days} days, ")).unwrap_or_default(),
        policy.schedule,
        policy.time_zone,
        if policy.enabled { "enabled" } else { "not enabled" }
    )
}

/// (P10) Policies that name what has another name now follow it, each once, whatever names were swapped.
pub(crate) fn rename(tx: &Transaction<'_>, renames: &[Rename]) -> Result<()> {
    for mut policy in list(tx, None)? {
        let follow = |kind: Named, name: &mut Option<String>| {
            let of = |one: &&Rename| {
                one.kind == kind && one.namespace == policy.namespace && name.as_deref() == Some(&*one.from)
            };
            let renamed = renames.iter().find(of).map(|one| one.to.clone());
            renamed.map(|to| *name = Some(to)).is_some()
        };
        let (vm, job) = (follow(Named::Vm, &mut policy.vm), follow(Named::Job, &mut policy.job));
        if vm || job {
            tx.execute(
                "UPDATE retention_policies SET vm = ?, job = ? WHERE id = ?",
                params![policy.vm, policy.job, policy.id.to_bytes()],
            )
            .or_error("write")?;
        }
    }
    Ok(())
}

/// (P10) Makes all policies rest until someone sets them. Returns how many.
pub(crate) fn rest(tx: &Transaction<'_>, now_ms: i64) -> Result<u64> {
    let changed = tx
        .execute(
            "UPDATE retention_policies SET resting_since_ms = ? WHERE enabled = 1 AND resting_since_ms IS NULL",
            [now_ms],
        )
        .or_error("write")?;
    Ok(u64::try_from(changed).unwrap_or(u64::MAX))
}

/// (L3) Until when a restore point that is made now is locked. After that many days of real time the lock clock shows
/// no more, whether it is in step or catching up; and where the time of day is wrong and far ahead, the lock lasts
/// twice as long at most.
pub(crate) fn lock_until(
    connection: &Connection,
    clock: &dyn Clock,
    namespace: NamespaceId,
    vm: &str,
    job: &str,
) -> Result<Option<i64>> {
    let days: Option<u32> = connection
        .prepare_cached(
            "SELECT max(lock_days) FROM retention_policies WHERE namespace_id = ? AND enabled = 1 AND lock_days > 0 \
             AND (vm IS NULL OR vm = ?) AND (job IS NULL OR job = ?)",
        )
        .and_then(|mut s| s.query_row(params![namespace.to_bytes(), vm, job], |row| row.get(0)))
        .or_error("read")?;
    let Some(days) = days else { return Ok(None) };
    let time_of_day_ms = clock.now_ms();
    let shown_ms = lock_clock::shows(connection)?.unwrap_or(time_of_day_ms);
    let length_ms = i64::from(days) * DAY_MS;
    let in_step_ms = shown_ms.max(time_of_day_ms).saturating_add(length_ms);
    Ok(Some(in_step_ms.min(shown_ms.saturating_add(length_ms.saturating_mul(crate::LOCK_CLOCK_CATCH_UP)))))
}

/// Locks a restore point that is being committed with what its point does not say: a policy has changed since that was
/// sealed.
pub(crate) fn lock_new(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    (attempt, job): (&Attempt, &str),
    backup: BackupId,
    lock: &RetentionLock,
) -> Result<()> {
    let wanted = lock_until(tx, clock, attempt.namespace, &attempt.vm, job)?;
    if let Some(until_ms) = wanted
        && lock.until_ms.is_none_or(|has_ms| has_ms < until_ms.saturating_sub(COMMIT_TAKES_MS))
    {
        locks::write(tx, backup, &RetentionLock { until_ms: Some(until_ms), ..lock.clone() })?;
        point_states::mark_stale(tx, backup, 0)?;
        tell_of_lock(tx, clock, attempt, backup, until_ms)?;
    }
    Ok(())
}

fn tell_of_lock(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    attempt: &Attempt,
    backup: BackupId,
    until_ms: i64,
) -> Result<()> {
    let entry = AuditEntry {
        who: attempt.who.clone(),
        action: "backup.lock".to_owned(),
        object: backup.to_string(),
        detail: format!("VM {:?}: by policy, until {}", attempt.vm, utc_text(until_ms)),
    };
    audit::add(tx, clock, &entry)
}
