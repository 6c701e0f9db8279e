//! Reading a snapshot: every byte is checked before the caller may use what it was given.

use std::io::{self, BufReader, Read, Write};
use std::sync::Arc;

use holdfast_types::ids::RepositoryId;
use holdfast_volume::{Blob, BlobName, Volume, VolumeError};

use crate::error::EngineError;
use crate::format::FormatError;
use crate::format::snapshot::{FOOTER_BYTES, HEADER_BYTES, SnapshotFooter, SnapshotHeader};

/// Read from the volume and decompressed at a time.
const BUFFER_BYTES: usize = 256 << 10;

/// Logarithm of the longest window a frame may ask for: 8 MiB, what the levels up to 19 use.
const WINDOW_LOG_MAX: u32 = 23;

/// Reads the header of a snapshot, without its body.
///
/// # Errors
/// [`EngineError::Damaged`], `Unsupported`; the volume's when it cannot be asked.
pub fn read_snapshot_header(volume: &dyn Volume, name: &BlobName) -> Result<SnapshotHeader, EngineError> {
    let blob = volume.open(name).map_err(|error| cannot_read(name.as_str(), error))?;
    Ok(Framed::open(blob, name.as_str())?.header)
}

/// Writes the catalog that a snapshot holds to `out`. What was written must be thrown away unless this is `Ok`: only
/// then it is whole. Memory does not depend on the length.
///
/// # Errors
/// [`EngineError::Damaged`] when it is not whole, or of another repository than `expected`; `Unsupported`; the
/// volume's; when `out` cannot be written.
pub fn read_snapshot(
    volume: &dyn Volume,
    name: &BlobName,
    expected: Option<RepositoryId>,
    out: &mut dyn Write,
) -> Result<SnapshotHeader, EngineError> {
    let blob = volume.open(name).map_err(|error| cannot_read(name.as_str(), error))?;
    read_snapshot_blob(blob, name.as_str(), expected, out)
}

/// As [`read_snapshot`], from a blob that the caller opened; `name` is for messages.
///
/// # Errors
/// As [`read_snapshot`].
pub fn read_snapshot_blob(
    blob: Arc<dyn Blob>,
    name: &str,
    expected: Option<RepositoryId>,
    out: &mut dyn Write,
) -> Result<SnapshotHeader, EngineError> {
    let Framed { blob, header, footer } = Framed::open(blob, name)?;
    if let Some(expected) = expected.filter(|expected| *expected != header.repository) {
        let found = header.repository;
        return Err(EngineError::Damaged(format!("{name} is of repository {found}, not of {expected}")));
    }
    let body = Body { blob, name, at: HEADER_BYTES as u64, left: footer.stored_bytes, failure: None };
    let mut body = BufReader::with_capacity(BUFFER_BYTES, body);
    let digest = match copy(&mut body, footer.plain_bytes, out) {
        Ok(digest) => digest,
        Err(Copying::Out(error)) => {
            let told = format!("cannot write the catalog of {name}: {error}");
            return Err(match error.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => EngineError::Full(told),
                _ => EngineError::Internal(told),
            });
        }
        Err(Copying::Body(error)) => {
            return Err(body.into_inner().failure.map_or_else(
                || EngineError::Damaged(format!("{name} is damaged: {error}")),
                |error| cannot_read(name, error),
            ));
        }
    };
    if digest != Some(footer.digest) {
        return Err(EngineError::Damaged(format!(
            "{name} is damaged: it does not hold what its footer says"
        )));
    }
    Ok(header)
}

struct Framed {
    blob: Arc<dyn Blob>,
    header: SnapshotHeader,
    footer: SnapshotFooter,
}

impl Framed {
    fn open(blob: Arc<dyn Blob>, name: &str) -> Result<Self, EngineError> {
        let body = blob.len().checked_sub((HEADER_BYTES + FOOTER_BYTES) as u64);
        let body = body.ok_or_else(|| {
            EngineError::Damaged(format!("{name} is damaged: it has {} bytes only", blob.len()))
        })?;
        let mut header = [0; HEADER_BYTES];
        let mut footer = [0; FOOTER_BYTES];
        blob.read_at(0, &mut header)
            .and_then(|()| blob.read_at(HEADER_BYTES as u64 + body, &mut footer))
            .map_err(|error| cannot_read(name, error))?;
        let header = SnapshotHeader::decode(&header).map_err(|error| wrong(name, &error))?;
        let footer = SnapshotFooter::decode(&footer).map_err(|error| wrong(name, &error))?;
        if footer.stored_bytes != body {
            return Err(EngineError::Damaged(format!(
                "{name} is damaged: it holds {body} bytes, and {} by its footer",
                footer.stored_bytes
            )));
        }
        Ok(Self { blob, header, footer })
    }
}

fn wrong(name: &str, error: &FormatError) -> EngineError {
    match error {
        FormatError::Unsupported { .. } => EngineError::Unsupported(format!("{name}: {error}")),
        FormatError::Corrupt { .. } => EngineError::Damaged(format!("{name}: {error}")),
    }
}

fn cannot_read(name: &str, error: VolumeError) -> EngineError {
    match error {
        VolumeError::Io { .. } | VolumeError::OutOfRange { .. } | VolumeError::NotFound { .. } => {
            EngineError::Damaged(format!("{name} cannot be read: {error}"))
        }
        other => other.into(),
    }
}

enum Copying {
    Body(io::Error),
    Out(io::Error),
}

/// The digest of what was written; `None` when there is more or less than `plain_bytes`.
fn copy(
    body: &mut dyn io::BufRead,
    plain_bytes: u64,
    out: &mut dyn Write,
) -> Result<Option<[u8; 32]>, Copying> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(body).map_err(Copying::Body)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(Copying::Body)?;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut written = 0;
    loop {
        let len = match decoder.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Copying::Body(error)),
        };
        written += len as u64;
        // (R3) A frame that goes on for ever fills no disk.
        if written > plain_bytes {
            return Ok(None);
        }
        let bytes = buffer.get(..len).unwrap_or_default();
        hasher.update(bytes);
        out.write_all(bytes).map_err(Copying::Out)?;
    }
    Ok((written == plain_bytes).then(|| *hasher.finalize().as_bytes()))
}

/// The zstd frame of a blob.
struct Body<'a> {
    blob: Arc<dyn Blob>,
    name: &'a str,
    at: u64,
    left: u64,
    failure: Option<VolumeError>,
}

impl Read for Body<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let Some(buffer) = buffer.get_mut(..len) else { return Ok(0) };
        if let Err(error) = self.blob.read_at(self.at, buffer) {
            let told = io::Error::other(format!("{}: {error}", self.name));
            self.failure = Some(error);
            return Err(told);
        }
        self.at += len as u64;
        self.left -= len as u64;
        Ok(len)
    }
}
