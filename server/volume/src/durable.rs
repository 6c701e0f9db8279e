//! The one place where a file becomes durable: written under a temporary name, flushed, given
//! its name without replacing anything, and the folders that lead to it flushed too.
//!
//! Order (a break of it loses acknowledged data): bytes → `fdatasync` of the file → rename → `fsync` of the
//! folder. A folder made on the way is itself made durable by an `fsync` of the folder above it *before*
//! anything in it counts. A crash leaves a temporary file, or the whole file under its name.

use std::collections::HashSet;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use holdfast_types::owner::{adopt, adopt_folder};
use parking_lot::Mutex;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::error::is_full;

/// Only the server's user may read backups.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

/// Stage at which [`TempFile::publish`] failed; callers treat each differently.
#[derive(Debug)]
pub(crate) enum PublishError {
    /// The target exists. The temporary file is gone, nothing else changed.
    Exists,
    /// Before the name was given: nothing became visible, the temporary file is gone.
    Before(&'static str, io::Error),
    /// A flush failed: whatever was written may or may not survive.
    Flush(io::Error),
}

/// A file that vanishes unless it is published.
#[derive(Debug)]
pub(crate) struct TempFile {
    file: File,
    path: PathBuf,
    published: bool,
}

impl TempFile {
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path)?;
        adopt(&file, &path)?;
        Ok(Self { file, path, published: false })
    }

    /// Wraps a file made by a test, to simulate failures of the system.
    #[cfg(test)]
    pub(crate) fn over(file: File, path: PathBuf) -> Self {
        Self { file, path, published: false }
    }

    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)
    }

    /// Makes the file durable under `target`, whose folder is created if it is missing.
    pub(crate) fn publish(mut self, target: &Path, folders: &Folders) -> Result<(), PublishError> {
        match self.file.sync_data() {
            Ok(()) => {}
            // Some file systems reserve room only now. The file goes, so nothing is in doubt.
            Err(e) if is_full(&e) => return Err(PublishError::Before("flush", e)),
            Err(e) => return Err(PublishError::Flush(e)),
        }
        let parent = target.parent().unwrap_or(target);
        folders.ensure(parent)?;
        // Opened before the rename: with no file descriptor left, this fails while nothing is in doubt.
        let folder = File::open(parent).map_err(|e| PublishError::Before("open the folder of", e))?;
        match rename_without_replacing(&self.path, target) {
            Ok(()) => self.published = true,
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(PublishError::Exists),
            Err(e) => return Err(PublishError::Before("name", e)),
        }
        folder.sync_all().map_err(PublishError::Flush)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.published {
            // If it cannot be removed now, the next start removes it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Folders known to be durable. A folder that merely exists may have been made a moment ago by another
/// writer, or by a process that died before flushing it, so each is flushed once before it is relied on.
#[derive(Debug)]
pub(crate) struct Folders {
    root: PathBuf,
    durable: Mutex<HashSet<PathBuf>>,
}

impl Folders {
    /// `root` must be durable already.
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { durable: Mutex::new(HashSet::from([root.clone()])), root }
    }

    /// Flushes every folder below the root, so that whatever can be seen is durable. A process killed between
    /// rename and flush leaves files that can be seen, but may be gone after a power failure; nothing
    /// may be built on them before this.
    pub(crate) fn settle(&self) -> io::Result<()> {
        let mut durable = self.durable.lock();
        let mut waiting = vec![self.root.clone()];
        while let Some(folder) = waiting.pop() {
            let entries = match std::fs::read_dir(&folder) {
                // Not created by this server: `lost+found` belongs to root.
                Err(e) if e.kind() == ErrorKind::PermissionDenied => continue,
                other => other?,
            };
            for entry in entries {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    waiting.push(entry.path());
                }
            }
            fsync_folder(&folder)?;
            durable.insert(folder);
        }
        Ok(())
    }

    /// Durably removes empty folders below `folder` for which `is_left` returns true, innermost first.
    pub(crate) fn remove_empty(&self, folder: &Path, is_left: &dyn Fn(&Path) -> bool) -> io::Result<()> {
        let entries = match std::fs::read_dir(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        let mut removed = false;
        for entry in entries {
            let entry = entry?;
            if !entry.file_type()?.is_dir() {
                continue;
            }
            let path = entry.path();
            self.remove_empty(&path, is_left)?;
            if !is_left(&path) {
                continue;
            }
            // Whoever creates it again flushes it again.
            let mut durable = self.durable.lock();
            match std::fs::remove_dir(&path) {
                Ok(()) => {
                    durable.remove(&path);
                    removed = true;
                }
                Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if removed { fsync_folder(folder) } else { Ok(()) }
    }

    /// Makes `folder`, which lies below the root, exist durably.
    pub(crate) fn ensure(&self, folder: &Path) -> Result<(), PublishError> {
        // Held over the flushes: a second caller must not go on before they are done.
        let mut durable = self.durable.lock();
        if durable.contains(folder) {
            return Ok(());
        }
        let Ok(below) = folder.strip_prefix(&self.root) else {
            return Err(PublishError::Before("reach", io::Error::from(ErrorKind::InvalidInput)));
        };
        let mut path = self.root.clone();
        for part in below {
            let parent = path.clone();
            path.push(part);
            if !durable.contains(&path) {
                create_folder(&path).map_err(|e| PublishError::Before("make the folder of", e))?;
                // Not yet counted as durable: the next caller flushes it if this one cannot.
                let opened = File::open(&parent);
                let parent = opened.map_err(|e| PublishError::Before("open the folder of", e))?;
                parent.sync_all().map_err(PublishError::Flush)?;
                durable.insert(path.clone());
            }
        }
        Ok(())
    }
}

/// Creates a folder unless it exists.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(FOLDER_MODE).create(path) {
        Err(e) if e.kind() == ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Ok(()) => adopt_folder(path),
        Err(e) => Err(e),
    }
}

/// Makes `path` and every missing folder above it, each durable.
pub(crate) fn create_root(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if !path.is_dir() {
        if let Some(parent) = parent {
            create_root(parent)?;
        }
        create_folder(path)?;
    }
    match fsync_folder(parent.unwrap_or(Path::new("."))) {
        // A folder that exists already may lie in one that may not be opened.
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Ok(()),
        other => other,
    }
}

/// Makes the entries of a folder durable.
pub(crate) fn fsync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Renames, failing with `AlreadyExists` when `to` exists.
fn rename_without_replacing(from: &Path, to: &Path) -> io::Result<()> {
    let here = rustix::fs::CWD;
    match rustix::fs::renameat_with(here, from, here, to, RenameFlags::NOREPLACE) {
        // Not every file system can (NFS, some FUSE ones).
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => link_then_unlink(from, to),
        other => other.map_err(io::Error::from),
    }
}

/// Fallback for file systems with hard links: between the two steps the file has both names, and a crash there leaves
/// a temporary name that start-up removes.
fn link_then_unlink(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)?;
    std::fs::remove_file(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_way_of_naming_replaces_a_file() {
        let folder = tempfile::tempdir().unwrap();
        for (name, give_name) in [
            ("rename", rename_without_replacing as fn(&Path, &Path) -> io::Result<()>),
            ("link", link_then_unlink),
        ] {
            let (from, to) = (folder.path().join("from"), folder.path().join(name));
            std::fs::write(&from, b"new").unwrap();
            give_name(&from, &to).unwrap();
            assert!(!from.exists());
            std::fs::write(&from, b"newer").unwrap();
            assert_eq!(give_name(&from, &to).unwrap_err().kind(), ErrorKind::AlreadyExists, "{name}");
            assert_eq!(std::fs::read(&to).unwrap(), b"new");
            assert!(from.exists(), "the caller still owns it");
        }
    }

    #[test]
    fn what_an_earlier_process_left_is_flushed_before_it_counts() {
        let root = tempfile::tempdir().unwrap();
        let deep = root.path().join("a/b");
        std::fs::create_dir_all(&deep).unwrap();
        std::fs::write(deep.join("named but not flushed"), b"").unwrap();
        let folders = Folders::new(root.path().to_owned());
        folders.settle().unwrap();
        let durable = folders.durable.lock();
        assert_eq!(*durable, HashSet::from([root.path().to_owned(), root.path().join("a"), deep]));
    }

    #[test]
    fn folders_outside_the_root_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let folders = Folders::new(folder.path().join("root"));
        assert!(matches!(folders.ensure(Path::new("/elsewhere")), Err(PublishError::Before(..))));
    }
}
