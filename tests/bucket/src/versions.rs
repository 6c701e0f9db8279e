//! Versions of objects, and their retention: features of a bucket with Object Lock.
//!
//! A newer object or a delete marker covers older versions; a version is only removed by its own id, and not before
//! its retention ends. No client may bypass governance, so the two modes differ in nothing but their name.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use s3s::dto::{DeleteMarkerEntry, ObjectLockRetention, ObjectVersion, Timestamp, TimestampFormat};
use s3s::{S3Result, s3_error};

use crate::store::{Object, State};

/// Retention of a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// `GOVERNANCE` or `COMPLIANCE`.
    pub mode: String,
    /// End of the retention, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// An older version of a key.
#[derive(Debug)]
enum Covered {
    Object(Box<Object>),
    Marker(String),
}

/// Most versions in one answer to a listing.
const PAGE: usize = 1000;

/// A version in a listing.
struct Entry<'a> {
    key: &'a str,
    id: &'a str,
    is_latest: bool,
    /// `None`: it is a delete marker.
    object: Option<&'a Object>,
}

/// A page of a listing of versions, with its last entry if there are more.
#[derive(Debug, Default)]
pub(crate) struct VersionPage {
    pub(crate) objects: Vec<ObjectVersion>,
    pub(crate) markers: Vec<DeleteMarkerEntry>,
    pub(crate) next: Option<(String, String)>,
}

/// State of versions and retention.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// `true` if the bucket has Object Lock, and so versions.
    pub(crate) is_on: bool,
    /// How far the bucket's clock is ahead of this machine's.
    pub(crate) ahead: Duration,
    /// Older versions, newest last; a delete marker is the newest version of a key without an object.
    covered: BTreeMap<String, Vec<Covered>>,
}

impl Versions {
    fn now_ms(&self) -> u64 {
        (SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + self.ahead).as_millis() as u64
    }

    fn is_locked(&self, object: &Object) -> bool {
        object.retention.as_ref().is_some_and(|retention| retention.until_ms > self.now_ms())
    }
}

/// Encodes a time for the protocol.
pub(crate) fn timestamp(ms: u64) -> Timestamp {
    (UNIX_EPOCH + Duration::from_millis(ms)).into()
}

fn millis(at: &Timestamp) -> u64 {
    let mut text = Vec::new();
    at.format(TimestampFormat::EpochSeconds, &mut text).unwrap();
    (String::from_utf8(text).unwrap().parse::<f64>().unwrap() * 1000.0).round() as u64
}

impl State {
    /// Makes the current object an older version, if there are versions.
    pub(crate) fn cover(&mut self, key: &str) {
        let Some(object) = self.objects.remove(key).filter(|_| self.versions.is_on) else { return };
        self.versions.covered.entry(key.to_owned()).or_default().push(Covered::Object(Box::new(object)));
    }

    /// Deletes without a version: the current object is covered, or removed if there are no versions.
    pub(crate) fn delete(&mut self, key: &str) {
        self.cover(key);
        if self.versions.is_on {
            self.last += 1;
            let marker = Covered::Marker(format!("m{:032x}", self.last));
            self.versions.covered.entry(key.to_owned()).or_default().push(marker);
        }
    }

    /// Deletes a version for good.
    pub(crate) fn delete_version(&mut self, key: &str, version: &str) -> S3Result<()> {
        if let Some(object) = self.objects.get(key).filter(|object| object.version == version) {
            if self.versions.is_locked(object) {
                return Err(s3_error!(
                    AccessDenied,
                    "Access Denied because object protected by object lock."
                ));
            }
            self.objects.remove(key);
        } else if let Some(covered) = self.versions.covered.get(key) {
            let found = covered.iter().position(|covered| match covered {
                Covered::Object(object) => object.version == version,
                Covered::Marker(id) => id == version,
            });
            let Some(at) = found else { return Ok(()) };
            if let Covered::Object(object) = &covered[at]
                && self.versions.is_locked(object)
            {
                return Err(s3_error!(
                    AccessDenied,
                    "Access Denied because object protected by object lock."
                ));
            }
            self.versions.covered.get_mut(key).unwrap().remove(at);
        }
        self.uncover(key);
        Ok(())
    }

    /// Makes the newest version current, unless it is a delete marker.
    fn uncover(&mut self, key: &str) {
        let Some(covered) = self.versions.covered.get_mut(key) else { return };
        if !self.objects.contains_key(key)
            && let Some(Covered::Object(object)) =
                covered.pop_if(|newest| matches!(newest, Covered::Object(_)))
        {
            self.objects.insert(key.to_owned(), *object);
        }
        if self.versions.covered.get(key).is_some_and(Vec::is_empty) {
            self.versions.covered.remove(key);
        }
    }

