//! A block device, or a file that keeps what is not written.
//!
//! It is written in place: what is on it is lost with the first write, and an interrupted restore leaves it
//! partly written; a file then keeps its length if it is longer than the disk, and only its owner may read it.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, OFlags, SeekFrom, fallocate, seek};
use rustix::io::{Errno, retry_on_intr};

use super::lock::lock;
use super::output::Output;
use super::{FileOptions, MODE_DEFAULT, Target, assert_within, close, failed};
use crate::error::ClientError;
use crate::slices::part;

/// Zeros written at a time where the kernel cannot make them.
const ZEROS_BYTES: usize = 1 << 20;

/// A block device, or a file that exists, written in place.
#[derive(Debug)]
pub struct DeviceTarget {
    output: Output,
    path: PathBuf,
    size_bytes: u64,
    /// Set for a regular file, whose length and mode are made those of the disk.
    finish_as: Option<FileOptions>,
}

impl DeviceTarget {
    /// Opens a device of at least `size_bytes`, for this process alone.
    ///
    /// # Errors
    /// [`ClientError::File`]: it is too small, or mounted or otherwise in use.
    pub fn open(path: &Path, size_bytes: u64) -> Result<Self, ClientError> {
        let wrong = failed("opening", path);
        // Refused by the kernel when it is mounted, swapped to, or part of LVM or RAID: these would write over it.
        let exclusive = OFlags::EXCL.bits().cast_signed();
        let file = match OpenOptions::new().write(true).custom_flags(exclusive).open(path) {
            Err(error) if error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => {
                let message = "it is mounted, or in use by LVM, RAID, swap, a virtual machine or another restore; \
                               end that first";
                return Err(wrong(io::Error::new(error.kind(), message)));
            }
            opened => opened.map_err(&wrong)?,
        };
        if !file.metadata().map_err(&wrong)?.file_type().is_block_device() {
            return Err(wrong(io::Error::other("it is no longer a block device")));
        }
        let room = seek(&file, SeekFrom::End(0)).map_err(|error| wrong(error.into()))?;
        if room < size_bytes {
            let message =
                format!("it has {room} bytes, and the disk has {size_bytes}; choose a larger device");
            return Err(wrong(io::Error::other(message)));
        }
        Ok(Self::new(file, path, size_bytes, None))
    }

    /// Opens a regular file of which what is not written stays. Only its owner may read it until it is complete, and what
    /// it has beyond `size_bytes` is cut off only then; one that is shorter gets this length now.
    ///
    /// # Errors
    /// [`ClientError::File`]; also when another restore is writing it.
    pub fn open_file(path: &Path, size_bytes: u64, options: FileOptions) -> Result<Self, ClientError> {
        let file = OpenOptions::new().write(true).open(path).map_err(failed("opening", path))?;
        lock(&file, path)?;
        // Also tells now, and not after hours, that the mode cannot be set.
        let permissions = Permissions::from_mode(MODE_DEFAULT);
        file.set_permissions(permissions).map_err(failed("setting the mode of", path))?;
        if file.metadata().map_err(failed("examining", path))?.len() < size_bytes {
            file.set_len(size_bytes).map_err(failed("setting the length of", path))?;
        }
        Ok(Self::new(file, path, size_bytes, Some(options)))
    }

    fn new(file: File, path: &Path, size_bytes: u64, finish_as: Option<FileOptions>) -> Self {
        let output = Output::new(file, finish_as.is_none_or(|options| options.sync));
        Self { output, path: path.to_owned(), size_bytes, finish_as }
    }
}

impl Target for DeviceTarget {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        assert_within(offset, bytes.len() as u64, self.size_bytes);
        self.output.write_all_at(bytes, offset).map_err(failed("writing", &self.path))
    }

    fn zero(&self, offset: u64, len: u64) -> Result<(), ClientError> {
        assert_within(offset, len, self.size_bytes);
        let ask = |flags| fallocate(&self.output.file, flags, offset, len);
        if len == 0 || kernel_zeroes(ask).map_err(failed("zeroing", &self.path))? {
            return Ok(());
        }
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
        self.output.reached(offset);
    }

    fn left_unfinished(&self) -> Option<String> {
        Some(format!("{} is partly written", self.path.display()))
    }

    fn finish(&self) -> Result<(), ClientError> {
        if let Some(options) = self.finish_as {
            self.output.file.set_len(self.size_bytes).map_err(failed("setting the length of", &self.path))?;
            let permissions = Permissions::from_mode(options.mode);
            self.output
                .file
                .set_permissions(permissions)
                .map_err(failed("setting the mode of", &self.path))?;
            if !options.sync {
                return close(&self.output.file).map_err(failed("closing", &self.path));
            }
        }
        self.output.file.sync_all().map_err(failed("flushing", &self.path))
    }
}

