//! The end of a session: as a backup, or as a failed run. Either is one catalog transaction.

use holdfast_catalog::{
    Attempt, BackupCommit, CatalogError, ContainerRecord, ContainerState, DetailRow, DiskRecord, FailedRun,
    PointFate, PointRecord, RetentionLock, RowStatus,
};
use holdfast_proto::limits::plain_text;
use holdfast_types::ids::SessionId;
use holdfast_volume::{Volume as _, VolumeError};

use super::Prepared;
use super::append::SealedSummary;
use super::disk::DiskState;
use super::parent::ParentDisk;
use super::reliance;
use super::session::{DiskSlot, Session};
use crate::core::Core;
use crate::error::EngineError;
use crate::points::{self, PointName};
use crate::store::Leftover;

/// A backup that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub backup_id: String,
    /// Compression details, one row per disk.
    pub details: Vec<DetailRow>,
}

/// Makes the backup exist. (W5) Every stream must be finished: then all it refers to is durable and indexed.
pub(super) fn commit(core: &Core, session: &Session) -> Result<Committed, EngineError> {
    if let Some(reason) = core.health.read_only_reason() {
        return Err(EngineError::ReadOnly(reason.to_owned()));
    }
    // (R5) Once its point is sealed the backup exists, and can only be entered.
    let reach = if is_sealed(session) { Vec::new() } else { reliance::check(core, session)? };
    let mut slot = session.prepared.lock();
    let mut prepared = match slot.take() {
        Some(prepared) => prepared,
        None => prepare(core, session)?,
    };
    let stored_bytes = prepared.commit.containers.iter().map(|container| container.stored_bytes).sum();
    let ending = session.charge.ending();
    // (P1) The point is the commit: sealed once everything it refers to is durable.
    let made =
        points::seal(&*core.volume, session.namespace.id, &prepared.name, &prepared.bytes).and_then(|()| {
            prepared.sealed = true;
            // (P2, W6, A1) One transaction makes the backup, its disks, details and containers visible.
            Ok(core.catalog.commit_backup(&prepared.commit)?)
        });
    match made {
        // (W7) Only now is there something to acknowledge.
        Ok(()) => {
            for (root, reach) in reach {
                core.store.reach.remember(session.namespace.id, root, reach);
            }
            ending.recorded(stored_bytes, true);
            // (W12) They have their rows. Written once more, these would come back after a round deleted them.
            core.sealed.forget(&prepared.commit.containers);
            // (W7) As the catalog has them, which knows what attempts before this one stored. It exists, whatever comes of this.
            let details =
                core.catalog.session_details(session.id).unwrap_or_else(|_| prepared.commit.details.clone());
            Ok(Committed { backup_id: session.backup.to_string(), details })
        }
        Err(error) if prepared.sealed && is_refusal(&error) => {
            if !take_back(core, &prepared) {
                // (P2) The end of the session tries again; as long as it stays, nothing it needs is deleted.
                prepared.sealed = false;
                *slot = Some(prepared);
            }
            Err(error)
        }
        Err(error) => {
            *slot = Some(prepared);
            Err(error)
        }
    }
}

/// Returns true if the catalog will never accept the backup: then its point must be removed, or the next start would
/// enter it.
fn is_refusal(error: &EngineError) -> bool {
    use CatalogError::{Exists, Invalid, NotFound};
    // Another owner: the VM was given to them while the backup ran.
    let not_owner = matches!(error, EngineError::NotOwner { .. });
    not_owner || matches!(error, EngineError::Catalog(Invalid { .. } | Exists { .. } | NotFound { .. }))
}

/// Removes a point that must not stay. Returns true if it is gone.
fn take_back(core: &Core, prepared: &Prepared) -> bool {
    match core.volume.remove(&prepared.name) {
        Ok(()) | Err(VolumeError::NotFound { .. }) => true,
        Err(error) => {
            tracing::error!(name = %prepared.name, %error, "cannot remove the point of a backup that has no restore point");
            false
        }
    }
}

/// (P2) Makes sure that no point of the session is left. Not possible once writing has stopped; then the next start may
/// find one, and enters it.
fn withdraw(core: &Core, session: &Session) -> bool {
    let Some(prepared) = session.prepared.lock().take() else { return true };
    let is_gone = take_back(core, &prepared);
    if !is_gone {
        core.leave_point();
    }
    is_gone
}

