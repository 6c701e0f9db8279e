//! What is known to be damaged. Small: empty in a healthy repository.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_catalog::Catalog;
use holdfast_types::ids::ContainerId;
use parking_lot::RwLock;

use crate::error::EngineError;

/// Damaged containers (`None`) and regions of containers.
#[derive(Debug, Default)]
pub(super) struct DamageSet {
    known: RwLock<HashSet<(ContainerId, Option<u16>)>>,
    /// Grows with every change, so that an answer given before can be told from one given after it.
    generation: AtomicU64,
}

impl DamageSet {
    /// What earlier runs found.
    pub(super) fn load(catalog: &dyn Catalog) -> Result<Self, EngineError> {
        let known = catalog.damaged()?.into_iter().map(|damage| (damage.container, damage.region)).collect();
        Ok(Self { known: RwLock::new(known), generation: AtomicU64::new(0) })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.read().is_empty()
    }

    /// Changes since the process started.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether that region, or the container it is in, is damaged.
    pub(super) fn contains(&self, container: ContainerId, region: u16) -> bool {
        let set = self.known.read();
        !set.is_empty() && (set.contains(&(container, None)) || set.contains(&(container, Some(region))))
    }

    /// Whether that was news.
    pub(super) fn insert(&self, container: ContainerId, region: Option<u16>) -> bool {
        let new = self.known.write().insert((container, region));
        if new {
            self.generation.fetch_add(1, Ordering::Release);
        }
        new
    }
}
