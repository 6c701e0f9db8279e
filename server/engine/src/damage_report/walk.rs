//! Walks the recipes of all restore points that may lack something, VM by VM from the oldest restore point on. What is
//! that of the restore point before, by page or by extent, lacks what that one lacks, and is not read again.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_catalog::{BackupRecord, DiskRecord, LostRanges};
use holdfast_proto::limits::{EXTENT_BYTES, extent_len};
use holdfast_types::ids::{BackupId, ContainerClass, VmId};

use super::Ranges;
use super::suspects::{AllSuspects, Suspects};
use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, PAGE_EXTENTS};
use crate::jobs::Budget;
use crate::recipe::{TreeReader, WalkError};
use crate::store::{Domain, NodeReader};

const PAGE: u64 = PAGE_EXTENTS as u64;

/// Charged for an extent: its node.
const NODE_BYTES: u64 = 10 << 10;

type Tree = TreeReader<NodeReader>;

/// A disk that was walked.
#[derive(Debug)]
struct Walked {
    disk: DiskRecord,
    /// `None`: its root cannot be read.
    tree: Option<Tree>,
    lost: Ranges,
}

/// A restore point being walked.
#[derive(Debug)]
struct Reading {
    record: BackupRecord,
    vm: VmId,
    number: u64,
    /// Disks that are done.
    done: Vec<Walked>,
    /// The disk at hand, and the extent it has come to.
    open: Option<(Walked, u64)>,
}

/// A restore point that was walked.
#[derive(Debug)]
struct Before {
    vm: VmId,
    was_known: bool,
    disks: Vec<Walked>,
}

/// State of a walk over the recipes of restore points.
#[derive(Debug)]
pub(super) struct Walk {
    suspects: AllSuspects,
    /// (V3) Restore points that were found to lack something, and were not met yet. Whatever they refer to is looked up: it
    /// may have been lost with a container that nothing tells of any more.
    known: HashSet<BackupId>,
    after: Option<(VmId, u64)>,
    reading: Option<Reading>,
    /// Restore points that could not be read now.
    pub(super) passed_by: Vec<BackupId>,
    /// The restore point before, of the same VM.
    before: Option<Before>,
    recent: RecentDirectories,
}

impl Walk {
    /// A walk over everything that may lack something now.
    pub(super) fn begin(core: &Core, known: HashSet<BackupId>) -> Result<Self, EngineError> {
        Ok(Self {
            suspects: AllSuspects::gather(core)?,
            known,
            after: None,
            reading: None,
            passed_by: Vec::new(),
            before: None,
            recent: RecentDirectories::default(),
        })
    }

    /// Goes on until the budget is spent. Returns true if the walk is done.
    pub(super) fn go_on(&mut self, core: &Arc<Core>, budget: &Budget) -> Result<bool, EngineError> {
        loop {
            if self.reading.is_none() && !self.next(core)? {
                return Ok(true);
            }
            if let Some(mut reading) = self.reading.take() {
                let done = self.read(core, &mut reading, budget);
                let (backup, place) = (reading.record.id, (reading.vm, reading.number));
                self.reading = Some(reading);
                match done {
                    Ok(true) => self.record(core)?,
                    Ok(false) => return Ok(false),
                    // A restore point that cannot be read now hides no other's loss.
                    Err(error) if error.is_of_one_object() => self.pass_by(backup, place, &error),
                    Err(error) => return Err(error),
                }
            }
            budget.charge(1, 0);
            if budget.is_spent() {
                return Ok(false);
            }
        }
    }

    /// Leaves a restore point that cannot be read now as recorded, and in doubt.
    fn pass_by(&mut self, backup: BackupId, place: (VmId, u64), error: &EngineError) {
        tracing::warn!(%backup, %error, "cannot tell now whether a restore point lacks something");
        self.known.remove(&backup);
        self.passed_by.push(backup);
        (self.reading, self.before, self.after) = (None, None, Some(place));
    }