/// Returns true if the session's backup exists on the volume, so that it can end in no other way.
pub(super) fn is_sealed(session: &Session) -> bool {
    session.prepared.lock().as_ref().is_some_and(|prepared| prepared.sealed)
}

fn prepare(core: &Core, session: &Session) -> Result<Prepared, EngineError> {
    let mut disks = Vec::new();
    let mut details = Vec::new();
    let mut containers = Vec::new();
    for slot in &session.disks {
        let state = slot.state.lock();
        let finished = state.finished.ok_or_else(|| not_finished(slot, &state))?;
        disks.push(DiskRecord {
            name: slot.name.clone(),
            size_bytes: slot.size_bytes,
            data_bytes: state.counters.data_bytes(),
            extent_count: holdfast_proto::limits::extent_count(slot.size_bytes),
            root: finished.root,
        });
        let mut row = details_row(core, session, slot, &state);
        row.backup = session.backup.to_string();
        row.status = RowStatus::Done;
        row.point = if session.missing_disks.is_empty() { PointFate::Exists } else { PointFate::Partial };
        row.finished_ms = finished.at_ms;
        details.push(row);
        containers.extend(container_records(session, &state));
    }
    // (L3) A restore point that a policy locks is locked from the beginning.
    // (P9) The run's job may have got another name since the session began.
    let job = core.catalog.run(session.run)?.map_or_else(|| session.job.clone(), |run| run.job);
    details.iter_mut().for_each(|row| row.job.clone_from(&job));
    let until_ms = core.catalog.policy_lock(session.namespace.id, &session.vm, &job)?;
    let point = PointRecord {
        number: core.next_commit(),
        namespace: session.namespace.clone(),
        attempt: Attempt { job, ..attempt(core, session, &session.starter.name) },
        backup: session.backup,
        parent: session.disks.iter().find_map(|disk| disk.parent.as_ref()).map(ParentDisk::backup),
        disks,
        missing_disks: session.missing_disks.clone(),
        details,
        next_container: core.catalog.commits()?.next_container,
        revision: 1,
        lock: RetentionLock { until_ms, hold: None },
        lock_time_ms: core.catalog.lock_time()?,
    };
    let revision = 1;
    let name = PointName { backup: point.backup, revision }.blob(&point);
    let bytes = points::encode(core.repository, revision, &point)?;
    let PointRecord { number, attempt, backup, disks, missing_disks, details, lock, .. } = point;
    let commit = BackupCommit { attempt, number, backup, disks, missing_disks, details, containers, lock };
    Ok(Prepared { commit, name, bytes, sealed: false })
}

fn not_finished(slot: &DiskSlot, state: &DiskState) -> EngineError {
    let (disk, accepted) = (&slot.name, state.recipe.accepted());
    let why = state.failure().map_or_else(
        || format!("{accepted} of its extents have arrived and its stream was not finished"),
        |failure| format!("its stream failed: {failure}"),
    );
    EngineError::Invalid(format!("the backup cannot be committed: disk {disk:?} is incomplete, {why}"))
}

/// (W7) Response of an earlier commit of that session, if there was one.
pub(super) fn committed(core: &Core, session: SessionId) -> Result<Option<Committed>, EngineError> {
    let Some(backup) = core.catalog.backup_by_session(session)? else { return Ok(None) };
    let details = core.catalog.session_details(session)?;
    Ok(Some(Committed { backup_id: backup.id.to_string(), details }))
}

/// Longest reason kept for a disk or session that ended without a restore point, in bytes.
const KEPT_REASON_MAX_BYTES: usize = 500;

/// The same for further disks of a session, in bytes.
const REPEATED_REASON_MAX_BYTES: usize = 100;

