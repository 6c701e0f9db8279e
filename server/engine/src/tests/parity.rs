//! Parity makes damaged and lost containers again, and never anything else.

use std::sync::Arc;

use holdfast_types::ids::{ContainerClass, ContainerId, SessionId};
use holdfast_volume::testing::{Damage, FaultyVolume, list, put};
use holdfast_volume::{MemoryVolume, Volume as _};

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::check::CheckOptions;
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Step};
use crate::parity;
use crate::parity_job::ParityScheme;
use crate::scrub::Load;

pub(super) const MIB: usize = 1 << 20;
const DAY_MS: i64 = 86_400_000;

#[derive(Debug)]
pub(super) struct Never;

impl Load for Never {
    fn is_busy(&self) -> bool {
        false
    }
}

pub(super) fn names(volume: &MemoryVolume, class: ContainerClass) -> Vec<ContainerName> {
    let all = list_containers(volume).unwrap().containers.into_iter().map(|(name, _)| name);
    all.filter(|name| name.class == class).collect()
}

pub(super) fn work(bench: &Bench, engine: &Engine, scheme: Option<ParityScheme>) {
    bench.clock.advance_ms(2 * DAY_MS);
    let job = engine.parity_job(scheme, Arc::new(Never));
    while job.step(&Budget::unlimited()).unwrap() == Step::More {}
}

pub(super) fn scrub(engine: &Engine) -> u64 {
    engine.scrub(&Budget::unlimited(), &NoProgress).unwrap().damaged_containers
}

pub(super) fn scheme(members: u8, spares: u8) -> Option<ParityScheme> {
    ParityScheme::new(members, spares)
}

pub(super) fn disk(vm: u64) -> Vec<u8> {
    noise(vm, 3 * MIB)
}

pub(super) fn backups(engine: &Engine) -> Vec<String> {
    let vm = |vm: u64| backup(engine, &format!("vm-{vm}"), &[("root", &disk(vm))]).unwrap().backup_id;
    (0..4).map(vm).collect()
}

/// Four VMs, whose data containers are one group, and whose recipes another.
pub(super) fn protected(spares: u8) -> (Bench, MemoryVolume, Engine, Vec<String>) {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = backups(&engine);
    work(&bench, &engine, scheme(4, spares));
    let totals = engine.catalog().parity_totals().unwrap();
    assert_eq!((totals.groups, totals.containers), (2, 8));
    (bench, volume, engine, ids)
}

pub(super) fn whole(engine: &Engine, ids: &[String]) -> bool {
    (0..).zip(ids).all(|(vm, id)| restore(engine, id, "root").is_ok_and(|read| read == disk(vm)))
}

pub(super) fn flip(volume: &MemoryVolume, name: ContainerName, at: usize) {
    let mut bytes = volume.get(&name.blob()).unwrap().to_vec();
    bytes[at] ^= 4;
    volume.replace(&name.blob(), bytes);
}

/// (R9) A page that was read before the disk rotted proves nothing, and one that arrived altered is no damage.
#[test]
fn what_memory_says_proves_no_parity() {
    let (_bench, memory, engine, _) = protected(1);
    let volume = FaultyVolume::new(memory);
    let name = list(&volume, "parity").remove(0).name;
    let number = parity::parse(&name).unwrap();
    let prove = || parity::prove(&volume, engine.repository_id(), number, &mut |_| true);
    let offset = volume.open(&name).unwrap().len() - 5000;
    let flip = Damage::FlipBit { offset, bit: 0 };
    volume.cache(&name, Some(&flip)).unwrap();
    assert!(prove().unwrap());
    volume.damage(&name, &flip).unwrap();
    volume.cache(&name, None).unwrap();
    assert!(matches!(prove(), Err(EngineError::Damaged(_))));
}

