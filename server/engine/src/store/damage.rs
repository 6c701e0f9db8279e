//! What is known to be damaged. Small: empty in a healthy repository.
//!
//! Damage is an observation with a time, not a verdict: what was spoilt may be repaired, and a file that was away may
//! be back, so each container is looked at again from time to time.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_catalog::Catalog;
use holdfast_types::ids::ContainerId;
use parking_lot::RwLock;

use crate::error::EngineError;

/// Milliseconds after which an access to a damaged container looks at it again.
pub const LOOK_AGAIN_MS: i64 = 60_000;

/// What was found wrong: with the container as a whole (`None`), or with regions of it, and why.
pub(super) type Findings = BTreeMap<Option<u16>, String>;

/// What is known about one container.
#[derive(Debug)]
struct Known {
    findings: Findings,
    /// When it was looked at last.
    looked_ms: i64,
}

/// Damaged containers and regions of containers.
#[derive(Debug, Default)]
pub(super) struct DamageSet {
    known: RwLock<HashMap<ContainerId, Known>>,
    /// Grows whenever more becomes known, so that an answer given before can be told from one given after it.
    generation: AtomicU64,
}

impl DamageSet {
    /// What earlier runs found.
    pub(super) fn load(catalog: &dyn Catalog, now_ms: i64) -> Result<Self, EngineError> {
        let set = Self::default();
        for record in catalog.damaged()? {
            set.insert(record.container, record.region, &record.reason, now_ms);
        }
        set.generation.store(0, Ordering::Release);
        Ok(set)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.known.read().is_empty()
    }

    /// Additions since the process started.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The containers something is known about.
    pub(super) fn containers(&self) -> Vec<ContainerId> {
        let mut containers: Vec<_> = self.known.read().keys().copied().collect();
        containers.sort_unstable();
        containers
    }

    /// The containers of which nothing counts, by number.
    pub(super) fn containers_lost_as_a_whole(&self) -> Vec<ContainerId> {
        let known = self.known.read();
        let lost = known.iter().filter(|(_, known)| known.findings.contains_key(&None));
        let mut containers: Vec<_> = lost.map(|(container, _)| *container).collect();
        containers.sort_unstable();
        containers
    }

    /// What is known about a container.
    pub(super) fn findings(&self, container: ContainerId) -> Findings {
        self.known.read().get(&container).map(|known| known.findings.clone()).unwrap_or_default()
    }

    /// Whether that region, or the container it is in, is damaged.
    pub(super) fn contains(&self, container: ContainerId, region: u16) -> bool {
        self.known.read().get(&container).is_some_and(|known| {
            known.findings.contains_key(&None) || known.findings.contains_key(&Some(region))
        })
    }

    /// Whether that was news.
    pub(super) fn insert(
        &self,
        container: ContainerId,
        region: Option<u16>,
        reason: &str,
        now_ms: i64,
    ) -> bool {
        let mut set = self.known.write();
        let known =
            set.entry(container).or_insert_with(|| Known { findings: Findings::new(), looked_ms: now_ms });
        known.looked_ms = now_ms;
        if known.findings.contains_key(&region) {
            return false;
        }
        known.findings.insert(region, reason.to_owned());
        self.generation.fetch_add(1, Ordering::Release);
        true
    }

    /// Whether it is time to look at a damaged container again. The caller does: it is told so once.
    pub(super) fn is_due(&self, container: ContainerId, now_ms: i64) -> bool {
        let mut set = self.known.write();
        let Some(known) = set.get_mut(&container) else { return false };
        // A clock that was set back makes it due as well.
        let due = !(0..LOOK_AGAIN_MS).contains(&now_ms.saturating_sub(known.looked_ms));
        if due {
            known.looked_ms = now_ms;
        }
        due
    }

    /// Forgets what proved sound; says what is left.
    pub(super) fn clear(&self, container: ContainerId, sound: &[Option<u16>]) -> Findings {
        let mut set = self.known.write();
        let Some(known) = set.get_mut(&container) else { return Findings::new() };
        known.findings.retain(|region, _| !sound.contains(region));
        let left = known.findings.clone();
        if left.is_empty() {
            set.remove(&container);
        }
        left
    }
}
