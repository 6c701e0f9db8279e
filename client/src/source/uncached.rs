//! Reading a disk past the page cache. A backup reads each block once; through the cache it would push out of memory
//! what guests read again and again.
//!
//! What is wholly in the page cache is read there: it costs no access to the disk, and nothing has to be read in for it. Everything
//! else is read with `O_DIRECT`, also what is cached in part: Linux writes changed pages out first, and leaves those that
//! are cached where they are. A file system that refuses `O_DIRECT` is read the usual way, without reading ahead, and what
//! was not cached before is dropped again.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, OFlags, fadvise};

use crate::pool::{PAGE_BYTES, Pages};
use crate::slices::{part, part_mut};

/// Read at a time at most. Larger pieces are no faster; on some file systems a guest's write waits for a piece to be read.
const PIECE_BYTES: usize = 1 << 20;

/// Read at a time where the offset or the buffer is not aligned: around a disk's end, and its first bytes.
const BOUNCE_BYTES: usize = 64 << 10;

/// A second way to read an open disk.
#[derive(Debug)]
pub(super) struct Uncached {
    /// The disk opened with `O_DIRECT`; `None` where that is refused.
    direct: Option<File>,
    /// Whether a read from it has failed: some file systems let a file be opened so, and then refuse to read it.
    refused: AtomicBool,
}

impl Uncached {
    /// Opens `disk` once more. Not by its path, where another file may be by now.
    pub(super) fn open(disk: &File) -> Self {
        let flags = (OFlags::DIRECT | OFlags::NONBLOCK).bits().cast_signed();
        let path = format!("/proc/self/fd/{}", disk.as_raw_fd());
        let direct = File::options().read(true).custom_flags(flags).open(path);
        Self::over(disk, direct)
    }

    fn over(disk: &File, direct: io::Result<File>) -> Self {
        let direct = direct.map_err(|error| refused(disk, &error)).ok();
        Self { direct, refused: AtomicBool::new(false) }
    }

    /// Fills a part of `buffer` with the bytes of `disk` from `offset` on, and returns how long it is; 0 at the disk's end.
    pub(super) fn read(&self, disk: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(PIECE_BYTES);
        let piece = part_mut(buffer, 0, len);
        let cached = Cached::of(disk, offset, len);
        if cached != Cached::Whole
            && let Some(read) = self.read_direct(disk, offset, piece)
        {
            return Ok(read);
        }
        let read = disk.read_at(piece, offset)?;
        if cached == Cached::Nothing {
            // Advice: a refusal does no harm.
            let _ = fadvise(disk, offset, NonZeroU64::new(len as u64), Advice::DontNeed);
        }
        Ok(read)
    }

    /// `None` when it is refused, or fails: reading the usual way then tells to the byte where a disk is damaged.
    fn read_direct(&self, disk: &File, offset: u64, buffer: &mut [u8]) -> Option<usize> {
        let direct = self.direct.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))?;
        let aligned_len = buffer.len() - buffer.len() % PAGE_BYTES;
        let skew = usize::try_from(offset % PAGE_BYTES as u64).ok()?;
        let read = if aligned_len > 0 && skew == 0 && buffer.as_ptr().align_offset(PAGE_BYTES) == 0 {
            direct.read_at(part_mut(buffer, 0, aligned_len), offset)
        } else {
            let mut pages = Pages::new(BOUNCE_BYTES);
            direct.read_at(&mut pages, offset - skew as u64).map(|read| {
                let read = read.saturating_sub(skew).min(buffer.len());
                part_mut(buffer, 0, read).copy_from_slice(part(&pages, skew, read));
                read
            })
        };
        let first_failure = |_: &io::Error| !self.refused.swap(true, Ordering::Relaxed);
        if let Some(error) = read.as_ref().err().filter(|error| first_failure(error)) {
            refused(disk, error);
        }
        read.ok()
    }
}

/// `disk` cannot be read past the page cache.
fn refused(disk: &File, error: &io::Error) {
    tracing::debug!(%error, "a disk is read through the page cache: a direct read of it failed");
    // Otherwise what was read ahead would count as cached by others.
    let _ = fadvise(disk, 0, None, Advice::Random);
}

/// How much of a range is in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cached {
    Nothing,
    /// Or the kernel cannot tell: it is older than Linux 6.5.
    Part,
    Whole,
}

impl Cached {
    fn of(file: &File, offset: u64, len: usize) -> Self {
        let page_bytes = rustix::param::page_size() as u64;
        let pages = (offset + len as u64).div_ceil(page_bytes) - offset / page_bytes;
        match cached_pages(file, offset, len as u64) {
            Some(0) => Self::Nothing,
            Some(cached) if cached >= pages => Self::Whole,
            _ => Self::Part,
        }
    }
}

