//! Compares an object with the local blob: after the answer to a copy, or the record, was lost.

use std::io;

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_volume::{Blob, BlobChecksum, BlobName, RemoteStat, RemoteVolume, VolumeError};

/// Bytes read at once.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// The object in the bucket, compared with a local blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    /// An equal object, with this checksum.
    Same(BlobChecksum),
    /// A different object.
    Other {
        len: u64,
    },
}

/// Compares the blob `here` with its object in the bucket, by checksum where the bucket keeps one, else by reading it.
pub(crate) fn compare(
    remote: &dyn RemoteVolume,
    name: &BlobName,
    here: &dyn Blob,
) -> Result<There, VolumeError> {
    match remote.stat(name) {
        Ok(stat) => compare_with(remote, name, here, &stat),
        Err(VolumeError::NotFound { .. }) => Ok(There::Nothing),
        Err(error) => Err(error),
    }
}

/// Same as [`compare`], for an object whose stat is known.
pub(crate) fn compare_with(
    remote: &dyn RemoteVolume,
    name: &BlobName,
    here: &dyn Blob,
    stat: &RemoteStat,
) -> Result<There, VolumeError> {
    let other = There::Other { len: stat.len };
    if stat.len != here.len() {
        return Ok(other);
    }
    let sum = match stat.checksum {
        Some(there) => there,
        None => {
            let there = remote.open(name)?;
            if there.len() != here.len() {
                return Ok(other);
            }
            // 64 bits suffice against accidents. Whoever can write to the bucket can replace anything there;
            // encryption detects that.
            crc64(&*there)?
        }
    };
    Ok(if has_sum(here, sum)? { There::Same(sum) } else { other })
}

/// Computes a checksum over consecutive pieces and compares it with the expected one.
pub(crate) struct Expected {
    digest: Digest,
    sum: u64,
}

impl Expected {
    pub(crate) fn new(sum: BlobChecksum) -> Self {
        let (algorithm, sum) = match sum {
            BlobChecksum::Crc64Nvme(sum) => (CrcAlgorithm::Crc64Nvme, sum),
            BlobChecksum::Crc32c(sum) => (CrcAlgorithm::Crc32Iscsi, sum.into()),
        };
        Self { digest: Digest::new(algorithm), sum }
    }

    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.digest.update(piece);
    }

    pub(crate) fn is_met(&self) -> bool {
        self.digest.finalize() == self.sum
    }
}

/// Reads a blob and returns whether it has this checksum.
pub(crate) fn has_sum(blob: &dyn Blob, sum: BlobChecksum) -> Result<bool, VolumeError> {
    let mut expected = Expected::new(sum);
    pieces(blob, |piece| {
        expected.update(piece);
        Ok(())
    })?;
    Ok(expected.is_met())
}

/// Returns true if two checksums use the same algorithm.
pub(crate) const fn is_comparable(there: BlobChecksum, sent: BlobChecksum) -> bool {
    matches!(
        (there, sent),
        (BlobChecksum::Crc64Nvme(_), BlobChecksum::Crc64Nvme(_))
            | (BlobChecksum::Crc32c(_), BlobChecksum::Crc32c(_))
    )
}

/// Computes the checksum of a blob by reading it.
pub(crate) fn crc64(blob: &dyn Blob) -> Result<BlobChecksum, VolumeError> {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    pieces(blob, |piece| {
        digest.update(piece);
        Ok(())
    })?;
    Ok(BlobChecksum::Crc64Nvme(digest.finalize()))
}

/// Reads a blob from its beginning to its end.
pub(crate) fn pieces(
    blob: &dyn Blob,
    mut each: impl FnMut(&[u8]) -> Result<(), VolumeError>,
) -> Result<(), VolumeError> {
    let mut buffer = vec![0; PIECE_BYTES.min(usize::try_from(blob.len()).unwrap_or(PIECE_BYTES))];
    let mut offset = 0;
    while offset < blob.len() {
        let left = usize::try_from(blob.len() - offset).unwrap_or(PIECE_BYTES);
        let wanted = left.min(buffer.len());
        let piece = buffer.get_mut(..wanted).ok_or_else(|| VolumeError::Io {
            action: "read",
            name: "a blob to copy".to_owned(),
            source: io::Error::other("its length changed").into(),
        })?;
        blob.read_at(offset, piece)?;
        each(piece)?;
        offset += wanted as u64;
    }
    Ok(())
}
