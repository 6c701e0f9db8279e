//! Blobs as files below one folder: blob `a/b` is the file `ROOT/a/b`. Unfinished blobs live in `ROOT/.tmp`,
//! a name no blob can have.
//!
//! A crash leaves whole files under their names and files in `.tmp`. One process at a time may use a root;
//! the engine's lock file sees to that.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::durable::{self, Folders, PublishError, TempFile};
use super::{Blob, BlobEntry, BlobName, BlobWriter, Space, Volume, VolumeError};

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
    /// Opens the volume in the folder `root`, which is made (mode 0700) when it is missing. Makes durable what an
    /// earlier process named but did not live to flush; what it left unfinished stays until
    /// [`Volume::discard_unfinished`].
    ///
    /// # Errors
    /// [`VolumeError::Io`] when the folder cannot be made or reached.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, VolumeError> {
        let root = root.into();
        let io = |source| io_error("open", &root, source);
        durable::create_root(&root).map_err(io)?;
        durable::create_folder(&root.join(TEMP_FOLDER)).map_err(io)?;
        let folders = Arc::new(Folders::new(root.clone()));
        folders.settle().map_err(io)?;
        Ok(Self { root, folders, next_temp: AtomicU64::new(0) })
    }

    fn path_of(&self, name: &BlobName) -> PathBuf {
        self.root.join(name.as_str())
    }

    /// Adds the blobs in folder `path`, whose names begin with `prefix`, to `found`.
    fn walk(&self, path: &Path, prefix: &str, found: &mut Vec<BlobEntry>) -> io::Result<()> {
        let entries = match std::fs::read_dir(path) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(()),
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            // What could not be a blob's name is not ours (`lost+found`, an editor's backup).
            let Some(name) =
                entry.file_name().to_str().and_then(|segment| BlobName::new(format!("{prefix}/{segment}")))
            else {
                continue;
            };
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.walk(&entry.path(), name.as_str(), found)?;
            } else if kind.is_file() {
                match entry.metadata() {
                    Ok(metadata) => found.push(BlobEntry { name, len: metadata.len() }),
                    // Removed while we looked.
                    Err(e) if e.kind() == ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }
}

impl Volume for LocalVolume {
    fn create(&self, name: &BlobName) -> Result<Box<dyn BlobWriter>, VolumeError> {
        let target = self.path_of(name);
        if target.symlink_metadata().is_ok() {
            return Err(VolumeError::Exists { name: name.clone() });
        }
        let number = self.next_temp.fetch_add(1, Ordering::Relaxed);
        let temp_path = self.root.join(TEMP_FOLDER).join(format!("{}-{number}", std::process::id()));
        let temp = TempFile::create(temp_path).map_err(|e| VolumeError::writing(name, "create", e))?;
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
            // A folder opens, but is no blob.
            if metadata.is_file() { Ok((file, metadata.len())) } else { Err(ErrorKind::NotFound.into()) }
        });
        match opened {
            Ok((file, len)) => Ok(Arc::new(LocalBlob { name: name.clone(), file, len })),
            Err(e) => Err(missing_or_io(name, "open", e)),
        }
    }

    fn list(&self, prefix: &BlobName) -> Result<Vec<BlobEntry>, VolumeError> {
        let mut found = Vec::new();
        let path = self.path_of(prefix);
        self.walk(&path, prefix.as_str(), &mut found).map_err(|e| io_error("list", &path, e))?;
        found.sort_unstable();
        Ok(found)
    }

    fn remove(&self, name: &BlobName) -> Result<(), VolumeError> {
        let path = self.path_of(name);
        std::fs::remove_file(&path).map_err(|e| missing_or_io(name, "remove", e))?;
        durable::fsync_folder(path.parent().unwrap_or(&self.root))
            .map_err(|source| VolumeError::NotDurable { name: format!("the removal of {name}"), source })
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
        discard().map_err(|e| io_error("empty", &folder, e))
    }

    fn space(&self) -> Result<Option<Space>, VolumeError> {
        let stat = rustix::fs::statvfs(&self.root).map_err(|e| io_error("stat", &self.root, e.into()))?;
        Ok(Some(Space {
            total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            // What an unprivileged process may still use.
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        }))
    }
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> VolumeError {
    VolumeError::Io { action, name: path.display().to_string(), source }
}

fn missing_or_io(name: &BlobName, action: &'static str, source: io::Error) -> VolumeError {
    // `a/b` below a blob `a` is as missing as it is below nothing.
    if matches!(source.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory) {
        VolumeError::NotFound { name: name.clone() }
    } else {
        VolumeError::Io { action, name: name.to_string(), source }
    }
}

#[derive(Debug)]
struct LocalWriter {
    name: BlobName,
    target: PathBuf,
    temp: TempFile,
    folders: Arc<Folders>,
    buffer: Vec<u8>,
    /// Without the buffer.
    written_bytes: u64,
    /// An append failed, so the file may have a hole: it must never be sealed.
    failed: bool,
}

impl LocalWriter {
    fn write(&mut self, bytes: &[u8]) -> Result<(), VolumeError> {
        if self.failed {
            let source = io::Error::other("an earlier append failed");
            return Err(VolumeError::Io { action: "append to", name: self.name.to_string(), source });
        }
        self.temp.write_all(bytes).map_err(|e| {
            self.failed = true;
            VolumeError::writing(&self.name, "append to", e)
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
            PublishError::Before(action, source) => VolumeError::writing(&name, action, source),
            PublishError::Flush(source) => VolumeError::NotDurable { name: name.to_string(), source },
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

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), VolumeError> {
        let wanted = buffer.len() as u64;
        let out_of_range = |len| VolumeError::OutOfRange { name: self.name.clone(), len, offset, wanted };
        if offset.checked_add(wanted).is_none_or(|end| end > self.len) {
            return Err(out_of_range(self.len));
        }
        self.file.read_exact_at(buffer, offset).map_err(|source| {
            if source.kind() == ErrorKind::UnexpectedEof {
                // Somebody cut the file while it was open.
                out_of_range(self.file.metadata().map_or(0, |metadata| metadata.len()))
            } else {
                VolumeError::Io { action: "read", name: self.name.to_string(), source }
            }
        })
    }
}

#[cfg(test)]
mod tests;
