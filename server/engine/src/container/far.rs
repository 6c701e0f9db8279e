//! The copy of a container that lies far away, in memory.

use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_types::ids::RepositoryId;
use holdfast_volume::{MemoryVolume, Volume, VolumeError};

use super::{ContainerError, ContainerName, OpenContainer};

/// A volume in memory that holds nothing but this container.
///
/// # Errors
/// Never.
pub fn in_memory(name: ContainerName, bytes: &[u8]) -> Result<MemoryVolume, VolumeError> {
    let memory = MemoryVolume::new();
    let mut blob = memory.create(&name.blob())?;
    blob.append(bytes)?;
    blob.seal()?;
    Ok(memory)
}

/// (T22) Reads all of a container that lies far away, whether or not one lies here. Regions are checked as they are read.
///
/// # Errors
/// It has another length, or its header or directory is damaged; it does not lie there, or cannot be read now.
pub fn read_far(
    volume: &dyn Volume,
    repository: RepositoryId,
    name: ContainerName,
    stored_bytes: u64,
) -> Result<OpenContainer, ContainerError> {
    let far = volume.open_far(&name.blob())?;
    // (R3) At most a container.
    let len = usize::try_from(far.len().min(CONTAINER_MAX_BYTES.into())).unwrap_or(0);
    let memory = in_memory(name, &far.read_vec(&name.blob(), 0, len)?)?;
    let open = OpenContainer::open(&memory, repository, name.id, name.class)?;
    open.check_length(stored_bytes)?;
    Ok(open)
}
