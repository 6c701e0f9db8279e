//! The bucket: implements the requests of `s3s`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use crc_fast::{CrcAlgorithm, checksum};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use s3s::dto::{Object as Object2, *};
use s3s::{S3, S3Request, S3Response, S3Result, s3_error};

use crate::server::BUCKET;
use crate::versions::{Retention, Versions, timestamp};

/// An object.
#[derive(Debug, Clone)]
pub struct Object {
    pub bytes: Bytes,
    /// Storage class, as put or changed since.
    pub class: Option<String>,
    /// `true` if it must be thawed before it can be read.
    pub is_archived: bool,
    /// Its thaw, once requested.
    pub thaw: Option<ObjectThaw>,
    /// `true` if it was put with a checksum.
    pub has_checksum: bool,
    /// Metadata: headers that begin with `x-amz-meta-`.
    pub metadata: BTreeMap<String, String>,
    /// `None`: it can be deleted at any time.
    pub retention: Option<Retention>,
    pub(crate) version: String,
    tag: String,
    pub(crate) modified: SystemTime,
}

/// A requested thaw of an archived object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectThaw {
    pub days: i32,
    /// Retrieval speed, as requested.
    pub tier: String,
    /// Set by the test; until then the object cannot be read.
    pub is_done: bool,
}

impl Object {
    pub(crate) fn e_tag(&self) -> ETag {
        ETag::Strong(self.tag.clone())
    }

    /// Returns true if it can be read.
    fn is_readable(&self) -> bool {
        !self.is_archived || self.thaw.as_ref().is_some_and(|thaw| thaw.is_done)
    }

    /// Value of the header `x-amz-restore`. A hundred years are long enough for any test.
    fn shown_thaw(&self) -> Option<String> {
        let thaw = self.thaw.as_ref().filter(|_| self.is_archived)?;
        Some(if thaw.is_done {
            "ongoing-request=\"false\", expiry-date=\"Fri, 01 Jan 2126 00:00:00 GMT\"".to_owned()
        } else {
            "ongoing-request=\"true\"".to_owned()
        })
    }

    /// Changes its storage class.
    pub(crate) fn set_class(&mut self, class: &str) {
        self.class = Some(class.to_owned());
        self.is_archived = is_archive(class);
        self.thaw = None;
    }
}

/// Returns true if objects of a storage class must be thawed before they can be read.
fn is_archive(class: &str) -> bool {
    matches!(class, "GLACIER" | "DEEP_ARCHIVE")
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    pub(crate) versions: Versions,
    pub(crate) last: u64,
    pub(crate) keeps_no_checksums: bool,
}

#[derive(Debug)]
struct Upload {
    key: String,
    parts: BTreeMap<i32, Bytes>,
}

impl State {
    /// Puts an object in place of the current one, which is covered if there are versions.
    pub(crate) fn put(
        &mut self,
        key: &str,
        bytes: Bytes,
        class: Option<String>,
        has_checksum: bool,
    ) -> String {
        self.last += 1;
        let tag = format!("{:032x}", self.last);
        let is_archived = class.as_deref().is_some_and(is_archive);
        let modified = SystemTime::now();
        let metadata = BTreeMap::new();
        let thaw = None;
        let object = Object {
            bytes,
            class,
            is_archived,
            thaw,
            has_checksum,
            metadata,
            retention: None,
            version: format!("v{tag}"),
            tag: tag.clone(),
            modified,
        };
        self.cover(key);
        self.objects.insert(key.to_owned(), object);
        tag
    }

    pub(crate) fn uploads(&self) -> usize {
        self.uploads.len()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Store(pub(crate) Arc<Mutex<State>>);

/// Storage class in listings: every object has one there.
fn shown_class(object: &Object) -> String {
    object.class.clone().unwrap_or_else(|| "STANDARD".to_owned())
}

fn in_bucket(bucket: &str) -> S3Result<()> {
    if bucket == BUCKET { Ok(()) } else { Err(s3_error!(NoSuchBucket)) }
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = char::from(ALPHABET[(bits >> (18 - 6 * place) & 63) as usize]);
            text.push(if place <= group.len() { letter } else { '=' });
        }
    }
    text
}

fn crc64(bytes: &[u8]) -> String {
    base64(&checksum(CrcAlgorithm::Crc64Nvme, bytes).to_be_bytes())
}

fn crc32c(bytes: &[u8]) -> String {
    base64(&checksum(CrcAlgorithm::Crc32Iscsi, bytes).to_be_bytes()[4..])
}

/// Verifies checksums as the service does before an object exists. Returns true if one was sent.
fn verify(bytes: &[u8], sent64: Option<&str>, sent32: Option<&str>) -> S3Result<bool> {
    if sent64.is_some_and(|sent| sent != crc64(bytes)) || sent32.is_some_and(|sent| sent != crc32c(bytes)) {
        return Err(s3_error!(BadDigest));
    }
    Ok(sent64.is_some() || sent32.is_some())
}

