//! A block device, or a file that keeps what is not written.
//!
//! It is written in place: what is on it is lost with the first write, and an interrupted restore leaves it
//! partly written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};

use super::write_behind::WriteBehind;
use super::{Target, assert_within, failed};
use crate::error::ClientError;
use crate::slices::part;

/// Zeros written at a time where the kernel cannot make them.
const ZEROS_BYTES: usize = 1 << 20;

/// A block device, written in place.
#[derive(Debug)]
pub struct DeviceTarget {
    file: File,
    behind: WriteBehind,
    path: PathBuf,
    size_bytes: u64,
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
            let message =
                format!("it has {room} bytes, and the disk has {size_bytes}; choose a larger device");
            return Err(wrong(io::Error::other(message)));
        }
        Ok(Self { file, behind: WriteBehind::default(), path: path.to_owned(), size_bytes })
    }
}

impl Target for DeviceTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        assert_within(offset, bytes.len() as u64, self.size_bytes);
        self.file.write_all_at(bytes, offset).map_err(failed("writing", &self.path))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        assert_within(offset, len, self.size_bytes);
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if len == 0 || fallocate(&self.file, flags, offset, len).is_ok() {
            return Ok(());
        }
        // The device does not support it, or not at this alignment: write zeros.
        let zeros = vec![0; ZEROS_BYTES];
        let end = offset + len;
        let mut position = offset;
        while position < end {
            let step = ZEROS_BYTES.min(usize::try_from(end - position).unwrap_or(ZEROS_BYTES));
            self.write_at(position, part(&zeros, 0, step))?;
            position += step as u64;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_in_place_zeros_are_explicit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0xAA; 3 << 20]).unwrap();
        let target = DeviceTarget::open(file.path(), 3 << 20).unwrap();
        target.zero(100, (2 << 20) + 7).unwrap();
        target.write_at(0, b"x").unwrap();
        target.finish().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!((bytes[0], bytes[99], bytes[100], bytes[(2 << 20) + 106]), (b'x', 0xAA, 0, 0));
        assert!(bytes[(2 << 20) + 107..].iter().all(|&byte| byte == 0xAA));
        let error = DeviceTarget::open(file.path(), 4 << 20).unwrap_err().to_string();
        assert!(error.contains("larger device"), "{error}");
    }

    #[test]
    #[should_panic(expected = "a write of 2 bytes at 9 of a disk of 10")]
    fn a_write_past_the_end_is_a_defect() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        drop(DeviceTarget::open(file.path(), 10).unwrap().write_at(9, b"xx"));
    }
}
