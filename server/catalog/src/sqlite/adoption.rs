//! What a point says of a restore point that the catalog knows: of the newer and the stricter, the catalog takes over.

use holdfast_types::clock::Clock;
use rusqlite::Transaction;

use super::{audit, locks, point_states, renames};
use crate::{AuditEntry, BackupRecord, PointRecord, PointState, Result};

/// (L5) Takes over what a point says of a restore point that is known: the stricter lock always, and its names when its
/// revision is newer than the row. A row that says more than the point then is stale.
pub(super) fn adopt(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    point: &PointRecord,
    known: &BackupRecord,
) -> Result<()> {
    let Some(PointState { revision, wanted, .. }) = point_states::of(tx, known.id)? else { return Ok(()) };
    let is_stale = wanted > revision;
    let lock = point.lock.stricter(&known.lock);
    let mut detail = Vec::new();
    if lock != known.lock {
        locks::write(tx, known.id, &lock)?;
        detail.push("its lock".to_owned());
    }
    if point.revision > revision && !is_stale {
        detail.extend(renames::follow(tx, clock, point, known)?);
    }
    if point.revision > revision {
        point_states::note_sealed(tx, known.id, point.revision)?;
    }
    if is_stale || lock != point.lock || point.revision < revision {
        point_states::mark_stale(tx, known.id, point.revision)?;
    }
    if detail.is_empty() {
        return Ok(());
    }
    let entry = AuditEntry {
        who: "engine".to_owned(),
        action: "backup.adopt".to_owned(),
        object: known.id.to_string(),
        detail: format!("taken over from revision {} of its point: {}", point.revision, detail.join(", ")),
    };
    audit::add(tx, clock, &entry)
}
