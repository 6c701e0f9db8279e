//! Tiers in which the data of a restore point lies.

use holdfast_types::ids::BackupId;

/// Plain bytes without holes and zeros, by where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupPlaces {
    pub backup: BackupId,
    /// Time at which that was looked up.
    pub at_ms: i64,
    pub here_bytes: u64,
    /// In the bucket alone, where they can be read.
    pub bucket_bytes: u64,
    /// In the bucket alone, where they must be thawed before they can be read.
    pub archive_bytes: u64,
}
