//! The catalog on SQLite: write-ahead log, `synchronous=FULL`, so that a transaction that returned is on the
//! disk. One connection writes, behind a mutex; others read, each on a snapshot of its own, never waiting for
//! the writer: a few are for look-ups, the rest for reports (`pool.rs`). Other processes may do the same at the
//! same time.
//!
//! The catalog's methods are in the crate's files, one a noun; the SQL is in these, one a table or subject. It is SQL of
//! PostgreSQL, too, except in the files about SQLite itself (`tests/portable.rs`).
//!
//! A crash leaves the log; the next process to open the database takes whole transactions from it and
//! drops the rest. SQLite itself does the I/O: this is the one place of the engine where a file is not
//! behind a volume. The database's folder must be on a local file system (the log is shared memory), and
//! nothing else in this process may open the file: closing it would drop SQLite's locks (POSIX).

pub(crate) mod adoption;
pub(crate) mod agents;
pub(crate) mod attempt_refs;
pub(crate) mod attribution;
pub(crate) mod audit;
pub(crate) mod backups;
pub(crate) mod commit;
pub(crate) mod commit_numbers;
pub(crate) mod connection;
pub(crate) mod containers;
pub(crate) mod convert;
pub(crate) mod damage;
pub(crate) mod deletions;
pub(crate) mod details;
pub(crate) mod expiring;
pub(crate) mod heal;
pub(crate) mod lock_clock;
pub(crate) mod locks;
pub(crate) mod log;
pub(crate) mod lost;
pub(crate) mod merge_failed;
pub(crate) mod namespaces;
pub(crate) mod overviews;
pub(crate) mod parity;
pub(crate) mod places;
pub(crate) mod point_states;
pub(crate) mod points;
pub(crate) mod policies;
pub(crate) mod pool;
pub(crate) mod quotas;
pub(crate) mod renames;
pub(crate) mod room;
pub(crate) mod schedules;
pub(crate) mod schema;
pub(crate) mod scrub;
pub(crate) mod select;
pub(crate) mod snapshot;
pub(crate) mod space_days;
pub(crate) mod squeezed;
pub(crate) mod tasks;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod testing;
pub(crate) mod tokens;
pub(crate) mod trust;
pub(crate) mod usage;
pub(crate) mod verifications;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_types::clock::Clock;
use holdfast_types::ids::RepositoryId;
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, Transaction, TransactionBehavior};

use self::convert::OrCatalogError;
pub use self::convert::day_of;
use self::details::sorted::SortRoom;
use self::pool::{LOOK_UPS_MAX, REPORTS_MAX, ReadPool};
pub use self::room::give_up as give_up_room;
pub use self::snapshot::discard_copies;
use crate::{CatalogError, Latch, OwnLatch, Result};

/// Time to wait for another process's transaction. Ours take milliseconds; a slow disk's fsync may take seconds.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The catalog of one repository. Thread-safe; several processes may have it open, and each part says which of
/// its calls are atomic between them. Any function can fail with [`CatalogError::Busy`], [`CatalogError::Io`] or
/// [`CatalogError::Corrupt`], and any that writes with [`CatalogError::Full`], [`CatalogError::WriteFailed`] and,
/// once its [`Latch`] has a reason, [`CatalogError::ReadOnly`]; what else one can fail with is
/// said with it. What failed changed nothing,
/// except after [`CatalogError::WriteFailed`], when that is unknown.
#[derive(Debug)]
pub struct Catalog {
    // Both dropped before the writer: the last connection to close folds the log into the database, which a
    // reading one cannot.
    look_ups: ReadPool,
    reports: ReadPool,
    pub(crate) watcher: snapshot::Watcher,
    pub(crate) path: PathBuf,
    pub(crate) writer: Mutex<Connection>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Time at which this process last advanced the lock clock, on its monotonic clock.
    pub(crate) lock_clock_asked_ms: Mutex<i64>,
    /// Asked before every change, told of every failed one.
    latch: Arc<dyn Latch>,
    /// Set once the log that an earlier process left is durable. Read and set under the writer's lock.
    log_is_settled: AtomicBool,
    /// Set while no room is kept for a full disk, and should be.
    lacks_room: AtomicBool,
    /// Bytes of the file system that sorting leaves free.
    pub(crate) left_free_bytes: AtomicU64,
    /// Injected answer to every change, for tests.
    #[cfg(any(test, feature = "testing"))]
    injected: Mutex<Option<testing::InjectedFailure>>,
}

