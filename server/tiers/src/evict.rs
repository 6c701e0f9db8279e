//! Containers of which only the ends stay here; the rest lies in the bucket alone.
//!
//! What is read of every container, its header and directory, stays in a blob of its own, so that looking for chunks asks
//! nothing of the bucket:
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | 8 | length `H` of the head, little-endian as all |
//! | 8 | 8 | length of the container |
//! | 16 | `H` | its head |
//! | … | … | its tail |
//! | … | 8 | CRC-64/NVME of the container's name and everything before |
//!
//! Losing or damaging it costs requests and nothing else: then all of the container is read from the bucket. Ends are of one
//! writing of a container: they go before it is removed (T9), and are made anew whenever it is moved.

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

/// The folder of ends. It is neither listed as part of the repository nor copied.
const FOLDER: &str = ENDS;

const HEADER: usize = 2 * size_of::<u64>();
const CHECKSUM: usize = size_of::<u64>();

/// Most that is kept of one container: no directory is larger.
const ENDS_MAX: u64 = 16 << 20;

/// Where the ends of `name` are kept; `None`: the name would be too long.
pub(crate) fn ends_name(name: &BlobName) -> Option<BlobName> {
    BlobName::new(format!("{FOLDER}/{name}"))
}

/// (T9) Removes the local copy of a container, once more found to be the same as what lies in the bucket.
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
    // What is wrong with its copy is put right first (T13).
    if record.flaw(name).map_err(failed)?.is_some() {
        return Ok(false);
    }
    // Who else writes there may remove it.
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
            // Someone deleted it there. It is copied again.
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
            // Removed meanwhile: who did so may have looked for ends before these were there.
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

/// (T9) Returns whether the bucket's copy lies in an archive where this server did not put it, which is noted: the local copy
/// is the only one that can be read.
fn is_archived_there(shared: &Shared, name: &BlobName, stat: &RemoteStat) -> Result<bool, VolumeError> {
    let Shared { record, clock, .. } = shared;
    let failed = |error: RecordError| error.of_blob("move", name);
    let Some(class) = stat.class.as_deref().filter(|class| is_archive(class)) else { return Ok(false) };
    // (T10) It was frozen, and an older copy of the data folder brought it back here.
    if record.cold(name).map_err(failed)?.is_some_and(|row| row.class == class) {
        return Ok(false);
    }
    tracing::warn!(%name, class, "a rule of others moved a container to an archive of the bucket, so it stays here, too");
    // As the audit notes what also lies here, and no class of its own: that would hide it from the audit, and from backups what
    // can be read here.
    let flaw = Flaw::Cold { class: class.to_owned() };
    record.note_flaw(name, Some(&flaw), clock.now_ms()).map_err(failed)?;
    Ok(true)
}

/// In the folder of ends: this data folder was made of a bucket, where all containers lie.
const MADE_OF_BUCKET: &str = "ends/made-of-a-bucket";

/// Notes on `local` that it was made of a bucket, durably: without the record, what lies there alone would be missing.
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

/// Whether part of what `local` is of may lie in a bucket alone.
///
/// # Errors
/// The volume's.
pub fn has_moved_containers(local: &dyn Volume) -> Result<bool, VolumeError> {
    let Some(folder) = BlobName::new(FOLDER) else { return Ok(false) };
    Ok(!local.list(&folder, None, NonZeroUsize::MIN)?.entries.is_empty())
}

/// The container that a blob in the folder of ends is of.
pub(crate) fn container_of(ends: &BlobName) -> Option<BlobName> {
    let name = ends.as_str().strip_prefix(FOLDER)?.strip_prefix('/')?;
    BlobName::new(name.to_owned()).filter(|name| Kind::of(name) == Some(Kind::Container))
}

