//! Plan of what rules keep of the restore points of one VM. Reads only.

use std::collections::HashMap;

use holdfast_engine::catalog::{BackupFilter, BackupRecord, Catalog, PageRequest, RetentionLock};
use holdfast_engine::ids::{BackupId, NamespaceId};
use holdfast_proto::api::Rules;
use holdfast_retention::{Reason, RestorePoint, TimeZone, decide};

use crate::error::ServiceError;

/// Restore points of one VM that are decided about at most: an hourly one for eleven years; 20 MB in memory.
const POINTS_PER_VM_MAX: usize = if cfg!(test) { 20 } else { 100_000 };

/// Restore points read at a time.
const PAGE: u32 = 1000;

/// Decision on one restore point.
#[derive(Debug, Clone)]
pub(crate) struct Decided {
    pub(crate) id: BackupId,
    pub(crate) vm: String,
    pub(crate) job: String,
    pub(crate) started_ms: i64,
    /// Why it stays; empty: it goes.
    pub(crate) reasons: Vec<Reason>,
}

impl Decided {
    /// Returns true if it stays.
    pub(crate) const fn keep(&self) -> bool {
        !self.reasons.is_empty()
    }
}

/// Decides about those restore points of a VM that are `mine`, newest first. `None`: there are [too many](too_many). Blocks.
///
/// # Errors
/// The catalog's.
pub(crate) fn decide_vm(
    catalog: &Catalog,
    now_ms: i64,
    (namespace, vm): (NamespaceId, &str),
    mine: &dyn Fn(&BackupRecord) -> bool,
    (rules, zone): (&Rules, &TimeZone),
) -> Result<Option<Vec<Decided>>, ServiceError> {
    let (mut points, mut jobs) = (Vec::new(), HashMap::new());
    let is_whole = each_point(catalog, (namespace, vm), &mut |backup, point| {
        if mine(backup) {
            points.push(point);
            jobs.insert(backup.id, backup.job.clone());
        }
    })?;
    if !is_whole {
        return Ok(None);
    }
    let decisions = decide(&points, rules, zone, now_ms);
    let named = decisions.into_iter().map(|decision| Decided {
        id: decision.id,
        vm: vm.to_owned(),
        job: jobs.remove(&decision.id).unwrap_or_default(),
        started_ms: decision.at_ms,
        reasons: decision.reasons,
    });
    Ok(Some(named.collect()))
}

/// (L9) What is told of a VM that rules pass by.
pub(crate) fn too_many(vm: &str) -> String {
    format!(
        "VM {vm:?} is skipped: it has more than {POINTS_PER_VM_MAX} restore points; delete some by hand first"
    )
}

/// Hands over the restore points of a VM, as rules look at them. Returns false when there are too many. Blocks.
///
/// # Errors
/// As [`decide_vm`].
pub(super) fn each_point(
    catalog: &Catalog,
    (namespace, vm): (NamespaceId, &str),
    each: &mut dyn FnMut(&BackupRecord, RestorePoint<BackupId>),
) -> Result<bool, ServiceError> {
    let lock_time_ms = catalog.lock_time()?;
    let filter = BackupFilter {
        namespaces: Some(vec![namespace]),
        vm: Some(vm.to_owned()),
        ..BackupFilter::default()
    };
    let (mut count, mut token) = (0, String::new());
    loop {
        let page = catalog.list_backups(&filter, PageRequest { size: PAGE, token: &token })?;
        let ids: Vec<BackupId> = page.items.iter().map(|backup| backup.id).collect();
        let damaged: HashMap<BackupId, u64> = catalog.lost_bytes(&ids)?.into_iter().collect();
        count += page.items.len();
        for backup in &page.items {
            let lost_bytes = damaged.get(&backup.id).copied().unwrap_or(0);
            let whole = backup.missing_disks.is_empty() && lost_bytes == 0;
            each(backup, RestorePoint { whole, ..point(backup, lock_time_ms) });
        }
        if count > POINTS_PER_VM_MAX {
            tracing::warn!("{}", too_many(vm));
            return Ok(false);
        }
        match page.next {
            Some(next) => token = next,
            None => return Ok(true),
        }
    }
}

/// The lock of a restore point as far as it is in force: until when, and whether it is held.
pub(crate) fn in_force(lock: &RetentionLock, lock_time_ms: Option<i64>) -> (Option<i64>, bool) {
    let dated = RetentionLock { until_ms: lock.until_ms, hold: None };
    (lock.until_ms.filter(|_| dated.is_in_force(lock_time_ms)), lock.hold.is_some())
}

fn point(backup: &BackupRecord, lock_time_ms: Option<i64>) -> RestorePoint<BackupId> {
    let (locked_until_ms, held) = in_force(&backup.lock, lock_time_ms);
    RestorePoint {
        id: backup.id,
        at_ms: backup.started_ms,
        // (L7) Which is the newest, and the newest whole one, no clock says.
        commit: backup.ordinal,
        whole: backup.missing_disks.is_empty(),
        locked_until_ms,
        held,
    }
}
