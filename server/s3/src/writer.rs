//! Writing a blob: one PUT, or several parts if it is too large for one.
//!
//! A writer holds up to [`PUT_BYTES`] and the allocator's overhead. Containers are smaller, so each is one request; a
//! catalog snapshot may need parts.

use std::sync::Arc;

use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    ChecksumAlgorithm, ChecksumType, CompletedMultipartUpload, CompletedPart, ServerSideEncryption,
    StorageClass,
};
use bytes::Bytes;
use crc_fast::Digest;
use holdfast_volume::{BlobName, BlobWriter, VolumeError};

use crate::checksum::Checksum;
use crate::client::{RequestKind, S3Client};
use crate::config::ServerEncryption;
use crate::error::Intent;

/// Largest body of one request: a container of 32 MiB and its encryption take a little more than that. An object of at
/// most 10,000 parts then has 390 GiB.
pub(crate) const PUT_BYTES: usize = 40 << 20;

/// Growth increment of the buffer.
const GROW_BYTES: usize = 8 << 20;

const PARTS_MAX: usize = 10_000;

/// Precondition of a PUT, and kind of the object.
enum Condition {
    /// No object exists; a blob.
    Blob,
    /// No object exists; an object that is changed in place, and read before every write: always of the usual class.
    New,
    /// The object has this tag.
    Is(String),
}

/// A multipart upload in progress.
#[derive(Debug)]
struct Upload {
    id: String,
    done: Vec<CompletedPart>,
}

/// Writes an object (see [`BlobWriter`]).
#[derive(Debug)]
pub(crate) struct S3Writer {
    client: Arc<S3Client>,
    name: BlobName,
    key: String,
    buffer: Vec<u8>,
    sent_bytes: u64,
    upload: Option<Upload>,
    checksum: Option<Checksum>,
    /// Checksum of the whole blob.
    whole: Option<Digest>,
    has_failed: bool,
}

impl S3Writer {
    pub(crate) fn new(client: Arc<S3Client>, name: BlobName, key: String) -> Self {
        let checksum = client.config.checksum.begin();
        let whole = checksum.map(Checksum::digest);
        Self {
            client,
            name,
            key,
            buffer: Vec::new(),
            sent_bytes: 0,
            upload: None,
            checksum,
            whole,
            has_failed: false,
        }
    }

    fn sse(&self) -> (Option<ServerSideEncryption>, Option<String>) {
        match &self.client.config.encryption {
            ServerEncryption::Bucket => (None, None),
            ServerEncryption::S3 => (Some(ServerSideEncryption::Aes256), None),
            ServerEncryption::Kms(key) => (Some(ServerSideEncryption::AwsKms), key.clone()),
        }
    }

    fn class(&self) -> Option<StorageClass> {
        self.client.config.class.as_deref().map(StorageClass::from)
    }

    /// Encodes both checksums, one of which may be empty.
    fn texts(&self, digest: Option<&Digest>) -> (Option<String>, Option<String>) {
        let text = self.checksum.zip(digest).map(|(kind, digest)| (kind, kind.text(digest.finalize())));
        match text {
            Some((Checksum::Crc64Nvme, text)) => (Some(text), None),
            Some((Checksum::Crc32c, text)) => (None, Some(text)),
            None => (None, None),
        }
    }

    fn algorithm(&self) -> Option<ChecksumAlgorithm> {
        self.checksum.map(|kind| match kind {
            Checksum::Crc64Nvme => ChecksumAlgorithm::Crc64Nvme,
            Checksum::Crc32c => ChecksumAlgorithm::Crc32C,
        })
    }

    fn begin_parts(&mut self) -> Result<(), VolumeError> {
        let call = self.client.call("create", &self.name, Intent::Read);
        let (sse, key_id) = self.sse();
        let request = self
            .client
            .sdk
            .create_multipart_upload()
            .bucket(&self.client.config.bucket)
            .key(&self.key)
            .set_storage_class(self.class())
            .set_server_side_encryption(sse)
            .set_ssekms_key_id(key_id)
            .set_metadata(self.client.metadata())
            .set_checksum_algorithm(self.algorithm())
            .set_checksum_type(self.checksum.map(|_| ChecksumType::FullObject));
        let output = self.client.request(RequestKind::Put, &call, 0, request.send())?;
        let id = output.upload_id.ok_or_else(|| VolumeError::BadAnswer {
            action: call.action,
            name: self.name.to_string(),
            found: "no name for an upload in parts".to_owned(),
        })?;
        self.upload = Some(Upload { id, done: Vec::new() });
        Ok(())
    }

