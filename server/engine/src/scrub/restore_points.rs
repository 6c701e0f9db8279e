//! Proves one restore point: every extent is read and hashed, and compared with the digest its backup recorded.
//!
//! An extent that is that of the restore point before, node and digest, is not read again when that one was proved in
//! the same pass. So a pass reads each version of an extent once for each VM, and needs two recipes at a time.

use std::sync::Arc;

use holdfast_catalog::{BackupInOrder, BackupRecord, ContainerState, DiskRecord, FalseDigest, WithinBackup};
use holdfast_proto::limits::{EXTENT_BYTES, extent_len};
use holdfast_types::ids::{BackupId, ContainerClass, VmId};

use crate::container::RecentDirectories;
use crate::core::Core;
use crate::digests::{self, FarData, ReadExtent};
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, PAGE_EXTENTS};
use crate::jobs::Budget;
use crate::recipe::TreeReader;
use crate::store::NodeReader;

/// Charged for an extent or a page that is not read: a comparison, and a share of reading two pages.
const COMPARED_BYTES: u64 = 256;

/// False digests of one restore point that are named.
const LIES_MAX: usize = 20;

type Tree = TreeReader<NodeReader>;

/// A restore point that is being proved.
#[derive(Debug)]
pub(super) struct RestorePoint {
    record: BackupRecord,
    pub(super) vm: VmId,
    pub(super) number: u64,
    /// The one before, if it was proved in this pass.
    before: Option<BackupRecord>,
    disk: usize,
    extent: u64,
    sound: bool,
    /// Some of it lies far away alone, and was not read.
    pub(super) far: bool,
    pub(super) false_digests: u64,
    /// Findings, in sentences.
    pub(super) news: Vec<String>,
    /// The recipes of the disk, of this restore point and of the one before.
    trees: Option<(Tree, Option<Tree>)>,
    recent: RecentDirectories,
}

impl RestorePoint {
    /// Opens the restore point `next`, at the place a process before had come to. `before` is the one before of its VM,
    /// where that was proved in this pass. `None`: it was deleted.
    pub(super) fn open(
        core: &Core,
        next: &BackupInOrder,
        before: Option<BackupId>,
        within: Option<WithinBackup>,
    ) -> Result<Option<Self>, EngineError> {
        let Some(record) = core.catalog.backup(next.backup)? else { return Ok(None) };
        let before = match before {
            Some(before) => core.catalog.backup(before)?,
            None => None,
        };
        let within = within.filter(|within| within.backup == next.backup);
        Ok(Some(Self {
            record,
            vm: next.vm,
            number: next.number,
            before,
            disk: within.map_or(0, |within| within.disk as usize),
            extent: within.map_or(0, |within| within.extent),
            sound: within.is_none_or(|within| within.sound),
            // Disks and extents passed before are not looked at again.
            far: within.is_some_and(|within| within.extent > 0 || within.disk > 0)
                && has_far_containers(core)?,
            false_digests: 0,
            news: Vec::new(),
            trees: None,
            recent: RecentDirectories::default(),
        }))
    }

    /// Its position.
    pub(super) fn within(&self) -> WithinBackup {
        WithinBackup {
            backup: self.record.id,
            disk: u32::try_from(self.disk).unwrap_or(u32::MAX),
            extent: self.extent,
            sound: self.sound,
        }
    }

    /// Reads on until the budget is spent, one extent at least. `Some`: it is done, and whether it is sound.
    pub(super) fn go_on(&mut self, core: &Arc<Core>, budget: &Budget) -> Result<Option<bool>, EngineError> {
        while let Some(disk) = self.record.disks.get(self.disk).cloned() {
            if self.trees.is_none() {
                self.trees = self.open_trees(core, &disk)?;
            }
            let Some((tree, before)) = self.trees.take() else {
                self.sound = false;
                self.next_disk();
                continue;
            };
            let done = self.read_disk(core, &tree, before.as_ref(), disk.size_bytes, budget);
            self.trees = Some((tree, before));
            if done? {
                self.next_disk();
            } else {
                return Ok(None);
            }
        }
        Ok(Some(self.sound))
    }

    fn next_disk(&mut self) {
        self.disk += 1;
        self.extent = 0;
        self.trees = None;
    }

    /// `None`: the recipe cannot be read.
    fn open_trees(
        &self,
        core: &Arc<Core>,
        disk: &DiskRecord,
    ) -> Result<Option<(Tree, Option<Tree>)>, EngineError> {
        let open = |disk: &DiskRecord| {
            let nodes = NodeReader::new(Arc::clone(&core.store), core.store.domain(self.record.namespace));
            unless_damaged(TreeReader::open(nodes, disk.root, disk.size_bytes).map_err(EngineError::from))
        };
        let Some(tree) = open(disk)? else { return Ok(None) };
        let disks = self.before.iter().flat_map(|before| &before.disks);
        let before = disks.into_iter().find(|old| old.name == disk.name && old.size_bytes == disk.size_bytes);
        let before = match before {
            Some(before) => open(before)?,
            None => None,
        };
        Ok(Some((tree, before)))
    }

