//! How much each connection may have sent that no call has read yet: one budget, divided as connections come.
//!
//! HTTP/2 fixes a connection's window when it begins. A window for each of as many connections as there may be would be
//! too small for a fast line; so every connection has [`WINDOW_MIN_BYTES`], and one from an address that has shown a valid
//! token gets a share of what is left on top. The first ones thereby have large windows, and when hundreds are
//! open the next ones have small ones, which hundreds of connections together fill any line with. An agent's first
//! connection is its control connection, which needs no more than the least.

use std::sync::Arc;

use parking_lot::Mutex;

/// Of any connection; HTTP/2's own default.
pub(crate) const WINDOW_MIN_BYTES: u64 = 64 << 10;

/// Of any connection: 160 ms of a line of 100 MB/s.
pub(crate) const WINDOW_MAX_BYTES: u64 = 16 << 20;

/// One in so many of the bytes that are left goes to the next connection.
const SHARE: u64 = 32;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Windows {
    /// What is left beyond the least of as many connections as there may be.
    left_bytes: Mutex<u64>,
}

impl Windows {
    /// Divides `bytes` between `connections` at most.
    pub(crate) fn new(bytes: u64, connections: u32) -> Arc<Self> {
        let least = WINDOW_MIN_BYTES.saturating_mul(connections.into());
        Arc::new(Self { left_bytes: Mutex::new(bytes.saturating_sub(least)) })
    }

    /// For a connection that begins, from an address that is known or not.
    pub(super) fn take(self: &Arc<Self>, is_known: bool) -> Window {
        let mut left = self.left_bytes.lock();
        let extra_bytes = if is_known { (*left / SHARE).min(WINDOW_MAX_BYTES - WINDOW_MIN_BYTES) } else { 0 };
        *left -= extra_bytes;
        Window { windows: Arc::clone(self), extra_bytes }
    }
}

/// The window of one connection, given back when it ends.
#[derive(Debug)]
pub(super) struct Window {
    windows: Arc<Windows>,
    extra_bytes: u64,
}

impl Window {
    pub(super) fn bytes(&self) -> u32 {
        u32::try_from(WINDOW_MIN_BYTES + self.extra_bytes).unwrap_or(u32::MAX)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        *self.windows.left_bytes.lock() += self.extra_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_shrink_with_their_number_and_never_exceed_the_whole() {
        let total: u64 = 218 << 20;
        let windows = Windows::new(total, 1024);
        let first = windows.take(true);
        assert!(first.bytes() > 4 << 20, "{}", first.bytes());
        assert_eq!(u64::from(windows.take(false).bytes()), WINDOW_MIN_BYTES, "an unknown address");
        let rest: Vec<Window> = (1..1024).map(|_| windows.take(true)).collect();
        let sum: u64 = rest.iter().chain([&first]).map(|window| u64::from(window.bytes())).sum();
        assert!(sum <= total, "{sum}");
        assert!(rest.last().unwrap().bytes() < 128 << 10);
        let bytes = first.bytes();
        drop((first, rest));
        assert_eq!(windows.take(true).bytes(), bytes, "all of it was given back");
    }

    #[test]
    fn no_window_is_larger_than_a_fast_line_needs_nor_smaller_than_the_least() {
        let large = Windows::new(64 << 30, 16).take(true);
        assert_eq!(u64::from(large.bytes()), WINDOW_MAX_BYTES);
        let small = Windows::new(0, 16).take(true);
        assert_eq!(u64::from(small.bytes()), WINDOW_MIN_BYTES);
    }
}
