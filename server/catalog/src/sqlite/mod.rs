//! The catalog on SQLite: write-ahead log, `synchronous=FULL`, so that a transaction that returned is on the
//! disk. One connection writes, behind a mutex; a few read, each on a snapshot of its own, never waiting for
//! the writer. Other processes may do the same at the same time.
//!
//! A crash leaves the log; the next process to open the database takes whole transactions from it and
//! drops the rest. SQLite itself does the I/O: this is the one place of the engine where a file is not
//! behind a volume. The database's folder must be on a local file system (the log is shared memory), and
//! nothing else in this process may open the file: closing it would drop SQLite's locks (POSIX).

mod audit;
mod backups;
mod commit;
mod connection;
mod containers;
mod convert;
mod details;
mod namespaces;
mod overviews;
mod pool;
mod reports;
mod schema;
mod select;
mod tokens;
mod web;

use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use holdfast_proto::v1;
use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, ContainerId, NamespaceId, RunId, SessionId, TokenId};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use self::convert::OrCatalogError;
use self::pool::ReadPool;
use super::{
    AuditEntry, AuditRecord, BackupCommit, BackupFilter, BackupRecord, Catalog, CatalogError,
    ContainerRecord, DamageRecord, DetailFilter, FailedRun, INTEGRITY_PROBLEMS_MAX, NamespaceRecord, Page,
    PageRequest, RepositoryRecord, Result, RootRecord, RunRecord, TokenRecord, TokenSpec, Verification,
    VmRecord, WebSession, laws,
};

/// How long to wait for another process's transaction. Ours take milliseconds; a slow disk's fsync may
/// take seconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// See the module's documentation.
#[derive(Debug)]
pub struct SqliteCatalog {
    // Dropped before the writer: the last connection to close folds the log into the database, which a
    // reading one cannot.
    readers: ReadPool,
    writer: Mutex<Connection>,
    clock: Arc<dyn Clock>,
    /// Why writes are refused: an I/O error after which it is unknown what the disk holds.
    latch: OnceLock<String>,
}

impl SqliteCatalog {
    /// Opens the catalog at `path`, brought to the schema of this version.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`] when there is none, or only an unfinished one;
    /// [`CatalogError::Unsupported`] when it is newer or cuts chunks differently;
    /// [`CatalogError::Corrupt`], [`CatalogError::Busy`], [`CatalogError::Full`], [`CatalogError::Io`].
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_with(path, clock, BUSY_TIMEOUT)
    }

    /// Creates the catalog of a new repository at `path`, with the namespace
    /// [`DEFAULT_NAMESPACE`](super::DEFAULT_NAMESPACE). What a crash leaves of an earlier attempt is taken
    /// over.
    ///
    /// # Errors
    /// [`CatalogError::Exists`] when there is a catalog already; otherwise as [`SqliteCatalog::open`].
    pub fn create(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut writer = connection::open_writer(path, true, BUSY_TIMEOUT)?;
        if !schema::create(&mut writer, clock.as_ref())? {
            return Err(CatalogError::exists("catalog", path.display()));
        }
        Self::start(path, writer, clock, BUSY_TIMEOUT)
    }

    /// Opens the catalog at `path` or creates it; the flag says whether it was created.
    ///
    /// # Errors
    /// As [`SqliteCatalog::open`], never [`CatalogError::NotFound`].
    pub fn open_or_create(path: &Path, clock: Arc<dyn Clock>) -> Result<(Self, bool)> {
        let mut writer = connection::open_writer(path, true, BUSY_TIMEOUT)?;
        let created = schema::create(&mut writer, clock.as_ref())?;
        Ok((Self::start(path, writer, clock, BUSY_TIMEOUT)?, created))
    }

    fn open_with(path: &Path, clock: Arc<dyn Clock>, busy_timeout: Duration) -> Result<Self> {
        if !path.exists() {
            return Err(CatalogError::not_found("catalog", path.display()));
        }
        let writer = connection::open_writer(path, false, busy_timeout)?;
        Self::start(path, writer, clock, busy_timeout)
    }

    fn start(
        path: &Path,
        mut writer: Connection,
        clock: Arc<dyn Clock>,
        busy_timeout: Duration,
    ) -> Result<Self> {
        schema::upgrade(&mut writer, path)?;
        connection::use_log(&writer, busy_timeout)?;
        schema::check_parameters(&namespaces::repository(&writer)?)?;
        Ok(Self {
            readers: ReadPool::new(path.to_owned(), busy_timeout),
            writer: Mutex::new(writer),
            clock,
            latch: OnceLock::new(),
        })
    }

    /// Runs `read` on one snapshot.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.with(|connection| {
            let snapshot = connection.unchecked_transaction().or_error("read")?;
            read(&snapshot)
        })
    }

    /// Runs `write` in a transaction that is durable when this returns `Ok`, and has changed nothing
    /// otherwise, except after [`CatalogError::Io`], when nobody knows: then no more is written.
    fn write<T>(&self, write: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        let mut writer = self.writer.lock();
        if let Some(reason) = self.latch.get() {
            let cause = format!("an earlier write failed ({reason}); restart after repairing the disk");
            return Err(CatalogError::io("write", cause));
        }
        let result = transact(&mut writer, write);
        if let Err(CatalogError::Io { cause, .. }) = &result {
            // Set once, under the writer's lock.
            let _ = self.latch.set(cause.to_string());
        }
        result
    }
}

