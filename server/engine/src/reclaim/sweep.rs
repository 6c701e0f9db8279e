//! The second half of a round: which containers go, and how.
//!
//! Wholly dead containers first, so that a full volume gets room for copies; then, batch by batch, the sparsest ones:
//! their live chunks are copied into new containers, durable and indexed, before the old ones are condemned (G4). A
//! container is condemned only if no one counts on a dead chunk of it, and who counts on a live one counts on the copy
//! then (D1); and if no damage became known since the mark (G6). One transaction enters the copies and condemns what they
//! replace; then the order of every deletion (D2).

use std::collections::{HashMap, HashSet};

use holdfast_catalog::ContainerRecord;
use holdfast_proto::limits::CONTAINER_MAX_BYTES;
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, VmId};

use super::attribution::Shares;
use super::control::{Control, Phase};
use super::live::{Candidate, LiveMap, SlotSet};
use super::plan::{self, Batch, Chosen, Victim, batches, with_contested};
use super::repack::{self, Copied, RepackOptions, copy_forward};
use super::report::{Incomplete, ReclaimOptions, ReclaimReport, RoundStep, Squeeze, Watch};
use super::roots::Roots;
use crate::container_repair;
use crate::core::Core;
use crate::error::EngineError;
use crate::store::Leftover;

/// Wholly dead containers deleted with one transaction: 2 GiB of them.
const DELETED_PER_TRANSACTION: usize = 64;

/// Recipe containers smaller than this are merged: what small runs leave.
const SMALL_RECIPE_BYTES: u64 = 8 << 20;

/// Data containers smaller than this, three quarters of a full one, are merged with others of the same VM: each has a
/// little of every part of its disk, and a restore of the newest restore point reads of all of them. With those of other
/// VMs they would be full at once, and stay as they are.
const SMALL_DATA_BYTES: u64 = 24 << 20;

/// Containers merged at least: every small run leaves one more, and each is not to be written anew each night.
const MERGED_MIN: usize = 8;

/// Containers of which more than this is live, in percent, are never copied for what is dead of them: a byte freed would
/// cost fifty.
const WORTH_COPYING_PCT: u64 = 98;

/// Beside the thread that reads and the one that writes.
const COPY_THREADS: usize = 1;

/// Beside the threads that read and write: backups have the other cores.
const SQUEEZE_THREADS: usize = 1;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// A container that may go.
#[derive(Debug, Clone)]
struct Doomed {
    candidate: Candidate,
    /// Chunks that are copied before it is removed.
    live: SlotSet,
    /// Bytes of its file that are live.
    live_bytes: u64,
    /// VM that its data is of, when that is known.
    vm: Option<VmId>,
    /// Damage of its namespace that was known before the mark.
    generation: u64,
    /// Set if so much of it is dead that it is copied for that alone.
    is_sparse: bool,
}

impl Doomed {
    const fn dead_bytes(&self) -> u64 {
        self.candidate.stored_bytes.saturating_sub(self.live_bytes)
    }

    /// Containers of one group are merged: data of one VM, recipes of one namespace.
    const fn group(&self) -> (NamespaceId, Option<VmId>) {
        (self.candidate.namespace, self.vm)
    }

    const fn as_leftover(&self) -> Leftover {
        let Candidate { id, class, stored_bytes, .. } = self.candidate;
        Leftover { id, class, stored_bytes }
    }
}

/// The second half of a round: deletes dead containers, and copies the live chunks of sparse ones.
pub(super) struct Sweep<'a> {
    core: &'a Core,
    options: &'a ReclaimOptions,
    control: &'a Control,
    report: &'a mut ReclaimReport,
    watch: Watch<'a>,
    dead: Vec<Doomed>,
    sparse: Vec<Doomed>,
    /// Other containers in which some chunks are dead.
    partly: Vec<Doomed>,
}

impl<'a> Sweep<'a> {
    pub(super) const fn new(
        core: &'a Core,
        options: &'a ReclaimOptions,
        control: &'a Control,
        report: &'a mut ReclaimReport,
        watch: Watch<'a>,
    ) -> Self {
        Self {
            core,
            options,
            control,
            report,
            watch,
            dead: Vec::new(),
            sparse: Vec::new(),
            partly: Vec::new(),
        }
    }

