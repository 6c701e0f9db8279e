//! Backups in progress, from their start to their commit or end, and reading restore points: disks, ranges, histories,
//! verification.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_catalog::RowStatus;
use holdfast_proto::region::sealed::Commitment;
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, NamespaceId, SessionId, TokenId};
use holdfast_volume::{BlobName, ColdPlace};

use super::Engine;
use crate::container::ContainerName;
use crate::digests;
use crate::error::EngineError;
use crate::extent_history::{self, ExtentHistory, PAGE_READS_MAX};
use crate::ingest::{Committed, DiskStream, LiveSession, StartBackup};
use crate::reports::{self, FalseChunk};
use crate::restore::{DiskReader, OnDamage, PartReader, RangeReader, cold_parts};
use crate::statistics::{self, StorageStatistics};
use crate::verify::{self, VerifyReport};

impl Engine {
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
        self.core.check_unlocked()?;
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
        self.core.check_unlocked()?;
        let extents = (first_extent, extent_count);
        DiskReader::open(&self.core, namespace, backup, disk, extents, OnDamage::Report)
    }

    /// Opens a disk to read parts of it, one after another; chunks are taken out of other regions than `passed_over`, where there
    /// are any.
    ///
    /// # Errors
    /// As [`Engine::read_disk_past_damage`].
    pub fn read_parts(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        passed_over: BTreeSet<Commitment>,
    ) -> Result<PartReader, EngineError> {
        self.core.check_unlocked()?;
        PartReader::open(&self.core, namespace, backup, disk, passed_over)
    }

    /// The parts of a disk that lie in an archive: the containers that a restore would read from there, each once. `go_on` is asked
    /// after each extent; `None`: it said no. Reads recipes and directories only.
    ///
    /// # Errors
    /// As [`Engine::read_disk`].
    pub fn cold_parts(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<ColdPlace>>, EngineError> {
        self.core.check_unlocked()?;
        cold_parts(&self.core, namespace, backup, disk, go_on)
    }

    /// Containers that lie in an archive, by the names of their blobs: backups count on nothing in them. To be told before
    /// there is any backup, and when one is found.
    pub fn note_cold<'a>(&self, names: impl IntoIterator<Item = &'a BlobName>) {
        for name in names {
            if let Some(name) = ContainerName::parse(name) {
                self.core.store.leftovers.note_cold(name.id);
            }
        }
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
        self.core.check_unlocked()?;
        RangeReader::open(&self.core, namespace, backup, disk, offset, length)
    }

    /// Compares a disk's extents with up to `depth` (at most [`HISTORY_DEPTH_MAX`](crate::HISTORY_DEPTH_MAX)) earlier
    /// restore points of its VM; `None` when none of these has the disk. Reads recipes only.
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
        self.core.check_unlocked()?;
        extent_history::history(&self.core, (namespace, backup), disk, depth, PAGE_READS_MAX)
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
        self.core.check_unlocked()?;
        digests::confirm(&self.core, namespace, backup, reported, who)
    }

    /// Notes chunks that an agent says are not what their fingerprints say, of a restore point that is end-to-end
    /// encrypted: they count as damaged until a backup sends them again. Returns how many regions are concerned that were
    /// not before. `who` for the audit log.
    ///
    /// # Errors
    /// [`EngineError::NotFound`]; [`EngineError::Invalid`] for chunks that the restore point does not have, and more than
    /// [`FALSE_CHUNKS_MAX`](holdfast_proto::limits::FALSE_CHUNKS_MAX); [`EngineError::Limit`] when too many were reported
    /// before. What comes before such a chunk is noted.
    pub fn note_false_chunks(
        &self,
        namespace: NamespaceId,
        backup: BackupId,
        reported: &[FalseChunk],
        who: &str,
    ) -> Result<u32, EngineError> {
        self.core.check_unlocked()?;
        reports::note(&self.core, namespace, backup, reported, who)
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
        self.core.check_unlocked()?;
        verify::verify(&self.core, namespace, backup, who, charge)
    }

    /// Compression ratio and chunk sizes, from the directories of at most `max_containers` (and `SAMPLE_MAX`) live data
    /// containers.
    ///
    /// # Errors
    /// When the catalog or the volume cannot be read; a damaged container is left out.
    pub fn storage_statistics(&self, max_containers: usize) -> Result<StorageStatistics, EngineError> {
        self.core.check_unlocked()?;
        statistics::sample(&self.core, max_containers)
    }

    /// Starts a backup of one VM.
    ///
    /// # Errors
    /// [`EngineError::Busy`] while another backup of the VM runs; invalid requests; no room.
    pub fn start_backup(&self, start: &StartBackup) -> Result<v1::StartResponse, EngineError> {
        self.core.check_unlocked()?;
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

    /// Fails unless `token` may go on with a session: only the one that started it. Ask before anything else is
    /// done in a token's name. A session that has ended belongs to no token.
    ///
    /// # Errors
    /// [`EngineError::NotYours`].
    pub fn check_starter(&self, session: SessionId, token: TokenId) -> Result<(), EngineError> {
        self.sessions.check_starter(session, token)
    }

    /// Returns true if a session is in progress. Looks at memory only.
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
    pub fn commit(&self, session: SessionId) -> Result<Committed, EngineError> {
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
    /// VM's next backup. Returns true if it had to be ended.
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
}
