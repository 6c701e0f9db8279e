//! Parity at work: groups containers and writes their parity, repairs what is damaged with it, and gives up groups of
//! which a container was deleted.
//!
//! Order: containers are read and found sound → their parity is sealed, durably → the catalog knows the group (E1). A
//! group is forgotten by the catalog before its blob is removed (E4). A crash in between leaves a blob that the catalog
//! does not know: the first step of the next process enters it, if every container of it is there and free, and removes
//! it otherwise, once nothing can be lacking that it could bring back (E10). Parity that was found damaged is replaced: the
//! new blob durable → the catalog knows it in place of the old one → that is removed (E8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_catalog::{ContainerRecord, ParityGroup};
use holdfast_types::ids::{ContainerId, NamespaceId};
use holdfast_volume::{Volume as _, VolumeError, list_all};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

use crate::container::{ContainerName, Owner};
use crate::core::Core;
use crate::error::EngineError;
use crate::format::parity::ParityMember;
use crate::jobs::{Budget, Job, JobError, NoProgress, Step};
use crate::parity::{self, MEMBERS_MAX, SPARES_MAX};
use crate::scrub::Load;
use crate::space::{Grant, Purpose};
use crate::{check, container_repair};

/// Shape of groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParityScheme {
    /// Containers of a full group.
    pub members: u8,
    /// Number of containers that may be lost.
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

/// Interval between two looks when there is nothing to do.
const LOOK: Duration = Duration::from_secs(10);

/// Interval between two looks for broken groups and free containers: they read whole tables.
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
    /// Time of the last look at the tables, on the clock that never jumps; `None`: none yet, so look at once.
    looked_ms: Option<i64>,
    /// Position from which the look for free containers goes on.
    after: Option<ContainerId>,
    /// Containers that could not be repaired, and when that was.
    failed: BTreeMap<ContainerId, i64>,
    /// Containers that do not lie here, as was found out: another place keeps them.
    far: RoaringTreemap,
}