    /// Decides about one container of a window, of which `map` says what is live. `lacks`: something that is needed in its
    /// namespace was in a damaged place and is nowhere else, or was followed by what is left there, or may be.
    pub(super) fn judge(
        &mut self,
        candidate: &Candidate,
        map: &LiveMap,
        generation: u64,
        lacks: bool,
    ) -> Result<(), EngineError> {
        let store = &self.core.store;
        // It was not looked at.
        let Some(live) = map.get(candidate.id) else { return Ok(()) };
        let is_damaged = !store.known_damage(candidate.id).is_empty();
        // (G6) A damaged container may prove sound again, and may then have the only copy of a lost chunk. Where
        // nothing is lost, no one needs it, healed or not: its space would never come back.
        let may_go_damaged = live.is_empty() && (!lacks || store.is_healed(candidate.id));
        if is_damaged && !may_go_damaged {
            return Ok(());
        }
        let mut candidate = *candidate;
        let opened = store.containers.get(candidate.id, candidate.class);
        let is_missing = opened.as_ref().is_err_and(|error| error.is_missing());
        // (G6, N7) A container that cannot be opened now may have the only sound copy of a lost chunk, or the only one
        // that its agents can open.
        if !is_damaged && lacks && opened.is_err() && !is_missing {
            return Ok(());
        }
        // A file that is not there gives nothing back.
        if is_damaged && is_missing {
            candidate.stored_bytes = 0;
        }
        let stays = self.stays_with(&candidate, live);
        let live = stays.as_ref().unwrap_or(live);
        let mut doomed = self.doomed(&candidate, live.clone(), map.vm(candidate.id), generation);
        if (doomed.live.is_empty() || doomed.is_sparse || self.is_small(&candidate))
            && let Some(live) = self.with_contested(&doomed, map)?
        {
            doomed = self.doomed(&candidate, live, doomed.vm, generation);
        }
        let (dead_bytes, live_bytes) = (doomed.dead_bytes(), doomed.live_bytes);
        let (is_sparse, is_small) = (doomed.is_sparse, self.is_small(&candidate));
        self.report.dead_bytes += dead_bytes;
        if doomed.live.is_empty() {
            self.report.cleanable_bytes += dead_bytes;
            self.dead.push(doomed);
        } else if self.stays_where_it_is(&candidate) {
            // It goes once nothing of it is live.
        } else if is_sparse || is_small {
            self.report.cleanable_bytes += if is_sparse { dead_bytes } else { 0 };
            self.sparse.push(doomed);
        } else if live_bytes.saturating_mul(100) < candidate.stored_bytes.saturating_mul(WORTH_COPYING_PCT) {
            self.partly.push(doomed);
        }
        Ok(())
    }

    fn doomed(&self, candidate: &Candidate, live: SlotSet, vm: Option<VmId>, generation: u64) -> Doomed {
        let live_bytes = if live.is_empty() {
            0
        } else if live.is_full() {
            candidate.stored_bytes
        } else {
            self.live_bytes(candidate, &live)
        };
        let enough = candidate.stored_bytes.saturating_mul(self.options.live_share_pct.into());
        let is_sparse = live_bytes.saturating_mul(100) < enough;
        Doomed { candidate: *candidate, live, live_bytes, vm, generation, is_sparse }
    }

    const fn is_small(&self, candidate: &Candidate) -> bool {
        let small_bytes = match candidate.class {
            ContainerClass::Data => SMALL_DATA_BYTES,
            ContainerClass::Recipe => SMALL_RECIPE_BYTES,
        };
        self.options.merge && candidate.stored_bytes < small_bytes
    }

    /// (N7) Chunks of it that stay, where these are more than the live ones. A container that cannot be opened was
    /// [judged](Self::judge).
    fn with_contested(&self, one: &Doomed, map: &LiveMap) -> Result<Option<SlotSet>, EngineError> {
        let Candidate { id, class, .. } = one.candidate;
        let open = self.core.store.containers.get(id, class);
        open.map_or(Ok(None), |open| with_contested(self.core, &open, &one.live, map))
    }

    /// Returns true if nothing of it is copied. Reading the live part of one that is only in the bucket costs as much
    /// as storing its dead part for months; it goes as a whole. (N6) Chunks that agents reported would count again.
    fn stays_where_it_is(&self, candidate: &Candidate) -> bool {
        let open = self.core.store.containers.get(candidate.id, candidate.class);
        open.is_ok_and(|open| !open.is_at_hand() || !self.core.store.reported_in(&open).is_empty())
    }

