//! Lives of a repository: what is recorded. Scripts of real engines on a real folder and a real database.
//!
//! They are as small as they can be: disks of a few chunks, an index that is flushed and merged after a few hundred
//! entries. What ends a process without notice is not scripted: the campaign kills after any event.

use std::path::Path;
use std::sync::Arc;

use holdfast_engine::catalog::token::{Role, new_token};
use holdfast_engine::catalog::{Catalog, TokenSpec};
use holdfast_engine::clock::ManualClock;
use holdfast_engine::ids::SessionId;
use holdfast_engine::{Engine, EngineError, EngineOptions, EngineParts, Health, traces_of_repository};
use holdfast_volume::{LocalVolume, Volume};

use crate::agent;
use crate::disk::History;
use crate::facts::{Disks, Facts, Point, Token};
use crate::recorder::Recorder;
use crate::sharing::Sharer;
use crate::tree::{Nodes, Tree};

mod upkeep;
use upkeep::{deletions, repairs, squeezes};

/// How the engine of a life behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    write_buffer_bytes: usize,
    split_entries: u64,
}

/// What a server does by default: nothing is merged in so short a life.
const CALM: Manner = Manner { write_buffer_bytes: 1 << 20, split_entries: 2 << 20 };
/// Sorted runs are merged all the time.
const BUSY: Manner = Manner { write_buffer_bytes: 1 << 15, split_entries: 250 };

/// A recorded life.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) name: &'static str,
    pub(crate) manner: Manner,
    pub(crate) history: History,
    pub(crate) facts: Facts,
}

type Script = fn(&mut Actor<'_>);

const SCRIPTS: [(&str, Manner, Script); 9] = [
    ("days", CALM, days),
    ("sessions", CALM, sessions),
    ("sharing", CALM, sharing),
    ("tokens", CALM, tokens),
    ("merges", BUSY, merges),
    ("reclaims", BUSY, reclaims),
    ("deletions", CALM, deletions),
    ("squeezes", CALM, squeezes),
    ("repairs", CALM, repairs),
];

/// Records every life, each in a folder of its own below `folder`.
pub(crate) fn record_all(folder: &Path) -> Vec<Life> {
    SCRIPTS.iter().map(|script| record(folder, script)).collect()
}

fn record(folder: &Path, (name, manner, script): &(&'static str, Manner, Script)) -> Life {
    let root = folder.join(name);
    std::fs::create_dir(&root).unwrap();
    let recorder = Recorder::start(&root, Nodes::new(), &[]);
    let position = || recorder.position();
    let mut actor = Actor::new(&root, *manner, &position);
    script(&mut actor);
    let facts = std::mem::take(&mut actor.facts);
    drop(actor);
    let mut history = History::from(&Tree::default());
    (history.events, history.nodes) = recorder.finish();
    // A call that changes files and is not recorded would show here.
    let differences = history.seen(history.events.len()).0.differences(&Tree::read(&root));
    assert!(differences.is_empty(), "the recording of {name:?} is not complete: {differences:#?}");
    std::fs::remove_dir_all(&root).unwrap();
    Life { name, manner: *manner, history, facts }
}

/// Opens the repository in `root`, as the server does: ORDERING, "Starting".
pub(crate) fn open(root: &Path, manner: Manner, clock: &Arc<ManualClock>) -> Result<Engine, EngineError> {
    let volume: Arc<dyn Volume> = Arc::new(LocalVolume::open(root.join("blobs"))?);
    let path = root.join("catalog.db");
    let health = Arc::<Health>::default();
    let latch = Arc::<Health>::clone(&health);
    // (P5) Beside a volume that holds a repository, no catalog is ever made.
    let catalog = match traces_of_repository(&*volume)? {
        Some(_) => Catalog::open_existing(&path, Arc::<ManualClock>::clone(clock), latch)?,
        None => Catalog::open_or_create(&path, Arc::<ManualClock>::clone(clock), latch)?.0,
    };
    let mut options = EngineOptions { reserve_bytes: Some(0), ..EngineOptions::default() };
    options.index.background = false;
    options.index.write_buffer_bytes = manner.write_buffer_bytes;
    options.index.split_entries = manner.split_entries;
    Engine::assemble(EngineParts {
        data: Arc::clone(&volume),
        index: volume,
        catalog: Arc::new(catalog) as Arc<Catalog>,
        clock: Arc::<ManualClock>::clone(clock),
        health,
        options,
        lock: None,
    })
}

/// Bytes without pattern, the same for the same seed.
pub(crate) fn noise(seed: u64, len: usize) -> Arc<[u8]> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes.into()
}

/// A disk of one VM on one day: most of it is as it was on day 0.
fn disk(vm: u64, day: u64, len: usize) -> Arc<[u8]> {
    let mut bytes = noise(vm, len).to_vec();
    let new = noise(1000 * vm + day, 20_000);
    let at = (usize::try_from(day).unwrap() * 30_000) % (len - new.len());
    bytes[at..at + new.len()].copy_from_slice(&new);
    bytes.into()
}

fn slices(disks: &Disks) -> Vec<(&str, &[u8])> {
    disks.iter().map(|(name, bytes)| (*name, &**bytes)).collect()
}

/// Does things with an engine and writes down what it was promised.
pub(crate) struct Actor<'a> {
    root: &'a Path,
    manner: Manner,
    position: &'a dyn Fn() -> usize,
    clock: Arc<ManualClock>,
    engine: Option<Engine>,
    pub(crate) facts: Facts,
}

