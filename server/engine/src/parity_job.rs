//! Parity at work: groups containers and writes their parity, repairs what is damaged with it, and gives up groups of
//! which a container was deleted.
//!
//! Order: containers are read and found sound → their parity is sealed, durably → the catalog knows the group (E1). A
//! group is forgotten by the catalog before its blob is removed (E4). A crash in between leaves a blob that the catalog
//! does not know: the first step of the next process enters it, if every container of it is there and free, and removes
//! it otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::{ContainerRecord, ParityGroup};
use holdfast_types::ids::{ContainerId, NamespaceId};
use holdfast_volume::{Volume as _, VolumeError, list_all};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

use crate::container::{ContainerName, scan_container};
use crate::container_repair;
use crate::core::Core;
use crate::error::EngineError;
use crate::jobs::{Budget, Job, JobError, Step};
use crate::parity::{self, MEMBERS_MAX, SPARES_MAX};
use crate::scrub::Load;
use crate::space::{Grant, Purpose};

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
            // (N6) Parity makes it again as it was sent.
            let reported = core.store.reported(container);
            let known = core.store.known_damage(container);
            if known.iter().all(|(region, _)| region.is_some_and(|region| reported.contains(&region))) {
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
        let members = match parity::read_members(&*core.volume, core.repository, number) {
            Ok((members, _)) => members,
            Err(error) => {
                tracing::warn!(%number, %error, "the parity of a damaged container cannot be read");
                return Ok(false);
            }
        };
        let mut due = 0;
        for member in members.iter().filter(|member| core.store.known_damage(member.id).is_empty()) {
            let Some(record) = core.catalog.container(member.id)? else { continue };
            if core.clock.now_ms().saturating_sub(record.created_ms) < WAITED_MS {
                return Ok(false);
            }
            due += 1;
        }
        Ok(due != 1)
    }

    /// Enters blobs that the catalog does not know, or removes them.
    fn enter(&self) -> Result<(), EngineError> {
        let core = &self.core;
        for entry in list_all(&*core.volume, &parity::folder()) {
            let name = entry?.name;
            let Some(number) = parity::parse(&name) else {
                tracing::warn!(%name, "ignored an unexpected file among the parity");
                continue;
            };
            if core.catalog.has_parity_group(number)? {
                continue;
            }
            let group = parity::read_members(&*core.volume, core.repository, number);
            let (members, stored_bytes) = match group {
                Ok(group) => group,
                Err(EngineError::Unsupported(_)) => continue,
                Err(EngineError::Damaged(_)) => (Vec::new(), 0),
                Err(error) => return Err(error),
            };
            let mut known = !members.is_empty();
            for member in &members {
                let record = core.catalog.container(member.id)?;
                known &= record.is_some_and(|record| record.stored_bytes == u64::from(member.stored_bytes));
            }
            let members = members.iter().map(|member| member.id).collect();
            let group = ParityGroup { number, members, stored_bytes, created_ms: core.clock.now_ms() };
            if known && core.catalog.add_parity_group(&group).is_ok() {
                tracing::info!(%name, "entered parity that the catalog did not know");
            } else {
                self.remove_blob(number)?;
            }
        }
        Ok(())
    }

    /// (E4) First the catalog forgets it.
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

    /// Makes one group of free containers; whether there may be more. Containers of a size go together, because a group's
    /// parity is as long as its longest container, unless they have waited for others in vain; and those of one namespace,
    /// because parity tells of one container what the others leave over: it belongs to whom they belong to.
    fn group(&self, state: &mut State, scheme: ParityScheme, budget: &Budget) -> Result<bool, EngineError> {
        let core = &self.core;
        let now_ms = core.clock.now_ms();
        let free = core.catalog.without_parity(state.after, now_ms.saturating_sub(YOUNG_MS), FREE_MAX)?;
        let mut alike: BTreeMap<(NamespaceId, u32), Vec<&ContainerRecord>> = BTreeMap::new();
        let may_be_in = |record: &&ContainerRecord| {
            core.store.known_damage(record.id).is_empty() && !state.far.contains(record.id.get())
        };
        for record in free.iter().filter(may_be_in) {
            let size = record.stored_bytes.max(1 << 16).next_power_of_two().trailing_zeros();
            alike.entry((record.namespace, size)).or_default().push(record);
        }
        let waited = |record: &&&ContainerRecord| now_ms.saturating_sub(record.created_ms) >= WAITED_MS;
        let is_due = |group: &&Vec<&ContainerRecord>| {
            group.len() >= usize::from(scheme.members) || group.iter().filter(waited).count() >= 2
        };
        let chosen = alike.values().find(is_due).cloned().or_else(|| left_alone(&alike, waited));
        let Some(chosen) = chosen else {
            // On to the next ones; at the end, from the beginning.
            state.after = free.last().filter(|_| free.len() >= FREE_MAX as usize).map(|record| record.id);
            return Ok(state.after.is_some());
        };
        let chosen: Vec<&ContainerRecord> = chosen.iter().take(scheme.members.into()).copied().collect();
        let far: Vec<u64> =
            chosen.iter().filter(|record| self.is_far(record)).map(|record| record.id.get()).collect();
        if !far.is_empty() {
            state.far.extend(far);
            return Ok(true);
        }
        self.write(&chosen, scheme, budget)
    }

    /// Whether it lies in another place alone: reading it would cost more than parity is worth.
    fn is_far(&self, record: &ContainerRecord) -> bool {
        let name = ContainerName { id: record.id, class: record.class }.blob();
        self.core.volume.open(&name).is_ok_and(|blob| !blob.is_at_hand())
    }

    fn write(
        &self,
        chosen: &[&ContainerRecord],
        scheme: ParityScheme,
        budget: &Budget,
    ) -> Result<bool, EngineError> {
        let core = &self.core;
        core.check_writable()?;
        let stop = || budget.must_stop() || self.load.is_busy();
        let mut sources = Vec::with_capacity(chosen.len());
        for record in chosen {
            if stop() {
                return Ok(false);
            }
            let (id, class) = (record.id, record.class);
            // (E1) Parity of what is damaged would keep the damage.
            let report = scan_container(&*core.volume, core.repository, id, class);
            budget.charge(1, report.stored_bytes);
            let length = u32::try_from(record.stored_bytes)
                .ok()
                .filter(|_| report.stored_bytes == record.stored_bytes);
            let (Some(length), true) = (length, report.findings.is_empty()) else {
                let mut damaged = report.findings.iter().filter(|error| error.is_damage()).peekable();
                let noted = damaged.peek().is_some() && !core.store.leftovers.is_gone(id);
                if noted {
                    damaged.for_each(|error| core.store.note_failure(id, None, error));
                }
                // Without it there may be another group.
                return Ok(noted);
            };
            sources.push((ContainerName { id, class }, length));
        }
        let longest: u64 = chosen.iter().map(|record| record.stored_bytes).max().unwrap_or(0);
        let mut room = Grant::new(&core.ledger, Purpose::Data);
        // (W10) Parity, and its table of at most 145 KiB.
        core.cover(&mut room, longest.saturating_mul(scheme.spares.into()).saturating_add(256 << 10))?;
        let number = core.next_container()?;
        let Some(owner) = chosen.first().map(|record| record.namespace) else { return Ok(false) };
        let created_ms = core.clock.now_ms();
        let header =
            parity::Group { repository: core.repository, owner, number, created_ms, spares: scheme.spares };
        let written = parity::write(&*core.volume, &header, &sources, &stop)
            .map_err(|error| core.write_failure(error))?;
        let Some(written) = written else { return Ok(false) };
        budget.charge(1, written.stored_bytes);
        let members = chosen.iter().map(|record| record.id).collect();
        let group = ParityGroup { number, members, stored_bytes: written.stored_bytes, created_ms };
        // (E1) Only now; one that was deleted meanwhile ends it.
        match core.catalog.add_parity_group(&group) {
            Ok(()) => Ok(true),
            Err(error) => {
                tracing::info!(%number, %error, "a container of a group of parity went while it was written");
                self.remove_blob(number)?;
                Ok(true)
            }
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
        for number in self.core.catalog.broken_parity_groups(FREE_MAX)? {
            // (E5)
            if !self.core.store.needs_parity(number)? {
                self.give_up(number)?;
            }
        }
        if self.load.is_busy() {
            return Ok(Step::Idle(LOOK));
        }
        if let Some(scheme) = self.scheme {
            match self.renew(&mut state, budget) {
                Ok(true) => return Ok(Step::More),
                Ok(false) | Err(EngineError::Full(_)) => {}
                Err(error) => return Err(error),
            }
            match self.group(&mut state, scheme, budget) {
                Ok(true) => return Ok(Step::More),
                // No room for parity is no failure: what is there goes on.
                Ok(false) | Err(EngineError::Full(_)) => {}
                Err(error) => return Err(error),
            }
        }
        state.looked_ms = Some(now_ms);
        Ok(Step::Idle(LOOK))
    }
}

/// Containers of a namespace that have waited for others of their size in vain: two of different sizes cost more parity
/// than they should, and none would leave them without.
fn left_alone<'a>(
    alike: &BTreeMap<(NamespaceId, u32), Vec<&'a ContainerRecord>>,
    waited: impl Fn(&&&'a ContainerRecord) -> bool,
) -> Option<Vec<&'a ContainerRecord>> {
    let mut of_namespaces: BTreeMap<NamespaceId, Vec<&ContainerRecord>> = BTreeMap::new();
    for ((namespace, _), group) in alike {
        of_namespaces.entry(*namespace).or_default().extend(group.iter().filter(|record| waited(record)));
    }
    of_namespaces.into_values().find(|group| group.len() >= 2)
}

impl Job for ParityJob {
    fn name(&self) -> &'static str {
        "parity"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        Ok(self.look(budget)?)
    }
}
