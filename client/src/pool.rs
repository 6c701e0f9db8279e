//! Buffers that are allocated once and used again. A pool's size is the memory bound of what it feeds:
//! whoever wants a buffer while all are out waits.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

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
    free: Vec<Vec<u8>>,
    /// Buffers that may still be allocated.
    unborn: usize,
    closed: bool,
}

/// A buffer that goes back to its pool when dropped. What it holds at first is left over from before.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    pool: Arc<Shared>,
}

impl BufferPool {
    /// A pool of `count` buffers of `buffer_bytes` each, allocated when first needed.
    pub(crate) fn new(count: usize, buffer_bytes: usize) -> Self {
        let state = State { free: Vec::with_capacity(count), unborn: count, closed: false };
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
                return Some(Buffer { bytes, pool: Arc::clone(&self.shared) });
            }
            if state.unborn > 0 {
                state.unborn -= 1;
                drop(state);
                let bytes = vec![0; self.shared.buffer_bytes];
                return Some(Buffer { bytes, pool: Arc::clone(&self.shared) });
            }
            self.shared.returned.wait(&mut state);
        }
    }

    /// Wakes all who wait and lets nobody have another buffer.
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

/// Tools that are dear to make and cheap to keep (encoders, decoders, scratch memory): taken, used, put
/// back. There are never more than were in use at once.
#[derive(Debug)]
pub(crate) struct Stock<T>(Mutex<Vec<T>>);

impl<T> Default for Stock<T> {
    fn default() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<T> Stock<T> {
    /// A kept one, or else a new one by `make`.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn take_or<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let kept = self.0.lock().pop();
        kept.map_or_else(make, Ok)
    }

    /// Puts one back.
    pub(crate) fn put(&self, tool: T) {
        self.0.lock().push(tool);
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
        assert!(!waiting.join().unwrap().1, "closing wakes whoever waits");
        drop(second);
        assert!(pool.take().is_none());
    }

    #[test]
    fn a_stock_keeps_what_is_put_back() {
        let stock = Stock::default();
        assert_eq!(stock.take_or(|| Ok::<_, ()>(1)), Ok(1));
        assert_eq!(stock.take_or(|| Err("none")), Err("none"));
        stock.put(7);
        assert_eq!(stock.take_or(|| Ok::<_, ()>(1)), Ok(7));
    }
}
