//! The mark: finds the chunks and recipe nodes that the roots refer to.
//!
//! Every node is read once: its bit in [`AllBits`] says that it was met. The roots of a disk are followed from the
//! oldest to the newest, page by page ([`Pages`]), and of a page only what differs from the one before is looked at.
//! Chunks are found along a [`Trail`]. Two threads take pages in turn.
//!
//! Memory: a bit for each chunk of the window's data containers ([`WINDOW_BYTES`](super::live::WINDOW_BYTES), asserted)
//! and for each recipe node there is (10¹⁰ references in extents of 256 are 5 MiB), the roots, and per thread a trail of
//! 16 open containers and some decoded regions.
//!
//! Nodes that cannot be read make the mark incomplete for their namespace. A chunk that known damage explains does not:
//! it is lost already, and everything is kept of the containers that may hold it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, ContainerClass, NamespaceId};
use parking_lot::Mutex;

use super::attribution::Shares;
use super::control::{Control, Pacer, Phase};
use super::live::{AllBits, Bits, Candidates, LiveMap, Scope, split};
use super::roots::{PageTask, Pages, Root, Roots};
use super::trail::{Finder, Lead, NodeRegions, Trail};
use crate::container::OpenContainer;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentNode, Page};

/// Threads that mark.
const THREADS: usize = 2;

/// Findings kept of one namespace: enough to see what is wrong.
const FINDINGS_MAX: usize = 64;

/// Copies of a node that are tried before what is left of damaged containers.
const COPIES_MAX: u32 = 8;

/// A reference below a root that cannot be followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The first root that led there; others may, too.
    pub(crate) backup: BackupId,
    /// Empty when the restore point has gone since.
    pub(crate) vm: String,
    pub(crate) disk: Arc<str>,
    pub(crate) reason: String,
}

/// Result of a mark.
#[derive(Debug, Default)]
pub(crate) struct Marked {
    /// The live chunks of each candidate.
    pub(crate) live: LiveMap,
    /// Namespaces of which not everything could be followed, with the first findings: nothing of them may go.
    pub(crate) incomplete: BTreeMap<NamespaceId, Vec<Finding>>,
    /// Chunks lost by known damage, by namespace: the mark is complete without them.
    pub(crate) lost: BTreeMap<NamespaceId, Vec<Finding>>,
    /// Namespaces of which a recipe could be followed only with what is left of damaged containers.
    pub(crate) salvaged: BTreeSet<NamespaceId>,
    /// References to chunks that were followed.
    pub(crate) references: u64,
}

/// Marks the chunks and nodes that `roots` refer to.
///
/// # Errors
/// [`EngineError::Stopped`]; errors of data that cannot be read now but is not damaged. Damage is in the answer.
pub(crate) fn mark(
    core: &Core,
    roots: &Roots,
    candidates: &Candidates,
    scope: &Scope,
    control: &Control,
) -> Result<Marked, EngineError> {
    let marking = Marking::new(core, candidates, scope, control);
    control.begin(Phase::Marking, Pages::count(roots));
    marking.walk(roots, None)?;
    marking.into_marked()
}

/// Bytes that chunks take, as [`Shares`] counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) data_bytes: u64,
    pub(crate) recipe_bytes: u64,
}

/// Marks the chunks and nodes that `roots` refer to and `others` do not, among the candidates' data and all recipe
/// nodes.
///
/// # Errors
/// As [`mark`].
pub(crate) fn only_in(
    core: &Core,
    roots: &Roots,
    others: &Roots,
    candidates: &Candidates,
    control: &Control,
) -> Result<(Taken, Marked), EngineError> {
    let scope = Scope::all();
    let marking = Marking::new(core, candidates, &scope, control);
    control.begin(Phase::Marking, Pages::count(others) + Pages::count(roots));
    marking.walk(others, None)?;
    // Nodes and chunks that are not marked yet belong to `roots` alone.
    let taken = Mutex::new(Taken::default());
    marking.walk(roots, Some(&taken))?;
    Ok((taken.into_inner(), marking.into_marked()?))
}

