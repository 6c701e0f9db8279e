//! What a session is about to commit.

use holdfast_catalog::BackupCommit;
use holdfast_volume::BlobName;

/// A backup that is to exist, and its point.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) commit: BackupCommit,
    pub(super) name: BlobName,
    pub(super) bytes: Vec<u8>,
    /// Whether the point is durable: from then on the backup exists, and only the catalog may not know yet.
    pub(super) sealed: bool,
}
