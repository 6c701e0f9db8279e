//! What counts as used: the recipes of all restore points.
//!
//! The walk over restore points goes by their ids, which never change, so that no renaming or deleting beside it hides
//! one. What is committed after the walk began may be missing: its session holds everything it refers to.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::BackupRecord;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, NamespaceId, VmId};

use crate::core::Core;
use crate::error::EngineError;

/// The recipe of one disk of a restore point: 128 bytes, so that 10⁶ of them take 128 MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) namespace: NamespaceId,
    pub(crate) vm: VmId,
    pub(crate) backup: BackupId,
    /// The disk's name, one text for all roots of that name.
    pub(crate) disk: Arc<str>,
    pub(crate) size_bytes: u64,
    /// All zero for a disk without data.
    pub(crate) fingerprint: Fingerprint,
    /// When the restore point was committed, as the clock said. Nothing but speed, and which of two is called the
    /// older, depends on it.
    pub(crate) committed_ms: i64,
}

impl Root {
    fn order(&self) -> (NamespaceId, VmId, &str, i64, BackupId) {
        (self.namespace, self.vm, &self.disk, self.committed_ms, self.backup)
    }

    fn is_same_disk(&self, other: &Self) -> bool {
        (self.namespace, self.vm, &self.disk) == (other.namespace, other.vm, &other.disk)
    }
}

/// All roots by namespace, VM, disk and age, so that neighbours are what is worth comparing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots(Vec<Root>);

impl Roots {
    /// Those of every restore point there is.
    ///
    /// # Errors
    /// The catalog's; that of a start that could not enter all restore points (S8).
    pub(crate) fn load(core: &Core) -> Result<Self, EngineError> {
        // (S8) What has a point and no row yet refers to containers, too.
        core.unrecorded.check()?;
        let mut names = HashMap::new();
        let mut roots = Vec::new();
        for id in core.catalog.all_backup_ids() {
            // Deleted since: then it counts no more. If its row is lost, its point tells (G9).
            let Some(backup) = core.catalog.backup(id?)? else { continue };
            roots.extend(of_backup(&backup, &mut names));
        }
        Ok(roots.into_iter().collect())
    }

    /// Those of these restore points; one that does not exist has none.
    ///
    /// # Errors
    /// The catalog's.
    #[cfg(test)]
    pub(crate) fn of(core: &Core, backups: &[BackupId]) -> Result<Self, EngineError> {
        let mut names = HashMap::new();
        let mut roots = Vec::new();
        for id in backups {
            if let Some(backup) = core.catalog.backup(*id)? {
                roots.extend(of_backup(&backup, &mut names));
            }
        }
        Ok(roots.into_iter().collect())
    }

    /// These and those of `more`; each counts once.
    #[must_use]
    pub(crate) fn and(mut self, more: Self) -> Self {
        // In place: all of them are hundreds of MiB of a repository with millions of disks.
        self.0.extend(more.0);
        self.0.into_iter().collect()
    }

    /// The restore points they are of, by id.
    pub(crate) fn restore_points(&self) -> Vec<BackupId> {
        let mut ids: Vec<BackupId> = self.0.iter().map(|root| root.backup).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// In two: those `first` says yes to, and the others.
    pub(crate) fn split(self, first: impl Fn(&Root) -> bool) -> (Self, Self) {
        let (yes, no) = self.0.into_iter().partition(first);
        (Self(yes), Self(no))
    }

    /// The roots of one disk of a VM after the other, oldest first.
    pub(crate) fn disks(&self) -> impl Iterator<Item = &[Root]> {
        self.0.chunk_by(Root::is_same_disk)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Root> {
        self.0.iter()
    }
}

impl FromIterator<Root> for Roots {
    fn from_iter<I: IntoIterator<Item = Root>>(roots: I) -> Self {
        let mut roots: Vec<Root> = roots.into_iter().collect();
        roots.sort_unstable_by(|a, b| a.order().cmp(&b.order()));
        roots.dedup();
        Self(roots)
    }
}

fn of_backup<'a>(
    backup: &'a BackupRecord,
    names: &'a mut HashMap<String, Arc<str>>,
) -> impl Iterator<Item = Root> + 'a {
    backup.disks.iter().map(|disk| {
        let name = names.entry(disk.name.clone()).or_insert_with(|| disk.name.as_str().into());
        Root {
            namespace: backup.namespace,
            vm: backup.vm_id,
            backup: backup.id,
            disk: Arc::clone(name),
            size_bytes: disk.size_bytes,
            fingerprint: disk.root,
            committed_ms: backup.finished_ms,
        }
    })
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;

    use super::*;

    fn root(vm: u128, disk: &str, committed_ms: i64) -> Root {
        Root {
            namespace: NamespaceId(Ulid(1)),
            vm: VmId(Ulid(vm)),
            backup: BackupId(Ulid(vm * 1000 + u128::try_from(committed_ms).unwrap())),
            disk: disk.into(),
            size_bytes: 1,
            fingerprint: Fingerprint::of(disk.as_bytes()),
            committed_ms,
        }
    }

    #[test]
    fn roots_of_one_disk_are_neighbours_by_age_and_count_once() {
        let roots: Roots =
            [root(2, "a", 3), root(1, "b", 2), root(1, "a", 2), root(1, "b", 1)].into_iter().collect();
        let roots = roots.and([root(1, "a", 2), root(1, "a", 1)].into_iter().collect());
        let disks: Vec<Vec<Root>> = roots.disks().map(<[Root]>::to_vec).collect();
        assert_eq!(
            disks,
            [
                vec![root(1, "a", 1), root(1, "a", 2)],
                vec![root(1, "b", 1), root(1, "b", 2)],
                vec![root(2, "a", 3)]
            ]
        );
        let (of_two, others) = roots.split(|root| root.vm == VmId(Ulid(2)));
        assert_eq!((of_two.len(), others.len()), (1, 4));
    }
}