#[test]
fn a_lost_container_is_read_at_once_and_repaired() {
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        let (bench, volume, engine, ids) = protected(1);
        let lost = names(&volume, class)[1];
        volume.remove(&lost.blob()).unwrap();
        // The first to meet it gets it made again.
        assert!(whole(&engine, &ids), "{class:?}: on read");
        let counts = || engine.stats().unwrap().parity;
        assert!(counts().read > 0 && counts().repaired == 0, "{:?}", counts());
        work(&bench, &engine, scheme(4, 1));
        assert!(!names(&volume, class).contains(&lost), "written anew under another number");
        assert_eq!(engine.catalog().damaged().unwrap(), [], "{class:?}");
        assert_eq!(counts().repaired, 1);
        assert!(engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
        assert_eq!(scrub(&engine), 0);
        engine.shutdown().unwrap();
        drop(engine);
        assert!(whole(&bench.open(Arc::new(volume)), &ids));
    }
}

/// A single VM's data and recipe are of very different sizes.
#[test]
fn containers_that_waited_for_others_of_their_size_in_vain_go_together() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let ids = [backup(&engine, "vm-0", &[("root", &disk(0))]).unwrap().backup_id];
    bench.clock.advance_ms(DAY_MS / 2);
    let job = engine.parity_job(scheme(4, 1), Arc::new(Never));
    while job.step(&Budget::unlimited()).unwrap() == Step::More {}
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 0, "others may come");
    work(&bench, &engine, scheme(4, 1));
    let totals = engine.catalog().parity_totals().unwrap();
    assert_eq!((totals.groups, totals.containers), (1, 2));
    volume.remove(&names(&volume, ContainerClass::Data)[0].blob()).unwrap();
    assert!(whole(&engine, &ids));
}

#[test]
fn rot_is_repaired_on_scrub_in_as_many_places_as_windows() {
    let (bench, volume, engine, ids) = protected(1);
    // In different windows of all four: no two of them share one.
    for (place, name) in names(&volume, ContainerClass::Data).into_iter().enumerate() {
        flip(&volume, name, MIB / 2 * (place + 1));
    }
    assert_eq!(scrub(&engine), 4);
    work(&bench, &engine, scheme(4, 1));
    assert!(engine.parts().0.store.open_damage().is_empty(), "all of it has sound copies");
    assert!(engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
    assert!(whole(&engine, &ids));
}

#[test]
fn as_many_may_be_lost_as_there_are_spares() {
    for (spares, lost, comes_back) in [(1, 2, false), (2, 2, true), (2, 3, false)] {
        let (bench, volume, engine, ids) = protected(spares);
        for name in names(&volume, ContainerClass::Data).into_iter().take(lost) {
            volume.remove(&name.blob()).unwrap();
        }
        scrub(&engine);
        work(&bench, &engine, scheme(4, spares));
        assert_eq!(whole(&engine, &ids), comes_back, "{lost} of {spares}");
    }
}

/// Parity costs as much as the documents say: one part in the number of a group's members.
#[test]
fn parity_costs_a_part_in_ten() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    for vm in 0..10 {
        backup(&engine, &format!("vm-{vm}"), &[("root", &disk(vm))]).unwrap();
    }
    work(&bench, &engine, scheme(10, 1));
    let containers = list_containers(&volume).unwrap().containers;
    let data = containers.iter().map(|(_, len)| len).sum::<u64>();
    let parity = list(&volume, "parity").iter().map(|blob| blob.len).sum::<u64>();
    let totals = engine.catalog().parity_totals().unwrap();
    assert_eq!((totals.groups, totals.containers, totals.stored_bytes), (2, 20, parity));
    assert!((100..103).contains(&(parity * 1000 / data)), "{parity} for {data} bytes");
}

/// (D1) The copy that a repair found in place of what it removed may be in what a failed session left: it stays.
#[test]
fn a_copy_that_a_repair_counted_on_stays_when_space_is_short() {
    let (bench, volume, engine, ids) = protected(1);
    volume.remove(&names(&volume, ContainerClass::Data)[1].blob()).unwrap();
    assert_eq!(scrub(&engine), 1);
    let started = start(&engine, request("vm-1", &[("root", &disk(1))])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk(1)).unwrap();
    drop(stream);
    engine.abort(session, "given up").unwrap();
    work(&bench, &engine, scheme(4, 1));
    assert_eq!(engine.catalog().damaged().unwrap(), [], "repaired");
    let (core, _) = engine.parts();
    let unused = core.store.leftovers.condemn();
    core.store.delete(&volume, &unused).unwrap();
    assert!(whole(&engine, &ids));
}

