//! The chunk index: which container holds a chunk.
//!
//! An LSM tree made for keys that are hashes: a memtable, immutable sorted runs (`sorted_run`) split into 64 shards
//! by key, a binary-fuse filter (`filter`) over every quarter million keys, and interpolation straight to one 4 KiB
//! page. New entries go to the memtable; a full one is written out as a sorted run in the background while the
//! next fills; runs merge in the background (`merge`, by the policy of `options`).
//!
//! Invariants:
//! - **An answer is a candidate** (I3). The index may name containers that were deleted or damaged since; callers
//!   accept or reject each candidate (and verify the fingerprint). So deletion needs no tombstones, and
//!   merges drop entries of containers that [`IndexOptions::live`] disowns.
//! - **Covered means durable** (I2). A container is covered when all its entries are in sorted runs that the manifest
//!   names. There is no log: the caller that opens the index feeds it the directories of all other containers
//!   ([`Index::insert_container`]).
//! - **Everything here can be rebuilt** from container directories, so damage never loses chunks, but it is
//!   always an error and never a silent miss. Pages that cannot be read are rebuilt while the index is used
//!   (`bad_pages`).
//! - **Namespaces never meet**: keys are keyed hashes ([`NamespaceKey`]).
//!
//! A crash leaves at worst sorted runs and manifests that the newest manifest does not name; opening removes them.

mod bad_pages;
mod error;
mod filter;
mod lookup;
mod maintenance;
mod memtable;
mod merge;
mod options;
mod sorted_run;
mod sorted_runs;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use holdfast_proto::fingerprint::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId};
use holdfast_volume::Volume;
use parking_lot::Mutex;

use self::memtable::{Full, Memtable};
use self::sorted_run::SortedRun;
use self::state::{Shared, View};
use crate::format::sorted_run::{Entry, KEY_BYTES, PAGE_BYTES, SHARD_BITS, key_prefix, key_suffix};

pub use error::IndexError;
pub use options::{IndexOptions, IndexStats};

/// Entries taken from the caller's iterator at a time, so that it never runs under a lock.
const INSERT_BATCH: usize = 256;

/// The index of one repository. Shared between threads by reference.
#[derive(Debug)]
pub struct Index {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Index {
    /// Removes everything an index left on a volume. For a rebuild: open it again and feed it every
    /// container.
    ///
    /// # Errors
    /// The volume's.
    pub fn discard(volume: &dyn Volume) -> Result<(), IndexError> {
        Ok(sorted_runs::discard(volume)?)
    }

    /// The key that a namespace's fingerprints in containers of this class are looked up with.
    pub fn key_for(&self, namespace: NamespaceId, class: ContainerClass) -> NamespaceKey {
        NamespaceKey::derive(&self.shared.secret, namespace, class)
    }

    /// Adds all entries of a container; when it returns, every lookup sees them. Blocks when memory is full
    /// until maintenance has caught up. Adding a container again does no harm.
    ///
    /// # Errors
    /// [`IndexError::OtherContainer`], [`IndexError::ReservedContainer`], or what maintenance failed with.
    /// Some entries may be in by then; the container is not covered.
    pub fn insert_container(
        &self,
        id: ContainerId,
        entries: impl IntoIterator<Item = (IndexKey, Location)>,
    ) -> Result<(), IndexError> {
        if id.get() == (1 << ContainerId::BITS) - 1 {
            return Err(IndexError::ReservedContainer(id));
        }
        self.shared.coverage.lock().inserting.push(id);
        let inserted = self.insert_entries(id, entries.into_iter());
        let view = self.shared.view.read();
        let mut coverage = self.shared.coverage.lock();
        coverage.inserting.retain(|other| *other != id);
        inserted?;
        coverage.pending.push((view.active.generation, id));
        coverage.dirty = true;
        Ok(())
    }

    fn insert_entries(
        &self,
        id: ContainerId,
        mut entries: impl Iterator<Item = (IndexKey, Location)>,
    ) -> Result<(), IndexError> {
        let mut batch = Vec::with_capacity(INSERT_BATCH);
        loop {
            batch.clear();
            for (key, location) in entries.by_ref().take(INSERT_BATCH) {
                if location.container != id {
                    return Err(IndexError::OtherContainer { found: location.container, expected: id });
                }
                batch.push(key.entry(location));
            }
            if batch.is_empty() {
                return Ok(());
            }
            self.insert_batch(&batch)?;
        }
    }

    fn insert_batch(&self, batch: &[Entry]) -> Result<(), IndexError> {
        let mut rest = batch;
        loop {
            let view = self.shared.view.read();
            let generation = view.active.generation;
            while let Some((entry, tail)) = rest.split_first() {
                match view.active.insert(entry) {
                    Ok(()) => rest = tail,
                    Err(Full) => break,
                }
            }
            let entries: u64 = view.runs.iter().map(|run| run.record.entries).sum();
            let full = view.active.len() + view.frozen.as_ref().map_or(0, |table| table.len());
            drop(view);
            if rest.is_empty() {
                return Ok(());
            }
            self.shared.options.check_resident(entries + full)?;
            self.freeze(generation)?;
        }
    }

