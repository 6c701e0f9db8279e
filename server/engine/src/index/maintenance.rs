//! Flushing and merging: in one background thread, or in the caller's when tests want it deterministic.
//!
//! A flush or a merge first makes its sorted runs durable, then a manifest that names them, then shows them to
//! lookups, then removes what the manifest no longer names ([`super::sorted_runs`] has the rule). A crash in
//! between leaves blobs that no manifest names; opening removes them.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_volume::VolumeError;

use super::error::IndexError;
use super::memtable::Memtable;
use super::merge::merge;
use super::options::{self, WideMerge};
use super::sorted_run::SortedRunWriter;
use super::sorted_run::{SortedRun, sorted_run_name};
use super::sorted_runs;
use super::state::{Shared, View};
use crate::format::index_manifest::{Manifest, SortedRunRecord};
use crate::format::sorted_run::{ENTRY_BYTES, PAGE_BYTES, PAGE_ENTRIES, SHARDS, ShardRange, SortedRunHeader};
use crate::space::{Grant, Purpose, SpaceError};

impl Shared {
    /// The body of the maintenance thread: works until the index is dropped or something fails. A panic is
    /// an error like any other.
    pub(super) fn maintenance_thread(&self) {
        while !self.stop.load(Ordering::Relaxed) {
            match catch_unwind(AssertUnwindSafe(|| self.work_around_bad_pages())) {
                Ok(Ok(())) | Ok(Err(IndexError::Closed)) => {}
                Ok(Err(error)) => self.fail(error),
                Err(panic) => self.fail(IndexError::Panicked(panic_text(panic.as_ref()))),
            }
            let mut control = self.control.lock();
            while (!control.wanted || control.failure.is_some()) && !self.stop.load(Ordering::Relaxed) {
                control.idle = true;
                self.done.notify_all();
                self.wake.wait(&mut control);
            }
            control.idle = false;
            control.wanted = false;
        }
    }

    /// Asks for maintenance: wakes the thread, or does it here when there is none.
    pub(super) fn kick(&self) -> Result<(), IndexError> {
        if self.options.background {
            let mut control = self.control.lock();
            control.wanted = true;
            self.wake.notify_all();
            return Ok(());
        }
        if let Err(error) = self.work_around_bad_pages() {
            self.fail(error);
        }
        match &self.control.lock().failure {
            Some(failure) => Err(IndexError::Maintenance(Arc::clone(failure))),
            None => Ok(()),
        }
    }

    /// Works until nothing is left to do. A merge that meets a bad page is given up, and its run is not merged again
    /// until it is repaired.
    fn work_around_bad_pages(&self) -> Result<(), IndexError> {
        loop {
            match self.work_until_idle() {
                Err(error) if self.note(&error) => {}
                done => return done,
            }
        }
    }

    fn work_until_idle(&self) -> Result<(), IndexError> {
        let _work = self.work.lock();
        loop {
            // Runs that cannot be merged now must not hold up what is to be written.
            let stalled = self.view().runs.wide.len() >= options::WIDE_RUNS_STALL && !self.bad.any();
            if (!stalled && self.flush_frozen()?) || self.merge_wide()? || self.merge_shard()? {
                continue;
            }
            return Ok(());
        }
    }

    /// Writes the frozen memtable out, if there is one.
    fn flush_frozen(&self) -> Result<bool, IndexError> {
        let Some(frozen) = self.view().frozen.clone() else { return Ok(false) };
        let run =
            self.write_run(ShardRange::ALL, frozen.len(), |output| frozen.for_each(|e| output.push(e)))?;
        self.flushed_entries.fetch_add(frozen.len(), Ordering::Relaxed);
        self.publish(&[], run.as_slice(), Some(&frozen))?;
        Ok(true)
    }

