//! The plain model that the engine is compared with. It knows what was acknowledged, what is on the volume as plain
//! bytes, and what the test itself spoilt, and nothing of marks, holds or indexes.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, RepositoryId};
use holdfast_volume::MemoryVolume;

use super::disks::{Disk, number};
use crate::container::{ContainerName, OpenContainer, list_containers};

/// Name of a stored chunk or recipe node.
pub(super) type Name = (ContainerClass, Fingerprint);

/// A restore point that was acknowledged.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) id: BackupId,
    pub(super) vm: usize,
    pub(super) disk: Disk,
    /// Chunks and nodes that restoring it takes; `None`: its recipe could not be read when it was made, because of
    /// damage.
    pub(super) needs: Option<BTreeSet<Name>>,
    pub(super) lock: Lock,
    /// `None`: it was being held, or released, when power failed.
    pub(super) held: Option<bool>,
    /// Set if it was ever held or locked: an old snapshot may say that it still is.
    pub(super) was_kept: bool,
    /// A deletion was begun and not acknowledged.
    pub(super) doubtful: bool,
}

/// Maximum time in which the lock clock is not advanced while nothing is locked: six hours, and the time that passes in
/// one step.
const LOCK_CLOCK_LAG_MS: i64 = 6 * 3_600_000 + 40_000_000;

/// Acknowledged end of a lock, and the time of that on both clocks.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lock {
    pub(super) until_ms: Option<i64>,
    /// A lock was asked for when something failed: it may be there.
    pub(super) asked: bool,
    pub(super) at_ms: i64,
    pub(super) at_monotonic_ms: i64,
}

impl Lock {
    /// (L4) Returns true if the lock clock cannot have passed it: it runs at twice the speed of time at most. While
    /// nothing is locked it is advanced seldom, and makes up for that time, too.
    pub(super) fn is_sure(&self, monotonic_ms: i64) -> bool {
        let passed_ms = 2 * (monotonic_ms - self.at_monotonic_ms) + LOCK_CLOCK_LAG_MS;
        self.until_ms.is_some_and(|until_ms| self.at_ms + passed_ms < until_ms)
    }
}

impl Point {
    /// Returns true if no one may delete it.
    pub(super) fn must_stay(&self, monotonic_ms: i64) -> bool {
        self.held == Some(true) || self.lock.is_sure(monotonic_ms)
    }

    /// Returns true if its deletion may be refused.
    pub(super) const fn may_stay(&self) -> bool {
        !matches!(self.held, Some(false)) || self.lock.until_ms.is_some() || self.lock.asked
    }
}

/// Damage that the test did to a container.
#[derive(Debug, Clone)]
pub(super) struct Hurt {
    pub(super) class: ContainerClass,
    /// Its bytes before.
    pub(super) bytes: Bytes,
    /// The regions of it that do not count; `None`: nothing of it does.
    pub(super) regions: Option<BTreeSet<u16>>,
    /// Its file is not there.
    pub(super) dropped: bool,
}

/// Contents of the volume, and the parts that the test spoilt.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// Chunks and nodes of each container that was ever seen, with their regions.
    contents: HashMap<ContainerId, Vec<(u16, Name)>>,
    pub(super) hurt: BTreeMap<ContainerId, Hurt>,
    /// Chunks and nodes that the test destroyed the last copy of.
    pub(super) excused: BTreeSet<Name>,
    /// Contents of containers that the test took away and whose numbers may be in use again.
    lost_before: BTreeSet<Name>,
}

impl Census {
    /// Chunks and nodes that have a sound copy. A container that the engine wrote and that cannot be opened is an error
    /// of the engine.
    pub(super) fn sound(
        &mut self,
        volume: &MemoryVolume,
        repository: RepositoryId,
    ) -> Result<BTreeSet<Name>, String> {
        let files = list_containers(volume).unwrap();
        if !files.strays.is_empty() {
            return Err(format!("unexpected files: {:?}", files.strays));
        }
        let mut sound = BTreeSet::new();
        for (ContainerName { id, class }, _) in &files.containers {
            if !self.contents.contains_key(id) {
                let open = OpenContainer::open(volume, repository, *id, *class).map_err(|error| {
                    format!("a container that was just written cannot be opened: {error}")
                })?;
                self.learn(&open);
            }
            let hurt = self.hurt.get(id);
            let counts = |region: &u16| match hurt.map(|hurt| &hurt.regions) {
                None => true,
                Some(None) => false,
                Some(Some(regions)) => !regions.contains(region),
            };
            sound
                .extend(self.contents[id].iter().filter(|(region, _)| counts(region)).map(|(_, name)| *name));
        }
        Ok(sound)
    }

    /// Takes note of what is in a container, which of one that is about to rot cannot be asked later: a thread may have sealed
    /// it since the last look.
    pub(super) fn learn(&mut self, open: &OpenContainer) {
        let names = open.directory().iter().map(|(name, region, _)| (region, (open.class(), name)));
        self.contents.insert(open.id(), names.collect());
    }

    /// Spoilt chunks and nodes of a container, where these are known by region.
    pub(super) fn spoilt_in(&self, id: ContainerId) -> BTreeSet<Name> {
        let is_known = self.hurt.get(&id).is_some_and(|hurt| hurt.regions.is_some());
        if is_known { self.spoilt(|other| other == id) } else { BTreeSet::new() }
    }

