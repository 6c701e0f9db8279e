//! A volume in memory with Object Lock: objects can be put under retention, and removed or replaced ones are kept.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::{
    BlobChecksum, BlobName, Hold, MemoryVolume, RemoteLook, RemoteStat, RemoteVolume, Retained, Thawed,
    Volume, VolumeError,
};

/// A volume with retention (see the module documentation). Its clock stands still until it is set.
#[derive(Debug, Default)]
pub struct LockingVolume {
    inner: MemoryVolume,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    now_ms: i64,
    retained: BTreeMap<BlobName, Retained>,
    /// Removed and replaced objects that are kept; the newest last.
    covered: BTreeMap<BlobName, Vec<(Bytes, Option<Retained>)>>,
    /// Number of retention requests.
    asked: u64,
    /// `true` if retention is not supported.
    has_none: bool,
}

fn sum(bytes: &Bytes) -> BlobChecksum {
    BlobChecksum::Crc64Nvme(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc64Nvme, bytes))
}

impl LockingVolume {
    /// Creates a volume on the blobs of `inner`.
    pub fn new(inner: MemoryVolume) -> Self {
        Self { inner, state: Mutex::default() }
    }

    /// Sets the clock.
    pub fn set_now_ms(&self, now_ms: i64) {
        self.state.lock().now_ms = now_ms;
    }

    /// Number of retention requests.
    pub fn asked(&self) -> u64 {
        self.state.lock().asked
    }

    /// Retention of an object.
    pub fn retained(&self, name: &BlobName) -> Option<Retained> {
        self.state.lock().retained.get(name).copied()
    }

    /// Overrides the retention of an object, which no request could.
    pub fn set_retained(&self, name: &BlobName, retained: Option<Retained>) {
        let mut state = self.state.lock();
        match retained {
            Some(retained) => state.retained.insert(name.clone(), retained),
            None => state.retained.remove(name),
        };
    }

    /// Removes the support for retention.
    pub fn have_none(&self) {
        self.state.lock().has_none = true;
    }
}

impl Volume for LockingVolume {
    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        let bytes = self.inner.get(name).ok_or_else(|| VolumeError::NotFound { name: name.clone() })?;
        let mut state = self.state.lock();
        let retained = state.retained.remove(name);
        state.covered.entry(name.clone()).or_default().push((bytes, retained));
        self.inner.remove(name)
    }

    crate::pass_on!(create_for, open, list, discard_unfinished, space, handles_outlive_removal to inner);
}

impl RemoteVolume for LockingVolume {
    crate::pass_on!(list_objects, tagged, sign_with to inner);

    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError> {
        let RemoteLook { len, checksum, class, .. } = self.look(name)?;
        Ok(RemoteStat { len, checksum, class })
    }

    fn keeps_checksums(&self) -> bool {
        true
    }

    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError> {
        super::remote::remove_all(self, names)
    }

    fn look(&self, name: &BlobName) -> Result<RemoteLook, VolumeError> {
        let bytes = self.inner.get(name).ok_or_else(|| VolumeError::NotFound { name: name.clone() })?;
        Ok(RemoteLook {
            len: bytes.len() as u64,
            checksum: Some(sum(&bytes)),
            tag: None,
            class: None,
            thawed: Thawed::No,
            version: Some(super::remote::hash(&bytes)),
            retained: self.retained(name),
        })
    }

    fn can_retain(&self) -> Result<bool, VolumeError> {
        Ok(!self.state.lock().has_none)
    }

    fn retain(&self, name: &BlobName, version: &str, wanted: Retained) -> Result<(), VolumeError> {
        if self.look(name)?.version.as_deref() != Some(version) {
            return Err(VolumeError::NotFound { name: name.clone() });
        }
        let mut state = self.state.lock();
        state.asked += 1;
        let now_ms = state.now_ms;
        let in_force = state.retained.get(name).filter(|retained| retained.until_ms > now_ms);
        if in_force
            .is_some_and(|retained| retained.mode != wanted.mode || retained.until_ms > wanted.until_ms)
        {
            return Err(VolumeError::Unavailable {
                action: "retain",
                name: name.to_string(),
                source: "it must stay for longer, or in another mode".into(),
            });
        }
        state.retained.insert(name.clone(), wanted);
        Ok(())
    }

    fn remove_for_good(&self, names: &[BlobName]) -> Result<Vec<(BlobName, Hold)>, VolumeError> {
        let mut held = Vec::new();
        for name in names {
            let mut state = self.state.lock();
            let now_ms = state.now_ms;
            let mut all = state.covered.remove(name).unwrap_or_default();
            let retained = state.retained.remove(name);
            all.extend(self.inner.get(name).map(|bytes| (bytes, retained)));
            all.retain(|(_, retained)| retained.is_some_and(|retained| retained.until_ms > now_ms));
            self.inner.remove_all(std::slice::from_ref(name))?;
            let until_ms = all.iter().filter_map(|(_, retained)| Some(retained.as_ref()?.until_ms)).max();
            // The newest retained version becomes the current one.
            if let (Some(until_ms), Some((bytes, Some(retained)))) = (until_ms, all.pop()) {
                held.push((name.clone(), Hold::Until(until_ms)));
                self.inner.replace(name, bytes);
                state.retained.insert(name.clone(), retained);
                state.covered.insert(name.clone(), all);
            }
        }
        Ok(held)
    }

    fn uncover(
        &self,
        name: &BlobName,
        len: u64,
        tag: Option<&str>,
        wanted: Option<BlobChecksum>,
    ) -> Result<bool, VolumeError> {
        let mut state = self.state.lock();
        let is_it = |bytes: &Bytes| {
            bytes.len() as u64 == len
                && match (tag, wanted) {
                    (Some(tag), _) => super::remote::hash(bytes) == tag,
                    (None, wanted) => wanted.is_none_or(|wanted| sum(bytes) == wanted),
                }
        };
        if self.inner.get(name).is_some_and(|bytes| is_it(&bytes)) {
            return Ok(true);
        }
        let mut covered = state.covered.get(name).cloned().unwrap_or_default();
        let Some(at) = covered.iter().rposition(|(bytes, _)| is_it(bytes)) else { return Ok(false) };
        let above = covered.drain(at..).collect::<Vec<_>>();
        let top = state.retained.get(name).copied();
        let mut locks = above.iter().skip(1).filter_map(|(_, retained)| *retained).chain(top);
        if locks.any(|retained| retained.until_ms > state.now_ms) {
            let source = "what covers it must stay".into();
            return Err(VolumeError::NotReadableNow { name: name.to_string(), source });
        }
        let Some((bytes, retained)) = above.into_iter().next() else { return Ok(false) };
        state.covered.insert(name.clone(), covered);
        state.retained.remove(name);
        if let Some(retained) = retained {
            state.retained.insert(name.clone(), retained);
        }
        self.inner.replace(name, bytes);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{retention_suite, volume_suite};

    #[test]
    fn conforms() {
        volume_suite(|| Box::new(LockingVolume::default()));
        let volume = LockingVolume::default();
        let now_ms = 1_000_000_000_000;
        volume.set_now_ms(now_ms);
        retention_suite(&volume, now_ms, &|more_ms| volume.set_now_ms(now_ms + more_ms));
    }
}
