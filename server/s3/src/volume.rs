//! The volume in a bucket.

use std::num::NonZeroUsize;
use std::sync::Arc;

use aws_sdk_s3::types::{ChecksumMode, ChecksumType};
use holdfast_volume::{
    Blob, BlobChecksum, BlobEntry, BlobName, BlobWriter, Hold, ListPage, Owner, RemoteLook, RemoteObject,
    RemotePage, RemoteStat, RemoteVolume, Retained, Space, TAGGED_MAX_BYTES, Tagged, Volume, VolumeError,
};

use crate::blob::S3Blob;
use crate::checksum;
use crate::classes;
use crate::client::{RequestCounts, RequestKind, S3Client};
use crate::config::{OpenError, S3Config};
use crate::error::{Answer, Call, Intent, bad_answer, classify};
use crate::removal::{self, BATCH_MAX};
use crate::retention;
use crate::versions::{self, Wanted};
use crate::writer::S3Writer;

/// Most keys listed by one request.
const PAGE_MAX: usize = 1000;

/// A volume in a bucket (see the crate documentation).
#[derive(Debug)]
pub struct S3Volume {
    client: Arc<S3Client>,
}

/// Answer to HEAD.
struct Head {
    len: u64,
    tag: Option<String>,
    checksum: Option<BlobChecksum>,
    class: Option<String>,
}

impl S3Volume {
    /// Prepares the client; sends no request yet.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(config: S3Config) -> Result<Self, OpenError> {
        Ok(Self { client: Arc::new(S3Client::open(config)?) })
    }

    /// Counters of the requests so far.
    pub fn requests(&self) -> Arc<RequestCounts> {
        Arc::clone(&self.client.counts)
    }

    /// Cancels requests in progress that write, so that their callers need not wait, and refuses further ones.
    pub fn stop_writing(&self) {
        self.client.stop_writing();
    }

    fn bucket(&self) -> &str {
        &self.client.config.bucket
    }

    fn key(&self, name: &BlobName) -> String {
        match self.client.config.prefix.as_str() {
            "" => name.to_string(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    /// The blob name of a key; `None`: the key does not belong to this volume.
    fn name(&self, key: &str) -> Option<BlobName> {
        BlobName::new(self.below(key)?)
    }

    /// The key without the prefix; `None`: it does not have the prefix.
    fn below<'a>(&self, key: &'a str) -> Option<&'a str> {
        match self.client.config.prefix.as_str() {
            "" => Some(key),
            prefix => key.strip_prefix(prefix)?.strip_prefix('/'),
        }
    }

    fn head(&self, action: &'static str, name: &BlobName) -> Result<Head, VolumeError> {
        let call = self.client.call(action, name, Intent::Read);
        let request = self
            .client
            .sdk
            .head_object()
            .bucket(self.bucket())
            .key(self.key(name))
            .checksum_mode(ChecksumMode::Enabled);
        let output = match self.client.request(RequestKind::Head, &call, 0, request.send()) {
            Err(VolumeError::NotFound { name }) => return Err(self.missing(name)),
            answered => answered?,
        };
        let len = output.content_length.and_then(|len| u64::try_from(len).ok());
        let len = len.ok_or_else(|| bad_answer(&call, "no length"))?;
        let is_whole = output.checksum_type.is_none_or(|kind| kind == ChecksumType::FullObject);
        let checksum =
            checksum::parse(output.checksum_crc64_nvme.as_deref(), output.checksum_crc32_c.as_deref());
        let class = classes::class_of(output.storage_class, output.archive_status.as_ref());
        Ok(Head { len, tag: output.e_tag, checksum: checksum.filter(|_| is_whole), class })
    }

    /// The answer to HEAD has no body, so it does not tell whether the object or the whole bucket is missing: the
    /// former is data loss, the latter a wrong setting.
    fn missing(&self, name: BlobName) -> VolumeError {
        let call = self.client.call("find", &name, Intent::Read);
        let request = self.client.sdk.head_bucket().bucket(self.bucket());
        match self.client.request(RequestKind::Head, &call, 0, request.send()) {
            Ok(_) => VolumeError::NotFound { name },
            Err(VolumeError::NotFound { .. }) => {
                let answer = Answer::Refused { status: 404, code: "NoSuchBucket".to_owned(), region: None };
                classify(&call, &answer, None, "there is no such bucket".into())
            }
            Err(error) => error,
        }
    }
}

/// Without this check the listing would never end.
const LEADS_NOWHERE: &str = "a page that is said not to be the last, and leads nowhere";

/// Key after which the next page begins: the `last` of a page that began after `after`.
fn next_page(call: &Call, last: Option<String>, after: Option<&str>) -> Result<String, VolumeError> {
    let goes_on = |last: &String| after.is_none_or(|after| last.as_str() > after);
    last.filter(goes_on).ok_or_else(|| bad_answer(call, LEADS_NOWHERE))
}

