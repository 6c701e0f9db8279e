//! Making a container again of the others of its group, and looking at what a group still can make again.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_types::ids::{ContainerId, RepositoryId};
use holdfast_volume::{Blob, MemoryVolume, Volume, VolumeError};
use reed_solomon_simd::ReedSolomonDecoder;

use super::name;
use super::{coding, read_window};
use crate::container::{ContainerName, OpenContainer, Owner, salvage};
use crate::error::EngineError;
use crate::format::FormatError;
use crate::format::crc64;
use crate::format::parity::{HEADER_BYTES, ParityHeader, ParityMember, ParityTable, WINDOW_BYTES};

/// Read at a time of a window that the disk cannot read as a whole.
const RETRY_BYTES: usize = 4 << 10;

/// A group's blob whose header and table are right.
struct Parity {
    header: ParityHeader,
    table: ParityTable,
    blob: Arc<dyn Blob>,
}

/// A parity blob and its containers, in the order of the table.
struct Group {
    parity: Parity,
    members: Vec<Result<Arc<dyn Blob>, VolumeError>>,
}

/// The bytes of a container.
#[derive(Debug)]
pub struct Made {
    pub bytes: Vec<u8>,
    /// True when all of them are right. Otherwise a window that cannot be made is as it lies there, or zeros.
    pub is_whole: bool,
}

/// The containers of a group, as its blob says, and the blob's length.
///
/// # Errors
/// [`EngineError::Damaged`]: it is not there, not what it was, or another repository's or group's. Another: it is newer,
/// or cannot be read now.
pub fn read_members(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
) -> Result<(Vec<ParityMember>, u64), EngineError> {
    let parity = open(volume, repository, number)?;
    Ok((parity.table.members, parity.blob.len()))
}

