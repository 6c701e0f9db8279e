//! A volume that fails on demand: scripted or seeded failures, a size limit, damaged blobs, and loss of power
//! after any number of operations. The tests of everything above the volume stand on it.
//!
//! After the crash point every operation fails, and [`FaultyVolume::survivor`] holds what a restart would
//! find: every blob whose seal had returned, none of the unfinished ones, and the operation in flight done
//! or not done as [`InFlight`] says.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::memory::copy_range;
use crate::{Blob, BlobName, BlobWriter, ListPage, Owner, Space, Volume, VolumeError};

mod plan;

pub use plan::{CrashPoint, Damage, Failure, Fault, InFlight, OpKind};

/// A volume that wraps another and misbehaves as told.
#[derive(Debug)]
pub struct FaultyVolume<V> {
    pub(super) inner: Arc<V>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    failures: Vec<Failure>,
    counts: HashMap<OpKind, u64>,
    mutations: u64,
    crash: Option<CrashPoint>,
    crashed: bool,
    capacity_bytes: Option<u64>,
    used_bytes: u64,
    damaged: HashMap<BlobName, Bytes>,
    /// Damaged blobs in the simulated page cache.
    cached: HashMap<BlobName, Bytes>,
    refused: HashMap<BlobName, Fault>,
}

/// Fate of one operation.
#[derive(Debug)]
enum Verdict {
    Do,
    Fail(Fault),
    /// Power fails now; the operation itself may have been done.
    Crash(InFlight),
    /// Power has failed already.
    Dead,
}

impl<V: Volume> FaultyVolume<V> {
    /// Wraps `inner`, with no fault planned.
    pub fn new(inner: V) -> Self {
        Self { inner: Arc::new(inner), state: Arc::default() }
    }

    /// Plans a failure; operations count from the beginning.
    pub fn fail(&self, failure: Failure) {
        self.state.lock().failures.push(failure);
    }

    /// Plans to fail the `nth` operation of a kind from now on, 1 being the next.
    pub fn fail_next(&self, kind: OpKind, nth: u64, fault: Fault) {
        let mut state = self.state.lock();
        let done = state.counts.get(&kind).copied().unwrap_or(0);
        state.failures.push(Failure { kind, nth: done + nth, fault });
    }

    /// Plans a power failure.
    pub fn crash_at(&self, point: CrashPoint) {
        self.state.lock().crash = Some(point);
    }

    /// Limits the bytes written through this volume that it may hold to `bytes`.
    pub fn limit_capacity(&self, bytes: u64) {
        self.state.lock().capacity_bytes = Some(bytes);
    }

    /// Returns true if its capacity is limited.
    pub fn is_limited(&self) -> bool {
        self.state.lock().capacity_bytes.is_some()
    }

    /// Cancels every planned failure, the size limit and the crash point. Damage and a crash stay.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.failures.clear();
        state.capacity_bytes = None;
        state.crash = None;
    }

    /// Creates, appends, seals and removals so far: run once without a crash, then crash at each number below.
    pub fn mutations(&self) -> u64 {
        self.state.lock().mutations
    }

    /// Operations of a kind so far.
    pub fn count(&self, kind: OpKind) -> u64 {
        self.state.lock().counts.get(&kind).copied().unwrap_or(0)
    }

    /// Returns true if the crash point has been passed.
    pub fn has_crashed(&self) -> bool {
        self.state.lock().crashed
    }

    /// Damages a sealed blob as seen through this volume, also by handles that are open already. Damages add up.
    ///
    /// # Errors
    /// When the blob cannot be read.
    pub fn damage(&self, name: &BlobName, damage: &Damage) -> Result<(), VolumeError> {
        let known = self.state.lock().damaged.get(name).cloned();
        let mut bytes = match known {
            Some(bytes) => bytes.to_vec(),
            None => read_whole(&*self.inner, name)?,
        };
        damage.apply(&mut bytes);
        self.state.lock().damaged.insert(name.clone(), bytes.into());
        Ok(())
    }

    /// Puts a blob into the simulated page cache, with `damage`, until it is dropped from there; later changes of the
    /// blob are not seen.
    pub fn cache(&self, name: &BlobName, damage: Option<&Damage>) -> Result<(), VolumeError> {
        let mut bytes = read_whole(&*self.inner, name)?;
        damage.iter().for_each(|damage| damage.apply(&mut bytes));
        self.state.lock().cached.insert(name.clone(), bytes.into());
        Ok(())
    }

    /// Returns true if the simulated page cache has a blob.
    pub fn has_cached(&self) -> bool {
        !self.state.lock().cached.is_empty()
    }

    /// Makes opening a blob fail in this way until [`FaultyVolume::give`].
    pub fn refuse(&self, name: &BlobName, fault: Fault) {
        self.state.lock().refused.insert(name.clone(), fault);
    }

    /// Lets every refused blob be opened again.
    pub fn give(&self) {
        self.state.lock().refused.clear();
    }

    /// The volume below: after a crash, what a restart finds.
    pub fn survivor(&self) -> Arc<V> {
        Arc::clone(&self.inner)
    }

    fn verdict(&self, kind: OpKind) -> Verdict {
        self.state.lock().verdict(kind)
    }

    /// Admits an operation that changes nothing.
    pub(super) fn admit(&self, kind: OpKind, name: &BlobName) -> Result<(), VolumeError> {
        match self.verdict(kind) {
            Verdict::Do => Ok(()),
            Verdict::Fail(fault) => Err(fault.error(kind, name)),
            Verdict::Crash(_) | Verdict::Dead => Err(dead(kind, name)),
        }
    }
}

