//! A regular file.
//!
//! It is written as `PATH.holdfast-partial` and renamed when it is complete and on disk: a restore that
//! fails or is killed never looks complete. What a killed one leaves behind is overwritten by the next
//! attempt.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::write_behind::WriteBehind;
use super::{Target, assert_within, failed};
use crate::error::ClientError;

/// Suffix of files that are not complete.
pub const PARTIAL_SUFFIX: &str = ".holdfast-partial";

/// A regular file; until it is complete it has another name.
#[derive(Debug)]
pub struct FileTarget {
    file: File,
    behind: WriteBehind,
    path: PathBuf,
    partial: PathBuf,
    size_bytes: u64,
    force: bool,
    sync: bool,
    done: AtomicBool,
}

impl FileTarget {
    /// Makes a file of `size_bytes` zeros, under its temporary name.
    ///
    /// # Errors
    /// [`ClientError::File`].
    pub fn create(path: &Path, size_bytes: u64, force: bool, sync: bool) -> Result<Self, ClientError> {
        let mut name = path.as_os_str().to_owned();
        name.push(PARTIAL_SUFFIX);
        let partial = PathBuf::from(name);
        let file = (|| {
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&partial)?;
            file.set_len(size_bytes)?;
            Ok(file)
        })()
        .map_err(failed("creating", &partial))?;
        let behind = WriteBehind::default();
        Ok(Self { file, behind, path: path.to_owned(), partial, size_bytes, force, sync, done: false.into() })
    }

    /// Renames; without `force` never over something that exists.
    fn rename(&self) -> Result<(), ClientError> {
        let wrong = failed("renaming into", &self.path);
        if !self.force {
            match renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => return Err(ClientError::Exists(self.path.clone())),
                // The file system does not support the flag.
                Err(Errno::INVAL | Errno::NOSYS) if !self.path.exists() => {}
                Err(error) => return Err(wrong(error.into())),
            }
        }
        std::fs::rename(&self.partial, &self.path).map_err(wrong)
    }
}

impl Target for FileTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        assert_within(offset, bytes.len() as u64, self.size_bytes);
        self.file.write_all_at(bytes, offset).map_err(failed("writing", &self.partial))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        assert_within(offset, len, self.size_bytes);
        // A new file is one hole.
        Ok(())
    }

    fn reached(&self, offset: u64) {
        if self.sync {
            self.behind.reached(&self.file, offset);
        }
    }

    fn finish(&self) -> Result<(), ClientError> {
        if self.sync {
            self.file.sync_all().map_err(failed("flushing", &self.partial))?;
        }
        self.rename()?;
        self.done.store(true, Ordering::Relaxed);
        if self.sync {
            let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("flushing", folder))?;
        }
        Ok(())
    }
}

impl Drop for FileTarget {
    fn drop(&mut self) {
        if !self.done.load(Ordering::Relaxed) {
            // The failure itself is reported elsewhere; a left-over file is overwritten by the next attempt.
            drop(std::fs::remove_file(&self.partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::super::open;
    use super::*;

    #[test]
    fn a_file_appears_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let partial = folder.path().join("disk.raw.holdfast-partial");
        let target = open(&path, 100 << 20, false, true).unwrap();
        target.write_at(50 << 20, b"hello").unwrap();
        target.zero(0, 50 << 20).unwrap();
        assert!(partial.exists() && !path.exists());
        target.finish().unwrap();
        drop(target);
        assert!(!partial.exists());
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), &bytes[50 << 20..][..5]), (100 << 20, &b"hello"[..]));
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 < 1 << 20, "it is sparse");
    }

    #[test]
    fn an_unfinished_file_goes_away() {
        let folder = tempfile::tempdir().unwrap();
        let target = open(&folder.path().join("disk.raw"), 10, false, true).unwrap();
        target.write_at(0, b"half").unwrap();
        drop(target);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn nothing_is_overwritten_without_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let racing = open(&path, 10, false, false).unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(open(&path, 10, false, false), Err(ClientError::Exists(_))));
        assert!(matches!(racing.finish(), Err(ClientError::Exists(_))), "it appeared meanwhile");
        drop(racing);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let forced = open(&path, 10, true, false).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"precious", "until the new one is complete");
        forced.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 10]);
        assert!(matches!(open(folder.path(), 10, true, false), Err(ClientError::File { .. })));
    }

    #[test]
    #[should_panic(expected = "a write of 4 bytes at 7 of a disk of 10")]
    fn a_write_past_the_end_is_a_defect() {
        let folder = tempfile::tempdir().unwrap();
        let target = open(&folder.path().join("disk.raw"), 10, false, false).unwrap();
        drop(target.write_at(7, b"past"));
    }
}
