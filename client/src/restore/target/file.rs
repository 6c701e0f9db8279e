//! A regular file.
//!
//! It is written as `PATH.holdfast-partial` and renamed when it is complete and on disk: a restore that
//! fails or is killed never looks complete. What a killed one leaves behind is removed by the next attempt.
//!
//! While it is written it is locked (`flock`), so that a second restore to the same path is refused. It is renamed or
//! removed only while its name still leads to it. One that cannot be opened, so that its lock is not known, stays.
//!
//! Until it is complete only its owner may read it; then it gets the mode that was asked for.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::lock::{in_use, leads_to, lock};
use super::output::Output;
use super::{FileOptions, MODE_DEFAULT, Target, assert_within, close, failed, sync_parent};
use crate::error::ClientError;

/// Suffix of files that are not complete.
pub const PARTIAL_SUFFIX: &str = ".holdfast-partial";

/// A regular file; until it is complete it has another name.
#[derive(Debug)]
pub struct FileTarget {
    output: Output,
    path: PathBuf,
    partial: PathBuf,
    size_bytes: u64,
    options: FileOptions,
    done: AtomicBool,
}

impl FileTarget {
    /// Makes a file of `size_bytes` zeros, under its temporary name.
    ///
    /// # Errors
    /// [`ClientError::File`].
    pub fn create(path: &Path, size_bytes: u64, options: FileOptions) -> Result<Self, ClientError> {
        let mut name = path.as_os_str().to_owned();
        name.push(PARTIAL_SUFFIX);
        let partial = PathBuf::from(name);
        let file = create_partial(&partial)?;
        file.set_len(size_bytes).map_err(failed("creating", &partial))?;
        let output = Output::new(file, options.sync);
        Ok(Self { output, path: path.to_owned(), partial, size_bytes, options, done: false.into() })
    }

    /// The name that it has until it is complete.
    pub(super) fn partial(&self) -> &Path {
        &self.partial
    }

    /// The file itself, which may be read as well.
    pub(super) fn file(&self) -> &File {
        &self.output.file
    }

    /// Renames; without `force` never over something that exists.
    fn rename(&self) -> Result<(), ClientError> {
        let wrong = failed("renaming into", &self.path);
        if !leads_to(&self.partial, &self.output.file).map_err(&wrong)? {
            let message = format!("another process replaced {}; restore again", self.partial.display());
            return Err(wrong(io::Error::other(message)));
        }
        if !self.options.force {
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

/// Attempts to make a new file while others remove it: each of these is a restore that began or ended meanwhile.
const ATTEMPTS: u32 = 16;

/// Makes a new, empty and locked file of this name, after what a killed restore left there is removed.
fn create_partial(partial: &Path) -> Result<File, ClientError> {
    let wrong = failed("creating", partial);
    for _ in 0..ATTEMPTS {
        remove_leftover(partial)?;
        // A new file, never one that another user has put there: it would be theirs to read, or a link.
        let mut options = OpenOptions::new();
        // Who makes an image of it reads it, too.
        options.read(true).write(true).create_new(true).mode(MODE_DEFAULT);
        let file = match options.open(partial) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created.map_err(&wrong)?,
        };
        lock(&file, partial)?;
        // Another restore may have taken it for a leftover before it was locked.
        if leads_to(partial, &file).map_err(&wrong)? {
            return Ok(file);
        }
    }
    Err(in_use(partial))
}

/// Removes what a killed restore left, or another user put there; refuses when a restore is writing it.
fn remove_leftover(partial: &Path) -> Result<(), ClientError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |access| rustix::fs::open(partial, flags | access, Mode::empty()).map(File::from);
    // One that was complete, but for its name, has the mode that was asked for.
    let opened = open(OFlags::WRONLY)
        .or_else(|error| if error == Errno::ACCESS { open(OFlags::RDONLY) } else { Err(error) });
    remove_unless_written(partial, opened)
}

/// As `remove_leftover`, with the outcome of opening it.
fn remove_unless_written(partial: &Path, opened: rustix::io::Result<File>) -> Result<(), ClientError> {
    let wrong = failed("opening", partial);
    let file = match opened {
        Ok(file) => Some(file),
        // A link, a pipe or a socket: no restore makes one.
        Err(Errno::LOOP | Errno::NXIO) => None,
        Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ACCESS) => {
            let message = "permission denied; another user's restore may be writing it; wait until it has ended, or \
                           remove the file if there is none";
            return Err(wrong(io::Error::new(io::ErrorKind::PermissionDenied, message)));
        }
        Err(error) => return Err(wrong(error.into())),
    };
    // Only while locked: between two restores one of which is about to lock it, the name may have changed hands.
    if let Some(file) = &file {
        lock(file, partial)?;
        if !leads_to(partial, file).map_err(failed("examining", partial))? {
            return Ok(());
        }
    }
    match std::fs::remove_file(partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("removing", partial)(error)),
        _ => Ok(()),
    }
}

