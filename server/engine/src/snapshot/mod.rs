//! Catalog snapshots: compressed copies of the catalog on the volume, for what points cannot tell: tokens, jobs, history,
//! audit. [`write`] seals them, [`mod@read`] proves one whole, [`keeper`] decides when, and how many are kept.
//!
//! A snapshot is `snapshots/NUMBER`, 16 hexadecimal digits; the highest number that can be read is the newest. A
//! crash in the middle leaves an unfinished blob, which the next start discards, or one snapshot more than are kept.

mod keeper;
mod read;
#[cfg(test)]
mod tests;
mod write;

use holdfast_volume::{BlobName, Volume, VolumeError, list_all};

pub(crate) use keeper::{SnapshotJob, Snapshots};
pub use read::{read_snapshot, read_snapshot_blob, read_snapshot_header};
pub use write::seal_snapshot;

pub use crate::format::snapshot::SnapshotHeader;

/// Snapshots kept: with one an hour, the last eight hours of a day with changes, and all that eight stops left.
pub(crate) const KEPT: usize = 8;

/// The folder of all snapshots.
#[expect(clippy::expect_used, reason = "a constant")]
pub(crate) fn folder() -> BlobName {
    BlobName::new("snapshots").expect("a valid name")
}

#[expect(clippy::expect_used, reason = "made of digits")]
fn name(number: u64) -> BlobName {
    BlobName::new(format!("snapshots/{number:016x}")).expect("a valid name")
}

fn parse(name: &BlobName) -> Option<u64> {
    let digits = name.as_str().strip_prefix("snapshots/").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The snapshots on a volume, the newest first; whether they can be read is not looked at.
///
/// # Errors
/// When the volume cannot be listed.
pub fn list_snapshots(volume: &dyn Volume) -> Result<Vec<(u64, BlobName)>, VolumeError> {
    let mut found = Vec::new();
    for entry in list_all(volume, &folder()) {
        let entry = entry?;
        match parse(&entry.name) {
            Some(number) => found.push((number, entry.name)),
            None => tracing::warn!(name = %entry.name, "ignored an unexpected file among the snapshots"),
        }
    }
    found.reverse();
    Ok(found)
}