fn transact<T>(writer: &mut Connection, write: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
    // Immediate: waits for other processes now, instead of failing in the middle.
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate).or_error("write")?;
    let value = write(&transaction)?;
    transaction.commit().or_error("write")?;
    Ok(value)
}

impl Drop for SqliteCatalog {
    fn drop(&mut self) {
        // Only saves time at the next start: a log that stays is read then.
        let _ = self.checkpoint();
    }
}

impl Catalog for SqliteCatalog {
    fn repository(&self) -> Result<RepositoryRecord> {
        self.read(namespaces::repository)
    }

    fn ensure_namespace(&self, name: &str) -> Result<NamespaceRecord> {
        laws::name("namespace", name)?;
        if let Some(found) = self.namespace_by_name(name)? {
            return Ok(found);
        }
        self.write(|tx| namespaces::ensure(tx, self.clock.as_ref(), name))
    }

    fn namespace(&self, id: NamespaceId) -> Result<Option<NamespaceRecord>> {
        self.read(|c| namespaces::by_id(c, id))
    }

    fn namespace_by_name(&self, name: &str) -> Result<Option<NamespaceRecord>> {
        self.read(|c| namespaces::by_name(c, name))
    }

    fn namespaces(&self) -> Result<Vec<NamespaceRecord>> {
        self.read(namespaces::all)
    }

    fn reserve_container_numbers(&self, count: u32) -> Result<Range<u64>> {
        self.write(|tx| containers::reserve(tx, count))
    }

    fn add_containers(&self, containers: &[ContainerRecord]) -> Result<()> {
        if containers.is_empty() {
            return Ok(());
        }
        self.write(|tx| containers.iter().try_for_each(|container| containers::adopt(tx, container)))
    }

    fn container(&self, id: ContainerId) -> Result<Option<ContainerRecord>> {
        self.read(|c| containers::by_id(c, id))
    }

