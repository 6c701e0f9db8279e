//! Containers that the last round of reclaim kept out of the archive, in the record: for reports, also while no server
//! runs.

use holdfast_tiers::{Record, RecordError};
use serde::{Deserialize, Serialize};

use super::Tiers;

/// Key in the record.
const KEPT_BACK: &str = "kept_back";

/// Containers that the last round of reclaim kept out of the archive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptBack {
    pub(crate) at_ms: i64,
    pub(crate) containers: u64,
    pub(crate) bytes: u64,
    /// Storage class of the archive.
    pub(crate) class: String,
    /// Minimum days for which the class is paid for.
    pub(crate) minimum_days: u32,
}

/// `None`: no round has said so.
///
/// # Errors
/// The record's.
pub(crate) fn kept_back(record: &Record) -> Result<Option<KeptBack>, RecordError> {
    Ok(record.said(KEPT_BACK)?.and_then(|text| serde_json::from_str(&text).ok()))
}

impl Tiers {
    /// # Errors
    /// The record's.
    pub(crate) fn note_kept_back(&self, kept_back: &KeptBack) -> Result<(), RecordError> {
        // Made of numbers and a short text: it has a JSON form.
        let text = serde_json::to_string(kept_back).unwrap_or_default();
        self.copies.record().say(&[(KEPT_BACK, text)])
    }
}
