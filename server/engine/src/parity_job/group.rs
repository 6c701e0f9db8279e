//! Making groups of containers, and making the parity of a group anew.

use std::collections::BTreeMap;

use holdfast_catalog::{ContainerRecord, ParityGroup};
use holdfast_types::ids::{ContainerId, NamespaceId};
use holdfast_volume::Volume as _;

use super::{FREE_MAX, ParityJob, ParityScheme, State, WAITED_MS, YOUNG_MS};
use crate::container::ContainerName;
use crate::container_repair;
use crate::error::EngineError;
use crate::jobs::Budget;
use crate::parity;
use crate::space::{Grant, Purpose};

impl ParityJob {
    /// Makes one group of free containers; whether there may be more. Containers of a size go together, because a group's
    /// parity is as long as its longest container, unless they have waited for others in vain; and those of one namespace,
    /// because parity tells of one container what the others leave over: it belongs to whom they belong to.
    pub(super) fn group(
        &self,
        state: &mut State,
        scheme: ParityScheme,
        budget: &Budget,
    ) -> Result<bool, EngineError> {
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

    /// (E8) Makes the parity of one group anew that was found damaged or missing; whether there was one.
    pub(super) fn make_anew(
        &self,
        state: &mut State,
        scheme: ParityScheme,
        budget: &Budget,
    ) -> Result<bool, EngineError> {
        let core = &self.core;
        for number in core.catalog.damaged_parity_groups(FREE_MAX)? {
            let members = core.catalog.parity_members(number)?;
            // What is damaged of them is repaired first, maybe with what is left of this parity.
            let must_wait = |record: &ContainerRecord| {
                !core.store.known_damage(record.id).is_empty() || self.is_far(record)
            };
            if members.iter().any(must_wait) {
                // Nothing can be made of it any more: the others are grouped anew without these.
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

    /// Returns whether it lies in another place alone: reading it would cost more than parity is worth.
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