async fn collect(body: Option<StreamingBlob>) -> S3Result<Bytes> {
    let mut bytes = BytesMut::new();
    let Some(mut body) = body else { return Ok(bytes.freeze()) };
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece.map_err(|_| s3_error!(IncompleteBody))?);
    }
    Ok(bytes.freeze())
}

impl Store {
    fn object(&self, bucket: &str, key: &str) -> S3Result<Object> {
        in_bucket(bucket)?;
        self.0.lock().objects.get(key).cloned().ok_or_else(|| s3_error!(NoSuchKey))
    }

    fn shown_checksum(&self, object: &Object) -> Option<String> {
        let keeps = !self.0.lock().keeps_no_checksums;
        (keeps && object.has_checksum).then(|| crc64(&object.bytes))
    }
}

#[async_trait::async_trait]
impl S3 for Store {
    async fn put_object(&self, req: S3Request<PutObjectInput>) -> S3Result<S3Response<PutObjectOutput>> {
        let input = req.input;
        in_bucket(&input.bucket)?;
        let bytes = collect(input.body).await?;
        let has_checksum =
            verify(&bytes, input.checksum_crc64nvme.as_deref(), input.checksum_crc32c.as_deref())?;
        let mut state = self.0.lock();
        if input.if_none_match.is_some() && state.objects.contains_key(&input.key) {
            return Err(s3_error!(PreconditionFailed));
        }
        if let Some(ETagCondition::ETag(wanted)) = &input.if_match {
            let found = state.objects.get(&input.key).ok_or_else(|| s3_error!(NoSuchKey))?;
            if wanted.value() != found.tag {
                return Err(s3_error!(PreconditionFailed));
            }
        }
        let class = input.storage_class.map(|class| class.as_str().to_owned());
        let tag = state.put(&input.key, bytes, class, has_checksum);
        if let Some(object) = state.objects.get_mut(&input.key) {
            object.metadata = input.metadata.unwrap_or_default().into_iter().collect();
        }
        Ok(S3Response::new(PutObjectOutput { e_tag: Some(ETag::Strong(tag)), ..Default::default() }))
    }

