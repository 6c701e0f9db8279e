//! The backup before this one: what its extents hash to, and references to those that did not change.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{DIGESTS_PER_BLOCK, extent_count, extent_len};
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, ContainerClass};

use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, ExtentNode};
use crate::recipe::TreeReader;
use crate::store::{Domain, NodeReader};

/// A disk of the VM's latest backup.
#[derive(Debug)]
pub(super) struct ParentDisk {
    backup: BackupId,
    size_bytes: u64,
    tree: TreeReader<NodeReader>,
}

impl ParentDisk {
    /// The disks of the VM's latest backup by name. A disk whose recipe cannot be read is left out: it is
    /// then backed up in full, which is slower and right.
    pub(super) fn of_vm(
        core: &Core,
        domain: &Domain,
        vm: &str,
    ) -> Result<HashMap<String, Self>, EngineError> {
        let Some(backup) = core.catalog.latest_backup(domain.namespace, vm)? else {
            return Ok(HashMap::new());
        };
        let mut parents = HashMap::new();
        for disk in backup.disks {
            let nodes = NodeReader::new(Arc::clone(&core.store), domain.clone());
            match TreeReader::open(nodes, disk.root, disk.size_bytes) {
                Ok(tree) => {
                    let parent = Self { backup: backup.id, size_bytes: disk.size_bytes, tree };
                    parents.insert(disk.name, parent);
                }
                Err(error) => {
                    let error = EngineError::from(error);
                    tracing::warn!(vm, disk = disk.name, %error, "the parent's recipe is unreadable; full backup");
                }
            }
        }
        Ok(parents)
    }

    pub(super) const fn backup(&self) -> BackupId {
        self.backup
    }

    pub(super) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The digests from `first` on; `None` past the end. Extents that cannot be relied on are
    /// [`Fingerprint::UNKNOWN`], so that the agent sends what they are made of again.
    pub(super) fn digests(&self, first: u64) -> Option<v1::DigestBlock> {
        let end = extent_count(self.size_bytes).min(first.saturating_add(DIGESTS_PER_BLOCK as u64));
        if first >= end {
            return None;
        }
        let mut recent = RecentDirectories::default();
        let digests: Vec<u8> = (first..end)
            .flat_map(|index| *self.digest(index, &mut recent).unwrap_or(Fingerprint::UNKNOWN).as_bytes())
            .collect();
        Some(v1::DigestBlock { first_extent: first, digests: digests.into() })
    }

    fn digest(&self, index: u64, recent: &mut RecentDirectories) -> Option<Fingerprint> {
        let entry = self.tree.entry(index).ok()?;
        // Looking at every chunk is slow, and needed only while something is known to be damaged.
        if self.tree.source().store().has_damage() && !self.is_sound(index, &entry, recent) {
            return None;
        }
        Some(entry.digest)
    }

    /// Whether every chunk of the extent can be found.
    fn is_sound(&self, index: u64, entry: &ExtentEntry, recent: &mut RecentDirectories) -> bool {
        let Ok(node) = self.tree.extent_of(index, entry) else { return false };
        let nodes = self.tree.source();
        let chunk_is_there = |fingerprint: &Fingerprint, recent: &mut RecentDirectories| {
            let found = nodes.store().find(nodes.domain(), ContainerClass::Data, fingerprint, recent);
            matches!(found, Ok(Some(_)))
        };
        let pieces = node.as_ref().map(ExtentNode::pieces).unwrap_or_default();
        pieces.iter().all(|piece| piece.is_zero() || chunk_is_there(&piece.fingerprint, recent))
    }

    /// The first extent from `index` on that may hold data; those before it are zero.
    pub(super) fn zero_until(&self, index: u64) -> u64 {
        self.tree.zero_until(index)
    }

    /// The entry of an extent that the agent says did not change, for a disk of `size_bytes`.
    pub(super) fn unchanged(&self, index: u64, size_bytes: u64) -> Result<ExtentEntry, EngineError> {
        let (was, is) = (extent_len(self.size_bytes, index), extent_len(size_bytes, index));
        if was != is || is == 0 {
            return Err(EngineError::Invalid(format!(
                "extent {index} cannot be unchanged: it is {is} bytes long and was {was}"
            )));
        }
        Ok(self.tree.entry(index)?)
    }
}
