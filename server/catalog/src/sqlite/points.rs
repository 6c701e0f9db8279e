//! Restore points as the volume knows them.

use holdfast_types::clock::Clock;
use holdfast_types::ids::BackupId;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::attempt_refs::AttemptRefs;
use super::convert::{OrCatalogError, count, id, int};
use super::details::{self, kept};
use super::{
    adoption, backups, commit, commit_numbers, deletions, lock_clock, locks, lost, namespaces, point_states,
    trust, usage,
};
use crate::{Attempt, CatalogError, LockChange, PointRecord, Result};

pub(crate) fn ids(connection: &Connection, after: Option<BackupId>, limit: u32) -> Result<Vec<BackupId>> {
    // Below every key: no backup's identifier is shorter than 16 bytes.
    let after = after.map_or_else(Vec::new, |id| id.to_bytes().to_vec());
    connection
        .prepare_cached("SELECT id FROM backups WHERE id > ? ORDER BY id LIMIT ?")
        .and_then(|mut s| {
            let read = |row: &Row<'_>| Ok(BackupId::from_bytes(id(row, "id")?));
            s.query_map(params![after, limit], read)?.collect()
        })
        .or_error("read")
}

pub(crate) fn read(connection: &Connection, id: BackupId) -> Result<Option<PointRecord>> {
    let Some(backup) = backups::by_id(connection, id)? else { return Ok(None) };
    let (number, owner, vm_owner, revision) = connection
        .prepare_cached(
            "SELECT b.ordinal, b.point_wanted, r.owner AS run_owner, b.owner FROM backups b JOIN runs r ON r.id = b.run_id \
             WHERE b.id = ?",
        )
        .and_then(|mut s| {
            s.query_row([id.to_bytes()], |row| {
                Ok((
                    count(row, "ordinal")?,
                    row.get("run_owner")?,
                    row.get("owner")?,
                    row.get("point_wanted")?,
                ))
            })
        })
        .or_error("read")?;
    let namespace = namespaces::by_id(connection, backup.namespace)?
        .ok_or_else(|| CatalogError::not_found("namespace", backup.namespace))?;
    let attempt = Attempt {
        session: backup.session,
        run: backup.run,
        namespace: backup.namespace,
        vm: backup.vm,
        job: backup.job,
        client_host: backup.client_host,
        owner,
        vm_owner,
        who: String::new(),
        started_ms: backup.started_ms,
        finished_ms: backup.finished_ms,
        accepted_change: backup.accepted_change,
    };
    Ok(Some(PointRecord {
        number,
        namespace,
        attempt,
        backup: id,
        parent: None,
        disks: backup.disks,
        missing_disks: backup.missing_disks,
        details: details::of_session(connection, backup.session)?,
        next_container: commit_numbers::state(connection)?.next_container,
        revision,
        lock: backup.lock,
        lock_time_ms: lock_clock::shows(connection)?,
    }))
}

/// Returns the point of a restore point as it is once its lock is changed; `None`: that changes nothing.
pub(crate) fn rehearse(
    connection: &Connection,
    clock: &dyn Clock,
    id: BackupId,
    change: &LockChange,
) -> Result<Option<PointRecord>> {
    locks::check(connection, clock, change)?;
    let mut point = read(connection, id)?.ok_or_else(|| CatalogError::not_found("restore point", id))?;
    let Some((lock, _)) = locks::changes(&point.lock, change) else { return Ok(None) };
    (point.lock, point.revision) = (lock, point.revision.saturating_add(1));
    Ok(Some(point))
}

