//! Gives containers that lie in the bucket alone the storage class of an archive, as they are.
//!
//! (T10) Data containers only: recipes, points, keys and snapshots are read all the time, and what a recovery needs of a
//! cold container, its ends, is put beside it first. The object is copied onto itself by the bucket, in one request, and
//! looked at before and after. That it may be cold is in the record before.
//!
//! A crash, or an answer that was lost, leaves a container that counts as cold and may not be; it can be read, and the next
//! round finds out.

use holdfast_volume::{BlobChecksum, BlobName, Owner, RemoteLook, VolumeError};

use crate::cold::is_archive;
use crate::compare::{There, compare, crc64, is_comparable, pieces};
use crate::evict::{ends_name, has_ends_of};
use crate::lease::Lease;
use crate::prices::DEFAULT_CLASS;
use crate::record::{Record, RecordError};
use crate::shared::Shared;
use crate::waiting::Kind;

/// Returns true if `name` is that of a container of disks' data, however it is encrypted.
fn is_data(shared: &Shared, name: &BlobName) -> bool {
    let is_data = |form: BlobName| form.as_str().ends_with(".data");
    Kind::of(name) == Some(Kind::Container) && (shared.names.forms)(name).into_iter().any(is_data)
}

/// See the module's text. Whether it has the class now that did not before.
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
    // What lies in an archive would have to be thawed for another one.
    if known.as_ref().is_some_and(|row| row.is_done && (row.class == *class || is_archive(&row.class))) {
        return Ok(false);
    }
    // (T14) What is wrong with it is put right first.
    let Some(sent) = record.known_one(name).map_err(failed)?.filter(|sent| sent.flaw.is_none()) else {
        return Ok(false);
    };
    // (T17) The object of another class would be another one, and the one that must stay would be paid for beside it.
    if record.is_to_stay(name, clock.now_ms()).map_err(failed)? {
        return Ok(false);
    }
    // Who else writes there may count on it.
    lease.check(shared).map_err(|error| error.of_blob("move", name))?;
    let before = remote.store.look(name)?;
    let tag = checked(name, &before, len, sent.sum)?;
    // (T10) Before it may be cold, and before there is anything that goes with it.
    record.note_freezing(name, class).map_err(failed)?;
    let usual = before.class.as_deref().unwrap_or(DEFAULT_CLASS);
    // A request of before whose answer was lost may yet be carried out: then it stays noted as one that may be cold.
    let may_be_on_its_way = known.is_some_and(|row| !row.is_done) && !is_archive(usual);
    let stays = |record: &Record| {
        if may_be_on_its_way { Ok(()) } else { record.note_frozen(name, usual).map_err(failed) }
    };
    match put_ends(shared, name) {
        Ok(true) => {}
        // Nothing was asked for that could make it cold.
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

/// (T18) A lock that came meanwhile may have made an object stay that this one replaced.
fn is_another(shared: &Shared, name: &BlobName) -> Result<(), VolumeError> {
    let Shared { record, clock, .. } = shared;
    let failed = |error: RecordError| error.of_blob("move", name);
    if record.is_to_stay(name, clock.now_ms()).map_err(failed)? {
        record.note_short(name, 0).map_err(failed)?;
    }
    Ok(())
}

/// (T10) The tag of what lies there, which has the length and checksum of what was sent.
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

/// Puts the ends of a container beside it in the bucket, in its usual class: a server that is made of the bucket alone must
/// know what is in it without thawing it. `false`: there are none here that are whole.
pub(crate) fn put_ends(shared: &Shared, name: &BlobName) -> Result<bool, VolumeError> {
    let failed = |error: RecordError| error.of_blob("move", name);
    let (Some(kept), Some(len)) = (ends_name(name), shared.record.visible(name).map_err(failed)?) else {
        return Ok(false);
    };
    // A server that was made of the bucket keeps none; what it cannot put beside a container stays warm.
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
        // Of an earlier writing of that name.
        shared.remote.store.remove_all(std::slice::from_ref(&kept))?;
        if !put()? {
            return Err(VolumeError::Exists { name: kept });
        }
    }
    // (T20) From now on the audit looks at them.
    shared.record.add_sent(&kept, here.len(), sum).map_err(failed).map(|()| true)
}

/// These, and the ends that lie beside those that may be cold.
pub(crate) fn with_ends(record: &Record, names: &[BlobName]) -> Result<Vec<BlobName>, RecordError> {
    let mut all = names.to_vec();
    for name in names {
        if record.cold(name)?.is_some() {
            all.extend(ends_name(name));
        }
    }
    Ok(all)
}
