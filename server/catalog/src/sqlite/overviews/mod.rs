//! What there is, with what it costs: VMs, disks, jobs, namespaces, backups, containers.

mod containers;
mod jobs;
mod vms;

pub(super) use containers::{
    days as container_days, sample as sample_containers, totals as container_totals,
};
pub(super) use jobs::{accepted_changes, backup_costs, jobs, namespaces, repository};
#[cfg(test)]
pub(super) use vms::DISK_COST;
pub(super) use vms::{disks, vms};

/// The window in which new bytes count as recent.
const RECENT_MS: i64 = 30 * crate::reports::DAY_MS;
