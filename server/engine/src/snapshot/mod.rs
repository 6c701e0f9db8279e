//! Catalog snapshots: compressed copies of the catalog on the volume, for what points cannot tell: tokens, jobs, history,
//! audit. This file seals them, [`mod@read`] proves one whole, [`keeper`] decides when, and how many are kept.
//!
//! A snapshot is `snapshots/NUMBER`, 16 hexadecimal digits; the highest number that can be read is the newest. A
//! crash in the middle leaves an unfinished blob, which the next start discards, or one snapshot more than are kept.

mod keeper;
mod read;

use std::io::{self, Read, Write};

use holdfast_volume::{BlobName, BlobWriter, Volume, VolumeError, list_all};

use crate::error::EngineError;
use crate::format::snapshot::SnapshotFooter;

pub use crate::format::snapshot::SnapshotHeader;
pub(crate) use keeper::{SnapshotJob, Snapshots};
pub use read::{read_snapshot, read_snapshot_blob, read_snapshot_header};

/// Snapshots kept: with one an hour, the last eight hours of a day with changes, and all that eight stops left.
pub(crate) const KEPT: usize = 8;

/// The folder of all snapshots.
#[expect(clippy::expect_used, reason = "a constant")]
pub(crate) fn folder() -> BlobName {
    BlobName::new("snapshots").expect("a valid name")
}

#[expect(clippy::expect_used, reason = "made of digits")]
fn name(number: u64) -> BlobName {
    BlobName::new(format!("snapshots/{number:016x}")).expect("a valid name")
}

fn parse(name: &BlobName) -> Option<u64> {
    let digits = name.as_str().strip_prefix("snapshots/").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The snapshots on a volume, the newest first; they are not read.
///
/// # Errors
/// When the volume cannot be listed.
pub fn list_snapshots(volume: &dyn Volume) -> Result<Vec<(u64, BlobName)>, VolumeError> {
    let mut found = Vec::new();
    for entry in list_all(volume, &folder()) {
        let entry = entry?;
        match parse(&entry.name) {
            Some(number) => found.push((number, entry.name)),
            None => tracing::warn!(name = %entry.name, "ignored an unexpected file among the snapshots"),
        }
    }
    found.reverse();
    Ok(found)
}

/// zstd's level: a catalog shrinks to a quarter at 3, and hardly further above.
const LEVEL: i32 = 3;

/// Read, compressed and appended at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Copies a catalog into a snapshot called `name`, durably. Returns its length. `allow` is asked before the blob grows to
/// so many bytes.
///
/// # Errors
/// The volume's; what `allow` says; when `catalog` cannot be read.
pub fn seal_snapshot(
    volume: &dyn Volume,
    name: &BlobName,
    header: &SnapshotHeader,
    catalog: &mut dyn Read,
    allow: &mut dyn FnMut(u64) -> Result<(), EngineError>,
) -> Result<u64, EngineError> {
    let mut blob = volume.create(name)?;
    blob.append(&header.encode())?;
    let mut sink = Sink { blob, stored_bytes: 0, allow, failure: None };
    let footer = match compress(catalog, &mut sink) {
        Ok(footer) => footer,
        Err(error) => return Err(sink.failure.unwrap_or_else(|| cannot_copy(&error))),
    };
    let Sink { mut blob, .. } = sink;
    blob.append(&footer.encode())?;
    let bytes = blob.len();
    blob.seal()?;
    Ok(bytes)
}

fn cannot_copy(error: &io::Error) -> EngineError {
    EngineError::Internal(format!("cannot copy the catalog: {error}"))
}

fn compress(catalog: &mut dyn Read, sink: &mut Sink<'_>) -> io::Result<SnapshotFooter> {
    let mut hasher = blake3::Hasher::new();
    let mut plain_bytes = 0;
    let mut encoder = zstd::stream::write::Encoder::new(&mut *sink, LEVEL)?;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let len = match catalog.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = buffer.get(..len).unwrap_or_default();
        hasher.update(bytes);
        plain_bytes += len as u64;
        encoder.write_all(bytes)?;
    }
    encoder.finish()?;
    Ok(SnapshotFooter { plain_bytes, stored_bytes: sink.stored_bytes, digest: *hasher.finalize().as_bytes() })
}

/// Appends to a blob; keeps the error itself, which says more than an I/O error can.
struct Sink<'a> {
    blob: Box<dyn BlobWriter>,
    stored_bytes: u64,
    allow: &'a mut dyn FnMut(u64) -> Result<(), EngineError>,
    failure: Option<EngineError>,
}

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let allowed = (self.allow)(self.blob.len() + bytes.len() as u64);
        if let Err(error) = allowed.and_then(|()| Ok(self.blob.append(bytes)?)) {
            let told = io::Error::other(error.to_string());
            self.failure = Some(error);
            return Err(told);
        }
        self.stored_bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
