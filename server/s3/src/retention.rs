//! Object Lock: retention of objects.

use std::sync::Arc;

use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{
    ObjectLockEnabled, ObjectLockLegalHoldStatus, ObjectLockMode, ObjectLockRetention,
    ObjectLockRetentionMode,
};
use holdfast_volume::{BlobName, Hold, LockMode, Retained, VolumeError};

use crate::client::{RequestKind, S3Client};
use crate::error::{Intent, OBJECT_LOCK_ACTION, REMOVE_VERSION_ACTION, is_lock_missing};

/// Parses an object's retention from the answer to HEAD.
pub(crate) fn retained(mode: Option<&ObjectLockMode>, until: Option<&DateTime>) -> Option<Retained> {
    let mode = match mode? {
        ObjectLockMode::Compliance => LockMode::Compliance,
        // Modes added in the future may promise less.
        _ => LockMode::Governance,
    };
    Some(Retained { mode, until_ms: until?.to_millis().ok()? })
}

/// Returns true if the bucket has Object Lock.
pub(crate) fn can_retain(client: &Arc<S3Client>) -> Result<bool, VolumeError> {
    let call = client.call(OBJECT_LOCK_ACTION, &"the bucket", Intent::Read);
    let request = client.sdk.get_object_lock_configuration().bucket(&client.config.bucket);
    match client.request(RequestKind::Get, &call, 0, request.send()) {
        Ok(output) => {
            let found = output.object_lock_configuration.and_then(|found| found.object_lock_enabled);
            Ok(found == Some(ObjectLockEnabled::Enabled))
        }
        Err(error) if is_lock_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Extends the retention of a version.
pub(crate) fn retain(
    client: &Arc<S3Client>,
    name: &BlobName,
    key: &str,
    version: &str,
    wanted: Retained,
) -> Result<(), VolumeError> {
    let call = client.call(OBJECT_LOCK_ACTION, name, Intent::Write);
    let mode = match wanted.mode {
        LockMode::Governance => ObjectLockRetentionMode::Governance,
        LockMode::Compliance => ObjectLockRetentionMode::Compliance,
    };
    let until = DateTime::from_millis(wanted.until_ms);
    let retention = ObjectLockRetention::builder().mode(mode).retain_until_date(until).build();
    let request = client
        .sdk
        .put_object_retention()
        .bucket(&client.config.bucket)
        .key(key)
        .version_id(version)
        .retention(retention);
    client.request(RequestKind::Put, &call, 0, request.send()).map(|_| ())
}

/// Returns the hold of a version; `None`: it is not retained.
pub(crate) fn hold(
    client: &S3Client,
    name: &BlobName,
    key: &str,
    version: &str,
) -> Result<Option<Hold>, VolumeError> {
    let call = client.call(REMOVE_VERSION_ACTION, name, Intent::Read);
    let request = client.sdk.head_object().bucket(&client.config.bucket).key(key).version_id(version);
    let output = client.request(RequestKind::Head, &call, 0, request.send())?;
    if output.object_lock_legal_hold_status == Some(ObjectLockLegalHoldStatus::On) {
        return Ok(Some(Hold::Endless));
    }
    let retained = retained(output.object_lock_mode.as_ref(), output.object_lock_retain_until_date.as_ref());
    Ok(retained.map(|retained| Hold::Until(retained.until_ms)))
}
