//! The mark against a plain model that walks everything, over random backups.

mod copies;
mod damage;
mod model;

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_types::ids::{BackupId, ContainerClass};
use holdfast_volume::MemoryVolume;
use proptest::prelude::*;

use super::attribution::attribute_in_windows;
use super::control::Control;
use super::live::{Candidates, Scope};
use super::mark::{Marked, mark};
use super::report::freed_in_windows;
use super::roots::Roots;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::tests::Bench;
use crate::tests::agent::backup;
use model::{Model, Place, bytes_of};

const EXTENT: usize = 4 << 20;

/// All candidates in one window.
pub(super) fn all_of(engine: &Engine) -> Candidates {
    let window = Candidates::window(&engine.parts().0.catalog, None, u64::MAX, |_| true).unwrap();
    window.map(|(all, _)| all).unwrap_or_default()
}

pub(super) fn mark_all(engine: &Engine) -> Marked {
    let roots = Roots::load(engine.parts().0).unwrap();
    mark(engine.parts().0, &roots, &all_of(engine), &Scope::all(), &Control::default()).unwrap()
}

/// Places of all chunks and nodes that a mark found live.
pub(super) fn places(marked: &Marked) -> HashSet<Place> {
    marked.live.iter().flat_map(|(id, live)| live.iter().map(move |number| (id, number))).collect()
}

/// A change to a VM's disk between two backups. Places and seeds are small, so that VMs share much.
#[derive(Debug, Clone)]
enum Change {
    /// Overwrites the beginning of a block of an extent.
    Write {
        extent: usize,
        block: usize,
        seed: u8,
    },
    Fill {
        extent: usize,
        seed: u8,
    },
    Zero {
        extent: usize,
    },
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => (0..3usize, 0..16usize, 0..4u8).prop_map(|(extent, block, seed)| Change::Write { extent, block, seed }),
        2 => (0..3usize, 0..3u8).prop_map(|(extent, seed)| Change::Fill { extent, seed }),
        1 => (0..3usize).prop_map(|extent| Change::Zero { extent }),
    ]
}

/// Noise that is the same for the same seed.
pub(super) fn noise(seed: u8, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    blake3::Hasher::new().update(&[seed]).finalize_xof().fill(&mut bytes);
    bytes
}

fn apply(disk: &mut [u8], change: &Change) {
    let extents = disk.len() / EXTENT;
    match *change {
        Change::Write { extent, block, seed } => {
            let at = extent % extents * EXTENT + block * (EXTENT / 16);
            disk[at..at + 20_000].copy_from_slice(&noise(seed + 100, 20_000));
        }
        Change::Fill { extent, seed } => {
            // A sixteenth of an extent: much data costs much time in a debug build.
            let at = extent % extents * EXTENT;
            disk[at..at + EXTENT / 8].copy_from_slice(&noise(seed, EXTENT / 8));
        }
        Change::Zero { extent } => disk[extent % extents * EXTENT..][..EXTENT].fill(0),
    }
}

fn histories() -> impl Strategy<Value = Vec<(usize, Vec<Change>)>> {
    proptest::collection::vec((0..3usize, proptest::collection::vec(change(), 0..4)), 1..8)
}

