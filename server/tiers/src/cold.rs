//! Archived objects of the bucket, and the volume that refuses to read them.
//!
//! Reads of the bucket pass the [`Gate`], which refuses objects that are cold by the record before the bucket is
//! asked: a repository's upkeep must never pay for a thaw by accident, and the error says what to do. An object that
//! the bucket refuses although the record knows nothing (a lifecycle rule, a crash) is recorded as cold, so that it
//! can be thawed like the rest.

use std::sync::Arc;

use holdfast_types::clock::Clock;
use holdfast_volume::{Blob, BlobName, ColdPlace, Volume, VolumeError};
use parking_lot::RwLock;

use crate::record::{ColdRow, Record, RecordError};

/// Storage classes whose objects must be thawed before they can be read.
pub(crate) const ARCHIVES: [&str; 2] = ["GLACIER", "DEEP_ARCHIVE"];

/// Class assumed for an object when the bucket says only that it is archived.
const UNKNOWN_ARCHIVE: &str = "GLACIER";

/// A thawed copy counts as readable until this long before it expires: a read must not be cut off in the middle.
pub(crate) const MARGIN_MS: i64 = 60_000;

/// Storage classes that containers can be given, and the minimum storage duration that is billed, in days.
const CLASSES: [(&str, u32); 5] =
    [("STANDARD_IA", 30), ("ONEZONE_IA", 30), ("GLACIER_IR", 90), ("GLACIER", 90), ("DEEP_ARCHIVE", 180)];

/// Returns true if objects of a storage class must be thawed before they can be read.
pub fn is_archive(class: &str) -> bool {
    ARCHIVES.contains(&class)
}

/// Returns the minimum billed storage duration of a class that containers can be given, in days; `None`: no such class.
pub fn days_min(class: &str) -> Option<u32> {
    CLASSES.iter().find(|(known, _)| *known == class).map(|(_, days)| *days)
}

/// Returns true if a row's class is an archive, whether or not there is a thawed copy.
fn is_cold(row: &ColdRow) -> bool {
    is_archive(&row.class)
}

/// Returns true if the record says that the object can be read at this moment.
fn is_readable(row: &ColdRow, now_ms: i64) -> bool {
    // The bucket is asked about one that may have been moved to the archive.
    !is_cold(row)
        || !row.is_done
        || row.until_ms.is_some_and(|until| until.saturating_sub(MARGIN_MS) > now_ms)
}

fn refusal(name: &BlobName, row: &ColdRow) -> VolumeError {
    let class = &row.class;
    let what = match row.asked_ms {
        Some(_) => format!(
            "it lies in an archive (Glacier) as {class}, and is being thawed: 'holdfast restore' with --thaw waits for it"
        ),
        None => format!(
            "it lies in an archive (Glacier) as {class}, and must be thawed first: 'holdfast restore' shows what that takes, and does it with \
             --thaw"
        ),
    };
    VolumeError::archived(name, what)
}

fn failed(name: &BlobName, error: RecordError) -> VolumeError {
    VolumeError::Unavailable { action: "read", name: name.to_string(), source: error.into() }
}

/// State that the types of this file share.
#[derive(Debug, Clone)]
pub(crate) struct Cold {
    record: Arc<Record>,
    clock: Arc<dyn Clock>,
}

impl Cold {
    pub(crate) fn new(record: &Arc<Record>, clock: &Arc<dyn Clock>) -> Self {
        Self { record: Arc::clone(record), clock: Arc::clone(clock) }
    }

    /// Fails if `name` cannot be read now.
    fn admit(&self, name: &BlobName) -> Result<(), VolumeError> {
        match self.record.cold(name).map_err(|error| failed(name, error))? {
            Some(row) if !is_readable(&row, self.clock.now_ms()) => Err(refusal(name, &row)),
            _ => Ok(()),
        }
    }

    /// Records that the bucket refused a read because the object is archived.
    fn found_cold(&self, name: &BlobName, error: VolumeError) -> VolumeError {
        let known = self.record.cold(name).ok().flatten().map(|row| row.class);
        let class = known.filter(|class| is_archive(class)).unwrap_or_else(|| UNKNOWN_ARCHIVE.to_owned());
        if let Err(error) = self.record.note_frozen(name, &class) {
            tracing::warn!(%name, %error, "cannot note that a blob lies in an archive");
        }
        error
    }

