//! Attribution of the live bytes of data containers to restore points.
//!
//! Two passes over the pages of all recipes, each with two threads. The first joins into every extent node the
//! [`Share`](super::owners::Share)s of the restore points that have it; pages that did not change since the restore point
//! before are not read again. The second reads every extent node once and joins its share into its chunks. So the work is
//! that of a mark and a half, however many restore points share what they have. What a chunk takes is as in
//! [`Shares`], so what is attributed adds up to the live bytes, to the byte.
//!
//! Memory: four bytes for each extent node (160 MiB for 10¹⁰ references), and for each chunk of the data containers of a
//! window, which are taken in one after the other.
//!
//! **Shares.** Live, freed and attributed bytes are counted alike: a chunk takes a part of its region's stored bytes by its
//! plain length, and an equal part of what the container has beside its regions (header, region headers, directory, footer).
//! Parts are differences of rounded prefixes, so those of all chunks of a container add up to the length of its file, to the
//! byte.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use holdfast_catalog::{AttributionRecord, BackupShareRecord};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId, VmId};
use parking_lot::RwLock;

use super::control::{Control, Pacer, Phase};
use super::live::{AllBits, Candidates, Scope, is_live_data};
use super::owners::{Holder, Holders, Share, ShareList};
use super::roots::{PageTask, Pages, Root, Roots};
use super::trail::{Finder, Lead, NodeRegions, Trail};
use crate::container::OpenContainer;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentNode, Page};

/// Threads that walk.
const THREADS: usize = 2;

/// A window's bits, as [`Candidates::window`] counts them: at four bytes a chunk its shares take 32 times as much, 256
/// MiB for 64 million chunks, which are 1 TB in chunks of 16 KiB.
const WINDOW_BYTES: u64 = 8 << 20;

/// Bytes that one restore point holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupShare {
    pub backup: BackupId,
    /// Bytes that no other restore point needs: deleting it frees them.
    pub exclusive_bytes: u64,
    /// Its part of the live bytes.
    pub attributed_bytes: u64,
}

/// Attribution of the live bytes of data containers: to restore points, VMs and jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attribution {
    /// Live bytes of all data containers; attributed bytes add up to it.
    pub live_bytes: u64,
    /// True if every recipe could be followed.
    pub is_complete: bool,
    /// Shares of every restore point; those of one VM together and oldest first.
    pub backups: Vec<BackupShare>,
    /// Bytes that only restore points of this VM have.
    pub vms: BTreeMap<VmId, u64>,
    /// Bytes that only restore points of this job have.
    pub jobs: BTreeMap<(NamespaceId, String), u64>,
}

/// Attributes everything there is, and keeps it in the catalog.
///
/// # Errors
/// [`EngineError::Stopped`]; what cannot be read now. Damage leaves out what it took.
pub(crate) fn attribute(core: &Core, control: &Control) -> Result<Attribution, EngineError> {
    let at_ms = core.clock.now_ms();
    let found = attribute_in_windows(core, control, WINDOW_BYTES)?;
    core.catalog.record_attribution(&AttributionRecord {
        at_ms,
        live_bytes: found.live_bytes,
        is_complete: found.is_complete,
        backups: found.backups.iter().map(record_of).collect(),
        vms: found.vms.iter().map(|(vm, bytes)| (*vm, *bytes)).collect(),
        jobs: found.jobs.iter().map(|((namespace, job), bytes)| (*namespace, job.clone(), *bytes)).collect(),
    })?;
    Ok(found)
}

const fn record_of(share: &BackupShare) -> BackupShareRecord {
    let BackupShare { backup, exclusive_bytes, attributed_bytes } = *share;
    BackupShareRecord { backup, exclusive_bytes, attributed_bytes }
}

