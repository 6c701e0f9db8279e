//! Where a repository lies: this is the one place that turns the configuration into the engine's parts.
//!
//! The order is that of ORDERING, "Starting": the folder's lock, then the catalog, then everything else, which
//! the engine does.

mod lock;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use holdfast_engine::catalog::{Catalog, SqliteCatalog};
use holdfast_engine::clock::Clock;
use holdfast_engine::{EngineError, EngineOptions, EngineParts, Health, count_containers};
use holdfast_proto::ErrorCode;
use holdfast_volume::{LocalVolume, Volume};

use crate::config::{ByteSize, Reserve, Settings};
use crate::error::ServiceError;
use crate::memory::Budget;
use lock::FolderLock;

/// Folder of the volume within the data folder.
const BLOBS: &str = "blobs";

/// Where the catalog's database is. The `token` commands open it beside a running server.
pub fn catalog_path(data_dir: &Path) -> PathBuf {
    data_dir.join("catalog.db")
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
    let folder = &settings.data_dir;
    fs::create_dir_all(folder).map_err(|error| {
        ServiceError::new(ErrorCode::Internal, format!("cannot create {}: {error}", folder.display()))
    })?;
    // (S1) The lock before anything is read.
    let lock = FolderLock::take(folder)?;
    let budget = Budget::find(settings)?;
    let volume: Arc<dyn Volume> = Arc::new(LocalVolume::open(folder.join(BLOBS)).map_err(EngineError::from)?);
    let path = catalog_path(folder);
    refuse_orphaned(&path, &*volume)?;
    // One latch for both, so that a change of the catalog that fails stops the engine, whichever call made it.
    let health = Arc::<Health>::default();
    // (S2) SQLite rolls its own log forward or back.
    let (catalog, _created) =
        SqliteCatalog::open_or_create(&path, Arc::clone(clock), Arc::<Health>::clone(&health))?;
    let catalog: Arc<dyn Catalog> = Arc::new(catalog);
    Ok(EngineParts {
        data: Arc::clone(&volume),
        index: volume,
        catalog,
        clock: Arc::clone(clock),
        health,
        options: engine_options(settings, &budget),
        lock: Some(Box::new(lock)),
    })
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
    options.index.write_buffer_bytes = budget.index_buffer_bytes;
    options.directories.memory_bytes = budget.directories_bytes;
    options.memory = budget.engine;
    options
}

/// Fails when there are containers but no catalog: a new catalog would make a new repository, to which none
/// of them belong.
fn refuse_orphaned(catalog: &Path, volume: &dyn Volume) -> Result<(), ServiceError> {
    if catalog.exists() {
        return Ok(());
    }
    let containers = count_containers(volume)?;
    if containers == 0 {
        return Ok(());
    }
    let path = catalog.display();
    Err(ServiceError::new(
        ErrorCode::Damaged,
        format!(
            "{path} is missing, but {containers} containers are there: put the catalog back from its backup, or start in an empty folder"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layer, resolve};
    use holdfast_engine::catalog::{CatalogError, Latch as _};
    use holdfast_engine::clock::SystemClock;
    use holdfast_volume::testing::put;

    #[test]
    fn containers_without_a_catalog_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let volume = LocalVolume::open(folder.path().join(BLOBS)).unwrap();
        let catalog = catalog_path(folder.path());
        refuse_orphaned(&catalog, &volume).unwrap();
        put(&volume, "containers/0000000/0000000001.data", b"x");
        let error = refuse_orphaned(&catalog, &volume).unwrap_err();
        assert_eq!(error.code, ErrorCode::Damaged);
        assert!(error.message.contains("1 containers"), "{error}");
        fs::write(&catalog, b"").unwrap();
        refuse_orphaned(&catalog, &volume).unwrap();
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
