//! Opening the repository as the settings say.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use holdfast_engine::clock::Clock;
use holdfast_engine::{Engine, EngineOptions};

use super::StartError;
use crate::config::{ByteSize, Reserve, Settings};
use crate::error::ServiceError;

/// The engine's options, as the settings say.
pub fn engine_options(settings: &Settings, clock: &Arc<dyn Clock>) -> EngineOptions {
    let mut options = EngineOptions::new(&settings.data_dir);
    options.lease_secs = settings.lease_secs;
    if let Reserve::Bytes(ByteSize(bytes)) = settings.reserve {
        options.reserve_bytes = Some(bytes);
    }
    // Only a 32-bit machine cannot address what the settings allow (64 GiB); it gets what it can.
    options.index.write_buffer_bytes = usize::try_from(settings.index_memory.0).unwrap_or(usize::MAX);
    options.clock = Arc::clone(clock);
    options
}

/// Whether `folder` contains a repository.
pub fn is_repository(folder: &Path) -> bool {
    fs::metadata(EngineOptions::catalog_path(folder)).is_ok_and(|found| found.is_file())
}

/// Opens the repository, or creates it.
pub(super) async fn open(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Engine, StartError> {
    let options = engine_options(settings, clock);
    let opened = tokio::task::spawn_blocking(move || Engine::open(options).map_err(ServiceError::from))
        .await
        .map_err(ServiceError::from)
        .and_then(|opened| opened);
    let engine = opened
        .map_err(|source| StartError::Open { folder: settings.data_dir.display().to_string(), source })?;
    tracing::info!(repository = %engine.repository_id(), summary = ?engine.opened(), "repository opened");
    Ok(engine)
}
