//! One repository, those who use it, and what must be true of it: its life from start to start.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::PathBuf;
use std::sync::Arc;

use holdfast_catalog::{Catalog, RetentionPolicy};
use holdfast_proto::api::Rules;
use holdfast_proto::{ErrorCode, Fingerprint};
use holdfast_types::clock::{Clock as _, ManualClock};
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, PolicyId, RepositoryId};
use holdfast_volume::testing::{CrashPoint, Fault, FaultyVolume, InFlight};
use holdfast_volume::{BlobName, MemoryVolume};
use ulid::Ulid;

use super::agent::{Agent, vm_name};
use super::disks::{Disk, Random};
use super::truth::{Census, Lock, Name, Point};
use crate::OnLoss;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Job};
use crate::parity_job::ParityScheme;
use crate::recipe::TreeReader;
use crate::recover::{enter_points, repository_on};
use crate::scrub::Load;
use crate::snapshot::{list_snapshots, read_snapshot};
use crate::store::NodeReader;
use crate::tests::agent::{restore, restore_past_damage};
use crate::tests::{Bench, namespace};

/// VMs, and the number of extents of each one's disk.
pub(super) const EXTENTS: [usize; 4] = [1, 1, 2, 1];

/// The VM of which a policy locks each new restore point, where there is one.
const LOCKED_VM: usize = 3;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Faults that may happen besides the actions of people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hazards {
    /// Processes are killed and power fails.
    pub(super) crashes: bool,
    /// Containers rot and get lost.
    pub(super) damage: bool,
}

#[derive(Debug)]
pub(super) struct Never;

impl Load for Never {
    fn is_busy(&self) -> bool {
        false
    }
}

/// Ways to start the next process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Restart {
    Clean,
    Kill,
    /// Recovery from the volume alone.
    Recovery,
    /// Start with a copy of the catalog that was kept some time before.
    OlderCatalog,
}

/// One repository, its users, and the conditions it must meet, from start to start.
pub(super) struct World {
    pub(super) random: Random,
    pub(super) hazards: Hazards,
    /// Steps done, for finding out why one failed.
    pub(super) trace: Vec<String>,
    pub(super) bench: Bench,
    pub(super) memory: MemoryVolume,
    pub(super) volume: Arc<FaultyVolume<MemoryVolume>>,
    pub(super) repository: RepositoryId,
    pub(super) engine: Option<Arc<Engine>>,
    parity: Option<Arc<dyn Job>>,
    pub(super) agents: Vec<Option<Agent>>,
    /// The last disk of each VM.
    pub(super) disks: Vec<Disk>,
    pub(super) points: Vec<Point>,
    /// Commits without an answer: each may have become a restore point.
    pub(super) unanswered: Vec<(usize, Disk)>,
    pub(super) deleted: BTreeSet<BackupId>,
    /// Those of `deleted` that an old snapshot may know as locked or held.
    pub(super) deleted_once_kept: BTreeSet<BackupId>,
    pub(super) census: Census,
    pub(super) sound: BTreeSet<Name>,
    /// Set once anything failed for want of room.
    pub(super) was_full: bool,
    /// Set if a policy locks the restore points of one VM.
    has_policy: bool,
    /// A copy of the catalog.
    copy: Option<Vec<u8>>,
    /// A round is in progress: what deletes now does so within it.
    pub(super) in_round: bool,
    /// Set once the life is over: no more can be checked.
    pub(super) is_over: bool,
    /// Blobs that the next process, or this one, cannot read.
    pub(super) hidden: Vec<(BlobName, Fault)>,
    /// The last run that an agent began or joined.
    pub(super) run: String,
    /// Names that jobs got.
    pub(super) renamed: u64,
    /// Time by which the clock is ahead.
    pub(super) ahead_ms: i64,
}

/// (L4) As the server does first of all. A lock clock that was never set takes the time of day as it is, which may have been
/// set forward by the time that someone locks something.
fn set_lock_clock(engine: &Engine) {
    engine.retention_job().step(&Budget::unlimited()).unwrap();
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("trace", &self.trace).finish_non_exhaustive()
    }
}