    /// Chooses more of the partly dead containers, the sparsest first, while the bytes copied for each byte freed stay
    /// within [`ReclaimOptions::copied_per_freed`].
    fn choose_more(&mut self, map: &LiveMap) -> Result<(), EngineError> {
        if self.options.live_share_pct == 0 {
            return Ok(());
        }
        let per_freed = u64::from(self.options.copied_per_freed);
        let sparse = || self.sparse.iter().filter(|one| one.is_sparse);
        let mut copied: u64 = sparse().map(|one| one.live_bytes).sum();
        let mut freed: u64 = self.dead.iter().chain(sparse()).map(Doomed::dead_bytes).sum();
        let mut partly = std::mem::take(&mut self.partly);
        partly.sort_by_key(|one| one.live_bytes.saturating_mul(1 << 20) / one.candidate.stored_bytes.max(1));
        for mut one in partly {
            copied += one.live_bytes;
            freed += one.dead_bytes();
            if copied > freed.saturating_mul(per_freed) {
                break;
            }
            if let Some(live) = self.with_contested(&one, map)? {
                one = self.doomed(&one.candidate, live, one.vm, one.generation);
            }
            self.report.cleanable_bytes += one.dead_bytes();
            one.is_sparse = true;
            self.sparse.push(one);
        }
        Ok(())
    }

    /// (N4) One that cannot be opened is reported where it is read.
    fn stays_with(&self, candidate: &Candidate, live: &SlotSet) -> Option<SlotSet> {
        if candidate.class == ContainerClass::Recipe || live.is_empty() || live.is_full() {
            return None;
        }
        let open = self.core.store.containers.get(candidate.id, candidate.class).ok()?;
        plan::stays_with(&open, live)
    }

    fn live_bytes(&self, candidate: &Candidate, live: &SlotSet) -> u64 {
        // One that cannot be opened is reported where it is read; this round leaves it as it is.
        let Ok(open) = self.core.store.containers.get(candidate.id, candidate.class) else {
            return candidate.stored_bytes;
        };
        let shares = Shares::of(&open);
        live.iter().map(|number| shares.bytes(&open, number)).sum()
    }

    /// Deletes the dead containers, and copies the sparse ones.
    pub(super) fn run(mut self, roots: &Roots, map: &LiveMap) -> Result<(), EngineError> {
        self.choose_more(map)?;
        if self.options.dry_run {
            return Ok(());
        }
        let dead = std::mem::take(&mut self.dead);
        self.control.begin(Phase::Deleting, dead.len() as u64);
        for some in dead.chunks(DELETED_PER_TRANSACTION) {
            self.control.check()?;
            self.replace(some.iter(), &[])?;
            self.control.add_done(some.len() as u64);
        }
        let (doomed, batches) = self.batches();
        self.control.begin(Phase::Copying, batches.len() as u64);
        for batch in &batches {
            self.control.check()?;
            if !self.copy_forward(batch, &doomed, roots)? {
                // No room for more copies; what is dead went before.
                break;
            }
            self.control.add_done(1);
        }
        Ok(())
    }

    /// Containers worth copying, in batches; first those that free most for what they write.
    fn batches(&mut self) -> (HashMap<ContainerId, Doomed>, Vec<Batch>) {
        // Number and live bytes of the containers of each group.
        let mut groups: HashMap<_, (usize, u64)> = HashMap::new();
        for one in &self.sparse {
            let (count, bytes) = groups.entry(one.group()).or_default();
            *count += 1;
            *bytes += one.live_bytes;
        }
        let of_group = |one: &Doomed| groups.get(&one.group()).copied().unwrap_or_default();
        let mergeable = |one: &Doomed| one.is_sparse || of_group(one).0 >= MERGED_MIN;
        let mut doomed = HashMap::new();
        let mut chosen = Vec::new();
        for one in std::mem::take(&mut self.sparse).into_iter().filter(mergeable) {
            let Candidate { id, class, namespace, .. } = one.candidate;
            // Little of a VM is written with that of others: every batch leaves a container that is not full.
            let vm = one.vm.filter(|_| of_group(&one).1 >= u64::from(CONTAINER_MAX_BYTES));
            chosen.push(Chosen { id, class, namespace, vm, live: one.live.clone() });
            doomed.insert(id, one);
        }
        let mut batches = batches(chosen);
        // Written for each byte freed.
        let cost = |batch: &Batch| {
            let of_batch = || batch.chosen.iter().filter_map(|one| doomed.get(&one.id));
            let written: u64 = of_batch().map(|one| one.live_bytes).sum();
            let stored: u64 = of_batch().map(|one| one.candidate.stored_bytes).sum();
            written.saturating_mul(1 << 20) / stored.saturating_sub(written).max(1)
        };
        batches.sort_by_key(cost);
        (doomed, batches)
    }

