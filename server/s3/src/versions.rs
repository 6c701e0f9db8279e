//! Versions under a name, where the bucket keeps them: objects and delete markers, the newest on top.

use std::sync::Arc;

use holdfast_volume::{BlobChecksum, BlobName, VolumeError};

use crate::classes::look;
use crate::client::{RequestKind, S3Client};
use crate::config::ChecksumKind;
use crate::error::{Intent, LIST_VERSIONS_ACTION, REMOVE_VERSION_ACTION, bad_answer, is_denied};

/// Most versions of one object that are read at once: only an attacker makes more.
pub(crate) const VERSIONS_MAX: usize = 10_000;

/// A version of an object, current or covered by another.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) id: String,
    /// Length in bytes.
    pub(crate) len: Option<u64>,
    pub(crate) tag: Option<String>,
}

/// Versions of one key.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// Objects, newest first.
    pub(crate) objects: Vec<Version>,
    /// Ids of delete markers.
    pub(crate) markers: Vec<String>,
    /// `true` if there are more.
    pub(crate) more: bool,
}

/// Lists the versions of exactly this key: up to [`VERSIONS_MAX`] and at most a page more.
pub(crate) fn versions(client: &S3Client, name: &BlobName, key: &str) -> Result<Versions, VolumeError> {
    let call = client.call(LIST_VERSIONS_ACTION, name, Intent::Read);
    let mut found = Versions::default();
    let mut at = (None, None);
    let mut entries = 0;
    loop {
        let (key_marker, version_marker) = at.clone();
        let request = client
            .sdk
            .list_object_versions()
            .bucket(&client.config.bucket)
            .prefix(key)
            .set_key_marker(key_marker)
            .set_version_id_marker(version_marker);
        let output = client.request(RequestKind::List, &call, 0, request.send())?;
        // Keys that merely start with it are other objects, and come later.
        let mut is_over = !output.is_truncated.unwrap_or(false);
        let (objects, markers) =
            (output.versions.unwrap_or_default(), output.delete_markers.unwrap_or_default());
        let is_empty = objects.is_empty() && markers.is_empty();
        entries += objects.len() + markers.len();
        for object in objects {
            if object.key.as_deref() != Some(key) {
                is_over = true;
                continue;
            }
            let len = object.size.and_then(|len| u64::try_from(len).ok());
            found.objects.extend(object.version_id.map(|id| Version { id, len, tag: object.e_tag }));
        }
        for marker in markers {
            if marker.key.as_deref() != Some(key) {
                is_over = true;
                continue;
            }
            found.markers.extend(marker.version_id);
        }
        if is_over {
            return Ok(found);
        }
        if entries >= VERSIONS_MAX {
            found.more = true;
            return Ok(found);
        }
        let next = (output.next_key_marker, output.next_version_id_marker);
        if is_empty || next.0.is_none() || next == at {
            // The listing would never end.
            return Err(bad_answer(
                &call,
                "a page of versions that is said not to be the last, and leads nowhere",
            ));
        }
        at = next;
    }
}

/// The object to be restored, as recorded.
pub(crate) struct Wanted<'a> {
    /// Length in bytes.
    pub(crate) len: u64,
    pub(crate) tag: Option<&'a str>,
    pub(crate) sum: Option<BlobChecksum>,
}

impl Wanted<'_> {
    /// (T19) Returns true if the version is this object, and not merely one of the same length.
    fn is_it(
        &self,
        client: &Arc<S3Client>,
        name: &BlobName,
        key: &str,
        there: &Version,
    ) -> Result<bool, VolumeError> {
        if there.len != Some(self.len) {
            return Ok(false);
        }
        match (self.tag, self.sum) {
            (Some(tag), _) => Ok(there.tag.as_deref() == Some(tag)),
            (None, Some(sum @ BlobChecksum::Crc64Nvme(_)))
                if client.config.checksum == ChecksumKind::Crc64Nvme =>
            {
                Ok(look(client, name, key, Some(&there.id))?.checksum == Some(sum))
            }
            // The service keeps another kind of checksum: the caller verifies the restored object.
            (None, _) => Ok(true),
        }
    }
}

/// Same as [`holdfast_volume::RemoteVolume::uncover`]. Delete markers below it are removed, too: nothing
/// depends on them.
pub(crate) fn uncover(
    client: &Arc<S3Client>,
    name: &BlobName,
    key: &str,
    wanted: &Wanted<'_>,
) -> Result<bool, VolumeError> {
    let Versions { objects, markers, .. } = versions(client, name, key)?;
    let mut found = None;
    for (at, there) in objects.iter().enumerate() {
        if wanted.is_it(client, name, key, there)? {
            found = Some(at);
            break;
        }
    }
    let Some(wanted) = found else { return Ok(false) };
    let above = objects.iter().take(wanted).map(|above| &above.id);
    for id in markers.iter().chain(above) {
        let call = client.call(REMOVE_VERSION_ACTION, name, Intent::Write);
        let request = client.sdk.delete_object().bucket(&client.config.bucket).key(key).version_id(id);
        match client.request(RequestKind::Delete, &call, 0, request.send()) {
            // The version above it is under retention: waiting does not help.
            Err(error) if is_denied(&error) => {
                return Err(VolumeError::NotReadableNow { name: name.to_string(), source: error.into() });
            }
            removed => removed.map(|_| ())?,
        }
    }
    Ok(true)
}
