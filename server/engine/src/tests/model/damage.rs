//! Damage that disks do to stored data.

use holdfast_types::ids::ContainerId;
use holdfast_volume::Volume as _;
use holdfast_volume::testing::Damage;

use super::truth::{Hurt, Name};
use super::world::World;
use crate::container::{ContainerName, OpenContainer, list_containers};

/// Containers that are spoilt at the same time at most: of more the engine believes that they are absent, not lost.
const HURT_MAX: usize = 5;

/// Damage to a container.
#[derive(Debug, Clone, Copy)]
enum Spoilt {
    Dropped,
    Anywhere,
    Region(u16),
}

impl World {
    /// A container rots somewhere, or gets lost.
    pub(super) fn spoil(&mut self) {
        let files = list_containers(&self.memory).unwrap().containers;
        let hurt = &self.census.hurt;
        let sound: Vec<_> = files.iter().filter(|(name, _)| !hurt.contains_key(&name.id)).collect();
        if sound.is_empty() || hurt.len() >= HURT_MAX {
            return;
        }
        let (name, _) = **self.random.pick(&sound);
        let Ok(open) = OpenContainer::open(&self.memory, self.repository, name.id, name.class) else {
            return;
        };
        let region = u16::try_from(self.random.below(open.directory().region_count())).unwrap();
        let how = match self.random.below(4) {
            0 => Spoilt::Dropped,
            1 => Spoilt::Anywhere,
            _ => Spoilt::Region(region),
        };
        self.rot(&open, how);
    }

    /// Damages the copies that healed damage, and reads them.
    pub(super) fn spoil_what_healed(&mut self) {
        let engine = self.engine();
        let store = &engine.parts().0.store;
        let healed = store.healed_damage();
        let lost: Vec<Name> = healed.into_iter().flat_map(|id| self.census.spoilt_in(id)).collect();
        let copies = self.census.sound_places(&lost);
        if copies.is_empty() || self.census.hurt.len() >= HURT_MAX {
            return;
        }
        let (id, class, region) = *self.random.pick(&copies);
        let Ok(open) = OpenContainer::open(&self.memory, self.repository, id, class) else { return };
        self.told("what healed damage is spoilt");
        self.rot(&open, Spoilt::Region(region));
        if !self.has_crashed() {
            store.note_damage(id, Some(region), "model");
        }
    }

    fn rot(&mut self, open: &OpenContainer, how: Spoilt) {
        let (id, class) = (open.id(), open.class());
        let blob = ContainerName { id, class }.blob();
        let bytes = self.memory.get(&blob).expect("listed");
        self.census.learn(open);
        let bit = 1 << self.random.below(8);
        let (mut spoilt, mut hurt) = (bytes.to_vec(), Hurt { class, bytes, regions: None, dropped: false });
        match how {
            Spoilt::Dropped => hurt.dropped = true,
            Spoilt::Anywhere => {
                let at = self.random.below(spoilt.len());
                spoilt[at] ^= bit;
            }
            Spoilt::Region(region) => {
                // Within the payload, so that every other region is sound.
                let record = *open.directory().region(region).expect("in range");
                let end = record.offset as usize + region_header_bytes() + record.stored_bytes as usize;
                let at = end - 1 - self.random.below(record.stored_bytes as usize);
                spoilt[at] ^= bit;
                hurt.regions = Some([region].into());
            }
        }
        self.told(format!("{blob} rots: regions {:?}, dropped {}", hurt.regions, hurt.dropped));
        if hurt.dropped {
            self.memory.remove(&blob).unwrap();
        } else {
            self.memory.replace(&blob, spoilt.clone());
            // Damage to open files shows, too.
            let _ = self.volume.damage(&blob, &Damage::Replace { bytes: spoilt });
        }
        self.census.hurt.insert(id, hurt);
        self.sound = self.census.sound(&self.memory, self.repository).unwrap();
        self.census.excuse();
    }

    /// Restores the bytes of a damaged container.
    pub(super) fn bring_back(&mut self) {
        let ids: Vec<ContainerId> = self.census.hurt.keys().copied().collect();
        if ids.is_empty() {
            return;
        }
        let id = *self.random.pick(&ids);
        let known = self.engine().catalog().container(id).unwrap();
        let is_known = known.is_some_and(|row| row.state != holdfast_catalog::ContainerState::Condemned);
        let hurt = self.census.hurt.remove(&id).expect("just seen");
        let blob = ContainerName { id, class: hurt.class }.blob();
        if !is_known {
            // Deleted: nothing needs it. Or an older catalog has no row of it: then it stays what it is.
            if self.memory.get(&blob).is_some() {
                self.census.hurt.insert(id, hurt);
            }
            return;
        }
        self.told(format!("{blob} is as it was"));
        self.memory.replace(&blob, hurt.bytes.clone());
        let _ = self.volume.damage(&blob, &Damage::Replace { bytes: hurt.bytes.to_vec() });
    }
}

/// Length of the header before a region's payload.
const fn region_header_bytes() -> usize {
    crate::format::container::REGION_HEADER_BYTES
}
