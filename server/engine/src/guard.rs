//! The data volume as the engine writes to it: every failure of a write reaches [`Health`], nothing is written once
//! writing has stopped (W9) or the engine has closed, and the blobs sealed since the start are known.
//!
//! So a container that was open when something failed is never sealed afterwards, and a clean
//! stop knows that no seal is still under way.

use std::sync::Arc;

use holdfast_types::ids::ContainerId;
use holdfast_volume::{BlobName, BlobWriter, Ends, Owner, Volume, VolumeError};
use parking_lot::{Mutex, RwLock};
use roaring::RoaringTreemap;

use crate::container::ContainerName;
use crate::health::{Health, Part};

/// The data volume, with every write checked and every failure reported.
#[derive(Debug)]
pub(crate) struct GuardedVolume {
    inner: Arc<dyn Volume>,
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    health: Arc<Health>,
    /// Held for reading while something is written, for writing to close.
    closed: RwLock<bool>,
    sealed: Mutex<RoaringTreemap>,
}

impl GuardedVolume {
    pub(crate) fn new(inner: Arc<dyn Volume>, health: Arc<Health>) -> Self {
        let gate = Gate { health, closed: RwLock::new(false), sealed: Mutex::default() };
        Self { inner, gate: Arc::new(gate) }
    }

    /// Waits for the write under way and refuses every later one.
    pub(crate) fn close(&self) {
        *self.gate.closed.write() = true;
    }

    /// Containers sealed since the start.
    pub(crate) fn sealed(&self) -> Vec<ContainerId> {
        self.gate.sealed.lock().iter().filter_map(ContainerId::new).collect()
    }
}

impl Gate {
    /// Does `write` unless writing has stopped, and takes note of its failure.
    fn pass<T>(
        &self,
        name: &BlobName,
        write: impl FnOnce() -> Result<T, VolumeError>,
    ) -> Result<T, VolumeError> {
        let closed = self.closed.read();
        let refuse = |why: String| VolumeError::WriteFailed {
            action: "write",
            name: name.to_string(),
            source: why.into(),
        };
        if *closed {
            return Err(refuse("the repository is closed".into()));
        }
        // (W9) Also for what was begun before the failure.
        if let Some(reason) = self.health.read_only_reason() {
            return Err(refuse(format!("writing has stopped: {reason}")));
        }
        write().inspect_err(|error| self.health.volume_failed(Part::Data, error))
    }
}

impl Volume for GuardedVolume {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        let inner = self.gate.pass(name, || self.inner.create_for(name, owner))?;
        Ok(Box::new(GuardedWriter { inner, name: name.clone(), gate: Arc::clone(&self.gate) }))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.gate.pass(name, || self.inner.remove(name))
    }

    /// Waits for a place far away, so closing does not wait for it; it ends with the tasks, which stop before.
    fn evict(&self, name: &BlobName, ends: Ends) -> Result<bool, VolumeError> {
        self.gate.pass(name, || Ok(()))?;
        self.inner.evict(name, ends).inspect_err(|error| self.gate.health.volume_failed(Part::Data, error))
    }

    /// As [`Volume::evict`].
    fn freeze(&self, name: &BlobName) -> Result<bool, VolumeError> {
        self.gate.pass(name, || Ok(()))?;
        self.inner.freeze(name).inspect_err(|error| self.gate.health.volume_failed(Part::Data, error))
    }

    holdfast_volume::pass_on!(open, list, discard_unfinished, space, remove_empty_folders, here, handles_outlive_removal to inner);
}

#[derive(Debug)]
struct GuardedWriter {
    inner: Box<dyn BlobWriter>,
    name: BlobName,
    gate: Arc<Gate>,
}

impl BlobWriter for GuardedWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        let Self { inner, name, gate } = self;
        gate.pass(name, || inner.append(bytes))
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn seal(self: Box<Self>) -> Result<(), VolumeError> {
        let Self { inner, name, gate } = *self;
        gate.pass(&name, || {
            inner.seal()?;
            if let Some(container) = ContainerName::parse(&name) {
                gate.sealed.lock().insert(container.id.get());
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_volume::MemoryVolume;
    use holdfast_volume::testing::{Fault, FaultyVolume, OpKind, volume_suite};

    fn name(text: &str) -> BlobName {
        BlobName::new(text).unwrap()
    }

    #[test]
    fn conforms() {
        volume_suite(|| Box::new(GuardedVolume::new(Arc::new(MemoryVolume::new()), Arc::default())));
    }

    #[test]
    fn what_was_open_before_a_failure_is_not_sealed_after_it() {
        let faulty = Arc::new(FaultyVolume::new(MemoryVolume::new()));
        let inner: Arc<dyn Volume> = Arc::<FaultyVolume<MemoryVolume>>::clone(&faulty);
        let health = Arc::new(Health::default());
        let volume = GuardedVolume::new(inner, Arc::clone(&health));
        let before = volume.create(&name("containers/0000000/0000000001.data")).unwrap();
        faulty.fail_next(OpKind::Seal, 1, Fault::NotDurable { applied: false });
        volume.create(&name("containers/0000000/0000000002.data")).unwrap().seal().unwrap_err();
        assert!(health.read_only_reason().is_some());
        before.seal().unwrap_err();
        assert_eq!(faulty.count(OpKind::Seal), 1, "the volume was not even asked");
        assert_eq!(volume.sealed(), []);
    }

    #[test]
    fn nothing_is_sealed_after_closing() {
        let volume = GuardedVolume::new(Arc::new(MemoryVolume::new()), Arc::default());
        volume.create(&name("containers/0000000/0000000001.data")).unwrap().seal().unwrap();
        let late = volume.create(&name("containers/0000000/0000000002.data")).unwrap();
        volume.close();
        late.seal().unwrap_err();
        assert_eq!(volume.sealed(), [ContainerId::new(1).unwrap()]);
    }
}
