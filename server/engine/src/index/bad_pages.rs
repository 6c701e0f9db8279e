//! Pages that cannot be read, or are not what was written, and what a repair does about them.
//!
//! A look-up that meets one goes on with the other sorted runs and fails, rather than misses, when none of them has an
//! answer (I4). The repair is fed the directory of every container there is: [`Index::patch`] takes in what only bad
//! pages can have held, as new entries; [`Index::drop_bad_pages`] makes these durable, then replaces each run by a copy
//! without its bad pages (I1). A crash leaves the old runs, bad pages included, or the new ones; entries that are there
//! twice do no harm.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_types::ids::{ContainerId, Location};
use roaring::RoaringTreemap;

use super::BadPages;
use super::Index;
use super::IndexKey;
use super::error::IndexError;
use super::state::Shared;
use crate::format::sorted_run::PAGE_BYTES;
use crate::health::Obstacle;

impl Shared {
    /// Notes the bad page that an error reports, if any. Returns true if it was not known.
    pub(super) fn note(&self, error: &IndexError) -> bool {
        let Some((run, page)) = error.bad_page() else { return false };
        let news = self.bad.change(|pages| pages.entry(run).or_default().insert(page));
        if news {
            tracing::error!(%error, "a page of the index is damaged; it is rebuilt from the containers");
            self.options.health.report(Obstacle::IndexDamaged, Some(error.to_string()));
        }
        news
    }
}

impl Index {
    /// Returns true if no bad page is known.
    pub(crate) fn is_whole(&self) -> bool {
        !self.shared.bad.any()
    }

    /// Returns true if maintenance was ended for good.
    pub(crate) fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    /// Reads all pages of the runs in which bad ones were met, and says which are bad. A page that can be read
    /// again is not.
    ///
    /// # Errors
    /// The volume's, other than that a page cannot be read.
    pub(crate) fn survey(&self) -> Result<BadPages, IndexError> {
        let runs = Arc::clone(&self.shared.view().runs);
        let suspects: Vec<_> = runs.iter().filter(|run| self.shared.bad.has(run)).collect();
        let mut found = BadPages::new();
        let mut buffer = [0; PAGE_BYTES];
        for run in &suspects {
            for page in 0..run.pages() {
                let Err(error) = run.read_page(page, &mut buffer) else { continue };
                let Some((run, page)) = error.bad_page() else { return Err(error) };
                found.entry(run).or_default().insert(page);
            }
        }
        let counted = |run: u64| runs.iter().any(|other| other.record.run == run);
        let surveyed = |run: u64| suspects.iter().any(|other| other.record.run == run);
        self.shared.bad.change(|bad| {
            // Runs that were replaced since are of no interest; what was met in others meanwhile is.
            bad.retain(|&run, _| counted(run) && !surveyed(run));
            bad.extend(found.clone());
        });
        self.tell_health();
        Ok(found)
    }

    /// Containers of which entries may be in the index.
    pub(crate) fn container_numbers(&self) -> RoaringTreemap {
        let coverage = self.shared.coverage.lock();
        let mut numbers = coverage.covered.clone();
        numbers.extend(coverage.pending.iter().map(|(_, id)| id.get()));
        numbers.extend(coverage.inserting.iter().map(|id: &ContainerId| id.get()));
        numbers
    }

    /// Adds those entries of a container that bad pages may have held and no other page has. Returns their number.
    ///
    /// # Errors
    /// As [`Index::insert_container`].
    pub(crate) fn patch(
        &self,
        bad: &BadPages,
        entries: impl Iterator<Item = (IndexKey, Location)>,
    ) -> Result<u64, IndexError> {
        let runs = Arc::clone(&self.shared.view().runs);
        let hurt: Vec<_> = runs.iter().filter_map(|run| Some((run, bad.get(&run.record.run)?))).collect();
        let mut added = 0;
        for (key, location) in entries {
            let lost = hurt.iter().any(|(run, pages)| run.held_in(&key, pages));
            if lost && !self.has_entry(&key, location)? {
                self.insert_batch(&[key.entry(location)])?;
                added += 1;
            }
        }
        Ok(added)
    }

    /// Returns true if a readable page, or the memtable, has exactly this entry.
    fn has_entry(&self, key: &IndexKey, wanted: Location) -> Result<bool, IndexError> {
        match self.get(key, |location| location == wanted) {
            Ok(found) => Ok(found.is_some()),
            Err(error) if error.bad_page().is_some() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Replaces the runs by copies without their bad pages. Everything these held must have been
    /// [patched](Index::patch) in.
    ///
    /// # Errors
    /// Errors of maintenance, or of the volume.
    pub(crate) fn drop_bad_pages(&self, bad: &BadPages) -> Result<(), IndexError> {
        // (I1) Entries that were patched in are durable before the pages that had them are given up.
        self.checkpoint()?;
        let shared = &self.shared;
        let work = shared.work.lock();
        let runs = Arc::clone(&shared.view().runs);
        for run in runs.iter() {
            if let Some(pages) = bad.get(&run.record.run) {
                shared.replace_without(run, pages).inspect_err(|error| {
                    shared.note(error);
                })?;
                shared.bad.change(|known| known.remove(&run.record.run));
            }
        }
        drop(work);
        self.tell_health();
        // Merges had to leave these runs alone.
        shared.kick()
    }

    fn tell_health(&self) {
        if !self.shared.bad.any() {
            self.shared.options.health.report(Obstacle::IndexDamaged, None);
        }
    }
}
