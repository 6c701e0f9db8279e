//! One open disk.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use holdfast_proto::limits::{DISK_MAX_BYTES, extent_count};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::SourceError;
use super::spec::DiskArgument;

/// A raw file or block device, open for reading. Shared by all reading threads: reads are positioned.
#[derive(Debug)]
pub struct SourceDisk {
    name: String,
    path: PathBuf,
    file: File,
    size_bytes: u64,
    /// Device and inode: whether the path still leads here.
    identity: (u64, u64),
}

/// A span of a disk that holds data, or up to where there is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// First byte that is not in a hole, at or after where was asked.
    pub start: u64,
    /// First byte after it that is in a hole, or the disk's end.
    pub end: u64,
}

impl SourceDisk {
    /// Opens a disk and measures it.
    ///
    /// # Errors
    /// [`SourceError`] when it cannot be opened or is no disk.
    pub fn open(argument: &DiskArgument) -> Result<Self, SourceError> {
        let path = argument.path.clone();
        let wrong = |source| SourceError::Open { path: path.clone(), source };
        let file = File::open(&path).map_err(wrong)?;
        let metadata = file.metadata().map_err(wrong)?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let what = if kind.is_dir() { "a directory" } else { "no regular file" };
            return Err(SourceError::NotADisk { path, what });
        }
        let size_bytes = size_of(&file, &metadata).map_err(wrong)?;
        if size_bytes > DISK_MAX_BYTES {
            return Err(SourceError::TooLarge { path, size_bytes });
        }
        let identity = (metadata.dev(), metadata.ino());
        Ok(Self { name: argument.name.clone(), path, file, size_bytes, identity })
    }

    /// Name within the backup.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Size in bytes when it was opened.
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Number of extents.
    pub const fn extent_count(&self) -> u64 {
        extent_count(self.size_bytes)
    }

    /// Fills `buffer` from `offset`, all of it.
    ///
    /// # Errors
    /// [`SourceError::Read`] at the offset that failed, [`SourceError::Resized`] when the disk ends early.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), SourceError> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            match self.file.read_at(rest, at) {
                Ok(0) => {
                    let before = self.size_bytes;
                    let (disk, path) = (self.name.clone(), self.path.clone());
                    return Err(SourceError::Resized { disk, path, before, after: at, offset: at });
                }
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => {
                    let (disk, path) = (self.name.clone(), self.path.clone());
                    return Err(SourceError::Read { disk, path, offset: at, source });
                }
            }
        }
        Ok(())
    }

    /// The next data at or after `offset`; `None` when only a hole is left. Where holes are not reported
    /// (block devices, some file systems), everything is data.
    ///
    /// # Errors
    /// [`SourceError::Read`] when seeking fails.
    pub fn next_data(&self, offset: u64) -> Result<Option<Segment>, SourceError> {
        let everything = Segment { start: offset, end: self.size_bytes };
        if offset >= self.size_bytes {
            return Ok(None);
        }
        let start = match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some(everything)),
            Err(error) => return Err(self.seek_failed(offset, error)),
        };
        // A file grown meanwhile has data past the size it was opened with.
        if start >= self.size_bytes {
            return Ok(None);
        }
        match seek(&self.file, SeekFrom::Hole(start)) {
            Ok(end) => Ok(Some(Segment { start, end: end.clamp(start + 1, self.size_bytes) })),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => {
                Ok(Some(Segment { start, end: self.size_bytes }))
            }
            Err(error) => Err(self.seek_failed(start, error)),
        }
    }

    fn seek_failed(&self, offset: u64, error: Errno) -> SourceError {
        let (disk, path) = (self.name.clone(), self.path.clone());
        SourceError::Read { disk, path, offset, source: error.into() }
    }

    /// Whether the disk is still the one that was opened, of the size it had. `offset` is where reading
    /// is, for the error.
    ///
    /// # Errors
    /// [`SourceError::Resized`] or [`SourceError::Vanished`].
    pub fn check_unchanged(&self, offset: u64) -> Result<(), SourceError> {
        let (disk, path) = (self.name.clone(), self.path.clone());
        let resolves = std::fs::metadata(&self.path).is_ok_and(|now| (now.dev(), now.ino()) == self.identity);
        if !resolves {
            return Err(SourceError::Vanished { disk, path, offset });
        }
        let now = self.file.metadata().and_then(|metadata| size_of(&self.file, &metadata));
        match now {
            Ok(after) if after == self.size_bytes => Ok(()),
            Ok(after) => Err(SourceError::Resized { disk, path, before: self.size_bytes, after, offset }),
            Err(source) => Err(SourceError::Read { disk, path, offset, source }),
        }
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
    use super::*;

    fn disk(path: &Path) -> SourceDisk {
        SourceDisk::open(&DiskArgument { name: "d".into(), path: path.to_owned() }).unwrap()
    }

    #[test]
    fn a_disk_that_changes_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.raw");
        std::fs::write(&path, [7; 5000]).unwrap();
        let open = disk(&path);
        assert_eq!(open.size_bytes(), 5000);
        open.check_unchanged(0).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(4000).unwrap();
        let error = open.check_unchanged(9).unwrap_err().to_string();
        assert!(error.contains("from 5000 to 4000") && error.contains("disk.raw"), "{error}");
        let error = open.read_at(0, &mut [0; 5000]).unwrap_err().to_string();
        assert!(error.contains("offset 4000"), "{error}");
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        assert!(matches!(open.check_unchanged(1), Err(SourceError::Vanished { offset: 1, .. })));
        std::fs::write(&path, [7; 5000]).unwrap();
        assert!(
            matches!(open.check_unchanged(1), Err(SourceError::Vanished { .. })),
            "another file is another"
        );
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &Path| SourceDisk::open(&DiskArgument { name: "d".into(), path: path.to_owned() });
        assert!(matches!(open(folder.path()), Err(SourceError::NotADisk { .. })));
        assert!(matches!(open(&folder.path().join("none")), Err(SourceError::Open { .. })));
        assert!(matches!(open(Path::new("/dev/null")), Err(SourceError::NotADisk { .. })));
    }

    #[test]
    fn segments_hold_every_byte_that_is_not_zero() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(10 << 20).unwrap();
        for at in [0u64, 3 << 20, (7 << 20) + 4096] {
            file.as_file().write_all_at(&[1; 100], at).unwrap();
        }
        let disk = disk(file.path());
        let mut segments = Vec::new();
        let mut position = 0;
        while let Some(segment) = disk.next_data(position).unwrap() {
            assert!(segment.start >= position && segment.end > segment.start);
            segments.push(segment);
            position = segment.end;
        }
        let bytes = std::fs::read(file.path()).unwrap();
        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            assert!(segments.iter().any(|s| (s.start..s.end).contains(&(at as u64))), "byte {at}");
        }
        assert_eq!(disk.next_data(10 << 20).unwrap(), None);
    }
}
