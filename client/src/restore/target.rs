//! Where restored bytes go.
//!
//! A file is written as `PATH.holdfast-partial` and renamed when it is complete and on disk: a restore that
//! fails or is killed never looks complete. What is left over after a kill is overwritten by the next
//! attempt.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _};
use std::path::{Path, PathBuf};

use holdfast_proto::limits::{EXTENT_BYTES, WINDOW_EXTENTS};
use parking_lot::Mutex;
use rustix::fs::{
    Advice, CWD, FallocateFlags, RenameFlags, SeekFrom, fadvise, fallocate, renameat_with, seek,
};
use rustix::io::Errno;

use crate::error::ClientError;

/// Takes a disk's bytes. Calls may come from several threads at once, for places that do not overlap.
pub trait Target: Send + Sync {
    /// Bytes that are not all zero, or not known to be.
    ///
    /// # Errors
    /// [`ClientError::File`].
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError>;

    /// A run of zeros.
    ///
    /// # Errors
    /// [`ClientError::File`].
    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError>;

    /// Whether [`Target::window_done`] must be told when everything of a window is written, in order.
    fn needs_order(&self) -> bool {
        false
    }

    /// All bytes from `start` to `end` were given.
    ///
    /// # Errors
    /// [`ClientError::File`].
    fn window_done(&self, start: u64, end: u64) -> Result<(), ClientError> {
        let _ = (start, end);
        Ok(())
    }

    /// Nearly everything before `offset` was given: the time to begin writing it to the disk, so that
    /// finishing need not wait for all of it.
    fn reached(&self, offset: u64) {
        let _ = offset;
    }

    /// The disk is complete: makes it durable.
    ///
    /// # Errors
    /// [`ClientError::File`], or [`ClientError::Exists`] when somebody else made the file meanwhile.
    fn finish(&self) -> Result<(), ClientError>;
}

/// Suffix of files that are not complete.
pub const PARTIAL_SUFFIX: &str = ".holdfast-partial";

/// Zeros written at a time where the kernel cannot make them.
const ZEROS_BYTES: usize = 1 << 20;

/// Bytes of a disk between two times the kernel is asked to begin writing.
const WRITE_BEHIND_BYTES: u64 = 64 << 20;

/// How far the kernel was asked to begin writing. Left alone it waits until a tenth of the memory is dirty, and
/// a restore that waits for the disk then waits for nearly all of it at its end.
#[derive(Debug, Default)]
struct WriteBehind(Mutex<u64>);

impl WriteBehind {
    fn reached(&self, file: &File, offset: u64) {
        let mut begun = self.0.lock();
        let Some(len) = offset.checked_sub(*begun).filter(|len| *len >= WRITE_BEHIND_BYTES) else { return };
        // Advice: Linux begins to write what is dirty there, and drops nothing that is. Refusing does no harm.
        let _ = fadvise(file, *begun, NonZeroU64::new(len), Advice::DontNeed);
        *begun = offset;
    }
}

/// A regular file to be.
#[derive(Debug)]
pub struct FileTarget {
    file: File,
    behind: WriteBehind,
    path: PathBuf,
    partial: PathBuf,
    force: bool,
    sync: bool,
    done: std::sync::atomic::AtomicBool,
}

/// A block device, or another thing that exists and is written in place.
#[derive(Debug)]
pub struct DeviceTarget {
    file: File,
    behind: WriteBehind,
    path: PathBuf,
}

/// A pipe: one window is put together, then written.
pub struct PipeTarget<W> {
    state: Mutex<Pipe<W>>,
}

struct Pipe<W> {
    window: Vec<u8>,
    window_start: u64,
    writer: W,
}

/// Nothing: for verifying.
#[derive(Debug, Clone, Copy)]
pub struct NullTarget;

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> ClientError {
    move |source| ClientError::File { what, path: path.to_owned(), source }
}

/// Opens what `path` names: a block device if it is one, a new file otherwise.
///
/// # Errors
/// [`ClientError::Exists`] without `force` when there is something already, [`ClientError::File`] when it
/// cannot be written or a device is too small.
pub fn open(path: &Path, size_bytes: u64, force: bool, sync: bool) -> Result<Box<dyn Target>, ClientError> {
    match std::fs::metadata(path) {
        Ok(_) if !force => Err(ClientError::Exists(path.to_owned())),
        Ok(metadata) if metadata.file_type().is_block_device() => {
            Ok(Box::new(DeviceTarget::open(path, size_bytes)?))
        }
        Ok(metadata) if !metadata.is_file() => {
            Err(failed("writing", path)(io::Error::other("it is neither a file nor a block device")))
        }
        Ok(_) => Ok(Box::new(FileTarget::create(path, size_bytes, force, sync)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Ok(Box::new(FileTarget::create(path, size_bytes, force, sync)?))
        }
        Err(error) => Err(failed("looking at", path)(error)),
    }
}

impl FileTarget {
    /// A file of `size_bytes` of zeros, under its temporary name.
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
        Ok(Self { file, behind, path: path.to_owned(), partial, force, sync, done: false.into() })
    }

    /// Renames; without `force` never over something that exists.
    fn rename(&self) -> Result<(), ClientError> {
        let wrong = failed("renaming into", &self.path);
        if !self.force {
            match renameat_with(CWD, &self.partial, CWD, &self.path, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(()),
                Err(Errno::EXIST) => return Err(ClientError::Exists(self.path.clone())),
                // The file system does not know the flag.
                Err(Errno::INVAL | Errno::NOSYS) if !self.path.exists() => {}
                Err(error) => return Err(wrong(error.into())),
            }
        }
        std::fs::rename(&self.partial, &self.path).map_err(wrong)
    }
}