    /// Merges or splits the wide runs, if it is time to.
    fn merge_wide(&self) -> Result<bool, IndexError> {
        let runs = self.view().runs.clone();
        if runs.wide.iter().any(|run| self.bad.has(run)) {
            return Ok(false);
        }
        let sizes: Vec<u64> = runs.wide.iter().map(|run| run.record.entries).collect();
        match options::wide_merge(&sizes, self.options.split_entries, runs.shard_depth()) {
            None => return Ok(false),
            Some(WideMerge::Together(count)) => {
                let old: Vec<_> = runs.wide.iter().take(count).cloned().collect();
                let new = self.merge_runs(&old, ShardRange::ALL)?;
                self.publish(&old, new.as_slice(), None)?;
            }
            Some(WideMerge::Split) => self.split(&runs.wide, sizes.iter().sum())?,
        }
        Ok(true)
    }

    /// Distributes wide runs to the shards. Flushes go on meanwhile: they only add newer wide runs.
    pub(super) fn split(&self, wide: &[Arc<SortedRun>], entries: u64) -> Result<(), IndexError> {
        let (mut old, mut new) = (wide.to_vec(), Vec::new());
        // The part that was written is removed, whatever failed.
        match self.distribute(wide, entries, (&mut old, &mut new)) {
            Ok(()) => self.publish(&old, &new, None),
            Err(error) => Err(self.abandon(numbers(&new), error)),
        }
    }

    fn distribute(
        &self,
        wide: &[Arc<SortedRun>],
        entries: u64,
        (old, new): (&mut Vec<Arc<SortedRun>>, &mut Vec<Arc<SortedRun>>),
    ) -> Result<(), IndexError> {
        for shard in 0..SHARDS {
            let Some(range) = ShardRange::new(shard, 1) else { continue };
            let runs = self.view().runs.clone();
            let existing = runs.shard(usize::from(shard));
            let existing = if existing.iter().any(|run| self.bad.has(run)) { &[] } else { existing };
            let sizes: Vec<u64> = existing.iter().map(|run| run.record.entries).collect();
            let folded = existing.iter().take(options::fold(entries / u64::from(SHARDS), &sizes));
            let inputs: Vec<_> = wide.iter().chain(folded.clone()).cloned().collect();
            old.extend(folded.cloned());
            new.extend(self.merge_runs(&inputs, range)?);
            if runs.wide.len() < options::WIDE_RUNS_STALL {
                self.flush_frozen()?;
            }
        }
        Ok(())
    }

    /// After a failure that may pass the same work is done again later, so what it wrote is removed now. After other
    /// errors nothing is touched any more; opening cleans up.
    fn abandon(&self, new: impl IntoIterator<Item = u64>, error: IndexError) -> IndexError {
        if (error.may_pass() || error.bad_page().is_some())
            && let Err(worse) =
                sorted_runs::remove(self.volume.as_ref(), new.into_iter().map(sorted_run_name))
        {
            return worse.into();
        }
        error
    }

    /// Merges the runs of the shard that has most, if it has too many.
    fn merge_shard(&self) -> Result<bool, IndexError> {
        let runs = self.view().runs.clone();
        let due = (0..SHARDS).filter_map(|shard| {
            let list = runs.shard(usize::from(shard));
            if list.iter().any(|run| self.bad.has(run)) {
                return None;
            }
            let sizes: Vec<u64> = list.iter().map(|run| run.record.entries).collect();
            let count = options::shard_merge(&sizes)?;
            Some((list.len(), shard, list.get(..count)?.to_vec()))
        });
        let Some((_, shard, old)) = due.max_by_key(|(runs, shard, _)| (*runs, u16::MAX - shard)) else {
            return Ok(false);
        };
        let Some(range) = ShardRange::new(shard, 1) else { return Ok(false) };
        let new = self.merge_runs(&old, range)?;
        self.publish(&old, new.as_slice(), None)?;
        Ok(true)
    }

