//! A bucket with storage classes and checksums, whose answers get lost and whose listings are outdated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_volume::{BlobChecksum, RemoteLook, RemotePage, RemoteStat, RemoteVolume, Thawed};
use parking_lot::Mutex;

use super::*;
use crate::record::PromisedPoint;

/// Fate of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Refused,
    /// Carried out, without an answer.
    AnswerLost,
    /// Neither carried out nor answered.
    RequestLost,
}

#[derive(Debug, Default)]
pub(super) struct Classes {
    pub(super) of: BTreeMap<BlobName, String>,
    pub(super) thawed: BTreeMap<BlobName, Thawed>,
    pub(super) asked: Vec<BlobName>,
    pub(super) fate: Option<Fate>,
    /// Number of checks that succeed before one fails.
    pub(super) looks_fail_after: Option<usize>,
    /// Lengths in outdated listings; `None`: the object is left out.
    pub(super) listed: BTreeMap<BlobName, Option<u64>>,
    /// Puts an object under retention right before its class changes.
    pub(super) retained_by: Option<(Arc<Record>, i64)>,
    /// Objects that were sent without a checksum.
    pub(super) without_sum: BTreeSet<BlobName>,
    /// Object removed once it was listed.
    pub(super) gone_once_listed: Option<BlobName>,
}

/// A bucket with storage classes and checksums.
#[derive(Debug)]
pub(super) struct Classed {
    pub(super) inner: Arc<Bucket>,
    pub(super) classes: Mutex<Classes>,
    /// The first check waits here.
    pub(super) meeting: Option<(Barrier, AtomicBool)>,
}

fn lost(name: &BlobName) -> VolumeError {
    VolumeError::OutcomeUnknown { action: "ask", name: name.to_string(), source: "no answer".into() }
}

impl Classed {
    /// `Ok(true)`: the request is carried out.
    fn fate(&self, name: &BlobName) -> Result<bool, VolumeError> {
        match self.classes.lock().fate.take() {
            None => Ok(true),
            Some(Fate::AnswerLost) => Ok(false),
            Some(Fate::RequestLost) => Err(lost(name)),
            Some(Fate::Refused) => Err(VolumeError::Unavailable {
                action: "ask",
                name: name.to_string(),
                source: "refused".into(),
            }),
        }
    }
}

impl Volume for Classed {
    holdfast_volume::pass_on!(create_for, open, list, remove, discard_unfinished, space, handles_outlive_removal to inner);
}

impl RemoteVolume for Classed {
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError> {
        let bytes = self.inner.open(name)?;
        let bytes = bytes.read_vec(name, 0, usize::try_from(bytes.len()).unwrap())?;
        let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
        digest.update(&bytes);
        let classes = self.classes.lock();
        let has_sum = !classes.without_sum.contains(name);
        let checksum = has_sum.then(|| BlobChecksum::Crc64Nvme(digest.finalize()));
        let class = classes.of.get(name).cloned();
        Ok(RemoteStat { len: bytes.len() as u64, checksum, class })
    }

    fn keeps_checksums(&self) -> bool {
        true
    }

    fn list_objects(&self, after: Option<&str>) -> Result<RemotePage, VolumeError> {
        let mut page = self.inner.list_objects(after)?;
        let mut classes = self.classes.lock();
        page.objects.retain(|object| classes.listed.get(&object.name) != Some(&None));
        for object in &mut page.objects {
            object.class = classes.of.get(&object.name).cloned();
            if let Some(Some(len)) = classes.listed.get(&object.name) {
                object.len = *len;
            }
        }
        if let Some(gone) =
            classes.gone_once_listed.take_if(|gone| page.objects.iter().any(|object| object.name == *gone))
        {
            self.inner.remove(&gone)?;
        }
        Ok(page)
    }

    holdfast_volume::pass_on!(remove_all, tagged, sign_with to inner);

    fn look(&self, name: &BlobName) -> Result<RemoteLook, VolumeError> {
        let RemoteStat { len, checksum, class } = self.stat(name)?;
        let mut classes = self.classes.lock();
        if let Some(after) = &mut classes.looks_fail_after {
            if *after == 0 {
                return Err(lost(name));
            }
            *after -= 1;
        }
        let thawed = classes.thawed.get(name).copied().unwrap_or_default();
        drop(classes);
        if let Some((barrier, is_over)) = &self.meeting
            && !is_over.swap(true, Ordering::Relaxed)
        {
            barrier.wait();
        }
        Ok(RemoteLook {
            len,
            checksum,
            tag: Some("tag".to_owned()),
            class,
            thawed,
            version: None,
            retained: None,
        })
    }

    fn set_class(&self, name: &BlobName, class: &str, _: &str) -> Result<(), VolumeError> {
        if let Some((record, until_ms)) = self.classes.lock().retained_by.take() {
            let point = PromisedPoint { backup: "1", blob: "points/n/v/1.1", until_ms, missing: 0 };
            record.promise(&point, std::slice::from_ref(name), 0).unwrap();
            record.note_retained(name, until_ms).unwrap();
        }
        let is_answered = self.fate(name)?;
        self.classes.lock().of.insert(name.clone(), class.to_owned());
        if is_answered { Ok(()) } else { Err(lost(name)) }
    }

    fn ask_thaw(&self, name: &BlobName, _: u32, _: &str) -> Result<(), VolumeError> {
        let is_answered = self.fate(name)?;
        let mut classes = self.classes.lock();
        classes.asked.push(name.clone());
        classes.thawed.insert(name.clone(), Thawed::UnderWay);
        if is_answered { Ok(()) } else { Err(lost(name)) }
    }
}
