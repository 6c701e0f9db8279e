//! Backups in progress, from their start to their commit or end.

use std::sync::Arc;

use holdfast_catalog::RowStatus;
use holdfast_proto::v1;
use holdfast_types::ids::{NamespaceId, SessionId, TokenId};

use super::Engine;
use crate::error::EngineError;
use crate::ingest::{DiskStream, LiveSession, StartBackup};

impl Engine {
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

    /// Whether `token` may go on with a session: only the one that started it. Ask before anything else is
    /// done in a token's name. A session that has ended belongs to no token.
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
}
