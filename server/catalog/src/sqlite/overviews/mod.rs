//! Overviews of VMs, disks, jobs, namespaces, backups and containers, and their cost.

pub(crate) mod containers;
pub(crate) mod jobs;
pub(crate) mod vms;

pub(crate) use containers::{sample as sample_containers, totals as container_totals};
pub(crate) use jobs::{accepted_changes, backup_costs, jobs, namespaces, newest_ms, repository};
#[cfg(test)]
pub(crate) use vms::DISK_COST;
pub(crate) use vms::{disks, vms};

use crate::AHEAD_MS;

/// Times from here on were told by a clock that was [ahead](AHEAD_MS). The result stays the same for some time, so that
/// statements that contain it are compiled once.
const fn not_ahead(now_ms: i64) -> i64 {
    now_ms.div_euclid(AHEAD_MS).saturating_add(2).saturating_mul(AHEAD_MS)
}

/// The window in which new bytes count as recent.
const RECENT_MS: i64 = 30 * crate::sqlite::convert::DAY_MS;