/// Asks the kernel for zeros. False: the file system or device has none to give, or not at this alignment.
///
/// A hole takes no room in a file; a zeroed range keeps its blocks. A device makes a hole only if it reads as zeros.
fn kernel_zeroes(ask: impl Fn(FallocateFlags) -> rustix::io::Result<()>) -> io::Result<bool> {
    for way in [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE] {
        match retry_on_intr(|| ask(way | FallocateFlags::KEEP_SIZE)) {
            Ok(()) => return Ok(true),
            // ENODEV: any device, on Linux before 4.9. EBUSY: a page of the range is in use, on later ones.
            Err(
                Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOTTY | Errno::NODEV | Errno::BUSY,
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::os::unix::fs::MetadataExt as _;

    use super::super::open;
    use super::*;
    use crate::source::Format;

    const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
    const ZEROED: FallocateFlags = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);

    const IN_PLACE: FileOptions =
        FileOptions { force: true, sync: true, mode: MODE_DEFAULT, format: Format::Raw, in_place: true };

    fn in_place(path: &Path, size_bytes: u64) -> DeviceTarget {
        DeviceTarget::open_file(path, size_bytes, IN_PLACE).unwrap()
    }

    #[test]
    fn written_in_place_zeros_are_explicit() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![0xAA; 3 << 20]).unwrap();
        let target = in_place(file.path(), 3 << 20);
        target.zero(100, (2 << 20) + 7).unwrap();
        target.write_at(0, b"x").unwrap();
        target.finish().unwrap();
        let bytes = std::fs::read(file.path()).unwrap();
        assert_eq!((bytes[0], bytes[99], bytes[100], bytes[(2 << 20) + 106]), (b'x', 0xAA, 0, 0));
        assert!(bytes[(2 << 20) + 107..].iter().all(|&byte| byte == 0xAA));
        let room = file.as_file().metadata().unwrap().blocks() * 512;
        let has_holes = fallocate(file.as_file(), HOLE, 0, 1).is_ok();
        assert!(room < 2 << 20 || !has_holes, "{room} bytes for 1 MiB that is not zero");
    }

    #[test]
    fn zeros_are_written_only_where_the_kernel_makes_none() {
        let answered = |answers: &[Result<(), Errno>]| {
            let asked = RefCell::new(Vec::new());
            let outcome = kernel_zeroes(|flags| {
                asked.borrow_mut().push(flags);
                answers[asked.borrow().len() - 1]
            });
            (outcome.map_err(|error| error.raw_os_error()), asked.into_inner())
        };
        assert_eq!(answered(&[Ok(())]), (Ok(true), vec![HOLE]));
        assert_eq!(answered(&[Err(Errno::INTR), Ok(())]), (Ok(true), vec![HOLE, HOLE]));
        for refusal in [Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL, Errno::NOTTY, Errno::NODEV, Errno::BUSY]
        {
            assert_eq!(answered(&[Err(refusal), Ok(())]), (Ok(true), vec![HOLE, ZEROED]));
            assert_eq!(answered(&[Err(refusal), Err(refusal)]), (Ok(false), vec![HOLE, ZEROED]));
        }
        for failure in [Errno::NOSPC, Errno::IO] {
            let code = Err(Some(failure.raw_os_error()));
            assert_eq!(answered(&[Err(failure)]), (code, vec![HOLE]));
            assert_eq!(answered(&[Err(Errno::OPNOTSUPP), Err(failure)]), (code, vec![HOLE, ZEROED]));
        }
    }

    #[test]
    fn a_file_written_in_place_gets_the_length_and_mode_of_the_disk() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (before, sync) in [(100, true), (3, false)] {
            std::fs::write(file.path(), vec![0xAA; before]).unwrap();
            std::fs::set_permissions(file.path(), Permissions::from_mode(0o644)).unwrap();
            let found = || {
                let found = std::fs::metadata(file.path()).unwrap();
                (found.len(), found.permissions().mode() & 0o7777)
            };
            let options = FileOptions { mode: 0o640, sync, ..IN_PLACE };
            drop(open(file.path(), 10, options).unwrap());
            assert_eq!(found(), (before.max(10) as u64, 0o600), "nothing was cut off before it is complete");
            let target = open(file.path(), 10, options).unwrap();
            target.write_at(0, b"x").unwrap();
            target.finish().unwrap();
            // The rest of a longer disk, such as a second partition table at its end, is no part of this one.
            assert_eq!(found(), (10, 0o640));
        }
    }

    #[test]
    fn one_restore_at_a_time_writes_in_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let first = in_place(file.path(), 10);
        let refused = DeviceTarget::open_file(file.path(), 20, IN_PLACE).unwrap_err().to_string();
        assert!(refused.contains("another restore is writing it"), "{refused}");
        assert_eq!(std::fs::metadata(file.path()).unwrap().len(), 10, "nothing was changed");
        drop(first);
        in_place(file.path(), 20);
    }

    #[test]
    fn what_is_no_block_device_is_not_taken_for_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(DeviceTarget::open(file.path(), 0).unwrap_err().to_string().contains("block device"));
    }

    #[test]
    #[should_panic(expected = "a write of 2 bytes at 9 of a disk of 10")]
    fn a_write_past_the_end_is_a_defect() {
        let file = tempfile::NamedTempFile::new().unwrap();
        drop(in_place(file.path(), 10).write_at(9, b"xx"));
    }
}
