//! A file or device being written: past the page cache where the system takes that, through it otherwise.
//!
//! Copying a disk into pages that are new to the cache costs many times the processor time of the write itself, and no
//! one reads them again. So whole blocks whose memory is aligned are written with `O_DIRECT`. Through the cache goes
//! what begins or ends within a block, what is so short that waiting for the disk each time would cost more, and
//! everything once the system refuses: a file system without `O_DIRECT`, or a device with larger blocks. So does everything
//! on NFS, where each direct write waits for the server's disk, and on btrfs, which does not compress direct writes.
//!
//! A page of the cache and a direct write never overlap in time (R13): one thread at a time writes an extent, and extents
//! begin at multiples of their size, which is one of the size of a page. Before a direct write the kernel writes out and
//! drops the pages it has of that range.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::fs::{Advice, OFlags, fadvise};

use crate::pool::{NFS, PAGE_BYTES, file_system, refuses_direct};

/// Places on the disk, lengths and memory of what is written past the cache are multiples of this.
const BLOCK_BYTES: usize = PAGE_BYTES;

/// File systems that are written through the cache: NFS and btrfs.
const THROUGH_CACHE: [u64; 2] = [NFS, 0x9123_683E];

/// Written through the cache with one call at most, at multiples of it. The kernel keeps a large write in large pieces of
/// memory, and where a virtual machine's host takes idle memory back, these are what it takes first: writing extents with
/// one call each cost up to five times as much of the kernel's time. Smaller writes gain nothing.
const CACHED_BYTES: usize = 128 << 10;

/// Shorter writes go through the cache.
const DIRECT_MIN_BYTES: usize = 128 << 10;

/// Bytes of a disk after which the kernel is asked to begin writing.
const WRITE_BEHIND_BYTES: u64 = 64 << 20;

/// A file or device being written, past the page cache or through it.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) file: File,
    /// The same file, opened for direct I/O past the cache.
    direct: Option<File>,
    refused: AtomicBool,
    /// Offset up to which the kernel was asked to begin writing what is in the cache.
    begun: Mutex<u64>,
}

impl Output {
    /// Writes `file` through the cache alone if `sync` is false: the command does not wait for the disk.
    pub(super) fn new(file: File, sync: bool) -> Self {
        let again = || {
            let mut options = OpenOptions::new();
            options.write(true).custom_flags(OFlags::DIRECT.bits().cast_signed());
            options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        };
        let past_cache = sync && !file_system(&file).is_some_and(|kind| THROUGH_CACHE.contains(&kind));
        let direct = past_cache.then(again).and_then(|opened| opened.inspect_err(goes_through_cache).ok());
        Self { file, direct, refused: AtomicBool::new(false), begun: Mutex::new(0) }
    }

    /// Writes all of `bytes` at `offset`.
    ///
    /// # Errors
    /// Why not; some of it may be written.
    pub(super) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let Some(direct) = self.direct().filter(|_| bytes.len() >= DIRECT_MIN_BYTES) else {
            return self.through_cache(bytes, offset);
        };
        let within = offset % BLOCK_BYTES as u64;
        let head = if within == 0 { 0 } else { BLOCK_BYTES - usize::try_from(within).unwrap_or(0) };
        let (head, rest) = bytes.split_at(head.min(bytes.len()));
        let at = offset + head.len() as u64;
        self.through_cache(head, offset)?;
        let written = past_cache(rest, |piece, done| direct.write_at(piece, at + done as u64));
        let (done, refusal) = written?;
        if let Some(error) = refusal {
            goes_through_cache(&error);
            self.refused.store(true, Ordering::Relaxed);
        }
        let (_, rest) = rest.split_at(done);
        self.through_cache(rest, at + done as u64)
    }

    /// Nearly everything before `offset` has been written. By itself the kernel waits until a tenth of the memory is dirty,
    /// and a restore that waits for the disk then waits for nearly all of it at its end.
    pub(super) fn reached(&self, offset: u64) {
        let mut begun = self.begun.lock();
        let Some(len) = offset.checked_sub(*begun).filter(|len| *len >= WRITE_BEHIND_BYTES) else { return };
        // Advice only: Linux begins to write what is dirty there and drops only clean pages. A refusal does no
        // harm.
        let _ = fadvise(&self.file, *begun, NonZeroU64::new(len), Advice::DontNeed);
        *begun = offset;
    }

    fn direct(&self) -> Option<&File> {
        self.direct.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))
    }

    fn through_cache(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let within = usize::try_from(offset % CACHED_BYTES as u64).unwrap_or(0);
            let (piece, rest) = bytes.split_at(bytes.len().min(CACHED_BYTES - within));
            self.file.write_all_at(piece, offset)?;
            (bytes, offset) = (rest, offset + piece.len() as u64);
        }
        Ok(())
    }
}

fn goes_through_cache(error: &io::Error) {
    tracing::debug!(%error, "the target cannot be written past the page cache");
}

