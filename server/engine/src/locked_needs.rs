//! Which blobs a recovery of a locked restore point needs, so that the keeper of copies can make them stay.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use holdfast_types::ids::{BackupId, ContainerClass, ContainerId};
use holdfast_volume::BlobName;

use crate::container::ContainerName;
use crate::core::Core;
use crate::error::EngineError;
use crate::needs::{Known, Needs};
use crate::points::PointName;

/// For one pass over restore points: of each it reads what those before did not share. What reclaim moves meanwhile it may
/// not see, so a later pass begins with a new one.
pub struct LockedNeeds {
    core: Arc<Core>,
    known: Known,
    /// Of the containers that were named so far.
    classes: HashMap<ContainerId, ContainerClass>,
}

impl fmt::Debug for LockedNeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedNeeds").field("containers", &self.classes.len()).finish_non_exhaustive()
    }
}

impl LockedNeeds {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core), known: Known::new(), classes: HashMap::new() }
    }

    /// The containers that a restore point needs, and its point: all but what every restore point needs, whose repository
    /// it is and the keys. `None`: it is not there, or its point is about to be sealed anew. What of a recipe cannot be read
    /// is passed by: damage names itself. `go_on` is told what was read, and says whether to.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; the catalog's and the index's.
    pub fn of(
        &mut self,
        backup: BackupId,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Vec<BlobName>>, EngineError> {
        let catalog = &self.core.catalog;
        let (Some(state), Some(point)) = (catalog.point_state(backup)?, catalog.point(backup)?) else {
            return Ok(None);
        };
        let Some(record) = catalog.backup(backup)?.filter(|_| state.wanted <= state.revision) else {
            return Ok(None);
        };
        let mut needs =
            Needs { core: &self.core, wanted: None, known: std::mem::take(&mut self.known), go_on };
        let containers = needs.of(&record);
        self.known = needs.known;
        let mut blobs = Vec::new();
        for container in containers? {
            if let Some(class) = self.class(container)? {
                blobs.push(ContainerName { id: container, class }.blob());
            }
        }
        blobs.push(PointName { backup, revision: state.revision }.blob(&point));
        Ok(Some(blobs))
    }

    /// `None`: the catalog does not know the container.
    fn class(&mut self, container: ContainerId) -> Result<Option<ContainerClass>, EngineError> {
        if let Some(class) = self.classes.get(&container) {
            return Ok(Some(*class));
        }
        let class = self.core.catalog.container(container)?.map(|row| row.class);
        self.classes.extend(class.map(|class| (container, class)));
        Ok(class)
    }
}