    /// Extends the retention of a version, or of the current object.
    pub(crate) fn retain(
        &mut self,
        key: &str,
        version: Option<&str>,
        wanted: &ObjectLockRetention,
    ) -> S3Result<()> {
        if !self.versions.is_on {
            return Err(s3_error!(InvalidRequest, "Bucket is missing Object Lock Configuration"));
        }
        let (Some(mode), Some(until)) = (&wanted.mode, &wanted.retain_until_date) else {
            return Err(s3_error!(MalformedXML));
        };
        let (mode, until_ms) = (mode.as_str().to_owned(), millis(until));
        let now_ms = self.versions.now_ms();
        if until_ms <= now_ms {
            return Err(s3_error!(InvalidArgument, "The retain until date must be in the future!"));
        }
        let object = self.version_mut(key, version)?;
        let in_force = object.retention.as_ref().filter(|retention| retention.until_ms > now_ms);
        if in_force.is_some_and(|retention| retention.mode != mode || retention.until_ms > until_ms) {
            return Err(s3_error!(AccessDenied, "Access Denied because object protected by object lock."));
        }
        object.retention = Some(Retention { mode, until_ms });
        Ok(())
    }

    /// A version, or the current object.
    pub(crate) fn version_mut(&mut self, key: &str, version: Option<&str>) -> S3Result<&mut Object> {
        let is_it = |object: &Object| version.is_none_or(|version| object.version == version);
        if self.objects.get(key).is_some_and(is_it) {
            return Ok(self.objects.get_mut(key).unwrap());
        }
        if version.is_none() {
            return Err(s3_error!(NoSuchKey));
        }
        let covered = self.versions.covered.get_mut(key).into_iter().flatten();
        let mut objects = covered.filter_map(|covered| match covered {
            Covered::Object(object) => Some(&mut **object),
            Covered::Marker(_) => None,
        });
        objects.find(|object| is_it(object)).ok_or_else(|| s3_error!(NoSuchVersion))
    }

    /// All versions of all keys with this prefix: of each key the newest first.
    fn entries(&self, prefix: &str) -> Vec<Entry<'_>> {
        let mut keys: Vec<&String> = self.objects.keys().chain(self.versions.covered.keys()).collect();
        keys.retain(|key| key.starts_with(prefix));
        keys.sort_unstable();
        keys.dedup();
        let mut entries = Vec::new();
        for key in keys {
            let newest = self.objects.get(key).map(|object| (object.version.as_str(), Some(object)));
            let covered = self.versions.covered.get(key).into_iter().flatten().rev();
            let covered = covered.map(|covered| match covered {
                Covered::Object(object) => (object.version.as_str(), Some(&**object)),
                Covered::Marker(id) => (id.as_str(), None),
            });
            let all = newest.into_iter().chain(covered).enumerate();
            entries.extend(all.map(|(at, (id, object))| Entry { key, id, is_latest: at == 0, object }));
        }
        entries
    }

    /// Ids of all versions of a key, markers included, newest first.
    pub(crate) fn versions_of(&self, key: &str) -> Vec<String> {
        let all = self.entries(key).into_iter().filter(|entry| entry.key == key);
        all.map(|entry| entry.id.to_owned()).collect()
    }

    /// A page of versions after this one of a key, of all keys with this prefix, as S3 lists them: a thousand at most.
    pub(crate) fn page_of_versions(&self, prefix: &str, after: Option<&(String, String)>) -> VersionPage {
        let entries = self.entries(prefix);
        let at =
            after.and_then(|(key, id)| entries.iter().position(|entry| entry.key == key && entry.id == id));
        let mut behind = entries.iter().skip(at.map_or(0, |at| at + 1));
        let mut page = VersionPage::default();
        let mut last = None;
        for entry in behind.by_ref().take(PAGE) {
            last = Some((entry.key.to_owned(), entry.id.to_owned()));
            let (key, version_id) = (Some(entry.key.to_owned()), Some(entry.id.to_owned()));
            let is_latest = Some(entry.is_latest);
            match entry.object {
                Some(object) => page.objects.push(ObjectVersion {
                    key,
                    version_id,
                    is_latest,
                    size: Some(object.bytes.len() as i64),
                    e_tag: Some(object.e_tag()),
                    last_modified: Some(object.modified.into()),
                    ..Default::default()
                }),
                None => page.markers.push(DeleteMarkerEntry {
                    key,
                    version_id,
                    is_latest,
                    last_modified: Some(timestamp(self.versions.now_ms())),
                    ..Default::default()
                }),
            }
        }
        page.next = last.filter(|_| behind.next().is_some());
        page
    }
}
