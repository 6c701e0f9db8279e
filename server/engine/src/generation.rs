//! (G10) A number that volume and catalog agree on, and that everything raises which deletes restore points or containers:
//! the catalog in the transaction that begins it, the volume before anything is removed.
//!
//! A volume that is behind the catalog is what a crash between the two leaves. A volume that is ahead says that the catalog
//! is an older copy: it lists what was deleted since, and has rows of containers that are gone (S10).
//!
//! On the volume it is the name of an empty blob, `generation/` and sixteen hexadecimal digits; the highest counts. No copy
//! of it leaves this machine.

use holdfast_catalog::Catalog;
use holdfast_volume::{BlobName, Volume, VolumeError, list_all};

use crate::error::EngineError;

/// Blobs of the folder: those below the highest go when there are more.
const KEPT: usize = 8;

#[expect(clippy::expect_used, reason = "a constant")]
fn folder() -> BlobName {
    BlobName::new("generation").expect("a valid name")
}

#[expect(clippy::expect_used, reason = "made of digits")]
fn name(generation: u64) -> BlobName {
    BlobName::new(format!("generation/{generation:016x}")).expect("a valid name")
}

fn parse(name: &BlobName) -> Option<u64> {
    let digits = name.as_str().strip_prefix("generation/").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The numbers on the volume, in ascending order.
fn on_volume(volume: &dyn Volume) -> Result<Vec<u64>, VolumeError> {
    let mut found = Vec::new();
    for entry in list_all(volume, &folder()) {
        found.extend(parse(&entry?.name));
    }
    Ok(found)
}

/// (S10) The volume's generation, when the catalog is an older copy.
///
/// # Errors
/// The volume's and the catalog's.
pub(crate) fn of_newer_volume(volume: &dyn Volume, catalog: &Catalog) -> Result<Option<u64>, EngineError> {
    let of_catalog = catalog.commits()?.generation;
    Ok(on_volume(volume)?.last().copied().filter(|generation| *generation > of_catalog))
}

/// Further than what settling an older catalog raises that to: one for each restore point and batch of containers.
const AHEAD: u64 = 1 << 32;

/// (S10) Puts the volume's generation out of reach of the catalog's, which rises while it is settled: a crash in between
/// leaves a catalog that is still older.
///
/// # Errors
/// The volume's. A full disk is no error: such a crash then leaves restore points that were deleted.
pub(crate) fn keep_ahead(volume: &dyn Volume, generation: u64) -> Result<u64, EngineError> {
    let ahead = generation.saturating_add(AHEAD);
    match volume.create(&name(ahead)).and_then(|blob| blob.seal()) {
        Ok(()) | Err(VolumeError::Exists { .. }) => Ok(ahead),
        Err(error) if error.is_full() => {
            tracing::warn!(%error, "no room to note on the volume that the catalog is an older copy");
            Ok(generation)
        }
        Err(error) => Err(error.into()),
    }
}

/// (G10) Raises the volume's generation to the catalog's, durably: before anything is removed.
///
/// # Errors
/// The volume's and the catalog's. A full disk is no error: what is going to be removed makes room.
pub(crate) fn raise(volume: &dyn Volume, catalog: &Catalog) -> Result<(), EngineError> {
    let wanted = catalog.commits()?.generation;
    let there = on_volume(volume)?;
    if there.last().is_some_and(|generation| *generation >= wanted) {
        return Ok(());
    }
    match volume.create(&name(wanted)).and_then(|blob| blob.seal()) {
        Ok(()) | Err(VolumeError::Exists { .. }) => {}
        Err(error) if error.is_full() => {
            tracing::warn!(%error, "no room to note on the volume that something is deleted; deleting it all the same");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    }
    if there.len() >= KEPT {
        for older in there {
            // Tried again by the next.
            let _ = volume.remove(&name(older));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_name_is_this() {
        assert_eq!(name(0x12ab).as_str(), "generation/00000000000012ab");
        assert_eq!(parse(&name(u64::MAX)), Some(u64::MAX));
        for other in ["generation/12ab", "generation/00000000000012ag", "points/00000000000012ab"] {
            assert_eq!(parse(&BlobName::new(other).unwrap()), None, "{other}");
        }
    }
}
