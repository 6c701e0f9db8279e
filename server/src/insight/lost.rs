//! What of a restore point cannot be restored, in words.

use holdfast_engine::catalog::DamagedDisk;
use holdfast_proto::when::timestamp;

/// Ranges of a disk shown at most.
const RANGES_SHOWN: usize = 8;

/// One sentence: which bytes of which disk of which restore point.
pub(crate) fn lost_text(disk: &DamagedDisk) -> String {
    let DamagedDisk { backup, namespace_name, vm, started_ms, disk: name, lost, .. } = disk;
    let shown = lost.listed.iter().take(RANGES_SHOWN);
    let ranges: Vec<String> = shown
        .map(|range| format!("{} to {}", range.start, range.start.saturating_add(range.bytes)))
        .collect();
    let more = lost.ranges.saturating_sub(ranges.len() as u64);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!(
        "VM {vm:?} (namespace {namespace_name:?}), restore point {backup} of {}, disk {name:?}: {} bytes cannot be restored: \
         {}{more}",
        timestamp(*started_ms),
        lost.bytes,
        ranges.join(", ")
    )
}
