//! Containers: their numbers, what they hold, and what is known to be damaged.

use std::ops::Range;

use holdfast_types::ids::{ContainerId, RunId};

use crate::sqlite::{Catalog, containers, damage, squeezed};
use crate::{ContainerRecord, DamageChanges, DamageRecord, Result};

/// Used by everything that writes, reads or checks containers.
///
/// Across processes: a number is handed out to one process only, because reserving is one transaction. Adding
/// containers and marking or clearing damage are one transaction each; the damage one process marks is seen by
/// the next call of any other, of [`damage_changed_since`](Catalog::damage_changed_since) too.
impl Catalog {
    /// Hands out `count` container numbers, durably: never again, whatever happens. `Invalid`: there are
    /// not so many left.
    pub fn reserve_container_numbers(&self, count: u32) -> Result<Range<u64>> {
        self.write(|tx| containers::reserve(tx, count))
    }

    /// Makes containers known that no backup brought: orphans found at start or left by an abort. One
    /// that is known already stays as it is; a run that is not recorded is dropped from the record.
    /// `Invalid`: known already as something else. `NotFound`: no such namespace.
    pub fn add_containers(&self, containers: &[ContainerRecord]) -> Result<()> {
        if containers.is_empty() {
            return Ok(());
        }
        self.write(|tx| containers.iter().try_for_each(|container| containers::adopt(tx, container)))
    }

    /// Keeps containers whose backups are in progress, apart from all others: they count for nothing, and a commit or
    /// [`add_containers`](Catalog::add_containers) takes them from there. One that is known already stays as it is.
    pub fn note_sealed_containers(&self, containers: &[ContainerRecord]) -> Result<()> {
        self.write(|tx| containers.iter().try_for_each(|container| containers::note_sealed(tx, container)))
    }

    /// Makes the containers of backups that never ended known as those of no run; says how many. For a start, when no
    /// backup is in progress.
    pub fn adopt_sealed_containers(&self) -> Result<u64> {
        self.write(containers::adopt_sealed)
    }

    /// Containers noted of backups in progress.
    pub fn sealed_containers(&self) -> Result<u64> {
        self.look_up(containers::sealed)
    }

    /// Takes note that every container file with a number below `below` has a record here. Never goes back.
    pub fn settle_containers(&self, below: u64) -> Result<()> {
        self.write(|tx| containers::settle(tx, below))
    }

    /// The number below which every container file has a record; 0 when that was never said.
    pub fn settled_containers(&self) -> Result<u64> {
        self.look_up(containers::settled)
    }

    /// The container `id`, if known.
    pub fn container(&self, id: ContainerId) -> Result<Option<ContainerRecord>> {
        self.look_up(|c| containers::by_id(c, id))
    }

    /// Up to `limit` containers after `after`, by number; see
    /// [`Catalog::all_containers`].
    pub fn containers(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<ContainerRecord>> {
        self.report(|c| containers::list(c, after, limit))
    }

    /// Bytes of what a run stored without making a restore point that are still in the containers it wrote, at most: what is
    /// copied into others, or taken to be of its restore points, does not count.
    pub fn left_of_run(&self, run: RunId) -> Result<u64> {
        self.report(|c| containers::left_of_run(c, run))
    }

    /// Condemns containers: they are about to be deleted, and nothing may rely on them from now on. One that is not
    /// known is skipped.
    pub fn condemn_containers(&self, ids: &[ContainerId]) -> Result<()> {
        self.write_on_full_disk(|tx| containers::condemn_all(tx, ids))
    }

    /// Adds `new` containers, as [`add_containers`](Catalog::add_containers), and condemns others whose chunks they
    /// hold, as [`condemn_containers`](Catalog::condemn_containers): all of it or nothing.
    pub fn replace_containers(&self, new: &[ContainerRecord], condemned: &[ContainerId]) -> Result<()> {
        self.write_on_full_disk(|tx| {
            new.iter().try_for_each(|container| containers::adopt(tx, container))?;
            containers::condemn_all(tx, condemned)
        })
    }

    /// Returns all containers that were condemned and not removed yet.
    pub fn condemned_containers(&self) -> Result<Vec<ContainerRecord>> {
        self.report(containers::condemned)
    }

    /// Forgets condemned containers, and their damage, once their files are gone. One that is not known is skipped.
    /// `Invalid`: one of them was not condemned; then none is forgotten.
    pub fn remove_condemned(&self, ids: &[ContainerId]) -> Result<()> {
        self.write_on_full_disk(|tx| ids.iter().try_for_each(|id| containers::remove_condemned(tx, *id)))?;
        self.keep_room_again();
        Ok(())
    }

    /// Takes note that containers were compressed anew at a level, or would not gain by it; of several the highest
    /// counts. One that is not known is skipped.
    pub fn note_squeezed(&self, ids: &[ContainerId], level: i32) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.write(|tx| ids.iter().try_for_each(|id| squeezed::note(tx, *id, level)))
    }

