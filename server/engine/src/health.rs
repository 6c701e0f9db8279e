//! Whether the repository may still be written to.
//!
//! After a failed fsync nobody knows what is on the disk, so nothing is retried: the engine stops accepting
//! writes until it is started again, and says why. Reading goes on.

use std::sync::OnceLock;

/// The latch. Once set it stays.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<String>);

impl Health {
    /// Sets the latch; the first reason is kept.
    pub(crate) fn latch(&self, reason: &str) {
        if self.0.set(reason.to_owned()).is_ok() {
            tracing::error!(reason, "the repository is read-only until the server is restarted");
        }
    }

    /// Why writing is refused, if it is.
    pub(crate) fn read_only_reason(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }
}
