//! Containers that a restore point needs, and so restore points that need a container; blobs that a recovery of a locked
//! restore point needs, so that the keeper of copies can make them stay. Reads recipes, and what restore points share only
//! once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_catalog::BackupRecord;
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId};
use holdfast_volume::BlobName;
use parking_lot::Mutex;

use crate::container::{ContainerName, RecentDirectories};
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::PAGE_EXTENTS;
use crate::points::PointName;
use crate::recipe::{NodeSource, TreeReader, WalkError};
use crate::store::{Domain, NodeReader};

/// Maximum number of nodes whose needs are remembered: 262,144 × (32 + 24 + some 10 × 16) bytes are 54 MiB. Beyond it,
/// some are forgotten and read again.
const KNOWN_MAX: usize = 1 << 18;

/// Charged for a node that is read.
const NODE_BYTES: u64 = 10 << 10;

/// A restore point, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeedingPoint {
    pub backup: BackupId,
    pub namespace: NamespaceId,
    pub namespace_name: String,
    pub vm: String,
    pub started_ms: i64,
}

impl NeedingPoint {
    pub(crate) fn of(record: &BackupRecord) -> Self {
        let BackupRecord { id, namespace, namespace_name, vm, started_ms, .. } = record;
        Self {
            backup: *id,
            namespace: *namespace,
            namespace_name: namespace_name.clone(),
            vm: vm.clone(),
            started_ms: *started_ms,
        }
    }
}

/// The restore points that need each of `wanted`, the newest last. What of a recipe cannot be read is passed by: damage
/// names itself.
pub(crate) fn points_needing(
    core: &Arc<Core>,
    wanted: &BTreeSet<ContainerId>,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<BTreeMap<ContainerId, Vec<NeedingPoint>>, EngineError> {
    let mut found: BTreeMap<ContainerId, Vec<NeedingPoint>> = BTreeMap::new();
    let mut needs = Needs { core, wanted: Some(wanted), known: HashMap::new(), go_on };
    let mut after = None;
    while let Some(next) = core.catalog.backup_in_order(after)? {
        after = Some((next.vm, next.number));
        let Some(record) = core.catalog.backup(next.backup)? else { continue };
        for container in needs.of(&record)?.into_iter().flatten() {
            found.entry(container).or_default().push(NeedingPoint::of(&record));
        }
    }
    Ok(found)
}

/// A container that something needs; `None`: what it needs is lost.
type Need = Option<ContainerId>;

/// Containers that the pages and extents met so far need.
pub(crate) type Known = HashMap<(NamespaceId, Fingerprint), Arc<[Need]>>;

pub(crate) struct Needs<'a> {
    pub(crate) core: &'a Arc<Core>,
    /// `None`: all.
    pub(crate) wanted: Option<&'a BTreeSet<ContainerId>>,
    pub(crate) known: Known,
    pub(crate) go_on: &'a mut dyn FnMut(u64) -> bool,
}

/// Hands nodes on, and keeps which.
struct Noting {
    nodes: NodeReader,
    met: Mutex<Vec<Fingerprint>>,
}

impl NodeSource for Noting {
    type Error = EngineError;

    fn node(&self, fingerprint: &Fingerprint) -> Result<Bytes, EngineError> {
        self.met.lock().push(*fingerprint);
        self.nodes.node(fingerprint)
    }
}

type Tree = TreeReader<Noting>;

/// Position of a walk.
struct Place {
    namespace: NamespaceId,
    domain: Domain,
    recent: RecentDirectories,
}