impl State {
    fn verdict(&mut self, kind: OpKind) -> Verdict {
        if self.crashed {
            return Verdict::Dead;
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let nth = *count;
        if kind.mutates() {
            if let Some(point) = self.crash.filter(|point| self.mutations >= point.after_mutations) {
                self.crashed = true;
                return Verdict::Crash(point.in_flight);
            }
            self.mutations += 1;
        }
        match self.failures.iter().find(|failure| failure.kind == kind && failure.nth == nth) {
            Some(failure) => Verdict::Fail(failure.fault),
            None => Verdict::Do,
        }
    }

    fn reserve(&mut self, bytes: u64) -> bool {
        let used = self.used_bytes.saturating_add(bytes);
        if self.capacity_bytes.is_some_and(|capacity| used > capacity) {
            return false;
        }
        self.used_bytes = used;
        true
    }

    fn release(&mut self, bytes: u64) {
        self.used_bytes = self.used_bytes.saturating_sub(bytes);
    }
}

fn dead(kind: OpKind, name: &BlobName) -> VolumeError {
    kind.local_failure(name, "the volume lost power")
}

fn read_whole(volume: &impl Volume, name: &BlobName) -> Result<Vec<u8>, VolumeError> {
    let blob = volume.open(name)?;
    let len = usize::try_from(blob.len()).unwrap_or(usize::MAX);
    blob.read_vec(name, 0, len)
}

impl<V: Volume + 'static> Volume for FaultyVolume<V> {
    fn create_for(&self, name: &BlobName, owner: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        self.admit(OpKind::Create, name)?;
        let inner = Some(self.inner.create_for(name, owner)?);
        let state = Arc::clone(&self.state);
        Ok(Box::new(FaultyWriter { name: name.clone(), inner, len: 0, reserved_bytes: 0, state }))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        self.admit(OpKind::Open, name)?;
        if let Some(fault) = self.state.lock().refused.get(name) {
            return Err(fault.error(OpKind::Open, name));
        }
        let inner = self.inner.open(name)?;
        let damaged_len = self.state.lock().damaged.get(name).map(|bytes| bytes.len() as u64);
        let len = damaged_len.unwrap_or_else(|| inner.len());
        Ok(Arc::new(FaultyBlob { name: name.clone(), inner, len, state: Arc::clone(&self.state) }))
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        self.admit(OpKind::List, prefix)?;
        let mut page = self.inner.list(prefix, after, limit)?;
        let state = self.state.lock();
        for entry in &mut page.entries {
            if let Some(bytes) = state.damaged.get(&entry.name) {
                entry.len = bytes.len() as u64;
            }
        }
        Ok(page)
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        let remove = || {
            let len = self.inner.open(name)?.len();
            self.inner.remove(name)?;
            let mut state = self.state.lock();
            state.damaged.remove(name);
            state.release(len);
            Ok(())
        };
        match self.verdict(OpKind::Remove) {
            Verdict::Do => remove(),
            Verdict::Fail(fault) => {
                if fault.is_applied() {
                    remove()?;
                }
                Err(fault.error(OpKind::Remove, name))
            }
            Verdict::Crash(in_flight) => {
                if in_flight == InFlight::Done {
                    remove()?;
                }
                Err(dead(OpKind::Remove, name))
            }
            Verdict::Dead => Err(dead(OpKind::Remove, name)),
        }
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        if self.state.lock().crashed {
            return Err(VolumeError::WriteFailed {
                action: "empty",
                name: "unfinished blobs".into(),
                source: "the volume lost power".into(),
            });
        }
        self.inner.discard_unfinished()
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        let limited = {
            let state = self.state.lock();
            state.capacity_bytes.map(|total_bytes| Space {
                total_bytes,
                free_bytes: total_bytes.saturating_sub(state.used_bytes),
            })
        };
        limited.map_or_else(|| self.inner.space(), |space| Ok(Some(space)))
    }

