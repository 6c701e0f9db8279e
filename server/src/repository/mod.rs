//! Locations of a repository: this is the one place that turns the configuration into the engine's parts.
//!
//! The order is that of ORDERING, "Starting": the folder's lock, then the catalog, then everything else, which
//! the engine does.

mod audit;
pub(crate) mod destroy;
pub(crate) mod encryption;
pub mod recover;
pub mod snapshot;
mod space;
mod tiers;
mod without_keys;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::catalog::{Catalog, CatalogError, discard_copies, give_up_room};
use holdfast_engine::clock::Clock;
use holdfast_engine::owner::adopt;
use holdfast_engine::{EngineError, EngineOptions, EngineParts, Health, Obstacle, traces_of_repository};
use holdfast_proto::ErrorCode;
use holdfast_proto::size::ByteSize;
use holdfast_sealing::SealedVolume;
use holdfast_volume::{LocalVolume, Volume};
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::config::{Reserve, Settings};
use crate::error::{ServiceError, io_code};
use crate::memory::Budget;
pub(crate) use crate::repository::audit::{
    AuditPlace, AuditReport, AuditSteering, audit, last_audit, want_audit,
};
pub use crate::repository::encryption::AtWork as Encryption;
pub use crate::repository::recover::Brought;
pub(crate) use crate::repository::space::space_now;
pub use crate::repository::tiers::Tiers;
#[cfg(test)]
pub(crate) use crate::repository::tiers::names;
pub(crate) use crate::repository::tiers::{
    Asked, ClassCost, Cost, KeptBack, Month, MonthCost, Plan, Requests, Thawed, Totals, changing, copies_of,
    cost, kept_back, moved, published, read_usage, record_error, record_path, thawing, totals,
};
pub(crate) use crate::repository::without_keys::open_without_keys;

/// Reads of a bucket under way at once for restores: 16 of some 1 MiB fill 1 Gbit/s at 120 ms. What they hold is in the budget
/// of reading ahead.
const READS_FAR: usize = 16;

/// Folder of the volume within the data folder.
pub(crate) const BLOBS: &str = "blobs";

/// Path of the catalog's database. The `token` commands open it beside a running server.
pub fn catalog_path(data_dir: &Path) -> PathBuf {
    data_dir.join("catalog.db")
}

/// Opens the catalog of a folder that another process may be using.
///
/// # Errors
/// The catalog's.
pub fn open_beside(data_dir: &Path, clock: &Arc<dyn Clock>) -> Result<Catalog, ServiceError> {
    Ok(Catalog::open(&catalog_path(data_dir), Arc::clone(clock))?)
}

/// Returns true if `folder` holds a repository.
pub fn is_repository(folder: &Path) -> bool {
    fs::metadata(catalog_path(folder)).is_ok_and(|found| found.is_file())
}

