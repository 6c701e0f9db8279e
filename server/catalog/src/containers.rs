//! Containers: their numbers, what they hold, and what is known to be damaged.

use std::fmt;
use std::ops::Range;

use holdfast_types::ids::ContainerId;

use crate::Result;
use crate::rows::{ContainerRecord, DamageChanges, DamageRecord};

/// Asked by everything that writes, reads or checks containers.
///
/// Across processes: a number is handed out to one process only, because reserving is one transaction. Adding
/// containers and marking or clearing damage are one transaction each; the damage one process marks is seen by
/// the next call of any other, of [`damage_changed_since`](Containers::damage_changed_since) too.
pub trait Containers: Send + Sync + fmt::Debug {
    /// Hands out `count` container numbers, durably: never again, whatever happens. `Invalid`: there are
    /// not so many left.
    fn reserve_container_numbers(&self, count: u32) -> Result<Range<u64>>;
    /// Makes containers known that no backup brought: orphans found at start or left by an abort. One
    /// that is known already stays as it is; a run that is not recorded is dropped from the record.
    /// `Invalid`: known already as something else. `NotFound`: no such namespace.
    fn add_containers(&self, containers: &[ContainerRecord]) -> Result<()>;
    /// Keeps containers whose backups are in progress, apart from all others: they count for nothing, and a commit or
    /// [`add_containers`](Containers::add_containers) takes them from there. One that is known already stays as it is.
    fn note_sealed_containers(&self, containers: &[ContainerRecord]) -> Result<()>;
    /// Makes the containers of backups that never ended known as those of no run; says how many. For a start, when no
    /// backup is in progress.
    fn adopt_sealed_containers(&self) -> Result<u64>;
    /// Containers noted of backups in progress.
    fn sealed_containers(&self) -> Result<u64>;
    /// Takes note that every container file with a number below `below` has a record here. Never goes back.
    fn settle_containers(&self, below: u64) -> Result<()>;
    /// The number below which every container file has a record; 0 when that was never said.
    fn settled_containers(&self) -> Result<u64>;
    /// The container `id`, if known.
    fn container(&self, id: ContainerId) -> Result<Option<ContainerRecord>>;
    /// Up to `limit` containers after `after`, by number; see
    /// [`CatalogWalk::all_containers`](crate::CatalogWalk::all_containers).
    fn containers(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<ContainerRecord>>;

    /// Condemns containers: they are about to be deleted, and nothing may rely on them from now on. One that is not
    /// known is skipped.
    fn condemn_containers(&self, ids: &[ContainerId]) -> Result<()>;
    /// Adds `new` containers, as [`add_containers`](Containers::add_containers), and condemns others whose chunks they
    /// hold, as [`condemn_containers`](Containers::condemn_containers): all of it or nothing.
    fn replace_containers(&self, new: &[ContainerRecord], condemned: &[ContainerId]) -> Result<()>;
    /// All containers that were condemned and not removed yet.
    fn condemned_containers(&self) -> Result<Vec<ContainerRecord>>;
    /// Forgets condemned containers, and their damage, once their files are gone. One that is not known is skipped.
    /// `Invalid`: one of them was not condemned; then none is forgotten.
    fn remove_condemned(&self, ids: &[ContainerId]) -> Result<()>;

    /// Takes note that containers were compressed anew at a level, or would not gain by it; of several the highest
    /// counts. One that is not known is skipped.
    fn note_squeezed(&self, ids: &[ContainerId], level: i32) -> Result<()>;
    /// Up to `limit` live containers of data after `after`, by number, that were made before `made_before_ms` and not
    /// noted at `level` or above.
    fn squeezable_containers(
        &self,
        level: i32,
        made_before_ms: i64,
        after: Option<ContainerId>,
        limit: u32,
    ) -> Result<Vec<ContainerRecord>>;

    /// Marks a container unusable. The first reason given is kept. `NotFound`: no such container.
    fn mark_container_damaged(&self, id: ContainerId, reason: &str) -> Result<()>;
    /// Marks one region unusable; the container stays live. As [`Containers::mark_container_damaged`].
    fn mark_region_damaged(&self, id: ContainerId, region: u16, reason: &str) -> Result<()>;
    /// Takes note that an agent says of a region, which no one else can read, that it is not what it should be.
    /// `NotFound`: no such container.
    fn note_report(&self, id: ContainerId, region: u16) -> Result<()>;
    /// Forgets what an agent said of a region. One that no agent spoke of is skipped.
    fn forget_report(&self, id: ContainerId, region: u16) -> Result<()>;
    /// What agents said, by container and region.
    fn reported_regions(&self) -> Result<Vec<(ContainerId, u16)>>;
    /// All damage known, by container and region.
    fn damaged(&self) -> Result<Vec<DamageRecord>>;
    /// The damage of every container whose damage was found or cleared after the change numbered `change`; 0 asks
    /// for all there ever was. So a process that keeps damage in memory learns what others found, at the cost of
    /// what is new. A change is numbered by its place in the order of transactions, not by a clock.
    fn damage_changed_since(&self, change: u64) -> Result<DamageChanges>;
    /// Takes note that every chunk of the damage known of a container has another sound copy; damage found later is
    /// not healed by it. `NotFound`: no such container.
    fn heal_damage(&self, id: ContainerId) -> Result<()>;
    /// Takes that back: something of it has no other copy after all. `NotFound`: no such container.
    fn reopen_damage(&self, id: ContainerId) -> Result<()>;
    /// Forgets what is named of the damage of a container: regions, or the container as a whole (`None`). What else is
    /// known of it stays, with the time it was found. `NotFound`: no such container.
    fn clear_damage(&self, id: ContainerId, sound: &[Option<u16>]) -> Result<()>;
}