/// State shared by the threads of one mark.
struct Marking<'a> {
    core: &'a Core,
    scope: &'a Scope,
    control: &'a Control,
    bits: AllBits<'a>,
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    incomplete: BTreeMap<NamespaceId, Vec<Finding>>,
    lost: BTreeMap<NamespaceId, Vec<Finding>>,
    salvaged: BTreeSet<NamespaceId>,
    references: u64,
}

impl<'a> Marking<'a> {
    fn new(core: &'a Core, candidates: &'a Candidates, scope: &'a Scope, control: &'a Control) -> Self {
        Self { core, scope, control, bits: AllBits::new(candidates), found: Mutex::default() }
    }

    /// Follows all `roots`; `taken` gets what the bits that were not set before take.
    fn walk(&self, roots: &Roots, taken: Option<&Mutex<Taken>>) -> Result<(), EngineError> {
        let pages = Pages::new(roots);
        let worked = std::thread::scope(|scope| {
            let work = || Worker::new(self, taken.is_some()).run(&pages, taken);
            let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(work)).collect();
            let own = work();
            let joined = others.into_iter().map(|other| {
                other.join().map_err(|_| EngineError::Internal("a thread that marked died".into())).flatten()
            });
            joined.fold(own, |all, one| all.and(one))
        });
        for (root, reason) in pages.into_lost() {
            self.note(root, reason, false);
        }
        worked
    }

    fn into_marked(self) -> Result<Marked, EngineError> {
        let Found { mut incomplete, mut lost, salvaged, references } = self.found.into_inner();
        for finding in incomplete.values_mut().chain(lost.values_mut()).flatten() {
            finding.vm = self.core.catalog.backup(finding.backup)?.map(|found| found.vm).unwrap_or_default();
        }
        self.bits.check_bound();
        Ok(Marked { live: self.bits.into_map(), incomplete, lost, salvaged, references })
    }

    fn note(&self, root: &Root, reason: String, is_lost: bool) {
        let mut found = self.found.lock();
        let all = if is_lost { &mut found.lost } else { &mut found.incomplete };
        let findings = all.entry(root.namespace).or_default();
        if findings.len() < FINDINGS_MAX {
            let (backup, disk) = (root.backup, Arc::clone(&root.disk));
            findings.push(Finding { backup, vm: String::new(), disk, reason });
        }
    }
}

/// Bits of one container of a worker's trail that are not written yet, all of one word.
struct Pending {
    bits: Option<Arc<Bits>>,
    place: usize,
    mask: u64,
}

/// One thread's part of a walk.
struct Worker<'a> {
    marking: &'a Marking<'a>,
    pacer: Pacer<'a>,
    nodes: Trail<Pending>,
    chunks: Trail<Pending>,
    regions: NodeRegions,
    /// `None`: nothing is counted.
    taken: Option<Taken>,
    references: u64,
    read_bytes: u64,
}

impl<'a> Worker<'a> {
    fn new(marking: &'a Marking<'a>, counts: bool) -> Self {
        Self {
            marking,
            pacer: marking.control.pacer(),
            nodes: Trail::new(ContainerClass::Recipe),
            chunks: Trail::new(ContainerClass::Data),
            regions: NodeRegions::default(),
            taken: counts.then(Taken::default),
            references: 0,
            read_bytes: 0,
        }
    }

    fn run(mut self, pages: &Pages<'_>, taken: Option<&Mutex<Taken>>) -> Result<(), EngineError> {
        let done = self.take_pages(pages);
        // Others end as well, with what they have in hand.
        if done.is_err() {
            pages.end();
        }
        self.marking.found.lock().references += self.references;
        if let (Some(all), Some(own)) = (taken, self.taken) {
            let mut all = all.lock();
            all.data_bytes += own.data_bytes;
            all.recipe_bytes += own.recipe_bytes;
        }
        done
    }

    fn take_pages(&mut self, pages: &Pages<'_>) -> Result<(), EngineError> {
        loop {
            let next = pages.next(&mut |root, fingerprint| self.upper(root, fingerprint))?;
            let Some(task) = next else { return Ok(()) };
            let done = task.len();
            self.pages(&task)?;
            self.marking.control.add_done(done);
        }
    }

