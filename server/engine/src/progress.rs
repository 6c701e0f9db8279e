//! How long operations tell how far they are. The engine never prints.

/// Receives progress. Called often; implementations throttle.
pub trait Progress: Sync {
    /// `done` of `total` units of `phase` are done.
    fn step(&self, phase: &'static str, done: u64, total: u64);
}

/// Ignores all progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&self, _phase: &'static str, _done: u64, _total: u64) {}
}
