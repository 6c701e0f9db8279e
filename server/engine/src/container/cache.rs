//! Open containers, kept as long as there is room (least recently used out first), and those that one stream met last.
//!
//! Lock order: a loading slot, then the table; never the other way round.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, RepositoryId};
use holdfast_volume::Volume;
use parking_lot::Mutex;

use super::{ContainerError, OpenContainer, SharedRegions};

/// Limits of a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// Memory of the directories.
    pub memory_bytes: usize,
    /// Containers, each of which holds a file open.
    pub containers: usize,
}

impl Default for CacheLimits {
    /// 96 MiB: some 450 full containers of 16 KiB chunks. 384 files: a process may have 1,024 open by default.
    fn default() -> Self {
        Self { memory_bytes: 96 << 20, containers: 384 }
    }
}

/// Open containers, kept as long as there is room.
#[derive(Debug)]
pub struct ContainerCache {
    volume: Arc<dyn Volume>,
    repository: RepositoryId,
    limits: CacheLimits,
    table: Mutex<Table>,
    /// Regions of these containers.
    shared: SharedRegions,
}

/// Locked by the thread that loads a container; others wait for the lock instead of loading it as well.
type Slot = Arc<Mutex<Option<Arc<OpenContainer>>>>;

#[derive(Debug, Default)]
struct Table {
    entries: HashMap<ContainerId, Entry>,
    clock: u64,
    memory_bytes: usize,
}

#[derive(Debug)]
struct Entry {
    slot: Slot,
    /// Set when `slot` is, so that hits take one lock.
    loaded: Option<Arc<OpenContainer>>,
    used: u64,
}

impl ContainerCache {
    /// An empty cache.
    pub fn new(volume: Arc<dyn Volume>, repository: RepositoryId, limits: CacheLimits) -> Self {
        let shared = SharedRegions::new(0);
        Self { volume, repository, limits, table: Mutex::default(), shared }
    }

    /// Keeps at most so many bytes of regions that were read, for others who want the same.
    #[must_use]
    pub fn sharing(self, bytes: usize) -> Self {
        Self { shared: SharedRegions::new(bytes), ..self }
    }

    /// Regions that are read for restores.
    pub const fn shared(&self) -> &SharedRegions {
        &self.shared
    }

    /// Volume that the containers are on.
    pub fn volume(&self) -> &dyn Volume {
        &*self.volume
    }

    /// Repository that the containers belong to.
    pub const fn repository(&self) -> RepositoryId {
        self.repository
    }

    /// The open container; opened when it is not here. Threads that ask for the same one open it once.
    ///
    /// # Errors
    /// As [`OpenContainer::open`]; the next call tries again.
    pub fn get(&self, id: ContainerId, class: ContainerClass) -> Result<Arc<OpenContainer>, ContainerError> {
        let slot = match self.table.lock().touch(id) {
            (Some(open), _) if open.class() == class => return Ok(open),
            // A number is used once, so this fails, and says how.
            (Some(_), _) => return self.load(id, class),
            (None, slot) => slot,
        };
        let mut loading = slot.lock();
        if let Some(open) = &*loading
            && open.class() == class
        {
            return Ok(Arc::clone(open));
        }
        match self.load(id, class) {
            Ok(open) => {
                *loading = Some(Arc::clone(&open));
                self.table.lock().keep(&slot, &open, self.limits);
                Ok(open)
            }
            Err(error) => {
                self.table.lock().abandon(id, &slot);
                Err(error)
            }
        }
    }

    /// Opens a container afresh and keeps nothing: for those who look at all of them once.
    ///
    /// # Errors
    /// As [`OpenContainer::open`].
    pub fn open(&self, id: ContainerId, class: ContainerClass) -> Result<OpenContainer, ContainerError> {
        OpenContainer::open(&*self.volume, self.repository, id, class)
    }

    /// Forgets a container, and what was read of it: it was removed, or found damaged.
    pub fn remove(&self, id: ContainerId) {
        self.table.lock().remove(id);
        self.shared.forget(id);
    }

    /// Containers and bytes of memory held.
    #[cfg(test)]
    pub fn held(&self) -> (usize, usize) {
        let table = self.table.lock();
        (table.entries.len(), table.memory_bytes)
    }