    /// Copies a batch and removes the old containers. Returns false if there was no room.
    fn copy_forward(
        &mut self,
        batch: &Batch,
        doomed: &HashMap<ContainerId, Doomed>,
        roots: &Roots,
    ) -> Result<bool, EngineError> {
        let mut left: Vec<Victim> = batch.open(self.core)?;
        // A held container would stay, so it is not worth a copy.
        left.retain(|one| self.is_free(one));
        let order = batch.read_order(self.core, &left, roots.iter(), self.control)?;
        let mut options = RepackOptions { order, threads: COPY_THREADS, ..RepackOptions::default() };
        while !left.is_empty() {
            let Copied { containers, complete, ended, .. } =
                copy_forward(self.core, &left, &options, self.control);
            let written: u64 = containers.iter().map(|copy| copy.stored_bytes).sum();
            self.report.copied_bytes += written;
            self.report.containers_written += containers.len() as u64;
            (self.watch)(RoundStep::Copied);
            let complete: HashSet<ContainerId> = complete.into_iter().collect();
            let gone = self.replace(complete.iter().filter_map(|id| doomed.get(id)), &containers)?;
            let freed: u64 = gone.iter().map(|one| one.stored_bytes).sum();
            left.retain(|one| !complete.contains(&one.container.id()));
            match ended {
                // The removed containers made room for the rest.
                Some(EngineError::Full(_)) if freed > written => options.order = None,
                Some(EngineError::Full(_)) => return Ok(false),
                Some(error) => return Err(error),
                None => break,
            }
        }
        Ok(true)
    }

    fn is_free(&mut self, one: &Victim) -> bool {
        let (store, id) = (&self.core.store, one.container.id());
        let free =
            store.leftovers.is_free(id, |number| one.live.contains(number)) && !self.protects_others(id);
        self.report.containers_held += u64::from(!free);
        free
    }

    /// Compresses old containers anew, whatever of them is live.
    pub(super) fn squeeze(&mut self, how: &Squeeze) -> Result<(), EngineError> {
        let core = self.core;
        let age_ms = i64::from(how.min_age_days).saturating_mul(DAY_MS);
        let made_before_ms = core.clock.now_ms().saturating_sub(age_ms);
        let options = repack::Squeeze { level: how.level, made_before_ms, threads: SQUEEZE_THREADS };
        let control = self.control;
        control.begin(Phase::Squeezing, 0);
        let replace = |victims: &[Victim], copied: &Copied| self.replace_squeezed(victims, copied);
        let done = repack::squeeze(core, &options, control, replace)?;
        self.report.squeezed_bytes_before += done.bytes_before;
        self.report.squeezed_bytes_after += done.bytes_after;
        Ok(())
    }

    /// Deletes the victims of which everything is in the copies; says which went.
    fn replace_squeezed(
        &mut self,
        victims: &[Victim],
        copied: &Copied,
    ) -> Result<Vec<ContainerId>, EngineError> {
        let complete: HashSet<ContainerId> = copied.complete.iter().copied().collect();
        let doomed: Vec<Doomed> = victims
            .iter()
            .filter(|victim| complete.contains(&victim.container.id()))
            .map(|victim| self.doomed_whole(victim))
            .collect();
        self.report.copied_bytes += copied.containers.iter().map(|copy| copy.stored_bytes).sum::<u64>();
        self.report.containers_written += copied.containers.len() as u64;
        let gone = self.replace(doomed.iter(), &copied.containers)?;
        Ok(gone.iter().map(|one| one.id).collect())
    }

    /// Record of a victim that was read and copied as a whole, so it depends on no other copy: damage found until now
    /// is no matter.
    fn doomed_whole(&self, victim: &Victim) -> Doomed {
        let (container, stored_bytes) = (&victim.container, victim.container.stored_bytes());
        let candidate = Candidate {
            id: container.id(),
            class: container.class(),
            namespace: container.namespace(),
            stored_bytes,
            chunks: victim.live.chunks(),
        };
        let generation = self.core.store.damage_generation(container.namespace());
        Doomed {
            candidate,
            live: victim.live.clone(),
            live_bytes: stored_bytes,
            vm: None,
            generation,
            is_sparse: true,
        }
    }