impl<'a> Actor<'a> {
    pub(crate) fn new(root: &'a Path, manner: Manner, position: &'a dyn Fn() -> usize) -> Self {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        Self { root, manner, position, clock, engine: None, facts: Facts::default() }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    pub(crate) fn try_start(&mut self) -> Result<(), EngineError> {
        self.clock.advance_ms(60_000);
        let engine = open(self.root, self.manner, &self.clock)?;
        self.facts.repository.get_or_insert((engine.repository_id(), (self.position)()));
        self.engine = Some(engine);
        Ok(())
    }

    pub(crate) fn volume(&self) -> LocalVolume {
        LocalVolume::open(self.root.join("blobs")).unwrap()
    }

    /// Blobs that were begun and not sealed.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join("blobs/.tmp")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn start(&mut self) {
        self.try_start().unwrap();
    }

    pub(crate) fn stop(&mut self) {
        self.engine().shutdown().unwrap();
        self.engine = None;
    }

    fn offer(&mut self, vm: &str, disks: &Disks) {
        self.facts.offers.push(((self.position)(), vm.to_owned(), disks.clone()));
    }

    pub(crate) fn backup(&mut self, vm: &str, disks: &Disks) {
        self.clock.advance_ms(1000);
        self.offer(vm, disks);
        let done = agent::backup(self.engine(), vm, &slices(disks)).unwrap();
        self.acknowledged(vm, done.backup_id);
    }

    fn acknowledged(&mut self, vm: &str, id: String) {
        self.facts.points.push(Point { vm: vm.to_owned(), id, acknowledged: (self.position)() });
    }

    /// Starts a session and sends its disks, one of them only by half when `whole` is not set.
    fn send(&mut self, vm: &str, disks: &Disks, whole: bool) -> SessionId {
        self.offer(vm, disks);
        let started = agent::start(self.engine(), agent::request(vm, &slices(disks))).unwrap();
        let session = started.session_id.parse().unwrap();
        for (number, (_, bytes)) in (0..).zip(disks) {
            if whole || number == 0 {
                let stream = self.engine().open_stream(session, number).unwrap();
                agent::send_disk(self.engine(), session, &stream, number, bytes).unwrap();
            }
        }
        session
    }

    fn commit(&mut self, vm: &str, session: SessionId) {
        let done = self.engine().commit(session).unwrap();
        self.acknowledged(vm, done.backup_id);
    }

    /// Two agents with almost the same new disk at once. The first asks and sends half of what it is asked for; then the
    /// second asks, sends what only it has, describes all of its disk, and waits for the rest.
    fn share(&mut self, vms: [&str; 2], number: u64) -> [Sharer; 2] {
        let disks = [0, 1].map(|day| disk(number, day, 200_000));
        for (vm, disk) in vms.iter().zip(&disks) {
            self.offer(vm, &vec![("root", Arc::clone(disk))]);
        }
        let start = |which: usize| Sharer::start(self.engine(), vms[which], &disks[which]);
        let (first, second) = (start(0), start(1));
        let asked = first.ask();
        assert_eq!((asked.needed.len(), asked.pending), (first.chunks(), 0));
        first.send(asked.needed[..asked.needed.len() / 2].iter().copied());
        let told = second.ask();
        assert!(told.pending > 0 && !told.needed.is_empty());
        second.send(told.needed);
        second.describe();
        assert!(!second.finish(), "it waits for the first");
        [first, second]
    }

    pub(crate) fn create_token(&mut self, name: &str) {
        let (_, id, hash) = new_token(&*self.clock).unwrap();
        let spec = TokenSpec {
            id,
            name: format!("{name}-{id}"),
            role: Role::Backup,
            namespaces: Vec::new(),
            owner: "ops".to_owned(),
            vm_patterns: Vec::new(),
            expires_ms: None,
        };
        self.engine().catalog().create_token(&spec, &hash).unwrap();
        let acknowledged = (self.position)();
        self.facts.tokens.push(Token { id, hash, acknowledged, revoking: None, revoked: None });
    }