impl Needs<'_> {
    /// The containers that a restore point needs, of those that are wanted.
    pub(crate) fn of(&mut self, record: &BackupRecord) -> Result<BTreeSet<Need>, EngineError> {
        let domain = self.core.store.domain(record.namespace);
        let mut place = Place { namespace: record.namespace, domain, recent: RecentDirectories::default() };
        let mut needed = BTreeSet::new();
        for disk in &record.disks {
            let nodes = NodeReader::new(Arc::clone(&self.core.store), place.domain.clone());
            let source = Noting { nodes, met: Mutex::default() };
            let passes_by = |error: &WalkError<EngineError>| error.is_damage().then(|| error.to_string());
            let opened = TreeReader::open_past(source, disk.root, disk.size_bytes, passes_by);
            let Some(tree) = passed_by(opened)? else {
                needed.insert(None);
                continue;
            };
            self.note_met(&tree, &mut place, &mut needed)?;
            let mut extent = tree.zero_until(0);
            while extent < tree.extent_count() {
                let page = extent / PAGE_EXTENTS as u64;
                needed.extend(self.page(&tree, page, &mut place)?.iter().copied());
                extent = tree.zero_until((page + 1) * PAGE_EXTENTS as u64);
            }
        }
        Ok(needed)
    }

    fn page(&mut self, tree: &Tree, number: u64, place: &mut Place) -> Result<Arc<[Need]>, EngineError> {
        let name = (place.namespace, tree.page_name(number));
        if let Some(known) = self.known.get(&name) {
            return Ok(Arc::clone(known));
        }
        let mut needed = BTreeSet::new();
        let entries = passed_by(tree.page_entries(number))?;
        if entries.is_none() {
            needed.insert(None);
        }
        if let Some(entries) = entries {
            self.note_met(tree, place, &mut needed)?;
            for entry in entries.iter().filter(|entry| !entry.node.is_zero()) {
                let extent = (place.namespace, entry.node);
                if let Some(known) = self.known.get(&extent) {
                    needed.extend(known.iter().copied());
                    continue;
                }
                let mut of_extent = BTreeSet::new();
                let node = passed_by(tree.extent_named(entry))?;
                if node.is_none() {
                    of_extent.insert(None);
                }
                self.note_met(tree, place, &mut of_extent)?;
                let node = node.flatten();
                for piece in node.iter().flat_map(|node| node.pieces()).filter(|piece| !piece.is_zero()) {
                    self.look_up(ContainerClass::Data, &piece.fingerprint, place, &mut of_extent)?;
                }
                needed.extend(of_extent.iter().copied());
                self.keep(extent, of_extent);
            }
        }
        Ok(self.keep(name, needed))
    }

    /// Looks up the nodes that were read since the last call.
    fn note_met(
        &mut self,
        tree: &Tree,
        place: &mut Place,
        needed: &mut BTreeSet<Need>,
    ) -> Result<(), EngineError> {
        let met = std::mem::take(&mut *tree.source().met.lock());
        for node in met {
            if !(self.go_on)(NODE_BYTES) {
                return Err(EngineError::Stopped);
            }
            self.look_up(ContainerClass::Recipe, &node, place, needed)?;
        }
        Ok(())
    }

    fn look_up(
        &self,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        place: &mut Place,
        needed: &mut BTreeSet<Need>,
    ) -> Result<(), EngineError> {
        let found = self.core.store.find_to_read(&place.domain, class, fingerprint, &mut place.recent)?;
        let container = found.map(|found| found.location.container);
        if self.wanted.is_none_or(|wanted| container.is_some_and(|container| wanted.contains(&container))) {
            needed.insert(container);
        }
        Ok(())
    }

    fn keep(&mut self, name: (NamespaceId, Fingerprint), needed: BTreeSet<Need>) -> Arc<[Need]> {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let needed: Arc<[Need]> = needed.into_iter().collect();
        self.known.insert(name, Arc::clone(&needed));
        needed
    }
}

/// `None`: it cannot be read, and is passed by: damage names itself.
pub(crate) fn passed_by<T>(read: Result<T, WalkError<EngineError>>) -> Result<Option<T>, EngineError> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_damage() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Blobs that a restore point needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeededBlobs {
    /// Its containers, then its point.
    pub blobs: Vec<BlobName>,
    /// `false`: something else that it needs is lost.
    pub is_whole: bool,
}

/// Chunks and nodes that locked restore points need, for one pass over them: of each it reads the part not shared with
/// those before. It may not see chunks that reclaim moves meanwhile, so a later pass begins with a new one.
pub struct LockedNeeds {
    core: Arc<Core>,
    known: Known,
    /// Classes of the containers that were named so far.
    classes: HashMap<ContainerId, ContainerClass>,
}

impl fmt::Debug for LockedNeeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockedNeeds").field("containers", &self.classes.len()).finish_non_exhaustive()
    }
}

impl LockedNeeds {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core), known: Known::new(), classes: HashMap::new() }
    }

    /// Blobs that a restore point needs: all but what every restore point needs, whose repository it is and the keys. `None`: it is
    /// not there, or its point is about to be sealed anew. `go_on` is told what was read, and says whether to.
    ///
    /// # Errors
    /// [`EngineError::Stopped`]; the catalog's and the index's.
    pub fn of(
        &mut self,
        backup: BackupId,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<NeededBlobs>, EngineError> {
        let catalog = &self.core.catalog;
        let (Some(state), Some(point)) = (catalog.point_state(backup)?, catalog.point(backup)?) else {
            return Ok(None);
        };
        let Some(record) = catalog.backup(backup)?.filter(|_| state.wanted <= state.revision) else {
            return Ok(None);
        };
        let mut needs =
            Needs { core: &self.core, wanted: None, known: std::mem::take(&mut self.known), go_on };
        let containers = needs.of(&record);
        self.known = needs.known;
        let mut needed = NeededBlobs { blobs: Vec::new(), is_whole: true };
        for container in containers? {
            let class = container.map_or(Ok(None), |container| self.class(container))?;
            match container.zip(class) {
                Some((id, class)) => needed.blobs.push(ContainerName { id, class }.blob()),
                None => needed.is_whole = false,
            }
        }
        needed.blobs.push(PointName { backup, revision: state.revision }.blob(&point));
        Ok(Some(needed))
    }

    /// `None`: the catalog does not know the container.
    fn class(&mut self, container: ContainerId) -> Result<Option<ContainerClass>, EngineError> {
        if let Some(class) = self.classes.get(&container) {
            return Ok(Some(*class));
        }
        let class = self.core.catalog.container(container)?.map(|row| row.class);
        self.classes.extend(class.map(|class| (container, class)));
        Ok(class)
    }
}
