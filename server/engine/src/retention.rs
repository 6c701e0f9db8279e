//! Deleting restore points, what keeps them from being deleted, and the clock that decides when a lock has ended.
//!
//! The catalog decides, in the transaction that changes it ([`holdfast_catalog::Catalog::change_locks`]); what follows from
//! that for points is in [`crate::points`]. A crash between the two leaves deletions that are not finished and stale points:
//! the start finishes both, and so does the job below, which also does it for changes that another process made.

use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::{
    AuditEntry, CatalogError, LockChange, NamedVm, PageRequest, RETENTION_IDS_MAX, VmRecord,
};
use holdfast_proto::ErrorCode;
use holdfast_types::ids::{BackupId, NamespaceId};

use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};
use crate::points;

/// The lock clock is written when it lags so far behind the time of day, and something is locked: so much longer than
/// its time may a lock last, besides what the clock has to catch up.
const LAG_MS: i64 = 60_000;

/// As [`LAG_MS`], while nothing is locked: seldom, for every change of the catalog leads to a snapshot of it. A lock that
/// is placed then lasts up to so much longer.
const IDLE_LAG_MS: i64 = 6 * 3_600_000;

/// Interval between two looks for changes made by other processes.
const LOOK: Duration = Duration::from_secs(20);

/// (L1) Catalog first, then points, then the record of the deletion; then it is acknowledged.
pub(crate) fn delete(
    core: &Core,
    ids: &[BackupId],
    who: &str,
    reason: &str,
) -> Result<Vec<BackupId>, EngineError> {
    core.check_writable()?;
    // (P7)
    core.unrecorded.check_known(ids)?;
    advance_if_due(core)?;
    let begun = core.catalog.begin_deletion(ids, who, reason);
    if let Err(error @ holdfast_catalog::CatalogError::Locked { .. }) = &begun {
        tell_of_refusal(core, who, &error.to_string());
    }
    let begun: Vec<BackupId> = begun?.into_iter().map(|one| one.backup).collect();
    // Deletions that an earlier call left unfinished are included.
    finish_deletions(core)?;
    Ok(begun)
}

/// Records an attempt that was refused in the audit log; a failure to do so is only logged.
fn tell_of_refusal(core: &Core, who: &str, why: &str) {
    let entry = AuditEntry {
        who: who.to_owned(),
        action: "backup.delete-refused".to_owned(),
        object: "restore points".to_owned(),
        detail: why.to_owned(),
    };
    if let Err(error) = core.catalog.audit(&entry) {
        tracing::warn!(%error, who, why, "cannot note in the audit log that a deletion was refused");
    }
}

fn finish_deletions(core: &Core) -> Result<(), EngineError> {
    let _changing = core.changing_points.lock();
    points::finish_deletions(&*core.volume, &core.catalog).map_err(|error| core.write_failure(error))?;
    Ok(())
}

/// Maximum number of existing revisions that a change of a lock skips.
const TRIES: u32 = 8;

/// (L8) Points first, then rows: what is refused, for want of room most of all, is not in force. Of what a crash leaves
/// between the two the stricter counts (L5).
pub(crate) fn change_locks(
    core: &Core,
    ids: &[BackupId],
    change: &LockChange,
    who: &str,
) -> Result<Vec<BackupId>, EngineError> {
    // (P7)
    core.unrecorded.check_known(ids)?;
    let _changing = core.changing_points.lock();
    let (volume, catalog) = (&*core.volume, &*core.catalog);
    let mut ahead = Vec::new();
    for id in ids {
        match seal_changed(core, *id, change) {
            Ok(sealed) => ahead.extend(sealed),
            Err(error) => {
                points::unseal(volume, catalog, &ahead);
                return Err(core.write_failure(error));
            }
        }
    }
    let changed = match catalog.change_locks(ids, change, who) {
        Ok(changed) => changed,
        Err(error) => {
            // If it is unknown what the catalog holds, the next start takes the stricter of both.
            if !error.stops_writes() {
                points::unseal(volume, catalog, &ahead);
            }
            return Err(error.into());
        }
    };
    // (L8) It is in force: what is older goes when the points, which are stale until then, are sealed anew.
    if let Err(error) = points::settle(volume, catalog, &ahead) {
        let error = core.write_failure(error);
        tracing::warn!(%error, "changed the locks; older points are removed later");
    }
    Ok(changed)
}

