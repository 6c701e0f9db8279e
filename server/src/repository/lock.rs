//! One process per data folder.

use std::collections::hash_map::RandomState;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::LazyLock;

use holdfast_engine::owner::adopt;
use holdfast_proto::ErrorCode;
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::error::{ServiceError, io_code};

/// Name of the lock file within the data folder.
const FILE_NAME: &str = "repository.lock";

/// This process in the lock file: its number, and a word of chance, for in containers every server has the number 1.
static THIS_PROCESS: LazyLock<String> = LazyLock::new(|| {
    let chance = RandomState::new().build_hasher().finish();
    format!("{} {chance:016x}\n", std::process::id())
});

/// Holds the lock; the operating system frees it when the process ends, however it ends.
#[derive(Debug)]
pub(crate) struct FolderLock(#[expect(dead_code, reason = "held, never read")] File);

impl FolderLock {
    /// Takes the lock and writes into the file which process has it.
    ///
    /// # Errors
    /// `Busy`, naming the process that has it; when the file cannot be opened.
    pub(crate) fn take(folder: &Path) -> Result<Self, ServiceError> {
        let path = folder.join(FILE_NAME);
        let failed =
            |error| ServiceError::new(io_code(&error), format!("cannot open {}: {error}", path.display()));
        let mut options = OpenOptions::new();
        // Root may be the one who does this, in a folder of another user: it opens no file that a link names.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(failed)?;
        adopt(&file, &path).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // Only for the message.
            let _ = Read::by_ref(&mut file).take(20).read_to_string(&mut pid);
            let pid = pid.split_whitespace().next().unwrap_or("unknown");
            return Err(ServiceError::new(
                ErrorCode::Busy,
                format!(
                    "{} is in use by process {pid}; stop that server first, or use another folder",
                    folder.display()
                ),
            ));
        }
        // In place, and cut afterwards: on a full disk a file that was emptied first may get no room any more.
        let told = file.rewind().and_then(|()| file.write_all(THIS_PROCESS.as_bytes()));
        if let Err(error) = told.and_then(|()| file.set_len(THIS_PROCESS.len() as u64)) {
            // Only for others' messages, and for this process to know that it has it.
            tracing::warn!(file = %path.display(), %error, "cannot write this process's number into the lock file");
        }
        Ok(Self(file))
    }

    /// Takes the lock, unless this process has it already.
    ///
    /// # Errors
    /// As [`FolderLock::take`].
    pub(crate) fn hold(folder: &Path) -> Result<Option<Self>, ServiceError> {
        let taken = Self::take(folder);
        let holder = std::fs::read_to_string(folder.join(FILE_NAME)).unwrap_or_default();
        match taken {
            Err(error) if error.code == ErrorCode::Busy && holder == *THIS_PROCESS => Ok(None),
            taken => taken.map(Some),
        }
    }

    /// Removes the file of a folder that is to go, if nothing else is in it.
    pub(crate) fn remove(self, folder: &Path) -> std::io::Result<()> {
        if std::fs::read_dir(folder)?.count() > 1 {
            return Ok(());
        }
        std::fs::remove_file(folder.join(FILE_NAME))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_lock_is_this_process_s_only_if_the_file_says_more_than_its_number() {
        let folder = tempfile::tempdir().unwrap();
        let (path, pid) = (folder.path().join(FILE_NAME), std::process::id());
        let held = FolderLock::take(folder.path()).unwrap();
        assert!(FolderLock::hold(folder.path()).unwrap().is_none(), "this process has it");
        // As a server in another container writes it, of this version and of the one before.
        for line in [format!("{pid}\n"), format!("{pid} 0123456789abcdef\n"), String::new()] {
            fs::write(&path, &line).unwrap();
            let error = FolderLock::hold(folder.path()).unwrap_err();
            assert_eq!(error.code, ErrorCode::Busy, "{line}");
            let named = if line.is_empty() { "unknown".to_owned() } else { pid.to_string() };
            assert!(error.message.contains(&format!(" by process {named}; stop")), "{}", error.message);
        }
        drop(held);
        assert!(FolderLock::hold(folder.path()).unwrap().is_some());
    }

    /// A user whose folder it is could have root write to any file.
    #[test]
    fn a_lock_is_not_taken_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("another");
        std::os::unix::fs::symlink(&other, folder.path().join(FILE_NAME)).unwrap();
        let error = FolderLock::take(folder.path()).unwrap_err();
        assert!(error.message.contains(FILE_NAME), "{}", error.message);
        assert!(!other.exists());
        fs::write(&other, b"theirs").unwrap();
        FolderLock::take(folder.path()).unwrap_err();
        assert_eq!(fs::read(&other).unwrap(), b"theirs");
    }
}
