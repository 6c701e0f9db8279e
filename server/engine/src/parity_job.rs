//! Parity at work: groups containers and writes their parity, repairs what is damaged with it, and gives up groups of
//! which a container was deleted.
//!
//! Order: containers are read and found sound → their parity is sealed, durably → the catalog knows the group (E1). A
//! group is forgotten by the catalog before its blob is removed (E4). A crash in between leaves a blob that the catalog
//! does not know: the first step of the next process enters it, if every container of it is there and free, and removes
//! it otherwise, once nothing can be lacking that it could bring back (E10). Parity that was found damaged is replaced: the
//! new blob durable → the catalog knows it in place of the old one → that is removed (E8).
//!
//! | file | open it for |
//! |---|---|
//! | `group` | making groups, and making damaged ones anew |
//! | `unknown` | blobs that the catalog does not know |

mod group;
mod unknown;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_types::ids::ContainerId;
use holdfast_volume::{Volume as _, VolumeError};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

use crate::container_repair;
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};
use crate::parity::{self, MEMBERS_MAX, SPARES_MAX};
use crate::scrub::Load;

/// How groups are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParityScheme {
    /// Containers of a full group.
    pub members: u8,
    /// How many of them may be lost.
    pub spares: u8,
}

impl ParityScheme {
    /// `None`: more than there may be, or none.
    pub const fn new(members: u8, spares: u8) -> Option<Self> {
        if members == 0 || spares == 0 || members > MEMBERS_MAX || spares > SPARES_MAX {
            return None;
        }
        Some(Self { members, spares })
    }
}

/// Between two looks when there is nothing to do.
const LOOK: Duration = Duration::from_secs(10);

/// Between two looks at which groups are broken and which containers are free: they read whole tables.
const TABLES_MS: i64 = 60_000;

/// A container is young until then: one that a failed backup left may be deleted soon.
const YOUNG_MS: i64 = 3_600_000;

/// Containers that wait for so long are grouped although there are not enough of their size.
const WAITED_MS: i64 = 86_400_000;

/// A container that could not be repaired is tried again after so long.
const AGAIN_MS: i64 = 3_600_000;

/// Free containers looked at in one go: some 200 KiB.
const FREE_MAX: u32 = 1000;

#[derive(Debug, Default)]
struct State {
    /// Blobs that the catalog does not know were looked for.
    entered: bool,
    /// When the tables were looked at, on the clock that never jumps; `None`: at once.
    looked_ms: Option<i64>,
    /// Where the look for free containers goes on.
    after: Option<ContainerId>,
    /// Containers that could not be repaired, and when that was.
    failed: BTreeMap<ContainerId, i64>,
    /// Containers that do not lie here, as was found out: another place keeps them.
    far: RoaringTreemap,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ParityJob {
    core: Arc<Core>,
    /// `None`: no new groups; what there is still repairs.
    scheme: Option<ParityScheme>,
    load: Arc<dyn Load>,
    state: Mutex<State>,
}

impl ParityJob {
    pub(crate) fn new(core: Arc<Core>, scheme: Option<ParityScheme>, load: Arc<dyn Load>) -> Self {
        Self { core, scheme, load, state: Mutex::default() }
    }

    /// Repairs one damaged container that a group protects; whether there was one.
    fn repair(&self, state: &mut State) -> Result<bool, EngineError> {
        let core = &self.core;
        let now_ms = core.clock.monotonic_ms();
        state.failed.retain(|_, at_ms| now_ms.saturating_sub(*at_ms) < AGAIN_MS);
        // While so much is missing that it is taken for absent, nothing is written beside it.
        if core.store.absence().is_some() {
            return Ok(false);
        }
        for container in core.store.open_damage() {
            if state.failed.contains_key(&container) || core.catalog.parity_group_of(container)?.is_none() {
                continue;
            }
            let repaired = container_repair::repair_with_parity(core, container);
            if !matches!(repaired, Ok(Some(_))) {
                state.failed.insert(container, now_ms);
            }
            if let Some(repaired) = repaired? {
                tracing::info!(%container, rewritten = repaired.rewritten, into = ?repaired.into, "parity repaired a damaged container");
            }
            return Ok(true);
        }
        Ok(false)
    }