pub(super) fn attribute_in_windows(
    core: &Core,
    control: &Control,
    window_bytes: u64,
) -> Result<Attribution, EngineError> {
    let roots = Roots::load(core)?;
    let holders = holders(core, &roots)?;
    let scope = Scope::all();
    let walk = Walk {
        core,
        control,
        scope: &scope,
        holders: &holders,
        nodes: Lists::default(),
        is_complete: AtomicBool::new(true),
    };
    control.begin(Phase::Attributing, Pages::count(&roots));
    walk.run(&roots, |worker, task| worker.share_nodes(task), None)?;
    let mut sums = Sums::new(&holders);
    let mut after = None;
    while let Some((candidates, last)) = Candidates::window(&core.catalog, after, window_bytes, is_live_data)?
    {
        control.begin(Phase::Attributing, Pages::count(&roots));
        let window = Window { bits: AllBits::new(&candidates), chunks: Lists::default() };
        walk.run(&roots, |worker, task| worker.share_chunks(task), Some(&window))?;
        sums.add(core, &window.chunks, control)?;
        after = Some(last);
    }
    Ok(sums.into_attribution(walk.is_complete.load(Ordering::Relaxed)))
}

/// Every restore point that has roots, or none, in the order of roots.
fn holders(core: &Core, roots: &Roots) -> Result<Holders, EngineError> {
    let known: HashSet<BackupId> = roots.iter().map(|root| root.backup).collect();
    let mut all = Vec::new();
    for id in core.catalog.all_backup_ids() {
        let Some(backup) = core.catalog.backup(id?)? else { continue };
        // One that came since the roots were read holds nothing yet.
        if !known.contains(&backup.id) {
            continue;
        }
        let key = (backup.namespace, backup.vm_id, backup.finished_ms, backup.id);
        all.push((
            key,
            Holder { backup: backup.id, namespace: backup.namespace, vm: backup.vm_id, job: backup.job },
        ));
    }
    all.sort_unstable_by_key(|(key, _)| *key);
    let all = all.into_iter().map(|(_, holder)| holder).collect();
    Holders::new(all).ok_or_else(|| EngineError::Limit("there are too many restore points".into()))
}

/// Shares by container.
#[derive(Debug, Default)]
struct Lists(RwLock<HashMap<ContainerId, Arc<ShareList>>>);

impl Lists {
    fn of(&self, container: &OpenContainer) -> Arc<ShareList> {
        if let Some(list) = self.0.read().get(&container.id()) {
            return Arc::clone(list);
        }
        let chunks = u32::try_from(container.directory().chunk_count()).unwrap_or(u32::MAX);
        let mut lists = self.0.write();
        Arc::clone(lists.entry(container.id()).or_insert_with(|| Arc::new(ShareList::new(chunks))))
    }
}

/// The data containers whose chunks are shared out now.
struct Window<'a> {
    /// Bits of the nodes that were met, and of the data containers that are looked at.
    bits: AllBits<'a>,
    chunks: Lists,
}

/// State that the threads share.
struct Walk<'a> {
    core: &'a Core,
    control: &'a Control,
    scope: &'a Scope,
    holders: &'a Holders,
    nodes: Lists,
    is_complete: AtomicBool,
}

impl Walk<'_> {
    fn run<'w>(
        &'w self,
        roots: &Roots,
        each: impl Fn(&mut Worker<'w>, &PageTask<'_>) -> Result<(), EngineError> + Sync,
        window: Option<&'w Window<'w>>,
    ) -> Result<(), EngineError> {
        let pages = Pages::new(roots);
        let done = std::thread::scope(|scope| {
            let work = || {
                let mut worker = Worker::new(self, window);
                let done = worker.take(&pages, &each);
                if done.is_err() {
                    pages.end();
                }
                done
            };
            let others: Vec<_> = (1..THREADS).map(|_| scope.spawn(work)).collect();
            let own = work();
            let joined = others.into_iter().map(|other| {
                other
                    .join()
                    .map_err(|_| EngineError::Internal("a thread that attributed died".into()))
                    .flatten()
            });
            joined.fold(own, |all, one| all.and(one))
        });
        if !pages.into_lost().is_empty() {
            self.miss();
        }
        done
    }

    fn miss(&self) {
        self.is_complete.store(false, Ordering::Relaxed);
    }
}

/// A node of a page, and where its share is kept.
type NodePlace = (Fingerprint, Arc<ShareList>, u32);

struct Worker<'w> {
    walk: &'w Walk<'w>,
    window: Option<&'w Window<'w>>,
    pacer: Pacer<'w>,
    nodes: Trail<Arc<ShareList>>,
    chunks: Trail<Option<Arc<ShareList>>>,
    regions: NodeRegions,
    read_bytes: u64,
}

