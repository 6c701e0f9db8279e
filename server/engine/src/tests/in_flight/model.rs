//! Random interleavings of many streams, message by message, against what each of them was told and must get back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdfast_catalog::{DetailFilter, PageRequest};
use holdfast_proto::ErrorCode;
use holdfast_types::ids::ContainerClass;
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};

use super::agent::{Agent, Next, chunk, image};
use super::{assert_empty, copies};
use crate::container::list_containers;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::tests::Bench;
use crate::tests::agent::restore;

/// Chunks that all disks are made of.
const CHUNKS: u64 = 30;
const VMS: usize = 6;
const STEPS: usize = 250;

/// Times that every stream is driven at the end, until all are done. A seal is waited for 5 ms at a time.
const ROUNDS_MAX: usize = 20_000;

struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn disk(&mut self) -> Vec<Vec<u64>> {
        let extents = 1 + self.below(2);
        (0..extents).map(|_| (0..1 + self.below(8)).map(|_| self.below(CHUNKS)).collect()).collect()
    }
}

struct Model<'a> {
    seed: u64,
    bench: &'a Bench,
    volume: &'a FaultyVolume<MemoryVolume>,
    engine: &'a Engine,
    random: Random,
    agents: Vec<Option<Agent<'a>>>,
    /// Restore points and what is on their disks.
    committed: Vec<(String, Vec<Vec<u64>>)>,
    /// Set if streams may break and sessions fail.
    rough: bool,
    asked_again: usize,
}

impl<'a> Model<'a> {
    fn act(&mut self) {
        let vm = usize::try_from(self.random.below(VMS as u64)).unwrap();
        let trouble = if self.rough { self.random.below(100) } else { 100 };
        match trouble {
            0..3 => self.agents[vm].iter_mut().for_each(Agent::disconnect),
            3..5 => self.abort(vm),
            5..8 => self.bench.clock.advance_ms(i64::try_from(self.random.below(70_000)).unwrap()),
            8 => drop(self.engine.expire_sessions()),
            9..12 => drop(self.engine.parts().0.store.leftovers.condemn()),
            12 => self.volume.fail_next(OpKind::Seal, 1 + self.random.below(3), Fault::Full),
            13..16 => self.reopen(vm),
            _ => self.step(vm),
        }
    }

    fn step(&mut self, vm: usize) {
        let Some(agent) = &mut self.agents[vm] else {
            let disk = self.random.disk();
            self.agents[vm] = Some(Agent::start(self.engine, &format!("vm-{vm}"), &disk));
            return;
        };
        if agent.stream.is_none() {
            return self.reopen(vm);
        }
        match agent.step() {
            Ok(()) => self.take_done(vm),
            Err(error) => self.failed(vm, &error),
        }
    }

    fn reopen(&mut self, vm: usize) {
        let Some(agent) = &mut self.agents[vm] else { return };
        if let Err(error) = agent.open() {
            self.failed(vm, &error);
        }
    }

    fn abort(&mut self, vm: usize) {
        if let Some(agent) = self.agents[vm].take() {
            self.asked_again += agent.again.len();
            self.engine.abort(agent.session, "on purpose").unwrap();
        }
    }

    /// An agent is told only of what went wrong, and never of another's trouble.
    fn failed(&mut self, vm: usize, error: &EngineError) {
        let expected = matches!(error.code(), ErrorCode::Full | ErrorCode::SessionGone);
        assert!(self.rough && expected, "seed {}: {error}", self.seed);
        self.abort(vm);
    }

    fn take_done(&mut self, vm: usize) {
        let Some(agent) = self.agents[vm].take_if(|agent| agent.done.is_some()) else { return };
        self.asked_again += agent.again.len();
        let done = agent.done.unwrap();
        let lengths = agent.extents.iter().flatten().map(|number| chunk(*number).len() as u64);
        let row = &done.details[0];
        assert_eq!(row.bytes, lengths.sum::<u64>(), "seed {}", self.seed);
        assert_eq!(row.bytes, row.unchanged_bytes + row.dup_bytes + row.new_bytes, "seed {}", self.seed);
        self.committed.push((done.backup_id, agent.extents));
    }

