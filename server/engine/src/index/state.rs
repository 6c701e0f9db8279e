//! State that the façade and the maintenance thread share, its locks, and how it is opened.
//!
//! Locks, in the order they may be taken: `work` → `publisher` → `control` → `view` → `coverage` or a shard of a
//! memtable. None is held while the caller's code (`accept`, `live`, an iterator of entries) runs, except `work`
//! while `live` runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

use holdfast_types::ids::{ContainerId, RepositoryId};
use holdfast_volume::Volume;
use parking_lot::{Condvar, Mutex, RwLock};
use roaring::RoaringTreemap;

use super::error::IndexError;
use super::memtable::Memtable;
use super::sorted_run::{SortedRun, sorted_run_name};
use super::sorted_runs::{self, SortedRuns};
use super::{Bad, Index, IndexOptions};
use crate::format::index_manifest::Manifest;
use crate::health::Part;

/// State that a lookup sees. Replaced, never changed: an entry is in `active`, `frozen` or `runs` at any moment.
#[derive(Debug)]
pub(super) struct View {
    pub(super) active: Arc<Memtable>,
    /// Being written out.
    pub(super) frozen: Option<Arc<Memtable>>,
    pub(super) runs: Arc<SortedRuns>,
}

/// Containers that need no replay (I2).
#[derive(Debug, Default)]
pub(super) struct Coverage {
    /// Containers in durable sorted runs, and so named by the next manifest.
    pub(super) covered: RoaringTreemap,
    /// Complete, in the memtable of this generation at the latest.
    pub(super) pending: Vec<(u64, ContainerId)>,
    /// Containers of which entries are being inserted.
    pub(super) inserting: Vec<ContainerId>,
    /// The manifest on the volume says otherwise.
    pub(super) dirty: bool,
}

impl Coverage {
    /// The covered set once all memtables up to `generation` are in sorted runs.
    pub(super) fn after(&self, generation: u64) -> RoaringTreemap {
        let mut covered = self.covered.clone();
        covered.extend(self.pending.iter().filter(|(at, _)| *at <= generation).map(|(_, id)| id.get()));
        covered
    }
}

/// Signals between callers and the maintenance thread.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// Error of the last maintenance, for those who wait for it. [`Health`](crate::health::Health) says if it stays
    /// stopped.
    pub(super) failure: Option<Arc<IndexError>>,
    /// The thread found nothing to do and waits.
    pub(super) idle: bool,
    pub(super) wanted: bool,
}

/// Sequence numbers of manifests; held locked by the thread that writes one.
#[derive(Debug)]
pub(super) struct Publisher {
    /// The highest ever seen or used.
    pub(super) sequence: u64,
    /// Number of the manifest that counts; 0 when there is none.
    pub(super) current: u64,
    /// Older manifests still to be removed.
    pub(super) stale: Vec<u64>,
}

/// State shared by look-ups, inserts and the maintenance thread.
pub(super) struct Shared {
    pub(super) volume: Arc<dyn Volume>,
    pub(super) repository: RepositoryId,
    pub(super) secret: [u8; 32],
    pub(super) options: IndexOptions,
    pub(super) view: RwLock<Arc<View>>,
    pub(super) coverage: Mutex<Coverage>,
    pub(super) control: Mutex<Control>,
    /// Wakes the maintenance thread.
    pub(super) wake: Condvar,
    /// Wakes those who wait for it.
    pub(super) done: Condvar,
    pub(super) publisher: Mutex<Publisher>,
    /// Held by what flushes and merges: the thread, or the caller when there is none.
    pub(super) work: Mutex<()>,
    pub(super) next_run: AtomicU64,
    pub(super) stop: AtomicBool,
    pub(super) bad: Bad,
    pub(super) flushed_entries: AtomicU64,
    pub(super) merged_entries: AtomicU64,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("repository", &self.repository).finish_non_exhaustive()
    }
}

impl Shared {
    /// The state that lookups see now.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// Replaces the view by what `change` makes of it.
    pub(super) fn change_view(&self, change: impl FnOnce(&View) -> View) {
        let mut view = self.view.write();
        *view = Arc::new(change(&view));
    }

    /// Memory of one of the two memtables.
    pub(super) fn memtable_bytes(&self) -> usize {
        self.options.write_buffer_bytes / 2
    }