    fn containers(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<ContainerRecord>> {
        self.read(|c| containers::list(c, after, limit))
    }

    fn mark_container_damaged(&self, id: ContainerId, reason: &str) -> Result<()> {
        self.write(|tx| containers::mark(tx, self.clock.as_ref(), id, None, reason))
    }

    fn mark_region_damaged(&self, id: ContainerId, region: u16, reason: &str) -> Result<()> {
        self.write(|tx| containers::mark(tx, self.clock.as_ref(), id, Some(region), reason))
    }

    fn damaged(&self) -> Result<Vec<DamageRecord>> {
        self.read(containers::damaged)
    }

    fn clear_damage(&self, id: ContainerId) -> Result<()> {
        self.write(|tx| containers::clear(tx, id))
    }

    fn commit_backup(&self, commit: &BackupCommit) -> Result<()> {
        laws::commit(commit)?;
        self.write(|tx| commit::backup(tx, self.clock.as_ref(), commit))
    }

    fn record_failed_run(&self, failed: &FailedRun) -> Result<()> {
        laws::failed(failed)?;
        self.write(|tx| commit::failed(tx, self.clock.as_ref(), failed))
    }

    fn run(&self, id: RunId) -> Result<Option<RunRecord>> {
        self.read(|c| backups::run(c, id))
    }

    fn backup(&self, id: BackupId) -> Result<Option<BackupRecord>> {
        self.read(|c| backups::by_id(c, id))
    }

    fn backup_by_session(&self, session: SessionId) -> Result<Option<BackupRecord>> {
        self.read(|c| backups::by_session(c, session))
    }

    fn latest_backup(&self, namespace: NamespaceId, vm: &str) -> Result<Option<BackupRecord>> {
        self.read(|c| backups::latest(c, namespace, vm))
    }

    fn backups_before(&self, id: BackupId, limit: u32) -> Result<Vec<BackupRecord>> {
        self.read(|c| backups::before(c, id, limit))
    }

    fn find_backups(&self, namespace: NamespaceId, id_prefix: &str, limit: u32) -> Result<Vec<BackupRecord>> {
        self.read(|c| backups::find(c, namespace, id_prefix, limit))
    }

    fn list_backups(&self, filter: &BackupFilter, page: PageRequest<'_>) -> Result<Page<BackupRecord>> {
        laws::scope(filter.namespaces.as_deref())?;
        self.read(|c| backups::list(c, filter, page))
    }

    fn list_vms(&self, namespaces: Option<&[NamespaceId]>, page: PageRequest<'_>) -> Result<Page<VmRecord>> {
        laws::scope(namespaces)?;
        self.read(|c| backups::vms(c, namespaces, page))
    }

    fn roots(&self, after: Option<(BackupId, u32)>, limit: u32) -> Result<Vec<RootRecord>> {
        self.read(|c| backups::roots(c, after, limit))
    }

    fn details(&self, filter: &DetailFilter, page: PageRequest<'_>) -> Result<Page<v1::DetailRow>> {
        laws::detail_filter(filter)?;
        self.read(|c| details::list(c, filter, page))
    }

    fn create_token(&self, spec: &TokenSpec, secret_hash: &[u8; 32]) -> Result<TokenRecord> {
        let now_ms = self.clock.now_ms();
        laws::token(spec, now_ms)?;
        self.write(|tx| tokens::create(tx, now_ms, spec, secret_hash))
    }

    fn token(&self, id: TokenId) -> Result<Option<(TokenRecord, [u8; 32])>> {
        self.read(|c| tokens::by_id(c, id))
    }

    fn list_tokens(&self) -> Result<Vec<TokenRecord>> {
        self.read(tokens::all)
    }

    fn revoke_token(&self, id: TokenId) -> Result<()> {
        self.write(|tx| tokens::revoke(tx, self.clock.now_ms(), id))
    }

    fn touch_token(&self, id: TokenId) -> Result<()> {
        // Asked first on a reading connection: nearly every call finds nothing to write.
        let now_ms = self.clock.now_ms();
        if self.read(|c| tokens::is_touch_due(c, now_ms, id))? {
            self.write(|tx| tokens::touch(tx, now_ms, id))?;
        }
        Ok(())
    }

    fn create_web_session(&self, session: &WebSession) -> Result<()> {
        laws::web_session(session)?;
        self.write(|tx| web::create(tx, session))
    }

    fn web_session(&self, id_hash: &[u8; 32]) -> Result<Option<WebSession>> {
        let now_ms = self.clock.now_ms();
        self.read(|c| web::by_hash(c, now_ms, id_hash))
    }

    fn extend_web_session(&self, id_hash: &[u8; 32], expires_ms: i64) -> Result<()> {
        let now_ms = self.clock.now_ms();
        self.write(|tx| web::extend(tx, now_ms, id_hash, expires_ms))
    }

    fn delete_web_session(&self, id_hash: &[u8; 32]) -> Result<()> {
        self.write(|tx| web::delete(tx, id_hash))
    }

    fn prune_web_sessions(&self, now_ms: i64) -> Result<u64> {
        // Asked first on a reading connection: nearly every call finds nothing to drop.
        if self.read(|c| web::has_ended(c, now_ms))? {
            self.write(|tx| web::prune(tx, now_ms))
        } else {
            Ok(0)
        }
    }

    fn record_verification(&self, verification: &Verification) -> Result<()> {
        self.write(|tx| web::verified(tx, self.clock.as_ref(), verification))
    }

    fn verifications(&self, backups: &[BackupId]) -> Result<Vec<Verification>> {
        laws::at_once("backups", backups.len())?;
        self.read(|c| web::newest(c, backups))
    }

    fn audit(&self, entry: &AuditEntry) -> Result<()> {
        self.write(|tx| audit::add(tx, self.clock.as_ref(), entry))
    }

    fn list_audit(&self, page: PageRequest<'_>) -> Result<Page<AuditRecord>> {
        self.read(|c| audit::list(c, page))
    }

    fn integrity_check(&self) -> Result<Vec<String>> {
        self.read(|c| connection::problems(c, INTEGRITY_PROBLEMS_MAX))
    }

    fn size_bytes(&self) -> Result<u64> {
        self.read(connection::size_bytes)
    }

    fn checkpoint(&self) -> Result<()> {
        connection::checkpoint(&self.writer.lock())
    }
}

#[cfg(test)]
mod tests;
