//! Containers of which only the ends stay here; the rest lies in the bucket alone.
//!
//! What is read of every container, its header and directory, stays in a blob of its own, so that looking for chunks asks
//! nothing of the bucket:
//!
//! ```text
//! 0              8           8 + head       length
//! ┌──────────────┬───────────┬──────────────┐
//! │ head, u64 LE │ its head  │ its tail     │
//! └──────────────┴───────────┴──────────────┘
//! ```
//!
//! Losing it costs requests and nothing else: then all of the container is read from the bucket.

use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};

use holdfast_volume::{Blob, BlobName, Ends, Owner, Volume, VolumeError, list_all};

use crate::compare::{There, compare};
use crate::kinds::Kind;
use crate::lease::is_ours;
use crate::record::RecordError;
use crate::shared::Shared;

/// The folder of ends. It is neither listed as part of the repository nor copied.
const FOLDER: &str = "ends";

const HEAD_FIELD: usize = size_of::<u64>();

/// Most that is kept of one container: no directory is larger.
const ENDS_MAX: u64 = 16 << 20;

/// Where the ends of `name` are kept; `None`: the name would be too long.
pub(crate) fn ends_name(name: &BlobName) -> Option<BlobName> {
    BlobName::new(format!("{FOLDER}/{name}"))
}

/// (T9) Removes the local copy of a container, once more found to be the same as what lies in the bucket.
pub(crate) fn evict(shared: &Shared, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
    let Shared { local, remote, record, waiting, clock, .. } = shared;
    let failed = |error: RecordError| VolumeError::Unavailable {
        action: "move",
        name: name.to_string(),
        source: error.into(),
    };
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
    // Who else writes there may remove it.
    if !is_ours(shared)? {
        return Err(VolumeError::NotReadableNow {
            name: name.to_string(),
            source:
                "its copy lies in a bucket that another server writes to (see `holdfast-server tier status`)"
                    .into(),
        });
    }
    match compare(&*remote.store, name, &*here)? {
        There::Same => {}
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
                found: format!("another object of {len} bytes in the bucket, where its copy was"),
            });
        }
    }
    keep_ends(&**local, name, &here, ends)?;
    match local.remove(name) {
        Ok(()) => Ok(true),
        // Removed meanwhile, there and here.
        Err(VolumeError::NotFound { .. }) => {
            forget_ends(&**local, name)?;
            Ok(false)
        }
        Err(error) => Err(error),
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

/// How many containers lie in a bucket alone, but for their ends.
///
/// # Errors
/// The volume's.
pub fn moved_containers(local: &dyn Volume) -> Result<u64, VolumeError> {
    let Some(folder) = BlobName::new(FOLDER) else { return Ok(0) };
    list_all(local, &folder).try_fold(0, |count, entry| entry.map(|_| count + 1))
}

fn keep_ends(
    local: &dyn Volume,
    name: &BlobName,
    here: &Arc<dyn Blob>,
    ends: Ends,
) -> Result<(), VolumeError> {
    let Some(kept) = ends_name(name) else { return Ok(()) };
    let head = ends.head.min(here.len()).min(ENDS_MAX);
    let tail = ends.tail.min(here.len() - head).min(ENDS_MAX);
    let mut writer = match local.create_for(&kept, Owner::REPOSITORY) {
        Err(VolumeError::Exists { .. }) => return Ok(()),
        writer => writer?,
    };
    writer.append(&head.to_le_bytes())?;
    writer.append(&here.read_vec(name, 0, usize::try_from(head).unwrap_or_default())?)?;
    writer.append(&here.read_vec(name, here.len() - tail, usize::try_from(tail).unwrap_or_default())?)?;
    match writer.seal() {
        // An earlier try left them: a blob never changes, so neither do its ends.
        Err(VolumeError::Exists { .. }) => Ok(()),
        sealed => sealed,
    }
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
    /// `None`: there are none, or none that a blob of `len` bytes can have.
    fn open(local: &dyn Volume, name: &BlobName, len: u64) -> Option<Self> {
        let blob = local.open(&ends_name(name)?).ok()?;
        let mut field = [0; HEAD_FIELD];
        blob.read_at(0, &mut field).ok()?;
        let head = u64::from_le_bytes(field);
        let tail = blob.len().checked_sub(HEAD_FIELD as u64)?.checked_sub(head)?;
        let tail_at = len.checked_sub(tail).filter(|tail_at| *tail_at >= head)?;
        Some(Self { head, tail_at, blob })
    }

    /// Whether the bytes from `offset` up to `end` are here and could be read.
    fn read(&self, offset: u64, end: u64, buffer: &mut [u8]) -> bool {
        let field = HEAD_FIELD as u64;
        let place = if end <= self.head {
            field + offset
        } else if offset >= self.tail_at {
            field + self.head + (offset - self.tail_at)
        } else {
            return false;
        };
        // Gone with its container, or not readable: the bucket has it all.
        self.blob.read_at(place, buffer).is_ok()
    }
}

impl FarBlob {
    /// The blob `name` of `len` bytes, as the record says.
    pub(crate) fn open(
        local: &dyn Volume,
        reads: &Arc<dyn Volume>,
        name: &BlobName,
        len: u64,
    ) -> Result<Self, VolumeError> {
        let ends = KeptEnds::open(local, name, len);
        let (name, reads) = (name.clone(), Arc::clone(reads));
        let blob = Self { name, len, ends, reads, rest: OnceLock::new() };
        if blob.ends.is_none() {
            blob.rest()?;
        }
        Ok(blob)
    }

    fn rest(&self) -> Result<&Arc<dyn Blob>, VolumeError> {
        if let Some(rest) = self.rest.get() {
            return Ok(rest);
        }
        let opened = self.reads.open(&self.name)?;
        if opened.len() != self.len {
            return Err(VolumeError::BadAnswer {
                action: "read",
                name: self.name.to_string(),
                found: format!("an object of {} bytes, where one of {} was put", opened.len(), self.len),
            });
        }
        Ok(self.rest.get_or_init(|| opened))
    }
}

impl Blob for FarBlob {
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
            _ => self.rest()?.read_at(offset, buffer),
        }
    }

    fn is_at_hand(&self) -> bool {
        false
    }
}
