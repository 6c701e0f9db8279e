//! A walk over everything that restore points refer to, as plainly as it can be written.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId};

use super::all_of;
use crate::container::{OpenContainer, RecentDirectories};
use crate::engine::Engine;
use crate::format::recipe::PAGE_EXTENTS;
use crate::recipe::{NodeSource, TreeReader};
use crate::reclaim::attribution::Shares;
use crate::store::NodeReader;

pub(super) type Place = (ContainerId, u32);

/// Chunks and nodes that each restore point refers to.
pub(super) struct Model {
    of: HashMap<BackupId, HashSet<Place>>,
}

/// Notes every node that is asked for.
struct Noting<'a> {
    nodes: NodeReader,
    noted: &'a parking_lot::Mutex<HashSet<Fingerprint>>,
}

impl NodeSource for Noting<'_> {
    type Error = crate::error::EngineError;

    fn node(&self, fingerprint: &Fingerprint) -> Result<bytes::Bytes, Self::Error> {
        self.noted.lock().insert(*fingerprint);
        self.nodes.node(fingerprint)
    }
}

impl Model {
    pub(super) fn of(engine: &Engine, backups: &[BackupId]) -> Self {
        Self { of: backups.iter().map(|id| (*id, referred_by(engine, *id))).collect() }
    }

    pub(super) fn places(&self) -> HashSet<Place> {
        self.of.values().flatten().copied().collect()
    }

    /// Data and recipe bytes that `some` refer to and `others` do not.
    pub(super) fn bytes_only_in(
        &self,
        engine: &Engine,
        some: &[BackupId],
        others: &[BackupId],
    ) -> (u64, u64) {
        let all = |ids: &[BackupId]| -> HashSet<Place> {
            ids.iter().flat_map(|id| self.of[id].iter().copied()).collect()
        };
        let only: HashSet<Place> = all(some).difference(&all(others)).copied().collect();
        let sum = |class| bytes_of(engine, class, &only);
        (sum(ContainerClass::Data), sum(ContainerClass::Recipe))
    }
}

/// Bytes that these chunks take, of one class.
pub(super) fn bytes_of(engine: &Engine, class: ContainerClass, places: &HashSet<Place>) -> u64 {
    let mut sum = 0;
    for candidate in all_of(engine).iter().filter(|one| one.class == class) {
        let open: Arc<OpenContainer> = engine.parts().0.store.containers.get(candidate.id, class).unwrap();
        let shares = Shares::of(&open);
        let of_this = places.iter().filter(|(id, _)| *id == candidate.id);
        sum += of_this.map(|(_, number)| shares.bytes(&open, *number)).sum::<u64>();
    }
    sum
}

fn referred_by(engine: &Engine, id: BackupId) -> HashSet<Place> {
    let core = engine.parts().0;
    let backup = core.catalog.backup(id).unwrap().unwrap();
    let mut places = HashSet::new();
    for disk in &backup.disks {
        let noted = parking_lot::Mutex::default();
        let nodes = NodeReader::new(Arc::clone(&core.store), core.store.domain(backup.namespace));
        let tree = TreeReader::open(Noting { nodes, noted: &noted }, disk.root, disk.size_bytes).unwrap();
        let mut chunks = HashSet::new();
        for page in 0..tree.extent_count().div_ceil(PAGE_EXTENTS as u64) {
            tree.page_entries(page).unwrap();
        }
        for index in 0..tree.extent_count() {
            let Some(extent) = tree.extent(index).unwrap() else { continue };
            let data = extent.pieces().iter().filter(|piece| !piece.is_zero());
            chunks.extend(data.map(|piece| piece.fingerprint));
        }
        let nodes = noted.into_inner();
        places.extend(nodes.iter().map(|name| place(engine, backup.namespace, ContainerClass::Recipe, name)));
        places.extend(chunks.iter().map(|name| place(engine, backup.namespace, ContainerClass::Data, name)));
    }
    places
}

/// Place where look-ups find it.
pub(super) fn place(
    engine: &Engine,
    namespace: NamespaceId,
    class: ContainerClass,
    name: &Fingerprint,
) -> Place {
    let store = &engine.parts().0.store;
    let found = store.find(&store.domain(namespace), class, name, &mut RecentDirectories::default());
    let found = found.unwrap().unwrap();
    let number = found.container.directory().number_of(found.location.region, found.location.slot);
    (found.container.id(), number.unwrap())
}