impl Volume for S3Volume {
    fn create_for(&self, name: &BlobName, _: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        // The PUT finds out whether the name is taken.
        Ok(Box::new(S3Writer::new(Arc::clone(&self.client), name.clone(), self.key(name))))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let Head { len, tag, class, .. } = self.head("open", name)?;
        let (client, key) = (Arc::clone(&self.client), self.key(name));
        Ok(Arc::new(S3Blob { client, name: name.clone(), key, len, tag, class }))
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        let call = self.client.call("list", prefix, Intent::Read);
        let wanted = i32::try_from(limit.get().min(PAGE_MAX)).unwrap_or(i32::MAX);
        let mut after = after.map(|after| self.key(after));
        loop {
            let request = self
                .client
                .sdk
                .list_objects_v2()
                .bucket(self.bucket())
                .prefix(format!("{}/", self.key(prefix)))
                .set_start_after(after.clone())
                .max_keys(wanted);
            let output = match self.client.request(RequestKind::List, &call, 0, request.send()) {
                // A missing folder is merely empty, so the bucket is missing.
                Err(VolumeError::NotFound { .. }) => {
                    let answer =
                        Answer::Refused { status: 404, code: "NoSuchBucket".to_owned(), region: None };
                    return Err(classify(&call, &answer, None, "there is no such bucket".into()));
                }
                answered => answered?,
            };
            let more = output.is_truncated.unwrap_or(false);
            let objects = output.contents.unwrap_or_default();
            let last = objects.last().and_then(|object| object.key.clone());
            let mut entries = Vec::with_capacity(objects.len().min(PAGE_MAX));
            for object in objects {
                // Objects that are not blobs are not listed.
                let Some(name) = object.key.as_deref().and_then(|key| self.name(key)) else { continue };
                let len = object.size.and_then(|size| u64::try_from(size).ok());
                entries.push(BlobEntry { name, len: len.ok_or_else(|| bad_answer(&call, "no length"))? });
            }
            // A page that is not the last has an entry.
            if !more || !entries.is_empty() {
                return Ok(ListPage { entries, more });
            }
            after = Some(next_page(&call, last, after.as_deref())?);
        }
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        // Deleting a missing object succeeds.
        self.head("remove", name)?;
        let call = self.client.call("remove", name, Intent::Write);
        let request = self.client.sdk.delete_object().bucket(self.bucket()).key(self.key(name));
        self.client.request(RequestKind::Delete, &call, 0, request.send()).map(|_| ())
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        let call = self.client.call("list", &"unfinished uploads", Intent::Read);
        let prefix = match self.client.config.prefix.as_str() {
            "" => None,
            prefix => Some(format!("{prefix}/")),
        };
        let mut count = 0;
        let mut at = (None, None);
        loop {
            let (key_marker, id_marker) = at.clone();
            let request = self
                .client
                .sdk
                .list_multipart_uploads()
                .bucket(self.bucket())
                .set_prefix(prefix.clone())
                .set_key_marker(key_marker)
                .set_upload_id_marker(id_marker);
            let output = self.client.request(RequestKind::List, &call, 0, request.send())?;
            for upload in output.uploads.unwrap_or_default() {
                let (Some(key), Some(id)) = (upload.key, upload.upload_id) else { continue };
                if self.name(&key).is_none() {
                    continue;
                }
                let call = self.client.call("discard", &key, Intent::Write);
                let request =
                    self.client.sdk.abort_multipart_upload().bucket(self.bucket()).key(key).upload_id(id);
                self.client.request(RequestKind::Delete, &call, 0, request.send())?;
                count += 1;
            }
            if !output.is_truncated.unwrap_or(false) {
                return Ok(count);
            }
            let next = (output.next_key_marker, output.next_upload_id_marker);
            if next.0.is_none() || next == at {
                return Err(bad_answer(&call, LEADS_NOWHERE));
            }
            at = next;
        }
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        Ok(None)
    }

    fn handles_outlive_removal(&self) -> bool {
        false
    }
}

impl RemoteVolume for S3Volume {
    fn stat(&self, name: &BlobName) -> Result<RemoteStat, VolumeError> {
        let Head { len, checksum, class, .. } = self.head("look at", name)?;
        Ok(RemoteStat { len, checksum, class })
    }

