//! Permanent damage to a volume in memory, for tests, which no [`crate::Volume`] can do.

use bytes::Bytes;

use crate::{BlobName, MemoryVolume};

impl MemoryVolume {
    /// An independent copy, as of a disk image taken now.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        let copy = Self::new();
        for (name, bytes) in self.sealed() {
            copy.insert(name, bytes);
        }
        copy
    }

    /// Puts or replaces a sealed blob.
    pub fn replace(&self, name: &BlobName, bytes: impl Into<Bytes>) {
        self.insert(name.clone(), bytes.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::put;

    #[test]
    fn clones_share_and_snapshots_do_not() {
        let volume = MemoryVolume::new();
        let (clone, snapshot) = (volume.clone(), volume.snapshot());
        put(&volume, "x", b"1");
        let name = BlobName::new("x").unwrap();
        assert_eq!(clone.get(&name).unwrap(), "1");
        assert_eq!(snapshot.get(&name), None);
        volume.replace(&name, "2");
        assert_eq!(clone.get(&name).unwrap(), "2");
    }
}