    /// The pages of one number of consecutive roots of a disk, oldest first.
    fn pages(&mut self, task: &PageTask<'_>) -> Result<(), EngineError> {
        for number in task.numbers() {
            let mut before: Option<(Fingerprint, Vec<Fingerprint>)> = None;
            for (root, tree) in task.trees() {
                let name = tree.page_name(number);
                if let Some(reason) = tree.lost_above(number) {
                    self.marking.note(root, reason.to_owned(), false);
                    continue;
                }
                if name.is_zero() || before.as_ref().is_some_and(|(known, _)| *known == name) {
                    continue;
                }
                let finder = self.finder(root.namespace);
                let Some(bytes) = self.visit(root, &finder, &name)? else { continue };
                match Page::decode(&bytes) {
                    Ok(page) => {
                        let nodes: Vec<_> = page.entries.iter().map(|entry| entry.node).collect();
                        self.extents(
                            root,
                            &finder,
                            &nodes,
                            before.as_ref().map_or(&[][..], |(_, nodes)| nodes.as_slice()),
                        )?;
                        before = Some((name, nodes));
                    }
                    Err(error) => self.marking.note(root, format!("recipe node {name}: {error}"), false),
                }
            }
            self.forget_nodes();
        }
        Ok(())
    }

    /// The extents of a page that are not those of the page before.
    fn extents(
        &mut self,
        root: &Root,
        finder: &Finder<'_>,
        nodes: &[Fingerprint],
        before: &[Fingerprint],
    ) -> Result<(), EngineError> {
        for (place, node) in nodes.iter().enumerate() {
            if node.is_zero() || before.get(place) == Some(node) {
                continue;
            }
            let Some(bytes) = self.visit(root, finder, node)? else { continue };
            match ExtentNode::decode(&bytes) {
                Ok(extent) => {
                    let chunks = extent.pieces().iter().filter(|piece| !piece.is_zero());
                    for piece in chunks {
                        self.chunk(root, finder, &piece.fingerprint)?;
                    }
                }
                Err(error) => self.marking.note(root, format!("recipe node {node}: {error}"), false),
            }
            self.forget_chunks();
        }
        Ok(())
    }

    fn chunk(&mut self, root: &Root, finder: &Finder<'_>, name: &Fingerprint) -> Result<(), EngineError> {
        self.references += 1;
        let bits = &self.marking.bits;
        let taken = &mut self.taken;
        let enter_data = |new: &Arc<OpenContainer>| {
            let pending = enter(bits, new);
            if let Some(bits) = &pending.bits {
                bits.met_by(root.vm);
            }
            pending
        };
        let found = self.chunks.find(finder, name, enter_data, |old| leave(&old, taken))?;
        match found {
            Some((lead, number)) => {
                add(lead, number, &mut self.taken);
                Ok(())
            }
            None => self.lose(root, finder, ContainerClass::Data, name),
        }
    }

    /// A chunk is nowhere sound: known damage explains it, or the mark is not complete.
    fn lose(
        &self,
        root: &Root,
        finder: &Finder<'_>,
        class: ContainerClass,
        name: &Fingerprint,
    ) -> Result<(), EngineError> {
        let places = finder.damaged_places(class, name)?;
        for place in &places {
            self.marking.bits.keep(place.container);
        }
        let reason = match places.first() {
            Some(place) => {
                format!("chunk {name} was in container {}, which is damaged", place.container)
            }
            None => format!("chunk {name} is not there, and no known damage explains it"),
        };
        self.marking.note(root, reason, !places.is_empty());
        Ok(())
    }

    /// A node above the pages: marked, and read whether or not it was before.
    fn upper(&mut self, root: &Root, name: &Fingerprint) -> Result<Bytes, EngineError> {
        let finder = self.finder(root.namespace);
        let read = self.node(&finder, name, true)?;
        self.forget_nodes();
        read.ok_or_else(|| lost(name))
    }

    /// The bytes of a page or an extent node that was not met before. What cannot be read is noted.
    fn visit(
        &mut self,
        root: &Root,
        finder: &Finder<'_>,
        name: &Fingerprint,
    ) -> Result<Option<Bytes>, EngineError> {
        self.pacer.charge(std::mem::take(&mut self.read_bytes), 0)?;
        match self.node(finder, name, false) {
            Err(EngineError::Damaged(reason)) => {
                self.marking.note(root, reason, false);
                Ok(None)
            }
            done => done,
        }
    }

