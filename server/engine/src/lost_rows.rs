//! Rows of containers that are gone for good: a catalog that was put back from an older copy brings back the rows of
//! containers deleted since, and a lost container keeps its row when every backup that needed it has healed.
//!
//! A row is dropped when its file is missing and nothing needs it: every chunk of every restore point of its namespace
//! is found in other containers. When something is not found, it cannot be told which of the missing containers held
//! it, so all of them stay, as damage. A crash in between leaves condemned rows, which the next start finishes, and
//! rows without a file, which it takes for damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_types::ids::{ContainerId, NamespaceId};

use crate::check;
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::Progress;
use crate::recovery;

/// Rows dropped in one transaction.
const DROPPED_PER_TRANSACTION: usize = 256;

/// What became of the rows without a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DroppedRows {
    /// Nothing needs them.
    pub dropped: u64,
    /// Something may need them: they are damage.
    pub kept: u64,
}

/// See the module's text.
pub(crate) fn drop_unneeded(core: &Arc<Core>, progress: &dyn Progress) -> Result<DroppedRows, EngineError> {
    let mut done = DroppedRows::default();
    if core.store.absence().is_some() {
        return Ok(done);
    }
    for (namespace, rows) in missing(core)? {
        let count = rows.len() as u64;
        // (S8, P6) A restore point that was not entered may need anything.
        let all_known = core.unrecorded.check_all_known().is_ok();
        let is_whole = || match check::is_whole(core, namespace, progress) {
            // (S12) What cannot be read now may need them.
            Err(error) if error.is_no_verdict() => Ok(false),
            found => found,
        };
        if all_known && is_whole()? {
            drop_rows(core, &rows)?;
            done.dropped += count;
        } else {
            done.kept += count;
        }
    }
    // The next start need not read all directories again.
    core.store.index.checkpoint()?;
    Ok(done)
}

/// The rows whose files are not there, by namespace. A listing alone says nothing: what it lacks is opened.
fn missing(core: &Core) -> Result<BTreeMap<NamespaceId, Vec<ContainerId>>, EngineError> {
    let files = recovery::list_files(&*core.volume)?;
    let mut missing: BTreeMap<NamespaceId, Vec<ContainerId>> = BTreeMap::new();
    for record in core.catalog.all_containers() {
        let record: ContainerRecord = record?;
        if record.state != ContainerState::Condemned
            && !files.contains_key(&record.id)
            && core.store.open_afresh(&record).is_err_and(|error| error.is_missing())
        {
            missing.entry(record.namespace).or_default().push(record.id);
        }
    }
    Ok(missing)
}

fn drop_rows(core: &Core, rows: &[ContainerId]) -> Result<(), EngineError> {
    for rows in rows.chunks(DROPPED_PER_TRANSACTION) {
        core.catalog.condemn_containers(rows)?;
        for &id in rows {
            core.store.leftovers.note_gone(id);
            core.store.index.forget_container(id);
            core.store.forget_damaged(id);
        }
        core.catalog.remove_condemned(rows)?;
    }
    Ok(())
}