    /// Reads on. Returns true if the disk's end was reached.
    fn read_disk(
        &mut self,
        core: &Core,
        tree: &Tree,
        before: Option<&Tree>,
        size_bytes: u64,
        budget: &Budget,
    ) -> Result<bool, EngineError> {
        const PAGE: u64 = PAGE_EXTENTS as u64;
        loop {
            self.extent = tree.zero_until(self.extent);
            if self.extent >= tree.extent_count() {
                return Ok(true);
            }
            let page = self.extent / PAGE;
            if before.is_some_and(|before| before.page_name(page) == tree.page_name(page)) {
                self.extent = (page + 1) * PAGE;
                budget.charge(1, COMPARED_BYTES);
            } else {
                let read = self.read_extent(core, tree, before)?;
                let bytes = if read { extent_len(size_bytes, self.extent).into() } else { COMPARED_BYTES };
                self.extent += 1;
                budget.charge(1, bytes);
            }
            if budget.is_spent() {
                return Ok(self.extent >= tree.extent_count());
            }
        }
    }

    /// Reads an extent. Returns true if it had to be read.
    fn read_extent(&mut self, core: &Core, tree: &Tree, before: Option<&Tree>) -> Result<bool, EngineError> {
        let index = self.extent;
        let Some(entry) = unless_damaged(tree.entry(index).map_err(EngineError::from))? else {
            self.sound = false;
            return Ok(false);
        };
        if entry.node.is_zero() {
            return Ok(false);
        }
        if let Some(before) = before
            && unless_damaged(before.entry(index).map_err(EngineError::from))?
                .is_some_and(|old| old.node == entry.node && old.digest == entry.digest)
        {
            return Ok(false);
        }
        let node = unless_damaged(tree.extent_of(index, &entry).map_err(EngineError::from))?.flatten();
        let read = match node {
            Some(node) => unless_damaged(digests::digest_of(
                &core.store,
                tree.source().domain(),
                &node,
                &mut self.recent,
                FarData::Leave,
            ))?,
            None => None,
        };
        match read {
            // (R4) Damage met on the way is noted.
            None | Some(ReadExtent::Lacks) => self.sound = false,
            Some(ReadExtent::Far) => self.far = true,
            Some(read) if read.disproves(&entry.digest) => {
                self.sound = false;
                self.tell_lie(core, index, &entry)?;
            }
            Some(_) => {}
        }
        Ok(true)
    }

    /// (R6) Keeps a digest that was found false; told once.
    fn tell_lie(&mut self, core: &Core, index: u64, entry: &ExtentEntry) -> Result<(), EngineError> {
        let namespace = self.record.namespace;
        self.false_digests += 1;
        let (backup, vm) = (self.record.id, &self.record.vm);
        let (disk, size) =
            self.record.disks.get(self.disk).map_or(("", 0), |disk| (&*disk.name, disk.size_bytes));
        let start = index.saturating_mul(EXTENT_BYTES.into());
        let end = start.saturating_add(extent_len(size, index).into());
        if self.news.len() < LIES_MAX {
            self.news.push(format!(
                "VM {vm:?}, restore point {backup}, disk {disk:?}: bytes {start} to {end} are not what their backup said \
                 they are"
            ));
        }
        if core.catalog.are_false(namespace, &[(entry.node, entry.digest)])?.first() == Some(&true) {
            return Ok(());
        }
        let found_ms = core.clock.now_ms();
        let found = FalseDigest { namespace, node: entry.node, digest: entry.digest, found_ms };
        let object = format!("disk {disk:?} of VM {vm:?}, backup {backup}, extent {index}");
        digests::keep(core, &[found], &object, "scrub")
    }
}

/// Returns true if any container is only in the bucket.
fn has_far_containers(core: &Core) -> Result<bool, EngineError> {
    for row in core.catalog.all_containers() {
        let row = row?;
        let open = || core.store.containers.get(row.id, row.class);
        let is_data = row.class == ContainerClass::Data && row.state == ContainerState::Live;
        if is_data && open().is_ok_and(|container| !container.is_at_hand()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `None` where something is damaged, or was written by a newer version: it is not proved.
fn unless_damaged<T>(result: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(EngineError::Damaged(_) | EngineError::Unsupported(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