    /// Stops maintenance and tells everyone who waits.
    pub(super) fn fail(&self, error: IndexError) {
        if !error.may_pass() {
            // (W9) Sealing must not go on as if what is sealed could still be indexed durably.
            self.options.health.stop(Part::Index, &error.to_string());
        }
        let mut control = self.control.lock();
        control.failure = Some(Arc::new(error));
        self.done.notify_all();
    }

    /// The failure that stands; one that may pass is forgotten, so that the caller's next wait is for another
    /// attempt.
    pub(super) fn check_failure(&self, control: &mut Control) -> Result<(), IndexError> {
        match &control.failure {
            Some(failure) if failure.may_pass() => {
                control.failure = None;
                Ok(())
            }
            Some(failure) => Err(IndexError::Maintenance(Arc::clone(failure))),
            None => Ok(()),
        }
    }
}

impl Index {
    /// Opens the index on a volume, or begins one where there is none. Afterwards, feed it every container
    /// that is not [covered](Index::is_covered).
    ///
    /// # Errors
    /// When [`IndexError::needs_rebuild`], call [`Index::discard`] and open again: everything is uncovered
    /// then. [`IndexError::Unsupported`] and [`IndexError::OtherRepository`] must not be answered like that.
    pub fn open(
        volume: Arc<dyn Volume>,
        repository: RepositoryId,
        options: IndexOptions,
    ) -> Result<Self, IndexError> {
        let listing = sorted_runs::Listing::read(volume.as_ref())?;
        let manifest = match sorted_runs::load(volume.as_ref(), &listing, repository)? {
            Some(manifest) => manifest,
            None => fresh(repository, &options)?,
        };
        // Before any of it is read into memory.
        options.check_resident(manifest.runs.iter().map(|record| record.entries).sum())?;
        let open = |record: &_| SortedRun::open(volume.as_ref(), *record, repository);
        let runs = manifest.runs.iter().map(open).collect::<Result<Vec<_>, _>>()?;

        // Only now, when everything the manifest names is known to be readable, may anything be removed.
        let last = listing.manifests.last().copied().unwrap_or(0);
        let stale = listing.manifests.iter().copied().filter(|&sequence| sequence != manifest.sequence);
        sorted_runs::remove(volume.as_ref(), stale.map(sorted_runs::manifest_name))?;
        let named = |run: &u64| runs.iter().any(|open| open.record.run == *run);
        let unnamed = listing.runs.iter().copied().filter(|run| !named(run));
        sorted_runs::remove(volume.as_ref(), unnamed.map(sorted_run_name))?;
        let next_run = manifest.next_run.max(listing.runs.last().map_or(0, |run| run.saturating_add(1)));

        let active = Arc::new(Memtable::new(1, options.write_buffer_bytes / 2)?);
        let view = View { active, frozen: None, runs: Arc::new(SortedRuns::from_runs(runs)) };
        let shared = Arc::new(Shared {
            volume,
            repository,
            secret: manifest.secret,
            view: RwLock::new(Arc::new(view)),
            coverage: Mutex::new(Coverage { covered: manifest.covered, ..Coverage::default() }),
            control: Mutex::new(Control::default()),
            wake: Condvar::new(),
            done: Condvar::new(),
            publisher: Mutex::new(Publisher {
                sequence: last.max(manifest.sequence),
                current: manifest.sequence,
                stale: Vec::new(),
            }),
            work: Mutex::new(()),
            next_run: AtomicU64::new(next_run),
            stop: AtomicBool::new(false),
            bad: Bad::default(),
            flushed_entries: AtomicU64::new(0),
            merged_entries: AtomicU64::new(0),
            options,
        });
        let thread = if shared.options.background { Some(spawn(&shared)?) } else { None };
        let index = Self { shared, thread };
        index.shared.kick()?;
        Ok(index)
    }
}

/// An index that does not exist yet.
fn fresh(repository: RepositoryId, options: &IndexOptions) -> Result<Manifest, IndexError> {
    let secret = match options.new_secret {
        Some(secret) => secret,
        None => {
            let mut secret = [0; 32];
            getrandom::fill(&mut secret).map_err(|error| IndexError::Random(error.to_string()))?;
            secret
        }
    };
    Ok(Manifest {
        sequence: 0,
        repository,
        secret,
        next_run: 0,
        runs: Vec::new(),
        covered: roaring::RoaringTreemap::new(),
    })
}

fn spawn(shared: &Arc<Shared>) -> Result<JoinHandle<()>, IndexError> {
    let shared = Arc::clone(shared);
    let builder = std::thread::Builder::new().name("index".into());
    builder.spawn(move || shared.maintenance_thread()).map_err(IndexError::Thread)
}