impl<'w> Worker<'w> {
    fn new(walk: &'w Walk<'w>, window: Option<&'w Window<'w>>) -> Self {
        Self {
            walk,
            window,
            pacer: walk.control.pacer(),
            nodes: Trail::new(ContainerClass::Recipe),
            chunks: Trail::new(ContainerClass::Data),
            regions: NodeRegions::default(),
            read_bytes: 0,
        }
    }

    fn take(
        &mut self,
        pages: &Pages<'_>,
        each: &(impl Fn(&mut Self, &PageTask<'_>) -> Result<(), EngineError> + Sync),
    ) -> Result<(), EngineError> {
        loop {
            let next = pages.next(&mut |root, node| {
                let finder = self.finder(root);
                let lost = || EngineError::Damaged(format!("recipe node {node} is missing or damaged"));
                self.read(&finder, node)?.map(|(bytes, ..)| bytes).ok_or_else(lost)
            })?;
            let Some(task) = next else { return Ok(()) };
            each(self, &task)?;
            self.nodes.clear(drop);
            self.walk.control.add_done(task.len());
        }
    }

    fn finder(&self, root: &Root) -> Finder<'w> {
        Finder::new(self.walk.core, self.walk.scope, root.namespace)
    }

    /// First pass: the shares of extent nodes.
    fn share_nodes(&mut self, task: &PageTask<'_>) -> Result<(), EngineError> {
        for number in task.numbers() {
            let mut before: Option<(Fingerprint, Vec<Option<NodePlace>>)> = None;
            for (root, tree) in task.trees() {
                let name = tree.page_name(number);
                if tree.lost_above(number).is_some() {
                    self.walk.miss();
                    continue;
                }
                let Some(share) = self.walk.holders.share_of(root.backup).filter(|_| !name.is_zero()) else {
                    continue;
                };
                if before.as_ref().is_none_or(|(known, _)| *known != name) {
                    let old = before.as_ref().map_or(&[][..], |(_, places)| places.as_slice());
                    let Some(places) = self.places(root, &name, old)? else { continue };
                    before = Some((name, places));
                }
                for (node, list, slot) in before.iter().flat_map(|(_, places)| places).flatten() {
                    list.join(self.walk.holders, *slot, node, share);
                }
            }
        }
        Ok(())
    }

    /// The places of a page's extent nodes; those that `before` has at the same place are taken from there.
    fn places(
        &mut self,
        root: &Root,
        name: &Fingerprint,
        before: &[Option<NodePlace>],
    ) -> Result<Option<Vec<Option<NodePlace>>>, EngineError> {
        let finder = self.finder(root);
        let Some(page) = self.page(&finder, name)? else { return Ok(None) };
        let mut places = Vec::with_capacity(page.entries.len());
        for (place, entry) in page.entries.iter().enumerate() {
            let known = before.get(place).and_then(Option::as_ref).filter(|known| known.0 == entry.node);
            places.push(match known {
                _ if entry.node.is_zero() => None,
                Some(known) => Some(known.clone()),
                None => self.locate(&finder, &entry.node)?,
            });
        }
        Ok(Some(places))
    }

    fn locate(&mut self, finder: &Finder<'_>, node: &Fingerprint) -> Result<Option<NodePlace>, EngineError> {
        let lists = &self.walk.nodes;
        let found = self.nodes.find(finder, node, |new| lists.of(new), drop)?;
        let place = found.map(|(lead, number)| (*node, Arc::clone(&lead.kept), number));
        if place.is_none() {
            self.walk.miss();
        }
        Ok(place)
    }

    /// Second pass: the shares of chunks.
    fn share_chunks(&mut self, task: &PageTask<'_>) -> Result<(), EngineError> {
        for number in task.numbers() {
            let mut before: Option<(Fingerprint, Vec<Fingerprint>)> = None;
            for (root, tree) in task.trees() {
                let name = tree.page_name(number);
                let known = before.as_ref().is_some_and(|(known, _)| *known == name);
                if name.is_zero() || known || tree.lost_above(number).is_some() {
                    continue;
                }
                let finder = self.finder(root);
                let Some(page) = self.page(&finder, &name)? else { continue };
                let nodes: Vec<_> = page.entries.iter().map(|entry| entry.node).collect();
                let old = before.as_ref().map_or(&[][..], |(_, nodes)| nodes.as_slice());
                for (place, node) in nodes.iter().enumerate().filter(|(_, node)| !node.is_zero()) {
                    if old.get(place) != Some(node) {
                        self.extent(&finder, node)?;
                    }
                }
                before = Some((name, nodes));
            }
        }
        Ok(())
    }

    fn extent(&mut self, finder: &Finder<'_>, node: &Fingerprint) -> Result<(), EngineError> {
        let Some(window) = self.window else { return Ok(()) };
        let lists = &self.walk.nodes;
        let Some((lead, number)) = self.nodes.find(finder, node, |new| lists.of(new), drop)? else {
            return Ok(());
        };
        let is_new = window.bits.of(&lead.container).is_some_and(|bits| bits.set_one(number));
        let share = lead.kept.get(number);
        if !is_new || share == Share::default() {
            return Ok(());
        }
        let Some((bytes, ..)) = self.read(finder, node)? else { return Ok(()) };
        let Ok(extent) = ExtentNode::decode(&bytes) else {
            self.walk.miss();
            return Ok(());
        };
        let wanted =
            |container: &Arc<OpenContainer>| window.bits.of(container).map(|_| window.chunks.of(container));
        for piece in extent.pieces().iter().filter(|piece| !piece.is_zero()) {
            let name = &piece.fingerprint;
            match self.chunks.find(finder, name, wanted, drop)? {
                None => self.walk.miss(),
                Some((Lead { kept: Some(list), .. }, number)) => {
                    list.join(self.walk.holders, number, name, share);
                }
                Some(_) => {}
            }
        }
        self.walk.control.add_references(extent.pieces().len() as u64);
        self.chunks.clear(drop);
        Ok(())
    }

    fn page(&mut self, finder: &Finder<'_>, name: &Fingerprint) -> Result<Option<Page>, EngineError> {
        let Some((bytes, ..)) = self.read(finder, name)? else { return Ok(None) };
        let page = Page::decode(&bytes).ok();
        if page.is_none() {
            self.walk.miss();
        }
        Ok(page)
    }

    /// A node's bytes; `None`, and the attribution is not complete, when it is lost.
    fn read(&mut self, finder: &Finder<'_>, name: &Fingerprint) -> Result<Option<(Bytes, u64)>, EngineError> {
        self.pacer.charge(std::mem::take(&mut self.read_bytes), 0)?;
        let lists = &self.walk.nodes;
        if let Some((lead, number)) = self.nodes.find(finder, name, |new| lists.of(new), drop)? {
            match self.regions.read(&lead.container, number) {
                Ok((bytes, read)) => {
                    self.read_bytes += read;
                    return Ok(Some((bytes, read)));
                }
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let found = finder.read_anywhere(name)?.map(|bytes| (bytes, 0));
        if found.is_none() {
            self.walk.miss();
        }
        Ok(found)
    }
}

/// Bytes attributed so far.
struct Sums<'a> {
    holders: &'a Holders,
    live_bytes: u64,
    /// Exclusive and attributed bytes beside each holder.
    backups: Vec<(u64, u64)>,
    vms: BTreeMap<VmId, u64>,
    jobs: BTreeMap<(NamespaceId, String), u64>,
}

impl<'a> Sums<'a> {
    fn new(holders: &'a Holders) -> Self {
        let vms = holders.iter().map(|holder| (holder.vm, 0)).collect();
        let jobs = holders.iter().map(|holder| ((holder.namespace, holder.job.clone()), 0)).collect();
        Self { holders, live_bytes: 0, backups: vec![(0, 0); holders.len()], vms, jobs }
    }

    /// Adds a window's chunks.
    fn add(&mut self, core: &Core, chunks: &Lists, control: &Control) -> Result<(), EngineError> {
        let mut pacer = control.pacer();
        for (id, list) in chunks.0.write().drain() {
            pacer.charge(0, 0)?;
            let container = core.store.containers.open(id, ContainerClass::Data)?;
            let shares = Shares::of(&container);
            let count = u32::try_from(container.directory().chunk_count()).unwrap_or(u32::MAX);
            for number in 0..count {
                let share = list.get(number);
                if let Some(place) = Holders::place(share) {
                    self.add_chunk(place, share, shares.bytes(&container, number));
                }
            }
        }
        Ok(())
    }

    fn add_chunk(&mut self, place: usize, share: Share, bytes: u64) {
        let (Some(holder), Some((exclusive, attributed))) =
            (self.holders.get(place), self.backups.get_mut(place))
        else {
            return;
        };
        self.live_bytes += bytes;
        *attributed += bytes;
        if share.has_one_backup() {
            *exclusive += bytes;
        }
        if share.has_one_vm()
            && let Some(sum) = self.vms.get_mut(&holder.vm)
        {
            *sum += bytes;
        }
        if share.has_one_job()
            && let Some(sum) = self.jobs.get_mut(&(holder.namespace, holder.job.clone()))
        {
            *sum += bytes;
        }
    }

    fn into_attribution(self, is_complete: bool) -> Attribution {
        let backups = self.holders.iter().zip(&self.backups).map(|(holder, sums)| BackupShare {
            backup: holder.backup,
            exclusive_bytes: sums.0,
            attributed_bytes: sums.1,
        });
        let backups = backups.collect();
        let Self { live_bytes, vms, jobs, .. } = self;
        Attribution { live_bytes, is_complete, backups, vms, jobs }
    }
}

/// Shares of the chunks of one container.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shares {
    overhead_bytes: u64,
    chunks: u64,
}

impl Shares {
    pub(super) fn of(container: &OpenContainer) -> Self {
        let regions = container.directory().regions_with_ends();
        let stored: u64 = regions.map(|(record, _)| u64::from(record.stored_bytes)).sum();
        let chunks = container.directory().chunk_count() as u64;
        Self { overhead_bytes: container.stored_bytes().saturating_sub(stored), chunks }
    }

