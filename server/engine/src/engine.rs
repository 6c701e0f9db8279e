//! The engine's façade: everything a server does with a repository.

use std::fmt::Debug;
use std::sync::Arc;

use holdfast_catalog::{Catalog, DamagedDisk, RowStatus};
use holdfast_proto::reread::REREAD_DAYS;
use holdfast_proto::v1;
use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, NamespaceId, RepositoryId, SessionId, TokenId};
use holdfast_volume::{Space, Volume};

use crate::audit::{Audit, AuditJob};
use crate::check::{CheckOptions, CheckReport};
use crate::container::{CacheLimits, SharedStats, list_containers};
use crate::container_repair::{self, Repaired};
use crate::core::Core;
use crate::damage_job::DamageJob;
use crate::damage_report::DamageReportJob;
use crate::digest_stats::DigestStats;
use crate::digests;
use crate::error::EngineError;
use crate::extent_history::{self, ExtentHistory};
use crate::health::{Health, Stopped};
use crate::index::{IndexOptions, IndexStats};
use crate::index_job::IndexRepairJob;
use crate::ingest::{DiskStream, LiveSession, Sessions, StartBackup};
use crate::jobs::{Budget, Job};
use crate::lost_rows::{self, DroppedRows};
use crate::memory::MemoryBounds;
use crate::parity_job::{ParityJob, ParityScheme};
use crate::points::{MissingPoints, PointsJob, record_rest};
use crate::progress::{NoProgress, Progress};
use crate::readiness::{self, NotReady};
use crate::reclaim::{
    self, Attribution, Control as ReclaimControl, Freed, ReclaimOptions, ReclaimReport, Rounds,
};
use crate::recovery::OpenSummary;
use crate::restore::{DiskReader, OnDamage, RangeReader};
use crate::retention::{self, RetentionJob};
use crate::scrub::{Load, Scrub, ScrubFindings, ScrubJob, ScrubStatus};
use crate::snapshot::{SnapshotJob, Snapshots};
use crate::start::{self, Start, Started};
use crate::statistics::{self, StorageStatistics};
use crate::stop;
use crate::store::OnLoss;
use crate::verify::{self, VerifyReport};

/// Seconds a session lives without a heartbeat from its agent.
pub const LEASE_SECS: u32 = 120;

/// Bytes kept free: enough for the catalog, the index and a round of reclaim.
pub const RESERVE_BYTES: u64 = 1 << 30;

/// Unless told otherwise the reserve is never more than this share of the volume, so that small volumes are
/// usable at all.
const RESERVE_SHARE_MAX: u64 = 50;

/// How an engine behaves.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Seconds a session lives without a heartbeat.
    pub lease_secs: u32,
    /// Days in which every extent is read again, whatever its parent's digest; 0: never.
    pub reread_days: u32,
    /// Bytes kept free; `None`: 1 GiB, but at most 2 % of the volume.
    pub reserve_bytes: Option<u64>,
    /// What may be kept of containers' directories.
    pub directories: CacheLimits,
    /// How the index behaves.
    pub index: IndexOptions,
    /// What else may be kept in memory.
    pub memory: MemoryBounds,
    /// Where the containers lie, for messages.
    pub location: String,
    /// What follows from containers that are missing.
    pub on_loss: OnLoss,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            lease_secs: LEASE_SECS,
            reread_days: REREAD_DAYS,
            reserve_bytes: None,
            directories: CacheLimits::default(),
            index: IndexOptions::default(),
            memory: MemoryBounds::default(),
            location: "the volume".to_owned(),
            on_loss: OnLoss::Stop,
        }
    }
}

/// What an engine is assembled from. The caller decides where things lie, and opens them.
#[derive(Debug)]
pub struct EngineParts {
    /// Holds the containers.
    pub data: Arc<dyn Volume>,
    /// Holds the index; may be the same volume.
    pub index: Arc<dyn Volume>,
    pub catalog: Arc<dyn Catalog>,
    pub clock: Arc<dyn Clock>,
    /// The one latch of the repository; the catalog must have been opened with the same.
    pub health: Arc<Health>,
    pub options: EngineOptions,
    /// Kept until the engine is dropped: what keeps other processes away from the parts above.
    pub lock: Option<Box<dyn Debug + Send + Sync>>,
}

