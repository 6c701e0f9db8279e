//! The engine's façade: everything a server does with a repository. What is in here opens it, closes it and repairs it;
//! the rest is in the modules below, each named for what it is about.
//!
//! **Without keys.** The engine of an encrypted repository can be started without its keys, for administration: the catalog is
//! served, and nothing on the volume is read, written or looked for (K6).
//!
//! A start as any other would find nothing but what it cannot read, and call it lost. So none of it is done: no recovery, no
//! background work, no index but an empty one in memory. What would need the volume is refused with the reason. The next start
//! with the keys does what this one left out; a clean stop before it is still one.

mod blobs;
mod maintenance;
mod reading;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use holdfast_catalog::Catalog;
use holdfast_proto::reread::REREAD_DAYS;
use holdfast_types::clock::Clock;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::{MemoryVolume, Space, Volume};
use parking_lot::Mutex;

use crate::audit::{Audit, AuditJob};
use crate::catalog_check::{self, CatalogCheckJob, DroppedRows};
use crate::check::{CheckOptions, CheckReport};
use crate::container::{CacheLimits, SharedStats, list_containers};
use crate::container_repair::{self, IndexRepairJob, Repaired};
use crate::core::{Core, DigestStats, READ_THREADS};
use crate::error::EngineError;
use crate::health::{Health, Stopped};
use crate::index::{IndexOptions, IndexStats};
use crate::ingest::Sessions;
use crate::jobs::{Budget, Job, NoProgress, Progress};
use crate::memory::MemoryBounds;
use crate::parity::ParityStats;
use crate::points::{MissingPoints, OldFoldersJob, PointsJob, look_again, record_rest};
use crate::readiness::{self, NotReady};
use crate::reclaim::Rounds;
use crate::recovery::OpenSummary;
use crate::scrub::Scrub;
use crate::snapshot::{SnapshotJob, Snapshots};
use crate::start::{self, Start, Started};
use crate::store::OnLoss;
use crate::{generation, identity, stop};

pub use blobs::{BLOB_FOLDERS, RewriteRoom};

/// Seconds a session lives without a heartbeat from its agent.
pub const LEASE_SECS: u32 = 120;

/// Bytes kept free: enough for the catalog, the index and a round of reclaim.
pub const RESERVE_BYTES: u64 = 1 << 30;

/// Unless told otherwise the reserve is never more than this share of the volume, so that small volumes are
/// usable at all.
const RESERVE_SHARE_MAX: u64 = 50;

/// Options of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// Seconds a session lives without a heartbeat.
    pub lease_secs: u32,
    /// Days in which every extent is read again, whatever its parent's digest; 0: never.
    pub reread_days: u32,
    /// Bytes kept free; `None`: 1 GiB, but at most 2 % of the volume.
    pub reserve_bytes: Option<u64>,
    /// Limits of the cache of containers' directories.
    pub directories: CacheLimits,
    /// Options of the index.
    pub index: IndexOptions,
    /// Other limits of memory.
    pub memory: MemoryBounds,
    /// Threads that read for restores. They wait more than they work: for a volume far away take more.
    pub read_threads: usize,
    /// Location of the containers, for messages.
    pub location: String,
    /// Consequence of containers that are missing.
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
            read_threads: READ_THREADS,
            location: "the volume".to_owned(),
            on_loss: OnLoss::Stop,
        }
    }
}

/// Parts that an engine is assembled from. The caller decides where things lie, and opens them.
#[derive(Debug)]
pub struct EngineParts {
    /// Holds the containers.
    pub data: Arc<dyn Volume>,
    /// Holds the index; may be the same volume.
    pub index: Arc<dyn Volume>,
    pub catalog: Arc<Catalog>,
    pub clock: Arc<dyn Clock>,
    /// The one latch of the repository; the catalog must have been opened with the same.
    pub health: Arc<Health>,
    pub options: EngineOptions,
    /// Kept until the engine is dropped: what keeps other processes away from the parts above.
    pub lock: Option<Box<dyn Debug + Send + Sync>>,
}

