//! A fixed number of buffers. A pool's size is the memory bound of what it feeds: when all buffers are out,
//! the next taker waits.

use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::slices::{part, part_mut};

/// A fixed number of buffers of one length.
#[derive(Debug, Clone)]
pub(crate) struct BufferPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    returned: Condvar,
    buffer_bytes: usize,
}

#[derive(Debug)]
struct State {
    free: Vec<Pages>,
    /// Buffers that may still be allocated.
    unallocated: usize,
    closed: bool,
}

/// A buffer that goes back to its pool when dropped. At first it holds bytes left over from its last use.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Pages,
    pool: Arc<Shared>,
}

/// Alignment of memory, offsets and lengths for `O_DIRECT`: the page of most machines, and the largest block of most disks.
pub(crate) const PAGE_BYTES: usize = 4096;

/// Returns true if a call failed because the file system or device does not do `O_DIRECT`, or not at this alignment.
pub(crate) fn refuses_direct(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS))
}

/// NFS, as fstatfs(2) names it.
pub(crate) const NFS: u64 = 0x6969;

/// The kind of file system that a file is on, as fstatfs(2) names it; `None` where that is not known.
pub(crate) fn file_system(file: impl AsFd) -> Option<u64> {
    rustix::fs::fstatfs(file).ok().and_then(|found| u64::try_from(found.f_type).ok())
}

/// Memory that begins at a page.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Pages {
    /// `len` zeros.
    pub(crate) fn new(len: usize) -> Self {
        let bytes = vec![0; len + PAGE_BYTES - 1];
        let start = bytes.as_ptr().align_offset(PAGE_BYTES);
        Self { bytes, start, len }
    }

    /// Changes the length to `len`, at most that of [`Pages::new`]. The bytes are left over from their last use.
    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len;
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        part(&self.bytes, self.start, self.len)
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        part_mut(&mut self.bytes, self.start, self.len)
    }
}

impl BufferPool {
    /// A pool of `count` buffers of `buffer_bytes` each, allocated when first needed.
    pub(crate) fn new(count: usize, buffer_bytes: usize) -> Self {
        let state = State { free: Vec::with_capacity(count), unallocated: count, closed: false };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), returned: Condvar::new(), buffer_bytes }) }
    }

    /// A buffer; waits for one to come back. `None` once the pool is closed.
    pub(crate) fn take(&self) -> Option<Buffer> {
        let mut state = self.shared.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(bytes) = state.free.pop() {
                assert_eq!(bytes.len(), self.shared.buffer_bytes, "length of a pooled buffer");
                return Some(Buffer { bytes, pool: Arc::clone(&self.shared) });
            }
            if state.unallocated > 0 {
                state.unallocated -= 1;
                drop(state);
                let bytes = Pages::new(self.shared.buffer_bytes);
                return Some(Buffer { bytes, pool: Arc::clone(&self.shared) });
            }
            self.shared.returned.wait(&mut state);
        }
    }

    /// Wakes every waiting taker; from now on [`BufferPool::take`] gives nothing.
    pub(crate) fn close(&self) {
        self.shared.state.lock().closed = true;
        self.shared.returned.notify_all();
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.state.lock().free.push(std::mem::take(&mut self.bytes));
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_never_lends_more_than_it_has() {
        let pool = BufferPool::new(2, 8);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert_eq!((first.len(), second.len()), (8, 8));
        assert_eq!(first.as_ptr().align_offset(PAGE_BYTES), 0, "direct reads need it");
        let waiting = std::thread::spawn({
            let pool = pool.clone();
            move || pool.take().map(|buffer| buffer.len())
        });
        drop(first);
        assert_eq!(waiting.join().unwrap(), Some(8));
        let waiting = std::thread::spawn({
            let pool = pool.clone();
            move || (pool.take().is_some(), pool.take().is_some())
        });
        pool.close();
        assert!(!waiting.join().unwrap().1, "closing wakes waiting takers");
        drop(second);
        assert!(pool.take().is_none());
    }
}