    async fn get_object(&self, req: S3Request<GetObjectInput>) -> S3Result<S3Response<GetObjectOutput>> {
        let input = req.input;
        let object = self.object(&input.bucket, &input.key)?;
        if !object.is_readable() {
            return Err(s3_error!(InvalidObjectState));
        }
        if let Some(ETagCondition::ETag(wanted)) = &input.if_match
            && wanted.value() != object.tag
        {
            return Err(s3_error!(PreconditionFailed));
        }
        let len = object.bytes.len() as u64;
        let (range, content_range) = match input.range {
            None => (0..len, None),
            Some(range) => {
                let range = range.check(len)?;
                let text = format!("bytes {}-{}/{len}", range.start, range.end - 1);
                (range, Some(text))
            }
        };
        let is_whole = content_range.is_none();
        let bytes = object.bytes.slice(range.start as usize..range.end as usize);
        Ok(S3Response::new(GetObjectOutput {
            content_length: Some(bytes.len() as i64),
            content_range,
            // Computing it over a whole container for each range would take longer than sending the range.
            checksum_crc64nvme: if is_whole { self.shown_checksum(&object) } else { None },
            e_tag: Some(ETag::Strong(object.tag)),
            last_modified: Some(object.modified.into()),
            body: Some(StreamingBlob::from(s3s::Body::from(bytes))),
            ..Default::default()
        }))
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> S3Result<S3Response<HeadObjectOutput>> {
        in_bucket(&req.input.bucket)?;
        let version = req.input.version_id.as_deref();
        let object = self.0.lock().version_mut(&req.input.key, version)?.clone();
        let checksum = self.shown_checksum(&object);
        let restore = object.shown_thaw();
        let has_versions = self.0.lock().versions.is_on;
        let retention = object.retention.clone();
        Ok(S3Response::new(HeadObjectOutput {
            content_length: Some(object.bytes.len() as i64),
            checksum_type: checksum.is_some().then(|| ChecksumType::from_static(ChecksumType::FULL_OBJECT)),
            checksum_crc64nvme: checksum,
            e_tag: Some(ETag::Strong(object.tag)),
            last_modified: Some(object.modified.into()),
            restore,
            version_id: has_versions.then_some(object.version),
            object_lock_mode: retention.as_ref().map(|found| ObjectLockMode::from(found.mode.clone())),
            object_lock_retain_until_date: retention.map(|found| timestamp(found.until_ms)),
            storage_class: object.class.map(StorageClass::from),
            ..Default::default()
        }))
    }

    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> S3Result<S3Response<CopyObjectOutput>> {
        let input = req.input;
        in_bucket(&input.bucket)?;
        let CopySource::Bucket { bucket, key, .. } = input.copy_source else {
            return Err(s3_error!(NotImplemented));
        };
        let source = self.object(&bucket, &key)?;
        if let Some(ETagCondition::ETag(wanted)) = &input.copy_source_if_match
            && wanted.value() != source.tag
        {
            return Err(s3_error!(PreconditionFailed));
        }
        if !source.is_readable() {
            return Err(s3_error!(InvalidObjectState));
        }
        let class = input.storage_class.map(|class| class.as_str().to_owned());
        if *key == input.key && class == source.class {
            // Nothing would change.
            return Err(s3_error!(InvalidRequest));
        }
        let mut state = self.0.lock();
        let tag = state.put(&input.key, source.bytes, class, source.has_checksum);
        if let Some(object) = state.objects.get_mut(&input.key) {
            object.metadata = source.metadata;
        }
        let result = CopyObjectResult { e_tag: Some(ETag::Strong(tag)), ..Default::default() };
        Ok(S3Response::new(CopyObjectOutput { copy_object_result: Some(result), ..Default::default() }))
    }

    async fn restore_object(
        &self,
        req: S3Request<RestoreObjectInput>,
    ) -> S3Result<S3Response<RestoreObjectOutput>> {
        let input = req.input;
        in_bucket(&input.bucket)?;
        let wanted = input.restore_request.ok_or_else(|| s3_error!(MalformedXML))?;
        let mut state = self.0.lock();
        let object = state.objects.get_mut(&input.key).ok_or_else(|| s3_error!(NoSuchKey))?;
        if !object.is_archived {
            return Err(s3_error!(InvalidObjectState));
        }
        if object.thaw.as_ref().is_some_and(|thaw| !thaw.is_done) {
            return Err(s3_error!(RestoreAlreadyInProgress));
        }
        let tier = wanted.glacier_job_parameters.map(|job| job.tier.as_str().to_owned());
        let tier = tier.unwrap_or_else(|| "Standard".to_owned());
        let is_deep = object.class.as_deref() == Some("DEEP_ARCHIVE");
        if is_deep && tier == "Expedited" {
            return Err(s3_error!(InvalidArgument));
        }
        let days = wanted.days.ok_or_else(|| s3_error!(MalformedXML))?;
        let is_done = object.thaw.is_some();
        object.thaw = Some(ObjectThaw { days, tier, is_done });
        Ok(S3Response::new(RestoreObjectOutput::default()))
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> S3Result<S3Response<HeadBucketOutput>> {
        in_bucket(&req.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn list_objects_v2(
        &self,
        req: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = req.input;
        in_bucket(&input.bucket)?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.start_after.clone().unwrap_or_default();
        // As S3 does, whatever is requested.
        let limit = input.max_keys.unwrap_or(1000).clamp(1, 1000) as usize;
        let state = self.0.lock();
        let mut found: Vec<Object2> = state
            .objects
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix) && **key > after)
            .take(limit + 1)
            .map(|(key, object)| Object2 {
                key: Some(key.clone()),
                size: Some(object.bytes.len() as i64),
                e_tag: Some(ETag::Strong(object.tag.clone())),
                last_modified: Some(object.modified.into()),
                storage_class: Some(shown_class(object).into()),
                ..Default::default()
            })
            .collect();
        let more = found.len() > limit;
        found.truncate(limit);
        Ok(S3Response::new(ListObjectsV2Output {
            key_count: Some(found.len() as i32),
            max_keys: Some(limit as i32),
            is_truncated: Some(more),
            next_continuation_token: found.last().filter(|_| more).and_then(|object| object.key.clone()),
            contents: Some(found),
            name: Some(input.bucket),
            prefix: input.prefix,
            ..Default::default()
        }))
    }

    async fn list_object_versions(
        &self,
        req: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        in_bucket(&req.input.bucket)?;
        let prefix = req.input.prefix.clone().unwrap_or_default();
        let after = req.input.key_marker.zip(req.input.version_id_marker);
        let page = self.0.lock().page_of_versions(&prefix, after.as_ref());
        let (next_key, next_version) = page.next.unzip();
        Ok(S3Response::new(ListObjectVersionsOutput {
            versions: Some(page.objects),
            delete_markers: Some(page.markers),
            is_truncated: Some(next_key.is_some()),
            next_key_marker: next_key,
            next_version_id_marker: next_version,
            name: Some(req.input.bucket),
            prefix: req.input.prefix,
            ..Default::default()
        }))
    }

    async fn get_object_lock_configuration(
        &self,
        req: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        in_bucket(&req.input.bucket)?;
        if !self.0.lock().versions.is_on {
            return Err(s3_error!(ObjectLockConfigurationNotFoundError));
        }
        let enabled = ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED);
        let found = ObjectLockConfiguration { object_lock_enabled: Some(enabled), rule: None };
        let output = GetObjectLockConfigurationOutput { object_lock_configuration: Some(found) };
        Ok(S3Response::new(output))
    }

    async fn put_object_retention(
        &self,
        req: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        // Amazon refuses a request without either.
        let has_sum = req.input.content_md5.is_some()
            || req.headers.keys().any(|key| key.as_str().starts_with("x-amz-checksum-"));
        let input = req.input;
        in_bucket(&input.bucket)?;
        let wanted = input.retention.filter(|_| has_sum).ok_or_else(|| s3_error!(InvalidRequest))?;
        self.0.lock().retain(&input.key, input.version_id.as_deref(), &wanted)?;
        Ok(S3Response::new(PutObjectRetentionOutput::default()))
    }

    async fn delete_object(
        &self,
        req: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        in_bucket(&req.input.bucket)?;
        let mut state = self.0.lock();
        match &req.input.version_id {
            Some(version) => state.delete_version(&req.input.key, version)?,
            None => state.delete(&req.input.key),
        }
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        req: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        in_bucket(&req.input.bucket)?;
        let mut state = self.0.lock();
        let mut errors = Vec::new();
        for object in &req.input.delete.objects {
            let Some(version) = &object.version_id else {
                state.delete(&object.key);
                continue;
            };
            if let Err(error) = state.delete_version(&object.key, version) {
                errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(object.key.clone()),
                    message: error.message().map(str::to_owned),
                    version_id: object.version_id.clone(),
                });
            }
        }
        let errors = Some(errors).filter(|errors| !errors.is_empty());
        Ok(S3Response::new(DeleteObjectsOutput { errors, ..Default::default() }))
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        in_bucket(&req.input.bucket)?;
        let mut state = self.0.lock();
        state.last += 1;
        let id = format!("upload{}", state.last);
        state.uploads.insert(id.clone(), Upload { key: req.input.key.clone(), parts: BTreeMap::new() });
        Ok(S3Response::new(CreateMultipartUploadOutput {
            upload_id: Some(id),
            bucket: Some(req.input.bucket),
            key: Some(req.input.key),
            ..Default::default()
        }))
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> S3Result<S3Response<UploadPartOutput>> {
        let input = req.input;
        let bytes = collect(input.body).await?;
        verify(&bytes, input.checksum_crc64nvme.as_deref(), input.checksum_crc32c.as_deref())?;
        let mut state = self.0.lock();
        let upload = state.uploads.get_mut(&input.upload_id).ok_or_else(|| s3_error!(NoSuchUpload))?;
        upload.parts.insert(input.part_number, bytes);
        let tag = Some(ETag::Strong(format!("part{}", input.part_number)));
        Ok(S3Response::new(UploadPartOutput { e_tag: tag, ..Default::default() }))
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = req.input;
        let mut state = self.0.lock();
        let upload = state.uploads.get(&input.upload_id).ok_or_else(|| s3_error!(NoSuchUpload))?;
        let mut bytes = BytesMut::new();
        for part in input.multipart_upload.and_then(|parts| parts.parts).unwrap_or_default() {
            let number = part.part_number.ok_or_else(|| s3_error!(InvalidPart))?;
            bytes.extend_from_slice(upload.parts.get(&number).ok_or_else(|| s3_error!(InvalidPart))?);
        }
        let has_checksum =
            verify(&bytes, input.checksum_crc64nvme.as_deref(), input.checksum_crc32c.as_deref())?;
        if input.if_none_match.is_some() && state.objects.contains_key(&input.key) {
            return Err(s3_error!(PreconditionFailed));
        }
        state.uploads.remove(&input.upload_id);
        let tag = state.put(&input.key, bytes.freeze(), None, has_checksum);
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(tag)),
            ..Default::default()
        }))
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        self.0.lock().uploads.remove(&req.input.upload_id);
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    async fn list_multipart_uploads(
        &self,
        req: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        in_bucket(&req.input.bucket)?;
        let prefix = req.input.prefix.clone().unwrap_or_default();
        let state = self.0.lock();
        let of_prefix = state.uploads.iter().filter(|(_, upload)| upload.key.starts_with(&prefix));
        let uploads = of_prefix.map(|(id, upload)| MultipartUpload {
            key: Some(upload.key.clone()),
            upload_id: Some(id.clone()),
            ..Default::default()
        });
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(req.input.bucket),
            is_truncated: Some(false),
            uploads: Some(uploads.collect()),
            ..Default::default()
        }))
    }
}