/// Makes, repairs and gives up parity in the background.
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

    /// Repairs one damaged container that a group protects. Returns true if there was one.
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

    /// (E6) Moves the rest of one container whose damage has healed. Returns true if there was one.
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

    /// Returns true if the others of a container's group will be in a group again at once, or go the same way.
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

    /// Makes one group of free containers. Returns true if there may be more. Containers of a size go together, because
    /// a group's parity is as long as its longest container, unless they have waited for others in vain; and those of
    /// one namespace, because parity reveals of one container what the others leave over, and so belongs to the
    /// namespace of all.
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
        self.write(&chosen, scheme, None, budget)
    }

    /// (E8) Makes the parity of one group anew that was found damaged or missing. Returns true if there was one.
    fn make_anew(
        &self,
        state: &mut State,
        scheme: ParityScheme,
        budget: &Budget,
    ) -> Result<bool, EngineError> {
        let core = &self.core;
        for number in core.catalog.damaged_parity_groups(FREE_MAX)? {
            let members = core.catalog.parity_members(number)?;
            // Damaged members are repaired first, possibly from what is left of this parity.
            let must_wait = |record: &ContainerRecord| {
                !core.store.known_damage(record.id).is_empty() || self.is_far(record)
            };
            if members.iter().any(must_wait) {
                // Nothing can be reconstructed from it any more: the others are grouped anew without these.
                if let Err(EngineError::Damaged(_)) =
                    parity::read_members(&*core.volume, core.repository, number)
                {
                    self.give_up(number)?;
                }
                continue;
            }
            if state.failed.contains_key(&number) {
                continue;
            }
            state.failed.insert(number, core.clock.monotonic_ms());
            let done = self.write(&members.iter().collect::<Vec<_>>(), scheme, Some(number), budget);
            if budget.must_stop() || self.load.is_busy() {
                state.failed.remove(&number);
            }
            return done;
        }
        Ok(false)
    }

    /// Returns true if it is only in the bucket: reading it would cost more than parity is worth.
    fn is_far(&self, record: &ContainerRecord) -> bool {
        let name = ContainerName { id: record.id, class: record.class }.blob();
        self.core.volume.open(&name).is_ok_and(|blob| !blob.is_at_hand())
    }

    fn write(
        &self,
        chosen: &[&ContainerRecord],
        scheme: ParityScheme,
        replaced: Option<ContainerId>,
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
            let (lost, stored_bytes) = container_repair::scan(core, id, class);
            budget.charge(1, stored_bytes);
            let length =
                u32::try_from(record.stored_bytes).ok().filter(|_| stored_bytes == record.stored_bytes);
            let (Some(length), true) = (length, lost.is_empty()) else {
                // Without it there may be another group.
                return Ok(!core.store.known_damage(id).is_empty());
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
        match core.catalog.add_parity_group(&group, replaced) {
            Ok(()) => {
                replaced.map_or(Ok(()), |replaced| self.remove_blob(replaced))?;
                Ok(true)
            }
            Err(error) => {
                tracing::info!(%number, %error, "a container of a group of parity went while it was written");
                self.remove_blob(number)?;
                Ok(true)
            }
        }
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
            match parity::read_members(&*core.volume, core.repository, number) {
                Ok((members, stored_bytes)) => self.enter_one(number, &members, stored_bytes)?,
                // Nothing can be reconstructed from it, now or later.
                Err(EngineError::Damaged(error)) => {
                    tracing::warn!(%name, %error, "removed parity that the catalog does not know");
                    self.remove_blob(number)?;
                }
                // (E4) It may be the last that something can be made again of.
                Err(error) => {
                    tracing::warn!(%name, %error, "kept parity that cannot be read now; the next start tries again");
                }
            }
        }
        Ok(())
    }

    fn enter_one(
        &self,
        number: ContainerId,
        members: &[ParityMember],
        stored_bytes: u64,
    ) -> Result<(), EngineError> {
        let core = &self.core;
        let mut unknown = Vec::new();
        let mut namespace = None;
        for member in members {
            match core.catalog.container(member.id)? {
                Some(record) if record.stored_bytes == u64::from(member.stored_bytes) => {
                    namespace = Some(record.namespace);
                }
                record => unknown.push((member, record.is_none())),
            }
        }
        let ids = members.iter().map(|member| member.id).collect();
        let group = ParityGroup { number, members: ids, stored_bytes, created_ms: core.clock.now_ms() };
        // (E8) A catalog that is older than a replacement knows what was replaced.
        let other = members.first().map_or(Ok(None), |member| core.catalog.parity_group_of(member.id))?;
        let replaced = other.filter(|other| {
            let read = parity::read_members(&*core.volume, core.repository, *other);
            matches!(read, Err(EngineError::Damaged(_)))
        });
        if unknown.is_empty() && core.catalog.add_parity_group(&group, replaced).is_ok() {
            tracing::info!(%number, "entered parity that the catalog did not know");
            return Ok(());
        }
        let lost: Vec<ParityMember> =
            unknown.into_iter().filter(|(_, has_no_row)| *has_no_row).map(|(member, _)| *member).collect();
        match namespace {
            Some(namespace) if !lost.is_empty() && !self.bring_back(number, namespace, &lost)? => Ok(()),
            _ => self.remove_blob(number),
        }
    }

    /// (E10) Containers known only by this parity were deleted, or lost with the catalog that knew them: where a
    /// restore point lacks chunks, those that can be reconstructed are written anew. Returns true if the parity may go.
    fn bring_back(
        &self,
        number: ContainerId,
        namespace: NamespaceId,
        lost: &[ParityMember],
    ) -> Result<bool, EngineError> {
        let core = &self.core;
        let wanted: BTreeSet<ContainerId> =
            lost.iter().map(|member| member.id).filter(|id| !core.store.leftovers.is_gone(*id)).collect();
        // (P6, S8) Restore points that are not known yet may need the lost chunks.
        if core.unrecorded.check_all_known().is_err() || core.has_left_point() {
            return Ok(false);
        }
        let found = match parity::repairable(&*core.volume, core.repository, number, &wanted) {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%number, %error, "kept parity of which it cannot be told now what it can bring back");
                return Ok(false);
            }
        };
        if found.is_empty() || check::is_whole(core, namespace, &NoProgress)? {
            return Ok(true);
        }
        for member in lost.iter().filter(|member| found.contains(&member.id)) {
            let (id, class) = (member.id, member.class);
            let owner = Owner { id, class, namespace, created_ms: core.clock.now_ms() };
            let stored_bytes = member.stored_bytes.into();
            let made = parity::reconstruct(&*core.volume, core.repository, number, owner, stored_bytes)?;
            let Some((open, complete)) = made else { return Ok(false) };
            if !container_repair::write_anew(core, open, complete)? {
                return Ok(false);
            }
            tracing::info!(container = %id, %number, "brought back a container that only its parity told of");
        }
        Ok(true)
    }
}

/// Returns true if work was done; without room, none could be.
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