/// (D1) Chunks that a backup in progress found in a container that is repaired are held in their new places.
#[test]
fn what_a_backup_found_in_a_container_that_is_repaired_stays() {
    let (bench, volume, engine, ids) = protected(1);
    let started = start(&engine, request("new", &[("root", &disk(1))])).unwrap();
    let session: SessionId = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk(1)).unwrap();
    drop(stream);
    let lost = names(&volume, ContainerClass::Data)[1];
    volume.remove(&lost.blob()).unwrap();
    assert_eq!(scrub(&engine), 1);
    work(&bench, &engine, scheme(4, 1));
    assert!(!names(&volume, ContainerClass::Data).contains(&lost), "written anew under another number");
    engine.delete_backups(&[ids[1].parse().unwrap()], "test", "not needed").unwrap();
    super::reclaim::reclaim(&engine);
    let new = engine.commit(session).unwrap().backup_id;
    assert!(restore(&engine, &new, "root").unwrap() == disk(1));
}

/// (E5) Containers that a damaged one can be reconstructed from stay until that is done, and no longer.
#[test]
fn what_parity_needs_stays_while_something_is_damaged() {
    let (bench, volume, engine, ids) = protected(1);
    let all = names(&volume, ContainerClass::Data);
    volume.remove(&all[1].blob()).unwrap();
    assert_eq!(scrub(&engine), 1);
    engine.delete_backups(&[ids[2].parse().unwrap()], "test", "not needed").unwrap();
    super::reclaim::reclaim(&engine);
    assert!(restore(&engine, &ids[1], "root").unwrap() == disk(1), "not lost by what was deleted");
    work(&bench, &engine, scheme(4, 1));
    assert_eq!(engine.catalog().damaged().unwrap(), [], "repaired");
    assert!(names(&volume, ContainerClass::Data).contains(&all[2]));
    super::reclaim::reclaim(&engine);
    assert!(!names(&volume, ContainerClass::Data).contains(&all[2]));
    assert!(restore(&engine, &ids[1], "root").unwrap() == disk(1));
}

/// (E5) One of two spares is used up by a container that went. Without room for the repair, the other is what is left.
#[test]
fn a_group_is_not_given_up_while_it_can_repair() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let small = Arc::new(FaultyVolume::new(volume.clone()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&small));
    let ids = backups(&engine);
    work(&bench, &engine, scheme(4, 2));
    let all = names(&volume, ContainerClass::Data);
    engine.delete_backups(&[ids[2].parse().unwrap()], "test", "not needed").unwrap();
    super::reclaim::reclaim(&engine);
    assert!(!names(&volume, ContainerClass::Data).contains(&all[2]));
    volume.remove(&all[1].blob()).unwrap();
    assert_eq!(scrub(&engine), 1);
    bench.clock.advance_ms(2 * DAY_MS);
    let job = engine.parity_job(None, Arc::new(Never));
    small.limit_capacity(0);
    assert!(job.step(&Budget::unlimited()).is_err(), "no room");
    while job.step(&Budget::unlimited()).unwrap() == Step::More {}
    small.limit_capacity(1 << 40);
    assert!(restore(&engine, &ids[1], "root").unwrap() == disk(1));
    work(&bench, &engine, None);
    assert_eq!(engine.catalog().damaged().unwrap(), [], "repaired");
    work(&bench, &engine, None);
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 0, "given up then");
}

