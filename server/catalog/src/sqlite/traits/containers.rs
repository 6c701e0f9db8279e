//! [`Containers`] on SQLite.

use std::ops::Range;

use holdfast_types::ids::ContainerId;

use super::super::{SqliteCatalog, containers, damage, squeezed};
use crate::{ContainerRecord, Containers, DamageChanges, DamageRecord, Result};

impl Containers for SqliteCatalog {
    fn reserve_container_numbers(&self, count: u32) -> Result<Range<u64>> {
        self.write(|tx| containers::reserve(tx, count))
    }

    fn add_containers(&self, containers: &[ContainerRecord]) -> Result<()> {
        if containers.is_empty() {
            return Ok(());
        }
        self.write(|tx| containers.iter().try_for_each(|container| containers::adopt(tx, container)))
    }

    fn note_sealed_containers(&self, containers: &[ContainerRecord]) -> Result<()> {
        self.write(|tx| containers.iter().try_for_each(|container| containers::note_sealed(tx, container)))
    }

    fn adopt_sealed_containers(&self) -> Result<u64> {
        self.write(containers::adopt_sealed)
    }

    fn sealed_containers(&self) -> Result<u64> {
        self.look_up(containers::sealed)
    }

    fn settle_containers(&self, below: u64) -> Result<()> {
        self.write(|tx| containers::settle(tx, below))
    }

    fn settled_containers(&self) -> Result<u64> {
        self.look_up(containers::settled)
    }

    fn container(&self, id: ContainerId) -> Result<Option<ContainerRecord>> {
        self.look_up(|c| containers::by_id(c, id))
    }

    fn containers(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<ContainerRecord>> {
        self.report(|c| containers::list(c, after, limit))
    }

    fn condemn_containers(&self, ids: &[ContainerId]) -> Result<()> {
        self.write_on_full_disk(|tx| containers::condemn_all(tx, ids))
    }

    fn replace_containers(&self, new: &[ContainerRecord], condemned: &[ContainerId]) -> Result<()> {
        self.write_on_full_disk(|tx| {
            new.iter().try_for_each(|container| containers::adopt(tx, container))?;
            containers::condemn_all(tx, condemned)
        })
    }

    fn condemned_containers(&self) -> Result<Vec<ContainerRecord>> {
        self.report(containers::condemned)
    }

    fn remove_condemned(&self, ids: &[ContainerId]) -> Result<()> {
        self.write_on_full_disk(|tx| ids.iter().try_for_each(|id| containers::remove_condemned(tx, *id)))?;
        self.keep_room_again();
        Ok(())
    }

    fn note_squeezed(&self, ids: &[ContainerId], level: i32) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.write(|tx| ids.iter().try_for_each(|id| squeezed::note(tx, *id, level)))
    }

    fn squeezable_containers(
        &self,
        level: i32,
        made_before_ms: i64,
        after: Option<ContainerId>,
        limit: u32,
    ) -> Result<Vec<ContainerRecord>> {
        self.report(|c| squeezed::squeezable(c, level, made_before_ms, after, limit))
    }

    fn mark_container_damaged(&self, id: ContainerId, reason: &str) -> Result<()> {
        self.write(|tx| damage::mark(tx, self.clock.as_ref(), (id, None), reason))
    }

    fn mark_region_damaged(&self, id: ContainerId, region: u16, reason: &str) -> Result<()> {
        self.write(|tx| damage::mark(tx, self.clock.as_ref(), (id, Some(region)), reason))
    }

    fn note_report(&self, id: ContainerId, region: u16) -> Result<()> {
        self.write(|tx| damage::note_report(tx, id, region))
    }

    fn forget_report(&self, id: ContainerId, region: u16) -> Result<()> {
        self.write(|tx| damage::forget_report(tx, id, region))
    }

    fn reported_regions(&self) -> Result<Vec<(ContainerId, u16)>> {
        self.look_up(damage::reported)
    }

    fn damaged(&self) -> Result<Vec<DamageRecord>> {
        self.look_up(damage::damaged)
    }

    fn damage_changed_since(&self, change: u64) -> Result<DamageChanges> {
        self.look_up(|c| damage::damage_changed_since(c, change))
    }

    fn heal_damage(&self, id: ContainerId) -> Result<()> {
        self.write(|tx| damage::set_healed(tx, id, Some(self.clock.now_ms())))
    }

    fn reopen_damage(&self, id: ContainerId) -> Result<()> {
        self.write(|tx| damage::set_healed(tx, id, None))
    }

    fn clear_damage(&self, id: ContainerId, sound: &[Option<u16>]) -> Result<()> {
        self.write(|tx| damage::clear(tx, id, sound))
    }
}
