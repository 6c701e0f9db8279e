//! What takes reading all containers' rows or many directories, kept for a while: a page that several people
//! have open must not cost a walk each time.

use std::time::{Duration, Instant};

use holdfast_engine::StorageStatistics;
use holdfast_engine::catalog::ContainerTotals;
use holdfast_engine::ids::NamespaceId;
use parking_lot::Mutex;

use super::live::Changes;
use crate::app::App;
use crate::error::ServiceError;

/// How long what was found counts as current.
const KEPT: Duration = Duration::from_secs(60);

/// Containers sampled: some 20 MB of directories.
const CONTAINERS_MAX: usize = 64;

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    statistics: Slot<StorageStatistics>,
    containers: Slot<Vec<ContainerTotals>>,
    days: Slot<Vec<(i32, u64)>>,
}

#[derive(Debug)]
struct Slot<T>(Mutex<Option<(Instant, Changes, T)>>);

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Slot<T> {
    /// What is kept, or what `find` finds; with `changes`, only what was found since the last of those. Whoever
    /// comes meanwhile waits for the same answer. Blocks.
    fn get(
        &self,
        changes: Changes,
        find: impl FnOnce() -> Result<T, ServiceError>,
    ) -> Result<T, ServiceError> {
        let mut kept = self.0.lock();
        if let Some((at, of, found)) = kept.as_ref()
            && at.elapsed() < KEPT
            && *of == changes
        {
            return Ok(found.clone());
        }
        let found = find()?;
        *kept = Some((Instant::now(), changes, found.clone()));
        Ok(found)
    }
}

impl Kept {
    /// How well data compresses, as of the last minute. Blocks.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) fn statistics(&self, app: &App) -> Result<StorageStatistics, ServiceError> {
        self.statistics.get(Changes::default(), || Ok(app.engine.storage_statistics(CONTAINERS_MAX)?))
    }

    /// Containers by kind, as of the last run that ended. Blocks.
    ///
    /// # Errors
    /// The catalog's.
    pub(crate) fn containers(
        &self,
        app: &App,
        namespaces: Option<&[NamespaceId]>,
    ) -> Result<Vec<ContainerTotals>, ServiceError> {
        match namespaces {
            None => self.containers.get(app.live.changes(), || Ok(app.catalog().container_totals(None)?)),
            some => Ok(app.catalog().container_totals(some)?),
        }
    }

    /// Bytes of containers by the day they were begun on, as of the last run that ended. Blocks.
    ///
    /// # Errors
    /// The catalog's.
    pub(crate) fn days(&self, app: &App) -> Result<Vec<(i32, u64)>, ServiceError> {
        self.days.get(app.live.changes(), || Ok(app.catalog().container_days()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_until_something_changes() {
        let slot = Slot::default();
        let (first, later) = (Changes::default(), Changes { details: 1, ..Changes::default() });
        assert_eq!(slot.get(first, || Ok(1)).unwrap(), 1);
        assert_eq!(slot.get(first, || Ok(2)).unwrap(), 1);
        assert_eq!(slot.get(later, || Ok(3)).unwrap(), 3);
        assert!(slot.get(first, || Err(ServiceError::invalid("x"))).is_err());
        assert_eq!(slot.get(later, || Ok(4)).unwrap(), 3, "a failure is not kept");
    }
}
