//! Quotas of namespaces, and their usage.

use holdfast_proto::api::Quota;

use super::NamespaceRecord;

/// Usage that counts against a [`Quota`], and the number of names in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    pub stored_bytes: u64,
    pub protected_bytes: u64,
    pub restore_points: u64,
    /// Sessions since midnight, UTC.
    pub sessions_today: u64,
    pub vms: u64,
    pub jobs: u64,
}

/// A namespace with its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceQuota {
    pub namespace: NamespaceRecord,
    pub quota: Quota,
    pub usage: Usage,
}

/// Quota and usage that a backup must fit into to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StartAccount {
    pub quota: Quota,
    pub usage: Usage,
    /// Set if the VM is on record.
    pub knows_vm: bool,
    /// Set if the job is on record.
    pub knows_job: bool,
    /// Data of the VM's newest restore point; `None`: it has none.
    pub vm_protected_bytes: Option<u64>,
}

/// Tenths of a limit from which people are warned.
const NEAR_TENTHS: u128 = 9;

impl NamespaceQuota {
    /// Each limit with what counts against it: its name in words, used, limit.
    pub const fn limits(&self) -> [(&'static str, u64, Option<u64>); 4] {
        let Self { quota, usage, .. } = self;
        [
            ("stored bytes", usage.stored_bytes, quota.stored_bytes),
            ("protected bytes", usage.protected_bytes, quota.protected_bytes),
            ("restore points", usage.restore_points, quota.restore_points),
            ("backups a day", usage.sessions_today, quota.sessions_per_day),
        ]
    }

    /// The limits that are nearly reached, or passed.
    pub fn near(&self) -> Vec<&'static str> {
        let is_near = |used: u64, limit: u64| u128::from(used) * 10 >= u128::from(limit) * NEAR_TENTHS;
        let near = |(what, used, limit): (&'static str, u64, Option<u64>)| {
            limit.is_some_and(|limit| is_near(used, limit)).then_some(what)
        };
        self.limits().into_iter().filter_map(near).collect()
    }
}