/// The engine's parts as the settings say, with the lock of the data folder; creates what is not there.
///
/// # Errors
/// `Busy` when another process has the folder; otherwise what cannot be opened.
pub fn open_parts(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<EngineParts, ServiceError> {
    Ok(open_with_all(settings, clock)?.0)
}

/// Parts of a repository beside the engine's.
#[derive(Debug)]
pub struct Beside {
    /// Encryption at rest; `None`: the repository is not encrypted.
    pub encryption: Option<Arc<Encryption>>,
    /// The bucket behind the volume.
    pub tiers: Option<Arc<Tiers>>,
}

/// As [`open_parts`], with what there is beside them.
///
/// # Errors
/// As [`open_parts`].
pub fn open_with_all(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<(EngineParts, Beside), ServiceError> {
    let folder = &settings.data_dir;
    fs::create_dir_all(folder).map_err(|error| {
        ServiceError::new(io_code(&error), format!("cannot create {}: {error}", folder.display()))
    })?;
    // (S1) The lock before anything is read.
    let lock = FolderLock::take(folder)?;
    let path = catalog_path(folder);
    // (W15) Of processes that were killed: no other has the folder now.
    if let Err(error) = discard_copies(&path) {
        tracing::warn!(%error, "cannot remove what is left of copies of the catalog");
    }
    let budget = Budget::find(settings)?;
    let local: Arc<dyn Volume> = Arc::new(LocalVolume::open(folder.join(BLOBS)).map_err(EngineError::from)?);
    let (raw, tiers) = tiers::around(local, settings, &budget, clock)?;
    // Encrypted or not.
    let traces = traces_of_repository(&SealedVolume::locked(Arc::clone(&raw)))?;
    let has_data = traces.is_some();
    // One latch for both, so that a change of the catalog that fails stops the engine, whichever call made it.
    let health = Arc::<Health>::default();
    // (S13) Told for as long as this process runs: it cannot come to know the bucket.
    health.report(Obstacle::NoBucket, tiers.as_ref().and_then(|tiers| tiers.lacks_bucket.clone()));
    let latch = Arc::<Health>::clone(&health);
    // (S2) SQLite rolls its own log forward or back.
    let catalog: Arc<Catalog> = match traces {
        // (P5) Beside a volume that holds a repository, no catalog is ever made.
        Some(traces) => Arc::new(
            open(
                &path,
                || Catalog::open_existing(&path, Arc::clone(clock), Arc::<Health>::clone(&latch)),
                Catalog::keep_room,
            )
            .map_err(|error| orphaned(error, &path, &folder.join(BLOBS), &traces))?,
        ),
        None => Arc::new(
            open(
                &path,
                || Catalog::open_or_create(&path, Arc::clone(clock), Arc::<Health>::clone(&latch)),
                |(catalog, _)| catalog.keep_room(),
            )?
            .0,
        ),
    };
    let id = catalog.repository()?.id;
    // Before anything is changed.
    tiers::require_encryption(settings, &*raw, has_data)?;
    let (volume, encryption) = encryption::around(&raw, id, settings, has_data, clock)?;
    let parts = EngineParts {
        data: Arc::clone(&volume),
        index: volume,
        catalog,
        clock: Arc::clone(clock),
        health,
        options: engine_options(settings, &budget),
        lock: Some(Box::new(lock)),
    };
    Ok((parts, Beside { encryption, tiers }))
}

/// The engine's options, as the settings say.
fn engine_options(settings: &Settings, budget: &Budget) -> EngineOptions {
    let location = settings.data_dir.join(BLOBS).display().to_string();
    let mut options = EngineOptions {
        lease_secs: settings.lease_secs,
        reread_days: settings.reread_days,
        location,
        ..EngineOptions::default()
    };
    if let Reserve::Bytes(ByteSize(bytes)) = settings.reserve {
        options.reserve_bytes = Some(bytes);
    }
    if settings.s3.is_some() {
        options.read_threads = READS_FAR;
    }
    options.index.write_buffer_bytes = budget.index_buffer_bytes;
    options.directories.memory_bytes = budget.directories_bytes;
    options.memory = budget.engine;
    options
}

/// Why a catalog cannot be opened beside a volume that holds `traces`, and what to do: a new one would make a new
/// repository, to which nothing on the volume belongs, with a new admin token.
fn orphaned(error: CatalogError, path: &Path, blobs: &Path, traces: &str) -> ServiceError {
    let what = match &error {
        CatalogError::NotFound { .. } => "is missing or empty".to_owned(),
        CatalogError::Corrupt { detail } => format!("cannot be read ({detail})"),
        CatalogError::Invalid { reason } => format!("is not a catalog: {reason}"),
        _ => return error.into(),
    };
    let (path, blobs) = (path.display(), blobs.display());
    ServiceError::new(
        ErrorCode::Damaged,
        format!(
            "the catalog {path} {what}, but {blobs} holds {traces}; nothing was changed. Put the catalog back, or move \
             what is left of it away and run 'holdfast-server recover --from {blobs}', which makes a new one of what \
             the volume knows"
        ),
    )
}

// One process per data folder.

/// Name of the lock file within the data folder.
pub(crate) const LOCK_FILE: &str = "repository.lock";

/// Holds the lock; the operating system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct FolderLock(#[expect(dead_code, reason = "held, never read")] File);

impl FolderLock {
    /// Takes the lock and writes into the file which process has it.
    ///
    /// # Errors
    /// `Busy`, naming the process that has it; when the file cannot be opened.
    pub(crate) fn take(folder: &Path) -> Result<Self, ServiceError> {
        let path = folder.join(LOCK_FILE);
        let failed =
            |error| ServiceError::new(io_code(&error), format!("cannot open {}: {error}", path.display()));
        let mut options = OpenOptions::new();
        // Root may be the one who does this, in a folder of another user: it opens no file that a link names.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        adopt(&file, &path).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // Only for the message.
            let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut pid);
            let pid = pid.split_whitespace().next().unwrap_or("unknown");
            return Err(ServiceError::new(
                ErrorCode::Busy,
                format!(
                    "{} is in use by process {pid}; stop that server first, or use another folder",
                    folder.display()
                ),
            ));
        }
        // In place, and cut afterwards: on a full disk a file that was emptied first may get no room any more.
        let this = format!("{}\n", std::process::id());
        let told = file.rewind().and_then(|()| file.write_all(this.as_bytes()));
        if let Err(error) = told.and_then(|()| file.set_len(this.len() as u64)) {
            // Only for others' messages.
            tracing::warn!(file = %path.display(), %error, "cannot write this process's number into the lock file");
        }
        Ok(Self(file))
    }

    /// Removes the file of a folder that is to go, if nothing else is in it.
    pub(crate) fn remove(self, folder: &Path) -> std::io::Result<()> {
        if std::fs::read_dir(folder)?.count() > 1 {
            return Ok(());
        }
        std::fs::remove_file(folder.join(LOCK_FILE))
    }
}

