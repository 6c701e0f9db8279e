//! The mark of a clean stop: a small blob beside the index's manifest that says what need not be looked at again.
//!
//! It is written last at the end and removed first at the start (S4), durably, before anything changes: so while
//! a process works there is none, and one that is there speaks of the state as it is. It holds only for the
//! catalog and the index it was written beside: every stop takes a container number, so a catalog put back
//! from an older copy has another next number, and every change of the index has another manifest.
//!
//! It saves work and nothing else. One that is missing, damaged or newer means looking at more.

use holdfast_types::ids::RepositoryId;
use holdfast_volume::{BlobName, Volume, VolumeError};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::format::crc32c;

const MAGIC: u32 = u32::from_le_bytes(*b"HFCS");
const VERSION: u16 = 1;
const BYTES: usize = size_of::<Raw>();
const CRC_AT: usize = BYTES - size_of::<u32>();

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    magic: U32,
    version: U16,
    zero: U16,
    next_container: U64,
    manifest: U64,
    audit_from: U64,
    repository: [u8; 16],
    snapshot: U64,
    zero_too: U32,
    crc: U32,
}

/// Contents of the mark of a clean stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CleanStop {
    pub(crate) repository: RepositoryId,
    /// The catalog's lowest number never handed out: every container's number is below it.
    pub(crate) next_container: u64,
    /// Sequence number of the index's manifest; it covers every container.
    pub(crate) manifest: u64,
    /// The audit has looked at all containers below this number; `u64::MAX`: at all.
    pub(crate) audit_from: u64,
    /// The snapshot that holds the catalog as it is, if it is there: it is made after the mark.
    pub(crate) snapshot: u64,
}

#[expect(clippy::expect_used, reason = "a constant")]
pub(crate) fn name() -> BlobName {
    BlobName::new("index/clean-stop").expect("a valid name")
}

impl CleanStop {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let raw = Raw {
            magic: U32::new(MAGIC),
            version: U16::new(VERSION),
            zero: U16::ZERO,
            next_container: U64::new(self.next_container),
            manifest: U64::new(self.manifest),
            audit_from: U64::new(self.audit_from),
            repository: self.repository.to_bytes(),
            snapshot: U64::new(self.snapshot),
            zero_too: U32::ZERO,
            crc: U32::ZERO,
        };
        let mut bytes: [u8; BYTES] = zerocopy::transmute!(raw);
        let (body, crc) = bytes.split_at_mut(CRC_AT);
        crc.copy_from_slice(&crc32c(body).to_le_bytes());
        bytes.to_vec()
    }

    /// `None`: not whole, newer, or of another repository.
    pub(crate) fn decode(bytes: &[u8], repository: RepositoryId) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let raw: &Raw = zerocopy::transmute_ref!(bytes);
        let whole = raw.magic.get() == MAGIC && raw.crc.get() == crc32c(bytes.get(..CRC_AT)?);
        let ours = raw.version.get() == VERSION && raw.repository == repository.to_bytes();
        (whole && ours).then_some(Self {
            repository,
            next_container: raw.next_container.get(),
            manifest: raw.manifest.get(),
            audit_from: raw.audit_from.get(),
            snapshot: raw.snapshot.get(),
        })
    }

    /// Reads the mark and removes it, durably. `None`: there is none that counts.
    ///
    /// # Errors
    /// When it cannot be removed: then nothing may be changed beside it.
    pub(crate) fn take(volume: &dyn Volume, repository: RepositoryId) -> Result<Option<Self>, VolumeError> {
        let name = name();
        let blob = match volume.open(&name) {
            Ok(blob) => blob,
            Err(VolumeError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let mark = match blob.read_vec(&name, 0, BYTES) {
            Ok(bytes) if blob.len() == BYTES as u64 => Self::decode(&bytes, repository),
            Ok(_) | Err(_) => None,
        };
        if mark.is_none() {
            tracing::warn!(blob = %name, "the mark of a clean stop cannot be read; starting as after a crash");
        }
        volume.remove(&name)?;
        Ok(mark)
    }

    /// Writes the mark, durably.
    ///
    /// # Errors
    /// The volume's; the next start looks at more then.
    pub(crate) fn write(&self, volume: &dyn Volume) -> Result<(), VolumeError> {
        match volume.remove(&name()) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let mut blob = volume.create(&name())?;
        blob.append(&self.encode())?;
        blob.seal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_volume::MemoryVolume;
    use ulid::Ulid;

    const REPOSITORY: RepositoryId = RepositoryId(Ulid(7));
    const MARK: CleanStop = CleanStop {
        repository: REPOSITORY,
        next_container: 0x1234,
        manifest: 5,
        audit_from: u64::MAX,
        snapshot: 9,
    };

    #[test]
    fn its_bytes_are_these() {
        let bytes = MARK.encode();
        let mut golden = b"HFCS\x01\0\0\0\x34\x12\0\0\0\0\0\0\x05\0\0\0\0\0\0\0".to_vec();
        golden.extend([0xff; 8]);
        golden.extend([0; 15]);
        golden.push(7);
        golden.push(9);
        golden.extend([0; 11]);
        assert_eq!(bytes.get(..60), Some(golden.as_slice()));
        assert_eq!(bytes.get(60..), Some(crc32c(&golden).to_le_bytes().as_slice()));
        assert_eq!(CleanStop::decode(&bytes, REPOSITORY), Some(MARK));
    }

    #[test]
    fn no_changed_byte_is_believed() {
        let bytes = MARK.encode();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(CleanStop::decode(&changed, REPOSITORY), None, "byte {at}");
        }
        assert_eq!(CleanStop::decode(&bytes[..63], REPOSITORY), None);
        assert_eq!(CleanStop::decode(&bytes, RepositoryId(Ulid(8))), None);
    }

    #[test]
    fn it_is_taken_once() {
        let volume = MemoryVolume::new();
        assert_eq!(CleanStop::take(&volume, REPOSITORY).unwrap(), None);
        MARK.write(&volume).unwrap();
        MARK.write(&volume).unwrap();
        assert_eq!(CleanStop::take(&volume, REPOSITORY).unwrap(), Some(MARK));
        assert_eq!(CleanStop::take(&volume, REPOSITORY).unwrap(), None);
        volume.replace(&name(), &b"short"[..]);
        assert_eq!(CleanStop::take(&volume, REPOSITORY).unwrap(), None);
        assert_eq!(volume.get(&name()), None, "removed although it could not be read");
    }
}