    fn revoke_token(&mut self, number: usize) {
        let begun = (self.position)();
        self.engine().catalog().revoke_token(self.facts.tokens[number].id).unwrap();
        let done = (self.position)();
        let token = &mut self.facts.tokens[number];
        (token.revoking, token.revoked) = (Some(begun), Some(done));
    }
}

/// Clean stops and starts between backups that mostly repeat the one before.
fn days(life: &mut Actor<'_>) {
    life.start();
    life.create_token("agent");
    for day in 0..4 {
        life.backup("web", &vec![("root", disk(1, day, 120_000)), ("data", disk(2, day / 2, 60_000))]);
        life.backup("db", &vec![("root", disk(3, day, 80_000))]);
        if day % 2 == 1 {
            life.stop();
            life.start();
        }
    }
    // Nothing new: no container is written.
    life.backup("db", &vec![("root", disk(3, 3, 80_000))]);
    life.revoke_token(0);
    life.stop();
}

/// Sessions beside each other, and every way in which one ends.
fn sessions(life: &mut Actor<'_>) {
    life.start();
    let two =
        |vm: u64, day: u64| vec![("root", disk(vm, day, 70_000)), ("data", disk(vm + 100, day, 50_000))];
    life.backup("a", &two(1, 0));
    let a = life.send("a", &two(1, 1), true);
    let b = life.send("b", &two(2, 0), true);
    let c = life.send("c", &two(3, 0), false);
    life.commit("b", b);
    life.engine().abort(c, "the agent gave up").unwrap();
    life.commit("a", a);
    // What an aborted session brought serves the next one.
    life.backup("c", &two(3, 0));
    life.send("d", &two(4, 0), false);
    life.clock.advance_ms(3_600_000);
    assert_eq!(life.engine().expire_sessions(), 1);
    life.backup("d", &two(4, 0));
    // A session that the stop ends.
    life.send("e", &two(5, 0), false);
    life.stop();
    life.start();
    life.backup("e", &two(5, 0));
    life.stop();
}

/// Rounds of reclaim: what failed sessions left goes, and the small containers of many days are merged, between backups
/// and beside one in progress.
fn reclaims(life: &mut Actor<'_>) {
    life.start();
    for day in 0..9 {
        life.backup("web", &vec![("root", disk(1, day, 60_000))]);
    }
    let left = life.send("c", &vec![("root", disk(3, 0, 70_000))], true);
    life.engine().abort(left, "the agent gave up").unwrap();
    let session = life.send("d", &vec![("root", disk(4, 0, 70_000))], true);
    assert!(life.reclaim().containers_deleted > 0);
    life.commit("d", session);
    life.backup("web", &vec![("root", disk(1, 9, 60_000))]);
    life.stop();
    life.start();
    // What failed is there no more, and comes again.
    life.backup("c", &vec![("root", disk(3, 0, 70_000))]);
    life.reclaim();
    life.stop();
}

/// Sessions that share new chunks, and every way in which the one that brings them goes on.
fn sharing(life: &mut Actor<'_>) {
    life.start();
    let bring_rest = |first: &Sharer| {
        first.send(first.ask().needed);
        first.describe();
    };
    let [first, second] = life.share(["a", "b"], 30);
    bring_rest(&first);
    second.wait(Some(&first));
    life.commit("b", second.session);
    assert!(first.finish());
    life.commit("a", first.session);
    // It gives up: what has arrived of it is sealed, and the second is asked for the rest.
    let [first, second] = life.share(["c", "d"], 31);
    life.engine().abort(first.session, "the agent gave up").unwrap();
    second.wait(None);
    life.commit("d", second.session);
    // Its connection is lost: the second is asked for the rest, and then has brought it.
    let [mut first, second] = life.share(["e", "f"], 32);
    first.reconnect(life.engine());
    second.wait(None);
    life.commit("f", second.session);
    bring_rest(&first);
    assert!(first.finish());
    life.commit("e", first.session);
    drop((first, second));
    life.stop();
}

/// Many small transactions of the catalog beside few backups.
fn tokens(life: &mut Actor<'_>) {
    life.start();
    for number in 0..6 {
        life.create_token(&format!("token-{number}"));
        if number % 2 == 1 {
            life.revoke_token(number);
        }
        if number % 3 == 0 {
            life.backup("web", &vec![("root", disk(7, u64::try_from(number).unwrap(), 60_000))]);
        }
        if number == 2 {
            life.engine().catalog().checkpoint().unwrap();
        }
        if number == 4 {
            life.stop();
            life.start();
        }
    }
    life.stop();
}

/// Index runs that are written, merged, distributed to shards and removed, again and again.
fn merges(life: &mut Actor<'_>) {
    life.start();
    for day in 0..9 {
        life.backup("web", &vec![("root", noise(50 + day, 350_000))]);
        if day % 2 == 1 {
            life.stop();
            life.start();
        }
    }
    life.stop();
}
