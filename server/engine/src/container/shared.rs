//! Regions as they are stored, read for one restore and kept for a while for others: restores of clones that run side
//! by side want the same regions a little later. Two that want one at the same time read it once.
//!
//! Kept regions were checked against their CRC when they were read (R2). A read that fails is never kept, and never
//! answers for another: a reader that waited for it reads for itself, and meets the damage itself (R4). A container
//! that is forgotten (found damaged, or deleted) is forgotten here as well, together with the reads of it in progress.
//!
//! No deadlock: a thread that reads for others never waits before all that it reads has its answer. It reads while it
//! runs, not when its turn comes, so that a waiter waits for one read of the disk, as it would for its own.
//!
//! The runs of regions that were asked for last are kept: every restore that takes a run makes it the newest again. So one stays when the next restore asks for it before all
//! restores together have gone through as much as there is room for: of restores that follow each other, all share when
//! the last is no further behind the first than that. A long restore that shares nothing takes of the room in proportion
//! to what it reads, and no more. (Two parts, of which the second holds what was asked for twice, did worse: what is new
//! then has a part of the room only, and the first restore that follows must be nearer.)

use std::collections::{BTreeMap, HashMap};
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use holdfast_types::ids::ContainerId;
use parking_lot::{Condvar, Mutex};

use super::{ContainerError, OpenContainer, StoredRegion};

/// Counts of restores that found what they wanted in memory, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SharedStats {
    /// Regions another restore had read, or was reading.
    pub shared_regions: u64,
    /// Their payloads.
    pub shared_bytes: u64,
    /// Regions read from the volume.
    pub read_regions: u64,
    pub read_bytes: u64,
    /// Memory held now.
    pub held_bytes: u64,
}

/// Neighbouring regions read with one request: slices of one buffer, so they are kept and let go together.
#[derive(Debug)]
struct Run {
    container: ContainerId,
    regions: Vec<StoredRegion>,
}

impl Deref for Run {
    type Target = [StoredRegion];
    fn deref(&self) -> &[StoredRegion] {
        &self.regions
    }
}

impl Run {
    /// A region of it for a caller that takes regions `wanted`. One that takes part of the run gets a copy: a slice of
    /// 100 KB that waits for a slow client would hold the whole buffer.
    fn region(&self, region: u16, wanted: &Range<u16>) -> Option<StoredRegion> {
        let stored = self.regions.iter().find(|stored| stored.region == region)?;
        let whole = self.regions.iter().all(|stored| wanted.contains(&stored.region));
        let payload = if whole { stored.payload.clone() } else { Bytes::copy_from_slice(&stored.payload) };
        Some(StoredRegion { payload, ..stored.clone() })
    }
}

/// A read under way.
#[derive(Debug, Default)]
struct Flight {
    /// `None` inside: it failed.
    outcome: Mutex<Option<Option<Arc<Run>>>>,
    landed: Condvar,
}

impl Flight {
    fn wait(&self) -> Option<Arc<Run>> {
        let mut outcome = self.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.landed.wait(&mut outcome);
        }
    }
}

/// Regions as they are stored, read for one restore and kept for a while for others.
#[derive(Debug)]
pub struct SharedRegions {
    /// 0: everyone reads for itself.
    limit_bytes: usize,
    table: Mutex<Table>,
    shared: [AtomicU64; 2],
    read: [AtomicU64; 2],
}

#[derive(Debug, Default)]
struct Table {
    kept: Kept,
    flying: HashMap<(ContainerId, u16), Arc<Flight>>,
}

/// Source of a region that is asked for.
enum Source {
    Kept(Arc<Run>),
    /// Another thread is reading it.
    Theirs(Arc<Flight>),
    /// This thread reads it.
    Mine,
}

/// Regions this thread reads. Dropped without an outcome, it has failed: a panic must not leave others waiting.
struct Reading<'a> {
    shared: &'a SharedRegions,
    container: ContainerId,
    regions: Range<u16>,
    flight: Arc<Flight>,
}

