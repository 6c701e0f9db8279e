//! Storage classes: reading and changing an object's class, and restoring it from an archive.

use std::sync::Arc;

use aws_sdk_s3::primitives::{DateTime, DateTimeFormat};
use aws_sdk_s3::types::{
    ArchiveStatus, ChecksumMode, ChecksumType, GlacierJobParameters, MetadataDirective, RestoreRequest,
    ServerSideEncryption, StorageClass, TaggingDirective, Tier,
};
use holdfast_volume::{BlobName, RemoteLook, Thawed, VolumeError};

use crate::checksum;
use crate::client::{RequestKind, S3Client};
use crate::config::ServerEncryption;
use crate::error::{Intent, is_under_way};
use crate::retention::retained;

/// The storage class of an object from the answer to HEAD. For one that `INTELLIGENT_TIERING` archived it is
/// the archive's.
pub(crate) fn class_of(class: Option<StorageClass>, archive: Option<&ArchiveStatus>) -> Option<String> {
    let class = match archive {
        Some(ArchiveStatus::ArchiveAccess) => Some(StorageClass::Glacier),
        Some(ArchiveStatus::DeepArchiveAccess) => Some(StorageClass::DeepArchive),
        _ => class,
    };
    class.map(|class| class.as_str().to_owned())
}

/// Sends HEAD for an object, or for this version of it.
pub(crate) fn look(
    client: &Arc<S3Client>,
    name: &BlobName,
    key: &str,
    version: Option<&str>,
) -> Result<RemoteLook, VolumeError> {
    let call = client.call("look at", name, Intent::Read);
    let request = client
        .sdk
        .head_object()
        .bucket(&client.config.bucket)
        .key(key)
        .set_version_id(version.map(str::to_owned))
        .checksum_mode(ChecksumMode::Enabled);
    let output = client.request(RequestKind::Head, &call, 0, request.send())?;
    let bad_answer = |found: &str| VolumeError::BadAnswer {
        action: call.action,
        name: call.name.clone(),
        found: found.to_owned(),
    };
    let len = output.content_length.and_then(|len| u64::try_from(len).ok());
    let is_whole = output.checksum_type.is_none_or(|kind| kind == ChecksumType::FullObject);
    let checksum = checksum::parse(output.checksum_crc64_nvme.as_deref(), output.checksum_crc32_c.as_deref());
    Ok(RemoteLook {
        len: len.ok_or_else(|| bad_answer("no length"))?,
        checksum: checksum.filter(|_| is_whole),
        tag: output.e_tag,
        class: class_of(output.storage_class, output.archive_status.as_ref()),
        thawed: match output.restore.as_deref() {
            None => Thawed::No,
            Some(text) => thawed(text).ok_or_else(|| bad_answer(&format!("x-amz-restore: {text}")))?,
        },
        version: output.version_id,
        retained: retained(output.object_lock_mode.as_ref(), output.object_lock_retain_until_date.as_ref()),
    })
}

/// Parses the header `x-amz-restore`: `ongoing-request="false", expiry-date="Fri, 21 Dec 2012 00:00:00 GMT"`.
fn thawed(text: &str) -> Option<Thawed> {
    let value = |key: &str| text.split_once(&format!("{key}=\""))?.1.split('"').next();
    match value("ongoing-request")? {
        "true" => Some(Thawed::UnderWay),
        "false" => {
            let until = DateTime::from_str(value("expiry-date")?, DateTimeFormat::HttpDate).ok()?;
            Some(Thawed::Until(until.to_millis().ok()?))
        }
        _ => None,
    }
}

/// Changes the storage class by copying the object onto itself.
pub(crate) fn set_class(
    client: &Arc<S3Client>,
    name: &BlobName,
    key: &str,
    class: &str,
    tag: &str,
) -> Result<(), VolumeError> {
    let call = client.call("move", name, Intent::Write);
    let (sse, key_id) = match &client.config.encryption {
        ServerEncryption::Bucket => (None, None),
        ServerEncryption::S3 => (Some(ServerSideEncryption::Aes256), None),
        ServerEncryption::Kms(key) => (Some(ServerSideEncryption::AwsKms), key.clone()),
    };
    // Buckets, prefixes and names consist of characters that need no escape.
    let source = format!("{}/{key}", client.config.bucket);
    let request = client
        .sdk
        .copy_object()
        .bucket(&client.config.bucket)
        .key(key)
        .copy_source(source)
        .copy_source_if_match(tag)
        .storage_class(StorageClass::from(class))
        .metadata_directive(MetadataDirective::Copy)
        .tagging_directive(TaggingDirective::Copy)
        .set_server_side_encryption(sse)
        .set_ssekms_key_id(key_id);
    match client.request(RequestKind::Put, &call, 0, request.send()) {
        Ok(_) => Ok(()),
        // The object was replaced.
        Err(VolumeError::Exists { name }) => Err(VolumeError::NotFound { name }),
        Err(error) => Err(error),
    }
}

/// Requests a copy that can be read.
pub(crate) fn ask_thaw(
    client: &Arc<S3Client>,
    name: &BlobName,
    key: &str,
    days: u32,
    speed: &str,
) -> Result<(), VolumeError> {
    let call = client.call("thaw", name, Intent::Write);
    let not_sent = || VolumeError::Unavailable {
        action: "thaw",
        name: name.to_string(),
        source: "the request cannot be written".into(),
    };
    let tier = GlacierJobParameters::builder().tier(Tier::from(speed)).build().map_err(|_| not_sent())?;
    let wanted = RestoreRequest::builder()
        .days(i32::try_from(days).unwrap_or(i32::MAX))
        .glacier_job_parameters(tier)
        .build();
    let request = client.sdk.restore_object().bucket(&client.config.bucket).key(key).restore_request(wanted);
    match client.request(RequestKind::Restore, &call, 0, request.send()) {
        Ok(_) => Ok(()),
        Err(error) if is_under_way(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_class_keeps_in_an_archive_is_told_as_such() {
        let tiering = || Some(StorageClass::IntelligentTiering);
        let of = |class, archive: Option<ArchiveStatus>| class_of(class, archive.as_ref());
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some(StorageClass::DeepArchive), None).as_deref(), Some("DEEP_ARCHIVE"));
        assert_eq!(of(tiering(), None).as_deref(), Some("INTELLIGENT_TIERING"));
        assert_eq!(of(tiering(), Some(ArchiveStatus::ArchiveAccess)).as_deref(), Some("GLACIER"));
        assert_eq!(of(tiering(), Some(ArchiveStatus::DeepArchiveAccess)).as_deref(), Some("DEEP_ARCHIVE"));
    }

    #[test]
    fn what_was_brought_back_is_read_from_its_header() {
        assert_eq!(thawed("ongoing-request=\"true\""), Some(Thawed::UnderWay));
        let done = "ongoing-request=\"false\", expiry-date=\"Fri, 21 Dec 2012 00:00:00 GMT\"";
        assert_eq!(thawed(done), Some(Thawed::Until(1_356_048_000_000)));
        for bad in ["", "ongoing-request=\"maybe\"", "ongoing-request=\"false\"", "expiry-date=\"\""] {
            assert_eq!(thawed(bad), None, "{bad}");
        }
    }
}
