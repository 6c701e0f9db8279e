//! What is known to be damaged. Small: empty in a healthy repository.

use std::collections::HashSet;

use holdfast_catalog::Catalog;
use holdfast_types::ids::ContainerId;
use parking_lot::RwLock;

use crate::error::EngineError;

/// Damaged containers (`None`) and regions of containers.
#[derive(Debug, Default)]
pub(super) struct DamageSet(RwLock<HashSet<(ContainerId, Option<u16>)>>);

impl DamageSet {
    /// What earlier runs found.
    pub(super) fn load(catalog: &dyn Catalog) -> Result<Self, EngineError> {
        let known = catalog.damaged()?.into_iter().map(|damage| (damage.container, damage.region)).collect();
        Ok(Self(RwLock::new(known)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.read().is_empty()
    }

    /// Whether that region, or the container it is in, is damaged.
    pub(super) fn contains(&self, container: ContainerId, region: u16) -> bool {
        let set = self.0.read();
        !set.is_empty() && (set.contains(&(container, None)) || set.contains(&(container, Some(region))))
    }

    /// Whether that was news.
    pub(super) fn insert(&self, container: ContainerId, region: Option<u16>) -> bool {
        self.0.write().insert((container, region))
    }
}