    /// Sends the buffer as the next part.
    fn send_part(&mut self) -> Result<(), VolumeError> {
        if self.upload.is_none() {
            self.begin_parts()?;
        }
        // A part alone is not visible, so its answer may be lost.
        let call = self.client.call("append to", &self.name, Intent::Read);
        let body = Bytes::from(std::mem::take(&mut self.buffer));
        let digest = self.checksum.map(|kind| {
            let mut digest = kind.digest();
            digest.update(&body);
            digest
        });
        let (crc64, crc32c) = self.texts(digest.as_ref());
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let number = upload.done.len() + 1;
        if number > PARTS_MAX {
            return Err(VolumeError::Full {
                name: self.name.to_string(),
                source: format!("an object has at most {PARTS_MAX} parts").into(),
            });
        }
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let bytes = body.len() as u64;
        let request = self
            .client
            .sdk
            .upload_part()
            .bucket(&self.client.config.bucket)
            .key(&self.key)
            .upload_id(&upload.id)
            .part_number(number)
            .set_checksum_crc64_nvme(crc64.clone())
            .set_checksum_crc32_c(crc32c.clone())
            .body(ByteStream::from(body));
        let output = self.client.request(RequestKind::Put, &call, bytes, request.send())?;
        let part = CompletedPart::builder()
            .part_number(number)
            .set_e_tag(output.e_tag)
            .set_checksum_crc64_nvme(crc64)
            .set_checksum_crc32_c(crc32c)
            .build();
        upload.done.push(part);
        self.sent_bytes += bytes;
        Ok(())
    }

    fn add(&mut self, mut bytes: &[u8]) -> Result<(), VolumeError> {
        while !bytes.is_empty() {
            if self.buffer.len() == PUT_BYTES {
                self.send_part()?;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(PUT_BYTES - self.buffer.len()));
            if self.buffer.len() + now.len() > self.buffer.capacity() {
                let more = GROW_BYTES.min(PUT_BYTES - self.buffer.len()).max(now.len());
                self.buffer.reserve_exact(more);
            }
            self.buffer.extend_from_slice(now);
            bytes = rest;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), VolumeError> {
        if !self.has_failed {
            return Ok(());
        }
        Err(VolumeError::Unavailable {
            action: "write",
            name: self.name.to_string(),
            source: "an earlier part of it could not be sent".into(),
        })
    }

    /// Replaces a small object if it has this tag; `None`: creates it. Returns its new tag.
    pub(crate) fn replace(mut self, bytes: &[u8], tag: Option<&str>) -> Result<String, VolumeError> {
        self.append(bytes)?;
        let condition = tag.map_or(Condition::New, |tag| Condition::Is(tag.to_owned()));
        self.put(condition)
    }

    fn put(&mut self, condition: Condition) -> Result<String, VolumeError> {
        let call = self.client.call("seal", &self.name, Intent::Write);
        let (crc64, crc32c) = self.texts(self.whole.as_ref());
        let (sse, key_id) = self.sse();
        let body = Bytes::from(std::mem::take(&mut self.buffer));
        let bytes = body.len() as u64;
        let request = self
            .client
            .sdk
            .put_object()
            .bucket(&self.client.config.bucket)
            .key(&self.key)
            .set_checksum_crc64_nvme(crc64)
            .set_checksum_crc32_c(crc32c)
            .set_storage_class(self.class().filter(|_| matches!(condition, Condition::Blob)))
            .set_server_side_encryption(sse)
            .set_ssekms_key_id(key_id)
            .set_metadata(self.client.metadata())
            .content_length(i64::try_from(bytes).unwrap_or(i64::MAX))
            .body(ByteStream::from(body));
        let request = match condition {
            // (T6) Nothing is replaced.
            Condition::Blob | Condition::New => request.if_none_match("*"),
            Condition::Is(tag) => request.if_match(tag),
        };
        let output = self.client.request(RequestKind::Put, &call, bytes, request.send())?;
        Ok(output.e_tag.unwrap_or_default())
    }

    fn complete(&mut self) -> Result<(), VolumeError> {
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        let call = self.client.call("seal", &self.name, Intent::Write);
        let (crc64, crc32c) = self.texts(self.whole.as_ref());
        // From here on the object may exist: dropping this aborts nothing.
        let Some(upload) = self.upload.take() else { return Ok(()) };
        let parts = CompletedMultipartUpload::builder().set_parts(Some(upload.done)).build();
        let request = self
            .client
            .sdk
            .complete_multipart_upload()
            .bucket(&self.client.config.bucket)
            .key(&self.key)
            .upload_id(upload.id)
            // (T6) Nothing is replaced.
            .if_none_match("*")
            .set_checksum_crc64_nvme(crc64)
            .set_checksum_crc32_c(crc32c)
            .set_checksum_type(self.checksum.map(|_| ChecksumType::FullObject))
            .multipart_upload(parts);
        self.client.request(RequestKind::Put, &call, 0, request.send()).map(|_| ())
    }
}

impl BlobWriter for S3Writer {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        self.check()?;
        if let Some(whole) = &mut self.whole {
            whole.update(bytes);
        }
        self.add(bytes).inspect_err(|_| self.has_failed = true)
    }

    fn len(&self) -> u64 {
        self.sent_bytes + self.buffer.len() as u64
    }

    fn seal(mut self: Box<Self>) -> Result<(), VolumeError> {
        self.check()?;
        if self.upload.is_some() { self.complete() } else { self.put(Condition::Blob).map(|_| ()) }
    }
}

impl Drop for S3Writer {
    fn drop(&mut self) {
        let Some(upload) = self.upload.take() else { return };
        let request = self
            .client
            .sdk
            .abort_multipart_upload()
            .bucket(&self.client.config.bucket)
            .key(&self.key)
            .upload_id(upload.id);
        self.client.spawn(async move {
            // If this fails, `discard_unfinished` or the bucket's lifecycle rule removes the parts.
            let _ = request.send().await;
        });
    }
}
