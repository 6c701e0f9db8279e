//! A clean stop: everything durable and agreed on, then the mark that says so ([`crate::clean_stop`]).
//!
//! A crash before the mark leaves what any crash leaves.

use holdfast_volume::Volume;

use crate::audit::Audit;
use crate::clean_stop::CleanStop;
use crate::core::Core;
use crate::error::EngineError;
use crate::health::Work;

/// Makes the index and the catalog durable and writes the mark. The sessions have ended. `snapshot`: the number of the one
/// that holds the catalog as it is, or will.
pub(crate) fn stop(core: &Core, audit: &Audit, index: &dyn Volume, snapshot: u64) -> Result<(), EngineError> {
    // From here on no container appears: what was sealed is known.
    core.volume.close();
    audit.close();
    let sound = core.health.stopped().is_empty();
    if sound {
        core.store.index.checkpoint()?;
    }
    core.store.index.stop_maintenance();
    if core.health.reason(Work::Catalog).is_none() {
        core.catalog.checkpoint()?;
    }
    if sound && let Some(mark) = mark(core, audit, snapshot)? {
        mark.write(index)?;
    }
    Ok(())
}

/// The mark of the state as it is; `None` when there is something the next start has to look for.
fn mark(core: &Core, audit: &Audit, snapshot: u64) -> Result<Option<CleanStop>, EngineError> {
    if let Some(reason) = core.unrecorded.reason() {
        // (S8) Only a start without the mark looks for it.
        tracing::warn!(reason, "the next start looks for what the catalog has not taken");
        return Ok(None);
    }
    if !core.unrecorded.is_all_read() {
        // (P6, S12) Only a start without the mark looks for it.
        tracing::warn!("not everything on the volume could be read; the next start tries again");
        return Ok(None);
    }
    if core.has_left_point() {
        // (P3) Only a start without the mark compares points with rows.
        tracing::warn!(
            "there may be restore points that the catalog does not know; the next start enters them"
        );
        return Ok(None);
    }
    if audit.met_unread() {
        tracing::warn!("a container could not be read and has no row; the next start looks for it");
        return Ok(None);
    }
    if core.store.met_passed_by() {
        // (K7) With the mark it would not be met again: the index may lack what is in it.
        tracing::warn!("a container was skipped, because it could not be read; the next start looks for it");
        return Ok(None);
    }
    let mut audit_from = audit.from();
    // (D2) Containers deleted since are neither in the index nor have a row.
    for id in core.volume.sealed().into_iter().filter(|id| !core.store.leftovers.is_gone(*id)) {
        if !core.store.index.is_covered(id) {
            tracing::warn!(container = %id, "sealed, but not in the index; the next start looks for it");
            return Ok(None);
        }
        if core.catalog.container(id)?.is_none() {
            audit_from = audit_from.min(id.get());
        }
    }
    let manifest = core.store.index.manifest_sequence();
    // Takes a number, so that no other state of the catalog has the same next one.
    let next_container = core.catalog.reserve_container_numbers(1)?.end;
    Ok(Some(CleanStop { repository: core.repository, next_container, manifest, audit_from, snapshot }))
}
