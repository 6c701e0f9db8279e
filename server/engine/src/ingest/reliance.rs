//! (R5) The check at commit of everything a session relies on against the damage found while it ran.
//!
//! Damage found before an extent was accepted kept it from being accepted. What was found since is compared with where
//! the session's chunks and nodes lie; only when the two meet, or when that is not known, is the recipe walked and every
//! chunk looked up: also of what has healed, for the copies that healed it may be gone. Damage found after this is damage
//! of a committed backup, as if found a moment after the commit.

use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::ContainerClass;

use super::disk::DiskState;
use super::session::{DiskSlot, Session};
use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentEntry, PAGE_EXTENTS};
use crate::recipe::{TreeReader, WalkError};
use crate::store::{Domain, Holds, NodeReader, Reach};

/// Containers of each disk's recipe, as far as known, for the next backup's sake.
///
/// # Errors
/// [`EngineError::FoundDamaged`] when something that the session relies on is lost.
pub(super) fn check(core: &Core, session: &Session) -> Result<Vec<(Fingerprint, Reach)>, EngineError> {
    let domain = core.store.domain(session.namespace_id());
    let mut reaches = Vec::new();
    for slot in &session.disks {
        let mut state = slot.state.lock();
        // The commit says what is wrong with a disk that is not finished.
        let Some(finished) = state.finished else { continue };
        if let Some(reach) = check_disk(core, &domain, slot, &mut state, finished.root)? {
            reaches.push((finished.root, reach));
        }
    }
    Ok(reaches)
}

fn check_disk(
    core: &Core,
    domain: &Domain,
    slot: &DiskSlot,
    state: &mut DiskState,
    root: Fingerprint,
) -> Result<Option<Reach>, EngineError> {
    let namespace = domain.namespace;
    // Before anything is looked at: what is found from here on is news to the next backup.
    let sound_as_of = core.store.damage_generation(namespace);
    let reach = state.reach(slot.parent.as_ref());
    let is_spared = |reach: &Reach| {
        let damaged = core.store.damaged_since(namespace, reach.sound_as_of);
        reach.is_spared(&damaged, &core.store.leftovers)
    };
    if reach.as_ref().is_some_and(is_spared) {
        return Ok(reach.map(|reach| Reach { sound_as_of, ..reach }));
    }
    if core.store.damaged_since(namespace, state.sound_since()).is_empty() {
        // (R7) Earlier damage may have healed by copies of which the parent does not know.
        return Ok(reach);
    }
    // (R7) Also when nothing is open any more: only a look-up knows where the other copies are, and whether they are there.
    let holds = Walk::new(core, domain, slot).disk(root)?;
    let mut containers = holds.containers().clone();
    // (D1) Until the session ends: a round of reclaim that begins before the commit does not know what it refers to.
    state.hold_also(holds);
    // The nodes above the pages were written or found by this session.
    containers |= state.recipe.relies_on();
    Ok(Some(Reach { containers: Arc::new(containers), sound_as_of }))
}

/// Name for the part that is lost with a page, for messages.
const RECIPE: &str = "the recipe";

/// Looks up everything a recipe refers to.
struct Walk<'a> {
    core: &'a Core,
    domain: &'a Domain,
    slot: &'a DiskSlot,
    nodes: RecentDirectories,
    chunks: RecentDirectories,
    /// Holds on the copies found. They are kept: the copy the backup was told of may be the one that is lost.
    holds: Holds,
}

impl<'a> Walk<'a> {
    fn new(core: &'a Core, domain: &'a Domain, slot: &'a DiskSlot) -> Self {
        let (nodes, chunks) = (RecentDirectories::default(), RecentDirectories::default());
        Self { core, domain, slot, nodes, chunks, holds: core.store.leftovers.holds() }
    }

    /// Walks the disk's recipe and returns holds on everything it found.
    fn disk(mut self, root: Fingerprint) -> Result<Holds, EngineError> {
        let walked = self.pages(root);
        if walked.is_err() {
            self.holds.release();
        }
        walked.map(|()| self.holds)
    }

    fn pages(&mut self, root: Fingerprint) -> Result<(), EngineError> {
        let source = NodeReader::new(Arc::clone(&self.core.store), self.domain.clone());
        let tree = TreeReader::open(source, root, self.slot.size_bytes)
            .map_err(|error| self.failed(error, RECIPE))?;
        for page in 0..tree.extent_count().div_ceil(PAGE_EXTENTS as u64) {
            let name = tree.page_name(page);
            if name.is_zero() {
                continue;
            }
            self.node(&name, RECIPE)?;
            let entries = tree.page_entries(page).map_err(|error| self.failed(error, RECIPE))?;
            let first = page * PAGE_EXTENTS as u64;
            for (index, entry) in (first..).zip(&entries).filter(|(_, entry)| !entry.node.is_zero()) {
                self.extent(&tree, index, entry)?;
            }
        }
        Ok(())
    }

    fn extent(
        &mut self,
        tree: &TreeReader<NodeReader>,
        index: u64,
        entry: &ExtentEntry,
    ) -> Result<(), EngineError> {
        let what = format!("extent {index}");
        self.node(&entry.node, &what)?;
        let node = tree.extent_of(index, entry).map_err(|error| self.failed(error, &what))?;
        let Some(node) = node else { return Err(self.lost(&what)) };
        for piece in node.pieces().iter().filter(|piece| !piece.is_zero()) {
            let (store, class, holds) = (&self.core.store, ContainerClass::Data, &mut self.holds);
            let found =
                store.find_to_keep(self.domain, class, &piece.fingerprint, &mut self.chunks, holds)?;
            if found.is_none_or(|found| found.chunk.bytes != piece.bytes) {
                return Err(self.lost(&what));
            }
        }
        Ok(())
    }

    fn node(&mut self, name: &Fingerprint, what: &str) -> Result<(), EngineError> {
        let (store, class, holds) = (&self.core.store, ContainerClass::Recipe, &mut self.holds);
        let found = store.find_to_keep(self.domain, class, name, &mut self.nodes, holds)?;
        found.map(drop).ok_or_else(|| self.lost(what))
    }

    /// Returns damage as a loss; errors of data that cannot be read now are passed on.
    fn failed(&self, error: WalkError<EngineError>, what: &str) -> EngineError {
        match error {
            WalkError::Source(EngineError::Damaged(_))
            | WalkError::Node { .. }
            | WalkError::Shape { .. }
            | WalkError::Above(_) => self.lost(what),
            WalkError::Source(other) => other,
        }
    }

    fn lost(&self, what: &str) -> EngineError {
        let disk = &self.slot.name;
        EngineError::FoundDamaged(format!(
            "the backup cannot be committed: {what} of disk {disk:?} refers to data that was found damaged while this backup ran; start the backup again, and it is sent again"
        ))
    }
}