// Room for opening the catalog on a full disk: what is kept beside it is given up when there is no other. A crash leaves
// it or not; it is made again by who has room, when the catalog is opened or when something was deleted.

/// Opens the catalog at `path` by `open`, with the room that is kept for it if there is no other, and has `keep` keep room
/// again.
///
/// # Errors
/// The errors of `open`.
fn open<T>(
    path: &Path,
    open: impl Fn() -> Result<T, CatalogError>,
    keep: impl Fn(&T) -> io::Result<()>,
) -> Result<T, CatalogError> {
    let opened = match open() {
        Err(CatalogError::Full) if give_up_room(path) => {
            tracing::warn!("the disk is full: gave up the room kept for opening the catalog");
            open()?
        }
        outcome => outcome?,
    };
    if let Err(error) = keep(&opened) {
        tracing::warn!(%error, "cannot keep room for the catalog on a full disk");
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use holdfast_engine::Engine;
    use holdfast_engine::catalog::Latch as _;
    use holdfast_engine::clock::SystemClock;
    use holdfast_volume::testing::put;

    use super::*;

    fn settings(folder: &Path) -> Settings {
        Settings { data_dir: folder.to_owned(), ..Settings::default() }
    }

    /// (P5) Missing, empty, garbage, another application's: none becomes a new repository.
    #[test]
    fn a_repository_without_its_catalog_is_refused() {
        let garbage: &[u8] = b"this was a catalog once, and is long enough to be looked at as a database";
        for traces in ["repository", "containers/0000000/0000000001.data", "points/n/v/x.1", "snapshots/1"] {
            for left in [None, Some(&b""[..]), Some(garbage)] {
                let folder = tempfile::tempdir().unwrap();
                let volume = LocalVolume::open(folder.path().join(BLOBS)).unwrap();
                put(&volume, traces, b"x");
                let path = catalog_path(folder.path());
                if let Some(bytes) = left {
                    fs::write(&path, bytes).unwrap();
                }
                let clock: Arc<dyn Clock> = Arc::new(SystemClock);
                let error = open_parts(&settings(folder.path()), &clock).unwrap_err();
                assert_eq!(error.code, ErrorCode::Damaged, "{traces}: {error}");
                assert!(error.message.contains("holdfast-server recover --from"), "{error}");
                assert_eq!(fs::read(&path).ok().as_deref(), left, "{traces}: nothing was changed");
            }
        }
    }

    #[test]
    fn an_empty_folder_and_what_a_crash_left_of_one_become_a_repository() {
        for left in [None, Some(&b""[..])] {
            let folder = tempfile::tempdir().unwrap();
            if let Some(bytes) = left {
                fs::write(catalog_path(folder.path()), bytes).unwrap();
            }
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            drop(open_parts(&settings(folder.path()), &clock).unwrap());
        }
    }

    /// A failed write that a token command meets must stop backups, too.
    #[test]
    fn catalog_and_engine_share_one_latch() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let parts = open_parts(&settings, &clock).unwrap();
        parts.catalog.reserve_container_numbers(1).unwrap();
        parts.health.change_failed(&CatalogError::WriteFailed { action: "write", cause: "disk".into() });
        let refused = parts.catalog.reserve_container_numbers(1).unwrap_err();
        assert!(matches!(refused, CatalogError::ReadOnly { .. }), "{refused}");
    }

    /// (S13) Nothing of it could be restored.
    #[test]
    fn a_server_whose_settings_lack_the_bucket_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        drop(open_parts(&settings(folder.path()), &clock).unwrap());
        let not_ready = || {
            let engine = Engine::assemble(open_parts(&settings(folder.path()), &clock).unwrap()).unwrap();
            engine.not_ready()
        };
        // Copies alone lack nothing.
        drop(holdfast_tiers::Record::open_or_create(&record_path(folder.path()), "s3://b/x").unwrap());
        assert_eq!(not_ready(), []);
        let local = LocalVolume::open(folder.path().join(BLOBS)).unwrap();
        holdfast_tiers::note_made_of_bucket(&local).unwrap();
        let found = not_ready();
        assert_eq!(found.len(), 1);
        assert!(found[0].obstacle == Obstacle::NoBucket && found[0].reason.contains("s3://b/x"), "{found:?}");
    }

    #[test]
    fn copies_of_the_catalog_that_a_killed_process_left_go_at_a_start() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join("catalog.db.copy-7");
        fs::write(&left, b"half").unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        drop(open_parts(&settings(folder.path()), &clock).unwrap());
        assert!(!left.exists());
    }

    #[test]
    fn one_process_has_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let held = FolderLock::take(folder.path()).unwrap();
        let error = FolderLock::take(folder.path()).unwrap_err();
        assert_eq!(error.code, ErrorCode::Busy, "{error}");
        assert!(error.message.contains(&std::process::id().to_string()), "{error}");
        drop(held);
        FolderLock::take(folder.path()).unwrap();
    }

    /// A user whose folder it is could have root write to any file.
    #[test]
    fn a_lock_is_not_taken_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("another");
        std::os::unix::fs::symlink(&other, folder.path().join(LOCK_FILE)).unwrap();
        let error = FolderLock::take(folder.path()).unwrap_err();
        assert!(error.message.contains(LOCK_FILE), "{}", error.message);
        assert!(!other.exists());
        fs::write(&other, b"theirs").unwrap();
        FolderLock::take(folder.path()).unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), b"theirs");
    }

    #[test]
    fn the_room_is_given_up_when_there_is_no_other_and_kept_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let (catalog, room) = (folder.path().join("catalog.db"), folder.path().join("catalog.room"));
        let keep = |(): &()| fs::write(&room, b"room");
        let on_a_full_disk = || if room.exists() { Err(CatalogError::Full) } else { Ok(()) };
        open(&catalog, || Ok(()), keep).unwrap();
        assert!(room.exists());
        open(&catalog, on_a_full_disk, |(): &()| Err(io::ErrorKind::StorageFull.into())).unwrap();
        assert!(!room.exists(), "given up, and there was none to keep");
        let refused = open(&catalog, || Err::<(), _>(CatalogError::Full), keep);
        assert!(matches!(refused, Err(CatalogError::Full)));
        open(&catalog, || Ok(()), keep).unwrap();
        let refused = open(&catalog, || Err::<(), _>(CatalogError::Busy), keep);
        assert!(matches!(refused, Err(CatalogError::Busy)));
        assert!(room.exists(), "given up for nothing but lack of room");
    }
}
