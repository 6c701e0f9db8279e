//! Known damage. Small: empty in a healthy repository.
//!
//! Damage is an observation with a time, not a verdict: spoilt data may be repaired, and a file that was away may be
//! back, so each container is looked at again from time to time.
//!
//! A place that is known to be damaged never counts as a copy (I3). Damage is *open* as long as something may have been
//! lost by it, and *healed* once every chunk of it has another sound copy. Only open damage, of the namespace that
//! asks, costs anything beyond a look at memory.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use holdfast_catalog::Catalog;
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId};
use parking_lot::{Mutex, RwLock};

use crate::error::EngineError;
use crate::health::{Health, Part};

/// Milliseconds after which an access to a damaged container looks at it again.
pub const LOOK_AGAIN_MS: i64 = 60_000;

/// Defects found: of the container as a whole (`None`), or with regions of it, and why.
pub(super) type Findings = BTreeMap<Option<u16>, String>;

/// Damage known of one container.
#[derive(Debug)]
struct Known {
    findings: Findings,
    /// Time of the last look, on the clock that never jumps.
    looked_ms: i64,
    /// Namespace whose chunks are in it; `None`: not known, so possibly anyone's.
    namespace: Option<NamespaceId>,
    /// Class of the lost chunks; `None`: not known.
    class: Option<ContainerClass>,
    /// The [generation](DamageSet::generation) of the latest finding; 0: found by an earlier process.
    found_in: u64,
    /// Every chunk of it has another sound copy.
    healed: bool,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<ContainerId, Known>,
    /// Number of containers with open damage, by namespace.
    open: HashMap<Option<NamespaceId>, usize>,
    /// Generation of the latest finding, by namespace.
    latest: HashMap<Option<NamespaceId>, u64>,
    /// Findings since the process started.
    generation: u64,
}

/// Damaged containers and regions of containers.
#[derive(Debug, Default)]
pub(super) struct DamageSet {
    state: RwLock<State>,
    /// Containers in `state`, to be asked without a lock.
    count: AtomicUsize,
}

impl State {
    fn count_open(&mut self, namespace: Option<NamespaceId>, opened: bool) {
        let count = self.open.entry(namespace).or_default();
        *count = if opened { *count + 1 } else { count.saturating_sub(1) };
    }

    fn remove(&mut self, container: ContainerId) {
        if let Some(known) = self.known.remove(&container)
            && !known.healed
        {
            self.count_open(known.namespace, false);
        }
    }

    /// Adds a finding; says whether it was news.
    fn insert(&mut self, container: ContainerId, found: Found<'_>) -> bool {
        let Found { region, reason, namespace, class, now_ms } = found;
        let fresh =
            || Known { findings: Findings::new(), looked_ms: 0, namespace, class, found_in: 0, healed: true };
        let known = self.known.entry(container).or_insert_with(fresh);
        known.looked_ms = now_ms;
        if known.findings.contains_key(&region) {
            return false;
        }
        known.findings.insert(region, reason.to_owned());
        self.generation += 1;
        known.found_in = self.generation;
        let (reopened, namespace) = (std::mem::take(&mut known.healed), known.namespace);
        if reopened {
            self.count_open(namespace, true);
        }
        self.latest.insert(namespace, self.generation);
        true
    }

    /// Returns true if it was healed.
    fn reopen(&mut self, container: ContainerId) -> bool {
        let Some(known) = self.known.get_mut(&container).filter(|known| known.healed) else { return false };
        known.healed = false;
        // Conclusions drawn before may rest on the lost copy.
        self.generation += 1;
        known.found_in = self.generation;
        let namespace = known.namespace;
        self.count_open(namespace, true);
        self.latest.insert(namespace, self.generation);
        true
    }
}

/// A finding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Found<'a> {
    pub(super) region: Option<u16>,
    pub(super) reason: &'a str,
    pub(super) namespace: Option<NamespaceId>,
    pub(super) class: Option<ContainerClass>,
    pub(super) now_ms: i64,
}

