//! The containers one stream met last. What a disk holds next to a known chunk was mostly stored next to it,
//! so their directories answer most questions without the index.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_proto::Fingerprint;

use super::OpenContainer;

/// Containers remembered. A miss asks each: some 16 cache misses, two microseconds a chunk of 16 KiB.
const RECENT_MAX: usize = 16;

/// A stream's most recent containers, the last one first. All of one namespace and class: the
/// caller that pushes makes sure of it.
#[derive(Debug, Default)]
pub struct RecentDirectories(VecDeque<Arc<OpenContainer>>);

impl RecentDirectories {
    /// Looks a chunk up: container, region, slot.
    pub fn find(&mut self, fingerprint: &Fingerprint) -> Option<(&Arc<OpenContainer>, u16, u16)> {
        let mut containers = self.0.iter().enumerate();
        let (place, (region, slot)) = containers.find_map(|(place, container)| {
            container.directory().locate(fingerprint).map(|found| (place, found))
        })?;
        self.bring_forward(place);
        Some((self.0.front()?, region, slot))
    }

    /// Remembers a container that just proved useful.
    pub fn push(&mut self, container: Arc<OpenContainer>) {
        match self.0.iter().position(|known| known.id() == container.id()) {
            Some(place) => self.bring_forward(place),
            None => {
                self.0.truncate(RECENT_MAX - 1);
                self.0.push_front(container);
            }
        }
    }

    /// Forgets a container, for example because it was deleted: as long as it is open, its room is not free.
    pub fn forget(&mut self, id: holdfast_types::ids::ContainerId) {
        self.0.retain(|container| container.id() != id);
    }

    fn bring_forward(&mut self, place: usize) {
        if place > 0
            && let Some(container) = self.0.remove(place)
        {
            self.0.push_front(container);
        }
    }
}