/// Seals a restore point's point as it is once its lock is changed; `None`: it changes nothing.
fn seal_changed(
    core: &Core,
    id: BackupId,
    change: &LockChange,
) -> Result<Option<points::Ahead>, EngineError> {
    let (volume, catalog) = (&*core.volume, &*core.catalog);
    for _ in 0..TRIES {
        let Some(point) = catalog.rehearse_lock(id, change)? else { return Ok(None) };
        if let Some(ahead) = points::seal_ahead(volume, catalog, core.repository, &point)? {
            return Ok(Some(ahead));
        }
    }
    Err(EngineError::Internal(format!(
        "the point of restore point {id} cannot be sealed: its revisions are taken"
    )))
}

/// (L5) Seals the points of restore points that changed; then the change is acknowledged.
pub(crate) fn reseal(core: &Core, ids: &[BackupId]) -> Result<(), EngineError> {
    // (P7)
    core.unrecorded.check_known(ids)?;
    for id in ids {
        let _changing = core.changing_points.lock();
        points::reseal(&*core.volume, &core.catalog, core.repository, *id)
            .map_err(|error| core.write_failure(error))?;
    }
    Ok(())
}

/// (L8) As [`reseal_all`], after a rename. That is done, and snapshots of the catalog tell of it: where there is no room for
/// points they follow later, so that nothing is refused that is in force.
pub(crate) fn reseal_renamed(core: &Core) -> Result<(), EngineError> {
    match reseal_all(core, &Budget::unlimited()) {
        Err(error) if error.code() == ErrorCode::Full => {
            tracing::warn!(%error, "renamed; points follow once there is room");
            Ok(())
        }
        done => done.map(drop),
    }
}

/// Seals all changes, as [`reseal`], until the budget is spent. Returns true if that was all.
pub(crate) fn reseal_all(core: &Core, budget: &Budget) -> Result<bool, EngineError> {
    let mut after = None;
    loop {
        let batch = core.catalog.stale_points(after, STEP_POINTS)?;
        let Some(last) = batch.last() else { return Ok(true) };
        after = Some(*last);
        // (P7) Restore points that were not read wait, and hold up no others.
        let unread = core.unrecorded.unread();
        for id in batch.into_iter().filter(|id| !unread.points.contains(id)) {
            reseal(core, &[id])?;
            budget.charge(1, 0);
            if budget.is_spent() {
                return Ok(false);
            }
        }
    }
}

pub(crate) fn find_vm(core: &Core, namespace: NamespaceId, vm: &str) -> Result<NamedVm, EngineError> {
    let found = core.catalog.named_vm(namespace, vm)?;
    found.ok_or_else(|| EngineError::NotFound { what: "VM", name: vm.to_owned() })
}

pub(crate) fn remove_vm(
    core: &Core,
    namespace: NamespaceId,
    vm: &str,
    delete_restore_points: bool,
    who: &str,
) -> Result<Vec<BackupId>, EngineError> {
    core.check_writable()?;
    let found = find_vm(core, namespace, vm)?;
    let mut deleted = Vec::new();
    if delete_restore_points {
        let most = u32::try_from(holdfast_catalog::RETENTION_IDS_MAX).unwrap_or(u32::MAX);
        // One more than one call deletes: then it says so.
        let ids = core.catalog.backups_of_vm(found.id, None, most.saturating_add(1))?;
        if !ids.is_empty() {
            deleted = delete(core, &ids, who, &format!("VM {vm:?} is removed"))?;
        }
    }
    core.catalog.remove_vm(found.id, who)?;
    Ok(deleted)
}

