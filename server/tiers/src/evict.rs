//! Containers moved to the bucket, of which only the ends stay local.
//!
//! The parts of a container that every reader needs, its header and directory, stay in a local blob of their own, so
//! that looking up chunks sends no request to the bucket:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | length `H` of the head, little-endian as all |
//! | 8 | 8 | length of the container |
//! | 16 | `H` | its head |
//! | … | … | its tail |
//! | … | 8 | CRC-64/NVME of the container's name and everything before |
//!
//! If it is lost or damaged, that costs requests and nothing else: the whole container is read from the bucket. Ends
//! belong to one writing of a container: they are removed before it (T9), and rewritten whenever it is moved.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_volume::{
    Blob, BlobName, ColdPlace, Ends, Owner, RemoteStat, RemoteVolume, Volume, VolumeError, list_all,
};

use crate::cold::is_archive;
use crate::compare::{There, compare_with, pieces};
use crate::lease::Lease;
use crate::record::{Flaw, Record, RecordError};
use crate::shared::Shared;
use crate::survey::SurveyError;
use crate::waiting::{ENDS, Kind};

/// Folder of the ends. It is neither listed as part of the repository nor copied.
const FOLDER: &str = ENDS;

const HEADER: usize = 2 * size_of::<u64>();
const CHECKSUM: usize = size_of::<u64>();

/// Size limit of a kept head or tail: no directory is larger.
const ENDS_MAX: u64 = 16 << 20;

/// Name under which the ends of `name` are kept; `None`: it would be too long.
pub(crate) fn ends_name(name: &BlobName) -> Option<BlobName> {
    BlobName::new(format!("{FOLDER}/{name}"))
}

