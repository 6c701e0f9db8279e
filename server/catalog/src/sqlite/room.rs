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

const FILE: &str = "catalog.room";

/// A transaction that deletes writes some 50 pages of 4 KiB, a thousand restore points at once some 200.
const BYTES: usize = 1 << 20;

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
pub fn keep(database: &Path) -> io::Result<()> {
    let path = path_of(database);
    if fs::metadata(&path).is_ok_and(|found| found.len() >= BYTES as u64) {
        return Ok(());
    }
    let written = write(&path);
    if written.is_err() {
        // What is left of it is in the way of what it was to be for.
        let _ = fs::remove_file(&path);
    }
    written
}

fn write(path: &Path) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // Not zeros, for which some file systems keep no room.
    let bytes: Vec<u8> = (0..BYTES).map(|at| u8::try_from(at % 251).unwrap_or(1) | 1).collect();
    file.write_all(&bytes)?;
    file.sync_all()
}