/// Pages of `file` within a range that are in the page cache; `None` where that cannot be told.
fn cached_pages(file: &File, offset: u64, len: u64) -> Option<u64> {
    /// cachestat(2), the same on every architecture; neither libc nor rustix has it.
    const CACHESTAT: libc::c_long = 451;
    let range = [offset, len];
    // Cached, dirty, being written, evicted, and evicted of late.
    let mut counts = [0u64; 5];
    // SAFETY: cachestat reads a structure of two numbers of 64 bits and writes one of five; both live until it returns.
    let result =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    (result == 0).then_some(counts[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::testing::image;
    use crate::source::{RawDisk, Source as _};

    const LEN: usize = 8 << 20;

    fn cached(disk: &File, from: usize, to: usize) -> usize {
        let pages = cached_pages(disk, from as u64, (to - from) as u64).unwrap();
        usize::try_from(pages).unwrap() * rustix::param::page_size()
    }

    /// A file of `len` bytes, none of them in the page cache; `None` where the cache cannot be looked at, or is
    /// where the file lies (tmpfs).
    fn cold(len: usize) -> Option<(tempfile::NamedTempFile, RawDisk, Vec<u8>)> {
        let bytes = image::noise(1, len);
        let (file, disk) = image::raw(&bytes);
        file.as_file().sync_all().unwrap();
        fadvise(file.as_file(), 0, None, Advice::DontNeed).unwrap();
        let is_cold = cached_pages(file.as_file(), 0, len as u64) == Some(0);
        is_cold.then_some((file, disk, bytes))
    }

    /// Puts the first half in the page cache, and nothing beyond.
    fn warm_half(file: &File) {
        fadvise(file, 0, None, Advice::Random).unwrap();
        file.read_exact_at(&mut vec![0; LEN / 2], 0).unwrap();
        assert_eq!((cached(file, 0, LEN / 2), cached(file, LEN / 2, LEN)), (LEN / 2, 0));
    }

    #[test]
    fn reading_a_disk_leaves_the_page_cache_as_it_was() {
        for tail in [0, 5000] {
            let Some((file, disk, bytes)) = cold(LEN + tail) else { return };
            let mut pages = Pages::new(LEN + tail);
            disk.read_at(0, &mut pages).unwrap();
            assert!(*pages == bytes);
            disk.read_at(0, &mut [0; 512]).unwrap();
            disk.read_at(4097, &mut vec![0; 100_000]).unwrap();
            assert_eq!(cached(file.as_file(), 0, LEN + tail), 0, "nothing is left behind");
            warm_half(file.as_file());
            pages.fill(0);
            disk.read_at(0, &mut pages).unwrap();
            assert!(*pages == bytes);
            assert_eq!(cached(file.as_file(), 0, LEN / 2), LEN / 2, "what others cached stays");
            assert_eq!(cached(file.as_file(), LEN / 2, LEN + tail), 0);
        }
    }

    #[test]
    fn a_file_system_without_direct_reads_is_read_and_left_as_it_was() {
        let Some((file, _, bytes)) = cold(LEN) else { return };
        let unreadable = File::options().write(true).open(file.path());
        for direct in [Err(io::ErrorKind::InvalidInput.into()), unreadable] {
            let file = File::open(file.path()).unwrap();
            let uncached = Uncached::over(&file, direct);
            let mut read = vec![0; LEN];
            for (number, piece) in read.chunks_mut(PIECE_BYTES).enumerate() {
                assert_eq!(uncached.read(&file, (number * PIECE_BYTES) as u64, piece).unwrap(), PIECE_BYTES);
            }
            assert!(read == bytes);
            assert_eq!(cached(&file, 0, LEN), 0);
            warm_half(&file);
            uncached.read(&file, (LEN / 2 - PAGE_BYTES) as u64, &mut read).unwrap();
            uncached.read(&file, 0, &mut read).unwrap();
            assert_eq!(cached(&file, 0, LEN / 2), LEN / 2, "what others cached stays");
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }

    #[test]
    fn what_is_cached_is_not_read_from_the_disk() {
        let Some((file, _, bytes)) = cold(LEN) else { return };
        warm_half(file.as_file());
        let unreadable = File::options().write(true).open(file.path());
        let uncached = Uncached::over(file.as_file(), unreadable);
        let mut piece = vec![0; PIECE_BYTES];
        for (offset, refused) in [(0, false), (LEN / 2 - PIECE_BYTES, false), (LEN / 2 - PAGE_BYTES, true)] {
            uncached.read(file.as_file(), offset as u64, &mut piece).unwrap();
            assert!(piece == bytes[offset..offset + PIECE_BYTES]);
            assert_eq!(uncached.refused.load(Ordering::Relaxed), refused, "{offset}");
        }
    }
}
