//! Recipes that someone goes on reading whatever becomes of their restore points: the parents of backups in progress,
//! and disks being restored. Each is a root of a round of reclaim, as committed restore points are. (G2)
//!
//! Who takes one up looks the restore point up and enters its recipe in one step ([`RecipesInUse::take_up`]); a round
//! lists these and the committed restore points in one step of its own. So a restore point that is deleted in between
//! was entered before, or is not found.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::{BackupRecord, DiskRecord};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, NamespaceId, VmId};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

/// The recipe of one disk of a restore point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub(crate) namespace: NamespaceId,
    pub(crate) vm: VmId,
    pub(crate) backup: BackupId,
    pub(crate) disk: Arc<str>,
    pub(crate) root: Fingerprint,
    /// Of the disk.
    pub(crate) size_bytes: u64,
    pub(crate) committed_ms: i64,
}

impl Recipe {
    /// That of one disk of a backup.
    pub(crate) fn of(backup: &BackupRecord, disk: &DiskRecord) -> Self {
        Self {
            namespace: backup.namespace,
            vm: backup.vm_id,
            backup: backup.id,
            disk: disk.name.as_str().into(),
            root: disk.root,
            size_bytes: disk.size_bytes,
            committed_ms: backup.finished_ms,
        }
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct RecipesInUse {
    /// Shared by who looks a restore point up; held alone, for moments, by a round. Before any other lock but the
    /// catalog's.
    steps: RwLock<()>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    recipes: HashMap<u64, Recipe>,
    next: u64,
}

/// Keeps a recipe in use until it is dropped.
#[derive(Debug)]
pub(crate) struct InUse {
    all: Arc<RecipesInUse>,
    number: u64,
}

/// The step of looking restore points up and entering their recipes.
#[derive(Debug)]
pub(crate) struct TakeUp<'a> {
    all: &'a Arc<RecipesInUse>,
    _step: RwLockReadGuard<'a, ()>,
}

impl RecipesInUse {
    /// Begins to look a restore point up; ends when it is dropped.
    pub(crate) fn take_up(self: &Arc<Self>) -> TakeUp<'_> {
        TakeUp { all: self, _step: self.steps.read() }
    }

    /// What `list` returns, and all recipes in use, as of one moment: nothing is taken up meanwhile.
    pub(crate) fn with<T>(&self, list: impl FnOnce() -> T) -> (Vec<Recipe>, T) {
        let _step = self.steps.write();
        // These first: what is committed while it is listed was entered before.
        let in_use = self.table.lock().recipes.values().cloned().collect();
        (in_use, list())
    }
}

impl TakeUp<'_> {
    /// Enters a recipe.
    pub(crate) fn enter(&self, recipe: Recipe) -> InUse {
        let mut table = self.all.table.lock();
        let number = table.next;
        table.next += 1;
        table.recipes.insert(number, recipe);
        InUse { all: Arc::clone(self.all), number }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.all.table.lock().recipes.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ulid::Ulid;

    #[test]
    fn a_recipe_is_in_use_until_the_last_of_its_users_is_done() {
        let all = Arc::new(RecipesInUse::default());
        let root = Fingerprint::of(b"root");
        let recipe = Recipe {
            namespace: NamespaceId(Ulid(1)),
            vm: VmId(Ulid(2)),
            backup: BackupId(Ulid(3)),
            disk: "root".into(),
            root,
            size_bytes: 7,
            committed_ms: 0,
        };
        let (one, other) = {
            let step = all.take_up();
            (step.enter(recipe.clone()), step.enter(recipe.clone()))
        };
        drop(one);
        assert_eq!(all.with(|| 1), (vec![recipe], 1));
        drop(other);
        assert_eq!(all.with(|| 2), (vec![], 2));
    }

    #[test]
    fn nothing_is_taken_up_while_a_round_lists_roots() {
        let all = Arc::new(RecipesInUse::default());
        let step = all.take_up();
        assert!(all.steps.try_write().is_none(), "a round waits for who has begun");
        drop(step);
        let blocked = all.with(|| all.steps.try_read().is_none());
        assert!(blocked.1, "who begins waits for the round");
    }
}