impl DamageSet {
    /// Loads damage that earlier processes found.
    pub(super) fn load(catalog: &Catalog, now_ms: i64) -> Result<Self, EngineError> {
        let records = catalog.damaged()?;
        let mut state = State::default();
        for record in &records {
            let owner = catalog.container(record.container)?.map(|found| (found.namespace, found.class));
            let (namespace, class) = owner.unzip();
            let (region, reason) = (record.region, record.reason.as_str());
            state.insert(record.container, Found { region, reason, namespace, class, now_ms });
        }
        let open: HashSet<ContainerId> =
            records.iter().filter(|one| !one.healed).map(|one| one.container).collect();
        let State { mut known, .. } = state;
        let mut state = State::default();
        for (id, known) in &mut known {
            (known.found_in, known.healed) = (0, !open.contains(id));
            if !known.healed {
                state.count_open(known.namespace, true);
            }
        }
        let count = AtomicUsize::new(known.len());
        state.known = known;
        Ok(Self { state: RwLock::new(state), count })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Returns true if something of a namespace may have been lost.
    pub(super) fn is_open_in(&self, namespace: NamespaceId) -> bool {
        if self.is_empty() {
            return false;
        }
        let state = self.state.read();
        [Some(namespace), None].iter().any(|key| state.open.get(key).is_some_and(|count| *count > 0))
    }

    /// Grows whenever more becomes known that may concern a namespace, so that an answer given before can be told from
    /// one given after it. Numbers count from the start of the process.
    pub(super) fn generation(&self, namespace: NamespaceId) -> u64 {
        let state = self.state.read();
        let latest = |key| state.latest.get(&key).copied().unwrap_or(0);
        latest(Some(namespace)).max(latest(None))
    }

    /// The containers that may concern a namespace in which something was found after `generation`, healed or not.
    pub(super) fn found_since(&self, namespace: NamespaceId, generation: u64) -> Vec<ContainerId> {
        let concerns = |known: &Known| known.namespace.is_none_or(|of| of == namespace);
        let state = self.state.read();
        let late = state.known.iter().filter(|(_, known)| known.found_in > generation && concerns(known));
        late.map(|(id, _)| *id).collect()
    }

    /// The containers something is known about.
    pub(super) fn containers(&self) -> Vec<ContainerId> {
        self.select(|_| true)
    }

    /// The containers by which something may have been lost.
    pub(super) fn open(&self) -> Vec<ContainerId> {
        self.select(|known| !known.healed)
    }

    /// The containers that may have chunks of a namespace and class, and of which nothing counts, by number.
    pub(super) fn lost_as_a_whole(&self, namespace: NamespaceId, class: ContainerClass) -> Vec<ContainerId> {
        self.select(|known| {
            known.findings.contains_key(&None)
                && known.namespace.is_none_or(|of| of == namespace)
                && known.class.is_none_or(|of| of == class)
        })
    }

    fn select(&self, wanted: impl Fn(&Known) -> bool) -> Vec<ContainerId> {
        let state = self.state.read();
        let mut ids: Vec<_> =
            state.known.iter().filter(|(_, known)| wanted(known)).map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids
    }

    /// Damage known of a container.
    pub(super) fn findings(&self, container: ContainerId) -> Findings {
        self.state.read().known.get(&container).map(|known| known.findings.clone()).unwrap_or_default()
    }

    /// Returns true if that region, or the container it is in, is damaged.
    pub(super) fn contains(&self, container: ContainerId, region: u16) -> bool {
        // Asked for every chunk of every backup.
        !self.is_empty()
            && self.state.read().known.get(&container).is_some_and(|known| {
                known.findings.contains_key(&None) || known.findings.contains_key(&Some(region))
            })
    }

    /// Returns true if that was news.
    pub(super) fn insert(&self, container: ContainerId, found: Found<'_>) -> bool {
        let mut state = self.state.write();
        let news = state.insert(container, found);
        self.count.store(state.known.len(), Ordering::Release);
        news
    }

    /// Returns true if it is time to look at a damaged container again. The caller does: it is told so once.
    pub(super) fn is_due(&self, container: ContainerId, now_ms: i64) -> bool {
        let mut state = self.state.write();
        let Some(known) = state.known.get_mut(&container) else { return false };
        let due = now_ms.saturating_sub(known.looked_ms) >= LOOK_AGAIN_MS;
        if due {
            known.looked_ms = now_ms;
        }
        due
    }

    /// Forgets the places that proved sound.
    pub(super) fn clear(&self, container: ContainerId, sound: &[Option<u16>]) {
        let mut state = self.state.write();
        let Some(known) = state.known.get_mut(&container) else { return };
        known.findings.retain(|region, _| !sound.contains(region));
        if known.findings.is_empty() {
            state.remove(container);
        }
        self.count.store(state.known.len(), Ordering::Release);
    }

    /// Opens the damage again: a chunk of it has no other copy after all. Returns true if it was healed.
    pub(super) fn reopen(&self, container: ContainerId) -> bool {
        self.state.write().reopen(container)
    }

    /// Marks the damage healed: every chunk of these findings, which were all, has another sound copy. Returns false if
    /// there are others by now.
    pub(super) fn heal(&self, container: ContainerId, findings: &Findings) -> bool {
        let mut state = self.state.write();
        let Some(known) = state.known.get_mut(&container) else { return false };
        if known.healed || !known.findings.keys().eq(findings.keys()) {
            return false;
        }
        known.healed = true;
        let namespace = known.namespace;
        state.count_open(namespace, false);
        true
    }
}

/// Missing containers that are believed to be lost, whatever there is in all.
const BELIEVED: u64 = 16;

/// More than `BELIEVED` must also be more than one of this many.
const SHARE: u64 = 1000;

/// Consequence of containers that are missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// A few are remembered as lost; many stop all writing.
    #[default]
    Stop,
    /// Missing containers are remembered as lost, however many they are.
    Accept,
    /// Missing containers are noted in memory only and stop nothing: for a recovery, which drops the rows that nothing
    /// needs first.
    Hold,
}

