//! What the place far away (a bucket) turns out to have or not, in the words of the engine: blobs there are containers and
//! points, and what they lack is named by restore points.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_types::ids::ContainerId;
use holdfast_volume::BlobName;

use super::Engine;
use crate::container::ContainerName;
use crate::error::EngineError;
use crate::needs::{self, NeedingPoint};
use crate::points::PointName;

impl Engine {
    /// The container that a blob holds; `None`: it holds none.
    pub fn container_in(blob: &BlobName) -> Option<ContainerId> {
        ContainerName::parse(blob).map(|name| name.id)
    }

    /// The restore point that a blob is the point of, if it is there.
    ///
    /// # Errors
    /// The catalog's.
    pub fn point_in(&self, blob: &BlobName) -> Result<Option<NeedingPoint>, EngineError> {
        let Some(name) = PointName::parse(blob) else { return Ok(None) };
        Ok(self.core.catalog.backup(name.backup)?.map(|record| NeedingPoint::of(&record)))
    }

    /// The restore points that need each of these containers, by their recipes. What of a recipe cannot be read is passed
    /// by. `go_on` is told what was read, and says whether to.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; the catalog's and the index's.
    pub fn points_needing(
        &self,
        containers: &BTreeSet<ContainerId>,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<BTreeMap<ContainerId, Vec<NeedingPoint>>, EngineError> {
        self.core.check_unlocked()?;
        needs::points_needing(&self.core, containers, go_on)
    }

    /// Reads all of a container, from wherever it lies: whether it is what it should be. `None`: that cannot be told now, or
    /// the catalog does not know it.
    ///
    /// # Errors
    /// When the catalog cannot be asked.
    pub fn is_container_sound(&self, container: ContainerId) -> Result<Option<bool>, EngineError> {
        self.core.check_unlocked()?;
        let Some(record) = self.core.catalog.container(container)? else { return Ok(None) };
        let open = match self.core.store.open_afresh(&record) {
            Ok(open) => open,
            Err(error) => return Ok(error.is_damage().then_some(false)),
        };
        let regions = u16::try_from(open.directory().region_count()).unwrap_or(u16::MAX);
        let mut sound = Some(true);
        for region in 0..regions {
            match open.read_region(region).and_then(|stored| stored.checked(&open)) {
                Ok(_) => {}
                // (T14) What cannot be read now is no damage; damage elsewhere is.
                Err(error) if error.is_damage() => return Ok(Some(false)),
                Err(_) => sound = None,
            }
        }
        Ok(sound)
    }

    /// (R4) Takes note that nothing of a container can be had, and why. Whether the catalog knows the container: of another
    /// nothing is lost.
    ///
    /// # Errors
    /// When the catalog cannot be asked.
    pub fn note_unreadable(&self, container: ContainerId, reason: &str) -> Result<bool, EngineError> {
        self.core.check_unlocked()?;
        if self.core.catalog.container(container)?.is_none() {
            return Ok(false);
        }
        self.core.store.note_damage(container, None, reason);
        Ok(true)
    }

    /// (R4) Looks at a container that was damaged again. Whether nothing is known to be wrong with it now.
    ///
    /// # Errors
    /// When the catalog or the index cannot be asked or written.
    pub fn look_again(&self, container: ContainerId) -> Result<bool, EngineError> {
        self.core.check_unlocked()?;
        self.core.store.look_again(container)?;
        Ok(self.core.store.known_damage(container).is_empty())
    }
}