    /// Regions of containers that were not spoilt in which one of these lies.
    pub(super) fn sound_places(&self, names: &[Name]) -> Vec<(ContainerId, ContainerClass, u16)> {
        let sound = self.contents.iter().filter(|(id, _)| !self.hurt.contains_key(id));
        let mut places: Vec<_> = sound
            .flat_map(|(id, contents)| {
                let of = contents.iter().filter(|(_, name)| names.contains(name));
                of.map(|(region, (class, _))| (*id, *class, *region))
            })
            .collect();
        places.sort_unstable_by_key(|(id, _, region)| (*id, *region));
        places.dedup();
        places
    }

    /// Returns true if every copy is in a place that is spoilt, and `is_known` to be: a region, or (`None`) all of a
    /// container. False where it is not certain which regions are spoilt.
    pub(super) fn is_known_lost(
        &self,
        name: &Name,
        is_known: impl Fn(ContainerId, Option<u16>) -> bool,
    ) -> bool {
        let mut places = self.hurt.iter().flat_map(|(id, hurt)| {
            let contents = self.contents.get(id).into_iter().flatten();
            contents.filter(|(_, other)| other == name).map(|(region, _)| match &hurt.regions {
                None if hurt.dropped => is_known(*id, None),
                None => false,
                Some(regions) => regions.contains(region) && is_known(*id, Some(*region)),
            })
        });
        places.next().is_some_and(|known| known && places.all(|known| known))
    }

    /// Describes the damage done by the test, for finding out why something failed.
    pub(super) fn tell_hurt(&self) -> String {
        let hurt = self.hurt.iter().map(|(id, hurt)| {
            let (regions, dropped) = (&hurt.regions, hurt.dropped);
            format!("{id}: regions {regions:?}, dropped {dropped}, contents {:?}", self.contents.get(id))
        });
        hurt.collect::<Vec<_>>().join("; ")
    }

    /// Spoilt chunks and nodes of the containers that are `wanted`.
    fn spoilt(&self, wanted: impl Fn(ContainerId) -> bool) -> BTreeSet<Name> {
        let mut spoilt = BTreeSet::new();
        for (id, hurt) in self.hurt.iter().filter(|(id, _)| wanted(**id)) {
            let contents = self.contents.get(id).into_iter().flatten();
            let counts =
                |region: &u16| hurt.regions.as_ref().is_some_and(|regions| !regions.contains(region));
            spoilt.extend(contents.filter(|(region, _)| !counts(region)).map(|(_, name)| *name));
        }
        spoilt
    }

    /// Takes note of what the test has just spoilt. As long as no one has met it, the engine may give up other copies.
    pub(super) fn excuse(&mut self) {
        let spoilt = self.spoilt(|_| true);
        self.excused.extend(spoilt);
    }

    /// The catalog was lost. Numbers of containers that are gone may be handed out again by the next one, if nothing on the
    /// volume tells of them, so what is known of these containers says nothing of those.
    pub(super) fn recovered(&mut self, volume: &MemoryVolume, is_known: &dyn Fn(ContainerId) -> bool) {
        let is_unknown = |id: &ContainerId, hurt: &mut Hurt| hurt.dropped && !is_known(*id);
        let lost: BTreeSet<ContainerId> = self.hurt.extract_if(.., is_unknown).map(|(id, _)| id).collect();
        let contents = lost.iter().flat_map(|id| self.contents.get(id).into_iter().flatten());
        self.lost_before.extend(contents.map(|(_, name)| *name));
        let hurt = &self.hurt;
        let is_there = |id, class| volume.get(&ContainerName { id, class }.blob()).is_some();
        self.contents.retain(|id, _| {
            hurt.contains_key(id)
                || is_there(*id, ContainerClass::Data)
                || is_there(*id, ContainerClass::Recipe)
        });
    }

    /// Removes the excuse for everything that has a sound copy, and none that is spoilt.
    pub(super) fn settle(&mut self, sound: &BTreeSet<Name>) {
        let spoilt = self.spoilt(|_| true);
        self.excused.retain(|name| !sound.contains(name) || spoilt.contains(name));
    }

    /// Chunks and nodes that a container had the last spoilt copy of.
    pub(super) fn last_in(&self, id: ContainerId) -> BTreeSet<Name> {
        let mut others = self.spoilt(|other| other != id);
        others.extend(&self.lost_before);
        let contents = self.contents.get(&id).into_iter().flatten();
        contents.map(|(_, name)| *name).filter(|name| !others.contains(name)).collect()
    }
}

/// Chunks and nodes that a restore point lacks.
#[derive(Debug, Default)]
pub(super) struct Lacks {
    pub(super) names: BTreeSet<Name>,
}

impl Lacks {
    pub(super) fn of(needs: &BTreeSet<Name>, sound: &BTreeSet<Name>) -> Self {
        Self { names: needs.difference(sound).copied().collect() }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns true if a node of the recipe is lost, which takes everything below it.
    pub(super) fn has_node(&self) -> bool {
        self.names.iter().any(|(class, _)| *class == ContainerClass::Recipe)
    }

    pub(super) fn chunks(&self) -> BTreeSet<usize> {
        let data = self.names.iter().filter(|(class, _)| *class == ContainerClass::Data);
        data.map(|(_, name)| number(name)).collect()
    }
}