    fn list_objects(&self, after: Option<&str>) -> Result<RemotePage, VolumeError> {
        let call = self.client.call("list", &"everything there", Intent::Read);
        let prefix = match self.client.config.prefix.as_str() {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        let request = self
            .client
            .sdk
            .list_objects_v2()
            .bucket(self.bucket())
            .prefix(&prefix)
            .set_start_after(after.map(|after| format!("{prefix}{after}")))
            .max_keys(i32::try_from(PAGE_MAX).unwrap_or(i32::MAX));
        let output = self.client.request(RequestKind::List, &call, 0, request.send())?;
        let mut page = RemotePage::default();
        let mut last = None;
        for object in output.contents.unwrap_or_default() {
            let Some(below) = object.key.as_deref().and_then(|key| self.below(key)) else {
                return Err(bad_answer(&call, "an object that is not below the prefix"));
            };
            last = Some(below.to_owned());
            let Some(name) = BlobName::new(below) else {
                page.strangers += 1;
                continue;
            };
            let len = object.size.and_then(|size| u64::try_from(size).ok());
            page.objects.push(RemoteObject {
                name,
                len: len.ok_or_else(|| bad_answer(&call, "no length"))?,
                tag: object.e_tag,
                class: object.storage_class.map(|class| class.as_str().to_owned()),
            });
        }
        if output.is_truncated.unwrap_or(false) {
            page.next = Some(next_page(&call, last, after)?);
        }
        Ok(page)
    }

    fn remove_all(&self, names: &[BlobName]) -> Result<(), VolumeError> {
        for batch in names.chunks(BATCH_MAX) {
            let first = batch.first().map_or(String::new(), ToString::to_string);
            let call = self.client.call("remove", &first, Intent::Write);
            let objects = batch.iter().map(|name| (self.key(name), None));
            if let Some(refusal) = removal::remove_batch(&self.client, &call, objects)?.first() {
                return Err(removal::refused(&call, refusal));
            }
        }
        Ok(())
    }

    fn read_tagged(&self, name: &BlobName) -> Result<Option<Tagged>, VolumeError> {
        loop {
            let (len, tag) = match self.head("read", name) {
                Ok(Head { len, tag, .. }) => (len, tag),
                Err(VolumeError::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(error),
            };
            let call = self.client.call("read", name, Intent::Read);
            let tag = tag.ok_or_else(|| bad_answer(&call, "no tag"))?;
            let wanted = usize::try_from(len.min(TAGGED_MAX_BYTES)).unwrap_or_default();
            let (client, key) = (Arc::clone(&self.client), self.key(name));
            let blob = S3Blob { client, name: name.clone(), key, len, tag: Some(tag.clone()), class: None };
            match <dyn Blob>::read_vec(&blob, name, 0, wanted) {
                Ok(bytes) => return Ok(Some(Tagged { bytes, tag })),
                // Changed since it was listed; such objects rarely change.
                Err(VolumeError::NotFound { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn tag(&self, name: &BlobName) -> Result<Option<String>, VolumeError> {
        match self.head("look at", name) {
            Ok(Head { tag, .. }) => Ok(tag),
            Err(VolumeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn replace_tagged(
        &self,
        name: &BlobName,
        bytes: &[u8],
        tag: Option<&str>,
    ) -> Result<Option<String>, VolumeError> {
        let writer = S3Writer::new(Arc::clone(&self.client), name.clone(), self.key(name));
        match writer.replace(bytes, tag) {
            Ok(tag) => Ok(Some(tag)),
            Err(VolumeError::Exists { .. } | VolumeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn sign_with(&self, number: u64) {
        self.client.sign_with(number);
    }

    fn look(&self, name: &BlobName) -> Result<RemoteLook, VolumeError> {
        match classes::look(&self.client, name, &self.key(name), None) {
            Err(VolumeError::NotFound { name }) => Err(self.missing(name)),
            looked => looked,
        }
    }

    fn set_class(&self, name: &BlobName, class: &str, tag: &str) -> Result<(), VolumeError> {
        classes::set_class(&self.client, name, &self.key(name), class, tag)
    }

    fn ask_thaw(&self, name: &BlobName, days: u32, speed: &str) -> Result<(), VolumeError> {
        classes::ask_thaw(&self.client, name, &self.key(name), days, speed)
    }

    fn can_retain(&self) -> Result<bool, VolumeError> {
        retention::can_retain(&self.client)
    }

    fn retain(&self, name: &BlobName, version: &str, wanted: Retained) -> Result<(), VolumeError> {
        retention::retain(&self.client, name, &self.key(name), version, wanted)
    }

    fn remove_for_good(&self, names: &[BlobName]) -> Result<Vec<(BlobName, Hold)>, VolumeError> {
        let names: Vec<_> = names.iter().map(|name| (name.clone(), self.key(name))).collect();
        removal::remove_for_good(&self.client, &names)
    }

    fn uncover(
        &self,
        name: &BlobName,
        len: u64,
        tag: Option<&str>,
        sum: Option<BlobChecksum>,
    ) -> Result<bool, VolumeError> {
        versions::uncover(&self.client, name, &self.key(name), &Wanted { len, tag, sum })
    }

    fn keeps_checksums(&self) -> bool {
        self.client.config.checksum.begin().is_some()
    }
}
