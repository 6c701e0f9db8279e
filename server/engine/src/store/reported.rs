//! (N6) Regions of which agents said that they are not what they should be, where no one here can see it.
//!
//! A set of its own with one effect: backups are not told that what is in them is there, so that it is sent again. All
//! else (readers, reclaim, repair) takes such a region for what it was before.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_catalog::Catalog;
use holdfast_types::ids::{ContainerId, Location, NamespaceId};
use parking_lot::RwLock;

use crate::error::EngineError;

type Regions = BTreeSet<(ContainerId, u16)>;

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Reported {
    regions: RwLock<HashMap<NamespaceId, Regions>>,
    /// To be asked without a lock, for every chunk of every backup.
    any: AtomicBool,
}

impl Reported {
    /// The reports that the catalog knows.
    pub(super) fn load(catalog: &Catalog) -> Result<Self, EngineError> {
        let reported = Self::default();
        for (container, region) in catalog.reported_regions()? {
            if let Some(record) = catalog.container(container)? {
                reported.insert(record.namespace, container, region);
            }
        }
        Ok(reported)
    }

    /// The reports of a namespace.
    pub(super) fn of(&self, namespace: NamespaceId) -> Regions {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| self.regions.read().get(&namespace).cloned()).flatten().unwrap_or_default()
    }

    /// All of them, by container.
    pub(super) fn all(&self) -> Regions {
        self.regions.read().values().flatten().copied().collect()
    }

    /// How many a namespace has.
    pub(super) fn count(&self, namespace: NamespaceId) -> usize {
        let any = self.any.load(Ordering::Acquire);
        if any { self.regions.read().get(&namespace).map_or(0, BTreeSet::len) } else { 0 }
    }

    pub(super) fn contains(&self, namespace: NamespaceId, at: Location) -> bool {
        let has = |regions: &Regions| regions.contains(&(at.container, at.region));
        self.any.load(Ordering::Acquire) && self.regions.read().get(&namespace).is_some_and(has)
    }

    pub(super) fn insert(&self, namespace: NamespaceId, container: ContainerId, region: u16) {
        let mut regions = self.regions.write();
        regions.entry(namespace).or_default().insert((container, region));
        self.any.store(true, Ordering::Release);
    }

    /// Forgets those that `goes` says yes to.
    pub(super) fn forget(&self, goes: impl Fn(ContainerId, u16) -> bool) {
        if !self.any.load(Ordering::Acquire) {
            return;
        }
        let mut regions = self.regions.write();
        for some in regions.values_mut() {
            some.retain(|(container, region)| !goes(*container, *region));
        }
        regions.retain(|_, some| !some.is_empty());
        self.any.store(!regions.is_empty(), Ordering::Release);
    }
}
