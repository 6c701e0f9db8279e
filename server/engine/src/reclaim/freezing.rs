//! Moves containers that lie far away alone, and that only old restore points need, to an archive, as they are (T10).
//!
//! Unlike moving it is a promise: what lies in an archive cannot be read, so no backup may come to need it. What restore
//! points refer to that are young, or in use, is marked. Whatever else a backup counts on it holds, from before that was
//! listed until the round ends (G1); and of a container that goes, no one begins to count on anything.
//!
//! A crash leaves containers that the volume says are cold, and may not be.

use holdfast_catalog::ContainerRecord;
use holdfast_types::ids::ContainerClass;
use holdfast_volume::Volume as _;

use super::control::{Control, Phase};
use super::live::{Candidate, Candidates, Scope, SlotSet, WINDOW_BYTES, is_live_data};
use super::mark::mark;
use super::report::{Freezing, ReclaimReport};
use super::roots::{Root, Roots};
use crate::container::ContainerError;
use crate::core::Core;
use crate::error::EngineError;
use crate::store::ChunkStore;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Tells backups that it is under way.
struct UnderWay<'a>(&'a ChunkStore);

impl<'a> UnderWay<'a> {
    fn begin(store: &'a ChunkStore) -> Self {
        store.leftovers.begin_freezing();
        Self(store)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.leftovers.end_freezing();
    }
}

/// Moves what may be moved; within a round. `roots`: everything that counts, what is in use included.
///
/// # Errors
/// The catalog's, and [`EngineError::Stopped`]. What the place far away fails with ends it, and is in the report.
pub(super) fn run(
    core: &Core,
    freezing: &Freezing,
    roots: impl Fn() -> Result<Roots, EngineError>,
    control: &Control,
    report: &mut ReclaimReport,
) -> Result<(), EngineError> {
    let age_ms = i64::from(freezing.min_age_days).saturating_mul(DAY_MS);
    let young_ms = core.clock.now_ms().saturating_sub(age_ms);
    let is_old = |row: &ContainerRecord| is_live_data(row) && row.created_ms < young_ms;
    // (T10) Before anything is listed.
    let _under_way = UnderWay::begin(&core.store);
    let mut after = None;
    loop {
        control.check()?;
        let Some((candidates, last)) = Candidates::window(&*core.catalog, after, WINDOW_BYTES, is_old)?
        else {
            return Ok(());
        };
        after = Some(last);
        let far: Vec<&Candidate> = candidates.iter().filter(|candidate| is_far(core, candidate)).collect();
        if far.is_empty() {
            continue;
        }
        let in_use = core.in_use.with(|| ()).0;
        let is_used = |root: &Root| in_use.iter().any(|recipe| recipe.root == root.fingerprint);
        let (young, _) = roots()?.split(|root| root.committed_ms >= young_ms || is_used(root));
        let marked = mark(core, &young, &candidates, &Scope::all(), control)?;
        control.begin(Phase::Moving, far.len() as u64);
        for candidate in far {
            control.check()?;
            let is_needed = marked.incomplete.contains_key(&candidate.namespace)
                || !marked.live.get(candidate.id).is_some_and(SlotSet::is_empty);
            if !is_needed && !freeze_one(core, candidate, report)? {
                return Ok(());
            }
            control.add_done(1);
        }
    }
}

/// Whether it lies far away alone, where it can be read.
fn is_far(core: &Core, candidate: &Candidate) -> bool {
    let store = &core.store;
    !store.leftovers.is_cold(candidate.id)
        && store.known_damage(candidate.id).is_empty()
        && store
            .containers
            .get(candidate.id, ContainerClass::Data)
            .is_ok_and(|container| !container.is_at_hand())
}

/// Whether to go on with others.
fn freeze_one(core: &Core, candidate: &Candidate, report: &mut ReclaimReport) -> Result<bool, EngineError> {
    let (store, id) = (&core.store, candidate.id);
    let container = match store.containers.open(id, ContainerClass::Data) {
        Ok(container) => container,
        // What is wrong with it, others find out.
        Err(ContainerError::Structure { .. } | ContainerError::Volume { .. }) => return Ok(true),
        Err(error) => return Err(error.into()),
    };
    // (T10) From now on no one begins to count on it.
    if !store.leftovers.freeze(id) {
        return Ok(true);
    }
    let frozen = core.volume.freeze(container.name());
    if container.cold().is_none() {
        store.leftovers.keep_warm(id);
    }
    match frozen {
        Ok(true) => {
            report.frozen_containers += 1;
            report.frozen_bytes += candidate.stored_bytes;
            Ok(true)
        }
        Ok(false) => Ok(true),
        Err(error) => {
            tracing::warn!(container = %id, %error, "moving containers to the archive ends early");
            report.freezing_failed = Some(error.to_string());
            Ok(false)
        }
    }
}