/// Figures about a repository, for people and monitoring.
#[derive(Debug, Clone, Copy)]
pub struct EngineStats {
    pub index: IndexStats,
    pub catalog_bytes: u64,
    pub space: Option<Space>,
    /// Bytes of it kept free for housekeeping.
    pub reserve_bytes: u64,
    pub digests: DigestStats,
    /// Regions read for restores.
    pub shared: SharedStats,
}

/// The bytes to keep free on a volume.
fn reserve_bytes(wanted: Option<u64>, volume: &dyn Volume) -> Result<u64, EngineError> {
    Ok(match (wanted, volume.space()?) {
        (Some(bytes), _) => bytes,
        (None, Some(space)) => RESERVE_BYTES.min(space.total_bytes / RESERVE_SHARE_MAX),
        (None, None) => RESERVE_BYTES,
    })
}

/// Container files on a volume. For the caller of [`Engine::assemble`]: where there are containers but no
/// catalog, a new catalog would make a new repository, to which none of them belong.
///
/// # Errors
/// When the volume cannot be listed.
pub fn count_containers(volume: &dyn Volume) -> Result<usize, EngineError> {
    Ok(list_containers(volume)?.containers.len())
}

/// An open repository.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    audit: Arc<Audit>,
    points: Arc<MissingPoints>,
    snapshots: Arc<Snapshots>,
    scrub: Arc<Scrub>,
    index_volume: Arc<dyn Volume>,
    sessions: Sessions,
    rounds: Rounds,
    opened: OpenSummary,
    _lock: Option<Box<dyn Debug + Send + Sync>>,
}

impl Engine {
    /// Puts an engine together and recovers from whatever ended the last process.
    ///
    /// # Errors
    /// What is wrong with the repository.
    pub fn assemble(parts: EngineParts) -> Result<Self, EngineError> {
        Self::assemble_with(parts, false, &NoProgress)
    }

    /// As [`Engine::assemble`], but first discards the index, so that it is rebuilt from the containers.
    ///
    /// # Errors
    /// As [`Engine::assemble`].
    pub fn assemble_rebuilding_index(
        parts: EngineParts,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        Self::assemble_with(parts, true, progress)
    }

    fn assemble_with(
        parts: EngineParts,
        rebuild: bool,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        let EngineParts { data, index, catalog, clock, health, options, lock } = parts;
        let start = Start {
            reserve_bytes: reserve_bytes(options.reserve_bytes, &*data)?,
            data,
            index: &index,
            catalog,
            clock,
            health,
            lease_secs: options.lease_secs,
            reread_days: options.reread_days,
            directories: options.directories,
            index_options: options.index,
            memory: options.memory,
            on_loss: options.on_loss,
            location: &options.location,
            rebuild,
        };
        let Started { core, audit, points, summary } = start::start(start, progress)?;
        retention::advance_at_start(&core);
        let snapshots = Snapshots::new(&core, summary.clean)?;
        Ok(Self {
            core: Arc::new(core),
            audit: Arc::new(audit),
            points: Arc::new(points),
            snapshots: Arc::new(snapshots),
            scrub: Arc::default(),
            index_volume: index,
            sessions: Sessions::default(),
            rounds: Rounds::default(),
            opened: summary,
            _lock: lock,
        })
    }

    /// What opening found.
    pub const fn opened(&self) -> &OpenSummary {
        &self.opened
    }

    /// The catalog, for everything that is not chunk data.
    pub fn catalog(&self) -> &Arc<dyn Catalog> {
        &self.core.catalog
    }

    /// The repository's id.
    pub fn repository_id(&self) -> RepositoryId {
        self.core.repository
    }

    /// Why writing is refused, if it is.
    pub fn read_only_reason(&self) -> Option<&str> {
        self.core.health.read_only_reason()
    }

    /// Every kind of work that has stopped since an I/O error, and why. Empty: all is well.
    pub fn stopped(&self) -> Vec<Stopped> {
        self.core.health.stopped()
    }

    /// Why backups are not accepted now; empty: they are. Looks at the volume and the catalog, so ask it once in a
    /// while and not for every call.
    pub fn not_ready(&self) -> Vec<NotReady> {
        readiness::obstacles(&self.core)
    }

    /// Figures about the repository.
    ///
    /// # Errors
    /// When the catalog or the volume cannot be asked.
    pub fn stats(&self) -> Result<EngineStats, EngineError> {
        Ok(EngineStats {
            index: self.core.store.index.stats(),
            catalog_bytes: self.core.catalog.size_bytes()?,
            space: self.core.volume.space()?,
            reserve_bytes: self.core.ledger.reserve_bytes(),
            digests: self.core.digests.stats(),
            shared: self.core.store.containers.shared().stats(),
        })
    }

