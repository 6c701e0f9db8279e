//! Places of the data of each restore point: local, only in the bucket, or there in an archive. In plain bytes, without
//! holes and zeros, as restores find their chunks; lost chunks are in no place.
//!
//! One walk over all recipes. Pages and extents that restore points share are looked up once, as far as they are remembered.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_catalog::{BackupPlaces, BackupRecord};
use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, NamespaceId};

use super::control::{Control, Pacer, Phase};
use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::format::recipe::{ExtentNode, PAGE_EXTENTS};
use crate::needs::passed_by;
use crate::recipe::{TreeReader, WalkError};
use crate::store::{Domain, NodeReader};

/// Pages and extents of which is remembered where they lie: 262,144 × (48 + 24) bytes and as much again for the table are
/// some 40 MiB. With more, it begins to forget, and some are looked up again.
const KNOWN_MAX: usize = 1 << 18;

/// Charged for a node that is read.
const NODE_BYTES: u64 = 10 << 10;

/// Bytes by place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Bytes {
    here: u64,
    far: u64,
    cold: u64,
}

impl Bytes {
    const fn add(&mut self, other: Self) {
        self.here += other.here;
        self.far += other.far;
        self.cold += other.cold;
    }
}

/// Looks everything up, and keeps it in the catalog. What comes meanwhile is left out.
///
/// # Errors
/// [`EngineError::Stopped`]; what cannot be read now. Damage is passed by.
pub(crate) fn note(core: &Core, control: &Control) -> Result<(), EngineError> {
    let at_ms = core.clock.now_ms();
    let mut look = Look { core, known: HashMap::new(), pacer: control.pacer() };
    let (mut found, mut after) = (Vec::new(), None);
    control.begin(Phase::Placing, 0);
    while let Some(next) = core.catalog.backup_in_order(after)? {
        after = Some((next.vm, next.number));
        let Some(record) = core.catalog.backup(next.backup)? else { continue };
        let Bytes { here, far, cold } = look.of(&record)?;
        let backup = record.id;
        found.push(BackupPlaces { backup, at_ms, here_bytes: here, bucket_bytes: far, archive_bytes: cold });
        control.add_done(1);
    }
    Ok(core.catalog.record_places(&found)?)
}

struct Look<'a> {
    core: &'a Core,
    known: HashMap<(NamespaceId, Fingerprint), Bytes>,
    pacer: Pacer<'a>,
}

type Tree = TreeReader<NodeReader>;

/// Position of a walk.
struct Within {
    namespace: NamespaceId,
    domain: Domain,
    recent: RecentDirectories,
}

impl Look<'_> {
    fn of(&mut self, record: &BackupRecord) -> Result<Bytes, EngineError> {
        let namespace = record.namespace;
        let domain = self.core.store.domain(namespace);
        let mut within = Within { namespace, domain, recent: RecentDirectories::default() };
        let mut all = Bytes::default();
        for disk in &record.disks {
            let nodes = NodeReader::new(Arc::clone(&self.core.store), within.domain.clone());
            let passes_by = |error: &WalkError<EngineError>| error.is_damage().then(|| error.to_string());
            let opened = TreeReader::open_past(nodes, disk.root, disk.size_bytes, passes_by);
            let Some(tree) = passed_by(opened)? else { continue };
            self.pacer.charge(NODE_BYTES, 0)?;
            let mut extent = tree.zero_until(0);
            while extent < tree.extent_count() {
                let page = extent / PAGE_EXTENTS as u64;
                all.add(self.page(&tree, page, &mut within)?);
                extent = tree.zero_until((page + 1) * PAGE_EXTENTS as u64);
            }
        }
        Ok(all)
    }

    fn page(&mut self, tree: &Tree, number: u64, within: &mut Within) -> Result<Bytes, EngineError> {
        let name = (within.namespace, tree.page_name(number));
        if let Some(known) = self.known.get(&name) {
            return Ok(*known);
        }
        self.pacer.charge(NODE_BYTES, 0)?;
        let mut all = Bytes::default();
        for entry in passed_by(tree.page_entries(number))?.iter().flatten() {
            if entry.node.is_zero() {
                continue;
            }
            let extent = (within.namespace, entry.node);
            let bytes = match self.known.get(&extent) {
                Some(known) => *known,
                None => {
                    self.pacer.charge(NODE_BYTES, 0)?;
                    let node = passed_by(tree.extent_named(entry))?.flatten();
                    let bytes = node.map_or(Ok(Bytes::default()), |node| self.extent(&node, within))?;
                    self.keep(extent, bytes)
                }
            };
            all.add(bytes);
        }
        Ok(self.keep(name, all))
    }

    fn extent(&self, node: &ExtentNode, within: &mut Within) -> Result<Bytes, EngineError> {
        let store = &self.core.store;
        let mut all = Bytes::default();
        for piece in node.pieces().iter().filter(|piece| !piece.is_zero()) {
            let name = &piece.fingerprint;
            let found = store.find_to_read(&within.domain, ContainerClass::Data, name, &mut within.recent)?;
            let Some(found) = found else { continue };
            let place = if store.leftovers.is_cold(found.location.container) {
                &mut all.cold
            } else if found.container.is_at_hand() {
                &mut all.here
            } else {
                &mut all.far
            };
            *place += u64::from(piece.bytes);
        }
        Ok(all)
    }

    fn keep(&mut self, name: (NamespaceId, Fingerprint), bytes: Bytes) -> Bytes {
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(name, bytes);
        bytes
    }
}
