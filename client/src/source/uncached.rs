//! Reading a disk past the page cache. A backup reads each block once; through the cache it would push out of memory
//! what guests read again and again.
//!
//! A disk is read with `O_DIRECT`, cached or not: Linux writes changed pages out first, and leaves those that are cached
//! where they are. Reading cached pages through the cache would start the kernel's readahead where another had been
//! reading one after the other, and what that brings counts as cached by others.
//!
//! Not so on NFS: there a direct read makes the kernel write out all that is cached of the file, and keeps readers through
//! the cache out while it lasts. A guest that uses the file would wait for each piece.
//!
//! On NFS, and where `O_DIRECT` is refused, the disk is read the usual way, without readahead of its own. Some file systems
//! take `O_DIRECT` and read through the cache nevertheless (ext4 with `data=journal`, compressed files of btrfs). Either way,
//! a piece of which nothing was cached before it was read is dropped again.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, OFlags, fadvise};

use crate::pool::{NFS, PAGE_BYTES, Pages, file_system, refuses_direct};
use crate::slices::{part, part_mut};

/// Read at a time at most. Larger pieces are no faster; on some file systems a guest's write waits for a piece to be read.
const PIECE_BYTES: usize = 1 << 20;

/// Read at a time where the offset or the buffer is not aligned: around a disk's end, and its first bytes.
const BOUNCE_BYTES: usize = 64 << 10;

/// A second way to read an open disk.
#[derive(Debug)]
pub(super) struct Uncached {
    /// The disk opened with `O_DIRECT`; `None` on NFS, and where that is refused.
    direct: Option<File>,
    /// True once a read from it was refused: some file systems let a file be opened so, and then refuse to read it.
    refused: AtomicBool,
}

impl Uncached {
    /// Opens `disk` once more. Not by its path, where another file may be by now.
    pub(super) fn open(disk: &File) -> Self {
        Self::open_on(disk, file_system(disk))
    }

    fn open_on(disk: &File, file_system: Option<u64>) -> Self {
        if file_system == Some(NFS) {
            return Self::over(disk, None);
        }
        let flags = (OFlags::DIRECT | OFlags::NONBLOCK).bits().cast_signed();
        let path = format!("/proc/self/fd/{}", disk.as_raw_fd());
        let direct = File::options().read(true).custom_flags(flags).open(path);
        Self::over(disk, direct.inspect_err(goes_through_cache).ok())
    }

    fn over(disk: &File, direct: Option<File>) -> Self {
        for file in [Some(disk), direct.as_ref()].into_iter().flatten() {
            // Advice: a refusal does no harm. What was read ahead would count as cached by others.
            let _ = fadvise(file, 0, None, Advice::Random);
        }
        Self { direct, refused: AtomicBool::new(false) }
    }

    pub(super) const fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Fills a part of `buffer` with the bytes of `disk` from `offset` on, and returns how long it is; 0 at the disk's end.
    pub(super) fn read(&self, disk: &File, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let len = buffer.len().min(PIECE_BYTES);
        let piece = part_mut(buffer, 0, len);
        let was_cached = cached_pages(disk, offset, len as u64) != Some(0);
        let read = self.read_direct(offset, piece).unwrap_or_else(|| disk.read_at(piece, offset))?;
        if !was_cached {
            // Whole pages: Linux keeps those that are asked for in part.
            let page_bytes = rustix::param::page_size() as u64;
            let start = offset - offset % page_bytes;
            let end = (offset + len as u64).next_multiple_of(page_bytes);
            let _ = fadvise(disk, start, NonZeroU64::new(end - start), Advice::DontNeed);
        }
        Ok(read)
    }

