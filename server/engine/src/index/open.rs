//! Opening: the manifest that counts, its sorted runs, and what a crash left over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::JoinHandle;

use holdfast_types::ids::RepositoryId;
use holdfast_volume::Volume;
use parking_lot::{Condvar, Mutex, RwLock};

use super::error::IndexError;
use super::known_bad::Bad;
use super::manifest;
use super::memtable::Memtable;
use super::sorted_run::{SortedRun, sorted_run_name};
use super::sorted_runs::SortedRuns;
use super::state::{Control, Coverage, Publisher, Shared, View};
use super::{Index, IndexOptions};
use crate::format::index_manifest::Manifest;

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
        let listing = manifest::Listing::read(volume.as_ref())?;
        let manifest = match manifest::load(volume.as_ref(), &listing, repository)? {
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
        manifest::remove(volume.as_ref(), stale.map(manifest::manifest_name))?;
        let named = |run: &u64| runs.iter().any(|open| open.record.run == *run);
        let unnamed = listing.runs.iter().copied().filter(|run| !named(run));
        manifest::remove(volume.as_ref(), unnamed.map(sorted_run_name))?;
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
