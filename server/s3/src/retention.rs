//! Object Lock: how long objects must stay, and what lies below them where the bucket keeps versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_sdk_s3::primitives::DateTime;
use aws_sdk_s3::types::{
    Delete, ObjectIdentifier, ObjectLockEnabled, ObjectLockLegalHoldStatus, ObjectLockMode,
    ObjectLockRetention, ObjectLockRetentionMode,
};
use holdfast_volume::{BlobName, Hold, LockMode, Retained, VolumeError};
use parking_lot::Mutex;

use crate::client::{RequestKind, S3Client};
use crate::error::{Answer, Intent, OBJECT_LOCK_ACTION, REMOVE_VERSION_ACTION, classify, is_lock_missing};

/// Objects looked at side by side before they are removed.
const LOOKS: usize = 8;

/// Versions of one object that are looked through: no one but an attacker makes more.
const VERSIONS_MAX: usize = 10_000;

/// What HEAD told of an object's retention.
pub(crate) fn retained(mode: Option<&ObjectLockMode>, until: Option<&DateTime>) -> Option<Retained> {
    let mode = match mode? {
        ObjectLockMode::Compliance => LockMode::Compliance,
        // Whatever else there may be some day promises less.
        _ => LockMode::Governance,
    };
    Some(Retained { mode, until_ms: until?.to_millis().ok()? })
}

/// Whether the bucket has Object Lock.
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

/// An object to be removed for good.
struct Doomed {
    name: BlobName,
    key: String,
    version: Option<String>,
    /// Why it may have to stay.
    hold: Option<Hold>,
}