    /// `None` when it is refused, or fails: reading the usual way then tells to the byte where a disk is damaged.
    fn read_direct(&self, offset: u64, buffer: &mut [u8]) -> Option<io::Result<usize>> {
        let direct = self.direct.as_ref().filter(|_| !self.refused.load(Ordering::Relaxed))?;
        let aligned_len = buffer.len() - buffer.len() % PAGE_BYTES;
        let skew = usize::try_from(offset % PAGE_BYTES as u64).ok()?;
        let read = if aligned_len > 0 && skew == 0 && buffer.as_ptr().align_offset(PAGE_BYTES) == 0 {
            direct.read_at(part_mut(buffer, 0, aligned_len), offset)
        } else {
            let mut pages = Pages::new((skew + buffer.len()).next_multiple_of(PAGE_BYTES).min(BOUNCE_BYTES));
            direct.read_at(&mut pages, offset - skew as u64).map(|read| {
                let read = read.saturating_sub(skew).min(buffer.len());
                part_mut(buffer, 0, read).copy_from_slice(part(&pages, skew, read));
                read
            })
        };
        match read {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                goes_through_cache(&error);
                if refuses_direct(&error) {
                    self.refused.store(true, Ordering::Relaxed);
                }
                None
            }
            read => Some(read),
        }
    }
}

fn goes_through_cache(error: &io::Error) {
    tracing::debug!(%error, "a disk is read through the page cache: a direct read of it failed");
}

/// Pages of `file` within a range that are in the page cache; `None` where the kernel does not tell: it is older than Linux
/// 6.5, or this process may only read the file and does not own it (EPERM). Then nothing is dropped: it may be what guests
/// use.
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
        let buffering = File::open(file.path());
        for direct in [Err(io::ErrorKind::InvalidInput.into()), unreadable, buffering] {
            let file = File::open(file.path()).unwrap();
            let uncached = Uncached::over(&file, direct.ok());
            let mut read = Pages::new(LEN);
            for (number, piece) in read.chunks_mut(PIECE_BYTES).enumerate() {
                assert_eq!(uncached.read(&file, (number * PIECE_BYTES) as u64, piece).unwrap(), PIECE_BYTES);
            }
            assert!(*read == bytes);
            assert_eq!(uncached.read(&file, 4097, &mut read[..5000]).unwrap(), 5000);
            assert!(!uncached.refused.load(Ordering::Relaxed), "a failure is no refusal");
            assert_eq!(cached(&file, 0, LEN), 0);
            warm_half(&file);
            uncached.read(&file, (LEN / 2 - PAGE_BYTES) as u64, &mut read).unwrap();
            uncached.read(&file, 0, &mut read).unwrap();
            assert_eq!(cached(&file, 0, LEN / 2), LEN / 2, "what others cached stays");
            fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        }
    }

    #[test]
    fn a_disk_on_nfs_is_read_through_the_cache() {
        let bytes = image::noise(1, 2 * PAGE_BYTES);
        let (file, _) = image::raw(&bytes);
        let file = file.as_file();
        let refused = Uncached::open(file).direct.is_none();
        for (kind, past_cache) in [(Some(NFS), false), (Some(0xEF53), true), (None, true)] {
            let uncached = Uncached::open_on(file, kind);
            assert_eq!(uncached.direct.is_some(), past_cache && !refused, "{kind:?}");
            let mut read = Pages::new(2 * PAGE_BYTES);
            assert_eq!(uncached.read(file, 0, &mut read).unwrap(), 2 * PAGE_BYTES);
            assert!(*read == bytes);
        }
    }

    /// Where others have read one after the other, the kernel reads on as soon as what it read ahead is used.
    #[test]
    fn what_others_read_ahead_does_not_grow() {
        let Some((file, disk, bytes)) = cold(LEN) else { return };
        for piece in 0..LEN / 8 / PAGE_BYTES {
            file.as_file().read_exact_at(&mut [0; PAGE_BYTES], (piece * PAGE_BYTES) as u64).unwrap();
        }
        let before = cached(file.as_file(), 0, LEN);
        assert!(before >= LEN / 8);
        let mut pages = Pages::new(LEN);
        disk.read_at(0, &mut pages).unwrap();
        assert!(*pages == bytes);
        assert_eq!(cached(file.as_file(), 0, LEN), before);
    }
}
