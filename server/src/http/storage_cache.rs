//! Cache for results that take reading all containers' rows or many directories: a page that several people have open
//! must not cost a walk over all of them each time.

use std::time::Instant;

use holdfast_engine::StorageStatistics;
use holdfast_engine::catalog::ContainerTotals;
use holdfast_engine::ids::NamespaceId;
use parking_lot::Mutex;

use super::bounds::{SAMPLED_CONTAINERS_MAX, STORAGE_CACHE_AGE};
use crate::activity::Changes;
use crate::app::App;
use crate::error::ServiceError;

/// Storage statistics, cached for a while.
#[derive(Debug, Default)]
pub(super) struct StorageCache {
    statistics: Slot<StorageStatistics>,
    containers: Slot<Vec<ContainerTotals>>,
}

#[derive(Debug)]
struct Slot<T>(Mutex<Option<(Instant, Changes, T)>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Slot<T> {
    /// The cached value if it is recent and was found after the last of `changes`, else what `find` finds. A caller
    /// that comes meanwhile waits for the same value. Blocks.
    fn get(
        &self,
        changes: Changes,
        find: impl FnOnce() -> Result<T, ServiceError>,
    ) -> Result<T, ServiceError> {
        let mut cached = self.0.lock();
        if let Some((at, of, found)) = cached.as_ref()
            && at.elapsed() < STORAGE_CACHE_AGE
            && *of == changes
        {
            return Ok(found.clone());
        }
        let found = find()?;
        *cached = Some((Instant::now(), changes, found.clone()));
        Ok(found)
    }
}

impl StorageCache {
    /// Compression of the stored data, as of the last minute. Blocks.
    ///
    /// # Errors
    /// The engine's.
    pub(super) fn statistics(&self, app: &App) -> Result<StorageStatistics, ServiceError> {
        self.statistics
            .get(Changes::default(), || Ok(app.engine.storage_statistics(SAMPLED_CONTAINERS_MAX)?))
    }

    /// Containers by kind, as of the last run that ended. Blocks.
    ///
    /// # Errors
    /// The catalog's.
    pub(super) fn containers(
        &self,
        app: &App,
        namespaces: Option<&[NamespaceId]>,
    ) -> Result<Vec<ContainerTotals>, ServiceError> {
        match namespaces {
            None => {
                self.containers.get(app.activity.changes(), || Ok(app.catalog().container_totals(None)?))
            }
            some => Ok(app.catalog().container_totals(some)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_until_something_changes() {
        let slot = Slot::default();
        let (first, later) = (Changes::default(), Changes { details: 1, ..Changes::default() });
        assert_eq!(slot.get(first, || Ok(1)).unwrap(), 1);
        assert_eq!(slot.get(first, || Ok(2)).unwrap(), 1);
        assert_eq!(slot.get(later, || Ok(3)).unwrap(), 3);
        assert!(slot.get(first, || Err(ServiceError::invalid("x"))).is_err());
        assert_eq!(slot.get(later, || Ok(4)).unwrap(), 3, "a failure is not cached");
    }
}