    /// Marks a node and reads it: always, or only when it was not met before.
    fn node(
        &mut self,
        finder: &Finder<'_>,
        name: &Fingerprint,
        always: bool,
    ) -> Result<Option<Bytes>, EngineError> {
        let store = &self.marking.core.store;
        let mut new = always;
        for _ in 0..COPIES_MAX {
            let bits = &self.marking.bits;
            let taken = &mut self.taken;
            let found = self.nodes.find(finder, name, |new| enter(bits, new), |old| leave(&old, taken))?;
            let Some((lead, number)) = found else { break };
            let (place, mask) = split(number);
            let set = lead.kept.bits.as_ref().map_or(0, |bits| bits.set(place, mask));
            count(&lead.container, place, set, &mut self.taken);
            new |= set != 0;
            if !new {
                return Ok(None);
            }
            match self.regions.read(&lead.container, number) {
                Ok((bytes, read)) => {
                    self.read_bytes += read;
                    return Ok(Some(bytes));
                }
                Err(error) if error.is_damage() => {
                    let region = lead.container.directory().place_of(number).map(|(region, _)| region);
                    store.note_failure(lead.container.id(), region, &error);
                    // Its containers are looked at again, now that this is known of one.
                    self.nodes.clear(|old| leave(&old, &mut self.taken));
                }
                Err(error) => return Err(error.into()),
            }
        }
        for place in finder.damaged_places(ContainerClass::Recipe, name)? {
            self.marking.bits.keep(place.container);
        }
        // It is not known which of the damaged containers it is in.
        self.marking.found.lock().salvaged.insert(finder.namespace());
        finder.read_anywhere(name)?.ok_or_else(|| lost(name)).map(Some)
    }

    fn finder(&self, namespace: NamespaceId) -> Finder<'a> {
        Finder::new(self.marking.core, self.marking.scope, namespace)
    }

    fn forget_nodes(&mut self) {
        self.nodes.clear(|old| leave(&old, &mut self.taken));
    }

    /// A trail of chunks is that of one extent.
    fn forget_chunks(&mut self) {
        self.chunks.clear(|old| leave(&old, &mut self.taken));
        let references = std::mem::take(&mut self.references);
        self.marking.control.add_references(references);
        self.marking.found.lock().references += references;
    }
}

fn lost(node: &Fingerprint) -> EngineError {
    EngineError::Damaged(format!("recipe node {node} is missing or damaged"))
}

fn enter(bits: &AllBits<'_>, container: &Arc<OpenContainer>) -> Pending {
    Pending { bits: bits.of(container), place: 0, mask: 0 }
}

/// Takes note of a chunk; its bit is written with others of the same word.
fn add(lead: &mut Lead<Pending>, number: u32, taken: &mut Option<Taken>) {
    let (place, bit) = split(number);
    if lead.kept.place != place {
        leave(lead, taken);
        (lead.kept.place, lead.kept.mask) = (place, 0);
    }
    lead.kept.mask |= bit;
}

/// Writes the pending bits.
fn leave(lead: &Lead<Pending>, taken: &mut Option<Taken>) {
    let Pending { bits: Some(bits), place, mask } = &lead.kept else { return };
    if *mask != 0 {
        let new = bits.set(*place, *mask);
        count(&lead.container, *place, new, taken);
    }
}

/// Adds the bytes that these chunks take.
fn count(container: &OpenContainer, place: usize, new: u64, taken: &mut Option<Taken>) {
    let Some(taken) = taken.as_mut().filter(|_| new != 0) else { return };
    let sum = match container.class() {
        ContainerClass::Data => &mut taken.data_bytes,
        ContainerClass::Recipe => &mut taken.recipe_bytes,
    };
    let shares = Shares::of(container);
    let first = u32::try_from(place).unwrap_or(u32::MAX).saturating_mul(u64::BITS);
    let numbers = (0..u64::BITS).filter(|bit| new >> bit & 1 == 1).map(|bit| first + bit);
    *sum += numbers.map(|number| shares.bytes(container, number)).sum::<u64>();
}
