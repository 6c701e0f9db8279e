//! The two transactions that end an attempt: a backup that becomes visible, or the record of why none did.

use holdfast_types::clock::Clock;
use holdfast_types::ids::BackupId;
use rusqlite::{Connection, Transaction, params};

use super::attempt_refs::AttemptRefs;
use super::convert::{OrCatalogError, int};
use super::details::{self, kept};
use super::{
    audit, backups, commit_numbers, containers, locks, lost, merge_failed, namespaces, point_states,
    policies, trust, usage,
};
use crate::{
    Attempt, AuditEntry, BackupCommit, CatalogError, ContainerRecord, DetailRow, DiskRecord, FailedRun,
    Result, RowStatus, RunRecord, new_id, validate,
};

/// Writes a backup whose commit was validated.
pub(crate) fn backup(tx: &Transaction<'_>, clock: &dyn Clock, commit: &BackupCommit) -> Result<()> {
    let BackupCommit { attempt, number, backup, disks, missing_disks, details, containers, lock } = commit;
    if let Some(known) = backups::by_id(tx, *backup)? {
        return if known.session == attempt.session {
            Ok(())
        } else {
            Err(CatalogError::exists("backup", backup))
        };
    }
    if details::session_ended(tx, attempt.session)? {
        return Err(CatalogError::exists("an end of session", attempt.session));
    }
    let refs = write_refs(tx, clock, attempt, details)?;
    trust::claim_vm(tx, refs.vm, &attempt.vm, &attempt.vm_owner)?;
    let number = if *number == 0 { commit_numbers::last_commit(tx)?.saturating_add(1) } else { *number };
    let ordinal = number.max(commit_numbers::latest_of_vm(tx, refs.vm)?.saturating_add(1));
    usage::of_vm(tx, attempt.namespace, refs.vm, || {
        insert_backup(tx, attempt, *backup, &refs, missing_disks, ordinal)?;
        (0u32..).zip(disks).try_for_each(|(position, disk)| insert_disk(tx, *backup, position, disk))
    })?;
    // (V3)
    lost::inherit_doubt(tx, *backup)?;
    locks::write_new(tx, *backup, lock)?;
    policies::lock_new(tx, clock, (attempt, &refs.job_name), *backup, lock)?;
    if refs.job_name != attempt.job {
        // (P9, L5) The point was sealed with the name that the job had before.
        point_states::mark_stale(tx, *backup, 0)?;
    }
    write_rows(tx, attempt, &refs, Some(*backup), details, containers)?;
    let mut detail = format!("VM {}, job {}, run {}", attempt.vm, attempt.job, attempt.run);
    if !missing_disks.is_empty() {
        detail = format!("{detail}, without {}", missing_disks.join(", "));
    }
    if attempt.accepted_change {
        detail.push_str(", of fewer disks or smaller ones than before, as accepted");
    }
    let entry = audit_entry(attempt, "backup.commit", backup.to_string(), detail);
    audit::add(tx, clock, &entry)
}

/// Writes the record of an attempt that was validated.
pub(crate) fn failed(tx: &Transaction<'_>, clock: &dyn Clock, failed: &FailedRun) -> Result<()> {
    let FailedRun { attempt, details, containers } = failed;
    if let Some(made) = backups::by_session(tx, attempt.session)? {
        return Err(CatalogError::exists("backup", made.id));
    }
    if details::session_ended(tx, attempt.session)? {
        return Ok(());
    }
    let refs = write_refs(tx, clock, attempt, details)?;
    write_rows(tx, attempt, &refs, None, details, containers)?;
    merge_failed::bound(tx, refs.vm)?;
    let verb = match details.first().map(|row| row.status) {
        Some(RowStatus::Aborted) => "backup.abort",
        Some(RowStatus::Expired) => "backup.expire",
        _ => "backup.fail",
    };
    let why = details.iter().map(|row| row.error.as_str()).find(|error| !error.is_empty()).unwrap_or("");
    let detail = format!("VM {}, job {}, run {}: {why}", attempt.vm, attempt.job, attempt.run);
    let entry = audit_entry(attempt, verb, attempt.session.to_string(), detail);
    audit::add_repeated(tx, clock, entry, format!("{} {}", attempt.namespace, attempt.vm))
}

