//! In which containers the chunks and nodes of a recipe lie, as far as this process has seen it.
//!
//! It tells, without reading anything, that damage does not concern a recipe. What is not known here is looked at chunk
//! by chunk, which is slower and as right. Reclaim moves chunks: what is known of a recipe counts only as long as every
//! container it names is there.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerId, NamespaceId};
use parking_lot::Mutex;
use roaring::RoaringTreemap;

use super::leftovers::Leftovers;

/// Recipes remembered. A set takes a bit or two for each container of the repository at most: 40 KiB for a disk of
/// 10 TB, 40 MiB for this many of them.
const RECIPES_MAX: usize = 1024;

/// Containers in which everything a recipe refers to was found.
#[derive(Debug, Clone)]
pub(crate) struct Reach {
    /// Numbers of containers: each chunk and node had a sound copy in one of these.
    pub(crate) containers: Arc<RoaringTreemap>,
    /// The generation of damage up to which that was so.
    pub(crate) sound_as_of: u64,
}

impl Reach {
    /// Returns true if none of `damaged`, the containers in which damage was found since
    /// [`sound_as_of`](Reach::sound_as_of), is among them, and (G8) all of them are there: chunks of a deleted one were
    /// moved to places not known here.
    pub(crate) fn is_spared(&self, damaged: &[ContainerId], leftovers: &Leftovers) -> bool {
        self.is_intact(leftovers)
            && !damaged.iter().any(|container| self.containers.contains(container.get()))
    }

    fn is_intact(&self, leftovers: &Leftovers) -> bool {
        !leftovers.has_gone(&self.containers)
    }
}

/// The reach of recipes by their root: least recently used out first.
#[derive(Debug, Default)]
pub(crate) struct ReachMemory(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    known: HashMap<(NamespaceId, Fingerprint), (Reach, u64)>,
    clock: u64,
}

impl ReachMemory {
    pub(crate) fn of(
        &self,
        namespace: NamespaceId,
        root: Fingerprint,
        leftovers: &Leftovers,
    ) -> Option<Reach> {
        let mut table = self.0.lock();
        table.clock += 1;
        let now = table.clock;
        let (reach, used) = table.known.get_mut(&(namespace, root))?;
        // (G8)
        if !reach.is_intact(leftovers) {
            table.known.remove(&(namespace, root));
            return None;
        }
        *used = now;
        Some(reach.clone())
    }

    pub(crate) fn remember(&self, namespace: NamespaceId, root: Fingerprint, reach: Reach) {
        let mut table = self.0.lock();
        table.clock += 1;
        let now = table.clock;
        table.known.insert((namespace, root), (reach, now));
        if table.known.len() > RECIPES_MAX {
            let oldest = table.known.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key);
            if let Some(oldest) = oldest {
                table.known.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ulid::Ulid;

    #[test]
    fn it_forgets_what_was_not_asked_for_longest() {
        let (memory, leftovers) = (ReachMemory::default(), Leftovers::default());
        let namespace = NamespaceId(Ulid(1));
        let root = |number: usize| Fingerprint::of(&number.to_le_bytes());
        let reach = Reach { containers: Arc::default(), sound_as_of: 0 };
        for number in 0..RECIPES_MAX {
            memory.remember(namespace, root(number), reach.clone());
        }
        assert!(memory.of(namespace, root(0), &leftovers).is_some());
        memory.remember(namespace, root(RECIPES_MAX), reach);
        assert!(memory.of(namespace, root(0), &leftovers).is_some(), "asked for lately");
        assert!(memory.of(namespace, root(1), &leftovers).is_none());
        assert!(memory.of(NamespaceId(Ulid(2)), root(0), &leftovers).is_none(), "namespaces never meet");
    }

    #[test]
    fn it_forgets_what_was_moved() {
        let (memory, leftovers) = (ReachMemory::default(), Leftovers::default());
        let (namespace, root) = (NamespaceId(Ulid(1)), Fingerprint::of(b"root"));
        let reach = Reach { containers: Arc::new([1, 2].into_iter().collect()), sound_as_of: 0 };
        memory.remember(namespace, root, reach.clone());
        let other = ContainerId::new(3).unwrap();
        leftovers.note_gone(other);
        assert!(memory.of(namespace, root, &leftovers).is_some());
        assert!(reach.is_spared(&[other], &leftovers));
        leftovers.note_gone(ContainerId::new(2).unwrap());
        assert!(!reach.is_spared(&[], &leftovers) && memory.of(namespace, root, &leftovers).is_none());
    }
}
