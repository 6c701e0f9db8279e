//! The backup before this one: what its extents hash to, and references to those that did not change.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_proto::Fingerprint;
use holdfast_proto::limits::{DIGESTS_PER_BLOCK, extent_count, extent_len};
use holdfast_proto::reread::Reread;
use holdfast_proto::v1;
use holdfast_types::ids::{BackupId, ContainerClass};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::ExtentEntry;
use crate::in_use::{InUse, Recipe};
use crate::recipe::TreeReader;
use crate::store::{Domain, Holds, NodeReader, Reach};

/// A disk of the VM's latest backup.
#[derive(Debug)]
pub(super) struct ParentDisk {
    backup: BackupId,
    size_bytes: u64,
    #[cfg(test)]
    root: Fingerprint,
    tree: TreeReader<NodeReader>,
    /// Containers of everything it refers to, if known.
    reach: Option<Reach>,
    /// Last result of `is_spared`, and the generation of damage and number of changes to deleted containers as of which
    /// it was found.
    spared: Mutex<Option<((u64, u64), bool)>>,
    /// Set if its digests are claims of the VM's owner. Those of an earlier owner are offered to no one.
    trusted: bool,
    /// (V3) Set if chunks of it may be lost that no known damage explains.
    may_lack: bool,
    reread: Option<Reread>,
    sound: Mutex<SoundExtents>,
    placed: Mutex<Placed>,
    /// (G2) Its extents may be taken over unchanged until the session ends.
    _in_use: InUse,
}

/// Extents whose chunks were all found, as far as damage was known then. Filled only while damage is known;
/// a bit an extent: 1 MiB for a disk of 32 TiB.
#[derive(Debug, Default)]
struct SoundExtents {
    damage_generation: u64,
    extents: RoaringTreemap,
}

/// How the containers of an extent are known, from the most to the least certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Placing {
    /// Looked up in this session, chunk by chunk.
    Looked,
    /// Known by the parent's reach, which is as old as that.
    Remembered,
    Unknown,
}

/// Extents that were looked at chunk by chunk, and the containers in which everything of them was found.
#[derive(Debug)]
struct Placed {
    extents: RoaringTreemap,
    /// Holds on what was found. They are kept: the copy the parent was made with may be the one that is lost.
    holds: Holds,
    nodes: RecentDirectories,
}

impl Placed {
    fn new(holds: Holds) -> Self {
        Self { extents: RoaringTreemap::new(), holds, nodes: RecentDirectories::default() }
    }
}

impl ParentDisk {
    /// The disks of the VM's latest backup by name. A disk whose recipe cannot be read is left out: it is
    /// then backed up in full, which is slower and right.
    pub(super) fn of_vm(
        core: &Core,
        domain: &Domain,
        vm: &str,
        owner: &str,
    ) -> Result<HashMap<String, Self>, EngineError> {
        // (G2) Entered with the look at the catalog: from then on it stays, also when it is deleted.
        let step = core.in_use.take_up();
        let Some(backup) = core.catalog.latest_backup(domain.namespace, vm)? else {
            return Ok(HashMap::new());
        };
        let enter = |disk| step.enter(Recipe::of(&backup, disk));
        let in_use: Vec<InUse> = backup.disks.iter().map(enter).collect();
        drop(step);
        let trusted = backup.owner == owner;
        let may_lack = core.catalog.may_lack(backup.id)?;
        let reread = Reread::since(core.reread_days, backup.started_ms, core.clock.now_ms());
        let mut parents = HashMap::new();
        for (disk, in_use) in backup.disks.into_iter().zip(in_use) {
            let nodes = NodeReader::new(Arc::clone(&core.store), domain.clone());
            match TreeReader::open(nodes, disk.root, disk.size_bytes) {
                Ok(tree) => {
                    let reach = core.store.reach.of(domain.namespace, disk.root, &core.store.leftovers);
                    let parent = Self {
                        backup: backup.id,
                        size_bytes: disk.size_bytes,
                        #[cfg(test)]
                        root: disk.root,
                        tree,
                        reach,
                        spared: Mutex::default(),
                        trusted,
                        may_lack,
                        reread,
                        sound: Mutex::default(),
                        placed: Mutex::new(Placed::new(core.store.leftovers.holds())),
                        _in_use: in_use,
                    };
                    parents.insert(disk.name, parent);
                }
                Err(error) => {
                    let error = EngineError::from(error);
                    tracing::warn!(vm, disk = disk.name, %error, "the parent's recipe is unreadable; full backup");
                }
            }
        }
        Ok(parents)
    }

    pub(super) const fn backup(&self) -> BackupId {
        self.backup
    }