    /// (E6) Moves what is left of one container whose damage has healed; whether there was one.
    fn renew(&self, state: &mut State, budget: &Budget) -> Result<bool, EngineError> {
        let core = &self.core;
        let now_ms = core.clock.monotonic_ms();
        for container in core.store.healed_damage() {
            if state.failed.contains_key(&container)
                || core.store.absence().is_some()
                || !self.is_renewable(container)?
            {
                continue;
            }
            // Should it stay, or fail: not again at once.
            state.failed.insert(container, now_ms);
            if container_repair::move_out(core, container)? {
                tracing::info!(%container, "moved what was left of a container of which something had been damaged");
                // The others of its group are to be grouped at once.
                state.looked_ms = None;
                budget.charge(1, 0);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the others of a container's group will be in a group again at once, or go the same way.
    fn is_renewable(&self, container: ContainerId) -> Result<bool, EngineError> {
        let core = &self.core;
        let Some(number) = core.catalog.parity_group_of(container)? else { return Ok(true) };
        // (E5)
        if core.store.needs_parity(number)? {
            return Ok(false);
        }
        let members = core.catalog.parity_members(number)?;
        let mut due = 0;
        for record in members.iter().filter(|record| core.store.known_damage(record.id).is_empty()) {
            if core.clock.now_ms().saturating_sub(record.created_ms) < WAITED_MS {
                return Ok(false);
            }
            due += 1;
        }
        Ok(due != 1)
    }

    /// (E4) A group of which a container was deleted. (E5) Not while it can repair something, (E7) known or not.
    fn give_up_if_spent(&self, number: ContainerId) -> Result<(), EngineError> {
        let store = &self.core.store;
        if store.needs_parity(number)? {
            return Ok(());
        }
        if let Err(error) = container_repair::repair_others(&self.core, number, None) {
            tracing::warn!(%number, %error, "a group of parity is kept: it cannot be told what it repairs");
            return Ok(());
        }
        if store.needs_parity(number)? {
            return Ok(());
        }
        self.give_up(number)
    }

    /// First the catalog forgets it.
    fn give_up(&self, number: ContainerId) -> Result<(), EngineError> {
        self.core.catalog.remove_parity_group(number)?;
        self.remove_blob(number)
    }

    fn remove_blob(&self, number: ContainerId) -> Result<(), EngineError> {
        match self.core.volume.remove(&parity::name(number)) {
            Ok(()) | Err(VolumeError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn look(&self, budget: &Budget) -> Result<Step, EngineError> {
        let mut state = self.state.lock();
        if self.core.health.read_only_reason().is_some() {
            return Ok(Step::Idle(LOOK));
        }
        if self.repair(&mut state)? {
            return Ok(Step::More);
        }
        if !state.entered {
            self.enter()?;
            state.entered = true;
        }
        let now_ms = self.core.clock.monotonic_ms();
        if state.looked_ms.is_some_and(|at_ms| now_ms.saturating_sub(at_ms) < TABLES_MS) {
            return Ok(Step::Idle(LOOK));
        }
        if self.load.is_busy() {
            return Ok(Step::Idle(LOOK));
        }
        for number in self.core.catalog.broken_parity_groups(FREE_MAX)? {
            // Each may read its whole group.
            if budget.must_stop() {
                return Ok(Step::More);
            }
            self.give_up_if_spent(number)?;
        }
        if let Some(scheme) = self.scheme {
            let renewed = self.renew(&mut state, budget);
            // No room for parity is no failure: what is there goes on.
            if has_done(renewed)?
                || has_done(self.make_anew(&mut state, scheme, budget))?
                || has_done(self.group(&mut state, scheme, budget))?
            {
                return Ok(Step::More);
            }
        }
        state.looked_ms = Some(now_ms);
        Ok(Step::Idle(LOOK))
    }
}

/// Returns whether there was something to do; there was nothing that could be done when there is no room.
fn has_done(done: Result<bool, EngineError>) -> Result<bool, EngineError> {
    match done {
        Err(EngineError::Full(_)) => Ok(false),
        done => done,
    }
}

impl Job for ParityJob {
    fn name(&self) -> &'static str {
        "parity"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        Ok(self.look(budget)?)
    }
}
