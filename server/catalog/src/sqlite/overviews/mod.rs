//! What there is, with what it costs: VMs, disks, jobs, namespaces, backups, containers.

pub(crate) mod containers;
pub(crate) mod jobs;
pub(crate) mod vms;

pub(crate) use containers::{
    days as container_days, sample as sample_containers, totals as container_totals,
};
pub(crate) use jobs::{accepted_changes, backup_costs, jobs, namespaces, repository};
#[cfg(test)]
pub(crate) use vms::DISK_COST;
pub(crate) use vms::{disks, vms};

/// The window in which new bytes count as recent.
const RECENT_MS: i64 = 30 * crate::sqlite::convert::DAY_MS;
