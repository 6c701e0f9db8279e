//! Containers in an archive that a disk needs.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_types::ids::{BackupId, ContainerClass, NamespaceId};
use holdfast_volume::ColdPlace;

use super::open::{OnDamage, OpenDisk};
use super::plan::described;
use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::ExtentNode;

/// The containers that a restore would read from an archive. Found as a restore finds chunks, so that what is thawed is
/// what is read then. What is missing the restore says.
pub(crate) fn cold_parts(
    core: &Arc<Core>,
    namespace: NamespaceId,
    backup: BackupId,
    disk: &str,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<ColdPlace>>, EngineError> {
    let disk = OpenDisk::open(core, namespace, backup, disk, OnDamage::End)?;
    let domain = disk.tree.source().domain();
    let mut recent = RecentDirectories::default();
    let mut parts = BTreeMap::new();
    let mut index = disk.tree.zero_until(0);
    while index < disk.tree.extent_count() {
        let (node, _) = described(&disk, index)?;
        let pieces = node.iter().flat_map(ExtentNode::pieces);
        for piece in pieces.filter(|piece| !piece.is_zero()) {
            let class = ContainerClass::Data;
            let found = core.store.find_to_read(domain, class, &piece.fingerprint, &mut recent)?;
            let Some(found) = found else { continue };
            let id = found.location.container;
            if core.store.leftovers.is_cold(id)
                && !parts.contains_key(&id)
                && let Some(place) = found.container.cold()
            {
                parts.insert(id, place);
            }
        }
        if !go_on() {
            return Ok(None);
        }
        index = disk.tree.zero_until(index + 1);
    }
    Ok(Some(parts.into_values().collect()))
}
