//! Making a container again of the others of its group.

use std::sync::Arc;

use holdfast_types::ids::{ContainerClass, ContainerId, RepositoryId};
use holdfast_volume::{Blob, MemoryVolume, Volume, VolumeError};
use reed_solomon_simd::ReedSolomonDecoder;

use super::name;
use super::write::{coding, read_window};
use crate::container::{ContainerName, OpenContainer};
use crate::error::EngineError;
use crate::format::FormatError;
use crate::format::checksum::crc64;
use crate::format::parity::{HEADER_BYTES, ParityHeader, ParityMember, ParityTable};

/// A group whose header and table are right.
struct Group {
    header: ParityHeader,
    table: ParityTable,
    blob: Arc<dyn Blob>,
    /// The containers that can be opened, in the order of the table.
    members: Vec<Option<Arc<dyn Blob>>>,
}

/// The containers of a group, as its blob says.
///
/// # Errors
/// It cannot be read, is damaged, newer, or of another repository.
pub fn read_members(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
) -> Result<(Vec<ParityMember>, u64), EngineError> {
    let group = open(volume, repository, number)?;
    Ok((group.table.members, group.blob.len()))
}

/// The container `wanted`, opened, of what is left of its group; its bytes are in memory. `None`: too much is lost.
///
/// # Errors
/// As [`read_members`].
pub fn reconstruct(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
    wanted: (ContainerId, ContainerClass),
) -> Result<Option<OpenContainer>, EngineError> {
    let (id, class) = wanted;
    let Some(bytes) = reconstruct_bytes(volume, repository, number, id)? else { return Ok(None) };
    let memory = MemoryVolume::new();
    let mut blob = memory.create(&ContainerName { id, class }.blob())?;
    blob.append(&bytes)?;
    blob.seal()?;
    // (E2) It must be the container it says, with a whole directory; regions are checked as they are read.
    Ok(Some(OpenContainer::open(&memory, repository, id, class)?))
}

/// The bytes of a container, right by their checksum. `None`: too much is lost, or it is not of the group.
///
/// # Errors
/// As [`read_members`].
pub fn reconstruct_bytes(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
    wanted: ContainerId,
) -> Result<Option<Vec<u8>>, EngineError> {
    let group = open(volume, repository, number)?;
    let Some(place) = group.table.members.iter().position(|member| member.id == wanted) else {
        return Ok(None);
    };
    let Some(member) = group.table.members.get(place) else { return Ok(None) };
    // (R3) At most a container.
    let mut bytes = Vec::with_capacity(group.header.shard_bytes as usize);
    for window in 0..group.header.windows() {
        match group.window(place, window)? {
            Some(shard) => bytes.extend_from_slice(&shard),
            None => return Ok(None),
        }
    }
    bytes.truncate(member.stored_bytes as usize);
    Ok((crc64(&bytes) == member.crc).then_some(bytes))
}

fn open(volume: &dyn Volume, repository: RepositoryId, number: ContainerId) -> Result<Group, EngineError> {
    let name = name(number);
    let damaged = |error: FormatError| match error {
        FormatError::Unsupported { .. } => EngineError::Unsupported(format!("{name}: {error}")),
        FormatError::Corrupt { .. } => EngineError::Damaged(format!("{name}: {error}")),
    };
    let blob = volume.open(&name).map_err(unreadable)?;
    let mut header = [0; HEADER_BYTES];
    blob.read_at(0, &mut header).map_err(unreadable)?;
    let header = ParityHeader::decode(&header).map_err(damaged)?;
    if header.repository != repository || header.number != number.get() {
        return Err(EngineError::Damaged(format!("{name} is another repository's, or another group's")));
    }
    // (R3) As long as the header's numbers allow, at most 145 KiB.
    let table = blob.read_vec(&name, header.table_offset(), header.table_bytes()).map_err(unreadable)?;
    let table = ParityTable::decode(&header, &table).map_err(damaged)?;
    let open = |member: &ParityMember| {
        let (id, class) = (member.id, member.class);
        volume.open(&ContainerName { id, class }.blob()).ok()
    };
    let members = table.members.iter().map(open).collect();
    Ok(Group { header, table, blob, members })
}

/// What is cut off, gone, or on a bad sector is damaged; anything else says that it cannot be read now.
fn unreadable(error: VolumeError) -> EngineError {
    match error {
        VolumeError::OutOfRange { .. } | VolumeError::NotFound { .. } | VolumeError::Io { .. } => {
            EngineError::Damaged(error.to_string())
        }
        other => other.into(),
    }
}

impl Group {
    /// A window of a container; what cannot be read, or has another checksum, is made of the others. `None`: too few of
    /// them are right.
    fn window(&self, wanted: usize, window: u32) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(shard) = self.sound_window(wanted, window) {
            return Ok(Some(shard));
        }
        let (_, len) = self.header.window(window);
        let (members, spares) = (usize::from(self.header.members), self.header.spares);
        let mut decoder = ReedSolomonDecoder::new(members, spares.into(), len as usize).map_err(coding)?;
        let mut sound = 0;
        for place in (0..members).filter(|place| *place != wanted) {
            if let Some(shard) = self.sound_window(place, window) {
                decoder.add_original_shard(place, shard).map_err(coding)?;
                sound += 1;
            }
        }
        for spare in 0..spares {
            if sound == members {
                break;
            }
            if let Some(shard) = self.sound_parity(spare, window) {
                decoder.add_recovery_shard(spare.into(), shard).map_err(coding)?;
                sound += 1;
            }
        }
        if sound < members {
            return Ok(None);
        }
        let decoded = decoder.decode().map_err(coding)?;
        let shard = decoded.restored_original(wanted).map(<[u8]>::to_vec);
        Ok(shard.filter(|shard| self.table.sum(&self.header, wanted, window) == Some(crc64(shard))))
    }

    /// A window as it lies in its container, when it is right.
    fn sound_window(&self, place: usize, window: u32) -> Option<Vec<u8>> {
        let (start, len) = self.header.window(window);
        let (blob, member) = (self.members.get(place)?.as_ref()?, self.table.members.get(place)?);
        let (shard, _) = read_window(blob, member.stored_bytes, start, len).ok()?;
        (self.table.sum(&self.header, place, window) == Some(crc64(&shard))).then_some(shard)
    }

    fn sound_parity(&self, spare: u8, window: u32) -> Option<Vec<u8>> {
        let (_, len) = self.header.window(window);
        let mut shard = vec![0; len as usize];
        self.blob.read_at(self.header.parity_offset(window, spare), &mut shard).ok()?;
        let place = usize::from(self.header.members) + usize::from(spare);
        (self.table.sum(&self.header, place, window) == Some(crc64(&shard))).then_some(shard)
    }
}