/// Records the cost of a session that ended without a backup, and makes its containers known: their chunks serve later
/// backups. `who` ended it, for the audit log. To begin and give up costs an agent nearly nothing, so a session that
/// brought nothing gets one row; a session's reason is kept once.
pub(super) fn record_failure(
    core: &Core,
    session: &Session,
    status: RowStatus,
    reason: &str,
    who: &str,
) -> Result<(), EngineError> {
    let may_be_sealed = !withdraw(core, session);
    let mut details: Vec<DetailRow> = Vec::new();
    let mut containers = Vec::new();
    let mut left = Some(reason);
    for slot in &session.disks {
        let mut state = slot.state.lock();
        state.abandon();
        let mut row = details_row(core, session, slot, &state);
        row.status = status;
        // Disks that brought data get the beginning of the session's reason.
        let (why, max_bytes) = match state.failure().or_else(|| left.take()) {
            Some(why) => (why, KEPT_REASON_MAX_BYTES),
            None if row.bytes > 0 => (reason, REPEATED_REASON_MAX_BYTES),
            None => ("", 0),
        };
        row.error = plain_text(why, max_bytes);
        row.finished_ms = core.clock.now_ms();
        details.push(row);
        containers.extend(container_records(session, &state));
    }
    if details.iter().all(|row| row.bytes == 0 && row.read_bytes == 0 && row.wire_bytes == 0) {
        // The one that says why.
        let told = details.iter().position(|row| !row.error.is_empty()).unwrap_or_default();
        details = details.into_iter().skip(told).take(1).collect();
    }
    core.sealed.forget(&containers);
    let stored_bytes = containers.iter().map(|container| container.stored_bytes).sum();
    let ending = session.charge.ending();
    let leftovers: Vec<Leftover> = containers.iter().map(leftover).collect();
    core.catalog.record_failed_run(&FailedRun {
        attempt: attempt(core, session, who),
        details,
        containers,
    })?;
    ending.recorded(stored_bytes, false);
    // (D1) Never what a restore point needs, even if a commit that seemed to fail did not.
    if !may_be_sealed && core.catalog.backup_by_session(session.id)?.is_none() {
        for slot in &session.disks {
            slot.state.lock().release();
        }
        core.store.leftovers.leave(leftovers);
    }
    Ok(())
}

const fn leftover(record: &ContainerRecord) -> Leftover {
    Leftover { id: record.id, class: record.class, stored_bytes: record.stored_bytes }
}

fn attempt(core: &Core, session: &Session, who: &str) -> Attempt {
    Attempt {
        session: session.id,
        run: session.run,
        namespace: session.namespace.id,
        vm: session.vm.clone(),
        job: session.job.clone(),
        client_host: session.host.clone(),
        owner: session.starter.owner.clone(),
        vm_owner: session.vm_owner.clone(),
        who: who.to_owned(),
        started_ms: session.started_ms,
        finished_ms: core.clock.now_ms(),
        accepted_change: session.lost.is_some(),
    }
}

fn details_row(core: &Core, session: &Session, slot: &DiskSlot, state: &DiskState) -> DetailRow {
    let counters = state.counters;
    let stored = |sealed: &[SealedSummary]| sealed.iter().map(|one| one.stored_bytes).sum();
    let started_ms =
        if counters.first_message_ms == 0 { session.started_ms } else { counters.first_message_ms };
    DetailRow {
        namespace: session.namespace.name.clone(),
        job: session.job.clone(),
        run: session.run.to_string(),
        vm: session.vm.clone(),
        disk: slot.name.clone(),
        started_ms,
        finished_ms: core.clock.now_ms(),
        virtual_bytes: slot.size_bytes,
        // (A8) The sum of the three below.
        bytes: counters.data_bytes(),
        read_bytes: counters.read_bytes,
        unchanged_bytes: counters.unchanged_bytes,
        dup_bytes: counters.dup_bytes,
        new_bytes: counters.new_bytes,
        post_lc: stored(state.sealed_data()),
        meta_bytes: stored(state.recipe.sealed()),
        wire_bytes: counters.wire_bytes,
        chunks: counters.chunks,
        new_chunks: counters.new_chunks,
        first_full: slot.parent.is_none(),
        level: session.level,
        host: session.host.clone(),
        agent: session.agent.clone(),
        reading_ms: counters.reading_ms,
        compressing_ms: counters.compressing_ms,
        waiting_ms: counters.waiting_ms,
        ..DetailRow::default()
    }
}

fn container_records(session: &Session, state: &DiskState) -> Vec<ContainerRecord> {
    let record = |sealed: &SealedSummary| ContainerRecord {
        id: sealed.id,
        class: sealed.class,
        namespace: session.namespace.id,
        stored_bytes: sealed.stored_bytes,
        plain_bytes: sealed.plain_bytes,
        chunk_count: sealed.chunk_count,
        created_ms: sealed.created_ms,
        run: Some(session.run),
        state: ContainerState::Live,
    };
    state.sealed_data().iter().chain(state.recipe.sealed()).map(record).collect()
}