/// Writes the whole blocks of `bytes` by `write`, which is told how many bytes come before. Returns how many were written,
/// and the refusal of the rest.
fn past_cache(
    bytes: &[u8],
    write: impl Fn(&[u8], usize) -> io::Result<usize>,
) -> io::Result<(usize, Option<io::Error>)> {
    let mut done = 0;
    loop {
        let (_, rest) = bytes.split_at(done);
        let (blocks, _) = rest.split_at(rest.len() - rest.len() % BLOCK_BYTES);
        // A short write that ends within a block is continued through the cache: what follows is not aligned.
        if blocks.is_empty() || !blocks.as_ptr().addr().is_multiple_of(BLOCK_BYTES) {
            return Ok((done, None));
        }
        match write(blocks, done) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if refuses_direct(&error) => return Ok((done, Some(error))),
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use rustix::io::Errno;

    use super::*;
    use crate::pool::Pages;

    /// Aligned memory, no two blocks of which are alike.
    fn memory(len: usize) -> Pages {
        let mut bytes = Pages::new(len);
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn whatever_is_aligned_or_not_all_of_it_is_written() {
        let len = DIRECT_MIN_BYTES + 8 * BLOCK_BYTES;
        let bytes = memory(len);
        let places = [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 7, len / 2];
        for sync in [true, false] {
            let file = tempfile::NamedTempFile::new().unwrap();
            let output = Output::new(file.reopen().unwrap(), sync);
            assert!(sync || output.direct().is_none(), "no one waits for the disk");
            for from in places {
                for end in places.map(|place| len - place) {
                    std::fs::write(file.path(), vec![0xAA; len]).unwrap();
                    let Some(part) = bytes.get(from..end) else { continue };
                    output.write_all_at(part, from as u64).unwrap();
                    let found = std::fs::read(file.path()).unwrap();
                    assert!(found[from..end] == *part, "{from}..{end}");
                    assert!(
                        found[..from].iter().chain(&found[end..]).all(|&byte| byte == 0xAA),
                        "{from}..{end}"
                    );
                }
            }
        }
    }

    /// The offset and length of each call.
    type Calls = RefCell<Vec<(usize, usize)>>;

    fn answered(calls: &Calls, answers: &[Result<usize, i32>], len: usize) -> io::Result<(usize, bool)> {
        let bytes = memory(len);
        let write = |piece: &[u8], done: usize| {
            assert_eq!((piece.len() % BLOCK_BYTES, piece.as_ptr().addr() % BLOCK_BYTES), (0, 0));
            calls.borrow_mut().push((done, piece.len()));
            answers[calls.borrow().len() - 1].map_err(io::Error::from_raw_os_error)
        };
        past_cache(&bytes, write).map(|(done, refusal)| (done, refusal.is_some()))
    }

    #[test]
    fn a_short_write_goes_on_where_it_ended_and_past_the_cache_only_between_blocks() {
        let calls = Calls::default();
        let block = BLOCK_BYTES;
        let len = 8 * block + 100;
        let interrupted = Errno::INTR.raw_os_error();
        let answers = [Ok(2 * block), Err(interrupted), Ok(3 * block + 512)];
        assert_eq!(answered(&calls, &answers, len).unwrap(), (5 * block + 512, false));
        assert_eq!(calls.take(), [(0, 8 * block), (2 * block, 6 * block), (2 * block, 6 * block)]);
        assert_eq!(answered(&calls, &[Ok(8 * block)], len).unwrap(), (8 * block, false), "the tail is left");
        assert_eq!(answered(&calls.take().into(), &[], block - 1).unwrap(), (0, false));
    }

    #[test]
    fn a_refusal_leaves_the_rest_to_the_cache_and_a_failure_is_one() {
        let block = BLOCK_BYTES;
        let answer = |answers: &[_]| answered(&RefCell::default(), answers, 4 * block);
        for code in [Errno::INVAL, Errno::OPNOTSUPP, Errno::NOSYS] {
            let refusal = Err(code.raw_os_error());
            assert_eq!(answer(&[refusal]).unwrap(), (0, true));
            assert_eq!(answer(&[Ok(block), refusal]).unwrap(), (block, true));
        }
        for code in [Errno::NOSPC, Errno::IO, Errno::DQUOT] {
            let code = code.raw_os_error();
            let error = answer(&[Ok(block), Err(code)]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(code));
        }
        assert_eq!(answer(&[Ok(0)]).unwrap_err().kind(), ErrorKind::WriteZero);
    }

    #[test]
    fn once_refused_all_of_it_goes_through_the_cache() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut output = Output::new(file.reopen().unwrap(), true);
        // The kernel takes numbers there, and refuses anything else with EINVAL.
        let refusing = OpenOptions::new().write(true).open("/proc/self/coredump_filter").unwrap();
        output.direct = Some(refusing);
        let bytes = memory(DIRECT_MIN_BYTES);
        output.write_all_at(&bytes, 0).unwrap();
        assert!(output.direct().is_none());
        assert!(std::fs::read(file.path()).unwrap() == bytes[..]);
    }
}