/// Deletes all restore points and VMs of a namespace; locked ones are looked for before anything is deleted.
pub(crate) fn empty_namespace(
    core: &Core,
    namespace: NamespaceId,
    who: &str,
    reason: &str,
) -> Result<(u64, u64), EngineError> {
    core.check_writable()?;
    // (P6) Unread restore points may belong to this namespace, and be locked.
    core.unrecorded.check_all_known()?;
    advance_if_due(core)?;
    let mut vms: Vec<VmRecord> = Vec::new();
    let mut token = String::new();
    loop {
        let page = core.catalog.list_vms(Some(&[namespace]), PageRequest { size: 0, token: &token })?;
        vms.extend(page.items);
        let Some(next) = page.next else { break };
        token = next;
    }
    let most = u32::try_from(RETENTION_IDS_MAX).unwrap_or(u32::MAX);
    let lock_time_ms = core.catalog.lock_time()?;
    for vm in &vms {
        let mut after = None;
        loop {
            let ids = core.catalog.backups_of_vm(vm.id, after, most)?;
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            for id in ids {
                let lock = core.catalog.point(id)?.map(|point| point.lock).unwrap_or_default();
                if lock.is_in_force(lock_time_ms) {
                    let (until_ms, hold) = (lock.until_ms, lock.hold.map(|hold| hold.reason.into()));
                    let locked = CatalogError::Locked {
                        backup: Box::new(id),
                        vm: vm.name.as_str().into(),
                        until_ms,
                        hold,
                    };
                    tell_of_refusal(core, who, &locked.to_string());
                    return Err(locked.into());
                }
            }
        }
    }
    let mut deleted = 0;
    for vm in &vms {
        loop {
            let ids = core.catalog.backups_of_vm(vm.id, None, most)?;
            if ids.is_empty() {
                break;
            }
            deleted += delete(core, &ids, who, reason)?.len() as u64;
        }
        core.catalog.remove_vm(vm.id, who)?;
    }
    Ok((vms.len() as u64, deleted))
}

/// (L4) Advances the lock clock when it lags. Where the time of day is behind it that writes nothing.
pub(crate) fn advance_if_due(core: &Core) -> Result<(), EngineError> {
    let is_due = match core.catalog.lock_time()? {
        None => true,
        Some(shown_ms) => {
            let lag_ms = core.clock.now_ms().saturating_sub(shown_ms);
            lag_ms <= 0 || lag_ms >= IDLE_LAG_MS || (lag_ms >= LAG_MS && core.catalog.has_locks()?)
        }
    };
    if is_due {
        core.catalog.advance_lock_clock()?;
    }
    Ok(())
}

/// Advances the lock clock, so that locks can be compared with it; a catalog that takes no changes ends no start.
pub(crate) fn advance_at_start(core: &Core) {
    if let Err(error) = advance_if_due(core) {
        tracing::warn!(%error, "cannot advance the lock clock; it is tried again in the background");
    }
}

/// Advances the lock clock, so that the time this process ran is not lost to it.
pub(crate) fn advance_at_stop(core: &Core) {
    if core.health.stopped().is_empty()
        && let Err(error) = advance_if_due(core)
    {
        tracing::warn!(%error, "cannot advance the lock clock; locks last longer by what it lags");
    }
}

/// Background job that finishes deletions, writes stale points and advances the lock clock.
#[derive(Debug)]
pub(crate) struct RetentionJob {
    pub(crate) core: Arc<Core>,
}

impl Job for RetentionJob {
    fn name(&self) -> &'static str {
        "retention"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let core = &self.core;
        if core.health.read_only_reason().is_some() {
            return Ok(Step::Idle(Duration::from_secs(60)));
        }
        advance_if_due(core)?;
        finish_deletions(core)?;
        Ok(if reseal_all(core, budget)? { Step::Idle(LOOK) } else { Step::More })
    }
}

/// Stale points read at a time.
const STEP_POINTS: u32 = 256;