    /// Every stream gets to its end: all but one that says nothing any more.
    fn drain(&mut self) {
        let silent = self.rough.then(|| usize::try_from(self.random.below(VMS as u64)).unwrap());
        for round in 0..ROUNDS_MAX {
            let left: Vec<usize> =
                (0..VMS).filter(|vm| self.agents[*vm].is_some() && Some(*vm) != silent).collect();
            if left.is_empty() {
                return;
            }
            let mut waiting = 0;
            for vm in &left {
                self.step(*vm);
                let next = self.agents[*vm].as_ref().and_then(|agent| agent.next.front());
                waiting += usize::from(next == Some(&Next::Wait));
            }
            // Only the silent one is waited for, which has a bound.
            if self.rough && waiting == left.len() && round % 20 == 19 {
                self.bench.clock.advance_ms(60_000);
            }
        }
        panic!("seed {}: a stream that waits was never answered", self.seed);
    }

    fn check(&mut self) {
        for vm in 0..VMS {
            self.abort(vm);
        }
        for (backup, disk) in &self.committed {
            let bytes = restore(self.engine, backup, "root").unwrap();
            assert!(bytes == image(disk), "seed {}: {backup}", self.seed);
        }
        let page = PageRequest { size: 1000, ..PageRequest::default() };
        let rows = self.engine.catalog().details(&DetailFilter::default(), page).unwrap().items;
        let files = list_containers(self.volume).unwrap().containers;
        let data = files.iter().filter(|(name, _)| name.class == ContainerClass::Data);
        let stored: u64 = data.map(|(_, bytes)| bytes).sum();
        assert_eq!(rows.iter().map(|row| row.post_lc).sum::<u64>(), stored, "seed {}", self.seed);
        if !self.rough {
            self.check_stored_once(
                &rows.iter().map(|row| (row.new_chunks, row.new_bytes)).collect::<Vec<_>>(),
            );
        }
        assert_empty(self.engine);
    }

    /// Asserts that every chunk is stored once, and paid for once, as nothing went wrong.
    fn check_stored_once(&self, new: &[(u64, u64)]) {
        let chunks: HashSet<u64> = self.committed.iter().flat_map(|(_, disk)| disk.concat()).collect();
        let copies: HashMap<_, _> = copies(self.engine, self.volume);
        assert_eq!((copies.len(), self.asked_again), (chunks.len(), 0), "seed {}", self.seed);
        assert!(copies.values().all(|copies| *copies == 1), "seed {}", self.seed);
        assert_eq!(new.iter().map(|row| row.0).sum::<u64>(), chunks.len() as u64, "seed {}", self.seed);
        let bytes: usize = chunks.iter().map(|number| chunk(*number).len()).sum();
        assert_eq!(new.iter().map(|row| row.1).sum::<u64>(), bytes as u64, "seed {}", self.seed);
    }
}

/// Returns how many chunks were asked again.
fn run(seed: u64, rough: bool) -> usize {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let mut model = Model {
        seed,
        bench: &bench,
        volume: &volume,
        engine: &engine,
        random: Random(seed),
        agents: (0..VMS).map(|_| None).collect(),
        committed: Vec::new(),
        rough,
        asked_again: 0,
    };
    for _ in 0..STEPS {
        model.act();
    }
    model.drain();
    model.check();
    model.asked_again
}

#[test]
fn streams_that_share_chunks_store_each_once() {
    for seed in 0..20 {
        run(seed, false);
    }
}

#[test]
fn whatever_goes_wrong_every_restore_point_is_whole_and_every_stream_answered() {
    let asked_again: usize = (0..40).map(|seed| run(seed, true)).sum();
    assert!(asked_again > 0, "nothing was ever asked again");
}