/// (E6) A repair uses up no parity: the next loss in the same place is repaired, too.
#[test]
fn what_was_repaired_is_protected_anew() {
    let (bench, volume, engine, ids) = protected(1);
    let first = names(&volume, ContainerClass::Data);
    for turn in 0..3 {
        // The same window of another container each time; the last one is lost altogether.
        let all = names(&volume, ContainerClass::Data);
        if turn < 2 {
            flip(&volume, all[0], MIB);
        } else {
            volume.remove(&all[0].blob()).unwrap();
        }
        assert_eq!(scrub(&engine), 1, "{turn}");
        work(&bench, &engine, scheme(4, 1));
        assert_eq!(engine.catalog().damaged().unwrap(), [], "{turn}: nothing of it is left");
        assert!(!names(&volume, ContainerClass::Data).contains(&all[0]), "{turn}");
        assert!(whole(&engine, &ids), "{turn}");
        let is_protected =
            |name: &ContainerName| engine.catalog().parity_group_of(name.id).unwrap().is_some();
        let left = names(&volume, ContainerClass::Data);
        assert!(left.iter().filter(|name| first.contains(name)).all(is_protected), "{turn}");
        assert_eq!(list(&volume, "parity").len() as u64, engine.catalog().parity_totals().unwrap().groups);
    }
    assert!(engine.check(CheckOptions { read_data: true }, &NoProgress).unwrap().is_sound());
    engine.shutdown().unwrap();
    drop(engine);
    assert!(whole(&bench.open(Arc::new(volume)), &ids));
}

/// (V3) A directory that is whole names also what is damaged. Where parity cannot make it again, it is said to be lost.
#[test]
fn what_no_parity_can_make_again_is_named() {
    let (_bench, volume, engine, ids) = protected(1);
    let all = names(&volume, ContainerClass::Data);
    // The same window of both: neither can be made again.
    flip(&volume, all[0], MIB);
    flip(&volume, all[1], MIB);
    assert_eq!(scrub(&engine), 2);
    let mut named: Vec<String> =
        engine.name_damage(10).unwrap().into_iter().map(|disk| disk.backup.to_string()).collect();
    named.sort();
    let mut lacking = ids[..2].to_vec();
    lacking.sort();
    assert_eq!(named, lacking);
}

/// (E3)
#[test]
fn what_was_deleted_does_not_come_back() {
    let (bench, volume, engine, _) = protected(1);
    let gone = names(&volume, ContainerClass::Data)[0];
    let (core, _) = engine.parts();
    core.store.leftovers.note_gone(gone.id);
    core.catalog.condemn_containers(&[gone.id]).unwrap();
    core.store.index.forget_container(gone.id);
    volume.remove(&gone.blob()).unwrap();
    core.catalog.remove_condemned(&[gone.id]).unwrap();
    core.store.note_damage(gone.id, None, "test");
    work(&bench, &engine, None);
    assert_eq!(names(&volume, ContainerClass::Data).len(), 3);
    // (E4) Its group is given up, and the others become one when parity goes on.
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 1);
    assert_eq!(list(&volume, "parity").len(), 1);
    work(&bench, &engine, scheme(4, 1));
    let totals = engine.catalog().parity_totals().unwrap();
    assert_eq!((totals.groups, totals.containers), (2, 7));
}

/// A crash between the blob and its row leaves one that the next process enters, or removes.
#[test]
fn parity_without_a_row_is_entered_or_removed() {
    let (bench, volume, engine, ids) = protected(1);
    let groups: Vec<_> =
        list(&volume, "parity").into_iter().filter_map(|blob| crate::parity::parse(&blob.name)).collect();
    for &group in &groups {
        engine.catalog().remove_parity_group(group).unwrap();
    }
    put(&volume, "parity/0000ffffff", b"torn");
    drop(engine);
    let engine = bench.open(Arc::new(volume.clone()));
    work(&bench, &engine, None);
    assert_eq!(engine.catalog().parity_totals().unwrap().groups, 2);
    assert_eq!(list(&volume, "parity").len(), 2, "what is no parity is removed");
    volume.remove(&names(&volume, ContainerClass::Data)[2].blob()).unwrap();
    assert!(whole(&engine, &ids));
}