    /// Freezes the memtable of this generation, if it still is the active one, as soon as the one before it
    /// is written out.
    fn freeze(&self, generation: u64) -> Result<(), IndexError> {
        let shared = &self.shared;
        self.wait(|view| view.active.generation != generation || view.frozen.is_none())?;
        let next = Arc::new(Memtable::new(generation + 1, shared.memtable_bytes())?);
        let mut view = shared.view.write();
        if view.active.generation == generation && view.frozen.is_none() {
            *view = Arc::new(View {
                active: next,
                frozen: Some(Arc::clone(&view.active)),
                runs: Arc::clone(&view.runs),
            });
        }
        drop(view);
        shared.kick()
    }

    /// Waits until `ready`, or maintenance fails. A full disk is tried once more.
    fn wait(&self, ready: impl Fn(&View) -> bool) -> Result<(), IndexError> {
        let shared = &self.shared;
        shared.check_failure(&mut shared.control.lock())?;
        if ready(&shared.view()) {
            return Ok(());
        }
        shared.kick()?;
        let mut control = shared.control.lock();
        while !ready(&shared.view()) {
            if let Some(failure) = &control.failure {
                return Err(IndexError::Maintenance(Arc::clone(failure)));
            }
            if shared.stop.load(Ordering::Relaxed) {
                return Err(IndexError::Closed);
            }
            shared.done.wait(&mut control);
        }
        Ok(())
    }

    /// Makes everything inserted so far durable and covered.
    ///
    /// # Errors
    /// Errors of maintenance.
    pub fn checkpoint(&self) -> Result<(), IndexError> {
        let active = Arc::clone(&self.shared.view().active);
        let dirty = {
            let coverage = self.shared.coverage.lock();
            coverage.dirty || !coverage.pending.is_empty()
        };
        let generation = active.generation;
        if active.len() > 0 || dirty {
            self.freeze(generation)?;
        }
        drop(active);
        self.wait(|view| view.frozen.as_ref().is_none_or(|table| table.generation > generation))
    }

    /// Waits until nothing is left to flush or merge.
    ///
    /// # Errors
    /// Errors of maintenance.
    pub fn settle(&self) -> Result<(), IndexError> {
        let shared = &self.shared;
        shared.check_failure(&mut shared.control.lock())?;
        shared.kick()?;
        let mut control = shared.control.lock();
        while shared.options.background && (control.wanted || !control.idle) {
            if let Some(failure) = &control.failure {
                return Err(IndexError::Maintenance(Arc::clone(failure)));
            }
            shared.done.wait(&mut control);
        }
        match &control.failure {
            Some(failure) => Err(IndexError::Maintenance(Arc::clone(failure))),
            None => Ok(()),
        }
    }

    /// Returns true if all entries of a container are durable in the index, so that its directory need not be
    /// replayed.
    pub fn is_covered(&self, container: ContainerId) -> bool {
        self.shared.coverage.lock().covered.contains(container.get())
    }

    /// All covered containers, ascending.
    pub fn covered(&self) -> Vec<ContainerId> {
        self.shared.coverage.lock().covered.iter().filter_map(ContainerId::new).collect()
    }

    /// Numbers of all covered containers.
    pub(crate) fn covered_numbers(&self) -> roaring::RoaringTreemap {
        self.shared.coverage.lock().covered.clone()
    }

    /// Sequence number of the manifest that counts; 0 when there is none. It changes with every change of
    /// what is durable.
    pub(crate) fn manifest_sequence(&self) -> u64 {
        self.shared.publisher.lock().current
    }

    /// Ends maintenance for good, once the step under way is done: the manifest stays as it is.
    pub(crate) fn stop_maintenance(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        {
            let _control = self.shared.control.lock();
            self.shared.wake.notify_all();
            self.shared.done.notify_all();
        }
        drop(self.shared.work.lock());
    }

    /// Takes a container out of the covered ones; durably with the next manifest. Its entries stay until a
    /// merge finds it no longer live.
    pub fn forget_container(&self, container: ContainerId) {
        let mut coverage = self.shared.coverage.lock();
        coverage.covered.remove(container.get());
        coverage.pending.retain(|(_, id)| *id != container);
        coverage.dirty = true;
    }

