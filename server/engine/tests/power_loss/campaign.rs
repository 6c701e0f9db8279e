//! Many crashes: each from a seed, which decides the life, the moment and what the disk is left with.
//!
//! Of ten crashes, six are a power failure alone; two are followed by another during the start and the backup after
//! it; in two a process is killed, the next one goes on with what the system still has in memory, and then the power
//! fails. A state that was looked at before is not looked at again: it counts.
//!
//! Or every event of every life, one after the other, each with several of the states that a power failure may leave.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::disk::History;
use crate::facts::Facts;
use crate::life::{Actor, Life};
use crate::random::Random;
use crate::recorder::{Event, Recorder};
use crate::tree::Tree;
use crate::verify::verify;

/// Threads that crash and look. Most of the work is the start of an engine.
const THREADS: u64 = 2;

/// Where what failed is kept.
const KEPT: &str = env!("CARGO_TARGET_TMPDIR");

/// Seeds to try, and how often to say how far it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) first_seed: u64,
    pub(crate) crashes: u64,
    /// After every event of every life, so many times; 0: at random moments.
    pub(crate) each: u64,
    pub(crate) report_every: Option<u64>,
}

/// What became of a plan.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) failures: Vec<String>,
    pub(crate) crashes: u64,
    pub(crate) distinct: usize,
}

struct Campaign<'a> {
    lives: &'a [Life],
    folder: &'a Path,
    seen: Mutex<HashSet<[u8; 32]>>,
    each: u64,
}

/// Tries every seed of the plan, or until one fails.
pub(crate) fn run(lives: &[Life], folder: &Path, plan: Plan) -> Outcome {
    let campaign = Campaign { lives, folder, seen: Mutex::default(), each: plan.each };
    let crashes = if plan.each > 0 { plan.each * moments(lives) } else { plan.crashes };
    let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (campaign, next, failed, failures) = (&campaign, &next, &failed, &failures);
            scope.spawn(move || {
                let root = folder.join(format!("thread-{thread}"));
                while !failed.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= crashes {
                        return;
                    }
                    if let Err(failure) = campaign.guarded(plan.first_seed + number, &root) {
                        failed.store(true, Ordering::Relaxed);
                        failures.lock().unwrap().push(failure);
                        return;
                    }
                    if plan.report_every.is_some_and(|every| (number + 1).is_multiple_of(every)) {
                        println!("{} of {crashes} crashes survived", number + 1);
                    }
                }
            });
        }
    });
    let distinct = campaign.seen.lock().unwrap().len();
    Outcome { failures: failures.into_inner().unwrap(), crashes, distinct }
}

/// Moments between events, and before and after all of them.
fn moments(lives: &[Life]) -> u64 {
    lives.iter().map(|life| life.history.events.len() as u64 + 1).sum()
}

