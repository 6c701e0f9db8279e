//! An encrypted repository whose keys are not opened: its catalog, and a volume that gives and takes nothing (K6).

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use holdfast_engine::catalog::Catalog;
use holdfast_engine::clock::Clock;
use holdfast_engine::{EngineError, EngineParts, Health};
use holdfast_proto::ErrorCode;
use holdfast_sealing::read_table;
use holdfast_volume::{Blob, BlobName, BlobWriter, ListPage, LocalVolume, Owner, Space, Volume, VolumeError};

use super::encryption::{refuse_without_keys, table_error};
use super::{BLOBS, FolderLock, catalog_path, engine_options, is_repository};
use crate::config::Settings;
use crate::error::ServiceError;
use crate::memory::Budget;

/// The engine's parts for [`holdfast_engine::Engine::assemble_locked`], and why nothing else can be done.
///
/// # Errors
/// `Busy` when another process has the folder; `NotFound`: there is no catalog; `Invalid`: the repository is not encrypted.
pub(crate) fn open_without_keys(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<(EngineParts, String), ServiceError> {
    let folder = &settings.data_dir;
    if !is_repository(folder) {
        return Err(ServiceError::new(
            ErrorCode::NotFound,
            format!("there is no repository in {}, and without its keys none is made", folder.display()),
        ));
    }
    // (S1) The lock before anything is read.
    let lock = FolderLock::take(folder)?;
    let why = why(&folder.join(BLOBS))?;
    let health = Arc::<Health>::default();
    let latch = Arc::<Health>::clone(&health);
    let catalog: Arc<Catalog> =
        Arc::new(Catalog::open_existing(&catalog_path(folder), Arc::clone(clock), latch)?);
    let data: Arc<dyn Volume> = Arc::new(Untouched {
        volume: LocalVolume::open(folder.join(BLOBS)).map_err(EngineError::from)?,
        why: why.clone(),
    });
    let parts = EngineParts {
        index: Arc::clone(&data),
        data,
        catalog,
        clock: Arc::clone(clock),
        health,
        options: engine_options(settings, &Budget::find(settings)?),
        lock: Some(Box::new(lock)),
    };
    Ok((parts, why))
}

/// Reason told to callers that are refused for want of keys.
fn why(blobs: &Path) -> Result<String, ServiceError> {
    let volume = LocalVolume::open(blobs).map_err(EngineError::from)?;
    let wanted = match read_table(&volume).map_err(table_error)? {
        Some(table) => format!("repository key {} is wanted", table.key()),
        None if refuse_without_keys(&volume).is_err() => {
            "the volume has no keys (the folder keys)".to_owned()
        }
        None => {
            return Err(ServiceError::invalid(
                "the repository is not encrypted, so there are no keys to do without: start the server without --without-keys",
            ));
        }
    };
    Ok(format!(
        "the server was started without the keys of its encrypted repository (--without-keys), for administration only; \
         {wanted}. Nothing is damaged: backups, restores and all that reads or changes what is stored work again when it is \
         started with its keys"
    ))
}

/// Tells how much room there is, and nothing else.
#[derive(Debug)]
struct Untouched {
    volume: LocalVolume,
    why: String,
}

impl Untouched {
    fn refused(&self, name: &BlobName) -> VolumeError {
        VolumeError::NotReadableNow { name: name.to_string(), source: self.why.clone().into() }
    }
}

impl Volume for Untouched {
    fn create_for(&self, name: &BlobName, _: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        Err(self.refused(name))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        Err(self.refused(name))
    }

    fn list(
        &self,
        prefix: &BlobName,
        _: Option<&BlobName>,
        _: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        Err(self.refused(prefix))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        Err(self.refused(name))
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        Ok(0)
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        self.volume.space()
    }

    fn handles_outlive_removal(&self) -> bool {
        self.volume.handles_outlive_removal()
    }
}
