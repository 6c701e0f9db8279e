//! Locks and holds that keep restore points from being deleted.

use holdfast_types::clock::{Clock, utc_text};
use holdfast_types::ids::BackupId;
use rusqlite::{Connection, Transaction, params};

use super::convert::{OrCatalogError, id};
use super::{audit, backups, lock_clock, point_states};
use crate::limits::LOCK_DAYS_MAX;
use crate::{AuditEntry, BackupRecord, CatalogError, LegalHold, LockChange, Result, RetentionLock, validate};

pub(crate) const DAY_MS: i64 = 24 * 3600 * 1000;

/// Writes the lock that a restore point begins with.
pub(crate) fn write_new(tx: &Transaction<'_>, id: BackupId, lock: &RetentionLock) -> Result<()> {
    if *lock == RetentionLock::default() { Ok(()) } else { write(tx, id, lock) }
}

pub(crate) fn write(tx: &Transaction<'_>, id: BackupId, lock: &RetentionLock) -> Result<()> {
    let hold = lock.hold.as_ref();
    tx.prepare_cached(
        "UPDATE backups SET locked_until_ms = ?, hold_reason = ?, hold_who = ?, hold_since_ms = ? WHERE id = ?",
    )
    .and_then(|mut s| {
        s.execute(params![
            lock.until_ms,
            hold.map(|hold| validate::clip(&hold.reason)),
            hold.map(|hold| validate::clip(&hold.who)),
            hold.map(|hold| hold.since_ms),
            id.to_bytes()
        ])
    })
    .or_error("write")?;
    Ok(())
}

/// Returns true if any lock is in force.
pub(crate) fn any(connection: &Connection) -> Result<bool> {
    connection
        .prepare_cached(
            "SELECT 1 FROM backups WHERE locked_until_ms > coalesce((SELECT now_ms FROM lock_clock), -1) LIMIT 1",
        )
        .and_then(|mut s| s.exists([]))
        .or_error("read")
}

/// Lists the restore points that are locked or held now.
pub(crate) fn list(
    connection: &Connection,
    after: Option<BackupId>,
    limit: u32,
) -> Result<Vec<(BackupId, RetentionLock)>> {
    connection
        .prepare_cached(
            "SELECT id, locked_until_ms, hold_reason, hold_who, hold_since_ms FROM backups \
             WHERE id > ? AND (hold_reason IS NOT NULL OR \
             locked_until_ms > coalesce((SELECT now_ms FROM lock_clock), -1)) ORDER BY id LIMIT ?",
        )
        .and_then(|mut s| {
            let after = after.map_or_else(Vec::new, |id| id.to_bytes().to_vec());
            s.query_map(params![after, limit], |row| {
                Ok((BackupId::from_bytes(id(row, "id")?), backups::lock_of(row)?))
            })?
            .collect()
        })
        .or_error("read")
}

/// (L2) Refuses what is locked or held.
pub(crate) fn refuse_locked(backup: &BackupRecord, lock_time_ms: Option<i64>) -> Result<()> {
    if !backup.lock.is_in_force(lock_time_ms) {
        return Ok(());
    }
    let timed = RetentionLock { hold: None, ..backup.lock.clone() };
    Err(CatalogError::Locked {
        backup: Box::new(backup.id),
        vm: backup.vm.as_str().into(),
        until_ms: timed.until_ms.filter(|_| timed.is_in_force(lock_time_ms)),
        hold: backup.lock.hold.as_ref().map(|hold| hold.reason.as_str().into()),
    })
}

/// Makes the change, with an entry in the audit log for each; points become stale.
pub(crate) fn change(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    ids: &[BackupId],
    change: &LockChange,
    who: &str,
) -> Result<Vec<BackupId>> {
    check(tx, clock, change)?;
    let action = match change {
        LockChange::Lock { .. } => "backup.lock",
        LockChange::Hold(_) => "backup.hold",
        LockChange::Release { .. } => "backup.release",
    };
    let mut changed = Vec::new();
    for id in ids {
        let backup = backups::by_id(tx, *id)?.ok_or_else(|| CatalogError::not_found("restore point", id))?;
        let Some((after, detail)) = changes(&backup.lock, change) else { continue };
        write(tx, *id, &after)?;
        // (L5) In the transaction that changes the row.
        point_states::mark_stale(tx, *id, 0)?;
        let entry = AuditEntry {
            who: who.to_owned(),
            action: action.to_owned(),
            object: id.to_string(),
            detail: format!("VM {:?} in namespace {:?}: {detail}", backup.vm, backup.namespace_name),
        };
        audit::add(tx, clock, &entry)?;
        changed.push(*id);
    }
    Ok(changed)
}

/// # Errors
/// `Invalid`: see [`change_locks`](crate::Catalog::change_locks).
pub(crate) fn check(connection: &Connection, clock: &dyn Clock, change: &LockChange) -> Result<()> {
    let until_ms = match change {
        LockChange::Lock { until_ms } => *until_ms,
        LockChange::Hold(LegalHold { reason, .. }) | LockChange::Release { reason } => {
            return check_reason(reason);
        }
    };
    let now_ms = lock_clock::shows(connection)?.unwrap_or_else(|| clock.now_ms());
    let latest_ms = now_ms.max(clock.now_ms()).saturating_add(i64::from(LOCK_DAYS_MAX) * DAY_MS);
    if until_ms <= now_ms || until_ms > latest_ms {
        return Err(CatalogError::invalid(format!(
            "cannot lock until {}: it must be after {}, which the lock clock shows, and not after {}",
            utc_text(until_ms),
            utc_text(now_ms),
            utc_text(latest_ms)
        )));
    }
    Ok(())
}

/// The lock afterwards, and what is told of it; `None`: it stays as it is.
pub(crate) fn changes(before: &RetentionLock, change: &LockChange) -> Option<(RetentionLock, String)> {
    match change {
        // (L3) Never shorter.
        LockChange::Lock { until_ms } => (before.until_ms < Some(*until_ms)).then(|| {
            let had = before.until_ms.map_or_else(|| "not locked".to_owned(), utc_text);
            let after = RetentionLock { until_ms: Some(*until_ms), ..before.clone() };
            (after, format!("until {}, before: {had}", utc_text(*until_ms)))
        }),
        LockChange::Hold(hold) => before.hold.is_none().then(|| {
            let kept = |text: &str| validate::clip(text).to_owned();
            let hold = LegalHold { reason: kept(&hold.reason), who: kept(&hold.who), ..hold.clone() };
            (RetentionLock { hold: Some(hold.clone()), ..before.clone() }, hold.reason)
        }),
        LockChange::Release { reason } => before.hold.as_ref().map(|held| {
            let detail = format!("{reason}; it was held by {} for: {}", held.who, held.reason);
            (RetentionLock { hold: None, ..before.clone() }, detail)
        }),
    }
}

fn check_reason(reason: &str) -> Result<()> {
    if reason.trim().is_empty() {
        return Err(CatalogError::invalid(
            "a legal hold is placed and released with a reason; none was given",
        ));
    }
    Ok(())
}