impl Target for FileTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        assert_within(offset, bytes.len() as u64, self.size_bytes);
        self.output.write_all_at(bytes, offset).map_err(failed("writing", &self.partial))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        assert_within(offset, len, self.size_bytes);
        // A new file is one hole.
        Ok(())
    }

    fn reached(&self, offset: u64) {
        if self.options.sync {
            self.output.reached(offset);
        }
    }

    fn left_unfinished(&self) -> Option<String> {
        Some("nothing of it was kept".to_owned())
    }

    fn is_untouched(&self) -> bool {
        !self.done.load(Ordering::Relaxed)
    }

    fn finish(&self) -> Result<(), ClientError> {
        let permissions = Permissions::from_mode(self.options.mode);
        self.output
            .file
            .set_permissions(permissions)
            .map_err(failed("setting the mode of", &self.partial))?;
        if self.options.sync {
            self.output.file.sync_all().map_err(failed("flushing", &self.partial))?;
        } else {
            close(&self.output.file).map_err(failed("closing", &self.partial))?;
        }
        self.rename()?;
        self.done.store(true, Ordering::Relaxed);
        if self.options.sync {
            sync_parent(&self.path)?;
        }
        Ok(())
    }
}

impl Drop for FileTarget {
    fn drop(&mut self) {
        if !self.done.load(Ordering::Relaxed) && leads_to(&self.partial, &self.output.file).unwrap_or(false) {
            // The failure itself is reported elsewhere; a left-over file is removed by the next attempt.
            drop(std::fs::remove_file(&self.partial));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::super::open;
    use super::*;
    use crate::source::Format;

    const HASTY: FileOptions =
        FileOptions { force: false, sync: false, mode: MODE_DEFAULT, format: Format::Raw, in_place: false };
    const FORCED: FileOptions = FileOptions { force: true, ..HASTY };

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    #[test]
    fn only_the_owner_may_read_it_unless_another_mode_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let partial = folder.path().join("disk.raw.holdfast-partial");
        // A file that another user or a killed restore left is neither kept nor followed.
        let theirs = folder.path().join("theirs");
        std::fs::write(&theirs, "precious").unwrap();
        std::os::unix::fs::symlink(&theirs, &partial).unwrap();
        let target = open(&path, 10, HASTY).unwrap();
        assert_eq!(mode(&partial), 0o600);
        target.finish().unwrap();
        assert_eq!((mode(&path), std::fs::read(&theirs).unwrap()), (0o600, b"precious".to_vec()));
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        open(&path, 10, FORCED).unwrap().finish().unwrap();
        assert_eq!(mode(&path), 0o600, "that of the replaced file does not count");
        std::fs::write(&partial, "left over").unwrap();
        std::fs::set_permissions(&partial, Permissions::from_mode(0o666)).unwrap();
        let shared = open(&path, 10, FileOptions { mode: 0o646, ..FORCED }).unwrap();
        assert_eq!(mode(&partial), 0o600, "not before it is complete");
        shared.finish().unwrap();
        assert_eq!(mode(&path), 0o646, "whatever the umask");
    }

    #[test]
    fn a_file_appears_only_when_complete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let partial = folder.path().join("disk.raw.holdfast-partial");
        let target = open(&path, 100 << 20, FileOptions::default()).unwrap();
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
        let target = open(&folder.path().join("disk.raw"), 10, FileOptions::default()).unwrap();
        target.write_at(0, b"half").unwrap();
        drop(target);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_second_restore_to_the_same_path_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let first = open(&path, 10, HASTY).unwrap();
        first.write_at(0, b"first").unwrap();
        let refused = open(&path, 20, HASTY).err().unwrap().to_string();
        assert!(refused.contains("another restore is writing it"), "{refused}");
        first.write_at(5, b"still").unwrap();
        first.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"firststill");
        // The lock is the file's, and ends with the process.
        open(&path, 10, FORCED).unwrap().finish().unwrap();
    }

    #[test]
    fn a_leftover_that_cannot_be_opened_stays_unless_no_restore_can_be_writing_it() {
        let folder = tempfile::tempdir().unwrap();
        let partial = folder.path().join("disk.raw.holdfast-partial");
        for (code, word) in [
            (Errno::ACCESS, "another user's restore may be writing it"),
            (Errno::PERM, "Operation not permitted"),
            (Errno::MFILE, "Too many open files"),
            (Errno::IO, "Input/output error"),
        ] {
            std::fs::write(&partial, "theirs").unwrap();
            let error = remove_unless_written(&partial, Err(code)).unwrap_err().to_string();
            assert!(error.contains(word) && error.contains("disk.raw.holdfast-partial"), "{error}");
            assert_eq!(std::fs::read(&partial).unwrap(), b"theirs");
        }
        for code in [Errno::LOOP, Errno::NXIO] {
            std::fs::write(&partial, "left over").unwrap();
            remove_unless_written(&partial, Err(code)).unwrap();
            assert!(!partial.exists(), "{code:?}");
        }
        remove_unless_written(&partial, Err(Errno::NOENT)).unwrap();
    }

    #[test]
    fn a_file_that_took_the_name_is_neither_renamed_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let partial = folder.path().join("disk.raw.holdfast-partial");
        for finished in [true, false] {
            let target = open(&path, 10, HASTY).unwrap();
            std::fs::remove_file(&partial).unwrap();
            std::fs::write(&partial, "another's").unwrap();
            if finished {
                let error = target.finish().unwrap_err().to_string();
                assert!(error.contains("another process replaced"), "{error}");
            }
            drop(target);
            assert_eq!(std::fs::read(&partial).unwrap(), b"another's");
            assert!(!path.exists());
        }
    }

    #[test]
    fn restores_that_race_for_a_path_leave_one_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let done = std::thread::scope(|scope| {
            let restore = |byte: u8| {
                let path = &path;
                move || {
                    let bytes = [byte; 64];
                    (0..50).filter(|_| {
                        let Ok(target) = open(path, 64, FORCED) else { return false };
                        target.write_at(0, &bytes[..32]).and_then(|()| target.write_at(32, &bytes[32..])).is_ok()
                            && target.finish().is_ok()
                            // Whatever was renamed last is whole.
                            && std::fs::read(path).is_ok_and(|read| read.len() == 64 && read.iter().all(|b| *b == read[0]))
                    })
                    .count()
                }
            };
            let restores = [1, 2, 3].map(|byte| scope.spawn(restore(byte)));
            restores.map(|restore| restore.join().unwrap())
        });
        assert!(done.iter().sum::<usize>() > 0, "{done:?}");
        let read = std::fs::read(&path).unwrap();
        assert!(read.len() == 64 && read.iter().all(|byte| *byte == read[0]), "{read:?}");
    }

    #[test]
    fn nothing_is_overwritten_without_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        let racing = open(&path, 10, HASTY).unwrap();
        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(open(&path, 10, HASTY), Err(ClientError::Exists(_))));
        assert!(matches!(racing.finish(), Err(ClientError::Exists(_))), "it appeared meanwhile");
        drop(racing);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        let forced = open(&path, 10, FORCED).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"precious", "until the new one is complete");
        forced.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [0; 10]);
        assert!(matches!(open(folder.path(), 10, FORCED), Err(ClientError::File { .. })));
    }

    #[test]
    #[should_panic(expected = "a write of 4 bytes at 7 of a disk of 10")]
    fn a_write_past_the_end_is_a_defect() {
        let folder = tempfile::tempdir().unwrap();
        let target = open(&folder.path().join("disk.raw"), 10, HASTY).unwrap();
        drop(target.write_at(7, b"past"));
    }
}