impl Campaign<'_> {
    /// The life and moment of a number, when all are tried one after the other.
    fn in_turn(&self, number: u64) -> Option<(&Life, usize)> {
        let mut number = usize::try_from(number.checked_div(self.each)?).unwrap();
        for life in self.lives {
            let moments = life.history.events.len() + 1;
            if number < moments {
                return Some((life, number));
            }
            number -= moments;
        }
        None
    }

    /// A panic is a failure like any other.
    fn guarded(&self, seed: u64, root: &Path) -> Result<(), String> {
        let mut crash = Crash { seed, said: Vec::new(), left: None };
        let tried = catch_unwind(AssertUnwindSafe(|| self.crash(&mut crash, root)));
        let outcome = tried.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(ToString::to_string);
            Err(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
        });
        outcome.map_err(|wrong| {
            let kept = crash.keep();
            format!(
                "seed {seed}: {wrong}\n{}\nThe folder as the crash left it: {}\n{}",
                crash.said.join("\n"),
                kept.display(),
                match self.each {
                    0 => format!("To try this seed again: cargo xtask soak --replay {seed}"),
                    each => format!("Of HOLDFAST_EACH_EVENT={each}"),
                }
            )
        })
    }

    fn crash(&self, crash: &mut Crash, root: &Path) -> Result<(), String> {
        let mut random = Random::new(crash.seed);
        let (life, position, kind) = match self.in_turn(crash.seed) {
            Some((life, position)) => (life, position, 0),
            None => {
                let life = random.pick(self.lives);
                let moments = life.facts.acknowledgements();
                let kind = random.below(10);
                // What a killed process leaves matters most between a change and its flush.
                let beside_flushes = if kind < 8 { 4 } else { 2 };
                (life, moment(&life.history.events, 0, &moments, beside_flushes, &mut random), kind)
            }
        };
        crash.said.push(format!("life {:?}, event {position} of {}", life.name, life.history.events.len()));
        let known = life.facts.at(position);
        match kind {
            0..6 => {
                let tree = life.history.crash(position, &mut random);
                let Facts { points, tokens, deletions, kept, repository, spoiling, .. } = &known;
                let held = format!("{points:?}{tokens:?}{deletions:?}{kept:?}{repository:?}{spoiling:?}");
                let mut key = blake3::Hasher::new();
                key.update(&tree.digest()).update(held.as_bytes());
                if self.seen.lock().unwrap().insert(*key.finalize().as_bytes()) {
                    self.look(crash, life, root, &tree, &known, &mut random)?;
                }
                Ok(())
            }
            6..8 => {
                let tree = life.history.crash(position, &mut random);
                let base = History::from(&tree);
                crash.said.push("power fails, and again after the start".to_owned());
                self.twice(crash, life, root, base, &known, &mut random)
            }
            _ => {
                let base = life.history.until(position);
                crash.said.push("the process is killed, the next one starts, then power fails".to_owned());
                self.twice(crash, life, root, base, &known, &mut random)
            }
        }
    }

    /// Starts from `tree`.
    fn look(
        &self,
        crash: &mut Crash,
        life: &Life,
        root: &Path,
        tree: &Tree,
        known: &Facts,
        random: &mut Random,
    ) -> Result<(), String> {
        crash.left = Some(tree.clone());
        let home = Home::new(root, tree);
        verify(&mut Actor::new(&home.0, life.manner, &|| 0), known, random)
    }

    /// Starts from what everyone sees at the end of `base`, and fails once more in what follows.
    fn twice(
        &self,
        crash: &mut Crash,
        life: &Life,
        root: &Path,
        mut base: History,
        known: &Facts,
        random: &mut Random,
    ) -> Result<(), String> {
        let begun = base.events.len();
        let (tree, paths) = base.seen(begun);
        crash.left = Some(tree.clone());
        let home = Home::new(root, &tree);
        let recorder = Recorder::start(&home.0, base.nodes.clone(), &paths);
        let position = || begun + recorder.position();
        let mut actor = Actor::new(&home.0, life.manner, &position);
        verify(&mut actor, known, random)?;
        let later = std::mem::take(&mut actor.facts);
        drop(actor);
        let (events, nodes) = recorder.finish();
        base.events.extend(events);
        base.nodes = nodes;
        drop(home);
        let position = moment(&base.events, begun, &later.acknowledgements(), 4, random);
        crash.said.push(format!("again at event {position} of {begun} to {}", base.events.len()));
        let tree = base.crash(position, random);
        self.look(crash, life, &self.folder.join(root), &tree, &known.clone().and(later.at(position)), random)
    }
}

/// When to crash, at `first` or later: beside a flush (once in `beside_flushes` times), just when something was
/// acknowledged, or anywhere.
fn moment(
    events: &[Event],
    first: usize,
    acknowledged: &[usize],
    beside_flushes: usize,
    random: &mut Random,
) -> usize {
    let anywhere = first + random.below(events.len() - first + 1);
    match random.below(beside_flushes) {
        1 if beside_flushes > 2 && !acknowledged.is_empty() => *random.pick(acknowledged),
        0 => {
            let flush = |event: &Event| matches!(event, Event::Sync { .. });
            let next =
                events[anywhere..].iter().position(flush).map_or(events.len(), |after| anywhere + after);
            (next + random.below(2)).min(events.len())
        }
        _ => anywhere,
    }
}

/// A folder with a tree in it, for the time of one look.
struct Home(PathBuf);

impl Home {
    fn new(root: &Path, tree: &Tree) -> Self {
        std::fs::create_dir(root).unwrap();
        let home = Self(root.to_owned());
        tree.write(root);
        home
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One seed: what to say of it when it fails.
struct Crash {
    seed: u64,
    said: Vec<String>,
    left: Option<Tree>,
}

impl Crash {
    /// Keeps the folder from which the engine could not go on.
    fn keep(&self) -> PathBuf {
        let folder = Path::new(KEPT).join(format!("power-loss-{}", self.seed));
        let _ = std::fs::remove_dir_all(&folder);
        if let Some(tree) = &self.left {
            std::fs::create_dir_all(&folder).unwrap();
            tree.write(&folder);
        }
        folder
    }
}
