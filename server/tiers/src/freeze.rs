//! Moves containers that only the bucket has into an archive storage class, unchanged.
//!
//! (T10) Data containers only: recipes, points, keys and snapshots are read all the time; and the part of a cold
//! container that a recovery needs, its ends, is put beside it first. The bucket copies the object onto itself, in one
//! request; it is verified before and after. The record says that it may be cold before the request is sent.
//!
//! A crash, or a lost answer, leaves a container that counts as cold and may not be; it can still be read, and the
//! next round determines its class.

use holdfast_volume::{BlobChecksum, BlobName, Owner, RemoteLook, VolumeError};

use crate::cold::is_archive;
use crate::compare::{There, compare, crc64, is_comparable, pieces};
use crate::evict::{ends_name, has_ends_of};
use crate::lease::Lease;
use crate::prices::DEFAULT_CLASS;
use crate::record::{Record, RecordError};
use crate::shared::Shared;
use crate::waiting::Kind;

/// Returns true if `name` is that of a data container, however it is encrypted.
fn is_data(shared: &Shared, name: &BlobName) -> bool {
    let is_data = |form: BlobName| form.as_str().ends_with(".data");
    Kind::of(name) == Some(Kind::Container) && (shared.names.forms)(name).into_iter().any(is_data)
}

/// Moves a container into the archive class (see the module documentation). Returns true if its class changed.
pub(crate) fn freeze(shared: &Shared, lease: &Lease, name: &BlobName) -> Result<bool, VolumeError> {
    let Shared { local, remote, record, waiting, archive_class, clock, .. } = shared;
    let failed = |error: RecordError| error.of_blob("move", name);
    let Some(class) = archive_class.get() else { return Ok(false) };
    // (T10)
    if !is_data(shared, name) || shared.travels(name).is_none() {
        return Ok(false);
    }
    let Some(len) = record.visible(name).map_err(failed)? else { return Ok(false) };
    if waiting.is_removing(name) || !matches!(local.open(name), Err(VolumeError::NotFound { .. })) {
        return Ok(false);
    }
    let known = record.cold(name).map_err(failed)?;
    // An archived object would have to be thawed to get another class.
    if known.as_ref().is_some_and(|row| row.is_done && (row.class == *class || is_archive(&row.class))) {
        return Ok(false);
    }
    // (T14) A flaw is repaired first.
    let Some(sent) = record.known_one(name).map_err(failed)?.filter(|sent| sent.flaw.is_none()) else {
        return Ok(false);
    };
    // (T17) A new class means a new object; the old one would stay under retention and be billed beside it.
    if record.is_to_stay(name, clock.now_ms()).map_err(failed)? {
        return Ok(false);
    }
    // Another server that writes there may count on it.
    lease.check(shared).map_err(|error| error.of_blob("move", name))?;
    let before = remote.store.look(name)?;
    let tag = checked(name, &before, len, sent.sum)?;
    // (T10) Recorded before it may be cold, and before its ends are put.
    record.note_freezing(name, class).map_err(failed)?;
    let usual = before.class.as_deref().unwrap_or(DEFAULT_CLASS);
    // An earlier request whose answer was lost may yet be carried out: it stays recorded as one that may be cold.
    let may_be_on_its_way = known.is_some_and(|row| !row.is_done) && !is_archive(usual);
    let stays = |record: &Record| {
        if may_be_on_its_way { Ok(()) } else { record.note_frozen(name, usual).map_err(failed) }
    };
    match put_ends(shared, name) {
        Ok(true) => {}
        // No request was sent that could make it cold.
        Ok(false) => {
            stays(record)?;
            return Ok(false);
        }
        Err(error) => {
            stays(record)?;
            return Err(error);
        }
    }
    if usual == class || is_archive(usual) {
        stays(record)?;
        return Ok(true);
    }
    if let Err(error) = remote.store.set_class(name, class, &tag) {
        if error.may_have_written() {
            is_another(shared, name)?;
        } else {
            stays(record)?;
        }
        return Err(error);
    }
    is_another(shared, name)?;
    shared.asked.change(class);
    let after = remote.store.look(name)?;
    checked(name, &after, len, sent.sum)?;
    if after.checksum != before.checksum || after.class.as_deref() != Some(class) {
        return Err(VolumeError::BadAnswer {
            action: "move",
            name: name.to_string(),
            found: format!(
                "class {:?} and checksum {:?} after it was moved to {class}, where it had {:?}",
                after.class, after.checksum, before.checksum
            ),
        });
    }
    record.note_frozen(name, class).map_err(failed)?;
    Ok(true)
}

