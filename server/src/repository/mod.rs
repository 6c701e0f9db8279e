//! Where a repository lies: this is the one place that turns the configuration into the engine's parts.
//!
//! The order is that of ORDERING, "Starting": the folder's lock, then the catalog, then everything else, which
//! the engine does.

mod audit;
pub(crate) mod destroy;
pub(crate) mod encryption;
mod lock;
pub mod recover;
mod room;
pub mod snapshot;
mod tiers;
mod without_keys;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::catalog::CatalogError;
use holdfast_engine::catalog::{Catalog, discard_copies};
use holdfast_engine::clock::Clock;
use holdfast_engine::{EngineError, EngineOptions, EngineParts, Health, Obstacle, traces_of_repository};
use holdfast_proto::ErrorCode;
use holdfast_sealing::SealedVolume;
use holdfast_volume::{LocalVolume, Volume};

use crate::config::{ByteSize, Reserve, Settings};
use crate::error::{ServiceError, io_code};
use crate::memory::Budget;
pub(crate) use audit::{AuditPlace, AuditReport, AuditSteering, audit, last_audit, want_audit};
pub use encryption::AtWork as Encryption;
pub(crate) use lock::FolderLock;
pub(crate) use tiers::{
    Asked, ClassCost, Cost, KeptBack, Month, MonthCost, Plan, Requests, Thawed, Totals, changing, copies_of,
    cost, kept_back, moved, published, read_usage, record_error, record_path, thawing, totals,
};
pub use tiers::{Brought, Tiers};
pub(crate) use without_keys::open_without_keys;

/// Reads of a bucket under way at once for restores: 16 of some 1 MiB fill 1 Gbit/s at 120 ms. What they hold is in the budget
/// of reading ahead.
const READS_FAR: usize = 16;

/// Folder of the volume within the data folder.
pub(crate) const BLOBS: &str = "blobs";

/// Where the catalog's database is. The `token` commands open it beside a running server.
pub fn catalog_path(data_dir: &Path) -> PathBuf {
    data_dir.join("catalog.db")
}

/// The catalog of a folder that another process may be using. (S16) Only under the folder's lock is it brought to this
/// version's schema: a running server of an older version could not read it any more.
///
/// # Errors
/// `Busy`, when the folder is in use and its catalog an older version's; the catalog's.
pub fn open_beside(data_dir: &Path, clock: &Arc<dyn Clock>) -> Result<Catalog, ServiceError> {
    let path = catalog_path(data_dir);
    let older = Catalog::is_older(&path)?;
    let _lock = if older { FolderLock::hold(data_dir)? } else { None };
    Ok(Catalog::open(&path, Arc::clone(clock))?)
}

/// Whether `folder` holds a repository.
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

/// What there is beside the parts of the engine.
#[derive(Debug)]
pub struct Beside {
    /// Of a repository that is encrypted.
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
            room::open(
                &path,
                || Catalog::open_existing(&path, Arc::clone(clock), Arc::<Health>::clone(&latch)),
                Catalog::keep_room,
            )
            .map_err(|error| orphaned(error, &path, &folder.join(BLOBS), &traces))?,
        ),
        None => Arc::new(
            room::open(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layer, resolve};
    use holdfast_engine::Engine;
    use holdfast_engine::catalog::{CatalogError, Latch as _};
    use holdfast_engine::clock::SystemClock;
    use holdfast_volume::testing::put;

    fn settings(folder: &Path) -> Settings {
        let layer = Layer { data_dir: Some(folder.to_owned()), ..Layer::default() };
        resolve(&layer, None, &|_| None).unwrap().settings
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

    /// (S16) Beside a running server it is refused; alone, it gets this version's schema.
    #[test]
    fn a_catalog_of_an_older_version_is_left_alone_beside_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        drop(open_parts(&settings(folder.path()), &clock).unwrap());
        let path = catalog_path(folder.path());
        drop(open_beside(folder.path(), &clock).unwrap());
        let mut bytes = fs::read(&path).unwrap();
        // `user_version`, in the header of the database.
        let version = bytes[63];
        bytes[63] = 0;
        let made_older = bytes.clone();
        fs::write(&path, &made_older).unwrap();
        let held = held_by_another(folder.path());
        let error = open_beside(folder.path(), &clock).unwrap_err();
        assert_eq!(error.code, ErrorCode::Busy, "{error}");
        assert_eq!(fs::read(&path).unwrap()[63], 0, "it is as it was");
        drop(held);
        bytes[63] = version;
        fs::write(&path, &bytes).unwrap();
        drop(open_beside(folder.path(), &clock).unwrap());
    }

    /// The lock of the folder, with another process's number in its file.
    fn held_by_another(folder: &Path) -> FolderLock {
        let lock = FolderLock::take(folder).unwrap();
        fs::write(folder.join("repository.lock"), "1\n").unwrap();
        lock
    }

    /// What a token command meets must stop backups, too.
    #[test]
    fn catalog_and_engine_share_one_latch() {
        let folder = tempfile::tempdir().unwrap();
        let layer = Layer { data_dir: Some(folder.path().to_owned()), ..Layer::default() };
        let settings = resolve(&layer, None, &|_| None).unwrap().settings;
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
}