    /// Wraps a blob of `len` bytes in the bucket so that it tells the engine whether it is cold.
    pub(crate) fn place(&self, name: &BlobName, len: u64, inner: impl Blob + 'static) -> Arc<dyn Blob> {
        Arc::new(Placed { inner: Box::new(inner), name: name.clone(), len, cold: self.clone() })
    }

    /// Wraps the bucket for readers in a [`Gate`].
    pub(crate) fn gate(&self, reads: Arc<dyn Volume>) -> Arc<dyn Volume> {
        Arc::new(Gate { inner: reads, cold: self.clone() })
    }
}

/// A blob that knows whether it is archived.
#[derive(Debug)]
struct Placed {
    inner: Box<dyn Blob>,
    name: BlobName,
    len: u64,
    cold: Cold,
}

impl Blob for Placed {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.inner.read_at(offset, buffer)
    }

    fn is_at_hand(&self) -> bool {
        self.inner.is_at_hand()
    }

    fn drop_cached(&self) {
        self.inner.drop_cached();
    }

    fn cold(&self) -> Option<ColdPlace> {
        let place = |is_readable, is_certain| {
            Some(ColdPlace { name: self.name.clone(), len: self.len, is_readable, is_certain })
        };
        match self.cold.record.cold(&self.name) {
            Ok(row) => {
                let row = row.filter(is_cold)?;
                let is_kept = || self.inner.cold().is_some_and(|kept| kept.is_readable);
                place(is_readable(&row, self.cold.clock.now_ms()) || is_kept(), row.is_done)
            }
            // Unknown: nothing counts on it, and reading it reports the error.
            Err(_) => place(true, true),
        }
    }
}

/// A volume that refuses to read archived objects (see the module documentation).
#[derive(Debug)]
struct Gate {
    inner: Arc<dyn Volume>,
    cold: Cold,
}

impl Volume for Gate {
    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let blob = self.inner.open(name)?;
        let len = blob.len();
        let (inner, cold) = (Arc::clone(&self.inner), self.cold.clone());
        Ok(Arc::new(GatedBlob { inner, cold, name: name.clone(), len, blob: RwLock::new(blob) }))
    }

    holdfast_volume::pass_on!(create_for, list, remove, discard_unfinished, space, handles_outlive_removal, evict, freeze to inner);
}

#[derive(Debug)]
struct GatedBlob {
    inner: Arc<dyn Volume>,
    cold: Cold,
    name: BlobName,
    len: u64,
    /// Reopened when the object was replaced by the same bytes in another storage class.
    blob: RwLock<Arc<dyn Blob>>,
}

impl Blob for GatedBlob {
    fn len(&self) -> u64 {
        self.len
    }

    fn drop_cached(&self) {
        self.blob.read().drop_cached();
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        self.cold.admit(&self.name)?;
        let blob = Arc::clone(&*self.blob.read());
        let read = match blob.read_at(offset, buffer) {
            // Same bytes, other tag: a changed tag alone does not mean that the object is gone.
            Err(VolumeError::NotFound { .. }) => {
                let again = self.inner.open(&self.name)?;
                if again.len() != self.len {
                    return Err(VolumeError::NotFound { name: self.name.clone() });
                }
                *self.blob.write() = Arc::clone(&again);
                again.read_at(offset, buffer)
            }
            read => read,
        };
        read.map_err(
            |error| if error.is_archived() { self.cold.found_cold(&self.name, error) } else { error },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_frozen_is_readable_while_it_is_thawed() {
        let row = |class: &str, is_done, until_ms| ColdRow {
            class: class.to_owned(),
            is_done,
            asked_ms: None,
            until_ms,
        };
        assert!(!is_readable(&row("GLACIER", true, None), 0));
        assert!(is_readable(&row("GLACIER_IR", true, None), 0));
        assert!(is_readable(&row("DEEP_ARCHIVE", false, None), 0), "the bucket knows");
        assert!(is_readable(&row("DEEP_ARCHIVE", true, Some(MARGIN_MS + 1)), 0));
        assert!(!is_readable(&row("DEEP_ARCHIVE", true, Some(MARGIN_MS)), 0), "in time");
        assert_eq!((days_min("DEEP_ARCHIVE"), days_min("STANDARD")), (Some(180), None));
        assert!(ARCHIVES.iter().all(|class| days_min(class).is_some()));
    }
}
