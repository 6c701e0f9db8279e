//! SQLite's log as an earlier process left it, made durable before anything is built on it.
//!
//! After a flush that failed the kernel takes what it could not write for written. A start reads such a log from memory,
//! where it is whole, and what is appended to it is flushed, but what was before is not: after a power failure the log
//! ends at the hole, and everything acknowledged since is lost. To fold such a log in is worse: a power failure in the
//! middle leaves a database of which a part is new, without the log that has the rest. So the log is written again, byte
//! for byte, and flushed.
//!
//! The bytes written are those that are there: a crash, or a failure half way, changes nothing, and the next process
//! does it anew; readers of any process, who may have the log open, read what they would have read. That it stays the
//! same meanwhile is SQLite's lock of the one writer, without which no process appends to a log, begins it anew, or cuts
//! it off. Its locks are on the database and on the log's index, never on the log itself, so closing it here drops none.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};

use super::convert::OrCatalogError;
use crate::{CatalogError, Result};

/// Read and written at a time. SQLite folds its log in at 4 MiB.
const PIECE_BYTES: usize = 1 << 20;

/// (W13) Writes the log of the database at `database` again, if there is one.
pub(crate) fn write_again(writer: &mut Connection, database: &Path) -> Result<()> {
    let path = path_of(database);
    if std::fs::metadata(&path).map_or(true, |log| log.len() == 0) {
        return Ok(());
    }
    // No other process appends to it, or begins it anew, until this ends.
    let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate).or_error("write")?;
    rewrite(&path).map_err(|error| match error.kind() {
        // On file systems that copy on write.
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => CatalogError::Full,
        ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => CatalogError::io("write", error),
        _ => CatalogError::WriteFailed { action: "write", cause: error.into() },
    })?;
    transaction.rollback().or_error("write")
}

fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-wal");
    path.into()
}

fn rewrite(path: &Path) -> io::Result<()> {
    let log = File::options().read(true).write(true).open(path)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = 0;
    loop {
        let read = match log.read_at(&mut piece, offset) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        log.write_all_at(piece.get(..read).unwrap_or_default(), offset)?;
        offset += read as u64;
    }
    log.sync_data()
}
