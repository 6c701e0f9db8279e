//! The engine's façade: everything a server does with a repository.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_catalog::{Catalog, RowStatus, SqliteCatalog};
use holdfast_proto::v1;
use holdfast_types::clock::{Clock, SystemClock};
use holdfast_types::ids::{BackupId, NamespaceId, RepositoryId, SessionId};
use holdfast_volume::{LocalVolume, Space, Volume};

use crate::changes::{self, ExtentHistory};
use crate::check::{CheckOptions, CheckReport};
use crate::container::{CacheLimits, ContainerCache, list_containers};
use crate::core::{Core, CoreParts};
use crate::error::EngineError;
use crate::index::{Index, IndexOptions, IndexStats};
use crate::ingest::{DiskStream, LiveSession, Sessions, StartBackup};
use crate::lock::FolderLock;
use crate::progress::{NoProgress, Progress};
use crate::recovery::{self, OpenSummary};
use crate::restore::{DiskReader, RangeReader};
use crate::statistics::{self, StorageStatistics};
use crate::store::ChunkStore;

/// Seconds a session lives without a sign of life from its agent.
pub const LEASE_SECS: u32 = 120;

/// Bytes kept free: enough for the catalog, the index and a round of reclaim.
pub const RESERVE_BYTES: u64 = 1 << 30;

/// Unless told otherwise the reserve is never more than this share of the volume, so that small volumes are
/// usable at all.
const RESERVE_SHARE_MAX: u64 = 50;

/// How to open a repository.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The folder that holds all of it.
    pub data_dir: PathBuf,
    /// Seconds a session lives without a sign of life.
    pub lease_secs: u32,
    /// Bytes kept free; `None`: [`RESERVE_BYTES`], but at most 2 % of the volume.
    pub reserve_bytes: Option<u64>,
    /// What may be kept of containers' directories.
    pub directories: CacheLimits,
    /// How the index behaves.
    pub index: IndexOptions,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
}

impl EngineOptions {
    /// Everything by default.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            lease_secs: LEASE_SECS,
            reserve_bytes: None,
            directories: CacheLimits::default(),
            index: IndexOptions::default(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Where the catalog's database is. The `token` commands open it beside a running server.
    pub fn catalog_path(data_dir: &Path) -> PathBuf {
        data_dir.join("catalog.db")
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
}

/// Errs when there are containers but no catalog: a new catalog would make a new repository, to which none of
/// them belong.
fn refuse_orphaned(catalog: &Path, volume: &dyn Volume) -> Result<(), EngineError> {
    if catalog.exists() {
        return Ok(());
    }
    let containers = list_containers(volume)?.containers.len();
    if containers == 0 {
        return Ok(());
    }
    let path = catalog.display();
    Err(EngineError::Damaged(format!(
        "{path} is missing, but {containers} containers are there: put the catalog back from its backup, or start in an empty folder"
    )))
}

/// An open repository.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    sessions: Sessions,
    opened: OpenSummary,
    _lock: Option<FolderLock>,
}

impl Engine {
    /// Opens the repository in a folder, creates it when there is none, and recovers from whatever ended
    /// the last process.
    ///
    /// # Errors
    /// [`EngineError::Locked`] when another process has it; otherwise what is wrong with it.
    pub fn open(options: EngineOptions) -> Result<Self, EngineError> {
        Self::open_with(options, false, &NoProgress)
    }

    /// As [`Engine::open`], but first discards the index, so that it is rebuilt from the containers.
    ///
    /// # Errors
    /// As [`Engine::open`].
    pub fn open_rebuilding_index(
        options: EngineOptions,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        Self::open_with(options, true, progress)
    }

    fn open_with(
        options: EngineOptions,
        rebuild: bool,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        let dir = &options.data_dir;
        std::fs::create_dir_all(dir)
            .map_err(|source| EngineError::Io { action: format!("create {}", dir.display()), source })?;
        let lock = FolderLock::take(dir)?;
        let volume: Arc<dyn Volume> = Arc::new(LocalVolume::open(dir.join("blobs"))?);
        let path = EngineOptions::catalog_path(dir);
        refuse_orphaned(&path, &*volume)?;
        let (catalog, created) = SqliteCatalog::open_or_create(&path, Arc::clone(&options.clock))?;
        let mut engine = Self::assemble(options, volume, Arc::new(catalog), Some(lock), rebuild, progress)?;
        engine.opened.created = created;
        Ok(engine)
    }

