//! Raw image files and block devices: the bytes of the file are the bytes of the disk.

use std::fs::{File, FileType, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use super::uncached::Uncached;
use super::{Content, Segment, Source, SourceError, WriteTimes};

/// A raw file or block device, open for reading.
#[derive(Debug)]
pub struct RawDisk {
    name: String,
    path: PathBuf,
    /// `path` for messages.
    location: String,
    file: File,
    uncached: Uncached,
    size_bytes: u64,
    /// Device and inode: whether `path` still leads to the open file.
    identity: (u64, u64),
}

impl RawDisk {
    /// Opens the disk `name` at `path` and measures it.
    ///
    /// # Errors
    /// [`SourceError::Open`], or [`SourceError::NotADisk`] for anything but a regular file or block device.
    pub fn open(name: &str, path: &Path) -> Result<Self, SourceError> {
        let failed = |source| SourceError::open(path, source);
        let location = path.display().to_string();
        let refused = |what| SourceError::NotADisk { location: location.clone(), what };
        // Looked at before it is opened: opening a named pipe waits for a writer, and some character devices act
        // when they are opened. Looked at again afterwards: another file may be there by then.
        let kind = std::fs::metadata(path).map_err(failed)?.file_type();
        not_a_disk(kind).map_or(Ok(()), |what| Err(refused(what)))?;
        let file = open_without_waiting(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        not_a_disk(metadata.file_type()).map_or(Ok(()), |what| Err(refused(what)))?;
        let size_bytes = size_of(&file, &metadata).map_err(failed)?;
        let identity = (metadata.dev(), metadata.ino());
        let uncached = Uncached::open(&file);
        Ok(Self {
            name: name.to_owned(),
            path: path.to_owned(),
            location,
            file,
            uncached,
            size_bytes,
            identity,
        })
    }

    /// Returns true for a block device.
    pub(super) fn is_device(&self) -> bool {
        self.file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device())
    }

    /// Returns true if it is read past the page cache.
    pub(super) const fn is_read_directly(&self) -> bool {
        self.uncached.is_direct()
    }

    /// The next data at or after `offset`; `None` when only a hole is left. Where holes are not reported
    /// (block devices, some file systems), everything is data.
    fn next_data(&self, offset: u64) -> Result<Option<Range<u64>>, SourceError> {
        let failed = |at, error: Errno| SourceError::read(self, at, error.into());
        let start = match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(offset..self.size_bytes)),
            Err(error) => return Err(failed(offset, error)),
        };
        // A file that has grown since has data past the size it was opened with.
        if start >= self.size_bytes {
            return Ok(None);
        }
        let end = match seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) => end,
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => self.size_bytes,
            Err(error) => return Err(failed(start, error)),
        };
        // Where `start` lies may have become a hole between the two calls.
        Ok(Some(start..end.clamp(start + 1, self.size_bytes)))
    }
}

impl Source for RawDisk {
    fn name(&self) -> &str {
        &self.name
    }

    fn location(&self) -> &str {
        &self.location
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn segments(&self, range: Range<u64>) -> Result<Vec<Segment>, SourceError> {
        let mut segments = Vec::new();
        let mut position = range.start;
        while position < range.end {
            let data = self.next_data(position)?.unwrap_or(self.size_bytes..self.size_bytes);
            if data.start > position {
                segments.push(Segment { start: position, end: data.start, content: Content::Hole });
            }
            if data.end > data.start {
                segments.push(Segment { start: data.start, end: data.end, content: Content::Data });
            }
            position = data.end;
        }
        Ok(segments)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            match self.uncached.read(&self.file, at, rest) {
                Ok(0) => return Err(SourceError::resized(self, at, at)),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(SourceError::read(self, at, error)),
            }
        }
        assert_eq!(done, buffer.len(), "bytes read at {offset}, bytes asked for");
        Ok(())
    }

    /// Nothing tells whether a file or device is a snapshot or in use.
    fn can_change(&self) -> bool {
        true
    }

    fn check_unchanged(&self, offset: u64) -> Result<(), SourceError> {
        let resolves = std::fs::metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity);
        if !resolves {
            return Err(SourceError::replaced(self, offset));
        }
        let now = self.file.metadata().and_then(|metadata| size_of(&self.file, &metadata));
        match now {
            Ok(after) if after == self.size_bytes => Ok(()),
            Ok(after) => Err(SourceError::resized(self, after, offset)),
            Err(error) => Err(SourceError::read(self, offset, error)),
        }
    }

    fn write_times(&self) -> Result<Option<WriteTimes>, SourceError> {
        let metadata = self.file.metadata().map_err(|error| SourceError::read(self, 0, error))?;
        Ok(metadata.is_file().then(|| WriteTimes::of(&metadata)))
    }
}