/// Namespace, VM, job and run; the last three are created when they are new.
fn write_refs(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    attempt: &Attempt,
    details: &[DetailRow],
) -> Result<AttemptRefs> {
    let namespace = namespaces::by_id(tx, attempt.namespace)?
        .ok_or_else(|| CatalogError::not_found("namespace", attempt.namespace))?;
    if let Some(row) = details.iter().find(|row| row.namespace != namespace.name) {
        return Err(CatalogError::invalid(format!(
            "the details of disk {:?} have namespace {:?} where {:?} belongs",
            row.disk, row.namespace, namespace.name
        )));
    }
    write_names(tx, clock, attempt)
}

/// VM, job and run; created when they are new. (P9) A run that is known brings its job: it may have got another name
/// since the attempt began.
pub(crate) fn write_names(tx: &Transaction<'_>, clock: &dyn Clock, attempt: &Attempt) -> Result<AttemptRefs> {
    let vm = ensure_named(tx, clock, "vms", attempt, &attempt.vm)?;
    // A removed VM is in use again.
    tx.prepare_cached("UPDATE vms SET removed_ms = NULL WHERE id = ? AND removed_ms IS NOT NULL")
        .and_then(|mut s| s.execute([vm]))
        .or_error("write")?;
    match known_run(tx, attempt)? {
        Some(run) => {
            widen_run(tx, &run, attempt)?;
            Ok(AttemptRefs { vm, job: run.job_id.to_bytes(), job_name: run.job })
        }
        None => {
            let job = ensure_job(tx, clock, attempt)?;
            insert_run(tx, attempt, job)?;
            Ok(AttemptRefs { vm, job, job_name: attempt.job.clone() })
        }
    }
}

/// The attempt's job by name; created when it is new.
pub(crate) fn ensure_job(tx: &Transaction<'_>, clock: &dyn Clock, attempt: &Attempt) -> Result<[u8; 16]> {
    ensure_named(tx, clock, "jobs", attempt, &attempt.job)
}

fn ensure_named(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    table: &str,
    attempt: &Attempt,
    name: &str,
) -> Result<[u8; 16]> {
    let found = super::select::named(tx, table, name, Some(&[attempt.namespace]))?;
    if let Some(id) = found.first() {
        return Ok(*id);
    }
    let id = new_id(clock)?.to_bytes();
    tx.prepare_cached(&format!(
        "INSERT INTO {table} (id, namespace_id, name, created_ms) VALUES (?, ?, ?, ?)"
    ))
    .and_then(|mut s| s.execute(params![id, attempt.namespace.to_bytes(), name, clock.now_ms()]))
    .or_error("write")?;
    usage::change(tx, attempt.namespace, table, 1)?;
    Ok(id)
}

/// The run of the attempt, unless it is new.
///
/// # Errors
/// `Invalid` when it is of another owner or namespace.
pub(crate) fn known_run(connection: &Connection, attempt: &Attempt) -> Result<Option<RunRecord>> {
    let Some(run) = backups::run(connection, attempt.run)? else { return Ok(None) };
    if run.namespace != attempt.namespace || run.owner != attempt.owner {
        // Says nothing of the job or the namespace the run belongs to: the agent may not be allowed to know.
        return Err(CatalogError::invalid(format!(
            "run {} is not of owner {:?} in namespace {}, so it cannot be joined by it",
            run.id, attempt.owner, attempt.namespace
        )));
    }
    Ok(Some(run))
}