    pub(super) const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Extents whose digests are withheld, so that they are read again.
    pub(super) const fn reread(&self) -> Option<Reread> {
        self.reread
    }

    /// Its recipe's root, from which everything it refers to can be reached.
    #[cfg(test)]
    pub(super) const fn root(&self) -> Fingerprint {
        self.root
    }

    /// The digests from `first` on; `None` past the end. Extents that cannot be relied on, and those due to be read
    /// again, are [`Fingerprint::UNKNOWN`], so that the agent sends what they are made of again.
    ///
    /// # Errors
    /// When the catalog cannot be asked which digests are false.
    pub(super) fn digests(
        &self,
        catalog: &Catalog,
        first: u64,
    ) -> Result<Option<v1::DigestBlock>, EngineError> {
        let end = extent_count(self.size_bytes).min(first.saturating_add(DIGESTS_PER_BLOCK as u64));
        if first >= end || !self.trusted {
            return Ok(None);
        }
        let mut recent = RecentDirectories::default();
        let offered: Vec<Option<ExtentEntry>> =
            (first..end).map(|index| self.offered(index, &mut recent)).collect();
        let mut are_false = self.are_false(catalog, offered.iter().flatten())?.into_iter();
        let digest = |entry: &Option<ExtentEntry>| match entry {
            Some(entry) if are_false.next() == Some(false) => entry.digest,
            _ => Fingerprint::UNKNOWN,
        };
        let digests: Vec<Fingerprint> = offered.iter().map(digest).collect();
        let digests: Vec<u8> = digests.iter().flat_map(|digest| *digest.as_bytes()).collect();
        Ok(Some(v1::DigestBlock { first_extent: first, digests: digests.into() }))
    }