impl Target for FileTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        self.file.write_all_at(bytes, offset).map_err(failed("writing", &self.partial))
    }

    fn zero(&self, _: u64, _: u64) -> Result<(), ClientError> {
        // A new file is a hole.
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
        self.done.store(true, std::sync::atomic::Ordering::Relaxed);
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
        if !self.done.load(std::sync::atomic::Ordering::Relaxed) {
            // The reason of the failure is being reported; a left-over would be overwritten next time.
            drop(std::fs::remove_file(&self.partial));
        }
    }
}

impl DeviceTarget {
    /// Opens a device of at least `size_bytes`.
    ///
    /// # Errors
    /// [`ClientError::File`].
    pub fn open(path: &Path, size_bytes: u64) -> Result<Self, ClientError> {
        let wrong = failed("opening", path);
        let file = OpenOptions::new().write(true).open(path).map_err(&wrong)?;
        let room = seek(&file, SeekFrom::End(0)).map_err(|error| wrong(error.into()))?;
        if room < size_bytes {
            let message = format!("it has {room} bytes, the disk {size_bytes}; choose a larger device");
            return Err(wrong(io::Error::other(message)));
        }
        Ok(Self { file, behind: WriteBehind::default(), path: path.to_owned() })
    }
}

impl Target for DeviceTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        self.file.write_all_at(bytes, offset).map_err(failed("writing", &self.path))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if len == 0 || fallocate(&self.file, flags, offset, len).is_ok() {
            return Ok(());
        }
        // Not offered here, or not at this alignment: write them.
        let zeros = vec![0; ZEROS_BYTES];
        let end = offset + len;
        let mut position = offset;
        while position < end {
            let step = (end - position).min(ZEROS_BYTES as u64);
            let bytes = usize::try_from(step).ok().and_then(|step| zeros.get(..step)).unwrap_or_default();
            self.write_at(position, bytes)?;
            position += step;
        }
        Ok(())
    }

    fn reached(&self, offset: u64) {
        self.behind.reached(&self.file, offset);
    }

    fn finish(&self) -> Result<(), ClientError> {
        self.file.sync_all().map_err(failed("flushing", &self.path))
    }
}

impl<W: Write + Send> PipeTarget<W> {
    /// A pipe into `writer`.
    pub fn new(writer: W) -> Self {
        let window = vec![0; WINDOW_EXTENTS * EXTENT_BYTES as usize];
        Self { state: Mutex::new(Pipe { window, window_start: 0, writer }) }
    }
}

impl<W> std::fmt::Debug for PipeTarget<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PipeTarget")
    }
}

impl<W> Pipe<W> {
    /// The window's bytes from `offset` on the disk.
    fn part(&mut self, offset: u64, len: u64) -> Option<&mut [u8]> {
        let start = usize::try_from(offset.checked_sub(self.window_start)?).ok()?;
        self.window.get_mut(start..start.checked_add(usize::try_from(len).ok()?)?)
    }
}

const OUTSIDE: ClientError = ClientError::Internal("bytes outside the window at work");

impl<W: Write + Send> Target for PipeTarget<W> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        self.state.lock().part(offset, bytes.len() as u64).ok_or(OUTSIDE)?.copy_from_slice(bytes);
        Ok(())
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        self.state.lock().part(offset, len).ok_or(OUTSIDE)?.fill(0);
        Ok(())
    }

    fn needs_order(&self) -> bool {
        true
    }

    fn window_done(&self, start: u64, end: u64) -> Result<(), ClientError> {
        let mut state = self.state.lock();
        if start != state.window_start {
            return Err(OUTSIDE);
        }
        let Pipe { window, window_start, writer } = &mut *state;
        let len = usize::try_from(end - start).unwrap_or(usize::MAX);
        writer.write_all(window.get(..len).ok_or(OUTSIDE)?).map_err(failed("writing", Path::new("-")))?;
        *window_start = end;
        Ok(())
    }

    fn finish(&self) -> Result<(), ClientError> {
        self.state.lock().writer.flush().map_err(failed("writing", Path::new("-")))
    }
}

impl Target for NullTarget {
    fn write_at(&self, _: u64, _: &[u8]) -> Result<(), ClientError> {
        Ok(())
    }

    fn zero(&self, _: u64, _: u64) -> Result<(), ClientError> {
        Ok(())
    }

    fn finish(&self) -> Result<(), ClientError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