    /// Opens the next restore point, or passes by one that lacks nothing; `false`: there are no more.
    fn next(&mut self, core: &Core) -> Result<bool, EngineError> {
        let Some(next) = core.catalog.backup_in_order(self.after)? else { return Ok(false) };
        let place = (next.vm, next.number);
        let Some(record) = core.catalog.backup(next.backup)? else {
            self.after = Some(place);
            return Ok(true);
        };
        if self.may_lack(core, &record) {
            let (vm, number) = place;
            self.reading = Some(Reading { record, vm, number, done: Vec::new(), open: None });
            return Ok(true);
        }
        self.before = None;
        self.after = Some(place);
        Ok(true)
    }

    fn may_lack(&self, core: &Core, record: &BackupRecord) -> bool {
        if self.known.contains(&record.id) {
            return true;
        }
        let Some(suspects) = self.suspects.of(record.namespace) else { return false };
        let store = &core.store;
        // The places of all its chunks may be known, without reading.
        let is_spared = |disk: &DiskRecord| {
            let reach = store.reach.of(record.namespace, disk.root, &store.leftovers);
            reach.is_some_and(|reach| {
                // Healed damage counts, too: the copy that replaced it may be damaged now without being known here.
                let mut damaged = store.damaged_since(record.namespace, reach.sound_as_of);
                damaged.extend(&suspects.containers);
                reach.is_spared(&damaged, &store.leftovers)
            })
        };
        suspects.containers.is_empty() || !record.disks.iter().all(is_spared)
    }

    /// Records the losses of the restore point.
    fn record(&mut self, core: &Core) -> Result<(), EngineError> {
        let Some(reading) = &self.reading else { return Ok(()) };
        let disks = (0u32..).zip(&reading.done);
        let lost: Vec<LostRanges> =
            disks.filter_map(|(position, walked)| walked.lost.lost(position)).collect();
        if !lost.is_empty() || self.known.contains(&reading.record.id) {
            tell(core, &reading.record, &lost)?;
        }
        // Only now: what failed is walked again.
        let Some(reading) = self.reading.take() else { return Ok(()) };
        let was_known = self.known.remove(&reading.record.id);
        self.after = Some((reading.vm, reading.number));
        self.before = Some(Before { vm: reading.vm, was_known, disks: reading.done });
        Ok(())
    }

    /// Returns true when all disks are done.
    fn read(
        &mut self,
        core: &Arc<Core>,
        reading: &mut Reading,
        budget: &Budget,
    ) -> Result<bool, EngineError> {
        let is_known = self.known.contains(&reading.record.id);
        let everything = Suspects::everything();
        let suspects = match self.suspects.of(reading.record.namespace) {
            _ if is_known => &everything,
            Some(suspects) => suspects,
            None => return Ok(true),
        };
        let domain = core.store.domain(reading.record.namespace);
        // A walk with look-ups finds more than one without.
        let comparable = |before: &&Before| before.vm == reading.vm && (before.was_known || !is_known);
        let same_vm = self.before.as_ref().filter(comparable);
        let mut place = Place { core, suspects, domain: &domain, recent: &mut self.recent, budget };
        while let Some(disk) = reading.record.disks.get(reading.done.len()) {
            let (mut walked, mut extent) = match reading.open.take() {
                Some(open) => open,
                None => (place.open(disk)?, 0),
            };
            let before = same_vm.and_then(|before| before.disks.iter().find(|old| is_same(&old.disk, disk)));
            let done = place.walk(&mut walked, &mut extent, before);
            reading.open = Some((walked, extent));
            if !done? {
                return Ok(false);
            }
            if let Some((walked, _)) = reading.open.take() {
                reading.done.push(walked);
            }
        }
        Ok(true)
    }
}

/// One that can be compared, extent by extent.
fn is_same(old: &DiskRecord, new: &DiskRecord) -> bool {
    old.name == new.name && old.size_bytes == new.size_bytes
}

/// Context of a walk over one disk.
struct Place<'a> {
    core: &'a Arc<Core>,
    suspects: &'a Suspects,
    domain: &'a Domain,
    recent: &'a mut RecentDirectories,
    budget: &'a Budget,
}

