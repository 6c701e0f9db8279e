//! Deleting restore points, what keeps them, and the names of VMs and jobs (L1 to L5); rounds of reclaim and what deleting
//! would free; the scrub, naming damage, and making damaged containers again.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_catalog::{DamagedDisk, LegalHold, LockChange, RetentionLock};
use holdfast_types::ids::{BackupId, NamespaceId};

use super::Engine;
use crate::damage_report::{DamageJob, DamageReportJob};
use crate::error::EngineError;
use crate::jobs::{Budget, Job, Progress};
use crate::needs::LockedNeeds;
use crate::parity_job::{ParityJob, ParityScheme};
use crate::reclaim::{self, Attribution, Control as ReclaimControl, Freed, ReclaimOptions, ReclaimReport};
use crate::retention::{self, RetentionJob};
use crate::scrub::{Load, ScrubFindings, ScrubJob, ScrubStatus, ScrubWatch};
use crate::{catalog_check, points};

impl Engine {
    /// Deletes restore points, all of them or none. When this returns they are gone for good: no crash and no recovery
    /// brings them back. Their space is freed by reclaim. `who` and `reason` for the audit log. Says which were deleted:
    /// those that an earlier call had begun to delete are not among them.
    ///
    /// # Errors
    /// [`EngineError::Locked`]: one of them is locked or held. [`EngineError::UnreadPoint`]: that is not known. There is no such restore point; more than
    /// [`RETENTION_IDS_MAX`](holdfast_catalog::RETENTION_IDS_MAX). The catalog's. The volume's: then they are deleted
    /// all the same, and what is left of them is removed by the background work, or the next start.
    pub fn delete_backups(
        &self,
        ids: &[BackupId],
        who: &str,
        reason: &str,
    ) -> Result<Vec<BackupId>, EngineError> {
        retention::delete(&self.core, ids, who, reason)
    }

    /// Gives up what damaged points said that a start could not read, by the names of their blobs: a restore point is what
    /// the catalog says, if it knows it, and lost if not. `who` for the audit log.
    ///
    /// # Errors
    /// [`EngineError::Invalid`]: there is nothing to give up. What cannot be read now, and so is not proved to be damaged.
    pub fn give_up_points(&self, names: &[String], who: &str) -> Result<(), EngineError> {
        self.core.check_unlocked()?;
        points::give_up(&self.core, names, who)
    }

    /// Restore points of which a point on the volume could not be read or entered: they are neither changed nor deleted.
    pub fn unread_points(&self) -> BTreeSet<BackupId> {
        self.core.unrecorded.unread().points.clone()
    }

    /// (L6) The time by which rules decide what is deleted: the time of day, but no jump forward that happened since this
    /// process began.
    pub fn deciding_time_ms(&self) -> i64 {
        self.core.deciding_time_ms()
    }

    /// Time by which the lock clock is behind the time of day, because the clock jumped; 0 as a rule.
    pub fn clock_jumped_ms(&self) -> i64 {
        self.core.clock_jumped_ms()
    }

    /// Locks restore points until `until_ms`, unless they are locked for longer. When this returns the volume knows it,
    /// so that losing the catalog loses no lock. Returns those that changed.
    ///
    /// # Errors
    /// As [`Retention::change_locks`](holdfast_catalog::Catalog::change_locks); the volume's. None of them is locked then,
    /// unless an I/O error leaves it open what the disk holds.
    pub fn lock_backups(
        &self,
        ids: &[BackupId],
        until_ms: i64,
        who: &str,
    ) -> Result<Vec<BackupId>, EngineError> {
        self.core.check_writable()?;
        retention::advance_if_due(&self.core)?;
        retention::change_locks(&self.core, ids, &LockChange::Lock { until_ms }, who)
    }

    /// Up to `limit` restore points after `after`, by id, that are locked or held now.
    ///
    /// # Errors
    /// The catalog's.
    pub fn locked_backups(
        &self,
        after: Option<BackupId>,
        limit: u32,
    ) -> Result<Vec<(BackupId, RetentionLock)>, EngineError> {
        Ok(self.core.catalog.locked_backups(after, limit)?)
    }

    /// Blobs that locked restore points need, for one pass over them.
    ///
    /// # Errors
    /// The repository is locked: without its keys nothing can be read.
    pub fn locked_needs(&self) -> Result<LockedNeeds, EngineError> {
        self.core.check_unlocked()?;
        Ok(LockedNeeds::new(&self.core))
    }