    crate::pass_on!(handles_outlive_removal, evict, freeze to inner);
}

#[derive(Debug)]
struct FaultyWriter {
    name: BlobName,
    /// `None` once an append failed or the blob was sealed.
    inner: Option<Box<dyn BlobWriter>>,
    len: u64,
    /// Released if the blob is not sealed.
    reserved_bytes: u64,
    state: Arc<Mutex<State>>,
}

impl FaultyWriter {
    fn take_inner(&mut self) -> Result<Box<dyn BlobWriter>, VolumeError> {
        self.inner.take().ok_or_else(|| OpKind::Append.local_failure(&self.name, "an earlier append failed"))
    }

    fn full(&self) -> VolumeError {
        Fault::Full.error(OpKind::Append, &self.name)
    }
}

impl BlobWriter for FaultyWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        // Taken out, and put back only on success.
        let mut inner = self.take_inner()?;
        let verdict = self.state.lock().verdict(OpKind::Append);
        match verdict {
            Verdict::Do => {}
            Verdict::Fail(fault) => return Err(fault.error(OpKind::Append, &self.name)),
            Verdict::Crash(_) | Verdict::Dead => return Err(dead(OpKind::Append, &self.name)),
        }
        let wanted = bytes.len() as u64;
        if !self.state.lock().reserve(wanted) {
            return Err(self.full());
        }
        self.reserved_bytes += wanted;
        inner.append(bytes)?;
        self.len += wanted;
        self.inner = Some(inner);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn seal(mut self: Box<Self>) -> Result<(), VolumeError> {
        let inner = self.take_inner()?;
        let verdict = self.state.lock().verdict(OpKind::Seal);
        let (applied, result) = match verdict {
            Verdict::Do => (true, Ok(())),
            Verdict::Fail(fault) => (fault.is_applied(), Err(fault.error(OpKind::Seal, &self.name))),
            Verdict::Crash(in_flight) => (in_flight == InFlight::Done, Err(dead(OpKind::Seal, &self.name))),
            Verdict::Dead => (false, Err(dead(OpKind::Seal, &self.name))),
        };
        if applied {
            inner.seal()?;
            self.reserved_bytes = 0;
        }
        result
    }
}

impl Drop for FaultyWriter {
    fn drop(&mut self) {
        self.state.lock().release(self.reserved_bytes);
    }
}

#[derive(Debug)]
struct FaultyBlob {
    name: BlobName,
    inner: Arc<dyn Blob>,
    len: u64,
    state: Arc<Mutex<State>>,
}

impl Blob for FaultyBlob {
    fn len(&self) -> u64 {
        self.len
    }

    fn is_at_hand(&self) -> bool {
        self.inner.is_at_hand()
    }

    fn drop_cached(&self) {
        self.state.lock().cached.remove(&self.name);
        self.inner.drop_cached();
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let (verdict, altered) = {
            let mut state = self.state.lock();
            let altered = state.cached.get(&self.name).or_else(|| state.damaged.get(&self.name)).cloned();
            (state.verdict(OpKind::Read), altered)
        };
        let torn = match verdict {
            Verdict::Do => false,
            Verdict::Fail(Fault::Torn) => true,
            Verdict::Fail(fault) => return Err(fault.error(OpKind::Read, &self.name)),
            Verdict::Crash(_) | Verdict::Dead => return Err(dead(OpKind::Read, &self.name)),
        };
        match altered {
            Some(bytes) => copy_range(&self.name, &bytes, offset, buffer)?,
            None => self.inner.read_at(offset, buffer)?,
        }
        if torn {
            let half = buffer.len() / 2;
            buffer.iter_mut().skip(half).for_each(|byte| *byte = 0);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
