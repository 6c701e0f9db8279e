//! Blobs as files below one folder: blob `a/b` is the file `ROOT/a/b`. Unfinished blobs live in `ROOT/.tmp`,
//! a name no blob can have.
//!
//! A crash leaves whole files under their names and files in `.tmp`. One process at a time may use a root;
//! the engine's lock file sees to that.

mod walk;

use std::fs::File;
use std::io::{self, ErrorKind};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Advice, fadvise};

use crate::durable::{self, Folders, PublishError, TempFile};
use crate::volume::check_range;
use crate::{Blob, BlobName, BlobWriter, ListPage, Owner, Space, Volume, VolumeError};

const TEMP_FOLDER: &str = ".tmp";

/// Appends gather until there are this many bytes: few system calls, and 32 of them fill a container.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// A volume in a local folder.
#[derive(Debug)]
pub struct LocalVolume {
    root: PathBuf,
    folders: Arc<Folders>,
    next_temp: AtomicU64,
}

impl LocalVolume {
    /// Opens the volume in the folder `root`, which is created (mode 0700) if it is missing. Makes blobs durable that
    /// an earlier process named but did not flush; its unfinished blobs stay until [`Volume::discard_unfinished`].
    ///
    /// # Errors
    /// [`VolumeError::Io`], [`VolumeError::NotReadableNow`] or [`VolumeError::Unavailable`] when the folder cannot be
    /// created, reached or made durable.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, VolumeError> {
        let root = root.into();
        let io = |source| VolumeError::reading("open", &root.display(), source);
        durable::create_root(&root).map_err(io)?;
        durable::create_folder(&root.join(TEMP_FOLDER)).map_err(io)?;
        let folders = Arc::new(Folders::new(root.clone()));
        folders.settle().map_err(io)?;
        Ok(Self { root, folders, next_temp: AtomicU64::new(0) })
    }

    fn path_of(&self, name: &BlobName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// Creates a file of a unique name: an earlier process may have left files, and may have had the same process id
    /// (in a container it is always 1).
    fn temp_file(&self) -> io::Result<TempFile> {
        loop {
            let number = self.next_temp.fetch_add(1, Ordering::Relaxed);
            let path = self.root.join(TEMP_FOLDER).join(format!("{}-{number}", std::process::id()));
            match TempFile::create(path) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
    }
}

impl Volume for LocalVolume {
    fn create_for(&self, name: &BlobName, _: Owner) -> Result<Box<dyn BlobWriter>, VolumeError> {
        let target = self.path_of(name);
        if target.symlink_metadata().is_ok() {
            return Err(VolumeError::Exists { name: name.clone() });
        }
        let temp = self.temp_file().map_err(|e| VolumeError::writing("create", name, e))?;
        Ok(Box::new(LocalWriter {
            name: name.clone(),
            target,
            temp,
            folders: Arc::clone(&self.folders),
            buffer: Vec::new(),
            written_bytes: 0,
            failed: false,
        }))
    }

    fn open(&self, name: &BlobName) -> Result<Arc<dyn Blob>, VolumeError> {
        let opened = File::open(self.path_of(name)).and_then(|file| {
            let metadata = file.metadata()?;
            // A folder opens, but is not a blob.
            if metadata.is_file() { Ok((file, metadata.len())) } else { Err(ErrorKind::NotFound.into()) }
        });
        match opened {
            Ok((file, len)) => Ok(Arc::new(LocalBlob { name: name.clone(), file, len })),
            Err(e) => Err(missing_or(name, e, |e| VolumeError::reading("open", name, e))),
        }
    }

    fn list(
        &self,
        prefix: &BlobName,
        after: Option<&BlobName>,
        limit: NonZeroUsize,
    ) -> Result<ListPage, VolumeError> {
        // Requests one more, to learn whether there are further entries.
        let found = walk::first_blobs(&self.root, prefix, after, limit.get().saturating_add(1));
        found
            .map(|found| ListPage::cut(found, limit))
            .map_err(|e| VolumeError::reading("list", &self.path_of(prefix).display(), e))
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        let path = self.path_of(name);
        // Opened before the removal: with no file descriptor left, this fails while nothing is in doubt.
        let folder = File::open(path.parent().unwrap_or(&self.root))
            .map_err(|e| missing_or(name, e, |e| VolumeError::writing("open the folder of", name, e)))?;
        std::fs::remove_file(&path)
            .map_err(|e| missing_or(name, e, |e| VolumeError::writing("remove", name, e)))?;
        folder.sync_all().map_err(|source| VolumeError::NotDurable {
            name: format!("the removal of {name}"),
            source: source.into(),
        })
    }

    fn discard_unfinished(&self) -> Result<u64, VolumeError> {
        let folder = self.root.join(TEMP_FOLDER);
        let discard = || {
            let mut count = 0;
            for entry in std::fs::read_dir(&folder)? {
                std::fs::remove_file(entry?.path())?;
                count += 1;
            }
            Ok(count)
        };
        discard().map_err(|e| VolumeError::writing("empty", &folder.display(), e))
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        let stat = rustix::fs::statvfs(&self.root)
            .map_err(|e| VolumeError::reading("stat", &self.root.display(), e.into()))?;
        Ok(Some(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            // Space that an unprivileged process may still use.
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        }))
    }

    fn remove_empty_folders(
        &self,
        below: &BlobName,
        is_left: &dyn Fn(&BlobName) -> bool,
    ) -> Result<(), VolumeError> {
        let failed = |error| VolumeError::writing("remove empty folders of", below, error);
        self.folders
            .remove_empty(&self.path_of(below), &|path| {
                let name = path.strip_prefix(&self.root).ok().and_then(Path::to_str);
                name.and_then(BlobName::new).is_some_and(|name| is_left(&name))
            })
            .map_err(failed)
    }

    fn handles_outlive_removal(&self) -> bool {
        true
    }
}

