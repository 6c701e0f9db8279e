//! Restore points that policies will have deleted after some time: what only they need is not worth a storage class that is
//! paid for longer.

use std::collections::{HashMap, HashSet};

use holdfast_engine::Engine;
use holdfast_engine::catalog::{BackupRecord, RetentionPolicy};
use holdfast_engine::ids::{BackupId, NamespaceId, PolicyId};
use holdfast_retention::{RestorePoint, leaving, zone};

use super::plan::each_point;
use super::policies;
use super::run::each_vm;
use crate::error::ServiceError;

/// What is known to leave at most: 16 bytes each, and more in the set. What is beyond counts as staying.
const LEAVING_MAX: usize = 4_000_000;

/// Restore points of a VM by the policy that decides about them.
type Governed = HashMap<PolicyId, Vec<RestorePoint<BackupId>>>;

/// Restore points that leave, and VMs with too many restore points, of which nothing counts as leaving.
#[derive(Debug, Default)]
pub(crate) struct Leaving {
    pub(crate) points: HashSet<BackupId>,
    pub(crate) skipped: Vec<String>,
}

/// See the module's text. `None`: `go_on` said no. Blocks.
///
/// # Errors
/// Those of the catalog; `Invalid`: a policy whose time zone is not known any more.
pub(crate) fn leaving_within(
    engine: &Engine,
    days: u32,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Leaving>, ServiceError> {
    let now_ms = engine.deciding_time_ms();
    let mut found = Leaving::default();
    for namespace in engine.catalog().namespaces()? {
        let policies = policies::of_namespace(engine.catalog().as_ref(), namespace.id)?;
        if !policies.iter().any(RetentionPolicy::is_at_work) {
            continue;
        }
        let mut stopped = false;
        each_vm(engine, namespace.id, &mut |vm| {
            stopped = !go_on();
            if !stopped {
                of_vm(engine, (namespace.id, vm), &policies, (now_ms, days), &mut found)?;
            }
            Ok(!stopped && found.points.len() < LEAVING_MAX)
        })?;
        if stopped {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

fn of_vm(
    engine: &Engine,
    (namespace, vm): (NamespaceId, &str),
    policies: &[RetentionPolicy],
    (now_ms, days): (i64, u32),
    found: &mut Leaving,
) -> Result<(), ServiceError> {
    let mut governed = Governed::new();
    let is_whole =
        each_point(engine.catalog().as_ref(), (namespace, vm), &mut |backup: &BackupRecord, point| {
            // One that is switched off, or rests, keeps everything.
            let policy = policies::governing(policies, &backup.vm, &backup.job);
            let policy = policy.filter(|policy| policy.is_at_work());
            if let Some(policy) = policy {
                governed.entry(policy.id).or_default().push(point);
            }
        })?;
    if !is_whole {
        // (L9) Nor is anything of this VM deleted.
        found.skipped.push(vm.to_owned());
        return Ok(());
    }
    for policy in policies {
        let Some(points) = governed.get(&policy.id) else { continue };
        let zone = zone(&policy.time_zone).map_err(|error| ServiceError::invalid(error.to_string()))?;
        found.points.extend(leaving(points, &policies::rules(policy), &zone, now_ms, days));
    }
    Ok(())
}