    /// Holds restore points without an end, as [`Engine::lock_backups`].
    ///
    /// # Errors
    /// As [`Engine::lock_backups`]; no reason.
    pub fn hold_backups(
        &self,
        ids: &[BackupId],
        reason: &str,
        who: &str,
    ) -> Result<Vec<BackupId>, EngineError> {
        self.core.check_writable()?;
        let (reason, since_ms) = (reason.to_owned(), self.core.clock.now_ms());
        let hold = LegalHold { reason, who: who.to_owned(), since_ms };
        retention::change_locks(&self.core, ids, &LockChange::Hold(hold), who)
    }

    /// Releases holds; locks stay.
    ///
    /// # Errors
    /// As [`Engine::hold_backups`].
    pub fn release_holds(
        &self,
        ids: &[BackupId],
        reason: &str,
        who: &str,
    ) -> Result<Vec<BackupId>, EngineError> {
        self.core.check_writable()?;
        retention::change_locks(&self.core, ids, &LockChange::Release { reason: reason.to_owned() }, who)
    }

    /// Gives a VM another name; its restore points, history and policies follow.
    ///
    /// # Errors
    /// A backup of either name is in progress; as [`Retention::rename_vm`](holdfast_catalog::Catalog::rename_vm); the
    /// volume's: it is renamed all the same, and the points follow. They also follow where there is no room for them now,
    /// which is no error.
    pub fn rename_vm(
        &self,
        namespace: NamespaceId,
        vm: &str,
        name: &str,
        who: &str,
    ) -> Result<(), EngineError> {
        self.core.check_writable()?;
        self.sessions.check_free(namespace, vm)?;
        self.sessions.check_free(namespace, name)?;
        let found = retention::find_vm(&self.core, namespace, vm)?;
        self.core.catalog.rename_vm(found.id, name, who)?;
        retention::reseal_renamed(&self.core)
    }

    /// Gives a job another name, as [`Engine::rename_vm`].
    ///
    /// # Errors
    /// As [`Retention::rename_job`](holdfast_catalog::Catalog::rename_job); the volume's, as [`Engine::rename_vm`].
    pub fn rename_job(
        &self,
        namespace: NamespaceId,
        job: &str,
        name: &str,
        who: &str,
    ) -> Result<(), EngineError> {
        self.core.check_writable()?;
        self.core.catalog.rename_job(namespace, job, name, who)?;
        retention::reseal_renamed(&self.core)
    }

    /// Removes a VM, which then is in no list, no overview and never stale; its history stays. With
    /// `delete_restore_points` these are deleted first, all or none. Says which were.
    ///
    /// # Errors
    /// A backup of it is in progress; it has restore points that are not to be deleted; as [`Engine::delete_backups`].
    pub fn remove_vm(
        &self,
        namespace: NamespaceId,
        vm: &str,
        delete_restore_points: bool,
        who: &str,
    ) -> Result<Vec<BackupId>, EngineError> {
        self.core.check_unlocked()?;
        self.sessions.check_free(namespace, vm)?;
        retention::remove_vm(&self.core, namespace, vm, delete_restore_points, who)
    }

    /// Deletes all restore points of a namespace, all or none, and removes its VMs; their history stays. Says how many of
    /// each.
    ///
    /// # Errors
    /// [`EngineError::Locked`]: one of them is locked or held, and nothing was changed; as [`Engine::delete_backups`].
    pub fn empty_namespace(
        &self,
        namespace: NamespaceId,
        who: &str,
        reason: &str,
    ) -> Result<(u64, u64), EngineError> {
        self.core.check_unlocked()?;
        retention::empty_namespace(&self.core, namespace, who, reason)
    }

    /// Background work that never ends: advances the lock clock; removes the points of restore points that another
    /// process deleted; seals the points of those that changed.
    pub fn retention_job(&self) -> Arc<dyn Job> {
        Arc::new(RetentionJob { core: Arc::clone(&self.core) })
    }

    /// Bytes that deleting these restore points together would free. Walks the recipes of all restore points of their
    /// namespaces, so it takes as long as a mark does; nothing is changed.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; [`EngineError::Stopped`]; what cannot be read now.
    pub fn freed_by_deleting(
        &self,
        backups: &[BackupId],
        control: &ReclaimControl,
    ) -> Result<Freed, EngineError> {
        self.core.check_unlocked()?;
        reclaim::freed_by_deleting(&self.core, backups, control)
    }

    /// Attributes the live bytes of data containers to restore points. Walks all recipes, and keeps the result in the
    /// catalog.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; errors of recipes that cannot be read now.
    pub fn attribute(&self, control: &ReclaimControl) -> Result<Attribution, EngineError> {
        self.core.check_unlocked()?;
        reclaim::attribution::attribute(&self.core, control)
    }