impl SharedRegions {
    /// Keeps at most `limit_bytes`; 0: nothing, and nothing is shared.
    pub fn new(limit_bytes: usize) -> Self {
        Self { limit_bytes, table: Mutex::default(), shared: Default::default(), read: Default::default() }
    }

    /// Neighbouring regions of a container, each for itself, in order: from memory, or from the volume with as few
    /// requests as possible; region by region where one request fails, so that one damaged region does not take its
    /// neighbours with it.
    pub fn read(
        &self,
        open: &OpenContainer,
        wanted: Range<u16>,
    ) -> Vec<Result<StoredRegion, ContainerError>> {
        // The regions of a salvaged container may have other numbers than those of the same container when it is whole.
        if self.limit_bytes == 0 || open.is_salvaged() {
            return self.read_from_volume(open, wanted);
        }
        let (sources, mine) = self.find(open.id(), &wanted);
        // Before waiting for others, who may be waiting for these.
        let read: Vec<Option<Arc<Run>>> = mine.into_iter().map(|reading| reading.finish(open)).collect();
        let mut found = Vec::with_capacity(sources.len());
        for (region, source) in wanted.clone().zip(sources) {
            let (run, is_shared) = match source {
                Source::Kept(run) => (Some(run), true),
                Source::Theirs(flight) => (flight.wait(), true),
                Source::Mine => {
                    let has = |run: &&Arc<Run>| run.iter().any(|stored| stored.region == region);
                    (read.iter().flatten().find(has).cloned(), false)
                }
            };
            found.push(match run.and_then(|run| run.region(region, &wanted)) {
                Some(stored) => {
                    if is_shared {
                        count(&self.shared, 1, stored.payload.len());
                    }
                    Ok(stored)
                }
                None => self.read_one(open, region),
            });
        }
        found
    }

    /// As [`SharedRegions::read`], but never from memory.
    pub fn read_from_volume(
        &self,
        open: &OpenContainer,
        wanted: Range<u16>,
    ) -> Vec<Result<StoredRegion, ContainerError>> {
        match self.read_run(open, wanted.clone()) {
            Some(run) => run.regions.iter().cloned().map(Ok).collect(),
            None => wanted.map(|region| self.read_one(open, region)).collect(),
        }
    }

    /// Forgets a container's regions, and the reads of it in progress.
    pub fn forget(&self, container: ContainerId) {
        let mut table = self.table.lock();
        table.kept.forget(container);
        table.flying.retain(|(id, _), _| *id != container);
    }

    /// Figures since the start.
    pub fn stats(&self) -> SharedStats {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ([shared_regions, shared_bytes], [read_regions, read_bytes]) =
            (self.shared.each_ref().map(of), self.read.each_ref().map(of));
        let held_bytes = self.table.lock().kept.bytes() as u64;
        SharedStats { shared_regions, shared_bytes, read_regions, read_bytes, held_bytes }
    }

    /// Source of each wanted region; regions that no one has are this thread's to read.
    fn find(&self, container: ContainerId, wanted: &Range<u16>) -> (Vec<Source>, Vec<Reading<'_>>) {
        let mut mine: Vec<Reading<'_>> = Vec::new();
        let mut table = self.table.lock();
        let Table { kept, flying } = &mut *table;
        let sources = wanted.clone().map(|region| {
            if let Some(run) = kept.get(container, region) {
                return Source::Kept(run);
            }
            if let Some(flight) = flying.get(&(container, region)) {
                return Source::Theirs(Arc::clone(flight));
            }
            match mine.last_mut().filter(|last| last.regions.end == region) {
                Some(last) => last.regions.end += 1,
                None => mine.push(Reading {
                    shared: self,
                    container,
                    regions: region..region + 1,
                    flight: Arc::default(),
                }),
            }
            Source::Mine
        });
        let sources = sources.collect();
        for reading in &mine {
            for region in reading.regions.clone() {
                flying.insert((container, region), Arc::clone(&reading.flight));
            }
        }
        drop(table);
        (sources, mine)
    }