impl World {
    pub(super) fn new(seed: u64, hazards: Hazards) -> Self {
        let mut random = Random(seed);
        let (bench, memory) = (Bench::new(), MemoryVolume::new());
        let volume = Arc::new(FaultyVolume::new(memory.clone()));
        let engine = Arc::new(bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume)));
        let disks = EXTENTS.iter().map(|extents| Disk::new(*extents, &mut random)).collect();
        let has_policy = random.one_in(3);
        let mut world = Self {
            random,
            hazards,
            trace: Vec::new(),
            bench,
            memory,
            volume,
            repository: engine.repository_id(),
            engine: Some(engine),
            parity: None,
            agents: EXTENTS.iter().map(|_| None).collect(),
            disks,
            points: Vec::new(),
            unanswered: Vec::new(),
            deleted: BTreeSet::new(),
            deleted_once_kept: BTreeSet::new(),
            census: Census::default(),
            sound: BTreeSet::new(),
            was_full: false,
            has_policy,
            copy: None,
            in_round: false,
            is_over: false,
            hidden: Vec::new(),
            run: String::new(),
            renamed: 0,
            ahead_ms: 0,
        };
        set_lock_clock(&world.engine());
        world.set_policy();
        world
    }

    pub(super) fn engine(&self) -> Arc<Engine> {
        Arc::clone(self.engine.as_ref().expect("started"))
    }

    pub(super) fn told(&mut self, text: impl Into<String>) {
        self.trace.push(text.into());
    }

    pub(super) fn monotonic_ms(&self) -> i64 {
        self.bench.clock.monotonic_ms()
    }

    /// Upper bound of the lock clock: the clock may have been ahead.
    pub(super) fn lock_clock_ms(&self) -> i64 {
        let shown_ms = self.engine().catalog().lock_time().unwrap();
        self.bench.clock.now_ms().max(shown_ms.unwrap_or_default())
    }

    pub(super) fn has_crashed(&self) -> bool {
        self.volume.has_crashed()
    }

    /// Returns true if an error has an explanation.
    pub(super) fn explains(&self, error: &EngineError) -> bool {
        let damaged = self.hazards.damage;
        self.has_crashed()
            || match error {
                EngineError::SessionGone { .. } | EngineError::Stopped => true,
                error if error.code() == ErrorCode::Full => self.was_full,
                EngineError::Damaged(_) | EngineError::FoundDamaged(_) | EngineError::NotReclaimable(_) => {
                    damaged
                }
                _ => false,
            }
    }

    /// Asserts that an error has an explanation.
    pub(super) fn excuse(&self, what: &str, error: &EngineError) {
        assert!(self.explains(error), "{what}: {error}");
    }

    fn set_policy(&mut self) {
        if !self.has_policy {
            return;
        }
        let engine = self.engine();
        let policy = RetentionPolicy {
            id: PolicyId(Ulid(1)),
            name: "locked".into(),
            namespace: namespace(&engine),
            vm: Some(vm_name(LOCKED_VM)),
            job: None,
            rules: Rules { keep_last: 2, ..Rules::default() },
            schedule: String::new(),
            time_zone: "UTC".into(),
            lock_days: 2,
            archive_after_days: None,
            enabled: true,
            resting_since_ms: None,
            updated_ms: 0,
            updated_by: String::new(),
        };
        engine.catalog().set_policy(&policy, "model").unwrap();
    }

    /// A backup was acknowledged.
    pub(super) fn committed(&mut self, vm: usize, disk: Disk, id: BackupId) {
        let row = self.engine().catalog().backup(id).unwrap();
        let Some(row) = row else { panic!("{id} was acknowledged and is not there") };
        if self.has_policy && vm == LOCKED_VM {
            assert!(row.lock.until_ms.is_some(), "(L3) {id} was made without the lock of its policy");
        }
        let until_ms = row.lock.until_ms;
        let lock = Lock {
            until_ms,
            asked: false,
            at_ms: self.lock_clock_ms(),
            at_monotonic_ms: self.monotonic_ms(),
        };
        let root = row.disks[0].root;
        let needs = self.needs(&disk, root);
        self.points.push(Point {
            id,
            vm,
            disk,
            needs,
            lock,
            held: Some(false),
            was_kept: until_ms.is_some(),
            doubtful: false,
        });
    }

    /// Regions, or containers as a whole, that the engine knows to be damaged.
    pub(super) fn known_damage(&self) -> BTreeSet<(ContainerId, Option<u16>)> {
        let engine = self.engine();
        let store = &engine.parts().0.store;
        let known = |id| store.known_damage(id).into_iter().map(move |(region, _)| (id, region));
        store.damaged_containers().into_iter().flat_map(known).collect()
    }

    /// (R5, R7) Asserts that the newest restore point relies on nothing that the engine knew to be lost.
    pub(super) fn counts_on_nothing_lost(&mut self, known: &BTreeSet<(ContainerId, Option<u16>)>) {
        let sound =
            self.census.sound(&self.memory, self.repository).unwrap_or_else(|wrong| panic!("{wrong}"));
        let is_known =
            |container, region| known.contains(&(container, None)) || known.contains(&(container, region));
        let Some(point) = self.points.last() else { return };
        for name in point.needs.iter().flatten().filter(|name| !sound.contains(*name)) {
            let is_lost = self.census.is_known_lost(name, is_known);
            assert!(!is_lost, "{} was committed and counts on {name:?}, which is known to be lost", point.id);
        }
    }

    /// Chunks and nodes that restoring a disk takes; `None`: damage prevents finding them.
    fn needs(&self, disk: &Disk, root: Fingerprint) -> Option<BTreeSet<Name>> {
        let engine = self.engine();
        let (core, _) = engine.parts();
        let domain = core.store.domain(namespace(&engine));
        let mut needs: BTreeSet<Name> = disk
            .chunks()
            .into_iter()
            .map(|chunk| (ContainerClass::Data, super::disks::name(chunk)))
            .collect();
        let source = NodeReader::new(Arc::clone(&core.store), domain);
        let read = || -> Result<Vec<Fingerprint>, EngineError> {
            let tree = TreeReader::open(source, root, disk.size_bytes())?;
            let nodes = tree.page_entries(0)?.into_iter().map(|entry| entry.node);
            Ok(nodes.chain([root]).filter(|node| !node.is_zero()).collect())
        };
        match read() {
            Ok(nodes) => {
                needs.extend(nodes.into_iter().map(|node| (ContainerClass::Recipe, node)));
                Some(needs)
            }
            Err(error) => {
                self.excuse("the recipe of a new restore point cannot be read", &error);
                None
            }
        }
    }

    /// Power fails now, or `after` some more changes of the volume.
    pub(super) fn crash_after(&mut self, after: u64) {
        let in_flight = if self.random.one_in(2) { InFlight::Lost } else { InFlight::Done };
        let after_mutations = self.volume.mutations() + after;
        self.volume.crash_at(CrashPoint { after_mutations, in_flight });
    }

    pub(super) fn parity(&mut self) -> Arc<dyn Job> {
        let engine = self.engine();
        let job =
            self.parity.get_or_insert_with(|| engine.parity_job(ParityScheme::new(3, 1), Arc::new(Never)));
        Arc::clone(job)
    }

    /// The process ends, and another begins.
    pub(super) fn restart(&mut self, how: Restart) {
        self.told(format!("restart: {how:?}"));
        self.parity = None;
        let engine = self.engine.take().expect("started");
        if how == Restart::Clean {
            self.volume.heal();
            if let Err(error) = engine.shutdown() {
                self.excuse("a clean stop", &error);
            }
        } else if !self.has_crashed() {
            self.crash_after(0);
        }
        self.agents.iter_mut().for_each(|agent| *agent = None);
        drop(engine);
        self.hide();
        let is_older = match how {
            Restart::Recovery => {
                self.recover();
                true
            }
            Restart::OlderCatalog => self.put_back(),
            Restart::Clean | Restart::Kill => false,
        };
        self.start();
        if !self.hidden.is_empty() {
            self.live_with_hidden(how);
        }
        if is_older {
            self.set_policy();
            let engine = self.engine();
            self.census.recovered(&self.memory, &|id| engine.catalog().container(id).unwrap().is_some());
            if self.has_ghosts() {
                self.told("something that was locked is back");
                self.is_over = true;
                return;
            }
        }
        self.settle();
    }

    /// The volume of the next process.
    fn new_volume(&self) -> Arc<FaultyVolume<MemoryVolume>> {
        let volume = FaultyVolume::new(self.memory.clone());
        self.hidden.iter().for_each(|(name, fault)| volume.refuse(name, *fault));
        Arc::new(volume)
    }

    pub(super) fn start(&mut self) {
        self.volume = self.new_volume();
        let engine = Arc::new(self.bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&self.volume)));
        let opened = *engine.opened();
        assert!(opened.unreadable_points == 0 || !self.hidden.is_empty(), "{opened:?}");
        self.engine = Some(Arc::clone(&engine));
        set_lock_clock(&engine);
        if !self.hazards.damage && self.hidden.is_empty() && !self.has_ghosts() {
            assert_eq!(opened.damaged_containers, 0, "{opened:?}");
        }
        // (S7)
        if self.random.one_in(2) {
            engine.audit(&NoProgress).unwrap();
        }
        assert_eq!(engine.catalog().deletions(None, 10).unwrap(), [], "left by the start");
    }

    fn database(&self) -> PathBuf {
        self.bench.folder.path().join("catalog.db")
    }

    pub(super) fn raw_catalog(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.database()).unwrap()
    }

    /// Keeps a copy of the catalog as it is.
    pub(super) fn keep_catalog(&mut self) {
        let mut copy = Vec::new();
        self.engine().catalog().snapshot(&Arc::default()).unwrap().read_to_end(&mut copy).unwrap();
        self.told("a copy of the catalog is kept");
        self.copy = Some(copy);
    }

    /// (S10) The copy is put back, if there is one.
    fn put_back(&mut self) -> bool {
        let Some(copy) = &self.copy else { return false };
        for file in ["catalog.db-wal", "catalog.db-shm"] {
            let _ = std::fs::remove_file(self.bench.folder.path().join(file));
        }
        std::fs::write(self.database(), copy).unwrap();
        true
    }

    /// As `holdfast-server recover`: the newest snapshot that can be read, then every point, then the rows of what was
    /// deleted since.
    fn recover(&mut self) {
        for file in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
            let _ = std::fs::remove_file(self.bench.folder.path().join(file));
        }
        let repository = repository_on(&self.memory).unwrap().expect("it tells whose it is");
        let clock = || Arc::<ManualClock>::clone(&self.bench.clock);
        let path = self.database();
        let newest = list_snapshots(&self.memory).unwrap().into_iter().next();
        let catalog = match newest {
            Some((_, name)) => {
                let mut file = std::fs::File::create_new(&path).unwrap();
                read_snapshot(&self.memory, &name, Some(repository), &mut file).unwrap();
                drop(file);
                Catalog::open(&path, clock()).unwrap()
            }
            None => Catalog::create_for(&path, clock(), repository).unwrap(),
        };
        catalog.disable_tokens().unwrap();
        let found = enter_points(&*self.new_volume(), &catalog, &NoProgress).unwrap();
        assert!(found.problems.is_empty() || !self.hidden.is_empty(), "{:?}", found.problems);
        if found.unread.is_empty() {
            catalog.ensure_namespace("default").unwrap();
        }
        catalog.checkpoint().unwrap();
        drop(catalog);
        self.drop_lost_rows();
    }

    pub(super) fn drop_lost_rows(&self) {
        let mut parts = self.bench.parts(self.new_volume()).unwrap();
        parts.options.on_loss = OnLoss::Hold;
        let engine = Engine::assemble(parts).unwrap();
        engine.drop_lost_rows(&NoProgress).unwrap();
    }

    /// A snapshot that is older than the end of a lock or a hold says that it still keeps what was deleted since, and a
    /// recovery drops nothing that is locked (L1). The sequence ends there: what came back may need what is gone.
    fn has_ghosts(&self) -> bool {
        let engine = self.engine();
        let is_back = |id: &BackupId| engine.catalog().backup(*id).unwrap().is_some();
        self.deleted_once_kept.iter().any(is_back)
    }

    /// After a start, everything that was in doubt is decided.
    fn settle(&mut self) {
        let engine = self.engine();
        self.reconcile();
        self.unanswered.clear();
        // (L7) Restore points are in the order of commits, whatever clocks and names were.
        let mut last = vec![0; EXTENTS.len()];
        for point in &self.points {
            let ordinal = engine.catalog().backup(point.id).unwrap().expect("reconciled").ordinal;
            assert!(ordinal > last[point.vm], "{} of {} is out of order", point.id, vm_name(point.vm));
            last[point.vm] = ordinal;
        }
        for point in &mut self.points {
            point.doubtful = false;
            let row = engine.catalog().backup(point.id).unwrap().expect("reconciled");
            let is_held = row.lock.hold.is_some();
            assert!(is_held || point.held != Some(true), "the hold of {} is lost", point.id);
            let until_ms = row.lock.until_ms;
            assert!(until_ms >= point.lock.until_ms, "the lock of {} is lost: {:?}", point.id, row.lock);
            point.held = Some(is_held);
            (point.lock.until_ms, point.lock.asked) = (until_ms, false);
            point.was_kept |= is_held || until_ms.is_some();
        }
    }

    /// Compares the restore points of the engine with those of the model.
    pub(super) fn reconcile(&mut self) {
        let engine = self.engine();
        let listed: Vec<BackupId> = match engine.catalog().all_backup_ids().collect() {
            Ok(listed) => listed,
            Err(error) => panic!("cannot list restore points: {error}"),
        };
        for id in &listed {
            if self.points.iter().any(|point| point.id == *id) {
                continue;
            }
            assert!(!self.deleted.contains(id), "{id} was deleted and came back");
            self.adopt(*id);
        }
        let gone: Vec<Point> = self.points.extract_if(.., |point| !listed.contains(&point.id)).collect();
        for point in gone {
            assert!(point.doubtful, "{} of {} is lost", point.id, vm_name(point.vm));
            self.note_deleted(&point);
        }
    }

    pub(super) fn note_deleted(&mut self, point: &Point) {
        self.deleted.insert(point.id);
        if point.was_kept {
            self.deleted_once_kept.insert(point.id);
        }
    }

    /// A restore point of which no one was told: one of the commits without an answer.
    fn adopt(&mut self, id: BackupId) {
        let engine = self.engine();
        let row = engine.catalog().backup(id).unwrap().expect("listed");
        let is_it = |disk: &Disk, image: &[u8], bad: &[(usize, usize)]| {
            let mut wanted = disk.image();
            bad.iter().for_each(|(at, len)| wanted[*at..at + len].fill(0));
            image == wanted
        };
        let (image, bad) = if self.hazards.damage {
            match restore_past_damage(&engine, &id.to_string(), "root") {
                Ok((image, bad)) => (image, bad.iter().map(|bad| (bad.offset, bad.len)).collect()),
                // Its recipe is lost: it may be any.
                Err(_) => (Vec::new(), Vec::new()),
            }
        } else {
            (restore(&engine, &id.to_string(), "root").unwrap(), Vec::new())
        };
        let of_vm = |(vm, disk): &&(usize, Disk)| {
            vm_name(*vm) == row.vm && (image.is_empty() || is_it(disk, &image, &bad))
        };
        let found = self.unanswered.iter().rev().find(of_vm).cloned();
        let Some((vm, disk)) = found else { panic!("{id} of {} is not what any agent sent", row.vm) };
        self.told(format!("{id} of {} was made without an answer", row.vm));
        let is_vague = image.is_empty();
        self.committed(vm, disk, id);
        if is_vague && let Some(point) = self.points.last_mut() {
            point.needs = None;
        }
    }

    /// After each step: nothing that is needed is gone, unless the test itself spoilt it.
    pub(super) fn check(&mut self) {
        if self.is_over {
            return;
        }
        self.reconcile();
        let sound = self.census.sound(&self.memory, self.repository);
        self.sound = sound.unwrap_or_else(|wrong| panic!("{wrong}"));
        self.census.settle(&self.sound);
        for point in &self.points {
            for name in point.needs.iter().flatten() {
                let there = self.sound.contains(name) || self.census.excused.contains(name);
                assert!(there, "{name:?} of {} of {} is on the volume no more", point.id, vm_name(point.vm));
            }
        }
        self.check_hurt();
    }

    /// (G6) Asserts that damaged containers with the last copy of something needed stay: they may be made sound again.
    fn check_hurt(&mut self) {
        let gone: Vec<_> = self
            .census
            .hurt
            .iter()
            .filter(|(id, hurt)| {
                let name = crate::container::ContainerName { id: **id, class: hurt.class };
                !hurt.dropped && self.memory.get(&name.blob()).is_none()
            })
            .map(|(id, _)| *id)
            .collect();
        for id in gone {
            let needed = self.census.last_in(id);
            for point in &self.points {
                let last = point
                    .needs
                    .iter()
                    .flatten()
                    .find(|name| needed.contains(name) && !self.sound.contains(name));
                assert!(
                    last.is_none(),
                    "{id} was damaged, and had the last of {last:?} that {} needs",
                    point.id
                );
            }
            self.census.hurt.remove(&id);
        }
    }

    pub(super) fn day_ms() -> i64 {
        DAY_MS
    }
}