/// Containers that are missing or cannot be read at all. One can be lost; when many are missing at once, more
/// likely a file system is not mounted or a copy is not complete.
///
/// Then nothing of it is remembered for good and no backup may begin: it would store everything again, beside
/// what is only away, and mostly on the disk below the mount point.
#[derive(Debug)]
pub(super) struct Losses {
    health: Arc<Health>,
    on_loss: OnLoss,
    /// Found missing since the start: what was known before does not count.
    missing: Mutex<HashSet<ContainerId>>,
    reason: OnceLock<String>,
}

impl Losses {
    pub(super) fn new(health: Arc<Health>, on_loss: OnLoss) -> Self {
        Self { health, on_loss, missing: Mutex::default(), reason: OnceLock::new() }
    }

    /// Counts a missing container. Returns true if it may be remembered as lost; `total` returns the number of
    /// containers there should be.
    pub(super) fn is_believed(&self, container: ContainerId, total: impl FnOnce() -> u64) -> bool {
        match self.on_loss {
            OnLoss::Accept => return true,
            OnLoss::Hold => return false,
            OnLoss::Stop => {}
        }
        if self.reason.get().is_some() {
            return false;
        }
        let mut missing = self.missing.lock();
        missing.insert(container);
        let count = missing.len() as u64;
        drop(missing);
        if count <= BELIEVED {
            return true;
        }
        let total = total();
        if count <= total / SHARE {
            return true;
        }
        let reason = self.reason.get_or_init(|| {
            format!(
                "more than {BELIEVED} of {total} containers are missing or unreadable at once, {container} the latest, so they are taken for absent, not for lost: see that the file system of the blobs is mounted and complete, then restart the server; if they are lost for good, run `holdfast-server check --accept-loss`"
            )
        });
        self.health.stop(Part::Data, reason);
        false
    }

    /// Notes that a container is not missing.
    pub(super) fn is_back(&self, container: ContainerId) {
        self.missing.lock().remove(&container);
    }

    /// Reason for which writing has stopped, when too many are missing.
    pub(super) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }
}

type Regions = BTreeSet<(ContainerId, u16)>;

/// (N6) Regions of which agents said that they are not what they should be, where no one here can see it.
///
/// A set of its own with one effect: backups are not told that what is in them is there, so that it is sent again. All
/// else (readers, reclaim, repair) takes such a region for what it was before.
#[derive(Debug, Default)]
pub(super) struct Reported {
    regions: RwLock<HashMap<NamespaceId, Regions>>,
    /// Set once there are any: read without a lock, for every chunk of every backup.
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

    /// All reported regions, by container.
    pub(super) fn all(&self) -> Regions {
        self.regions.read().values().flatten().copied().collect()
    }

    /// Number of reported regions of a namespace.
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

    /// Forgets the regions for which `goes` returns true.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(on_loss: OnLoss) -> (Losses, Arc<Health>) {
        let health = Arc::new(Health::default());
        (Losses::new(Arc::clone(&health), on_loss), health)
    }

    fn believed(losses: &Losses, count: u64, total: u64) -> u64 {
        (0..count).filter(|number| losses.is_believed(ContainerId::new(*number).unwrap(), || total)).count()
            as u64
    }

    #[test]
    fn a_few_are_lost_and_many_are_absent() {
        let (few, health) = losses(OnLoss::Stop);
        assert_eq!(believed(&few, 16, 16), 16);
        assert!(few.reason().is_none() && health.read_only_reason().is_none());
        let (many, health) = losses(OnLoss::Stop);
        assert_eq!(believed(&many, 40, 16_000), 16);
        assert_eq!(many.reason(), health.read_only_reason());
        let reason = many.reason().unwrap();
        assert!(reason.contains("16000") && reason.contains("mounted"), "{reason}");
        let (share, _) = losses(OnLoss::Stop);
        assert_eq!(believed(&share, 40, 30_000), 30, "0.1 % may be lost");
    }

    #[test]
    fn what_is_back_does_not_count_and_accepted_loss_is_no_limit() {
        let (losses, _) = losses(OnLoss::Stop);
        for number in 0..100 {
            let id = ContainerId::new(number).unwrap();
            assert!(losses.is_believed(id, || 100));
            losses.is_back(id);
        }
        let (accepted, health) = self::losses(OnLoss::Accept);
        assert_eq!(believed(&accepted, 40, 40), 40);
        assert!(health.read_only_reason().is_none());
        let (held, health) = self::losses(OnLoss::Hold);
        assert_eq!(believed(&held, 40, 40), 0);
        assert!(held.reason().is_none() && health.read_only_reason().is_none());
    }
}