/// What lies there under a name; `None`: nothing.
fn doom(client: &S3Client, name: &BlobName, key: String) -> Result<Option<Doomed>, VolumeError> {
    let call = client.call("look at", name, Intent::Read);
    let request = client.sdk.head_object().bucket(&client.config.bucket).key(&key);
    let output = match client.request(RequestKind::Head, &call, 0, request.send()) {
        Ok(output) => output,
        Err(VolumeError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    let retained = retained(output.object_lock_mode.as_ref(), output.object_lock_retain_until_date.as_ref());
    let hold = match output.object_lock_legal_hold_status {
        Some(ObjectLockLegalHoldStatus::On) => Some(Hold::Endless),
        _ => retained.map(|retained| Hold::Until(retained.until_ms)),
    };
    Ok(Some(Doomed { name: name.clone(), key, version: output.version_id, hold }))
}

/// As [`holdfast_volume::RemoteVolume::remove_for_good`], of as many as one request removes. The bucket decides what must stay:
/// its clock counts.
pub(crate) fn remove_for_good(
    client: &Arc<S3Client>,
    names: &[(BlobName, String)],
) -> Result<Vec<(BlobName, Hold)>, VolumeError> {
    let doomed = look_at_all(client, names)?;
    let Some(first) = doomed.first() else { return Ok(Vec::new()) };
    let call = client.call(REMOVE_VERSION_ACTION, &first.name, Intent::Write);
    let object = |one: &Doomed| {
        ObjectIdentifier::builder().key(&one.key).set_version_id(one.version.clone()).build().ok()
    };
    let objects: Option<Vec<_>> = doomed.iter().map(object).collect();
    let delete =
        objects.and_then(|objects| Delete::builder().set_objects(Some(objects)).quiet(true).build().ok());
    let Some(delete) = delete else {
        return Err(classify(&call, &Answer::NotSent, None, "the request cannot be written".into()));
    };
    let request = client.sdk.delete_objects().bucket(&client.config.bucket).delete(delete);
    let output = client.request(RequestKind::Delete, &call, 0, request.send())?;
    let by_key: BTreeMap<&str, &Doomed> = doomed.iter().map(|one| (one.key.as_str(), one)).collect();
    let mut held = Vec::new();
    for error in output.errors.unwrap_or_default() {
        let code = error.code.clone().unwrap_or_default();
        let one = error.key.as_deref().and_then(|key| by_key.get(key));
        match (code.as_str(), one.and_then(|one| one.hold)) {
            // Deleted already.
            ("NoSuchKey" | "NoSuchVersion", _) => {}
            ("AccessDenied", Some(hold)) => held.extend(one.map(|one| (one.name.clone(), hold))),
            _ => {
                let answer = Answer::Refused { status: 403, code, region: None };
                let said = error.message.clone();
                return Err(classify(&call, &answer, said.as_deref(), "an object of a batch stays".into()));
            }
        }
    }
    Ok(held)
}

fn look_at_all(client: &S3Client, names: &[(BlobName, String)]) -> Result<Vec<Doomed>, VolumeError> {
    let (left, found) = (Mutex::new(names.iter()), Mutex::new(Ok(Vec::with_capacity(names.len()))));
    std::thread::scope(|scope| {
        for _ in 0..LOOKS.min(names.len()) {
            scope.spawn(|| {
                while found.lock().is_ok() {
                    let Some((name, key)) = left.lock().next() else { return };
                    let looked = doom(client, name, key.clone());
                    let mut found = found.lock();
                    match (looked, found.as_mut()) {
                        (Ok(one), Ok(all)) => all.extend(one),
                        (Err(error), Ok(_)) => *found = Err(error),
                        (_, Err(_)) => {}
                    }
                }
            });
        }
    });
    found.into_inner()
}

/// What there is of one key.
#[derive(Default)]
struct Versions {
    /// Names, lengths and tags, the newest first.
    objects: Vec<(String, u64, Option<String>)>,
    /// Names.
    markers: Vec<String>,
}

/// As [`holdfast_volume::RemoteVolume::uncover`]. Markers that lie below go, too: nothing hangs on them.
pub(crate) fn uncover(
    client: &Arc<S3Client>,
    name: &BlobName,
    key: &str,
    len: u64,
    tag: Option<&str>,
) -> Result<bool, VolumeError> {
    let Versions { objects, markers } = versions(client, name, key)?;
    let wanted = objects
        .iter()
        .position(|(_, there, other)| *there == len && tag.is_none_or(|tag| other.as_deref() == Some(tag)));
    let Some(wanted) = wanted else { return Ok(false) };
    let above = objects.iter().take(wanted).map(|(id, ..)| id);
    for id in markers.iter().chain(above) {
        let call = client.call(REMOVE_VERSION_ACTION, name, Intent::Write);
        let request = client.sdk.delete_object().bucket(&client.config.bucket).key(key).version_id(id);
        client.request(RequestKind::Delete, &call, 0, request.send())?;
    }
    Ok(true)
}

fn versions(client: &Arc<S3Client>, name: &BlobName, key: &str) -> Result<Versions, VolumeError> {
    let call = client.call("list the versions of", name, Intent::Read);
    let mut found = Versions::default();
    let (mut key_marker, mut version_marker) = (None, None);
    loop {
        let request = client
            .sdk
            .list_object_versions()
            .bucket(&client.config.bucket)
            .prefix(key)
            .set_key_marker(key_marker)
            .set_version_id_marker(version_marker);
        let output = client.request(RequestKind::List, &call, 0, request.send())?;
        // Keys that only begin so are other objects, and come later.
        let mut is_over = !output.is_truncated.unwrap_or(false);
        for object in output.versions.unwrap_or_default() {
            if object.key.as_deref() != Some(key) {
                is_over = true;
                continue;
            }
            let len = object.size.and_then(|len| u64::try_from(len).ok());
            found.objects.extend(object.version_id.zip(len).map(|(id, len)| (id, len, object.e_tag)));
        }
        for marker in output.delete_markers.unwrap_or_default() {
            if marker.key.as_deref() != Some(key) {
                is_over = true;
                continue;
            }
            found.markers.extend(marker.version_id);
        }
        (key_marker, version_marker) = (output.next_key_marker, output.next_version_id_marker);
        if is_over || key_marker.is_none() || found.objects.len() + found.markers.len() >= VERSIONS_MAX {
            return Ok(found);
        }
    }
}
