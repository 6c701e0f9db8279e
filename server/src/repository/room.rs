//! Room for opening the catalog on a full disk.
//!
//! Beside a database that it opens SQLite makes a file of 32 KiB, and cannot open it without, not even to read. A killed
//! process leaves that file, a clean stop removes it. So a file of 64 KiB is kept in the data folder, and given up when
//! there is no other room. A crash leaves it or not; the next start that has room makes it again.

use std::fs;
use std::path::Path;

use holdfast_engine::catalog::CatalogError;

use crate::files;

const FILE: &str = "catalog.room";
const BYTES: usize = 64 << 10;

/// Opens the catalog by `open`, with the room that is kept in `folder` if there is no other.
///
/// # Errors
/// Those of `open`.
pub(super) fn open<T>(folder: &Path, open: impl Fn() -> Result<T, CatalogError>) -> Result<T, CatalogError> {
    let path = folder.join(FILE);
    match open() {
        Err(CatalogError::Full) if fs::remove_file(&path).is_ok() => {
            tracing::warn!(file = %path.display(), "the disk is full: gave up the room kept for opening the catalog");
            open()
        }
        Ok(opened) => {
            keep(&path);
            Ok(opened)
        }
        refused => refused,
    }
}

fn keep(path: &Path) {
    if fs::metadata(path).is_ok_and(|found| found.len() >= BYTES as u64) {
        return;
    }
    // Not zeros, for which some file systems keep no room.
    let bytes: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).unwrap_or(1) | 1).collect();
    if let Err(error) = files::write_durably(path, &bytes, files::MODE_SECRET) {
        tracing::warn!(file = %path.display(), %error, "cannot keep room for opening the catalog on a full disk");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_given_up_when_there_is_no_other_and_kept_again_later() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let on_a_full_disk = || if path.exists() { Err(CatalogError::Full) } else { Ok(()) };
        open(folder.path(), || Ok(())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 10);
        open(folder.path(), on_a_full_disk).unwrap();
        assert!(!path.exists(), "nothing is written to a full disk");
        assert!(matches!(open(folder.path(), || Err::<(), _>(CatalogError::Full)), Err(CatalogError::Full)));
        open(folder.path(), || Ok(())).unwrap();
        assert!(matches!(open(folder.path(), || Err::<(), _>(CatalogError::Busy)), Err(CatalogError::Busy)));
        assert_eq!(fs::metadata(&path).unwrap().len(), 64 << 10);
    }
}
