//! Chunks and nodes lost by open damage, by namespace: those in damaged places of which no other copy is found.

use std::collections::{HashMap, HashSet};

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId};

use crate::container::RecentDirectories;
use crate::core::Core;
use crate::error::EngineError;
use crate::store::{ChunkStore, Domain};

/// Lost chunks known by name at most: 64 MiB. With more, everything that recipes refer to is looked up.
const NAMES_MAX: usize = 1 << 20;

/// Lost things of one class.
#[derive(Debug)]
enum Lost {
    /// Exactly these.
    These(HashSet<Fingerprint>),
    /// The contents of a container are unknown, or too many are lost: each has to be looked up.
    LookUp,
}

impl Default for Lost {
    fn default() -> Self {
        Self::These(HashSet::new())
    }
}

/// Chunks and nodes that one namespace lost.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    chunks: Lost,
    nodes: Lost,
    /// Containers with open damage that concern it.
    pub(super) containers: Vec<ContainerId>,
}

impl Suspects {
    /// Suspects everything: each chunk and node is looked up.
    pub(super) fn everything() -> Self {
        Self { chunks: Lost::LookUp, nodes: Lost::LookUp, ..Self::default() }
    }

    fn of(&mut self, class: ContainerClass) -> &mut Lost {
        match class {
            ContainerClass::Data => &mut self.chunks,
            ContainerClass::Recipe => &mut self.nodes,
        }
    }

    fn is_nothing(&self) -> bool {
        [&self.chunks, &self.nodes].iter().all(|lost| matches!(lost, Lost::These(names) if names.is_empty()))
    }

    /// Returns true if no chunk can be lost, so that extents need not be read.
    pub(super) fn spares_chunks(&self) -> bool {
        matches!(&self.chunks, Lost::These(names) if names.is_empty())
    }

    /// Returns true if no copy of a chunk, or node, can be read.
    pub(super) fn is_lost(
        &self,
        store: &ChunkStore,
        domain: &Domain,
        class: ContainerClass,
        fingerprint: &Fingerprint,
        recent: &mut RecentDirectories,
    ) -> Result<bool, EngineError> {
        let lost = match class {
            ContainerClass::Data => &self.chunks,
            ContainerClass::Recipe => &self.nodes,
        };
        match lost {
            Lost::These(names) => Ok(names.contains(fingerprint)),
            Lost::LookUp => Ok(!is_found(store, domain, class, fingerprint, recent)?),
        }
    }
}

/// Losses by namespace; a namespace that is not in it lost nothing.
#[derive(Debug, Default)]
pub(super) struct AllSuspects {
    by_namespace: HashMap<NamespaceId, Suspects>,
    /// A damaged container of which it is not known whose it is: everything is looked up.
    anyones: Option<Suspects>,
}

impl AllSuspects {
    /// Collects the chunks and nodes lost by damage that is open now.
    pub(super) fn gather(core: &Core) -> Result<Self, EngineError> {
        let mut all = Self::default();
        let mut recent = RecentDirectories::default();
        for container in core.store.open_damage() {
            let Some(record) = core.catalog.container(container)? else {
                all.anyones = Some(Suspects::everything());
                continue;
            };
            let suspects = all.by_namespace.entry(record.namespace).or_default();
            suspects.containers.push(container);
            let lost = suspects.of(record.class);
            let Ok(open) = core.store.containers.get(container, record.class) else {
                *lost = Lost::LookUp;
                continue;
            };
            let damaged: Vec<Option<u16>> =
                core.store.known_damage(container).into_iter().map(|(region, _)| region).collect();
            let domain = core.store.domain(record.namespace);
            for (fingerprint, region, _) in open.directory().iter() {
                let Lost::These(names) = lost else { break };
                if !damaged.iter().any(|place| place.is_none_or(|place| place == region))
                    || is_found(&core.store, &domain, record.class, &fingerprint, &mut recent)?
                {
                    continue;
                }
                names.insert(fingerprint);
                if names.len() >= NAMES_MAX {
                    *lost = Lost::LookUp;
                }
            }
        }
        Ok(all)
    }

    /// Losses of a namespace; `None`: nothing.
    pub(super) fn of(&self, namespace: NamespaceId) -> Option<&Suspects> {
        if let Some(anyones) = &self.anyones {
            return Some(anyones);
        }
        self.by_namespace.get(&namespace).filter(|suspects| !suspects.is_nothing())
    }
}

fn is_found(
    store: &ChunkStore,
    domain: &Domain,
    class: ContainerClass,
    fingerprint: &Fingerprint,
    recent: &mut RecentDirectories,
) -> Result<bool, EngineError> {
    Ok(store.find_to_read(domain, class, fingerprint, recent)?.is_some()
        || store.find_salvaged(domain, class, fingerprint)?.is_some())
}