impl Catalog {
    /// Opens the catalog at `path` with a latch of its own.
    ///
    /// # Errors
    /// [`CatalogError::NotFound`] when there is none, or only an unfinished one;
    /// [`CatalogError::Unsupported`] when it is newer or cuts chunks differently; [`CatalogError::Outdated`];
    /// [`CatalogError::Corrupt`], [`CatalogError::Busy`], [`CatalogError::Full`], [`CatalogError::Io`].
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::open_with(path, clock, BUSY_TIMEOUT)
    }

    /// Creates the catalog of a new repository at `path`, with the namespace
    /// [`DEFAULT_NAMESPACE`](super::DEFAULT_NAMESPACE) and a latch of its own. What a crash leaves of an earlier attempt is taken
    /// over.
    ///
    /// # Errors
    /// [`CatalogError::Exists`] when there is a catalog already; otherwise as [`Catalog::open`].
    pub fn create(path: &Path, clock: Arc<dyn Clock>) -> Result<Self> {
        let mut writer = connection::open_writer(path, true, BUSY_TIMEOUT)?;
        if !schema::create(&mut writer, clock.as_ref())? {
            return Err(CatalogError::exists("catalog", path.display()));
        }
        Self::start(path, writer, clock, BUSY_TIMEOUT, Arc::<OwnLatch>::default())
    }

    /// Opens the catalog at `path` or creates it, to share `latch` with its owner; the flag says whether it was
    /// created.
    ///
    /// # Errors
    /// As [`Catalog::open`], never [`CatalogError::NotFound`].
    pub fn open_or_create(path: &Path, clock: Arc<dyn Clock>, latch: Arc<dyn Latch>) -> Result<(Self, bool)> {
        let mut writer = connection::open_writer(path, true, BUSY_TIMEOUT)?;
        let created = schema::create(&mut writer, clock.as_ref())?;
        Ok((Self::start(path, writer, clock, BUSY_TIMEOUT, latch)?, created))
    }

    /// Opens the catalog at `path`, which must be there, to share `latch` with its owner.
    ///
    /// # Errors
    /// As [`Catalog::open`].
    pub fn open_existing(path: &Path, clock: Arc<dyn Clock>, latch: Arc<dyn Latch>) -> Result<Self> {
        check_exists(path)?;
        let writer = connection::open_writer(path, false, BUSY_TIMEOUT)?;
        Self::start(path, writer, clock, BUSY_TIMEOUT, latch)
    }

    /// Creates the catalog of a repository that exists and has lost its own, at `path`: without any namespace, because
    /// the volume knows which there are.
    ///
    /// # Errors
    /// As [`Catalog::create`].
    pub fn create_for(path: &Path, clock: Arc<dyn Clock>, repository: RepositoryId) -> Result<Self> {
        let mut writer = connection::open_writer(path, true, BUSY_TIMEOUT)?;
        let created_ms = i64::try_from(repository.0.timestamp_ms()).unwrap_or(i64::MAX);
        if !schema::create_of(&mut writer, repository, created_ms, |_| Ok(()))? {
            return Err(CatalogError::exists("catalog", path.display()));
        }
        Self::start(path, writer, clock, BUSY_TIMEOUT, Arc::<OwnLatch>::default())
    }

    fn open_with(path: &Path, clock: Arc<dyn Clock>, busy_timeout: Duration) -> Result<Self> {
        check_exists(path)?;
        let writer = connection::open_writer(path, false, busy_timeout)?;
        Self::start(path, writer, clock, busy_timeout, Arc::<OwnLatch>::default())
    }

    fn start(
        path: &Path,
        writer: Connection,
        clock: Arc<dyn Clock>,
        busy_timeout: Duration,
        latch: Arc<dyn Latch>,
    ) -> Result<Self> {
        schema::check(&writer, path)?;
        connection::use_log(&writer, busy_timeout)?;
        schema::check_parameters(&namespaces::repository(&writer)?)?;
        Ok(Self {
            look_ups: ReadPool::new(path.to_owned(), busy_timeout, LOOK_UPS_MAX),
            reports: ReadPool::new(path.to_owned(), busy_timeout, REPORTS_MAX),
            watcher: snapshot::Watcher::default(),
            path: path.to_owned(),
            writer: Mutex::new(writer),
            lock_clock_asked_ms: Mutex::new(clock.monotonic_ms()),
            clock,
            latch,
            log_is_settled: AtomicBool::new(false),
            lacks_room: AtomicBool::new(false),
            left_free_bytes: AtomicU64::new(0),
            #[cfg(any(test, feature = "testing"))]
            injected: Mutex::default(),
        })
    }

    /// (W13) Before the first change of this process, and no change without. What fails is the change, not the start.
    fn settle_log(&self, writer: &mut Connection) -> Result<()> {
        if !self.log_is_settled.load(Ordering::Relaxed) {
            log::write_again(writer, &self.path)?;
            self.log_is_settled.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Runs `read`, which finds a few rows by an index, on one snapshot.
    pub(crate) fn look_up<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        on_snapshot(&self.look_ups, read)
    }

    /// Runs `read`, which may take seconds, on one snapshot.
    pub(crate) fn report<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        on_snapshot(&self.reports, read)
    }

    /// As [`Catalog::report`], for what SQLite sorts on the disk.
    pub(crate) fn report_sorted<T>(
        &self,
        read: impl FnOnce(&Connection, &SortRoom) -> Result<T>,
    ) -> Result<T> {
        let room = self.sort_room();
        self.reports.with(|connection| {
            room.watch(connection, Box::new(|| true), |connection| {
                let snapshot = connection.unchecked_transaction().or_error("read")?;
                read(&snapshot, &room)
            })
        })
    }

    /// Runs `sort`, which has a connection of its own, when its turn among reports has come.
    pub(crate) fn report_apart<T>(&self, sort: impl FnOnce(&SortRoom) -> Result<T>) -> Result<T> {
        self.reports.in_turn(|| sort(&self.sort_room()))
    }

    fn sort_room(&self) -> SortRoom {
        SortRoom::new(self.path.clone(), self.left_free_bytes.load(Ordering::Relaxed))
    }

    /// Runs `write` in a transaction that is durable when this returns `Ok`, and has changed nothing
    /// otherwise, except after [`CatalogError::WriteFailed`], when that is unknown.
    pub(crate) fn write<T>(&self, write: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
        self.change("write", |writer| transact(writer, write))
    }

    /// As [`Catalog::write`], for what makes room: where there is none, in the room that is kept for it.
    pub(crate) fn write_on_full_disk<T>(&self, write: impl Fn(&Transaction<'_>) -> Result<T>) -> Result<T> {
        match self.write(&write) {
            Err(CatalogError::Full) => {}
            answer => return answer,
        }
        if room::give_up(&self.path) {
            self.lacks_room.store(true, Ordering::Relaxed);
            match self.write(&write) {
                Err(CatalogError::Full) => {}
                answer => return answer,
            }
        }
        // The log's room on the disk is its own already: folded in, it begins at its front again.
        self.checkpoint()?;
        self.write(write)
    }

    /// Keeps room for a full disk, now or, when there is none, once something was deleted.
    ///
    /// # Errors
    /// When there is none now.
    pub fn keep_room(&self) -> std::io::Result<()> {
        let kept = room::keep(&self.path);
        self.lacks_room.store(kept.is_err(), Ordering::Relaxed);
        kept
    }

    /// Keeps room again after a deletion, which may have freed some.
    pub(crate) fn keep_room_again(&self) {
        if self.lacks_room.load(Ordering::Relaxed) {
            // Tried again after the next.
            let _ = self.keep_room();
        }
    }

    /// Runs `change` in a transaction and takes it back. Its failure tells the latch nothing.
    pub(crate) fn try_change(&self, change: impl FnOnce(&Transaction<'_>) -> Result<()>) -> Result<()> {
        let mut writer = self.writer.lock();
        #[cfg(any(test, feature = "testing"))]
        if let Some(failure) = *self.injected.lock() {
            return Err(failure.answer());
        }
        if let Some(reason) = self.latch.reason() {
            return Err(CatalogError::ReadOnly { reason });
        }
        let transaction =
            writer.transaction_with_behavior(TransactionBehavior::Immediate).or_error("write")?;
        change(&transaction)?;
        transaction.rollback().or_error("write")
    }

    /// Lets `change` write unless changes have stopped (W9), and reports its failure to the latch.
    pub(crate) fn change<T>(
        &self,
        action: &'static str,
        change: impl FnOnce(&mut Connection) -> Result<T>,
    ) -> Result<T> {
        let mut writer = self.writer.lock();
        if let Some(reason) = self.latch.reason() {
            return Err(CatalogError::ReadOnly { reason });
        }
        #[cfg(any(test, feature = "testing"))]
        if let Some(failure) = *self.injected.lock() {
            return Err(failure.answer().on_change(action))
                .inspect_err(|error| self.latch.change_failed(error));
        }
        // Reported under the writer's lock: no other change begins in between.
        let changed = self.settle_log(&mut writer).and_then(|()| change(&mut writer));
        changed.map_err(|error| error.on_change(action)).inspect_err(|error| {
            self.latch.change_failed(error);
        })
    }
}

fn check_exists(path: &Path) -> Result<()> {
    if path.exists() { Ok(()) } else { Err(CatalogError::not_found("catalog", path.display())) }
}

fn on_snapshot<T>(pool: &ReadPool, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    pool.with(|connection| {
        let snapshot = connection.unchecked_transaction().or_error("read")?;
        read(&snapshot)
    })
}

fn transact<T>(writer: &mut Connection, write: impl FnOnce(&Transaction<'_>) -> Result<T>) -> Result<T> {
    // Immediate: waits for other processes now, instead of failing in the middle.
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate).or_error("write")?;
    let value = write(&transaction)?;
    transaction.commit().or_error("write")?;
    Ok(value)
}

impl Drop for Catalog {
    fn drop(&mut self) {
        // Only saves time at the next start: a log that stays is read then.
        let failed = matches!(
            self.checkpoint(),
            Err(CatalogError::ReadOnly { .. } | CatalogError::WriteFailed { .. })
        );
        if failed || !*self.log_is_settled.get_mut() {
            // (W9, W13) SQLite would fold the log in on its own when its last connection closes.
            let writer = self.writer.get_mut();
            let _ = writer.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true);
        }
    }
}

#[cfg(test)]
mod tests;
