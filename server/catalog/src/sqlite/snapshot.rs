//! A whole copy of the catalog beside running readers and writers, and how to tell that something has changed.
//!
//! The copy is made by `VACUUM INTO` under one read transaction: a database of its own, compact and without log. The
//! live file is never copied: its log would be missing, or half there. The copy has no name once it can be read, so a
//! crash leaves at most a file that the next start removes.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rusqlite::Connection;

use super::BUSY_TIMEOUT;
use super::connection::open_reader;
use super::convert::OrCatalogError;
use crate::{CatalogError, Result};

/// Suffix of the copy's name; the process's number follows.
const SUFFIX: &str = ".copy-";

/// Steps of SQLite between two looks at whether to go on: a few milliseconds.
const STEPS: i32 = 10_000;

/// One copy of this process at a time.
static COPYING: Mutex<()> = Mutex::new(());

/// Removes what earlier processes left of copies of the database at `path`. For who has the folder's lock. A copy that
/// another process is making fails by it.
///
/// # Errors
/// When the folder cannot be read, or a file not removed.
pub fn discard_copies(path: &Path) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Ok(());
    };
    let prefix = format!("{name}{SUFFIX}");
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// A copy of the database at `path`, to be read from its beginning.
pub(crate) fn take(path: &Path, stop: &Arc<AtomicBool>) -> Result<File> {
    let _one = COPYING.lock();
    let copy = beside(path);
    remove(&copy)?;
    let made = copy_to(path, &copy, stop);
    // Opened before the name goes; whatever was made is gone when the last handle is.
    let opened = made.and_then(|()| File::open(&copy).map_err(|error| CatalogError::io("copy", error)));
    remove(&copy)?;
    opened
}

fn copy_to(path: &Path, copy: &Path, stop: &Arc<AtomicBool>) -> Result<()> {
    let mut connection = open_reader(path, BUSY_TIMEOUT)?;
    let stop = Arc::clone(stop);
    let is_stopped = move || stop.load(Ordering::Acquire);
    connection.progress_handler(STEPS, Some(is_stopped)).or_error("copy")?;
    let target = copy
        .to_str()
        .ok_or_else(|| CatalogError::io("copy", format!("{} is not valid UTF-8", copy.display())))?;
    connection.execute("VACUUM INTO ?", [target]).or_error("copy")?;
    Ok(())
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!("{SUFFIX}{}", std::process::id()));
    PathBuf::from(name)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CatalogError::io("copy", error)),
        _ => Ok(()),
    }
}

/// A connection that only asks whether others have changed something since it last asked. Opened when first used.
#[derive(Debug, Default)]
pub(crate) struct Watcher(Mutex<Option<Connection>>);

impl Watcher {
    pub(crate) fn mark(&self, path: &Path) -> Result<i64> {
        let mut slot = self.0.lock();
        let connection = match slot.take() {
            Some(connection) => connection,
            None => open_reader(path, BUSY_TIMEOUT)?,
        };
        let mark = connection.pragma_query_value(None, "data_version", |row| row.get(0)).or_error("read");
        *slot = Some(connection);
        mark
    }
}