/// Names the kind of a file that cannot be a disk; `None` if it can.
fn not_a_disk(kind: FileType) -> Option<&'static str> {
    if kind.is_file() || kind.is_block_device() {
        None
    } else if kind.is_dir() {
        Some("a directory")
    } else if kind.is_fifo() {
        Some("a named pipe")
    } else if kind.is_socket() {
        Some("a socket")
    } else if kind.is_char_device() {
        Some("a character device")
    } else {
        Some("not a regular file")
    }
}

/// Opens a regular file or block device for reading; what has become a pipe meanwhile is opened without waiting.
fn open_without_waiting(path: &Path) -> io::Result<File> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    match File::options().read(true).custom_flags(nonblock).open(path) {
        // Another process holds a lease (NFS, Samba): worth waiting for, and no pipe gives this error.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => File::open(path),
        opened => opened,
    }
}

/// A file's length; for a block device, whose metadata say 0, where its end is.
fn size_of(file: &File, metadata: &Metadata) -> io::Result<u64> {
    if metadata.file_type().is_block_device() {
        Ok(seek(file, SeekFrom::End(0))?)
    } else {
        Ok(metadata.len())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::source::testing::{image, suite};

    #[test]
    fn raw_files_pass_the_suite() {
        let sparse = image::sparse(10 << 20, &[0, 3 << 20, (7 << 20) + 4096, (10 << 20) - 1]);
        let dense = vec![7; (5 << 20) + 123];
        for bytes in [sparse, dense, vec![0; (4 << 20) + 1], vec![1], Vec::new()] {
            let (_file, disk) = image::raw(&bytes);
            suite::check(&disk, &bytes);
        }
    }

    #[test]
    fn a_disk_that_changes_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        std::fs::write(&path, [7; 5000]).unwrap();
        let open = RawDisk::open("d", &path).unwrap();
        assert!(open.can_change());
        open.check_unchanged(0).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(4000).unwrap();
        let error = open.check_unchanged(9).unwrap_err().to_string();
        assert!(error.contains("from 5000 to 4000") && error.contains("disk.raw"), "{error}");
        let error = open.read_at(0, &mut [0; 5000]).unwrap_err().to_string();
        assert!(error.contains("offset 4000"), "{error}");
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        assert!(matches!(open.check_unchanged(1), Err(SourceError::Replaced { offset: 1, .. })));
        std::fs::write(&path, [7; 5000]).unwrap();
        let replaced = open.check_unchanged(1);
        assert!(matches!(replaced, Err(SourceError::Replaced { .. })), "another file is not the same disk");
    }

    #[test]
    fn a_write_shows_in_the_times_and_a_read_does_not() {
        let (file, disk) = image::raw(&[7; 5000]);
        let times = |seconds| std::fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + seconds);
        file.as_file().set_times(times(std::time::Duration::from_secs(5))).unwrap();
        let before = disk.write_times().unwrap().unwrap();
        disk.read_at(0, &mut [0; 5000]).unwrap();
        assert_eq!(disk.write_times().unwrap(), Some(before));
        // A write is dated now, not 1970: nothing depends on how fine the file system's clock is.
        file.as_file().write_all_at(&[8], 100).unwrap();
        assert_ne!(disk.write_times().unwrap(), Some(before));
        disk.check_unchanged(5000).unwrap();
        file.as_file().set_times(times(std::time::Duration::new(5, 1))).unwrap();
        assert_ne!(disk.write_times().unwrap(), Some(before), "a nanosecond counts");
    }

    #[test]
    fn data_past_the_opened_size_is_not_part_of_the_disk() {
        let (file, disk) = image::raw(&vec![0; 1 << 20]);
        file.as_file().write_all_at(&[1; 4096], 2 << 20).unwrap();
        let hole = Segment { start: 0, end: 1 << 20, content: Content::Hole };
        assert_eq!(disk.segments(0..1 << 20).unwrap(), [hole]);
        assert!(matches!(disk.check_unchanged(0), Err(SourceError::Resized { .. })));
    }
}
