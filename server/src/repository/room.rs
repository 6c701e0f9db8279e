//! Room for opening the catalog on a full disk: what is kept beside it is given up when there is no other. A crash leaves
//! it or not; it is made again by who has room, when the catalog is opened or when something was deleted.

use std::io;
use std::path::Path;

use holdfast_engine::catalog::{CatalogError, give_up_room};

/// Opens the catalog at `path` by `open`, with the room that is kept for it if there is no other, and has `keep` keep room
/// again.
///
/// # Errors
/// Those of `open`.
pub(super) fn open<T>(
    path: &Path,
    open: impl Fn() -> Result<T, CatalogError>,
    keep: impl Fn(&T) -> io::Result<()>,
) -> Result<T, CatalogError> {
    let opened = match open() {
        Err(CatalogError::Full) if give_up_room(path) => {
            tracing::warn!("the disk is full: gave up the room kept for opening the catalog");
            open()?
        }
        outcome => outcome?,
    };
    if let Err(error) = keep(&opened) {
        tracing::warn!(%error, "cannot keep room for the catalog on a full disk");
    }
    Ok(opened)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_room_is_given_up_when_there_is_no_other_and_kept_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let (catalog, room) = (folder.path().join("catalog.db"), folder.path().join("catalog.room"));
        let keep = |(): &()| fs::write(&room, b"room");
        let on_a_full_disk = || if room.exists() { Err(CatalogError::Full) } else { Ok(()) };
        open(&catalog, || Ok(()), keep).unwrap();
        assert!(room.exists());
        open(&catalog, on_a_full_disk, |(): &()| Err(io::ErrorKind::StorageFull.into())).unwrap();
        assert!(!room.exists(), "given up, and there was none to keep");
        let refused = open(&catalog, || Err::<(), _>(CatalogError::Full), keep);
        assert!(matches!(refused, Err(CatalogError::Full)));
        open(&catalog, || Ok(()), keep).unwrap();
        let refused = open(&catalog, || Err::<(), _>(CatalogError::Busy), keep);
        assert!(matches!(refused, Err(CatalogError::Busy)));
        assert!(room.exists(), "given up for nothing but lack of room");
    }
}
