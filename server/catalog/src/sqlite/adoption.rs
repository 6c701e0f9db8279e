//! Points of restore points that the catalog knows: it takes the stricter lock over.

use holdfast_types::clock::Clock;
use rusqlite::Transaction;

use super::{audit, locks, point_states};
use crate::{AuditEntry, BackupRecord, PointRecord, PointState, Result};

/// (L5) Takes over what a point says of a restore point that is known: the stricter lock always. A row that says more
/// than the point then is stale. (P10) Names were taken over before, of all restore points at once.
pub(crate) fn adopt(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    point: &PointRecord,
    known: &BackupRecord,
) -> Result<()> {
    let Some(PointState { revision, wanted, .. }) = point_states::of(tx, known.id)? else { return Ok(()) };
    let lock = point.lock.stricter(&known.lock);
    if lock != known.lock {
        locks::write(tx, known.id, &lock)?;
        let entry = AuditEntry {
            who: "engine".to_owned(),
            action: "backup.adopt".to_owned(),
            object: known.id.to_string(),
            detail: format!("taken over from revision {} of its point: its lock", point.revision),
        };
        audit::add(tx, clock, &entry)?;
    }
    if point.revision > revision {
        point_states::note_sealed(tx, known.id, point.revision)?;
    }
    let has_names = point.attempt.vm == known.vm && point.attempt.job == known.job;
    if lock != point.lock || !has_names || point.revision < revision.max(wanted) {
        point_states::mark_stale(tx, known.id, point.revision)?;
    }
    Ok(())
}