    /// Determines where the data of each restore point is: local, bucket or archive. Walks all recipes, and keeps the
    /// answer in the catalog.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; errors of recipes that cannot be read now.
    pub fn note_places(&self, control: &ReclaimControl) -> Result<(), EngineError> {
        self.core.check_unlocked()?;
        reclaim::places::note(&self.core, control)
    }

    /// Forgets the places of data: all of it is local.
    ///
    /// # Errors
    /// The catalog's.
    pub fn forget_places(&self) -> Result<(), EngineError> {
        Ok(self.core.catalog.record_places(&[])?)
    }

    /// Runs a round of reclaim to its end: frees what no restore point needs, beside everything else. With
    /// [`dry_run`](ReclaimOptions::dry_run) it only says what it would free. `control` watches, slows down and stops it;
    /// what was done until then stays done, and the next round goes on with what is left.
    ///
    /// # Errors
    /// [`EngineError::RoundInProgress`], [`EngineError::NotReclaimable`], [`EngineError::Stopped`]; what cannot be read
    /// or written.
    pub fn reclaim(
        &self,
        options: &ReclaimOptions,
        control: &Arc<ReclaimControl>,
    ) -> Result<ReclaimReport, EngineError> {
        self.core.check_unlocked()?;
        let _turn = self.rounds.begin(control)?;
        // (S9) Once in a process, and whenever something was found to be lost.
        if self.core.catalog_trusted_for().is_none() {
            let steering = Arc::clone(control);
            let go_on = Box::new(move || !steering.is_stopped());
            if !catalog_check::run(&self.core, &self.sessions, go_on)? {
                return Err(EngineError::Stopped);
            }
        }
        reclaim::run(&self.core, &self.sessions, options, control)
    }

    /// Background work that never ends: looks at damage again, and closes what is healed.
    pub fn damage_job(&self) -> Arc<dyn Job> {
        Arc::new(DamageJob::new(Arc::clone(&self.core)))
    }

    /// Background work that never ends: keeps in the catalog what of which restore point cannot be restored.
    pub fn damage_report_job(&self) -> Arc<dyn Job> {
        Arc::new(DamageReportJob::new(Arc::clone(&self.core)))
    }

    /// Names the losses by known damage: which bytes of which disks of which restore points. Keeps them in the catalog
    /// and returns the first `limit` of these disks.
    ///
    /// # Errors
    /// When recipes cannot be read at the moment, or the catalog cannot be written.
    pub fn name_damage(&self, limit: u32) -> Result<Vec<DamagedDisk>, EngineError> {
        self.core.check_unlocked()?;
        DamageReportJob::new(Arc::clone(&self.core)).run()?;
        Ok(self.core.catalog.damaged_disks(None, None, limit)?)
    }

    /// Background work that never ends: reads everything again within `days` (0: never), while `load` allows.
    pub fn scrub_job(&self, days: u32, load: Arc<dyn Load>) -> Arc<dyn Job> {
        Arc::new(ScrubJob { core: Arc::clone(&self.core), scrub: Arc::clone(&self.scrub), days, load })
    }

    /// Background work that never ends: repairs damaged containers with parity, and writes parity as `scheme` says
    /// (`None`: no more of it), while `load` allows.
    pub fn parity_job(&self, scheme: Option<ParityScheme>, load: Arc<dyn Load>) -> Arc<dyn Job> {
        Arc::new(ParityJob::new(Arc::clone(&self.core), scheme, load))
    }

    /// Continues the pass of the scrub in progress, or begins one, at full speed, until it has ended or the budget is
    /// spent. Returns the findings.
    ///
    /// # Errors
    /// When something cannot be read at the moment, or the catalog cannot be written; the next call goes on there.
    pub fn scrub(&self, budget: &Budget, progress: &dyn Progress) -> Result<ScrubFindings, EngineError> {
        self.core.check_unlocked()?;
        self.scrub.run(&self.core, budget, progress)
    }

    /// A pass of the scrub that someone asked for: over everything there is, in place of the one under way, or the pass
    /// `pass` from where it is. At the speed of `watch`; the background job leaves the pass alone meanwhile. Returns
    /// whether it has ended; `false`: `watch` said to stop, and the pass is where it is.
    ///
    /// # Errors
    /// As [`Engine::scrub`].
    pub fn scrub_pass(&self, pass: Option<u64>, watch: &mut dyn ScrubWatch) -> Result<bool, EngineError> {
        self.core.check_unlocked()?;
        self.scrub.pass(&self.core, pass, watch)
    }

    /// Progress of the scrub.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn scrub_status(&self) -> Result<ScrubStatus, EngineError> {
        self.scrub.status(&self.core)
    }
}