impl Place<'_> {
    fn open(&mut self, disk: &DiskRecord) -> Result<Walked, EngineError> {
        let nodes = NodeReader::new(Arc::clone(&self.core.store), self.domain.clone());
        let loses = |error: &WalkError<EngineError>| error.is_damage().then(|| error.to_string());
        let mut lost = Ranges::default();
        let tree = match TreeReader::open_past(nodes, disk.root, disk.size_bytes, loses) {
            Ok(tree) => Some(tree),
            Err(error) if error.is_damage() => {
                lost.add(0, disk.size_bytes);
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Walked { disk: disk.clone(), tree, lost })
    }

    /// Returns true when the end of the disk is reached.
    fn walk(
        &mut self,
        walked: &mut Walked,
        extent: &mut u64,
        before: Option<&Walked>,
    ) -> Result<bool, EngineError> {
        let Walked { disk, tree: Some(tree), lost } = walked else { return Ok(true) };
        let before = before.filter(|old| old.lost.is_complete());
        let before = before.and_then(|old| old.tree.as_ref().map(|tree| (tree, &old.lost)));
        loop {
            *extent = tree.zero_until(*extent);
            if *extent >= tree.extent_count() {
                return Ok(true);
            }
            let page = *extent / PAGE;
            let page_end = ((page + 1) * PAGE).min(tree.extent_count());
            let start = *extent * u64::from(EXTENT_BYTES);
            if let Some((old, old_lost)) = before
                && old.page_name(page) == tree.page_name(page)
                && !tree.page_name(page).is_zero()
            {
                lost.add_from(old_lost, start, end_of(disk, page_end));
                *extent = page_end;
                self.budget.charge(1, 0);
            } else {
                match tree.entry(*extent) {
                    Ok(entry) => {
                        self.extent(tree, disk, (*extent, entry), lost, before)?;
                        *extent += 1;
                        self.budget.charge(1, NODE_BYTES);
                    }
                    Err(error) if error.is_damage() => {
                        lost.add(start, end_of(disk, page_end).saturating_sub(start));
                        *extent = page_end;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            if self.budget.is_spent() {
                return Ok(*extent >= tree.extent_count());
            }
        }
    }

    fn extent(
        &mut self,
        tree: &Tree,
        disk: &DiskRecord,
        (index, entry): (u64, ExtentEntry),
        lost: &mut Ranges,
        before: Option<(&Tree, &Ranges)>,
    ) -> Result<(), EngineError> {
        if entry.node.is_zero() {
            return Ok(());
        }
        let start = index * u64::from(EXTENT_BYTES);
        let bytes = u64::from(extent_len(disk.size_bytes, index));
        if let Some((old, old_lost)) = before
            && old.entry(index).is_ok_and(|old| old.node == entry.node)
        {
            lost.add_from(old_lost, start, start + bytes);
            return Ok(());
        }
        let store = &self.core.store;
        if self.suspects.is_lost(store, self.domain, ContainerClass::Recipe, &entry.node, self.recent)? {
            lost.add(start, bytes);
            return Ok(());
        }
        if self.suspects.spares_chunks() {
            return Ok(());
        }
        let node = match tree.extent_of(index, &entry) {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(()),
            Err(error) if error.is_damage() => {
                lost.add(start, bytes);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let mut offset = start;
        for piece in node.pieces() {
            let name = &piece.fingerprint;
            if !piece.is_zero()
                && self.suspects.is_lost(store, self.domain, ContainerClass::Data, name, self.recent)?
            {
                lost.add(offset, piece.bytes.into());
            }
            offset += u64::from(piece.bytes);
        }
        Ok(())
    }
}

/// Offset at which extent `extent` of a disk begins, or the disk ends.
fn end_of(disk: &DiskRecord, extent: u64) -> u64 {
    extent.saturating_mul(EXTENT_BYTES.into()).min(disk.size_bytes)
}

fn tell(core: &Core, record: &BackupRecord, lost: &[LostRanges]) -> Result<(), EngineError> {
    if !core.catalog.set_lost(record.id, lost)? {
        return Ok(());
    }
    let (vm, backup) = (&record.vm, record.id);
    if lost.is_empty() {
        tracing::info!(vm, %backup, "a restore point is whole again: all of it can be restored");
        return Ok(());
    }
    for disk in lost {
        let name = record.disks.get(disk.position as usize).map_or("", |disk| disk.name.as_str());
        let first = disk.listed.first().map(|range| (range.start, range.bytes));
        let (bytes, ranges) = (disk.bytes, disk.ranges);
        tracing::error!(vm, %backup, disk = name, bytes, ranges, ?first, "a restore point lacks data");
    }
    Ok(())
}
