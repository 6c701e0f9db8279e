//! Locks and holds that keep restore points from being deleted, and policies that decide which are.

use holdfast_proto::api::Rules;
use holdfast_types::ids::{BackupId, NamespaceId, PolicyId, VmId};

use super::NamespaceRecord;

/// Lock and hold that keep a restore point from being deleted. The default: neither.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RetentionLock {
    /// Locked until the lock clock passes this; see [`Catalog::lock_time`](crate::Catalog::lock_time). Never gets
    /// earlier.
    pub until_ms: Option<i64>,
    /// Held without an end.
    pub hold: Option<LegalHold>,
}

impl RetentionLock {
    /// Returns true if it keeps anything when the lock clock shows `lock_time_ms` (`None`: it was never advanced).
    pub fn is_in_force(&self, lock_time_ms: Option<i64>) -> bool {
        self.hold.is_some()
            || self.until_ms.is_some_and(|until_ms| lock_time_ms.is_none_or(|now_ms| until_ms > now_ms))
    }

    /// The stricter of both in each respect: the later end, and a hold where either has one.
    #[must_use]
    pub fn stricter(&self, other: &Self) -> Self {
        Self {
            until_ms: self.until_ms.max(other.until_ms),
            hold: self.hold.clone().or_else(|| other.hold.clone()),
        }
    }
}

/// Keeps a restore point until it is released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LegalHold {
    pub reason: String,
    /// Name of the token that placed it.
    pub who: String,
    pub since_ms: i64,
}

/// Another lock of restore points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LockChange {
    /// Locks those until then that are not locked for as long.
    Lock { until_ms: i64 },
    /// Holds those that are not held.
    Hold(LegalHold),
    /// Releases those that are held; locks stay.
    Release { reason: String },
}

/// A restore point that is being deleted: its point on the volume may still be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletionRecord {
    pub backup: BackupId,
    pub namespace: NamespaceRecord,
    /// Name of its VM when the deletion began.
    pub vm: String,
    /// The revision of its point, as far as the catalog knew.
    pub revision: u32,
    /// Set if its point was about to be sealed anew, so that it may lie elsewhere than its names say.
    pub stale: bool,
    pub begun_ms: i64,
}

/// Revisions of a restore point's row and of its point on the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointState {
    pub backup: BackupId,
    /// The revision that was sealed.
    pub revision: u32,
    /// The revision that would say what the row says; higher than the other: the point is stale.
    pub wanted: u32,
}

/// A VM whose restore points are, or were, to be found under this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedVm {
    pub id: VmId,
    pub namespace: NamespaceId,
    pub name: String,
}

/// Objects that can be renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Named {
    Vm,
    Job,
}

/// Another name of a VM or job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rename {
    pub namespace: NamespaceId,
    pub kind: Named,
    pub from: String,
    pub to: String,
}

/// Rules for which restore points in its scope are kept when the others are deleted, and for how long new ones are
/// locked. `holdfast-retention` gives the rules their meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    pub id: PolicyId,
    /// Unique within its namespace.
    pub name: String,
    pub namespace: NamespaceId,
    /// Only this VM; `None`: every VM of the namespace.
    pub vm: Option<String>,
    /// Only restore points of this job; `None`: of every job. Where a VM is named as well, both must hold.
    pub job: Option<String>,
    pub rules: Rules,
    /// A calendar expression; empty: it is run by hand only.
    pub schedule: String,
    /// An IANA name, such as `Europe/Berlin`.
    pub time_zone: String,
    /// Days for which each new restore point in its scope is locked, at most
    /// [`LOCK_DAYS_MAX`](crate::LOCK_DAYS_MAX); 0: it is not.
    pub lock_days: u32,
    /// Days after which data that only restore points in its scope need may go to an archive, at most
    /// [`ARCHIVE_DAYS_MAX`](crate::ARCHIVE_DAYS_MAX); `None`: as the server's settings say.
    pub archive_after_days: Option<u32>,
    /// A policy that is not enabled deletes nothing and locks nothing.
    pub enabled: bool,
    /// Time since which it rests, because the catalog was an older copy: it deletes nothing until an operator sets it,
    /// and locks on. Written by the catalog.
    pub resting_since_ms: Option<i64>,
    /// When and by whom it was last set; written by the catalog.
    pub updated_ms: i64,
    pub updated_by: String,
}

impl RetentionPolicy {
    /// Returns whether it deletes anything.
    pub const fn is_at_work(&self) -> bool {
        self.enabled && self.resting_since_ms.is_none()
    }

    /// Returns true if a restore point of this VM and job is in its scope, namespaces aside.
    pub fn covers(&self, vm: &str, job: &str) -> bool {
        self.vm.as_deref().is_none_or(|only| only == vm) && self.job.as_deref().is_none_or(|only| only == job)
    }
}
