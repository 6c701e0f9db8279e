//! Container statistics, looked up at most once a minute however often they are asked for.

use std::time::{Duration, Instant};

use holdfast_engine::StorageStatistics;
use parking_lot::Mutex;

use crate::app::App;
use crate::error::ServiceError;

/// How long what was found counts as current.
const KEPT: Duration = Duration::from_secs(60);

/// Containers sampled: some 20 MB of directories.
const CONTAINERS_MAX: usize = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Kept(Mutex<Option<(Instant, StorageStatistics)>>);

impl Kept {
    /// The statistics. Blocks; whoever comes meanwhile waits for the same answer.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn get(&self, app: &App) -> Result<StorageStatistics, ServiceError> {
        let mut kept = self.0.lock();
        if let Some((_, found)) = kept.as_ref().filter(|(at, _)| at.elapsed() < KEPT) {
            return Ok(found.clone());
        }
        let found = app.engine.storage_statistics(CONTAINERS_MAX)?;
        *kept = Some((Instant::now(), found.clone()));
        Ok(found)
    }
}