    fn merge_runs(
        &self,
        inputs: &[Arc<SortedRun>],
        shards: ShardRange,
    ) -> Result<Option<Arc<SortedRun>>, IndexError> {
        // A wide run's share of one shard varies by a few times its square root; 1/8 is more than that. It
        // only sizes filters.
        let expected = |run: &Arc<SortedRun>| match u64::from(run.record.shards.count() / shards.count()) {
            0 | 1 => run.record.entries,
            parts => run.record.entries / parts * 9 / 8,
        };
        let expected = inputs.iter().map(expected).sum();
        let mut pace = Pace::new(self);
        let live = Arc::clone(&self.options.live);
        let run = self.write_run(shards, expected, |output| {
            merge(inputs, shards, live.as_ref(), output, &mut || pace.page_done())
        })?;
        if let Some(run) = &run {
            self.merged_entries.fetch_add(run.record.entries, Ordering::Relaxed);
        }
        Ok(run)
    }

    /// Replaces a run by a copy without these pages. The caller holds `work`.
    pub(super) fn replace_without(
        &self,
        run: &Arc<SortedRun>,
        bad: &BTreeSet<u32>,
    ) -> Result<(), IndexError> {
        let new = self.write_run(run.record.shards, run.record.entries, |output| {
            let mut buffer = [0; PAGE_BYTES];
            let pages = (0u32..).zip(0..run.pages()).filter(|(number, _)| !bad.contains(number));
            for (_, page) in pages {
                for entry in run.read_page(page, &mut buffer)? {
                    output.push(entry)?;
                }
            }
            Ok(())
        })?;
        self.publish(&[Arc::clone(run)], new.as_slice(), None)
    }

    /// Writes one sorted run and opens it.
    fn write_run(
        &self,
        shards: ShardRange,
        entries_max: u64,
        fill: impl FnOnce(&mut SortedRunWriter) -> Result<(), IndexError>,
    ) -> Result<Option<Arc<SortedRun>>, IndexError> {
        let run = self.next_run.fetch_add(1, Ordering::Relaxed);
        let room = self.room_for(run, entries_max)?;
        let header = SortedRunHeader { run, repository: self.repository, shards };
        let mut writer = SortedRunWriter::create(self.volume.as_ref(), header, entries_max)?;
        fill(&mut writer)?;
        let record: Option<SortedRunRecord> = writer.finish()?;
        if let (Some(room), Some(record)) = (room, &record) {
            room.sealed(record.bytes);
        }
        let open = |record| SortedRun::open(self.volume.as_ref(), record, self.repository).map(Arc::new);
        record.map(open).transpose().map_err(|error| self.abandon([run], error))
    }

    /// (W10) Room for a sorted run of at most `entries_max` entries, before it is begun.
    fn room_for(&self, run: u64, entries_max: u64) -> Result<Option<Grant>, IndexError> {
        let Some(ledger) = &self.options.ledger else { return Ok(None) };
        let mut grant = Grant::new(ledger, Purpose::Index);
        match grant.cover(sorted_run_bytes(entries_max)) {
            Ok(()) => Ok(Some(grant)),
            Err(SpaceError::Volume(error)) => Err(error.into()),
            Err(error @ SpaceError::NoRoom { .. }) => {
                let name = sorted_run_name(run).to_string();
                Err(VolumeError::Full { name, source: error.into() }.into())
            }
        }
    }