    fn load(&self, id: ContainerId, class: ContainerClass) -> Result<Arc<OpenContainer>, ContainerError> {
        self.open(id, class).map(Arc::new)
    }
}

impl Table {
    fn touch(&mut self, id: ContainerId) -> (Option<Arc<OpenContainer>>, Slot) {
        self.clock += 1;
        let entry =
            self.entries.entry(id).or_insert_with(|| Entry { slot: Slot::default(), loaded: None, used: 0 });
        entry.used = self.clock;
        (entry.loaded.clone(), Arc::clone(&entry.slot))
    }

    /// Counts the container loaded into `slot`, unless it was removed meanwhile, and makes room for it.
    fn keep(&mut self, slot: &Slot, open: &Arc<OpenContainer>, limits: CacheLimits) {
        let entry = self.entries.get_mut(&open.id()).filter(|entry| Arc::ptr_eq(&entry.slot, slot));
        let Some(entry) = entry else { return };
        entry.loaded = Some(Arc::clone(open));
        self.memory_bytes += open.memory_bytes();
        while self.memory_bytes > limits.memory_bytes || self.entries.len() > limits.containers {
            // A scan of some hundred entries costs nothing beside the read that made it necessary.
            let others = self.entries.iter().filter(|(id, e)| e.loaded.is_some() && **id != open.id());
            let Some(oldest) = others.min_by_key(|(_, entry)| entry.used).map(|(id, _)| *id) else { return };
            self.remove(oldest);
        }
    }

    fn abandon(&mut self, id: ContainerId, slot: &Slot) {
        if self.entries.get(&id).is_some_and(|entry| Arc::ptr_eq(&entry.slot, slot)) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: ContainerId) {
        if let Some(open) = self.entries.remove(&id).and_then(|entry| entry.loaded) {
            self.memory_bytes -= open.memory_bytes();
        }
    }
}

/// Containers remembered. A miss asks each: some 16 cache misses, two microseconds a chunk of 16 KiB.
const RECENT_MAX: usize = 16;

/// (R9) Containers that a stream has begun to prove: what memory of the operating system had of them was dropped first, once,
/// so that it reads ahead as ever.
#[derive(Debug, Default)]
pub struct Proving(HashSet<ContainerId>);

impl Proving {
    /// Begins to prove a container; to be called before anything of it is read.
    pub fn begin(&mut self, container: &OpenContainer) {
        if self.0.insert(container.id()) {
            container.drop_cached();
        }
    }
}

/// A stream's most recent containers, the last one first. All of one namespace and class: the
/// caller that pushes makes sure of it.
#[derive(Debug, Default)]
pub struct RecentDirectories {
    open: VecDeque<Arc<OpenContainer>>,
    proving: Option<Proving>,
}

impl RecentDirectories {
    /// Cache for a stream that proves what it reads: each container is [read anew](Proving), from its volume.
    pub fn proving() -> Self {
        Self { proving: Some(Proving::default()), ..Self::default() }
    }

    /// Looks a chunk up: container, region, slot.
    pub fn find(&mut self, fingerprint: &Fingerprint) -> Option<(&Arc<OpenContainer>, u16, u16)> {
        let mut containers = self.open.iter().enumerate();
        let (place, (region, slot)) = containers.find_map(|(place, container)| {
            container.directory().locate(fingerprint).map(|found| (place, found))
        })?;
        self.bring_forward(place);
        Some((self.open.front()?, region, slot))
    }

    /// Remembers a container that just proved useful.
    pub fn push(&mut self, container: Arc<OpenContainer>) {
        match self.open.iter().position(|known| known.id() == container.id()) {
            Some(place) => self.bring_forward(place),
            None => {
                if let Some(proving) = &mut self.proving {
                    proving.begin(&container);
                }
                self.open.truncate(RECENT_MAX - 1);
                self.open.push_front(container);
            }
        }
    }

    /// Forgets a container, for example because it was deleted: as long as it is open, its room is not free.
    pub fn forget(&mut self, id: holdfast_types::ids::ContainerId) {
        self.open.retain(|container| container.id() != id);
    }

    fn bring_forward(&mut self, place: usize) {
        if place > 0
            && let Some(container) = self.open.remove(place)
        {
            self.open.push_front(container);
        }
    }
}