/// Reads all of a group's blob. Returns true if it came to the end. `go_on` is told of bytes as they are read.
///
/// # Errors
/// As [`read_members`]. A window that the disk fails to read twice is damaged.
pub fn prove(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<bool, EngineError> {
    let parity = match open(volume, repository, number) {
        Err(EngineError::Volume(VolumeError::Io { .. })) => open(volume, repository, number),
        opened => opened,
    };
    let parity = match parity {
        Err(EngineError::Volume(error @ VolumeError::Io { .. })) => {
            return Err(EngineError::Damaged(error.to_string()));
        }
        opened => opened?,
    };
    // (R9) The bytes proved are those on the disk, and so are those read once more.
    let again = || parity.blob.drop_cached();
    again();
    for window in 0..parity.header.windows() {
        for spare in 0..parity.header.spares {
            let is_sound = parity.is_sound(spare, window)? || {
                again();
                parity.is_sound(spare, window)?
            };
            if !is_sound {
                let (start, _) = parity.header.window(window);
                let what = format!("{}: the parity of byte {start} and on of its containers", name(number));
                return Err(EngineError::Damaged(format!("{what} is not what was written")));
            }
        }
        if !go_on(u64::from(WINDOW_BYTES) * u64::from(parity.header.spares)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reconstructs a container from what is left of its group, and opens it; its bytes are in memory. The flag is set if
/// its directory names everything that was in it. `None`: nothing can be reconstructed that cannot be read anyway.
///
/// # Errors
/// As [`read_members`].
pub fn reconstruct(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
    owner: Owner,
    stored_bytes: u64,
) -> Result<Option<(OpenContainer, bool)>, EngineError> {
    let Owner { id, class, .. } = owner;
    let Some(made) = reconstruct_bytes(volume, repository, number, (id, stored_bytes))? else {
        return Ok(None);
    };
    let memory = MemoryVolume::new();
    let mut blob = memory.create(&ContainerName { id, class }.blob())?;
    blob.append(&made.bytes)?;
    blob.seal()?;
    // (E2) It must be the container it says, with a whole directory; regions are checked as they are read.
    match OpenContainer::open(&memory, repository, id, class) {
        Ok(open) => Ok(Some((open, true))),
        Err(error) if made.is_whole => Err(error.into()),
        // The windows that cannot be reconstructed are in its header or directory: salvage it as any other container.
        Err(_) => {
            let left = salvage(&memory, repository, owner).ok();
            Ok(left.map(|left| (left.open, left.complete)))
        }
    }
}

/// Reconstructs the bytes of the container with a number and a length. `None`: parity cannot, or it is not of the
/// group.
///
/// # Errors
/// As [`read_members`].
pub fn reconstruct_bytes(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
    (wanted, stored_bytes): (ContainerId, u64),
) -> Result<Option<Made>, EngineError> {
    let group = Group::open(volume, repository, number)?;
    // (E2) One of another length had its number before.
    let is_wanted =
        |member: &ParityMember| member.id == wanted && u64::from(member.stored_bytes) == stored_bytes;
    let Some(place) = group.parity.table.members.iter().position(is_wanted) else { return Ok(None) };
    let Some(member) = group.parity.table.members.get(place) else { return Ok(None) };
    // (R3) At most a container.
    let mut bytes = vec![0; member.stored_bytes as usize];
    let (mut holes, mut found, mut made) = (Vec::new(), false, false);
    // (E2) Its own windows: what the others have past its end is nothing to it.
    for (window, own) in (0..).zip(bytes.chunks_mut(WINDOW_BYTES as usize)) {
        let shard = match group.sound_window(place, window).ok().flatten() {
            Some(shard) => {
                found = true;
                Some(shard)
            }
            None => group.make(place, window)?.inspect(|_| made = true),
        };
        match shard.as_deref().and_then(|shard| shard.get(..own.len())) {
            Some(shard) => own.copy_from_slice(shard),
            None => holes.push(window),
        }
    }
    if holes.is_empty() {
        let is_whole = crc64(&bytes) == member.crc;
        return Ok(is_whole.then_some(Made { bytes, is_whole }));
    }
    // A file of which nothing is right may be another's.
    if let Some(Ok(blob)) = group.members.get(place).filter(|_| found) {
        for window in holes {
            let (start, _) = group.parity.header.window(window);
            let own =
                bytes.get_mut(start as usize..).into_iter().flat_map(|rest| rest.chunks_mut(RETRY_BYTES));
            read_pieces(&**blob, start.into(), own.take(WINDOW_BYTES as usize / RETRY_BYTES));
        }
    }
    Ok(made.then_some(Made { bytes, is_whole: false }))
}

/// Reads the pieces, which lie one after the other, as far as they can be read.
fn read_pieces<'a>(blob: &dyn Blob, start: u64, pieces: impl Iterator<Item = &'a mut [u8]>) {
    for (at, piece) in (start..).step_by(RETRY_BYTES).zip(pieces) {
        let there = usize::try_from(blob.len().saturating_sub(at)).unwrap_or(usize::MAX).min(piece.len());
        if let Some(there) = piece.get_mut(..there)
            && blob.read_at(at, there).is_err()
        {
            there.fill(0);
        }
    }
}

/// (E7) Returns those of the `wanted` containers of which a damaged window can be reconstructed. Reads no window of
/// which nothing can be, and nothing that is only in the bucket.
///
/// # Errors
/// As [`read_members`], and when a container cannot be read now: it may be what another is made of.
pub fn repairable(
    volume: &dyn Volume,
    repository: RepositoryId,
    number: ContainerId,
    wanted: &BTreeSet<ContainerId>,
) -> Result<BTreeSet<ContainerId>, EngineError> {
    let mut group = Group::open(volume, repository, number)?;
    let is_hidden =
        |blob: &mut Result<_, VolumeError>| blob.as_ref().is_err_and(VolumeError::is_unreadable_now);
    if let Some(Err(error)) = group.members.extract_if(.., is_hidden).next() {
        return Err(error.into());
    }
    let Group { parity: Parity { header, table, .. }, members } = &group;
    let mut found = BTreeSet::new();
    for window in 0..header.windows() {
        let (start, _) = header.window(window);
        let of_table = || (0..).zip(&table.members).zip(members);
        let counts = |id| wanted.contains(&id) && !found.contains(&id);
        let absent = of_table().filter(|((_, member), blob)| blob.is_err() && start < member.stored_bytes);
        let absent: Vec<ContainerId> = absent.map(|((_, member), _)| member.id).collect();
        // Absent containers that use up all spares must include one of these: nothing else can be reconstructed.
        let is_spent = absent.len() >= usize::from(header.spares);
        if absent.len() > usize::from(header.spares) || (is_spent && !absent.iter().any(|id| counts(*id))) {
            continue;
        }
        let mut wrong = Vec::new();
        for ((place, member), blob) in of_table() {
            let is_far = blob.as_ref().is_ok_and(|blob| !blob.is_at_hand());
            if !is_far && group.sound_window(place, window)?.is_none() {
                wrong.push(member.id);
            }
        }
        if !wrong.iter().any(|id| counts(*id)) {
            continue;
        }
        let mut spares = 0;
        for spare in 0..header.spares {
            spares += usize::from(group.parity.is_sound(spare, window)?);
        }
        if wrong.len() <= spares {
            found.extend(wrong.into_iter().filter(|id| wanted.contains(id)));
        }
    }
    Ok(found)
}

fn open(volume: &dyn Volume, repository: RepositoryId, number: ContainerId) -> Result<Parity, EngineError> {
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
    Ok(Parity { header, table, blob })
}

/// A blob that is cut off or missing is damaged; any other error is passed on: it cannot be read now.
fn unreadable(error: VolumeError) -> EngineError {
    match error {
        VolumeError::OutOfRange { .. } | VolumeError::NotFound { .. } => {
            EngineError::Damaged(error.to_string())
        }
        other => other.into(),
    }
}

/// The data, if it could be read; an error if it only cannot be read now: then it is neither right nor wrong.
fn if_readable<T>(read: Result<T, VolumeError>) -> Result<Option<T>, EngineError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_unreadable_now() => Err(error.into()),
        Err(_) => Ok(None),
    }
}

impl Parity {
    fn spare(&self, spare: u8, window: u32) -> Result<Option<Vec<u8>>, EngineError> {
        let (_, len) = self.header.window(window);
        let mut shard = vec![0; len as usize];
        let read = self.blob.read_at(self.header.parity_offset(window, spare), &mut shard);
        let place = usize::from(self.header.members) + usize::from(spare);
        let is_right = |shard: &Vec<u8>| self.table.sum(&self.header, place, window) == Some(crc64(shard));
        Ok(if_readable(read.map(|()| shard))?.filter(is_right))
    }

    fn is_sound(&self, spare: u8, window: u32) -> Result<bool, EngineError> {
        Ok(self.spare(spare, window)?.is_some())
    }
}

impl Group {
    fn open(volume: &dyn Volume, repository: RepositoryId, number: ContainerId) -> Result<Self, EngineError> {
        let parity = open(volume, repository, number)?;
        let open = |member: &ParityMember| {
            let (id, class) = (member.id, member.class);
            volume.open(&ContainerName { id, class }.blob())
        };
        let members = parity.table.members.iter().map(open).collect();
        Ok(Self { parity, members })
    }

    /// A window of a container, made of the others. `None`: too few of them are right.
    fn make(&self, wanted: usize, window: u32) -> Result<Option<Vec<u8>>, EngineError> {
        let Parity { header, table, .. } = &self.parity;
        let (_, len) = header.window(window);
        let (members, spares) = (usize::from(header.members), header.spares);
        let mut decoder = ReedSolomonDecoder::new(members, spares.into(), len as usize).map_err(coding)?;
        let (mut sound, mut hidden) = (0, None);
        for place in (0..members).filter(|place| *place != wanted) {
            match self.sound_window(place, window) {
                Ok(Some(shard)) => {
                    decoder.add_original_shard(place, shard).map_err(coding)?;
                    sound += 1;
                }
                Ok(None) => {}
                Err(error) if error.is_no_verdict() => hidden = hidden.or(Some(error)),
                Err(_) => {}
            }
        }
        for spare in 0..spares {
            if sound == members {
                break;
            }
            match self.parity.spare(spare, window) {
                Ok(Some(shard)) => {
                    decoder.add_recovery_shard(spare.into(), shard).map_err(coding)?;
                    sound += 1;
                }
                Ok(None) => {}
                Err(error) if error.is_no_verdict() => hidden = hidden.or(Some(error)),
                Err(_) => {}
            }
        }
        if sound < members {
            // (R4) With what cannot be read at the moment it may be made.
            return hidden.map_or(Ok(None), Err);
        }
        let decoded = decoder.decode().map_err(coding)?;
        let shard = decoded.restored_original(wanted).map(<[u8]>::to_vec);
        Ok(shard.filter(|shard| table.sum(header, wanted, window) == Some(crc64(shard))))
    }

    /// A window as it lies in its container, when it is right.
    ///
    /// # Errors
    /// It cannot be read now.
    fn sound_window(&self, place: usize, window: u32) -> Result<Option<Vec<u8>>, EngineError> {
        let Parity { header, table, .. } = &self.parity;
        let (start, len) = header.window(window);
        let Some((member, blob)) = table.members.get(place).zip(self.members.get(place)) else {
            return Ok(None);
        };
        let is_right = |shard: &Vec<u8>| table.sum(header, place, window) == Some(crc64(shard));
        let shard = match blob {
            // (E2) Past its end it is zeros, wherever it is.
            _ if start >= member.stored_bytes => Some(vec![0; len as usize]),
            Ok(blob) => {
                let read = || -> Result<_, EngineError> {
                    let read = if_readable(read_window(blob, member.stored_bytes, start, len))?;
                    Ok(read.map(|(shard, _)| shard).filter(is_right))
                };
                match read()? {
                    Some(shard) => Some(shard),
                    // (R9)
                    None => {
                        blob.drop_cached();
                        read()?
                    }
                }
            }
            Err(error) if error.is_archived() => return Err(EngineError::Archived(error.to_string())),
            Err(error) if error.is_unreadable_now() => {
                let (name, source) = (member.id.to_string(), error.to_string().into());
                return Err(VolumeError::NotReadableNow { name, source }.into());
            }
            Err(_) => None,
        };
        Ok(shard.filter(is_right))
    }
}