    /// Starts a backup of one VM.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while another backup of the VM runs; invalid requests; no room.
    pub fn start_backup(&self, start: &StartBackup) -> Result<v1::StartResponse, EngineError> {
        self.sessions.start(&self.core, start)
    }

    /// The backups in progress and how far they are, oldest first. Cheap, and waits for none of them: what
    /// it tells may be a message old.
    pub fn live_sessions(&self) -> Vec<LiveSession> {
        self.sessions.live()
    }

    /// The namespace of a live session, or of the backup it made.
    ///
    /// # Errors
    /// [`EngineError::SessionGone`].
    pub fn session_namespace(&self, session: SessionId) -> Result<NamespaceId, EngineError> {
        match self.sessions.get(session) {
            Ok(live) => Ok(live.namespace_id()),
            Err(gone) => match self.core.catalog.backup_by_session(session)? {
                Some(backup) => Ok(backup.namespace),
                None => Err(gone),
            },
        }
    }

    /// Whether `token` may go on with a session: only the one that started it. Ask before anything else is
    /// done in a token's name. A session that has ended is no one's.
    ///
    /// # Errors
    /// [`EngineError::NotYours`].
    pub fn check_starter(&self, session: SessionId, token: TokenId) -> Result<(), EngineError> {
        self.sessions.check_starter(session, token)
    }

    /// Whether a session is in progress. Looks at memory only.
    pub fn is_live(&self, session: SessionId) -> bool {
        self.sessions.get(session).is_ok()
    }

    /// The extent digests of a disk's parent from `first_extent` on; `None` past the end or without parent.
    ///
    /// # Errors
    /// [`EngineError::SessionGone`]; no such disk.
    pub fn parent_digests(
        &self,
        session: SessionId,
        disk: u32,
        first_extent: u64,
    ) -> Result<Option<v1::DigestBlock>, EngineError> {
        let session = self.sessions.get(session)?;
        session.keep_alive(&self.core);
        session.parent_digests(&self.core, disk, first_extent)
    }

    /// Opens the stream of one disk; an older stream of that disk fails from now on.
    ///
    /// # Errors
    /// [`EngineError::SessionGone`]; no such disk.
    pub fn open_stream(&self, session: SessionId, disk: u32) -> Result<DiskStream, EngineError> {
        DiskStream::open(Arc::clone(&self.core), self.sessions.get(session)?, disk)
    }

    /// Renews a session's lease; returns its length in seconds.
    ///
    /// # Errors
    /// [`EngineError::SessionGone`].
    pub fn keep_alive(&self, session: SessionId) -> Result<u32, EngineError> {
        self.sessions.keep_alive(&self.core, session)
    }

    /// The session gets no further because the server makes it wait for its turn: that is no standstill. Its lease is
    /// renewed by heartbeats as ever.
    ///
    /// # Errors
    /// `SessionGone` when it has ended.
    pub fn waits_for_turn(&self, session: SessionId) -> Result<(), EngineError> {
        self.sessions.waits_for_turn(&self.core, session)
    }

    /// Makes the backup exist. Repeating it returns the same answer.
    ///
    /// # Errors
    /// When a disk is incomplete, or the catalog cannot be written; the session then lives on.
    pub fn commit(&self, session: SessionId) -> Result<v1::CommitResponse, EngineError> {
        self.sessions.commit(&self.core, session)
    }

