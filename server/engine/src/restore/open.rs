//! A disk of a backup, opened for reading; used by everything that restores.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use holdfast_proto::KeyId;
use holdfast_proto::region::sealed::Commitment;
use holdfast_types::ids::{BackupId, NamespaceId};

use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::PAGE_EXTENTS;
use crate::in_use::{InUse, Recipe};
use crate::recipe::{TreeReader, WalkError};
use crate::store::NodeReader;

/// Action of a reader on data that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDamage {
    /// Ends with the error.
    End,
    /// Reports the loss, and goes on.
    Report,
}

impl OnDamage {
    /// Returns true if `error` costs only the data it is about. (R4) Data that cannot be read at the moment ends any reader: the
    /// error says nothing of what is stored.
    pub(super) const fn goes_on(self, error: &EngineError) -> bool {
        matches!(self, Self::Report) && matches!(error, EngineError::Damaged(_) | EngineError::Unsupported(_))
    }

    fn goes_on_walking(self, error: &WalkError<EngineError>) -> bool {
        match error {
            WalkError::Source(source) => self.goes_on(source),
            WalkError::Node { .. } | WalkError::Shape { .. } | WalkError::Above(_) => self == Self::Report,
        }
    }
}

/// A disk of a backup, opened for reading.
#[derive(Debug)]
pub(super) struct OpenDisk {
    pub(super) core: Arc<Core>,
    pub(super) namespace: NamespaceId,
    backup: BackupId,
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) data_bytes: u64,
    /// Key that its namespace is end-to-end encrypted with.
    pub(super) key_id: Option<KeyId>,
    pub(super) tree: TreeReader<NodeReader>,
    /// (N8) Commitments of regions that did not open at the agent.
    pub(super) passed_over: OnceLock<BTreeSet<Commitment>>,
    /// (G2) Keeps the recipe as a root, so that it is read to its end even if the backup is deleted meanwhile.
    _in_use: InUse,
}

impl OpenDisk {
    pub(super) fn open(
        core: &Arc<Core>,
        namespace: NamespaceId,
        backup: BackupId,
        disk: &str,
        damage: OnDamage,
    ) -> Result<Self, EngineError> {
        // (D1)
        let step = core.in_use.take_up();
        let record = core.catalog.backup(backup)?.filter(|record| record.namespace == namespace);
        let record =
            record.ok_or_else(|| EngineError::NotFound { what: "backup", name: backup.to_string() })?;
        let names: Vec<String> = record.disks.iter().map(|disk| disk.name.clone()).collect();
        let Some(found) = record.disks.iter().find(|candidate| candidate.name == disk) else {
            let name = format!("{disk} of backup {backup} (it has {})", names.join(", "));
            return Err(EngineError::NotFound { what: "disk", name });
        };
        let in_use = step.enter(Recipe::of(&record, found));
        drop(step);
        let nodes = NodeReader::new(Arc::clone(&core.store), core.store.domain(namespace));
        let loses = |error: &WalkError<EngineError>| damage.goes_on_walking(error).then(|| error.to_string());
        let tree = TreeReader::open_past(nodes, found.root, found.size_bytes, loses)
            .map_err(|error| name_damage(core, error.into(), backup, disk))?;
        // The one page of a small disk is its root: without it nothing of the disk is known.
        if damage == OnDamage::Report && tree.extent_count() <= PAGE_EXTENTS as u64 {
            tree.page_entries(0).map_err(|error| name_damage(core, error.into(), backup, disk))?;
        }
        Ok(Self {
            core: Arc::clone(core),
            namespace,
            backup,
            name: found.name.clone(),
            size_bytes: found.size_bytes,
            data_bytes: found.data_bytes,
            key_id: core.catalog.namespace(namespace)?.and_then(|namespace| namespace.key_id),
            tree,
            passed_over: OnceLock::new(),
            _in_use: in_use,
        })
    }

    pub(super) fn name_damage(&self, error: EngineError) -> EngineError {
        name_damage(&self.core, error, self.backup, &self.name)
    }

    /// (V3) Takes note that something of it cannot be had.
    pub(super) fn note_lacking(&self) {
        self.core.note_lacking(self.backup);
    }
}

/// Puts the disk's and the backup's name into an error about damage, and (V3) takes note of it.
fn name_damage(core: &Core, error: EngineError, backup: BackupId, disk: &str) -> EngineError {
    match error {
        EngineError::Damaged(what) => {
            core.note_lacking(backup);
            EngineError::Damaged(format!("disk {disk:?} of backup {backup}: {what}"))
        }
        other => other,
    }
}
