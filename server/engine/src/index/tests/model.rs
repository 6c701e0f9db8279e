//! Random operations against a map.

use std::collections::{BTreeSet, HashSet};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Insert {
        chunks: Vec<u16>,
    },
    /// The same container once more, as a replay may.
    InsertAgain(u8),
    Delete(u8),
    Forget(u8),
    Checkpoint,
    Settle,
    Reopen,
    Verify,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => proptest::collection::vec(0..400u16, 0..150).prop_map(|chunks| Op::Insert { chunks }),
        1 => any::<u8>().prop_map(Op::InsertAgain),
        1 => any::<u8>().prop_map(Op::Delete),
        1 => any::<u8>().prop_map(Op::Forget),
        3 => Just(Op::Checkpoint),
        1 => Just(Op::Settle),
        2 => Just(Op::Reopen),
        1 => Just(Op::Verify),
    ]
}

/// Keys that are anything but uniform: few prefixes, many suffixes, all shards' edges.
fn crowded_key(chunk: u16) -> IndexKey {
    let [high, low] = chunk.to_be_bytes();
    match chunk % 3 {
        0 => key(u64::from(chunk)),
        1 => IndexKey([0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, high, low]),
        _ => IndexKey([low, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, high]),
    }
}

struct Model {
    volume: MemoryVolume,
    live: Arc<Mutex<HashSet<ContainerId>>>,
    directories: Directories,
    background: bool,
}

impl Model {
    fn open(&self) -> Index {
        let live = Arc::clone(&self.live);
        let live: LiveFn = Arc::new(move |id| live.lock().contains(&id));
        let index = open(&self.volume, IndexOptions { live, background: self.background, ..tiny() });
        replay(&index, &self.directories);
        index
    }

    fn pick(&self, number: u8) -> Option<u64> {
        let at = usize::from(number) % self.directories.len().max(1);
        self.directories.keys().nth(at).copied()
    }

    fn apply(&mut self, index: Index, op: &Op, next: u64) -> Index {
        match op {
            Op::Insert { chunks } => {
                let locate = |(slot, &chunk): (u16, &u16)| (crowded_key(chunk), location(next, slot));
                self.directories.insert(next, (0..).zip(chunks).map(locate).collect());
                self.live.lock().insert(container(next));
                insert(&index, &self.directories, next).unwrap();
            }
            Op::InsertAgain(number) => {
                self.pick(*number).into_iter().for_each(|n| insert(&index, &self.directories, n).unwrap());
            }
            Op::Delete(number) => {
                if let Some(number) = self.pick(*number) {
                    self.live.lock().remove(&container(number));
                    index.forget_container(container(number));
                    self.directories.remove(&number);
                }
            }
            Op::Forget(number) => {
                self.pick(*number).into_iter().for_each(|n| index.forget_container(container(n)));
            }
            Op::Checkpoint => index.checkpoint().unwrap(),
            Op::Settle => index.settle().unwrap(),
            Op::Reopen => {
                drop(index);
                return self.open();
            }
            Op::Verify => {
                index.verify().unwrap();
            }
        }
        index
    }

    /// Live entries are all found, and nothing is found that was never there.
    fn check(&self, index: &Index) {
        for chunk in 0..400 {
            let key = crowded_key(chunk);
            let found: BTreeSet<_> = candidates(index, &key).into_iter().collect();
            let entries = self.directories.values().flatten();
            let wanted: BTreeSet<_> = entries.filter(|(k, _)| *k == key).map(|(_, at)| *at).collect();
            let extra = found.difference(&wanted);
            assert!(wanted.is_subset(&found), "chunk {chunk}: {found:?} lacks some of {wanted:?}");
            for location in extra {
                let known = self.directories.contains_key(&location.container.get());
                assert!(!known, "chunk {chunk}: {location:?} was never stored there");
            }
        }
    }
}

fn play(ops: &[Op], background: bool) {
    let mut model = Model {
        volume: MemoryVolume::new(),
        live: Arc::default(),
        directories: Directories::new(),
        background,
    };
    let mut index = model.open();
    for (next, op) in (1..).zip(ops) {
        index = model.apply(index, op, next);
    }
    model.check(&index);
    drop(index);
    model.check(&model.open());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agrees_with_a_map(ops in proptest::collection::vec(op(), 1..60)) {
        play(&ops, false);
    }

    #[test]
    fn agrees_with_a_map_with_a_thread(ops in proptest::collection::vec(op(), 1..60)) {
        play(&ops, true);
    }
}
