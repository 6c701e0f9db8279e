//! Removes many objects with few requests; if the bucket keeps versions, also for good: every version and every delete
//! marker of a name.
//!
//! A crash in between leaves some of the versions; repeating the removal removes them.

use std::collections::BTreeMap;

use aws_sdk_s3::types::{Delete, Error as Refusal, ObjectIdentifier};
use holdfast_volume::{BlobName, Hold, VolumeError};
use parking_lot::Mutex;

use crate::client::{RequestKind, S3Client};
use crate::error::{Answer, Call, Intent, REMOVE_VERSION_ACTION, classify};
use crate::retention::hold;
use crate::versions::{Versions, versions};

/// Most keys deleted by one request.
pub(crate) const BATCH_MAX: usize = 1000;

/// Requests in parallel.
const LOOKS: usize = 8;

/// Names whose versions are listed before they are removed. Each has at most 11,000 versions of some 100 bytes: 70 MB,
/// if someone made that many of all of them.
const NAMES: usize = 64;

/// Removes at most [`BATCH_MAX`] objects by their keys, or versions of them. Returns those that were refused; an
/// object that is already gone is not among them.
pub(crate) fn remove_batch(
    client: &S3Client,
    call: &Call,
    objects: impl Iterator<Item = (String, Option<String>)>,
) -> Result<Vec<Refusal>, VolumeError> {
    let objects: Option<Vec<_>> = objects
        .map(|(key, version)| ObjectIdentifier::builder().key(key).set_version_id(version).build().ok())
        .collect();
    let delete =
        objects.and_then(|objects| Delete::builder().set_objects(Some(objects)).quiet(true).build().ok());
    let Some(delete) = delete else {
        return Err(classify(call, &Answer::NotSent, None, "the request cannot be written".into()));
    };
    let request = client.sdk.delete_objects().bucket(&client.config.bucket).delete(delete);
    let output = client.request(RequestKind::Delete, call, 0, request.send())?;
    let mut stay = output.errors.unwrap_or_default();
    stay.retain(|refusal| !matches!(refusal.code.as_deref(), Some("NoSuchKey" | "NoSuchVersion")));
    Ok(stay)
}

/// Converts the refusal of one object of a batch to an error.
pub(crate) fn refused(call: &Call, refusal: &Refusal) -> VolumeError {
    let code = refusal.code.clone().unwrap_or_default();
    let answer = Answer::Refused { status: 403, code, region: None };
    classify(call, &answer, refusal.message.as_deref(), "an object of a batch stays".into())
}

/// A version or delete marker to be removed.
struct Doomed<'a> {
    name: &'a BlobName,
    key: &'a str,
    version: String,
}

/// Same as [`holdfast_volume::RemoteVolume::remove_for_good`]. The bucket decides by its own clock what is retained.
pub(crate) fn remove_for_good(
    client: &S3Client,
    names: &[(BlobName, String)],
) -> Result<Vec<(BlobName, Hold)>, VolumeError> {
    let (mut held, mut doomed) = (BTreeMap::new(), Vec::new());
    for names in names.chunks(NAMES) {
        let found = side_by_side(names, |(name, key)| Ok((name, key, versions(client, name, key)?)))?;
        for (name, key, Versions { objects, markers, more }) in found {
            let all = objects.into_iter().map(|object| object.id).chain(markers);
            doomed.extend(all.map(|version| Doomed { name, key, version }));
            if more {
                // They are removed later; the other objects do not wait for them.
                note(&mut held, name, Hold::Until(0));
            }
        }
        while doomed.len() >= BATCH_MAX {
            let batch: Vec<_> = doomed.drain(..BATCH_MAX).collect();
            remove_versions(client, &batch, &mut held)?;
        }
    }
    remove_versions(client, &doomed, &mut held)?;
    Ok(held.into_iter().collect())
}

/// Removes versions, at most as many as one request can. Retained ones are added to `held`.
fn remove_versions(
    client: &S3Client,
    doomed: &[Doomed<'_>],
    held: &mut BTreeMap<BlobName, Hold>,
) -> Result<(), VolumeError> {
    let Some(first) = doomed.first() else { return Ok(()) };
    let call = client.call(REMOVE_VERSION_ACTION, first.name, Intent::Write);
    let objects = doomed.iter().map(|one| (one.key.to_owned(), Some(one.version.clone())));
    let stay = remove_batch(client, &call, objects)?;
    let holds = side_by_side(&stay, |refusal| {
        let is_it = |one: &&Doomed<'_>| {
            refusal.key.as_deref() == Some(one.key)
                && refusal.version_id.as_ref().is_none_or(|version| *version == one.version)
        };
        // The codes of Amazon and MinIO. Other codes do not concern a lock.
        let may_be_locked = matches!(refusal.code.as_deref(), Some("AccessDenied" | "InvalidRequest"));
        let Some(one) = doomed.iter().find(is_it).filter(|_| may_be_locked) else {
            return Err(refused(&call, refusal));
        };
        match hold(client, one.name, one.key, &one.version) {
            Ok(Some(hold)) => Ok(Some((one.name, hold))),
            // The permission to remove it is missing.
            Ok(None) => Err(refused(&call, refusal)),
            Err(VolumeError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    })?;
    for (name, hold) in holds.into_iter().flatten() {
        note(held, name, hold);
    }
    Ok(())
}

/// Of several versions of a name, the longest hold counts.
fn note(held: &mut BTreeMap<BlobName, Hold>, name: &BlobName, hold: Hold) {
    let longest = held.entry(name.clone()).or_insert(hold);
    *longest = hold.max(*longest);
}

/// Calls `ask` for each of `all` in parallel; the answers come in any order.
fn side_by_side<'a, T: Sync, A: Send>(
    all: &'a [T],
    ask: impl Fn(&'a T) -> Result<A, VolumeError> + Sync,
) -> Result<Vec<A>, VolumeError> {
    let (left, found) = (Mutex::new(all.iter()), Mutex::new(Ok(Vec::with_capacity(all.len()))));
    std::thread::scope(|scope| {
        for _ in 0..LOOKS.min(all.len()) {
            scope.spawn(|| {
                while found.lock().is_ok() {
                    let Some(one) = left.lock().next() else { return };
                    let answer = ask(one);
                    let mut found = found.lock();
                    match (answer, found.as_mut()) {
                        (Ok(answer), Ok(all)) => all.push(answer),
                        (Err(error), Ok(_)) => *found = Err(error),
                        (_, Err(_)) => {}
                    }
                }
            });
        }
    });
    found.into_inner()
}
