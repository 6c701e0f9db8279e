//! Writing a snapshot. Memory: one buffer, and what zstd needs, whatever the catalog's size.

use std::io::{self, Read, Write};

use holdfast_volume::{BlobName, BlobWriter, Volume, VolumeError};

use crate::error::EngineError;
use crate::format::snapshot::{SnapshotFooter, SnapshotHeader};

/// zstd's level: a catalog shrinks to a quarter at 3, and hardly further above.
const LEVEL: i32 = 3;

/// Read, compressed and appended at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Copies a catalog into a snapshot called `name`, durably. Returns its length.
///
/// # Errors
/// The volume's; when `catalog` cannot be read.
pub fn seal_snapshot(
    volume: &dyn Volume,
    name: &BlobName,
    header: &SnapshotHeader,
    catalog: &mut dyn Read,
) -> Result<u64, EngineError> {
    let mut blob = volume.create(name)?;
    blob.append(&header.encode())?;
    let mut sink = Sink { blob, stored_bytes: 0, failure: None };
    let footer = match compress(catalog, &mut sink) {
        Ok(footer) => footer,
        Err(error) => return Err(sink.failure.map_or_else(|| cannot_copy(&error), EngineError::from)),
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

fn compress(catalog: &mut dyn Read, sink: &mut Sink) -> io::Result<SnapshotFooter> {
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

/// Appends to a blob; keeps the volume's own error, which says more than an I/O error can.
struct Sink {
    blob: Box<dyn BlobWriter>,
    stored_bytes: u64,
    failure: Option<VolumeError>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.blob.append(bytes) {
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