    /// Puts an engine together from its parts and recovers; for tests, which bring their own volume.
    pub(crate) fn assemble(
        options: EngineOptions,
        volume: Arc<dyn Volume>,
        catalog: Arc<dyn Catalog>,
        lock: Option<FolderLock>,
        rebuild: bool,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        let record = catalog.repository()?;
        let files = recovery::list_files(&*volume)?;
        let mut summary = OpenSummary {
            discarded_unfinished: volume.discard_unfinished()?,
            index_rebuilt: rebuild,
            ..OpenSummary::default()
        };
        if rebuild {
            Index::discard(&*volume)?;
        }
        let index = recovery::open_index(&volume, record.id, &options.index, &mut summary)?;
        let containers = ContainerCache::new(Arc::clone(&volume), record.id, options.directories);
        let store = Arc::new(ChunkStore::new(index, containers, Arc::clone(&catalog))?);
        recovery::reconcile(&*catalog, &store, &files, &mut summary)?;
        recovery::replay(&store, &files, &mut summary, progress)?;
        if rebuild {
            store.index.checkpoint()?;
        }
        let reserve_bytes = match (options.reserve_bytes, volume.space()?) {
            (Some(bytes), _) => bytes,
            (None, Some(space)) => RESERVE_BYTES.min(space.total_bytes / RESERVE_SHARE_MAX),
            (None, None) => RESERVE_BYTES,
        };
        let core = Core::new(CoreParts {
            repository: record.id,
            volume,
            catalog,
            store,
            clock: options.clock,
            lease_secs: options.lease_secs,
            reserve_bytes,
        })?;
        Ok(Self { core: Arc::new(core), sessions: Sessions::default(), opened: summary, _lock: lock })
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

    /// Figures about the repository.
    ///
    /// # Errors
    /// When the catalog or the volume cannot be asked.
    pub fn stats(&self) -> Result<EngineStats, EngineError> {
        Ok(EngineStats {
            index: self.core.store.index.stats(),
            catalog_bytes: self.core.catalog.size_bytes()?,
            space: self.core.volume.space()?,
            reserve_bytes: self.core.reserve_bytes,
        })
    }

    /// Starts a backup of one VM.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while another backup of the VM runs; invalid requests; no room.
    pub fn start_backup(&self, start: &StartBackup) -> Result<v1::StartResponse, EngineError> {
        self.sessions.start(&self.core, start)
    }

    /// The backups in the making and how far they are, oldest first. Cheap, and waits for none of them: what
    /// it tells may be a message old.
    pub fn live_sessions(&self) -> Vec<LiveSession> {
        self.sessions.live(&self.core)
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
        session.parent_digests(disk, first_extent)
    }

    /// Opens the stream of one disk; an older stream of that disk errs from now on.
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

    /// Ends sessions without a sign of life; says how many. Call it every few seconds.
    pub fn expire_sessions(&self) -> usize {
        self.sessions.expire(&self.core)
    }

    /// Ends all sessions, makes the index durable and closes the catalog's log. No backup starts afterwards.
    ///
    /// # Errors
    /// When the index or the catalog cannot be written; nothing is lost then, the next start replays.
    pub fn shutdown(&self) -> Result<(), EngineError> {
        self.sessions.close(&self.core, "the server was shut down");
        if self.core.health.read_only_reason().is_none() {
            self.core.store.index.checkpoint()?;
        }
        self.core.catalog.checkpoint()?;
        Ok(())
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
        DiskReader::open(&self.core, namespace, backup, disk, first_extent, extent_count)
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
        changes::history(&self.core, namespace, backup, disk, depth)
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

    /// Walks everything and reports what is wrong; see [`crate::check`].
    ///
    /// # Errors
    /// Only when it cannot go on; damage is in the report.
    pub fn check(&self, options: CheckOptions, progress: &dyn Progress) -> Result<CheckReport, EngineError> {
        crate::check::run(&self.core, options, progress)
    }
}
