//! Retention in the bucket: what is told of it.

use holdfast_tiers::{RecordError, RetentionTotals};

use super::Tiers;

impl Tiers {
    /// Why what locked restore points need cannot be made to stay; `None`: it can.
    pub(crate) fn note_retention_failure(&self, failure: Option<String>) {
        *self.retention_failure.lock() = failure;
    }

    /// What was noted last.
    pub(crate) fn retention_failure(&self) -> Option<String> {
        self.retention_failure.lock().clone()
    }

    /// How much must stay, and how far that is behind. Blocks.
    ///
    /// # Errors
    /// The record's.
    pub(crate) fn retention(&self, now_ms: i64) -> Result<RetentionTotals, RecordError> {
        self.figures.retention(now_ms, || self.copies.record().retention_totals(now_ms))
    }
}