/// With any damage to the parity and to a container, reads return the right bytes, or none.
#[test]
fn damaged_parity_never_makes_a_wrong_byte() {
    type Change = dyn Fn(&mut Vec<u8>);
    let (_bench, volume, engine, ids) = protected(1);
    let lost = names(&volume, ContainerClass::Data)[3];
    let truth = volume.get(&lost.blob()).unwrap();
    volume.remove(&lost.blob()).unwrap();
    let (core, _) = engine.parts();
    let group = core.catalog.parity_group_of(lost.id).unwrap().unwrap();
    let blob = crate::parity::name(group);
    let sound = volume.get(&blob).unwrap().to_vec();
    let len = truth.len() as u64;
    let make_one = |id, len| {
        let made =
            crate::parity::reconstruct_bytes(&volume, core.repository, group, (id, len)).ok().flatten();
        made.filter(|made| made.is_whole).map(|made| made.bytes)
    };
    let make = || make_one(lost.id, len);
    assert!(make().unwrap() == truth);
    let changes: [&Change; 6] = [
        &|bytes| bytes.truncate(bytes.len() / 2),
        &|bytes| bytes.clear(),
        &|bytes| bytes[20] ^= 1,
        &|bytes| bytes[MIB] ^= 1,
        &|bytes| {
            let end = bytes.len() - 100;
            bytes[end] ^= 1;
        },
        &|bytes| bytes.fill(0),
    ];
    for change in changes {
        let mut bytes = sound.clone();
        change(&mut bytes);
        volume.replace(&blob, bytes);
        assert!(make().is_none());
    }
    volume.replace(&blob, sound);
    // A neighbour that rots, too, in one window: that window cannot be made again, and nothing else is in its place.
    flip(&volume, names(&volume, ContainerClass::Data)[0], MIB);
    assert!(make().is_none());
    assert!(!whole(&engine, &ids));
    assert!(make_one(ContainerId::new(1 << 30).unwrap(), len).is_none(), "not of the group");
}

/// (E1) A container that rotted before it was grouped is named, and no parity keeps its rot.
#[test]
fn what_is_damaged_gets_no_parity() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    for vm in 0..4 {
        backup(&engine, &format!("vm-{vm}"), &[("root", &disk(vm))]).unwrap();
    }
    flip(&volume, names(&volume, ContainerClass::Data)[2], MIB);
    work(&bench, &engine, scheme(4, 1));
    assert_eq!(engine.catalog().parity_totals().unwrap().containers, 7);
    assert_eq!(engine.catalog().damaged().unwrap().len(), 1);
}

/// (E2) A table that is whole and says something else of a window: nothing is made of it.
#[test]
fn a_window_must_have_its_own_checksum() {
    use crate::format::parity::{HEADER_BYTES, ParityHeader, ParityTable};
    let (_bench, volume, engine, _) = protected(1);
    let lost = names(&volume, ContainerClass::Data)[3];
    volume.remove(&lost.blob()).unwrap();
    let (core, _) = engine.parts();
    let group = core.catalog.parity_group_of(lost.id).unwrap().unwrap();
    let blob = crate::parity::name(group);
    let mut bytes = volume.get(&blob).unwrap().to_vec();
    let header = ParityHeader::decode(bytes[..HEADER_BYTES].try_into().unwrap()).unwrap();
    let at = usize::try_from(header.table_offset()).unwrap();
    let mut table = ParityTable::decode(&header, &bytes[at..]).unwrap();
    let place = table.members.iter().position(|member| member.id == lost.id).unwrap();
    table.sums[place * header.windows() as usize] ^= 1;
    bytes.truncate(at);
    bytes.extend(table.encode());
    volume.replace(&blob, bytes);
    let len = table.members[place].stored_bytes.into();
    let made = crate::parity::reconstruct_bytes(&volume, core.repository, group, (lost.id, len)).unwrap();
    assert!(!made.unwrap().is_whole);
}

/// (E3)
#[test]
fn what_is_condemned_is_not_made_again() {
    let (_bench, volume, engine, _) = protected(1);
    let lost = names(&volume, ContainerClass::Data)[3];
    volume.remove(&lost.blob()).unwrap();
    let (core, _) = engine.parts();
    let record = || core.catalog.container(lost.id).unwrap().unwrap();
    assert!(core.store.made_again(&record()).unwrap().is_some());
    core.catalog.condemn_containers(&[lost.id]).unwrap();
    assert!(core.store.made_again(&record()).unwrap().is_none());
}