fn widen_run(tx: &Transaction<'_>, run: &RunRecord, attempt: &Attempt) -> Result<()> {
    let started_ms = run.started_ms.min(attempt.started_ms);
    let finished_ms = run.finished_ms.max(attempt.finished_ms);
    tx.prepare_cached("UPDATE runs SET started_ms = ?, finished_ms = ? WHERE id = ?")
        .and_then(|mut s| s.execute(params![started_ms, finished_ms, run.id.to_bytes()]))
        .or_error("write")?;
    Ok(())
}

fn insert_run(tx: &Transaction<'_>, attempt: &Attempt, job: [u8; 16]) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO runs (id, namespace_id, job_id, started_ms, finished_ms, owner) VALUES (?, ?, ?, ?, ?, ?)",
    )
    .and_then(|mut s| {
        s.execute(params![
            attempt.run.to_bytes(),
            attempt.namespace.to_bytes(),
            job,
            attempt.started_ms,
            attempt.finished_ms,
            attempt.owner
        ])
    })
    .or_error("write")?;
    kept::count_runs(tx, job, 1)
}

/// A backup of this ordinal.
pub(crate) fn insert_backup(
    tx: &Transaction<'_>,
    attempt: &Attempt,
    backup: BackupId,
    refs: &AttemptRefs,
    missing_disks: &[String],
    ordinal: u64,
) -> Result<()> {
    commit_numbers::note_number(tx, ordinal)?;
    let ordinal = int("ordinal", ordinal)?;
    tx.prepare_cached(
        "INSERT INTO backups (id, session_id, namespace_id, vm_id, job_id, run_id, ordinal, started_ms, \
         finished_ms, client_host, owner, missing_disks, accepted_change) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .and_then(|mut s| {
        s.execute(params![
            backup.to_bytes(),
            attempt.session.to_bytes(),
            attempt.namespace.to_bytes(),
            refs.vm,
            refs.job,
            attempt.run.to_bytes(),
            ordinal,
            attempt.started_ms,
            attempt.finished_ms,
            validate::clip(&attempt.client_host),
            attempt.vm_owner,
            missing_disks.join("\n"),
            attempt.accepted_change,
        ])
    })
    .or_error("write")?;
    usage::change(tx, attempt.namespace, "restore_points", 1)
}

pub(crate) fn insert_disk(
    tx: &Transaction<'_>,
    backup: BackupId,
    position: u32,
    disk: &DiskRecord,
) -> Result<()> {
    let size_bytes = int("size_bytes", disk.size_bytes)?;
    let data_bytes = int("data_bytes", disk.data_bytes)?;
    let extent_count = int("extent_count", disk.extent_count)?;
    tx.prepare_cached(
        "INSERT INTO disks (backup_id, position, name, size_bytes, data_bytes, extent_count, root) \
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .and_then(|mut s| {
        s.execute(params![
            backup.to_bytes(),
            position,
            disk.name,
            size_bytes,
            data_bytes,
            extent_count,
            disk.root.as_bytes()
        ])
    })
    .or_error("write")?;
    Ok(())
}

fn write_rows(
    tx: &Transaction<'_>,
    attempt: &Attempt,
    refs: &AttemptRefs,
    backup: Option<BackupId>,
    details: &[DetailRow],
    containers: &[ContainerRecord],
) -> Result<()> {
    for (position, row) in (0u32..).zip(details) {
        details::insert(tx, attempt, refs, backup, position, row)?;
    }
    containers.iter().try_for_each(|container| containers::add(tx, container))
}

fn audit_entry(attempt: &Attempt, action: &str, object: String, detail: String) -> AuditEntry {
    AuditEntry { who: attempt.who.clone(), action: action.to_owned(), object, detail }
}

pub(crate) fn write_audit(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    attempt: &Attempt,
    action: &str,
    object: String,
    detail: &str,
) -> Result<()> {
    audit::add(tx, clock, &audit_entry(attempt, action, object, detail.to_owned()))
}
