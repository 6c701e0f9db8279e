//! Names damage as people think of it: which VM, which disk of which restore point, which bytes.
//!
//! Containers and regions are what is damaged; this says what cannot be restored by it, and that it can be again once it
//! has healed. It walks the recipes of the namespaces that open damage concerns, compares what they refer to with what
//! was lost, and keeps the ranges in the catalog, where lists, the API and metrics find them. It walks again when more is
//! damaged, when damage is closed, when a read met something that is nowhere though no damage is known (its container is
//! lost with its row), and when backups were made since that may have healed something. Otherwise it does nothing.
//!
//! A crash loses the walk under way, never what was recorded; the next process walks anew.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the jobs: when to walk, when to look at damage again; ranges of a disk |
//! | `suspects` | what was lost, as far as directories tell |
//! | `walk` | the walk over restore points |

mod suspects;
mod walk;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::{ByteRange, LISTED_RANGES_MAX, LostRanges};
use holdfast_types::ids::{BackupId, ContainerId};
use parking_lot::Mutex;

use self::walk::Walk;
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};

/// Interval between two looks for changes, which read memory only.
const LOOK: Duration = Duration::from_secs(5);

/// A walk because of new backups, with the same damage, begins so long after the last at the earliest, and so many times
/// as long as that one took: recipes of a large repository are not read all day.
const AGAIN_MS: i64 = 10_000;
const PAUSE_TIMES: i64 = 10;

/// Restore points in doubt that one walk looks at; the next looks at more.
const IN_DOUBT_MAX: u32 = 100_000;

/// Damaged disks read at a time.
const BATCH: u32 = 1000;

/// State of catalog and store that a walk belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mark {
    /// Open damage: containers, with their regions (`None`: as a whole).
    open: Vec<(ContainerId, Vec<Option<u16>>)>,
    /// Restore points in doubt; those that were walked since are not.
    in_doubt: Vec<BackupId>,
    last_commit: u64,
}

impl Mark {
    fn now(core: &Core) -> Result<Self, EngineError> {
        let last_commit = core.catalog.commits()?.last;
        let regions = |id| core.store.known_damage(id).into_iter().map(|(region, _)| region).collect();
        let open = core.store.open_damage().into_iter().map(|id| (id, regions(id))).collect();
        Ok(Self { open, in_doubt: core.catalog.in_doubt(IN_DOUBT_MAX)?, last_commit })
    }
}

#[derive(Debug, Default)]
struct State {
    /// The mark that the catalog has now.
    told: Option<Mark>,
    walk: Option<(Mark, Walk, i64)>,
    /// End of the last walk on the clock that never jumps, and the time it took.
    ended_ms: i64,
    took_ms: i64,
}

/// Walks recipes and names damage.
#[derive(Debug)]
pub(crate) struct DamageReportJob {
    core: Arc<Core>,
    state: Mutex<State>,
}

impl DamageReportJob {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, state: Mutex::default() }
    }

    /// Runs one walk to its end.
    pub(crate) fn run(&self) -> Result<(), EngineError> {
        while self.look(&Budget::unlimited())? == Step::More {}
        Ok(())
    }

    fn look(&self, budget: &Budget) -> Result<Step, EngineError> {
        let mut state = self.state.lock();
        if state.walk.is_none() && !self.begin(&mut state)? {
            return Ok(Step::Idle(LOOK));
        }
        if let Some((_, walk, _)) = &mut state.walk
            && !walk.go_on(&self.core, budget)?
        {
            return Ok(Step::More);
        }
        if let Some((mut mark, walk, began_ms)) = state.walk.take() {
            // The others are in doubt no more; these are tried again with the next change.
            mark.in_doubt.retain(|backup| walk.passed_by.contains(backup));
            state.ended_ms = self.core.clock.monotonic_ms();
            state.took_ms = state.ended_ms.saturating_sub(began_ms);
            state.told = Some(mark);
        }
        Ok(Step::Idle(LOOK))
    }

    /// Returns true if there is a walk to go on with.
    fn begin(&self, state: &mut State) -> Result<bool, EngineError> {
        let core = &self.core;
        let mark = Mark::now(core)?;
        // (V3) While so much is missing that it is taken for absent, nothing is said to be lost.
        if state.told.as_ref() == Some(&mark) || core.store.absence().is_some() {
            return Ok(false);
        }
        let now_ms = core.clock.monotonic_ms();
        let same_damage = state.told.as_ref().is_some_and(|told| told.open == mark.open);
        let mut known = known(core)?;
        if same_damage && mark.open.is_empty() && mark.in_doubt.is_empty() && known.is_empty() {
            state.told = Some(mark);
            return Ok(false);
        }
        let pause_ms = state.took_ms.saturating_mul(PAUSE_TIMES).max(AGAIN_MS);
        if same_damage && now_ms.saturating_sub(state.ended_ms) < pause_ms {
            return Ok(false);
        }
        // A backup made since may have brought all that was lost.
        for &(container, _) in &mark.open {
            core.store.close_healed(container)?;
        }
        let open = Mark::now(core)?.open;
        let mark = Mark { open, ..mark };
        known.extend(&mark.in_doubt);
        let walk = Walk::begin(core, known)?;
        state.walk = Some((mark, walk, now_ms));
        Ok(true)
    }
}