    /// Reads and verifies every page of every sorted run, and that the filters let every key pass. Says how many
    /// entries there are.
    ///
    /// # Errors
    /// The first damage, or the volume's.
    pub fn verify(&self) -> Result<u64, IndexError> {
        let runs = Arc::clone(&self.shared.view().runs);
        let mut buffer = [0; PAGE_BYTES];
        let mut entries = 0;
        for run in runs.iter() {
            entries += run.verify(&mut buffer).inspect_err(|error| {
                self.shared.note(error);
            })?;
        }
        Ok(entries)
    }

    /// Figures about it.
    pub fn stats(&self) -> IndexStats {
        let view = self.shared.view();
        let tables = || std::iter::once(&view.active).chain(&view.frozen);
        let mut stats = IndexStats {
            memtable_entries: tables().map(|table| table.len()).sum(),
            memtable_bytes: tables().map(|table| table.ram_bytes()).sum(),
            depth: view.runs.depth() as u64,
            flushed_entries: self.shared.flushed_entries.load(Ordering::Relaxed),
            merged_entries: self.shared.merged_entries.load(Ordering::Relaxed),
            ..IndexStats::default()
        };
        for run in view.runs.iter() {
            let (filters, fences) = run.ram_bytes();
            stats.runs += 1;
            stats.entries += run.record.entries;
            stats.filter_bytes += filters;
            stats.fence_bytes += fences;
            stats.disk_bytes += run.record.bytes;
        }
        stats.entries += stats.memtable_entries;
        let coverage = self.shared.coverage.lock();
        stats.covered_containers = coverage.covered.len();
        stats.uncovered_containers = coverage.pending.len() as u64;
        stats
    }
}

impl Drop for Index {
    /// Stops maintenance where it is. What was not checkpointed is replayed from directories.
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        {
            let _control = self.shared.control.lock();
            self.shared.wake.notify_all();
            self.shared.done.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            // Its panics are caught and reported inside.
            let _joined = thread.join();
        }
    }
}

/// Context that BLAKE3 derives namespace keys for; changing it makes every index unreadable.
const CONTEXT: &str = "holdfast index key v1";

/// First 96 bits of a keyed hash. 2⁹⁶ / (6 × 10⁹)² leaves one false candidate in 2 × 10⁹ full indexes, and a
/// candidate is verified anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexKey(pub [u8; KEY_BYTES]);

impl IndexKey {
    /// The first eight bytes as a number.
    fn prefix(&self) -> u64 {
        key_prefix(&self.0)
    }

    /// The last four bytes as a number.
    fn suffix(&self) -> u32 {
        key_suffix(&self.0)
    }

    /// Number of the shard that holds it: 0 to 63.
    fn shard(&self) -> usize {
        shard_of(self.prefix())
    }

    /// Entry for the key with the chunk's location.
    fn entry(self, location: Location) -> Entry {
        Entry { key: self.0, location: location.pack().into() }
    }
}

/// The shard of a key prefix.
fn shard_of(prefix: u64) -> usize {
    usize::try_from(prefix >> (u64::BITS - SHARD_BITS)).unwrap_or(0)
}

/// The secret that a namespace's keys are made with: who has it can tell which chunks a namespace holds.
#[derive(Clone)]
pub struct NamespaceKey([u8; 32]);

impl std::fmt::Debug for NamespaceKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NamespaceKey")
    }
}

impl NamespaceKey {
    /// The key of `namespace` in the index with this secret. Each class of containers has one of its own: a disk
    /// that holds a copy of a recipe must not be answered with the recipe.
    fn derive(secret: &[u8; 32], namespace: NamespaceId, class: ContainerClass) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        let class = match class {
            ContainerClass::Data => 0,
            ContainerClass::Recipe => 1,
        };
        hasher.update(secret).update(&namespace.to_bytes()).update(&[class]);
        Self(*hasher.finalize().as_bytes())
    }

    /// The index key of a fingerprint.
    pub fn of(&self, fingerprint: &Fingerprint) -> IndexKey {
        let hash = blake3::keyed_hash(&self.0, fingerprint.as_bytes());
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *hash.as_bytes();
        IndexKey([a, b, c, d, e, f, g, h, i, j, k, l])
    }
}

/// Bad pages by sorted run.
pub(crate) type BadPages = BTreeMap<u64, BTreeSet<u32>>;

/// The bad pages met so far, of runs that still count.
#[derive(Debug, Default)]
struct Bad {
    pages: Mutex<BadPages>,
    /// True if there are any, to be asked without a lock.
    any: AtomicBool,
}

impl Bad {
    fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns true if this run has bad pages.
    fn has(&self, run: &SortedRun) -> bool {
        self.any() && self.pages.lock().contains_key(&run.record.run)
    }

    /// Changes the known bad pages.
    fn change<T>(&self, change: impl FnOnce(&mut BadPages) -> T) -> T {
        let mut pages = self.pages.lock();
        let done = change(&mut pages);
        self.any.store(!pages.is_empty(), Ordering::Release);
        done
    }
}

#[cfg(test)]
mod tests;