    /// `None`: one of them failed.
    fn read_run(&self, open: &OpenContainer, regions: Range<u16>) -> Option<Arc<Run>> {
        let regions = open.read_regions(regions).ok()?;
        count(&self.read, regions.len(), regions.iter().map(|stored| stored.payload.len()).sum());
        Some(Arc::new(Run { container: open.id(), regions }))
    }

    fn read_one(&self, open: &OpenContainer, region: u16) -> Result<StoredRegion, ContainerError> {
        let stored = open.read_region(region)?;
        count(&self.read, 1, stored.payload.len());
        Ok(stored)
    }
}

impl Reading<'_> {
    fn finish(self, open: &OpenContainer) -> Option<Arc<Run>> {
        let run = self.shared.read_run(open, self.regions.clone())?;
        self.land(Some(Arc::clone(&run)));
        Some(run)
    }

    fn land(&self, run: Option<Arc<Run>>) {
        {
            let mut table = self.shared.table.lock();
            let Table { kept, flying } = &mut *table;
            let mut is_wanted = true;
            for region in self.regions.clone() {
                let key = (self.container, region);
                // Forgotten meanwhile: it may even be that another reads it again.
                if flying.get(&key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
                    flying.remove(&key);
                } else {
                    is_wanted = false;
                }
            }
            if let Some(run) = run.as_ref().filter(|_| is_wanted) {
                kept.insert(run, self.shared.limit_bytes);
            }
        }
        *self.flight.outcome.lock() = Some(run);
        self.flight.landed.notify_all();
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if self.flight.outcome.lock().is_none() {
            self.land(None);
        }
    }
}

fn count(counters: &[AtomicU64; 2], regions: usize, bytes: usize) {
    let [of_regions, of_bytes] = counters;
    of_regions.fetch_add(regions as u64, Ordering::Relaxed);
    of_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Memory of a region beside its payload: its own fields and two table entries.
const REGION_OVERHEAD_BYTES: usize = 256;

/// Runs, by region and by when they were last asked for.
#[derive(Debug, Default)]
struct Kept {
    by_region: HashMap<(ContainerId, u16), u64>,
    /// The key is when it was last asked for; each is used once.
    runs: BTreeMap<u64, Arc<Run>>,
    clock: u64,
    bytes: usize,
}

impl Kept {
    /// The run that has a region; it is the newest now.
    fn get(&mut self, container: ContainerId, region: u16) -> Option<Arc<Run>> {
        let used = *self.by_region.get(&(container, region))?;
        let run = self.runs.remove(&used)?;
        self.put(&run);
        Some(run)
    }

    /// Keeps a run of regions none of which is kept, and at most `limit` bytes of all.
    fn insert(&mut self, run: &Arc<Run>, limit: usize) {
        let is_kept = |region: u16| self.by_region.contains_key(&(run.container, region));
        assert!(!run.iter().any(|stored| is_kept(stored.region)), "a region of {} twice", run.container);
        self.bytes += memory_bytes(run);
        self.put(run);
        while self.bytes > limit
            && let Some((_, oldest)) = self.runs.pop_first()
        {
            self.dropped(&oldest);
        }
    }

    /// Forgets all regions of a container.
    fn forget(&mut self, container: ContainerId) {
        let forgotten: Vec<_> = self.runs.extract_if(.., |_, run| run.container == container).collect();
        forgotten.iter().for_each(|(_, run)| self.dropped(run));
    }

    /// Bytes of memory held.
    const fn bytes(&self) -> usize {
        self.bytes
    }

    fn put(&mut self, run: &Arc<Run>) {
        self.clock += 1;
        for stored in run.iter() {
            self.by_region.insert((run.container, stored.region), self.clock);
        }
        self.runs.insert(self.clock, Arc::clone(run));
    }

    /// A run is no longer among `runs`.
    fn dropped(&mut self, run: &Run) {
        self.bytes -= memory_bytes(run);
        for stored in run.iter() {
            self.by_region.remove(&(run.container, stored.region));
        }
    }
}

fn memory_bytes(run: &Run) -> usize {
    run.iter().map(|stored| stored.payload.len() + REGION_OVERHEAD_BYTES).sum()
}

#[cfg(test)]
mod tests;