    /// (R6) Returns for each entry whether its digest was found false.
    fn are_false<'a>(
        &self,
        catalog: &Catalog,
        entries: impl Iterator<Item = &'a ExtentEntry>,
    ) -> Result<Vec<bool>, EngineError> {
        let claims: Vec<_> = entries.map(|entry| (entry.node, entry.digest)).collect();
        Ok(catalog.are_false(self.tree.source().domain().namespace, &claims)?)
    }

    /// (R6) Asks once more which digests are false, of extents that are about to be taken over: they may have been found so
    /// since they were offered.
    ///
    /// # Errors
    /// [`EngineError::FoundDamaged`] when one is; the next backup is not given it.
    pub(super) fn check_digests(
        &self,
        catalog: &Catalog,
        entries: &[(u64, ExtentEntry)],
    ) -> Result<(), EngineError> {
        let are_false = self.are_false(catalog, entries.iter().map(|(_, entry)| entry))?;
        let Some(((index, _), _)) = entries.iter().zip(are_false).find(|(_, is_false)| *is_false) else {
            return Ok(());
        };
        let backup = self.backup;
        Err(EngineError::FoundDamaged(format!(
            "extent {index} cannot be taken over unchanged: what backup {backup} says it hashes to was found false while this backup ran; start the backup again, and it is sent again"
        )))
    }

    /// The extent's entry, when the agent may be told its digest.
    fn offered(&self, index: u64, recent: &mut RecentDirectories) -> Option<ExtentEntry> {
        if self.reread.is_some_and(|reread| reread.is_due(index)) {
            return None;
        }
        let entry = self.tree.entry(index).ok()?;
        // (R5) Offered only when all its chunks are found.
        self.is_sound(index, &entry, recent, true).then_some(entry)
    }

    /// Returns true if every chunk of the extent can be found outside of an archive. Looking up every chunk is slow,
    /// and needed only while damage that may concern the disk is open, or part of it may be cold; once for each extent
    /// until more is.
    fn is_sound(
        &self,
        index: u64,
        entry: &ExtentEntry,
        recent: &mut RecentDirectories,
        is_offered: bool,
    ) -> bool {
        let (store, namespace) = (self.tree.source().store(), self.tree.source().domain().namespace);
        // (T10) Chunks that are in an archive, or may be before the commit, are looked up one by one, and held.
        let reach = self.reach.as_ref().map(|reach| &*reach.containers);
        let may_be_cold = store.leftovers.may_be_cold(reach);
        // (N6) Where agents reported something, it is withheld, so that it is sent again.
        let is_doubted = is_offered && store.reported_within(namespace, reach);
        let must_look = may_be_cold || is_doubted || self.may_lack;
        if !must_look && !store.has_open_damage(namespace) {
            return true;
        }
        let generation = store.damage_generation(namespace);
        if !must_look && self.is_spared(generation) {
            return true;
        }
        if self.sound_at(generation).extents.contains(index) {
            return true;
        }
        let sound = self.chunks_are_found(index, entry, recent);
        if sound {
            self.sound_at(generation).extents.insert(index);
        }
        sound
    }

    /// Returns true if its reach is known, and no damage was found in those containers since.
    fn is_spared(&self, generation: u64) -> bool {
        let Some(reach) = &self.reach else { return false };
        let (store, namespace) = (self.tree.source().store(), self.tree.source().domain().namespace);
        let as_of = (generation, store.leftovers.changes());
        let mut spared = self.spared.lock();
        if let Some((seen, spared)) = *spared
            && seen == as_of
        {
            return spared;
        }
        let damaged = store.damaged_since(namespace, reach.sound_as_of);
        let is_spared = reach.is_spared(&damaged, &store.leftovers);
        *spared = Some((as_of, is_spared));
        is_spared
    }

    /// Placing of an extent that was found sound.
    pub(super) fn placing(&self, index: u64) -> Placing {
        if self.placed.lock().extents.contains(index) {
            return Placing::Looked;
        }
        if self.reach.is_some() { Placing::Remembered } else { Placing::Unknown }
    }

    /// Containers in which extents lie of which that is known in this way; and, where that is not from this session, as of
    /// when they were sound.
    pub(super) fn placed(&self, placing: Placing) -> Option<(RoaringTreemap, Option<u64>)> {
        let mut containers = self.placed.lock().holds.containers().clone();
        let as_of = match placing {
            Placing::Looked => None,
            Placing::Remembered => {
                let reach = self.reach.as_ref()?;
                containers |= &*reach.containers;
                Some(reach.sound_as_of)
            }
            Placing::Unknown => return None,
        };
        Some((containers, as_of))
    }

    /// Memory of what was found of it, about.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.placed.lock().holds.memory_bytes()
    }

    /// Extents found sound as of that generation; emptied when more damage became known since.
    fn sound_at(&self, generation: u64) -> parking_lot::MutexGuard<'_, SoundExtents> {
        let mut sound = self.sound.lock();
        if sound.damage_generation != generation {
            *sound = SoundExtents { damage_generation: generation, extents: RoaringTreemap::new() };
        }
        sound
    }

    fn chunks_are_found(&self, index: u64, entry: &ExtentEntry, recent: &mut RecentDirectories) -> bool {
        let node = match self.tree.extent_of(index, entry) {
            Ok(Some(node)) => node,
            Ok(None) => return true,
            Err(_) => return false,
        };
        let nodes = self.tree.source();
        let (store, domain) = (nodes.store(), nodes.domain());
        let mut placed = self.placed.lock();
        let Placed { extents, holds, nodes } = &mut *placed;
        let found = store.find_and_hold(domain, ContainerClass::Recipe, &entry.node, nodes, holds);
        let sound = matches!(found, Ok(Some(_)))
            && node.pieces().iter().filter(|piece| !piece.is_zero()).all(|piece| {
                let (class, name) = (ContainerClass::Data, &piece.fingerprint);
                let found = store.find_and_hold(domain, class, name, recent, holds);
                matches!(found, Ok(Some(found)) if found.chunk.bytes == piece.bytes)
            });
        if sound {
            extents.insert(index);
        }
        sound
    }

    /// The first extent from `index` on that may hold data; those before it are zero.
    pub(super) fn zero_until(&self, index: u64) -> u64 {
        self.tree.zero_until(index)
    }

    /// The entry of an extent that the agent says did not change, for a disk of `size_bytes`.
    ///
    /// # Errors
    /// [`EngineError::FoundDamaged`] when chunks of it are lost. That happens only when they were found damaged
    /// after the agent was given the digest; the next backup is not given it, and sends them again.
    pub(super) fn unchanged(
        &self,
        index: u64,
        size_bytes: u64,
        recent: &mut RecentDirectories,
    ) -> Result<ExtentEntry, EngineError> {
        if !self.trusted {
            let backup = self.backup;
            return Err(EngineError::Invalid(format!(
                "extent {index} cannot be taken over unchanged: backup {backup} is of an earlier owner of the VM, whose digests are not relied on"
            )));
        }
        let (was, is) = (extent_len(self.size_bytes, index), extent_len(size_bytes, index));
        if was != is || is == 0 {
            return Err(EngineError::Invalid(format!(
                "extent {index} cannot be unchanged: it is {is} bytes long and was {was}"
            )));
        }
        let entry = self.tree.entry(index)?;
        // (R5) Holds when the extent is accepted, too.
        if !self.is_sound(index, &entry, recent, false) {
            let backup = self.backup;
            return Err(EngineError::FoundDamaged(format!(
                "extent {index} cannot be taken over unchanged: what backup {backup} has of it was found damaged while this backup ran; start the backup again, and it is sent again"
            )));
        }
        Ok(entry)
    }
}
