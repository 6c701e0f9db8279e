//! Recipes that are read on even when their restore points are deleted: the parents of backups in progress, and disks
//! being restored or verified. Each is a root of a round of reclaim, as committed restore points are. (G2)
//!
//! To take one up is to look the restore point up and enter its recipe in one step ([`RecipesInUse::take_up`]). A round
//! lists the committed restore points, and then what is in use or was at any moment while it listed: no one waits for
//! that list, which takes minutes where there are millions. So a restore point that is deleted meanwhile was entered
//! before, or is not found; and what a backup took over that was committed too late for the list was in
//! use while it was made.

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
    /// Size of the disk.
    pub(crate) size_bytes: u64,
    pub(crate) committed_ms: i64,
}

impl Recipe {
    /// Recipe of one disk of a backup.
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

/// The recipes in use, and the lock that orders look-ups of restore points against rounds of reclaim.
#[derive(Debug, Default)]
pub(crate) struct RecipesInUse {
    /// Shared while a restore point is looked up; taken alone by a round, for a moment before it lists restore points and for
    /// one after, so that no step is in the middle then. Before any other lock but the catalog's.
    steps: RwLock<()>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    recipes: HashMap<u64, Recipe>,
    next: u64,
    /// While a round lists restore points: those that were in use since it began to, and are no more.
    ended: Option<Vec<Recipe>>,
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

    /// Returns the result of `list`, and all recipes that were in use while it ran or are now. For one round at a time.
    pub(crate) fn with<T>(&self, list: impl FnOnce() -> T) -> (Vec<Recipe>, T) {
        let listing = Listing::begin(self);
        let listed = list();
        // No step is in the middle: who found a restore point has entered it, who comes now finds what is there now.
        let _step = self.steps.write();
        let mut in_use = listing.ended();
        in_use.extend(self.table.lock().recipes.values().cloned());
        (in_use, listed)
    }
}

/// While it lives, what ends is kept.
struct Listing<'a>(&'a RecipesInUse);

impl<'a> Listing<'a> {
    fn begin(all: &'a RecipesInUse) -> Self {
        // A walk in the middle of a step enters what it found before anything is listed.
        let _step = all.steps.write();
        all.table.lock().ended = Some(Vec::new());
        Self(all)
    }

    fn ended(&self) -> Vec<Recipe> {
        self.0.table.lock().ended.take().unwrap_or_default()
    }
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        self.0.table.lock().ended = None;
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
        let mut table = self.all.table.lock();
        if let (Some(recipe), Some(ended)) = (table.recipes.remove(&self.number), &mut table.ended) {
            ended.push(recipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ulid::Ulid;

    fn recipe() -> Recipe {
        Recipe {
            namespace: NamespaceId(Ulid(1)),
            vm: VmId(Ulid(2)),
            backup: BackupId(Ulid(3)),
            disk: "root".into(),
            root: Fingerprint::of(b"root"),
            size_bytes: 7,
            committed_ms: 0,
        }
    }

    #[test]
    fn a_recipe_is_in_use_until_the_last_of_its_users_is_done() {
        let all = Arc::new(RecipesInUse::default());
        let (one, other) = {
            let step = all.take_up();
            (step.enter(recipe()), step.enter(recipe()))
        };
        drop(one);
        assert_eq!(all.with(|| 1), (vec![recipe()], 1));
        drop(other);
        assert_eq!(all.with(|| 2), (vec![], 2));
    }

    /// (G2) A recipe that is taken up, or released, while a round lists restore points is a root: the restore point may
    /// have been deleted before the list came to it, and the backup that took it over committed after.
    #[test]
    fn what_is_in_use_at_any_moment_of_a_list_is_told() {
        let all = Arc::new(RecipesInUse::default());
        let early = all.take_up().enter(recipe());
        let (in_use, late) = all.with(|| {
            drop(early);
            drop(all.take_up().enter(recipe()));
            all.take_up().enter(recipe())
        });
        assert_eq!(in_use, [recipe(), recipe(), recipe()]);
        drop(late);
        assert_eq!(all.with(|| ()).0, [], "the next list is of what is in use then");
        assert!(all.table.lock().ended.is_none());
    }

    /// Between looking a restore point up and entering it no list begins or ends.
    #[test]
    fn a_round_waits_for_a_step_that_has_begun() {
        let all = Arc::new(RecipesInUse::default());
        let step = all.take_up();
        assert!(all.steps.try_write().is_none());
        drop(step);
        assert!(all.steps.try_write().is_some());
        assert!(all.with(|| all.steps.try_read().is_some()).1, "and no one waits for the list");
    }
}