/// (T18) A lock taken meanwhile may have put the object under retention that this one replaced.
fn is_another(shared: &Shared, name: &BlobName) -> Result<(), VolumeError> {
    let Shared { record, clock, .. } = shared;
    let failed = |error: RecordError| error.of_blob("move", name);
    if record.is_to_stay(name, clock.now_ms()).map_err(failed)? {
        record.note_short(name, 0).map_err(failed)?;
    }
    Ok(())
}

/// (T10) Returns the object's tag, after checking that it has the length and checksum of what was sent.
fn checked(
    name: &BlobName,
    look: &RemoteLook,
    len: u64,
    sent: Option<BlobChecksum>,
) -> Result<String, VolumeError> {
    let wrong = |found: String| VolumeError::BadAnswer { action: "move", name: name.to_string(), found };
    if look.len != len {
        return Err(wrong(format!("an object of {} bytes, where one of {len} was put", look.len)));
    }
    let (Some(tag), Some(there)) = (&look.tag, look.checksum) else {
        return Err(wrong(
            "no checksum, without which it cannot be seen that it stays what it is (s3_checksum)".to_owned(),
        ));
    };
    match sent {
        Some(sent) if is_comparable(there, sent) && there != sent => {
            Err(wrong(format!("checksum {there:?}, where {sent:?} was put")))
        }
        _ => Ok(tag.clone()),
    }
}

/// Puts the ends of a container beside it in the bucket, in the usual class: a server made from the bucket alone must
/// know its contents without thawing it. Returns `false` if there are no intact local ends.
pub(crate) fn put_ends(shared: &Shared, name: &BlobName) -> Result<bool, VolumeError> {
    let failed = |error: RecordError| error.of_blob("move", name);
    let (Some(kept), Some(len)) = (ends_name(name), shared.record.visible(name).map_err(failed)?) else {
        return Ok(false);
    };
    // A server made from the bucket keeps no ends; a container whose ends cannot be put beside it stays warm.
    if !has_ends_of(&*shared.local, name, len) {
        return Ok(false);
    }
    let here = shared.local.open(&kept)?;
    let sum = crc64(&*here)?;
    let put = || -> Result<bool, VolumeError> {
        let mut writer = match shared.remote.writes.create_for(&kept, Owner::REPOSITORY) {
            Err(VolumeError::Exists { .. }) => return Ok(false),
            writer => writer?,
        };
        pieces(&*here, |piece| writer.append(piece))?;
        match writer.seal() {
            Err(VolumeError::Exists { .. }) => Ok(false),
            sealed => sealed.map(|()| true),
        }
    };
    if !put()? && !matches!(compare(&*shared.remote.store, &kept, &*here)?, There::Same(_)) {
        // Ends of an earlier writing of that name.
        shared.remote.store.remove_all(std::slice::from_ref(&kept))?;
        if !put()? {
            return Err(VolumeError::Exists { name: kept });
        }
    }
    // (T20) From now on the audit checks them.
    shared.record.add_sent(&kept, here.len(), sum).map_err(failed).map(|()| true)
}

/// Returns these names, and those of the ends beside containers that may be cold.
pub(crate) fn with_ends(record: &Record, names: &[BlobName]) -> Result<Vec<BlobName>, RecordError> {
    let mut all = names.to_vec();
    for name in names {
        if record.cold(name)?.is_some() {
            all.extend(ends_name(name));
        }
    }
    Ok(all)
}
