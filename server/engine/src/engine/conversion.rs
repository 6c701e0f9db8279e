//! What the engine's caller needs to know who puts blobs into another form on the volume below: sealed ones in place of
//! plain ones. Names, bytes and owners stay, so nothing here changes by it.

use std::sync::Arc;

use holdfast_types::ids::NamespaceId;
use holdfast_volume::{Blob, BlobName, Owner, VolumeError};

use super::Engine;
use crate::container::ContainerName;
use crate::error::EngineError;
use crate::format::container::{HEADER_BYTES, Header};
use crate::format::point::{POINT_MAX_BYTES, Point};
use crate::health::Part;
use crate::parity;
use crate::space::{Grant, Purpose};

/// The folders of all blobs but the repository's mark.
pub const BLOB_FOLDERS: [&str; 6] = ["containers", "generation", "index", "parity", "points", "snapshots"];

/// Room on the volume for a blob that is written beside what the engine writes. Dropping it gives it back.
#[derive(Debug)]
pub struct RewriteRoom {
    grant: Grant,
}

impl RewriteRoom {
    /// So many bytes of the blob are written.
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
    /// Whose a blob is. One whose owner cannot be told, because it is damaged or nothing of this repository, is that of the
    /// repository as a whole.
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

    /// All containers of a group are of one namespace.
    fn owner_of_parity(
        &self,
        number: holdfast_types::ids::ContainerId,
    ) -> Result<Option<NamespaceId>, EngineError> {
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