/// Returns [`VolumeError::NotFound`] if `source` says so, otherwise the result of `other`.
fn missing_or(
    name: &BlobName,
    source: io::Error,
    other: impl FnOnce(io::Error) -> VolumeError,
) -> VolumeError {
    // `a/b` below a blob `a` is as missing as it is below nothing.
    if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory) {
        VolumeError::NotFound { name: name.clone() }
    } else {
        other(source)
    }
}

#[derive(Debug)]
struct LocalWriter {
    name: BlobName,
    target: PathBuf,
    temp: TempFile,
    folders: Arc<Folders>,
    buffer: Vec<u8>,
    /// Bytes written, without the buffer.
    written_bytes: u64,
    /// An append failed, so the file may have a hole: it must never be sealed.
    failed: bool,
}

impl LocalWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        if self.failed {
            return Err(VolumeError::WriteFailed {
                action: "append to",
                name: self.name.to_string(),
                source: "an earlier append failed".into(),
            });
        }
        self.temp.write_all(bytes).map_err(|e| {
            self.failed = true;
            VolumeError::writing("append to", &self.name, e)
        })?;
        self.written_bytes += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), VolumeError> {
        let buffer = std::mem::take(&mut self.buffer);
        let result = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        result
    }
}

impl BlobWriter for LocalWriter {
    fn append(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        if self.buffer.len() + bytes.len() > WRITE_BUFFER_BYTES {
            self.flush()?;
        }
        if bytes.len() >= WRITE_BUFFER_BYTES {
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.written_bytes + self.buffer.len() as u64
    }

    fn seal(mut self: Box<Self>) -> Result<(), VolumeError> {
        self.flush()?;
        let Self { name, target, temp, folders, .. } = *self;
        temp.publish(&target, &folders).map_err(|error| match error {
            PublishError::Exists => VolumeError::Exists { name },
            PublishError::Before(action, source) => VolumeError::writing(action, &name, source),
            PublishError::Flush(source) => {
                VolumeError::NotDurable { name: name.to_string(), source: source.into() }
            }
        })
    }
}

#[derive(Debug)]
struct LocalBlob {
    name: BlobName,
    file: File,
    len: u64,
}

impl Blob for LocalBlob {
    fn len(&self) -> u64 {
        self.len
    }

    fn drop_cached(&self) {
        // A sealed blob is on the disk, so all its pages can be dropped but those in use at this moment. A
        // failure is ignored.
        let _ = fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let wanted = buffer.len() as u64;
        check_range(&self.name, self.len, offset, wanted)?;
        self.file.read_exact_at(buffer, offset).map_err(|source| {
            if source.kind() == ErrorKind::UnexpectedEof {
                // The file was truncated while it was open.
                let len = self.file.metadata().map_or(0, |metadata| metadata.len());
                VolumeError::OutOfRange { name: self.name.clone(), len, offset, wanted }
            } else {
                VolumeError::reading("read", &self.name, source)
            }
        })
    }
}

#[cfg(test)]
mod tests;