/// Hands over the names of containers of which only the ends are here.
fn each_moved<E: From<VolumeError>>(
    local: &dyn Volume,
    mut each: impl FnMut(BlobName) -> Result<(), E>,
) -> Result<(), E> {
    let Some(folder) = BlobName::new(FOLDER) else { return Ok(()) };
    for entry in list_all(local, &folder) {
        let Some(name) = container_of(&entry?.name) else { continue };
        match local.open(&name) {
            // A crash came before it went.
            Ok(_) => {}
            Err(VolumeError::NotFound { .. }) => each(name)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// How many containers lie in a bucket alone, but for their ends.
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

/// Enters containers of which only the ends are here and that `record` does not know of: it is older than they are. Returns
/// how many that were. Asks the bucket for each.
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
    // What an earlier try left may be of another writing of the name.
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

/// Of the ends of this container and of no other.
fn digest_of(name: &BlobName) -> Digest {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(name.as_str().as_bytes());
    digest
}

/// Removes the ends of a container that is removed, if there are any.
pub(crate) fn forget_ends(local: &dyn Volume, name: &BlobName) -> Result<(), VolumeError> {
    let Some(kept) = ends_name(name) else { return Ok(()) };
    match local.remove(&kept) {
        Err(VolumeError::NotFound { .. }) => Ok(()),
        removed => removed,
    }
}

/// A blob that lies in the bucket alone, or but for its ends.
#[derive(Debug)]
pub(crate) struct FarBlob {
    name: BlobName,
    len: u64,
    ends: Option<KeptEnds>,
    reads: Arc<dyn Volume>,
    shared: Arc<Shared>,
    /// Opened when something else is read.
    rest: OnceLock<Arc<dyn Blob>>,
}

#[derive(Debug)]
struct KeptEnds {
    head: u64,
    /// Where the tail begins.
    tail_at: u64,
    blob: Arc<dyn Blob>,
}

impl KeptEnds {
    /// `None`: there are none that are whole and of a blob of this name and length.
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

    /// Whether the bytes from `offset` up to `end` are here and could be read.
    fn read(&self, offset: u64, end: u64, buffer: &mut [u8]) -> bool {
        let place = if end <= self.head {
            HEADER as u64 + offset
        } else if offset >= self.tail_at {
            HEADER as u64 + self.head + (offset - self.tail_at)
        } else {
            return false;
        };
        // Gone with its container, or not readable: the bucket has it all.
        self.blob.read_at(place, buffer).is_ok()
    }
}

/// Whether the ends of a container of this name and length are kept, whole.
pub(crate) fn has_ends_of(local: &dyn Volume, name: &BlobName, len: u64) -> bool {
    KeptEnds::open(local, name, len).is_some()
}

/// Whether the checksum of kept ends is theirs.
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
    /// The blob `name` of `len` bytes, as the record says.
    pub(crate) fn open(shared: &Arc<Shared>, name: &BlobName, len: u64) -> Result<Self, VolumeError> {
        let ends = KeptEnds::open(&*shared.local, name, len);
        let (reads, shared) = (Arc::clone(&shared.remote.reads), Arc::clone(shared));
        let blob = Self { name: name.clone(), len, ends, reads, shared, rest: OnceLock::new() };
        if blob.ends.is_none() {
            blob.rest()?;
        }
        Ok(blob)
    }

    /// (T14) What was found wrong stays so until the bucket was seen to have it as it should be.
    fn check_flaw(&self) -> Result<(), VolumeError> {
        match self.shared.record.flaw(&self.name) {
            Ok(Some(flaw)) if flaw.is_loss() => Err(self.lost(&flaw)),
            _ => Ok(()),
        }
    }

    /// Whether a thawed copy that is kept here had it.
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

    /// (T14) A reader met what is wrong with the object.
    fn found(&self, flaw: &Flaw) -> VolumeError {
        let Shared { record, clock, .. } = &*self.shared;
        // (G7) Removed meanwhile, here and there: that is a miss.
        if !matches!(record.visible(&self.name), Ok(Some(_))) {
            return VolumeError::NotFound { name: self.name.clone() };
        }
        // (T14) Where another server writes, it may have removed it.
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

    /// As a disk that cannot read it: damage, until it can be read again.
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
                // It was there when it was opened.
                Err(VolumeError::NotFound { .. }) => Err(self.found(&Flaw::Missing)),
                read => read,
            },
        }
    }

    fn is_at_hand(&self) -> bool {
        false
    }

    /// Only whether it can be read although it lies in an archive.
    fn cold(&self) -> Option<ColdPlace> {
        let Self { name, len, .. } = self;
        let is_kept = self.shared.thawed.get().is_some_and(|thawed| thawed.has(name, *len));
        is_kept.then(|| ColdPlace { name: name.clone(), len: *len, is_readable: true, is_certain: true })
    }
}
