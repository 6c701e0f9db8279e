//! Agents' reports of false chunks in sealed regions, which the server cannot check (N6).
//!
//! A report names a chunk of a restore point and the commitment of the region it came in. The next backups send again what
//! is stored under that name with that commitment, and then there are two copies, both of which stay (N7) and are offered to
//! agents that restore (N8): a report may be a lie, and costs what it names being sent once more. A crash leaves each report
//! noted or not.

use std::sync::Arc;

use holdfast_catalog::AuditEntry;
pub use holdfast_proto::api::FalseChunk;
use holdfast_proto::limits::{FALSE_CHUNKS_MAX, REPORTED_REGIONS_MAX};
use holdfast_proto::region::Codec;
use holdfast_proto::region::sealed::commitment_of;
use holdfast_types::ids::{BackupId, NamespaceId};

use crate::core::Core;
use crate::error::EngineError;
use crate::recipe::TreeReader;
use crate::store::{Domain, NodeReader};

/// (N6) Notes what an agent says. Returns how many regions are to be sent again because of it that were not before.
pub(crate) fn note(
    core: &Arc<Core>,
    namespace: NamespaceId,
    backup: BackupId,
    reported: &[FalseChunk],
    who: &str,
) -> Result<u32, EngineError> {
    if reported.len() > FALSE_CHUNKS_MAX {
        let count = reported.len();
        return Err(EngineError::Invalid(format!(
            "the report names {count} chunks; the limit is {FALSE_CHUNKS_MAX}"
        )));
    }
    let record = core.catalog.backup(backup)?.filter(|record| record.namespace == namespace);
    let record = record.ok_or_else(|| EngineError::NotFound { what: "backup", name: backup.to_string() })?;
    let sealed = core.catalog.namespace(namespace)?.is_some_and(|namespace| namespace.key_id.is_some());
    if !sealed && !reported.is_empty() {
        return Err(EngineError::Invalid(
            "the namespace is not end-to-end encrypted: what is in it the server reads itself".to_owned(),
        ));
    }
    let domain = core.store.domain(namespace);
    let mut noted = 0;
    let mut open: Option<(&str, TreeReader<NodeReader>)> = None;
    let mut failure = None;
    for chunk in reported {
        if open.as_ref().is_none_or(|(name, _)| *name != chunk.disk) {
            let Some(known) = record.disks.iter().find(|known| known.name == chunk.disk) else {
                failure = Some(EngineError::NotFound { what: "disk", name: chunk.disk.clone() });
                break;
            };
            let nodes = NodeReader::new(Arc::clone(&core.store), domain.clone());
            open = Some((&known.name, TreeReader::open(nodes, known.root, known.size_bytes)?));
        }
        let Some((_, tree)) = &open else { break };
        // Only of what the caller may read: a name alone is no reason to look.
        if !names(tree, chunk)? {
            failure = Some(EngineError::Invalid(format!(
                "extent {} of disk {:?} has no chunk {}",
                chunk.extent, chunk.disk, chunk.fingerprint
            )));
            break;
        }
        if core.store.reported_count(namespace) >= REPORTED_REGIONS_MAX {
            failure = Some(EngineError::Limit(format!(
                "agents reported {REPORTED_REGIONS_MAX} regions of this namespace, which is as many as are kept: back its \
                 VMs up, so that they are sent again, and verify again"
            )));
            break;
        }
        noted += u32::from(suspect(core, &domain, chunk)?);
    }
    if noted > 0 {
        let (vm, reported) = (&record.vm, reported.len());
        core.catalog.audit(&AuditEntry {
            who: who.to_owned(),
            action: "chunk.reported".to_owned(),
            object: format!("backup {backup} of VM {vm:?}"),
            detail: format!(
                "{reported} chunks are not what their fingerprints say: the next backups send {noted} regions again"
            ),
        })?;
    }
    failure.map_or(Ok(noted), Err)
}

fn names(tree: &TreeReader<NodeReader>, chunk: &FalseChunk) -> Result<bool, EngineError> {
    if chunk.fingerprint.is_zero() || chunk.extent >= tree.extent_count() {
        return Ok(false);
    }
    let entry = tree.entry(chunk.extent)?;
    let node = tree.extent_of(chunk.extent, &entry)?;
    Ok(node.is_some_and(|node| node.pieces().iter().any(|piece| piece.fingerprint == chunk.fingerprint)))
}

/// Notes the copy of the chunk in the region with that commitment; the report is about no other, such as one that was
/// sent since. Returns true if that was news.
fn suspect(core: &Core, domain: &Domain, chunk: &FalseChunk) -> Result<bool, EngineError> {
    for found in core.store.copies(domain, &chunk.fingerprint)? {
        let (container, region) = (found.location.container, found.location.region);
        let stored = match found.container.read_region(region) {
            Ok(stored) => stored,
            // (R4)
            Err(error) if error.is_damage() => {
                core.store.note_failure(container, Some(region), &error);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if stored.codec == Codec::Sealed && commitment_of(&stored.payload) == Some(&chunk.commitment) {
            if core.store.is_reported(domain.namespace, found.location) {
                return Ok(false);
            }
            tracing::warn!(%container, region, "an agent says that stored data is not what it should be");
            core.store.note_report(domain.namespace, container, region)?;
            return Ok(true);
        }
    }
    Ok(false)
}
