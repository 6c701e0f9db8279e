//! Room for opening the catalog on a full disk: what is kept beside it is given up when there is no other. A crash leaves
//! it or not; the next start that has room makes it again.

use std::path::Path;

use holdfast_engine::catalog::{CatalogError, give_up_room, keep_room};

/// Opens the catalog at `path` by `open`, with the room that is kept for it if there is no other.
///
/// # Errors
/// Those of `open`.
pub(super) fn open<T>(path: &Path, open: impl Fn() -> Result<T, CatalogError>) -> Result<T, CatalogError> {
    match open() {
        Err(CatalogError::Full) if give_up_room(path) => {
            tracing::warn!("the disk is full: gave up the room kept for opening the catalog");
            open()
        }
        Ok(opened) => {
            if let Err(error) = keep_room(path) {
                tracing::warn!(%error, "cannot keep room for the catalog on a full disk");
            }
            Ok(opened)
        }
        refused => refused,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_room_is_given_up_when_there_is_no_other_and_kept_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let (catalog, path) = (folder.path().join("catalog.db"), folder.path().join("catalog.room"));
        let on_a_full_disk = || if path.exists() { Err(CatalogError::Full) } else { Ok(()) };
        open(&catalog, || Ok(())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
        open(&catalog, on_a_full_disk).unwrap();
        assert!(!path.exists(), "nothing is written to a full disk");
        assert!(matches!(open(&catalog, || Err::<(), _>(CatalogError::Full)), Err(CatalogError::Full)));
        open(&catalog, || Ok(())).unwrap();
        assert!(matches!(open(&catalog, || Err::<(), _>(CatalogError::Busy)), Err(CatalogError::Busy)));
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
    }
}