/// The restore points of which something is recorded as lost.
fn known(core: &Core) -> Result<HashSet<BackupId>, EngineError> {
    let (mut known, mut after) = (HashSet::new(), None);
    loop {
        let disks = core.catalog.damaged_disks(None, after, BATCH)?;
        let Some(last) = disks.last() else { return Ok(known) };
        after = Some((last.backup, last.lost.position));
        known.extend(disks.iter().map(|disk| disk.backup));
    }
}

impl Job for DamageReportJob {
    fn name(&self) -> &'static str {
        "damage-report"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        Ok(self.look(budget)?)
    }
}

/// Ranges of one disk kept while it is walked: 1 MiB. Of more, only the sums are known.
const KEPT_MAX: usize = 65_536;

/// Ranges of a disk that are lost.
#[derive(Debug, Clone, Default)]
struct Ranges {
    kept: Vec<ByteRange>,
    bytes: u64,
    count: u64,
    /// End of the last range.
    end: u64,
}

impl Ranges {
    /// Adds bytes, none of which may lie before the last that were added.
    fn add(&mut self, start: u64, bytes: u64) {
        if bytes == 0 {
            return;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        let touches = self.count > 0 && start == self.end;
        self.end = start.saturating_add(bytes);
        if touches {
            // The last one may not be kept.
            if self.is_complete()
                && let Some(last) = self.kept.last_mut()
            {
                last.bytes = last.bytes.saturating_add(bytes);
            }
            return;
        }
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(ByteRange { start, bytes });
        }
    }

    /// Returns true if every range is kept.
    const fn is_complete(&self) -> bool {
        self.kept.len() as u64 == self.count
    }

    /// Adds the part of `other` from `start` to `end`.
    fn add_from(&mut self, other: &Self, start: u64, end: u64) {
        let first = other.kept.partition_point(|range| range.start.saturating_add(range.bytes) <= start);
        for range in other.kept.iter().skip(first).take_while(|range| range.start < end) {
            let from = range.start.max(start);
            let to = range.start.saturating_add(range.bytes).min(end);
            self.add(from, to.saturating_sub(from));
        }
    }

    /// The ranges as recorded; `None`: nothing is lost.
    fn lost(&self, position: u32) -> Option<LostRanges> {
        let listed = self.kept.iter().take(LISTED_RANGES_MAX).copied().collect();
        let Self { bytes, count: ranges, .. } = *self;
        (ranges > 0).then_some(LostRanges { position, bytes, ranges, listed })
    }
}

/// Interval between two rounds. A container is looked at once a minute at most.
const INTERVAL: Duration = Duration::from_secs(60);

/// Bytes charged for a container: its directory and, mostly, a region or two.
const CONTAINER_BYTES: u64 = 512 << 10;

/// Looks at open damage again from time to time. A crash loses nothing: the next process looks at all open damage.
#[derive(Debug)]
pub(crate) struct DamageJob {
    core: Arc<Core>,
    after: Mutex<After>,
}

/// The places that this round looked at last.
#[derive(Debug, Default)]
struct After {
    damaged: Option<ContainerId>,
    reported: Option<(ContainerId, u16)>,
}

impl DamageJob {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core, after: Mutex::default() }
    }
}

impl Job for DamageJob {
    fn name(&self) -> &'static str {
        "damage"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        let store = &self.core.store;
        let mut after = self.after.lock();
        for container in store.open_damage() {
            if after.damaged.is_some_and(|after| container <= after) {
                continue;
            }
            // (R4)
            store.look_again(container)?;
            store.close_healed(container)?;
            after.damaged = Some(container);
            budget.charge(1, CONTAINER_BYTES);
            if budget.is_spent() {
                return Ok(Step::More);
            }
        }
        for place in store.reported() {
            if after.reported.is_some_and(|after| place <= after) {
                continue;
            }
            // (N6)
            store.settle_report(place.0, place.1)?;
            after.reported = Some(place);
            budget.charge(1, CONTAINER_BYTES);
            if budget.is_spent() {
                return Ok(Step::More);
            }
        }
        *after = After::default();
        Ok(Step::Idle(INTERVAL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, bytes: u64) -> ByteRange {
        ByteRange { start, bytes }
    }

    #[test]
    fn neighbours_are_one_range() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.lost(0), None);
        for (start, bytes) in [(0, 10), (10, 5), (20, 0), (20, 1)] {
            ranges.add(start, bytes);
        }
        let lost = ranges.lost(3).unwrap();
        assert_eq!((lost.position, lost.bytes, lost.ranges), (3, 16, 2));
        assert_eq!(lost.listed, [range(0, 15), range(20, 1)]);
        let mut part = Ranges::default();
        part.add_from(&ranges, 5, 21);
        part.add_from(&ranges, 21, 40);
        assert_eq!(part.lost(0).unwrap().listed, [range(5, 10), range(20, 1)]);
        assert_eq!(part.bytes, 11);
    }

    #[test]
    fn more_than_are_kept_are_counted() {
        let mut ranges = Ranges::default();
        for number in 0..KEPT_MAX as u64 + 2 {
            ranges.add(number * 2, 1);
        }
        ranges.add(KEPT_MAX as u64 * 2 + 3, 1);
        let lost = ranges.lost(0).unwrap();
        assert_eq!((lost.ranges, lost.bytes), (KEPT_MAX as u64 + 2, KEPT_MAX as u64 + 3));
        assert_eq!(lost.listed.len(), LISTED_RANGES_MAX);
        assert!(!ranges.is_complete());
    }
}