/// Backs up three VMs, of which the first has two disks, as `history` says; the restore points made.
fn live_through(engine: &Engine, history: &[(usize, Vec<Change>)]) -> Vec<BackupId> {
    let mut disks = [vec![0u8; 2 * EXTENT], vec![0u8; 3 * EXTENT], vec![0u8; 2 * EXTENT]];
    let mut made = Vec::new();
    for (vm, changes) in history {
        changes.iter().for_each(|change| apply(&mut disks[*vm], change));
        let (name, disk): (_, &[u8]) = (format!("vm-{vm}"), &disks[*vm]);
        let done = match vm {
            0 => backup(engine, &name, &[("a", disk), ("b", &disk[..EXTENT])]),
            _ => backup(engine, &name, &[("a", disk)]),
        };
        made.push(done.unwrap().backup_id.parse().unwrap());
    }
    made
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn the_mark_is_what_a_plain_walk_finds(history in histories(), chosen in any::<u8>()) {
        let bench = Bench::new();
        let engine = bench.open(Arc::new(MemoryVolume::new()));
        let made = live_through(&engine, &history);
        let model = Model::of(&engine, &made);
        let marked = mark_all(&engine);
        prop_assert!(marked.incomplete.is_empty() && marked.lost.is_empty());
        prop_assert_eq!(&places(&marked), &model.places());
        // Some of them alone.
        let (some, others): (Vec<_>, Vec<_>) =
            made.iter().enumerate().partition(|(place, _)| chosen >> (place % 8) & 1 == 1);
        let [some, others] = [some, others].map(|part| part.into_iter().map(|(_, id)| *id).collect::<Vec<_>>());
        let roots = Roots::of(engine.parts().0, &some).unwrap();
        let marked = mark(engine.parts().0, &roots, &all_of(&engine), &Scope::all(), &Control::default()).unwrap();
        prop_assert_eq!(&places(&marked), &Model::of(&engine, &some).places());
        // Deleting these restore points frees exactly what only they have, however small the windows are.
        let expected = model.bytes_only_in(&engine, &some, &others);
        for window_bytes in [u64::MAX, 1] {
            let freed = freed_in_windows(engine.parts().0, &some, &Control::default(), window_bytes).unwrap();
            prop_assert!(freed.is_exact);
            prop_assert_eq!((freed.data_bytes, freed.recipe_bytes), expected);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn what_is_attributed_adds_up_to_what_is_live(history in histories()) {
        let bench = Bench::new();
        let engine = bench.open(Arc::new(MemoryVolume::new()));
        let made = live_through(&engine, &history);
        let model = Model::of(&engine, &made);
        let live = bytes_of(&engine, ContainerClass::Data, &places(&mark_all(&engine)));
        let whole = engine.attribute(&Control::default()).unwrap();
        prop_assert!(whole.is_complete);
        prop_assert_eq!(whole.live_bytes, live);
        prop_assert_eq!(engine.catalog().attribution().unwrap().unwrap().live_bytes, live);
        prop_assert_eq!(whole.backups.iter().map(|one| one.attributed_bytes).sum::<u64>(), live);
        prop_assert_eq!(whole.backups.len(), made.len());
        for one in &whole.backups {
            let others: Vec<_> = made.iter().copied().filter(|id| *id != one.backup).collect();
            let (exclusive, _) = model.bytes_only_in(&engine, &[one.backup], &others);
            prop_assert_eq!(one.exclusive_bytes, exclusive);
            prop_assert!(one.attributed_bytes >= exclusive);
        }
        let vm_of = |id: &BackupId| engine.catalog().backup(*id).unwrap().unwrap().vm_id;
        for (vm, exclusive) in &whole.vms {
            let (own, others): (Vec<_>, Vec<_>) = made.iter().copied().partition(|id| vm_of(id) == *vm);
            prop_assert_eq!(model.bytes_only_in(&engine, &own, &others).0, *exclusive);
        }
        // All are of one job, and nothing is shared beyond it.
        prop_assert_eq!(whole.jobs.values().copied().collect::<Vec<_>>(), vec![live]);
        // However small the windows are.
        prop_assert_eq!(attribute_in_windows(engine.parts().0, &Control::default(), 1).unwrap(), whole);
    }
}

#[test]
fn windows_give_the_same_answer_as_all_at_once() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let changes = vec![Change::Fill { extent: 0, seed: 1 }, Change::Fill { extent: 1, seed: 2 }];
    live_through(&engine, &[(0, changes.clone()), (1, changes), (1, vec![Change::Zero { extent: 1 }])]);
    let whole = mark_all(&engine);
    let roots = Roots::load(engine.parts().0).unwrap();
    let (mut after, mut windows, mut found) = (None, 0, HashSet::new());
    while let Some((one, last)) = Candidates::window(&engine.parts().0.catalog, after, 1, |_| true).unwrap() {
        assert_eq!(one.len(), 1, "no two containers fit a window of one byte");
        let marked = mark(engine.parts().0, &roots, &one, &Scope::all(), &Control::default()).unwrap();
        assert_eq!(marked.references, whole.references);
        found.extend(places(&marked));
        (after, windows) = (Some(last), windows + 1);
    }
    assert_eq!((windows, found), (whole.live.len(), places(&whole)));
    assert!(windows > 2);
}

#[test]
fn a_stop_ends_a_mark_and_progress_gets_to_the_end() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    live_through(&engine, &[(0, vec![Change::Fill { extent: 0, seed: 1 }])]);
    let (roots, candidates) = (Roots::load(engine.parts().0).unwrap(), all_of(&engine));
    let control = Control::default();
    let marked = mark(engine.parts().0, &roots, &candidates, &Scope::all(), &control).unwrap();
    let progress = control.progress();
    assert_eq!((progress.done, progress.references), (progress.total, marked.references));
    assert!(progress.total == 2 && marked.references > 20 && progress.read_bytes > 0, "{progress:?}");
    control.stop();
    let stopped = mark(engine.parts().0, &roots, &candidates, &Scope::all(), &control);
    assert!(matches!(stopped, Err(EngineError::Stopped)), "{stopped:?}");
}