/// Enters a point that was validated. Whether it was missing.
pub(crate) fn enter(tx: &Transaction<'_>, clock: &dyn Clock, point: &PointRecord) -> Result<bool> {
    let PointRecord {
        number, namespace, attempt, backup, disks, missing_disks, details, next_container, ..
    } = point;
    if let Some(lock_time_ms) = point.lock_time_ms {
        lock_clock::raise(tx, lock_time_ms)?;
    }
    if let Some(known) = backups::by_id(tx, *backup)? {
        if known.session != attempt.session {
            return Err(CatalogError::exists("backup", backup));
        }
        adoption::adopt(tx, clock, point, &known)?;
        return Ok(false);
    }
    // (L1) What is being deleted does not come back by a point that is still there.
    if deletions::is_begun(tx, *backup)? {
        return Ok(false);
    }
    if let Some(other) = backups::by_session(tx, attempt.session)? {
        return Err(CatalogError::exists("backup", other.id));
    }
    namespaces::restore(tx, namespace)?;
    move_run(tx, clock, point)?;
    let refs = commit::write_names(tx, clock, attempt)?;
    // The newest restore point says whose the VM is: a catalog that does not know it is older. Unless an operator
    // decided after the restore point was made, and before its row was written: a crash came in between.
    if *number > commit_numbers::latest_of_vm(tx, refs.vm)?
        && !trust::owner_set_since(tx, refs.vm, attempt.finished_ms)?
    {
        trust::write_owner(tx, refs.vm, &attempt.vm_owner)?;
    }
    let ordinal = free_ordinal(tx, &refs, *number)?;
    usage::of_vm(tx, attempt.namespace, refs.vm, || {
        commit::insert_backup(tx, attempt, *backup, &refs, missing_disks, ordinal)?;
        (0u32..).zip(disks).try_for_each(|(position, disk)| commit::insert_disk(tx, *backup, position, disk))
    })?;
    locks::write_new(tx, *backup, &point.lock)?;
    point_states::set(tx, *backup, point.revision)?;
    // (V3) Rows of containers it needs may be missing as its own was, and their files with them.
    lost::doubt(tx, *backup)?;
    if refs.job_name != attempt.job {
        // (P9, L5)
        point_states::mark_stale(tx, *backup, point.revision)?;
    }
    // The point is the commit: what was recorded of a failure of this session came after it.
    details::remove_session(tx, attempt.session)?;
    for (position, row) in (0u32..).zip(details) {
        details::insert(tx, attempt, &refs, Some(*backup), position, row)?;
    }
    let next_container = int("next container number", *next_container)?;
    tx.execute("UPDATE repository SET next_container = ?1 WHERE next_container < ?1", [next_container])
        .or_error("write")?;
    let detail = format!("VM {}, job {}, run {}, commit {number}", attempt.vm, attempt.job, attempt.run);
    commit::write_audit(tx, clock, &by_engine(attempt), "backup.enter", backup.to_string(), &detail)?;
    Ok(true)
}

/// (P9) A point that was sealed anew more often than those of its run says the name that the run's job has now.
fn move_run(tx: &Transaction<'_>, clock: &dyn Clock, point: &PointRecord) -> Result<()> {
    let Some(run) = commit::known_run(tx, &point.attempt)? else { return Ok(()) };
    let sealed: u32 = tx
        .prepare_cached("SELECT coalesce(max(point_revision), 0) FROM backups WHERE run_id = ?")
        .and_then(|mut s| s.query_row([run.id.to_bytes()], |row| row.get(0)))
        .or_error("read")?;
    if run.job == point.attempt.job || point.revision <= sealed {
        return Ok(());
    }
    let job = commit::ensure_job(tx, clock, &point.attempt)?;
    kept::count_runs(tx, run.job_id.to_bytes(), -1)?;
    kept::count_runs(tx, job, 1)?;
    kept::follow(tx, "d.run_id = ?", &[run.id.to_bytes()], || {
        for (table, column) in [("runs", "id"), ("backups", "run_id"), ("details", "run_id")] {
            tx.execute(
                &format!("UPDATE {table} SET job_id = ? WHERE {column} = ?"),
                params![job, run.id.to_bytes()],
            )
            .or_error("write")?;
        }
        Ok(())
    })?;
    point_states::mark_all_stale(tx, "run_id", run.id.to_bytes())
}

/// The number itself unless another backup of the VM has it; then one above all of them.
fn free_ordinal(tx: &Transaction<'_>, refs: &AttemptRefs, number: u64) -> Result<u64> {
    let taken = tx
        .prepare_cached("SELECT 1 FROM backups WHERE vm_id = ? AND ordinal = ?")
        .and_then(|mut s| s.query_row(params![refs.vm, int_of(number)], |_| Ok(())).optional())
        .or_error("read")?;
    if taken.is_none() {
        Ok(number)
    } else {
        Ok(commit_numbers::latest_of_vm(tx, refs.vm)?.saturating_add(1))
    }
}

/// Validated to be small.
fn int_of(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn by_engine(attempt: &Attempt) -> Attempt {
    Attempt { who: "engine".to_owned(), ..attempt.clone() }
}
