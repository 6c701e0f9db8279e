//! Whether what lies in the bucket is what lies here: an answer to a copy was lost, or a record.

use std::io;

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_volume::{Blob, BlobChecksum, BlobName, RemoteStat, RemoteVolume, VolumeError};

/// What is read at once.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

/// What lies under a name in the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum There {
    Nothing,
    /// The same, which has this checksum.
    Same(BlobChecksum),
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
    match remote.stat(name) {
        Ok(stat) => compare_with(remote, name, here, &stat),
        Err(VolumeError::NotFound { .. }) => Ok(There::Nothing),
        Err(error) => Err(error),
    }
}

/// As [`compare`], with an object of which the bucket said `stat`.
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
            // 64 bits: enough against accidents. Who may write to the bucket can replace anything there, which
            // encryption notices.
            crc64(&*there)?
        }
    };
    Ok(if has_sum(here, sum)? { There::Same(sum) } else { other })
}

/// A checksum that bytes read one after the other should come to.
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

/// Whether a blob has this checksum. Reads it.
pub(crate) fn has_sum(blob: &dyn Blob, sum: BlobChecksum) -> Result<bool, VolumeError> {
    let mut expected = Expected::new(sum);
    pieces(blob, |piece| {
        expected.update(piece);
        Ok(())
    })?;
    Ok(expected.is_met())
}

/// Whether two checksums are of one kind.
pub(crate) const fn is_comparable(there: BlobChecksum, sent: BlobChecksum) -> bool {
    matches!(
        (there, sent),
        (BlobChecksum::Crc64Nvme(_), BlobChecksum::Crc64Nvme(_))
            | (BlobChecksum::Crc32c(_), BlobChecksum::Crc32c(_))
    )
}

/// The checksum of a blob, by reading it.
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