impl EngineParts {
    /// Describes a start. `rebuild`: discard the index first; `older`: the catalog is an older copy (S10).
    ///
    /// # Errors
    /// When the volume cannot be asked for its space.
    fn start<'a>(
        &'a self,
        index: &'a Arc<dyn Volume>,
        rebuild: bool,
        older: bool,
    ) -> Result<Start<'a>, EngineError> {
        let options = &self.options;
        Ok(Start {
            data: Arc::clone(&self.data),
            index,
            catalog: Arc::clone(&self.catalog),
            clock: Arc::clone(&self.clock),
            health: Arc::clone(&self.health),
            lease_secs: options.lease_secs,
            reread_days: options.reread_days,
            reserve_bytes: reserve_bytes(options.reserve_bytes, &*self.data)?,
            directories: options.directories,
            index_options: options.index.clone(),
            memory: options.memory,
            read_threads: options.read_threads,
            on_loss: options.on_loss,
            location: &options.location,
            rebuild,
            older,
        })
    }
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
    pub parity: ParityStats,
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
    sessions: Arc<Sessions>,
    rounds: Rounds,
    opened: OpenSummary,
    _lock: Option<Box<dyn Debug + Send + Sync>>,
}

/// (S10) Makes the catalog take over the volume's generation. Not while it takes no changes, which ends no start (S8).
fn note_settled(catalog: &Catalog, generation: u64) -> Result<bool, EngineError> {
    match catalog.note_generation(generation) {
        Ok(()) => Ok(true),
        Err(error) if error.refuses_changes() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

impl Engine {
    /// Puts an engine together and recovers from whatever ended the last process.
    ///
    /// # Errors
    /// Errors of the repository that keep it from being opened.
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
        let Some(mut generation) = generation::of_newer_volume(&*parts.data, &parts.catalog)? else {
            return Self::assemble_once(parts, rebuild, false, progress);
        };
        // (S3) Nothing is changed on the volume of another.
        if identity::is_present(&*parts.data, parts.catalog.repository()?.id).is_ok() {
            generation = generation::keep_ahead(&*parts.data, generation)?;
        }
        let (catalog, location) = (Arc::clone(&parts.catalog), parts.options.location.clone());
        tracing::error!(
            location,
            "the catalog is an older copy: what was deleted since it was made is dropped from it. Whatever was changed since, \
             tokens that were revoked among it, is as it was then: look through 'holdfast-server token list'"
        );
        let (first, is_settled) = Self::settle_older(&parts, progress)?;
        // (S10) Only now: a crash before begins anew, and so does a start after one that could not tell of all.
        let is_settled = is_settled && note_settled(&catalog, generation)?;
        let mut parts = parts;
        if !is_settled {
            tracing::warn!("not all of the older catalog could be settled: the next start goes on with it");
            parts.options.on_loss = OnLoss::Hold;
        }
        let mut engine = Self::assemble_once(parts, rebuild, !is_settled, progress)?;
        engine.opened.entered_points += first.entered_points;
        engine.opened.dropped_points += first.dropped_points;
        Ok(engine)
    }

    /// (S10) As after a recovery: drops restore points that were deleted since, and rows of containers that are gone and that
    /// nothing needs. Also says whether all could be told.
    fn settle_older(
        parts: &EngineParts,
        progress: &dyn Progress,
    ) -> Result<(OpenSummary, bool), EngineError> {
        let EngineParts { data, index, catalog, clock, health, options, lock: _ } = parts;
        let engine = Self::assemble_once(
            EngineParts {
                data: Arc::clone(data),
                index: Arc::clone(index),
                catalog: Arc::clone(catalog),
                clock: Arc::clone(clock),
                health: Arc::clone(health),
                options: EngineOptions { on_loss: OnLoss::Hold, ..options.clone() },
                lock: None,
            },
            false,
            true,
            progress,
        )?;
        engine.drop_lost_rows(progress)?;
        let is_settled = engine.core.unrecorded.check_all_known().is_ok();
        Ok((engine.opened, is_settled))
    }

    fn assemble_once(
        parts: EngineParts,
        rebuild: bool,
        older: bool,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        let started = start::start(parts.start(&parts.index, rebuild, older)?, progress)
            .map_err(|error| catalog_check::explain(error, &parts.options.location))?;
        crate::retention::advance_at_start(&started.core);
        Self::of(started, parts.index, parts.lock)
    }

    /// Puts an engine together that serves the catalog alone; `why` is what everything else is refused with.
    ///
    /// # Errors
    /// The catalog's.
    pub fn assemble_locked(parts: EngineParts, why: &str) -> Result<Self, EngineError> {
        // (K6) Before anything could be read or written.
        parts.health.lock(why);
        let index: Arc<dyn Volume> = Arc::new(MemoryVolume::new());
        let started = start::locked(parts.start(&index, false, false)?)?;
        Self::of(started, index, parts.lock)
    }

    /// The engine of what a start leads to.
    fn of(
        started: Started,
        index_volume: Arc<dyn Volume>,
        lock: Option<Box<dyn Debug + Send + Sync>>,
    ) -> Result<Self, EngineError> {
        let Started { core, audit, points, snapshot, summary } = started;
        let snapshots = Snapshots::new(&core, snapshot)?;
        Ok(Self {
            core: Arc::new(core),
            audit: Arc::new(audit),
            points: Arc::new(points),
            snapshots: Arc::new(snapshots),
            scrub: Arc::default(),
            index_volume,
            sessions: Arc::default(),
            rounds: Rounds::default(),
            opened: summary,
            _lock: lock,
        })
    }

    /// Results of opening.
    pub const fn opened(&self) -> &OpenSummary {
        &self.opened
    }

    /// The catalog, for everything that is not chunk data.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.core.catalog
    }

    /// The repository's id.
    pub fn repository_id(&self) -> RepositoryId {
        self.core.repository
    }

    /// Returns true if it serves the catalog alone.
    pub fn is_locked(&self) -> bool {
        self.core.health.locked_reason().is_some()
    }

    /// Fails when it serves the catalog alone.
    ///
    /// # Errors
    /// [`EngineError::NoKeys`].
    pub fn check_unlocked(&self) -> Result<(), EngineError> {
        self.core.check_unlocked()
    }

    /// Reason for which writing is refused; `None`: it is not.
    pub fn read_only_reason(&self) -> Option<&str> {
        self.core.health.read_only_reason()
    }

    /// Every kind of work that has stopped since an I/O error, and why. Empty: all is well.
    pub fn stopped(&self) -> Vec<Stopped> {
        self.core.health.stopped()
    }

    /// Reasons for which backups are not accepted now; empty: they are. Looks at the volume and the catalog, so ask it
    /// once in a while and not for every call.
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
            parity: self.core.store.parity.stats(),
        })
    }

    /// Ends all sessions, makes the index durable, closes the catalog's log and marks the stop as clean. No
    /// backup starts afterwards.
    ///
    /// # Errors
    /// When the index or the catalog cannot be written; nothing is lost then, the next start replays.
    pub fn shutdown(&self) -> Result<(), EngineError> {
        self.rounds.close();
        self.sessions.close(&self.core, "the server was shut down");
        if self.is_locked() {
            return Ok(self.core.catalog.checkpoint()?);
        }
        crate::retention::advance_at_stop(&self.core);
        // Before the snapshot: what was proved belongs into it.
        if let Err(error) = self.scrub.write(&self.core) {
            tracing::warn!(%error, "cannot keep what was scrubbed in the last minute; it is read again");
        }
        let snapshot = self.snapshots.number_at_stop(&self.core);
        let number = snapshot.as_ref().map_or(u64::MAX, |(number, _)| *number);
        let stopped = stop::stop(&self.core, &self.audit, &*self.index_volume, number);
        // (W15) Last: a stop that is cut off in it was clean.
        self.last_snapshot(snapshot.map(|(_, is_lacking)| is_lacking));
        stopped
    }

    /// Background work: looks at the containers that the start did not look at, and repairs what catalog and index
    /// do not know. Each call returns the same work.
    pub fn audit_job(&self) -> Arc<dyn Job> {
        Arc::new(AuditJob { core: Arc::clone(&self.core), audit: Arc::clone(&self.audit) })
    }

    /// Background work that never ends: looks through the catalog once a day, and heals it.
    pub fn catalog_check_job(&self) -> Arc<dyn Job> {
        let (core, sessions) = (Arc::clone(&self.core), Arc::clone(&self.sessions));
        Arc::new(CatalogCheckJob { core, sessions, sums_are_due: AtomicBool::new(true) })
    }

    /// Background work that never ends: rebuilds pages of the index that cannot be read.
    pub fn index_repair_job(&self) -> Arc<dyn Job> {
        Arc::new(IndexRepairJob { core: Arc::clone(&self.core) })
    }

    /// Background work: writes the points of restore points that have none.
    pub fn points_job(&self) -> Arc<dyn Job> {
        Arc::new(PointsJob { core: Arc::clone(&self.core), missing: Arc::clone(&self.points) })
    }

    /// Background work: seals points anew that lie in folders which show names, and removes these folders. For volumes whose
    /// other blobs are encrypted.
    pub fn old_point_folders_job(&self) -> Arc<dyn Job> {
        Arc::new(OldFoldersJob { core: Arc::clone(&self.core), after: Mutex::default() })
    }

    /// As [`Engine::points_job`], all of it.
    ///
    /// # Errors
    /// When a point cannot be written; the next call goes on where it failed.
    pub fn write_points(&self) -> Result<(), EngineError> {
        self.core.check_unlocked()?;
        record_rest(&self.core)?;
        self.points.write(&self.core, &Budget::unlimited())?;
        look_again(&self.core)
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
        self.core.check_unlocked()?;
        self.snapshots.take(&self.core)
    }

    /// Seals a snapshot of the catalog, and removes all others.
    ///
    /// # Errors
    /// As [`Engine::snapshot`]; some of the others may be left.
    pub fn renew_snapshots(&self) -> Result<(), EngineError> {
        self.core.check_unlocked()?;
        self.snapshots.renew(&self.core)
    }

    /// A stop goes on without it: what a snapshot holds is in the catalog as well.
    fn last_snapshot(&self, lacking: Result<bool, EngineError>) {
        if !self.core.health.stopped().is_empty() {
            return;
        }
        let done =
            lacking.and_then(
                |lacking| {
                    if lacking { self.snapshots.take_last(&self.core).map(drop) } else { Ok(()) }
                },
            );
        if let Err(error) = done {
            tracing::error!(%error, "cannot seal a snapshot of the catalog");
        }
    }

    /// Runs the rest of the audit, and returns its findings.
    ///
    /// # Errors
    /// When the volume or the catalog cannot be read; the next call goes on where it failed.
    pub fn audit(&self, progress: &dyn Progress) -> Result<OpenSummary, EngineError> {
        self.core.check_unlocked()?;
        self.audit.run(&self.core, progress)
    }

    /// Returns true if nothing is left to audit.
    #[cfg(test)]
    pub(crate) fn audit_finished(&self) -> bool {
        self.audit.finished()
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

    /// Access to the core, for benchmarks.
    pub(crate) const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Parts that tests look into.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> (&Arc<Core>, &Sessions) {
        (&self.core, &*self.sessions)
    }

    /// Walks everything and reports what is wrong.
    ///
    /// # Errors
    /// Only when it cannot go on; damage is in the report.
    pub fn check(&self, options: CheckOptions, progress: &dyn Progress) -> Result<CheckReport, EngineError> {
        self.core.check_unlocked()?;
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
        self.core.check_unlocked()?;
        catalog_check::drop_unneeded(&self.core, progress)
    }

    /// Repairs damaged containers: writes the chunks that can still be read into new ones. Run a check before, so that
    /// all damage is known.
    ///
    /// # Errors
    /// When a new container or the catalog cannot be written; what was written before stays.
    pub fn repair(&self, progress: &dyn Progress) -> Result<Vec<Repaired>, EngineError> {
        self.core.check_unlocked()?;
        container_repair::run(&self.core, progress)
    }
}