    /// (G4) Condemns containers, each of whose live chunks is found in `copies` by now, and deletes them. Returns those
    /// that went.
    fn replace<'d>(
        &mut self,
        doomed: impl Iterator<Item = &'d Doomed>,
        copies: &[ContainerRecord],
    ) -> Result<Vec<Leftover>, EngineError> {
        let core = self.core;
        core.check_writable()?;
        // One deletion at a time.
        let _deleting = core.deleting();
        let mut condemned = Vec::new();
        let mut merged = 0;
        for one in doomed {
            if self.condemn(one, copies) {
                condemned.push(one.as_leftover());
                merged += u64::from(!one.is_sparse);
            } else {
                self.report.containers_held += 1;
            }
        }
        let ids: Vec<ContainerId> = condemned.iter().map(|one| one.id).collect();
        let answer = core.catalog.replace_containers(copies, &ids);
        core.store.condemned(&condemned, answer).map_err(|error| core.write_failure(error))?;
        (self.watch)(RoundStep::Condemned);
        core.store.unlink_gone(&*core.volume, &condemned).map_err(|error| core.write_failure(error))?;
        let bytes = condemned.iter().map(|one| one.stored_bytes).sum();
        self.report.containers_deleted += condemned.len() as u64;
        self.report.small_merged += merged;
        self.report.deleted_bytes += bytes;
        self.control.add_freed(bytes);
        (self.watch)(RoundStep::Deleted);
        Ok(condemned)
    }

    /// Condemns a container if it may go: then no one begins to rely on it any more. Returns false if it stays.
    fn condemn(&mut self, one: &Doomed, copies: &[ContainerRecord]) -> bool {
        let store = &self.core.store;
        if !self.releases(one.candidate.id) {
            return false;
        }
        // (D1) The live chunks were copied.
        if !store.leftovers.condemn_one(one.candidate.id, |number| one.live.contains(number)) {
            return false;
        }
        // (G6) After it is refused: what is found damaged from here on is damage of what stays.
        let namespace = one.candidate.namespace;
        let damaged = |copy: &ContainerRecord| !store.known_damage(copy.id).is_empty();
        if store.damage_generation(namespace) != one.generation || copies.iter().any(damaged) {
            store.leftovers.take_back(&[one.as_leftover()]);
            self.note_damage(namespace);
            return false;
        }
        if self.protects_others(one.candidate.id) || !self.move_holds(one, copies) {
            store.leftovers.take_back(&[one.as_leftover()]);
            return false;
        }
        true
    }

    /// (E7) Returns true if a damaged container is not needed any more to repair others of its group. Repairs these
    /// first.
    fn releases(&self, id: ContainerId) -> bool {
        let core = self.core;
        if core.store.known_damage(id).is_empty() {
            return true;
        }
        let group = core.catalog.parity_group_of(id).map_err(EngineError::from);
        let repaired = group.and_then(|group| {
            group.map_or(Ok(()), |number| container_repair::repair_others(core, number, Some(id)))
        });
        if let Err(error) = &repaired {
            tracing::warn!(container = %id, %error, "a container stays: the others of its group cannot be repaired");
        }
        repaired.is_ok()
    }

    /// (E5) Returns true if another damaged container can be reconstructed only with this one.
    fn protects_others(&self, id: ContainerId) -> bool {
        self.core.store.protects_others(id).unwrap_or_else(|error| {
            tracing::warn!(container = %id, %error, "a container stays: what parity needs it for cannot be asked");
            true
        })
    }

    /// (D1) Moves holds on chunks that were copied to the copies.
    fn move_holds(&self, one: &Doomed, copies: &[ContainerRecord]) -> bool {
        // Then no one counts on anything of it.
        if one.live.is_empty() {
            return true;
        }
        let store = &self.core.store;
        let copies: Vec<ContainerId> = copies.iter().map(|copy| copy.id).collect();
        let open = store.containers.get(one.candidate.id, one.candidate.class).map_err(EngineError::from);
        open.and_then(|open| store.move_holds(&open, &copies)).unwrap_or_else(|error| {
            let container = one.candidate.id;
            tracing::warn!(%container, %error, "a container stays: backups count on something of it");
            false
        })
    }

    /// Says once why nothing more of a namespace goes.
    fn note_damage(&mut self, namespace: NamespaceId) {
        let reason = "damage was found while the round was in progress; the next one knows it".to_owned();
        let told = Incomplete { namespace, backup: None, vm: String::new(), disk: String::new(), reason };
        if !self.report.incomplete.contains(&told) {
            self.report.incomplete.push(told);
        }
    }
}
