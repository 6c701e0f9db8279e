//! Whether what lies in the bucket is what lies here: an answer to a copy was lost, or a record.

use std::io;

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_volume::{Blob, BlobChecksum, BlobName, RemoteVolume, VolumeError};

/// What is read at once.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// What lies under a name in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    Same,
    /// Something else.
    Other {
        len: u64,
    },
}

/// Compares the blob `here` with what lies in the bucket, by checksum where the bucket keeps one, else by reading it.
pub(crate) fn compare(
    remote: &dyn RemoteVolume,
    name: &BlobName,
    here: &dyn Blob,
) -> Result<There, VolumeError> {
    let stat = match remote.stat(name) {
        Ok(stat) => stat,
        Err(VolumeError::NotFound { .. }) => return Ok(There::Nothing),
        Err(error) => return Err(error),
    };
    let other = There::Other { len: stat.len };
    if stat.len != here.len() {
        return Ok(other);
    }
    let is_same = match stat.checksum {
        Some(there) => has_sum(here, there)?,
        None => {
            let there = remote.open(name)?;
            // 64 bits: enough against accidents. Who may write to the bucket can replace anything there, which
            // encryption notices.
            there.len() == here.len()
                && checksum(&*there, CrcAlgorithm::Crc64Nvme)? == checksum(here, CrcAlgorithm::Crc64Nvme)?
        }
    };
    Ok(if is_same { There::Same } else { other })
}

/// Whether a blob has this checksum. Reads it.
pub(crate) fn has_sum(blob: &dyn Blob, sum: BlobChecksum) -> Result<bool, VolumeError> {
    Ok(match sum {
        BlobChecksum::Crc64Nvme(sum) => checksum(blob, CrcAlgorithm::Crc64Nvme)? == sum,
        BlobChecksum::Crc32c(sum) => checksum(blob, CrcAlgorithm::Crc32Iscsi)? == u64::from(sum),
    })
}

/// Whether two checksums are of one kind.
pub(crate) const fn is_comparable(there: BlobChecksum, sent: BlobChecksum) -> bool {
    matches!(
        (there, sent),
        (BlobChecksum::Crc64Nvme(_), BlobChecksum::Crc64Nvme(_))
            | (BlobChecksum::Crc32c(_), BlobChecksum::Crc32c(_))
    )
}

fn checksum(blob: &dyn Blob, algorithm: CrcAlgorithm) -> Result<u64, VolumeError> {
    let mut digest = Digest::new(algorithm);
    pieces(blob, |piece| {
        digest.update(piece);
        Ok(())
    })?;
    Ok(digest.finalize())
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
