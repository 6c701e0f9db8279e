//! Removes blobs from the bucket that were removed locally, one request at a time.
//!
//! A removal is recorded before it is requested, and forgotten after the bucket carried it out: a crash in
//! between repeats it.

use std::collections::HashSet;

use holdfast_volume::BlobName;

use super::{Copies, Worked};
use crate::error::CopyError;
use crate::evict::container_of;
use crate::freeze::with_ends;
use crate::round::{Round, Stage};
use crate::shared::Shared;
use crate::waiting::Kind;

/// Most blobs removed by one request.
const REMOVALS_MAX: usize = 1000;

/// Shortest interval between attempts to remove an object that is under retention.
const HELD_AGAIN_MS: i64 = 3_600_000;

impl Copies {
    /// (T2) Carries out removals noted before the round began: everything sealed before them is in the bucket by now.
    pub(super) fn remove_some(&self, round: &mut Round) -> Result<Worked, CopyError> {
        let Shared { record, clock, .. } = &*self.shared;
        let noted =
            record.removals(round.removed_up_to, round.removals_up_to, clock.now_ms(), REMOVALS_MAX)?;
        let Some((last, _)) = noted.last() else {
            round.stage = Stage::Done;
            return Ok(Worked { more: true, ..Worked::default() });
        };
        let last = *last;
        self.carry_out(noted)?;
        round.removed_up_to = last;
        Ok(Worked { more: true, ..Worked::default() })
    }

    /// (T7) Removes tables of keys that are due for removal and older than one in the bucket.
    pub(super) fn remove_older_keys(&self) -> Result<(), CopyError> {
        let Some(folder) = Kind::Keys.folder() else { return Ok(()) };
        let older =
            self.shared.record.removals_before_newest(&folder, self.shared.clock.now_ms(), REMOVALS_MAX)?;
        if older.is_empty() { Ok(()) } else { self.carry_out(older) }
    }

    fn carry_out(&self, noted: Vec<(i64, BlobName)>) -> Result<(), CopyError> {
        let Shared { local, record, waiting, clock, .. } = &*self.shared;
        // A call is removing it: the outcome is open.
        let mut gone: Vec<(i64, BlobName)> =
            noted.into_iter().filter(|(_, name)| !waiting.is_removing(name)).collect();
        if !gone.is_empty() {
            // (T8) Another server may count on them.
            self.lease()?.check(&self.shared)?;
            let held = self.remove_there(&gone)?;
            gone.retain(|(_, name)| !held.contains(name));
        }
        let names: Vec<BlobName> = gone.iter().map(|(_, name)| name.clone()).collect();
        record.removed(&gone)?;
        for name in names {
            // Not removed locally after all, or there is a new blob of that name.
            if self.shared.travels(&name).is_some()
                && let Ok(blob) = local.open(&name)
            {
                waiting.note(&name, blob.len(), clock.now_ms());
            }
        }
        Ok(())
    }

    /// Removes these blobs and their ends from the bucket. Returns those under retention: they are retried when it may
    /// have ended, and hold up no other removal.
    fn remove_there(&self, gone: &[(i64, BlobName)]) -> Result<HashSet<BlobName>, CopyError> {
        let Shared { remote, record, clock, local, retention, .. } = &*self.shared;
        let names: Vec<BlobName> = gone.iter().map(|(_, name)| name.clone()).collect();
        let all = with_ends(record, &names)?;
        if retention.get().is_none() && !record.has_retained()? {
            remote.store.remove_all(&all).map_err(CopyError::Remote)?;
            return Ok(HashSet::new());
        }
        // Replaced and deleted versions are kept and billed, so they are removed for good.
        let held = remote.store.remove_for_good(&all).map_err(CopyError::Remote)?;
        let soonest_ms = clock.now_ms().saturating_add(HELD_AGAIN_MS);
        let mut staying = HashSet::new();
        for (name, hold) in held {
            if self.shared.travels(&name).is_some() && local.open(&name).is_ok() {
                // There is a new blob of that name, which covers the old object from now on.
                remote.store.remove_all(std::slice::from_ref(&name)).map_err(CopyError::Remote)?;
                continue;
            }
            // A container stays with its ends, if either is under retention.
            let whole = container_of(&name).unwrap_or(name);
            record.note_held(&whole, hold, soonest_ms)?;
            staying.insert(whole);
        }
        Ok(staying)
    }
}