    /// Replaces sorted runs by durable new ones, and counts a flushed memtable's containers as covered.
    fn publish(
        &self,
        old: &[Arc<SortedRun>],
        new: &[Arc<SortedRun>],
        flushed: Option<&Arc<Memtable>>,
    ) -> Result<(), IndexError> {
        let mut publisher = self.publisher.lock();
        let runs = Arc::new(self.view().runs.replace(old, new));
        let generation = flushed.map_or(0, |table| table.generation);
        let mut coverage = self.coverage.lock();
        let covered = coverage.after(generation);
        coverage.dirty = false;
        drop(coverage);
        let manifest = Manifest {
            sequence: publisher.sequence + 1,
            repository: self.repository,
            secret: self.secret,
            next_run: self.next_run.load(Ordering::Relaxed),
            runs: runs.records(),
            covered,
        };
        if let Err(error) = sorted_runs::store(self.volume.as_ref(), &manifest) {
            self.coverage.lock().dirty = true;
            return Err(self.abandon(numbers(new), error));
        }
        if publisher.current > 0 {
            let replaced = publisher.current;
            publisher.stale.push(replaced);
        }
        publisher.sequence = manifest.sequence;
        publisher.current = manifest.sequence;
        self.cover(generation);
        self.change_view(|view| View {
            active: Arc::clone(&view.active),
            frozen: view.frozen.clone().filter(|table| !flushed.is_some_and(|f| Arc::ptr_eq(f, table))),
            runs,
        });
        {
            let _control = self.control.lock();
            self.done.notify_all();
        }
        sorted_runs::remove(
            self.volume.as_ref(),
            publisher.stale.iter().map(|&s| sorted_runs::manifest_name(s)),
        )?;
        publisher.stale.clear();
        Ok(sorted_runs::remove(self.volume.as_ref(), old.iter().map(|run| sorted_run_name(run.record.run)))?)
    }

    /// Moves the containers of flushed memtables to the covered ones; those forgotten meanwhile are gone
    /// from `pending` already, and stay uncovered in memory though the manifest still names them.
    fn cover(&self, generation: u64) {
        let mut coverage = self.coverage.lock();
        let (flushed, pending) =
            std::mem::take(&mut coverage.pending).into_iter().partition(|(at, _)| *at <= generation);
        coverage.pending = pending;
        let flushed: Vec<(u64, _)> = flushed;
        coverage.covered.extend(flushed.into_iter().map(|(_, id)| id.get()));
    }
}

fn numbers(runs: &[Arc<SortedRun>]) -> impl Iterator<Item = u64> {
    runs.iter().map(|run| run.record.run)
}

/// A sorted run's length at most: its pages, 8 bytes of fence for each of them, and 1.25 bytes of filter an entry.
const fn sorted_run_bytes(entries_max: u64) -> u64 {
    let pages = entries_max.div_ceil(PAGE_ENTRIES as u64).saturating_add(1);
    let filters = entries_max.saturating_add(entries_max / 4);
    pages.saturating_mul(PAGE_BYTES as u64 + 8).saturating_add(filters).saturating_add(64 << 10)
}

/// Holds a merge to the configured rate while nothing is urgent, and ends it when the index closes.
struct Pace<'a> {
    shared: &'a Shared,
    started: Instant,
    pages: u32,
}

impl<'a> Pace<'a> {
    /// Pages between looks at the clock: 1 MiB.
    const STEP_PAGES: u32 = 256;

    fn new(shared: &'a Shared) -> Self {
        Self { shared, started: Instant::now(), pages: 0 }
    }

    fn page_done(&mut self) -> Result<(), IndexError> {
        if self.shared.stop.load(Ordering::Relaxed) {
            return Err(IndexError::Closed);
        }
        self.pages += 1;
        if !self.pages.is_multiple_of(Self::STEP_PAGES) || !self.shared.options.background {
            return Ok(());
        }
        let bytes = u64::from(self.pages) * (PAGE_ENTRIES * ENTRY_BYTES) as u64;
        let due_ms = bytes.saturating_mul(1000) / self.shared.options.merge_bytes_per_sec.max(1);
        let ahead = Duration::from_millis(due_ms).saturating_sub(self.started.elapsed());
        let view = self.shared.view();
        if view.frozen.is_none() && !ahead.is_zero() {
            // Woken early by whatever becomes urgent.
            let mut control = self.shared.control.lock();
            if !control.wanted {
                self.shared.wake.wait_for(&mut control, ahead);
            }
        }
        Ok(())
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