/// (T9) Removes the local copy of a container after verifying once more that the bucket's copy is equal.
pub(crate) fn evict(
    shared: &Shared,
    lease: &Lease,
    name: &BlobName,
    ends: Ends,
) -> Result<bool, VolumeError> {
    let Shared { local, remote, record, waiting, clock, .. } = shared;
    let failed = |error: RecordError| error.of_blob("move", name);
    if shared.travels(name) != Some(Kind::Container) {
        return Ok(false);
    }
    let here = match local.open(name) {
        Err(VolumeError::NotFound { .. }) => return Ok(false),
        here => here?,
    };
    if record.visible(name).map_err(failed)?.is_none() || waiting.is_removing(name) {
        return Ok(false);
    }
    // A flawed copy is repaired first (T13).
    if record.flaw(name).map_err(failed)?.is_some() {
        return Ok(false);
    }
    // Another server that writes there might remove it.
    lease.check(shared).map_err(|error| error.of_blob("move", name))?;
    let there = match remote.store.stat(name) {
        Ok(stat) if is_archived_there(shared, name, &stat)? => return Ok(false),
        Ok(stat) => compare_with(&*remote.store, name, &*here, &stat)?,
        Err(VolumeError::NotFound { .. }) => There::Nothing,
        Err(error) => return Err(error),
    };
    match there {
        There::Same(_) => {}
        There::Nothing => {
            // Someone deleted it from the bucket. It is copied again.
            record.forget(name).map_err(failed)?;
            waiting.note(name, here.len(), clock.now_ms());
            return Ok(false);
        }
        There::Other { len } => {
            return Err(VolumeError::BadAnswer {
                action: "move",
                name: name.to_string(),
                found: format!(
                    "{len} bytes in the bucket and {} here that are not the same: one of them is not what was copied",
                    here.len()
                ),
            });
        }
    }
    keep_ends(&**local, name, &here, ends)?;
    match local.remove(name) {
        Ok(()) => {
            // Removed meanwhile: the remover may have looked for ends before these existed.
            if record.visible(name).map_err(failed)?.is_none() {
                forget_ends(&**local, name)?;
            }
            Ok(true)
        }
        // The same, there and here.
        Err(VolumeError::NotFound { .. }) => {
            forget_ends(&**local, name)?;
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// (T9) Returns true if the bucket's copy was archived by someone else, which is recorded: only the local copy
/// can be read then.
fn is_archived_there(shared: &Shared, name: &BlobName, stat: &RemoteStat) -> Result<bool, VolumeError> {
    let Shared { record, clock, .. } = shared;
    let failed = |error: RecordError| error.of_blob("move", name);
    let Some(class) = stat.class.as_deref().filter(|class| is_archive(class)) else { return Ok(false) };
    // (T10) This server froze it, and an older copy of the data folder restored the local copy.
    if record.cold(name).map_err(failed)?.is_some_and(|row| row.class == class) {
        return Ok(false);
    }
    tracing::warn!(%name, class, "a rule of others moved a container to an archive of the bucket, so it stays here, too");
    // Recorded as a flaw, as the audit does, and not as a class of its own: that would hide it from the audit, and
    // make the readable local copy count as cold.
    let flaw = Flaw::Cold { class: class.to_owned() };
    record.note_flaw(name, Some(&flaw), clock.now_ms()).map_err(failed)?;
    Ok(true)
}

/// Mark in the folder of ends: this data folder was made from a bucket, which has all containers.
const MADE_OF_BUCKET: &str = "ends/made-of-a-bucket";

/// Durably marks `local` as made from a bucket: without the record, blobs that only the bucket has would be missing.
///
/// # Errors
/// The volume's.
pub fn note_made_of_bucket(local: &dyn Volume) -> Result<(), VolumeError> {
    let Some(mark) = BlobName::new(MADE_OF_BUCKET) else { return Ok(()) };
    match local.create_for(&mark, Owner::REPOSITORY).and_then(|writer| writer.seal()) {
        Err(VolumeError::Exists { .. }) => Ok(()),
        made => made,
    }
}

/// Returns true if blobs of `local` may be in a bucket only.
///
/// # Errors
/// The volume's.
pub fn has_moved_containers(local: &dyn Volume) -> Result<bool, VolumeError> {
    let Some(folder) = BlobName::new(FOLDER) else { return Ok(false) };
    Ok(!local.list(&folder, None, NonZeroUsize::MIN)?.entries.is_empty())
}

/// The container that a blob in the folder of ends belongs to.
pub(crate) fn container_of(ends: &BlobName) -> Option<BlobName> {
    let name = ends.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?;
    BlobName::new(name.to_owned()).filter(|name| Kind::of(name) == Some(Kind::Container))
}

/// Calls `each` with the names of containers of which only the ends are local.
fn each_moved<E: From<VolumeError>>(
    local: &dyn Volume,
    mut each: impl FnMut(BlobName) -> Result<(), E>,
) -> Result<(), E> {
    let Some(folder) = BlobName::new(FOLDER) else { return Ok(()) };
    for entry in list_all(local, &folder) {
        let Some(name) = container_of(&entry?.name) else { continue };
        match local.open(&name) {
            // A crash came before its local copy was removed.
            Ok(_) => {}
            Err(VolumeError::NotFound { .. }) => each(name)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Counts the containers that are in a bucket only, apart from their ends.
///
/// # Errors
/// The volume's.
pub fn moved_containers(local: &dyn Volume) -> Result<u64, VolumeError> {
    let mut count = 0;
    each_moved(local, |_| {
        count += 1;
        Ok::<_, VolumeError>(())
    })?;
    Ok(count)
}

/// Adds moved containers to a `record` that is older than the move and does not know them. Asks the bucket for each.
/// Returns how many were added.
///
/// # Errors
/// When the bucket cannot be asked; the record's.
pub fn enter_moved(
    local: &dyn Volume,
    remote: &dyn RemoteVolume,
    record: &Record,
) -> Result<u64, SurveyError> {
    let mut entered = 0;
    each_moved(local, |name| {
        if record.visible(&name)?.is_some() || record.is_to_go(&name)? {
            return Ok(());
        }
        match remote.stat(&name) {
            Ok(stat) => {
                match stat.class.filter(|class| is_archive(class)) {
                    Some(class) => record.add_cold(&name, stat.len, &class)?,
                    None => record.add(&name, stat.len)?,
                }
                entered += 1;
            }
            Err(VolumeError::NotFound { .. }) => {
                tracing::error!(%name, "only its ends are here, and the bucket does not have it");
            }
            Err(error) => return Err(error.into()),
        }
        Ok::<_, SurveyError>(())
    })?;
    Ok(entered)
}

fn keep_ends(
    local: &dyn Volume,
    name: &BlobName,
    here: &Arc<dyn Blob>,
    ends: Ends,
) -> Result<(), VolumeError> {
    let Some(kept) = ends_name(name) else { return Ok(()) };
    let len = here.len();
    let head = ends.head.min(len).min(ENDS_MAX);
    let tail = ends.tail.min(len - head).min(ENDS_MAX);
    // Ends from an earlier attempt may belong to another writing of the name.
    forget_ends(local, name)?;
    let mut writer = local.create_for(&kept, Owner::REPOSITORY)?;
    let mut digest = digest_of(name);
    let parts = [
        head.to_le_bytes().to_vec(),
        len.to_le_bytes().to_vec(),
        here.read_vec(name, 0, usize::try_from(head).unwrap_or_default())?,
        here.read_vec(name, len - tail, usize::try_from(tail).unwrap_or_default())?,
    ];
    for part in &parts {
        digest.update(part);
        writer.append(part)?;
    }
    writer.append(&digest.finalize().to_le_bytes())?;
    writer.seal()
}

/// Starts the checksum of ends with the container's name, so that it fails for any other container.
fn digest_of(name: &BlobName) -> Digest {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(name.as_str().as_bytes());
    digest
}

/// Removes the ends of a container that is being removed, if there are any.
pub(crate) fn forget_ends(local: &dyn Volume, name: &BlobName) -> Result<(), VolumeError> {
    let Some(kept) = ends_name(name) else { return Ok(()) };
    match local.remove(&kept) {
        Err(VolumeError::NotFound { .. }) => Ok(()),
        removed => removed,
    }
}

/// A blob that only the bucket has, apart from its ends.
#[derive(Debug)]
pub(crate) struct FarBlob {
    name: BlobName,
    len: u64,
    ends: Option<KeptEnds>,
    reads: Arc<dyn Volume>,
    shared: Arc<Shared>,
    /// The object; opened when more than the ends is read.
    rest: OnceLock<Arc<dyn Blob>>,
}

#[derive(Debug)]
struct KeptEnds {
    head: u64,
    /// Offset of the tail in the container.
    tail_at: u64,
    blob: Arc<dyn Blob>,
}

impl KeptEnds {
    /// Opens intact ends of a blob of this name and length; `None`: there are none.
    fn open(local: &dyn Volume, name: &BlobName, len: u64) -> Option<Self> {
        let blob = local.open(&ends_name(name)?).ok()?;
        let is_whole = is_whole(name, &*blob);
        let mut header = [0; HEADER];
        blob.read_at(0, &mut header).ok()?;
        let (head, of) = header.split_first_chunk()?;
        let (head, of) = (u64::from_le_bytes(*head), u64::from_le_bytes(of.try_into().ok()?));
        let tail = blob.len().checked_sub((HEADER + CHECKSUM) as u64)?.checked_sub(head)?;
        let tail_at = len.checked_sub(tail).filter(|tail_at| *tail_at >= head)?;
        if !is_whole || of != len {
            tracing::warn!(%name, "the ends that were kept here are damaged, or of another: the bucket is read instead");
            return None;
        }
        Some(Self { head, tail_at, blob })
    }

    /// Reads the bytes from `offset` up to `end` if the ends contain them; returns false otherwise.
    fn read(&self, offset: u64, end: u64, buffer: &mut [u8]) -> bool {
        let place = if end <= self.head {
            HEADER as u64 + offset
        } else if offset >= self.tail_at {
            HEADER as u64 + self.head + (offset - self.tail_at)
        } else {
            return false;
        };
        // Removed with its container, or unreadable: the bucket has it all.
        self.blob.read_at(place, buffer).is_ok()
    }
}

/// Returns true if intact ends of a container of this name and length are kept.
pub(crate) fn has_ends_of(local: &dyn Volume, name: &BlobName, len: u64) -> bool {
    KeptEnds::open(local, name, len).is_some()
}

/// Returns true if the checksum of kept ends matches.
fn is_whole(name: &BlobName, blob: &dyn Blob) -> bool {
    if !(HEADER + CHECKSUM..).contains(&usize::try_from(blob.len()).unwrap_or_default())
        || blob.len() > 2 * ENDS_MAX + (HEADER + CHECKSUM) as u64
    {
        return false;
    }
    let mut digest = digest_of(name);
    let mut last = Vec::with_capacity(CHECKSUM);
    let checked = blob.len() - CHECKSUM as u64;
    let mut offset = 0;
    let read = pieces(blob, |piece| {
        let inside = usize::try_from(checked.saturating_sub(offset)).unwrap_or(piece.len()).min(piece.len());
        let (inside, checksum) = piece.split_at(inside);
        digest.update(inside);
        last.extend_from_slice(checksum);
        offset += piece.len() as u64;
        Ok(())
    });
    read.is_ok() && last == digest.finalize().to_le_bytes()
}

impl FarBlob {
    /// Opens the blob `name` of `len` bytes, as recorded.
    pub(crate) fn open(shared: &Arc<Shared>, name: &BlobName, len: u64) -> Result<Self, VolumeError> {
        let ends = KeptEnds::open(&*shared.local, name, len);
        let (reads, shared) = (Arc::clone(&shared.remote.reads), Arc::clone(shared));
        let blob = Self { name: name.clone(), len, ends, reads, shared, rest: OnceLock::new() };
        if blob.ends.is_none() {
            blob.rest()?;
        }
        Ok(blob)
    }

    /// (T14) Fails if the object has a recorded flaw; it is cleared only once the bucket was seen to have the
    /// object intact.
    fn check_flaw(&self) -> Result<(), VolumeError> {
        match self.shared.record.flaw(&self.name) {
            Ok(Some(flaw)) if flaw.is_loss() => Err(self.lost(&flaw)),
            _ => Ok(()),
        }
    }

    /// Reads from the thawed copy that is kept locally. Returns false if there is none.
    fn read_kept(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, VolumeError> {
        let Some(thawed) = self.shared.thawed.get().filter(|thawed| thawed.has(&self.name, self.len)) else {
            return Ok(false);
        };
        // (T16) It is no copy: it neither hides nor heals what was lost.
        self.check_flaw()?;
        Ok(thawed.read(&self.name, self.len, offset, buffer))
    }

    fn rest(&self) -> Result<&Arc<dyn Blob>, VolumeError> {
        if let Some(rest) = self.rest.get() {
            return Ok(rest);
        }
        self.check_flaw()?;
        match self.reads.open(&self.name) {
            Ok(opened) if opened.len() == self.len => Ok(self.rest.get_or_init(|| opened)),
            Ok(opened) => Err(self.found(&Flaw::Length { there: opened.len() })),
            Err(VolumeError::NotFound { .. }) => Err(self.found(&Flaw::Missing)),
            Err(error) => Err(error),
        }
    }

    /// (T14) Records a flaw that a reader met.
    fn found(&self, flaw: &Flaw) -> VolumeError {
        let Shared { record, clock, .. } = &*self.shared;
        // (G7) Removed meanwhile, from both places: that is a miss.
        if !matches!(record.visible(&self.name), Ok(Some(_))) {
            return VolumeError::NotFound { name: self.name.clone() };
        }
        // (T14) If another server writes to the bucket, it may have removed the object.
        if let Ok(Some(holder)) = record.other_writer_there() {
            let source = format!(
                "{}, where another server writes ({holder}): this data folder is out of date. Recover again from the bucket",
                flaw.text()
            );
            return VolumeError::NotReadableNow { name: self.name.to_string(), source: source.into() };
        }
        tracing::error!(name = %self.name, what = flaw.text(), "a blob that lies in the bucket alone cannot be read");
        if let Err(error) = record.note_flaw(&self.name, Some(flaw), clock.now_ms()) {
            tracing::warn!(name = %self.name, %error, "cannot note what is wrong with an object of the bucket");
        }
        self.lost(flaw)
    }

    /// Returns the error of a disk that cannot read the blob: it counts as damaged until it can be read again.
    fn lost(&self, flaw: &Flaw) -> VolumeError {
        VolumeError::Io {
            action: "read",
            name: self.name.to_string(),
            source: format!(
                "{}, and it lies nowhere else (if it is put back there: 'holdfast-server tier audit')",
                flaw.text()
            )
            .into(),
        }
    }
}

impl Blob for FarBlob {
    fn drop_cached(&self) {}

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let wanted = buffer.len() as u64;
        let Some(end) = offset.checked_add(wanted).filter(|end| *end <= self.len) else {
            return Err(VolumeError::OutOfRange { name: self.name.clone(), len: self.len, offset, wanted });
        };
        match &self.ends {
            Some(ends) if ends.read(offset, end, buffer) => Ok(()),
            _ if self.read_kept(offset, buffer)? => Ok(()),
            _ => match self.rest()?.read_at(offset, buffer) {
                // It existed when it was opened.
                Err(VolumeError::NotFound { .. }) => Err(self.found(&Flaw::Missing)),
                read => read,
            },
        }
    }

    fn is_at_hand(&self) -> bool {
        false
    }

    /// Returns a place only if the blob can be read although it is archived.
    fn cold(&self) -> Option<ColdPlace> {
        let Self { name, len, .. } = self;
        let is_kept = self.shared.thawed.get().is_some_and(|thawed| thawed.has(name, *len));
        is_kept.then(|| ColdPlace { name: name.clone(), len: *len, is_readable: true, is_certain: true })
    }
}