    /// Bytes that chunk `number` of the same container takes.
    pub(super) fn bytes(&self, container: &OpenContainer, number: u32) -> u64 {
        let directory = container.directory();
        let place = directory.place_of(number);
        let chunk = place.and_then(|(region, slot)| {
            let (record, chunk) = (directory.region(region)?, directory.chunk(region, slot)?);
            let upto = |end: u32| part(record.stored_bytes.into(), end.into(), record.plain_bytes.into());
            Some(upto(chunk.offset + chunk.bytes) - upto(chunk.offset))
        });
        let number = u64::from(number);
        let overhead = part(self.overhead_bytes, number + 1, self.chunks)
            - part(self.overhead_bytes, number, self.chunks);
        chunk.unwrap_or(0) + overhead
    }
}

/// `bytes` × `of` ÷ `all`, rounded down. Bounded by the container's 32 MiB squared.
const fn part(bytes: u64, of: u64, all: u64) -> u64 {
    match (bytes * of).checked_div(all) {
        Some(part) => part,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use holdfast_volume::MemoryVolume;

    use super::*;
    use crate::container::testing::{open, sample_regions, seal};

    #[test]
    fn the_shares_of_all_chunks_add_up_to_the_file() {
        let volume = MemoryVolume::new();
        for number in 1..20u8 {
            seal(&volume, number.into(), &sample_regions(number));
            let container = open(&volume, number.into());
            let shares = Shares::of(&container);
            let chunks = u32::try_from(container.directory().chunk_count()).unwrap();
            let of_chunks: Vec<u64> = (0..chunks).map(|chunk| shares.bytes(&container, chunk)).collect();
            assert_eq!(of_chunks.iter().sum::<u64>(), container.stored_bytes());
            assert!(of_chunks.iter().all(|bytes| *bytes > 0), "{of_chunks:?}");
            assert!(of_chunks[2] > of_chunks[3], "40 bytes of noise take more than one byte");
        }
        seal(&volume, 99, &[]);
        assert_eq!(Shares::of(&open(&volume, 99)).bytes(&open(&volume, 99), 0), 0);
    }
}
