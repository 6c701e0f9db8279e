//! Data that cannot be read is named, and nothing it may need is called dead.

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_types::ids::ContainerClass;
use holdfast_volume::{MemoryVolume, Volume};

use super::super::live::{Candidates, Scope};
use super::super::mark::mark;
use super::super::roots::Roots;
use super::copies::copy_of;
use super::model::bytes_of;
use super::{Control, EXTENT, all_of, mark_all, noise, places};
use crate::container::ContainerName;
use crate::engine::Engine;
use crate::tests::agent::backup;
use crate::tests::{Bench, namespace};

fn two_vms() -> (Bench, Engine, MemoryVolume) {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    for (vm, seed) in [("one", 1), ("two", 2)] {
        let mut disk = vec![0; 2 * EXTENT];
        disk[..200_000].copy_from_slice(&noise(seed, 200_000));
        disk[EXTENT..EXTENT + 200_000].copy_from_slice(&noise(seed + 10, 200_000));
        backup(&engine, vm, &[("disk", &disk)]).unwrap();
    }
    (bench, engine, volume)
}

fn candidates(engine: &Engine, class: ContainerClass) -> Vec<super::super::live::Candidate> {
    all_of(engine).iter().filter(|one| one.class == class).copied().collect()
}

#[test]
fn a_recipe_that_is_lost_is_named_and_makes_the_mark_incomplete() {
    let (_bench, engine, volume) = two_vms();
    let first = candidates(&engine, ContainerClass::Recipe)[0];
    volume.remove(&ContainerName { id: first.id, class: first.class }.blob()).unwrap();
    engine.parts().0.store.containers.remove(first.id);
    let marked = mark_all(&engine);
    let findings = &marked.incomplete[&namespace(&engine)];
    assert_eq!(findings.len(), 1);
    let finding = &findings[0];
    assert_eq!((finding.vm.as_str(), &*finding.disk), ("one", "disk"));
    assert!(finding.reason.contains("recipe node"), "{finding:?}");
    assert!(engine.catalog().backup(finding.backup).unwrap().is_some());
}

#[test]
fn what_is_left_of_a_damaged_recipe_is_followed() {
    let (_bench, engine, _) = two_vms();
    let whole = places(&mark_all(&engine));
    let first = candidates(&engine, ContainerClass::Recipe)[0];
    engine.parts().0.store.note_damage(first.id, None, "a test says so");
    let marked = mark_all(&engine);
    assert!(marked.incomplete.is_empty(), "{:?}", marked.incomplete);
    assert!(marked.live.get(first.id).unwrap().is_full(), "nothing of it may go");
    assert!(marked.salvaged.contains(&namespace(&engine)));
    let others: HashSet<_> = whole.into_iter().filter(|(id, _)| *id != first.id).collect();
    let marked: HashSet<_> = places(&marked).into_iter().filter(|(id, _)| *id != first.id).collect();
    assert_eq!(marked, others);
}

#[test]
fn a_chunk_that_known_damage_took_keeps_the_container_it_was_in() {
    let (_bench, engine, _) = two_vms();
    let whole = places(&mark_all(&engine));
    let data = candidates(&engine, ContainerClass::Data)[0];
    engine.parts().0.store.note_damage(data.id, Some(0), "a test says so");
    let marked = mark_all(&engine);
    assert!(marked.incomplete.is_empty(), "{:?}", marked.incomplete);
    let lost = &marked.lost[&namespace(&engine)];
    assert!(!lost.is_empty() && lost.iter().all(|one| one.vm == "one" && one.reason.contains("damaged")));
    assert!(marked.live.get(data.id).unwrap().is_full());
    assert!(places(&marked).is_superset(&whole));
}

#[test]
fn a_chunk_that_is_nowhere_makes_the_mark_incomplete() {
    let (_bench, engine, _) = two_vms();
    let data = candidates(&engine, ContainerClass::Data)[0];
    engine.parts().0.store.leftovers.note_gone(data.id);
    let marked = mark_all(&engine);
    let findings = &marked.incomplete[&namespace(&engine)];
    assert!(findings.iter().all(|one| one.vm == "one" && one.reason.contains("no known damage")));
}

#[test]
fn of_two_copies_the_settled_one_is_live() {
    let (_bench, engine, _) = two_vms();
    let data = candidates(&engine, ContainerClass::Data)[0];
    // The same chunks again, found first from now on.
    let copy = copy_of(&engine, data.id);
    let marked = mark_all(&engine);
    assert!(marked.live.get(data.id).unwrap().is_empty(), "the newest copy is preferred");
    assert!(marked.live.get(copy).unwrap().is_full());
    let unsettled = Scope { below: copy.get(), ..Scope::all() };
    let roots = Roots::load(engine.parts().0).unwrap();
    let marked = mark(engine.parts().0, &roots, &all_of(&engine), &unsettled, &Control::default()).unwrap();
    assert!(marked.live.get(data.id).unwrap().is_full(), "what may still be given up does not count");
    let only_old = Candidates::of([data]);
    let marked = mark(engine.parts().0, &roots, &only_old, &unsettled, &Control::default()).unwrap();
    assert_eq!(places(&marked).iter().map(|(id, _)| *id).collect::<HashSet<_>>(), HashSet::from([data.id]));
}

#[test]
fn what_is_attributed_adds_up_when_chunks_have_moved() {
    let (_bench, engine, _) = two_vms();
    let data = candidates(&engine, ContainerClass::Data)[0];
    copy_of(&engine, data.id);
    let live = bytes_of(&engine, ContainerClass::Data, &places(&mark_all(&engine)));
    let whole = engine.attribute(&Control::default()).unwrap();
    assert!(whole.is_complete && live > 0);
    assert_eq!(whole.live_bytes, live);
    assert!(whole.backups.iter().all(|one| one.exclusive_bytes == one.attributed_bytes));
}