    /// Gives a backup up, and keeps what it cost. Repeating it is fine.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn abort(&self, session: SessionId, reason: &str) -> Result<(), EngineError> {
        self.sessions.end(&self.core, session, RowStatus::Aborted, reason)
    }

    /// Ends a session of which a stream failed: nothing can come of it, and until it has ended it is in the way of the
    /// VM's next backup. Whether it had to be ended.
    ///
    /// # Errors
    /// When the catalog cannot be written.
    pub fn end_failed(&self, session: SessionId) -> Result<bool, EngineError> {
        self.sessions.end_failed(&self.core, session)
    }

    /// Ends sessions without a heartbeat; says how many. Call it every few seconds.
    pub fn expire_sessions(&self) -> usize {
        self.sessions.expire(&self.core)
    }

    /// What deleting these restore points together would free. Walks the recipes of all restore points of their
    /// namespaces, so it takes as long as a mark does; nothing is changed.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; [`EngineError::Stopped`]; what cannot be read now.
    pub fn freed_by_deleting(
        &self,
        backups: &[BackupId],
        control: &ReclaimControl,
    ) -> Result<Freed, EngineError> {
        reclaim::freed_by_deleting(&self.core, backups, control)
    }

    /// Whose the live bytes of data containers are. Walks all recipes, and keeps the answer in the catalog.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; what cannot be read now.
    pub fn attribute(&self, control: &ReclaimControl) -> Result<Attribution, EngineError> {
        reclaim::attribution::attribute(&self.core, control)
    }

    /// Ends all sessions, makes the index durable, closes the catalog's log and marks the stop as clean. No
    /// backup starts afterwards.
    ///
    /// # Errors
    /// When the index or the catalog cannot be written; nothing is lost then, the next start replays.
    pub fn shutdown(&self) -> Result<(), EngineError> {
        self.rounds.close();
        self.sessions.close(&self.core, "the server was shut down");
        retention::advance_at_stop(&self.core);
        // Before the snapshot: what was proved belongs into it.
        if let Err(error) = self.scrub.write(&self.core) {
            tracing::warn!(%error, "cannot keep what was scrubbed in the last minute; it is read again");
        }
        self.last_snapshot();
        stop::stop(&self.core, &self.audit, &*self.index_volume)
    }

    /// Background work: looks at the containers that the start did not look at, and repairs what catalog and index
    /// do not know. Each call returns the same work.
    pub fn audit_job(&self) -> Arc<dyn Job> {
        Arc::new(AuditJob { core: Arc::clone(&self.core), audit: Arc::clone(&self.audit) })
    }

    /// Background work that never ends: looks at damage again, and closes what is healed.
    pub fn damage_job(&self) -> Arc<dyn Job> {
        Arc::new(DamageJob::new(Arc::clone(&self.core)))
    }

    /// Background work that never ends: keeps in the catalog what of which restore point cannot be restored.
    pub fn damage_report_job(&self) -> Arc<dyn Job> {
        Arc::new(DamageReportJob::new(Arc::clone(&self.core)))
    }

    /// Names what the damage that is known now costs: which bytes of which disks of which restore points. Keeps it in the
    /// catalog and returns the first `limit` of these disks.
    ///
    /// # Errors
    /// When recipes cannot be read at the moment, or the catalog cannot be written.
    pub fn name_damage(&self, limit: u32) -> Result<Vec<DamagedDisk>, EngineError> {
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

    /// Goes on with the pass of the scrub that is under way, or begins one, at full speed, until it has ended or the
    /// budget is spent. Says what it found.
    ///
    /// # Errors
    /// When something cannot be read at the moment, or the catalog cannot be written; the next call goes on there.
    pub fn scrub(&self, budget: &Budget, progress: &dyn Progress) -> Result<ScrubFindings, EngineError> {
        self.scrub.run(&self.core, budget, progress)
    }

    /// How far the scrub is.
    ///
    /// # Errors
    /// When the catalog cannot be read.
    pub fn scrub_status(&self) -> Result<ScrubStatus, EngineError> {
        self.scrub.status(&self.core)
    }

    /// Background work that never ends: rebuilds pages of the index that cannot be read.
    pub fn index_repair_job(&self) -> Arc<dyn Job> {
        Arc::new(IndexRepairJob { core: Arc::clone(&self.core) })
    }

    /// Background work: writes the points of restore points that have none.
    pub fn points_job(&self) -> Arc<dyn Job> {
        Arc::new(PointsJob { core: Arc::clone(&self.core), missing: Arc::clone(&self.points) })
    }

    /// As [`Engine::points_job`], all of it.
    ///
    /// # Errors
    /// When a point cannot be written; the next call goes on where it failed.
    pub fn write_points(&self) -> Result<(), EngineError> {
        record_rest(&self.core)?;
        self.points.write(&self.core, &Budget::unlimited()).map(drop)
    }

    /// Background work: a snapshot of the catalog every hour in which it changed.
    pub fn snapshot_job(&self) -> Arc<dyn Job> {
        Arc::new(SnapshotJob { core: Arc::clone(&self.core), snapshots: Arc::clone(&self.snapshots) })
    }

    /// Seals a snapshot of the catalog, unless nothing has changed since the latest. Returns its length in bytes.
    ///
    /// # Errors
    /// When the catalog cannot be copied or the volume not written; the earlier snapshots are there then.
    pub fn snapshot(&self) -> Result<Option<u64>, EngineError> {
        self.snapshots.take(&self.core)
    }

    /// A stop goes on without it: what a snapshot holds is in the catalog as well.
    fn last_snapshot(&self) {
        if self.core.health.stopped().is_empty()
            && let Err(error) = self.snapshot()
        {
            tracing::error!(%error, "cannot seal a snapshot of the catalog");
        }
    }

    /// All that is left of the audit; says what it found.
    ///
    /// # Errors
    /// When the volume or the catalog cannot be read; the next call goes on where it failed.
    pub fn audit(&self, progress: &dyn Progress) -> Result<OpenSummary, EngineError> {
        self.audit.run(&self.core, progress)
    }

    /// Whether nothing is left to audit.
    #[cfg(test)]
    pub(crate) fn audit_finished(&self) -> bool {
        self.audit.finished()
    }

    /// The messages that carry a disk, or `extent_count` extents of it (0: to the end).
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; a recipe that cannot be read.
    pub fn read_disk(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        first_extent: u64,
        extent_count: u64,
    ) -> Result<DiskReader, EngineError> {
        let extents = (first_extent, extent_count);
        DiskReader::open(&self.core, namespace, backup, disk, extents, OnDamage::End)
    }

    /// As [`Engine::read_disk`], but chunks and extents that cannot be read are named in the messages, and the
    /// others follow.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; the root of the recipe cannot be read.
    pub fn read_disk_past_damage(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        first_extent: u64,
        extent_count: u64,
    ) -> Result<DiskReader, EngineError> {
        let extents = (first_extent, extent_count);
        DiskReader::open(&self.core, namespace, backup, disk, extents, OnDamage::Report)
    }

    /// The answers that make up a byte range of a disk.
    ///
    /// # Errors
    /// As [`Engine::read_disk`]; a range longer than the limit.
    pub fn read_range(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        offset: u64,
        length: u64,
    ) -> Result<RangeReader, EngineError> {
        RangeReader::open(&self.core, namespace, backup, disk, offset, length)
    }

    /// How a disk's extents compare with up to `depth` (at most [`HISTORY_DEPTH_MAX`](crate::HISTORY_DEPTH_MAX))
    /// earlier restore points of its VM; `None` when none of these has the disk. Reads recipes only.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; a recipe that cannot be read.
    pub fn extent_history(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        depth: usize,
    ) -> Result<Option<ExtentHistory>, EngineError> {
        extent_history::history(&self.core, namespace, backup, disk, depth)
    }

    /// Reads extents, by disk and number, that a client says have a false digest, and keeps what proves false: it is
    /// offered to no agent again. Stops at the first that does not. Returns how many are false. `who` for the audit
    /// log.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; more than [`FALSE_DIGESTS_MAX`](holdfast_proto::limits::FALSE_DIGESTS_MAX); data
    /// that cannot be read.
    pub fn confirm_false_digests(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        reported: &[(String, u64)],
        who: &str,
    ) -> Result<u32, EngineError> {
        digests::confirm(&self.core, namespace, backup, reported, who)
    }

    /// Reads a restore point back: every chunk against its fingerprint, every extent against its digest. `charge` is told
    /// of data bytes as they are read, after each extent, and says whether to go on; `None`: it did not. `who` for the
    /// audit log.
    ///
    /// # Errors
    /// [`EngineError::NotFound`], also when it is deleted meanwhile; the catalog cannot be asked. Damage is in the report.
    pub fn verify_backup(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        who: &str,
        charge: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<VerifyReport>, EngineError> {
        verify::verify(&self.core, namespace, backup, who, charge)
    }

    /// How well data compresses and how large chunks are, from the directories of at most `max_containers`
    /// (and [`SAMPLE_MAX`](crate::statistics::SAMPLE_MAX)) live data containers.
    ///
    /// # Errors
    /// When the catalog or the volume cannot be read; a damaged container is left out.
    pub fn storage_statistics(&self, max_containers: usize) -> Result<StorageStatistics, EngineError> {
        statistics::sample(&self.core, max_containers)
    }

    /// Makes the index durable, as its maintenance does now and then.
    #[cfg(test)]
    pub(crate) fn core_index_checkpoint(&self) -> Result<(), EngineError> {
        Ok(self.core.store.index.checkpoint()?)
    }

    /// Counts containers as indexed that have no entries.
    #[cfg(test)]
    pub(crate) fn core_index_cover(&self, ids: impl Iterator<Item = holdfast_types::ids::ContainerId>) {
        for id in ids {
            self.core.store.index.insert_container(id, std::iter::empty()).unwrap();
        }
    }

    /// For benchmarks.
    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// What tests look into.
    #[cfg(test)]
    pub(crate) const fn parts(&self) -> (&Arc<Core>, &Sessions) {
        (&self.core, &self.sessions)
    }

    /// Deletes restore points, all of them or none. When this returns they are gone for good: no crash and no recovery
    /// brings them back. Their space is freed by reclaim. `who` and `reason` for the audit log. Says which were deleted:
    /// those that an earlier call had begun to delete are not among them.
    ///
    /// # Errors
    /// [`EngineError::Locked`]: one of them is locked or held. There is no such restore point; more than
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

    /// Locks restore points until `until_ms`, unless they are locked for longer. When this returns the volume knows it,
    /// so that losing the catalog loses no lock. Returns those that changed.
    ///
    /// # Errors
    /// As [`Retention::lock_backups`](holdfast_catalog::Retention::lock_backups); the volume's: they are locked all the
    /// same, and their points follow.
    pub fn lock_backups(
        &self,
        ids: &[BackupId],
        until_ms: i64,
        who: &str,
    ) -> Result<Vec<BackupId>, EngineError> {
        self.core.check_writable()?;
        retention::advance_if_due(&self.core)?;
        let changed = self.core.catalog.lock_backups(ids, until_ms, who)?;
        retention::reseal(&self.core, &changed).map(|()| changed)
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
        let changed = self.core.catalog.hold_backups(ids, reason, who)?;
        retention::reseal(&self.core, &changed).map(|()| changed)
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
        let changed = self.core.catalog.release_holds(ids, reason, who)?;
        retention::reseal(&self.core, &changed).map(|()| changed)
    }

    /// Gives a VM another name; its restore points, history and policies follow.
    ///
    /// # Errors
    /// A backup of either name is in progress; as [`Retention::rename_vm`](holdfast_catalog::Retention::rename_vm); the
    /// volume's: it is renamed all the same, and the points follow.
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
        retention::reseal_all(&self.core)
    }

    /// Gives a job another name, as [`Engine::rename_vm`].
    ///
    /// # Errors
    /// As [`Retention::rename_job`](holdfast_catalog::Retention::rename_job); the volume's, as [`Engine::rename_vm`].
    pub fn rename_job(
        &self,
        namespace: NamespaceId,
        job: &str,
        name: &str,
        who: &str,
    ) -> Result<(), EngineError> {
        self.core.check_writable()?;
        self.core.catalog.rename_job(namespace, job, name, who)?;
        retention::reseal_all(&self.core)
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
        self.sessions.check_free(namespace, vm)?;
        retention::remove_vm(&self.core, namespace, vm, delete_restore_points, who)
    }

    /// Background work that never ends: advances the lock clock; removes the points of restore points that another
    /// process deleted; seals the points of those that changed.
    pub fn retention_job(&self) -> Arc<dyn Job> {
        Arc::new(RetentionJob { core: Arc::clone(&self.core) })
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
        let _turn = self.rounds.begin(control)?;
        let all_points_known = self.opened.unreadable_points == 0;
        reclaim::run(&self.core, &self.sessions, all_points_known, options, control)
    }

    /// Walks everything and reports what is wrong.
    ///
    /// # Errors
    /// Only when it cannot go on; damage is in the report.
    pub fn check(&self, options: CheckOptions, progress: &dyn Progress) -> Result<CheckReport, EngineError> {
        crate::check::run(&self.core, options, progress)
    }

    /// Drops the rows of containers that are missing and that nothing needs, in namespaces of which every restore point
    /// is whole without them. None while so many are missing that they are taken for absent; after a recovery from an
    /// older catalog, which has rows of containers deleted since, that is for an engine with [`OnLoss::Hold`]: open the
    /// repository anew afterwards.
    ///
    /// # Errors
    /// When the volume or the catalog cannot be asked or changed; any later start finds the rows that are left.
    pub fn drop_lost_rows(&self, progress: &dyn Progress) -> Result<DroppedRows, EngineError> {
        lost_rows::drop_unneeded(&self.core, self.opened.unreadable_points == 0, progress)
    }

    /// Writes what can still be read of containers that are known to be damaged into new ones. Run a check before, so
    /// that all damage is known.
    ///
    /// # Errors
    /// When a new container or the catalog cannot be written; what was written before stays.
    pub fn repair(&self, progress: &dyn Progress) -> Result<Vec<Repaired>, EngineError> {
        container_repair::run(&self.core, progress)
    }
}