    /// Up to `limit` live containers of data after `after`, by number, that were made before `made_before_ms` and not
    /// noted at `level` or above.
    pub fn squeezable_containers(
        &self,
        level: i32,
        made_before_ms: i64,
        after: Option<ContainerId>,
        limit: u32,
    ) -> Result<Vec<ContainerRecord>> {
        self.report(|c| squeezed::squeezable(c, level, made_before_ms, after, limit))
    }

    /// Marks a container unusable. The first reason given is kept. `NotFound`: no such container.
    pub fn mark_container_damaged(&self, id: ContainerId, reason: &str) -> Result<()> {
        self.write(|tx| damage::mark(tx, self.clock.as_ref(), (id, None), reason))
    }

    /// Marks one region unusable; the container stays live. As [`Catalog::mark_container_damaged`].
    pub fn mark_region_damaged(&self, id: ContainerId, region: u16, reason: &str) -> Result<()> {
        self.write(|tx| damage::mark(tx, self.clock.as_ref(), (id, Some(region)), reason))
    }

    /// Records an agent's report that a region, which only agents can read, is not what it should be. `NotFound`: no
    /// such container.
    pub fn note_report(&self, id: ContainerId, region: u16) -> Result<()> {
        self.write(|tx| damage::note_report(tx, id, region))
    }

    /// Forgets what an agent said of a region. One that no agent spoke of is skipped.
    pub fn forget_report(&self, id: ContainerId, region: u16) -> Result<()> {
        self.write(|tx| damage::forget_report(tx, id, region))
    }

    /// Returns the regions that agents reported, by container and region.
    pub fn reported_regions(&self) -> Result<Vec<(ContainerId, u16)>> {
        self.look_up(damage::reported)
    }

    /// Returns all known damage, by container and region.
    pub fn damaged(&self) -> Result<Vec<DamageRecord>> {
        self.look_up(damage::damaged)
    }

    /// The damage of every container whose damage was found or cleared after the change numbered `change`; 0 asks
    /// for all there ever was. So a process that keeps damage in memory learns what others found, at the cost of
    /// what is new. A change is numbered by its place in the order of transactions, not by a clock.
    pub fn damage_changed_since(&self, change: u64) -> Result<DamageChanges> {
        self.look_up(|c| damage::damage_changed_since(c, change))
    }

    /// Takes note that every chunk of the damage known of a container has another sound copy; damage found later is
    /// not healed by it. `NotFound`: no such container.
    pub fn heal_damage(&self, id: ContainerId) -> Result<()> {
        self.write(|tx| damage::set_healed(tx, id, Some(self.clock.now_ms())))
    }

    /// Takes that back: something of it has no other copy after all. `NotFound`: no such container.
    pub fn reopen_damage(&self, id: ContainerId) -> Result<()> {
        self.write(|tx| damage::set_healed(tx, id, None))
    }

    /// Forgets what is named of the damage of a container: regions, or the container as a whole (`None`). What else is
    /// known of it stays, with the time it was found. `NotFound`: no such container.
    pub fn clear_damage(&self, id: ContainerId, sound: &[Option<u16>]) -> Result<()> {
        self.write(|tx| damage::clear(tx, id, sound))
    }
}
