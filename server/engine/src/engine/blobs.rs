//! The blobs of the volume, for callers that give them another form (sealed in place of plain) or look for them far away,
//! in a bucket.
//!
//! Names, bytes and owners of blobs stay when their form changes, so nothing here changes by it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdfast_types::ids::{BackupId, ContainerId, NamespaceId};
use holdfast_volume::{Blob, BlobName, Owner, VolumeError};

use super::Engine;
use crate::container::ContainerName;
use crate::error::EngineError;
use crate::format::container::{HEADER_BYTES, Header};
use crate::format::point::{POINT_MAX_BYTES, Point};
use crate::health::Part;
use crate::needs::{self, NeedingPoint};
use crate::parity;
use crate::points::PointName;
use crate::space::{Grant, Purpose};

/// The folders of all blobs but the repository's mark.
pub const BLOB_FOLDERS: [&str; 6] = ["containers", "generation", "index", "parity", "points", "snapshots"];

/// Room on the volume for a blob that is written beside what the engine writes. Dropping it gives it back.
#[derive(Debug)]
pub struct RewriteRoom {
    grant: Grant,
}

impl RewriteRoom {
    /// Records that `bytes` of the blob have been written.
    pub fn wrote(&mut self, bytes: u64) {
        self.grant.wrote(bytes);
    }

    /// The blob is on the volume, with so many bytes. What its other form gives back shows at the next look at the volume:
    /// until then too little is promised to others, never too much.
    pub fn sealed(self, bytes: u64) {
        self.grant.sealed(bytes);
    }
}

impl Engine {
    /// Owner of a blob. A blob whose owner cannot be determined, because it is damaged or does not belong to this
    /// repository, is owned by the repository as a whole.
    ///
    /// # Errors
    /// When the catalog or the volume cannot be asked.
    pub fn owner_of(&self, name: &BlobName, blob: &Arc<dyn Blob>) -> Result<Owner, EngineError> {
        let namespace = if let Some(container) = ContainerName::parse(name) {
            match self.core.catalog.container(container.id)? {
                Some(record) => Some(record.namespace),
                None => header(name, blob)?,
            }
        } else if let Some(number) = parity::parse(name) {
            self.owner_of_parity(number)?
        } else if name.is_inside(&crate::points::folder()) {
            point(name, blob)?
        } else {
            None
        };
        Ok(namespace.map_or(Owner::REPOSITORY, |namespace| Owner::namespace(namespace.to_bytes())))
    }

    /// Owner of a parity blob: the one namespace of its containers.
    fn owner_of_parity(&self, number: ContainerId) -> Result<Option<NamespaceId>, EngineError> {
        let members = match parity::read_members(&*self.core.volume, self.core.repository, number) {
            Ok((members, _)) => members,
            Err(EngineError::Damaged(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        for member in members {
            if let Some(record) = self.core.catalog.container(member.id)? {
                return Ok(Some(record.namespace));
            }
        }
        Ok(None)
    }

    /// (W10) Room for a blob that is written in place of another of the same length, which goes once it is there. It may
    /// come out of the reserve, as what reclaim copies does.
    ///
    /// # Errors
    /// There is none, or writing has stopped (W9).
    pub fn room_to_rewrite(&self, bytes: u64) -> Result<RewriteRoom, EngineError> {
        self.core.check_writable()?;
        let mut grant = Grant::new(&self.core.ledger, Purpose::Reclaim);
        grant.cover(bytes)?;
        Ok(RewriteRoom { grant })
    }

    /// (W9) A write to the volume below failed that the engine did not see.
    pub fn note_write_failure(&self, error: &VolumeError) {
        self.core.health.volume_failed(Part::Data, error);
    }

    /// The container that a blob holds; `None`: it holds none.
    pub fn container_in(blob: &BlobName) -> Option<ContainerId> {
        ContainerName::parse(blob).map(|name| name.id)
    }

    /// The restore point that a blob is a point of, and the revision; `None`: it is no point.
    pub fn revision_in(blob: &BlobName) -> Option<(BackupId, u32)> {
        PointName::parse(blob).map(|name| (name.backup, name.revision))
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

    /// Reads all of a container, from wherever it is. Returns true if it is sound. `None`: that cannot be determined
    /// now, or the catalog does not know it.
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
                // (T14) A region that cannot be read now is no damage; damage elsewhere is.
                Err(error) if error.is_damage() => return Ok(Some(false)),
                Err(_) => sound = None,
            }
        }
        Ok(sound)
    }

    /// (R4) Notes that nothing of a container can be read, and why. Returns true if the catalog knows the container: of
    /// any other nothing is lost.
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

    /// (R4) Looks again at a container that was damaged. Returns true if no damage of it is known now.
    ///
    /// # Errors
    /// When the catalog or the index cannot be asked or written.
    pub fn look_again(&self, container: ContainerId) -> Result<bool, EngineError> {
        self.core.check_unlocked()?;
        self.core.store.look_again(container)?;
        Ok(self.core.store.known_damage(container).is_empty())
    }
}

/// The namespace that a container's header says.
fn header(name: &BlobName, blob: &Arc<dyn Blob>) -> Result<Option<NamespaceId>, EngineError> {
    if blob.len() < const { HEADER_BYTES as u64 } {
        return Ok(None);
    }
    let bytes = blob.read_vec(name, 0, HEADER_BYTES)?;
    let header = bytes.first_chunk().and_then(|bytes| Header::decode(bytes).ok());
    Ok(header.map(|header| header.namespace))
}

/// The namespace that a point says.
fn point(name: &BlobName, blob: &Arc<dyn Blob>) -> Result<Option<NamespaceId>, EngineError> {
    let len = match usize::try_from(blob.len()) {
        Ok(len) if blob.len() <= POINT_MAX_BYTES => len,
        _ => return Ok(None),
    };
    let point = Point::decode(&blob.read_vec(name, 0, len)?);
    let namespace = point.ok().and_then(|point| point.body.namespace.try_into().ok());
    Ok(namespace.map(NamespaceId::from_bytes))
}
