//! Quotas of namespaces, and their usage.

use holdfast_types::ids::NamespaceId;

use crate::sqlite::{Catalog, quotas};
use crate::{FAILED_ROWS_PER_VM_MAX, NamespaceQuota, Quota, Result, StartAccount, validate};

const _: () = assert!(
    FAILED_ROWS_PER_VM_MAX as usize / 2 >= holdfast_proto::limits::DISKS_PER_BACKUP_MAX,
    "the latest attempt is never added to others"
);

/// Used at the start of every backup. Each function finds a few rows, however much the repository holds: the sums are
/// kept as rows change.
///
/// Across processes: each is one transaction, and the sums are right after every transaction of any process.
impl Catalog {
    /// Sets all limits of a namespace, and enters the old and the new ones into the audit log on behalf of `who`, in
    /// one transaction. Gives the old ones. `NotFound`: no such namespace. `Invalid`: more than can be kept.
    pub fn set_quota(&self, namespace: NamespaceId, quota: &Quota, who: &str) -> Result<Quota> {
        self.write(|tx| quotas::set(tx, self.clock.as_ref(), namespace, quota, who))
    }

    /// Limits and sums of these namespaces (`None`: all), by name.
    pub fn quotas(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<NamespaceQuota>> {
        validate::scope(namespaces)?;
        self.look_up(|c| quotas::list(c, self.clock.as_ref(), namespaces))
    }

    /// Limits and sums that a backup of `vm` by `job` must fit into. `NotFound`: no such namespace.
    pub fn start_account(&self, namespace: NamespaceId, vm: &str, job: &str) -> Result<StartAccount> {
        self.look_up(|c| quotas::start_account(c, self.clock.as_ref(), namespace, vm, job))
    }

    /// Counts a backup that begins now. `false`: with it there would be more today than the namespace's limit; then
    /// nothing was counted. `NotFound`: no such namespace.
    pub fn count_session(&self, namespace: NamespaceId) -> Result<bool> {
        self.write(|tx| quotas::count_session(tx, self.clock.as_ref(), namespace))
    }
}
