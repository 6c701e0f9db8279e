//! Room for the catalog on a full disk: a file beside it that is given up when there is no other room.
//!
//! Beside a database that it opens SQLite makes a file of 32 KiB, and cannot open it without, not even to read. And what
//! makes room (deleting restore points, deleting containers) writes some pages before it does: they are appended to the
//! log, and folded into a database that grew since it was last folded in. A crash leaves the file or not; who opens the
//! catalog and has room makes it again, and so does who deleted containers.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_types::owner::adopt;
use rustix::fs::OFlags;

use crate::{CatalogError, Result};

const FILE: &str = "catalog.room";

/// A transaction that deletes writes some 50 pages of 4 KiB. A thousand restore points of different VMs at once, each in pages of
/// its own and for a reason of 1,000 bytes, write some 1,500 to the log, and as much again may be appended to the database.
pub(crate) const BYTES: usize = 16 << 20;

fn path_of(database: &Path) -> PathBuf {
    database.with_file_name(FILE)
}

/// Gives up the room kept for the catalog `database`; whether there was any.
pub fn give_up(database: &Path) -> bool {
    fs::remove_file(path_of(database)).is_ok()
}

/// Keeps room for the catalog `database`, unless it is there.
///
/// # Errors
/// When there is none.
pub(crate) fn keep(database: &Path) -> io::Result<()> {
    let path = path_of(database);
    let before = fs::symlink_metadata(&path).map_or(0, |found| found.len());
    if before >= BYTES as u64 {
        return Ok(());
    }
    // Root may be the one who does this, in a folder of another user: it writes to no file that a link names.
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut file = File::options().append(true).create(true).mode(0o600).custom_flags(flags).open(&path)?;
    adopt(&file, &path)?;
    let grown = grow(&mut file, before);
    if grown.is_err() {
        // Room from before stays: an earlier version kept less. An incomplete rest would only fill the disk.
        let _ = if before == 0 { fs::remove_file(&path) } else { file.set_len(before) };
    }
    grown
}

fn grow(file: &mut File, from: u64) -> io::Result<()> {
    // Not zeros, for which some file systems keep no room.
    let missing = usize::try_from(from).map_or(0, |from| BYTES.saturating_sub(from));
    let bytes: Vec<u8> = (0..missing).map(|at| u8::try_from(at % 251).unwrap_or(1) | 1).collect();
    file.write_all(&bytes)?;
    file.sync_all()
}

/// Kept free in any case, where the catalog has a file system of its own: what its log may grow by.
const LEFT_BYTES: u64 = 8 << 20;

/// (W15, W17) Returns an error unless so many bytes fit beside the database at `path` and leave `floor_bytes` free.
pub(crate) fn check(path: &Path, bytes: u64, floor_bytes: u64) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found =
        rustix::fs::statvfs(folder).map_err(|error| CatalogError::io("copy", io::Error::from(error)))?;
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    if free_bytes < bytes.saturating_add(LEFT_BYTES.max(floor_bytes)) {
        Err(CatalogError::Full)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A user whose folder it is could have root write to any file.
    #[test]
    fn room_is_not_kept_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let (database, other) = (folder.path().join("catalog.db"), folder.path().join("another"));
        symlink(&other, path_of(&database)).unwrap();
        keep(&database).unwrap_err();
        assert!(!other.exists());
        fs::write(&other, b"theirs").unwrap();
        keep(&database).unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), b"theirs");
        assert!(give_up(&database), "the link goes, and not the file");
        keep(&database).unwrap();
        assert_eq!(
            (fs::read(&other).unwrap().len(), fs::metadata(path_of(&database)).unwrap().len()),
            (6, BYTES as u64)
        );
    }
}
