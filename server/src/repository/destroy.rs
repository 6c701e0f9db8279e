//! Destroying a namespace: its restore points, its VMs, and the keys of what it wrote, so that copies of its containers
//! that lie elsewhere cannot be read with the keys of today.
//!
//! The order: nothing is locked or held → restore points and VMs deleted (L1) → containers freed → a new snapshot of the
//! catalog sealed, and the older ones removed → its data keys dropped and the repository key changed, in one table, which a
//! new key file opens (K4) → a bucket with copies follows: first the new table, then the old one goes from there (T7), then
//! all else. A crash anywhere before the table leaves a namespace with fewer restore points; running it again goes on. What
//! is left to do in the bucket, the next server does.

use std::sync::Arc;

use holdfast_engine::catalog::{AuditEntry, Catalog};
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::NamespaceId;
use holdfast_engine::{Engine, ReclaimControl, ReclaimOptions};
use holdfast_keys::slots::SlotInfo;
use holdfast_proto::ErrorCode;

use super::encryption::KeySource;
use super::{Beside, Tiers, open_with_all, record_error};
use crate::config::Settings;
use crate::error::ServiceError;

/// Result of destroying a namespace.
#[derive(Debug)]
pub(crate) struct Destroyed {
    pub(crate) vms: u64,
    pub(crate) restore_points: u64,
    pub(crate) freed_bytes: u64,
    /// Bytes that could not be freed, and are unreadable now.
    pub(crate) left_bytes: u64,
    /// Data keys that are gone.
    pub(crate) keys: usize,
    pub(crate) repository_key: String,
    /// Slots that no longer open the repository.
    pub(crate) slots: Vec<SlotInfo>,
    /// The bucket that has copies.
    pub(crate) bucket: Option<InBucket>,
}

/// State of the copies in a bucket.
#[derive(Debug)]
pub(crate) struct InBucket {
    pub(crate) location: String,
    /// Copies still to be removed from there, and why they were not.
    pub(crate) left: Option<(u64, String)>,
}

/// Destroys the namespace `name`, while no server is running.
///
/// # Errors
/// `Busy` beside a server; `NotFound`; `Invalid`: the repository is not encrypted, or not all of it yet; `Forbidden`: a
/// restore point is locked or held, and nothing was changed; what cannot be read or written.
pub(crate) fn destroy_namespace(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    name: &str,
    who: &str,
) -> Result<Destroyed, ServiceError> {
    let (parts, Beside { encryption, tiers }) = open_with_all(settings, clock)?;
    let encryption = encryption.ok_or_else(|| {
        ServiceError::invalid(
            "the repository is not encrypted, so there are no keys to destroy; delete the VMs with 'holdfast-server vm remove \
             --delete-restore-points', and run 'holdfast reclaim'",
        )
    })?;
    if encryption.accepts_plain() {
        return Err(ServiceError::invalid(
            "not everything is encrypted yet, and what lies in the open cannot be destroyed with its keys: let the server run \
             until 'holdfast-server key status' says that nothing is left",
        ));
    }
    let engine = Engine::assemble(parts)?;
    let catalog = engine.catalog().as_ref();
    let namespace = catalog
        .namespace_by_name(name)?
        .ok_or_else(|| ServiceError::new(ErrorCode::NotFound, format!("there is no namespace {name:?}")))?
        .id;
    // A key file that cannot be made is said before anything is deleted.
    let source = KeySource::of(settings);
    let secret = source.renew()?;
    let emptied = engine.empty_namespace(namespace, who, &format!("namespace {name:?} is destroyed"));
    let (vms, restore_points) = emptied.inspect_err(|_| source.drop_renewed())?;
    for policy in catalog.policies(Some(&[namespace]))? {
        catalog.remove_policy(policy.id, who)?;
    }
    let freed_bytes = free(&engine);
    let left_bytes = stored_bytes(catalog, namespace)?;
    engine.renew_snapshots()?;
    let shredded = encryption.shred(namespace, &source, &secret)?;
    let keys = shredded.keys.len();
    let bucket = tiers.as_deref().map(in_bucket).transpose()?;
    let copies = bucket.as_ref().map_or_else(String::new, |bucket| match &bucket.left {
        None => format!(", copies in {} removed", bucket.location),
        Some((left, why)) => format!(", {left} copies still in {}: {why}", bucket.location),
    });
    catalog.audit(&AuditEntry {
        who: who.to_owned(),
        action: "namespace.destroy".to_owned(),
        object: name.to_owned(),
        detail: format!(
            "{vms} VMs with {restore_points} restore points deleted, {keys} data keys destroyed, repository key {} in place of {}{copies}",
            shredded.repository_key, shredded.before
        ),
    })?;
    engine.shutdown()?;
    let (repository_key, slots) = (shredded.repository_key, shredded.slots);
    Ok(Destroyed { vms, restore_points, freed_bytes, left_bytes, keys, repository_key, slots, bucket })
}

/// Why blobs are left in the bucket that was asked to remove them.
const MUST_STAY: &str = "they must stay there until their retention ends, and go then while a server runs";

/// Removes the copies in the bucket as well.
fn in_bucket(tiers: &Tiers) -> Result<InBucket, ServiceError> {
    let settled = tiers.settle();
    let left = tiers.copies.record().removals_count().map_err(record_error)?;
    let left = match settled {
        Err(why) => Some((left, why)),
        Ok(()) if left > 0 => Some((left, MUST_STAY.to_owned())),
        Ok(()) => None,
    };
    Ok(InBucket { location: tiers.location.clone(), left })
}

/// Frees what nothing needs. What cannot be freed now is unreadable without its keys, and a later round frees it.
fn free(engine: &Engine) -> u64 {
    let options =
        ReclaimOptions { live_share_pct: 0, copied_per_freed: 0, merge: false, ..ReclaimOptions::default() };
    match engine.reclaim(&options, &Arc::new(ReclaimControl::default())) {
        Ok(report) => report.freed_bytes,
        Err(error) => {
            tracing::warn!(%error, "the containers of the namespace cannot be freed now");
            0
        }
    }
}

fn stored_bytes(catalog: &Catalog, namespace: NamespaceId) -> Result<u64, ServiceError> {
    let quotas = catalog.quotas(None)?;
    let found = quotas.into_iter().find(|found| found.namespace.id == namespace);
    Ok(found.map_or(0, |found| found.usage.stored_bytes))
}
