//! Containers that go while someone uses them: looked up again, never damage.

use std::sync::Arc;

use holdfast_catalog::{ContainerRecord, ContainerState};
use holdfast_types::ids::{ContainerClass, ContainerId, SessionId};
use holdfast_volume::{MemoryVolume, Volume};

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, namespace, noise};
use crate::container::{ContainerName, ContainerWriter, OpenContainer, VerifiedRegion};
use crate::engine::Engine;
use crate::store::Leftover;
use holdfast_proto::region::Encoder;

const MIB: usize = 1 << 20;

/// Copies all of a container into a new one, durable and indexed, as reclaim does before it condemns. Returns its row.
pub(crate) fn copy(engine: &Engine, old: ContainerId, class: ContainerClass) -> ContainerRecord {
    let (core, _) = engine.parts();
    let open = core.store.containers.get(old, class).unwrap();
    let id = core.next_container().unwrap();
    let (namespace, now_ms) = (open.namespace(), core.clock.now_ms());
    let mut writer =
        ContainerWriter::create(&*core.volume, core.repository, namespace, id, class, now_ms).unwrap();
    let mut encoder = Encoder::new(1).unwrap();
    for region in 0..u16::try_from(open.directory().region_count()).unwrap() {
        writer.append(&decoded(&open, region, &mut encoder)).unwrap();
    }
    let sealed = writer.seal().unwrap();
    let record = ContainerRecord {
        id,
        class,
        namespace,
        stored_bytes: sealed.stored_bytes,
        plain_bytes: sealed.directory.plain_bytes(),
        chunk_count: sealed.directory.chunk_count() as u64,
        created_ms: sealed.created_ms,
        run: None,
        state: ContainerState::Live,
    };
    core.store.index_container(&core.store.containers.get(id, class).unwrap()).unwrap();
    record
}

fn decoded(open: &OpenContainer, region: u16, encoder: &mut Encoder) -> VerifiedRegion {
    let plain = open.read_region(region).unwrap().decode_checked(open).unwrap();
    let (names, ends) = open.directory().region_chunks(region).unwrap();
    let mut begin = 0;
    let mut chunks = Vec::new();
    for (name, &end) in names.iter().zip(ends) {
        chunks.push((*name, &plain[begin..end as usize]));
        begin = end as usize;
    }
    VerifiedRegion::encode(&chunks, encoder).unwrap()
}

/// Moves a container: all of it counts as live. Returns true if it was removed.
pub(crate) fn move_away(engine: &Engine, old: ContainerId, class: ContainerClass) -> bool {
    let (core, _) = engine.parts();
    let record = copy(engine, old, class);
    let gone = Leftover { id: old, class, stored_bytes: 0 };
    if !core.store.leftovers.condemn_one(old, |_| true) {
        return false;
    }
    core.store.condemned(&[gone], core.catalog.replace_containers(&[record], &[old])).unwrap();
    core.store.unlink_gone(&*core.volume, &[gone]).unwrap();
    true
}

pub(crate) fn containers(engine: &Engine) -> Vec<ContainerRecord> {
    engine.catalog().all_containers().map(Result::unwrap).collect()
}

fn move_all(engine: &Engine) {
    for one in containers(engine) {
        assert!(move_away(engine, one.id, one.class));
    }
}

/// Asserts that nothing is damaged, nothing is missing, and every container has its row.
fn is_sound(engine: &Engine) {
    let (core, _) = engine.parts();
    assert!(!core.store.has_damage(), "{:?}", core.store.damaged_containers());
    assert!(core.store.absence().is_none());
    let report = engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn a_session_follows_what_moves_under_it() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let (mut disk, other) = (noise(1, 9 * MIB), noise(2, 5 * MIB));
    let first = backup(&engine, "web", &[("root", &disk)]).unwrap();
    backup(&engine, "db", &[("root", &other)]).unwrap();
    // One with a parent, whose first extent is new and was found at another VM; one without.
    disk[..4 * MIB].copy_from_slice(&other[..4 * MIB]);
    let web: SessionId =
        start(&engine, request("web", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
    let new: SessionId =
        start(&engine, request("new", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
    move_all(&engine);
    let stream = engine.open_stream(web, 0).unwrap();
    send_disk(&engine, web, &stream, 0, &disk).unwrap();
    let stream = engine.open_stream(new, 0).unwrap();
    send_disk(&engine, new, &stream, 0, &disk).unwrap();
    move_all(&engine);
    for session in [web, new] {
        let done = engine.commit(session).unwrap();
        assert_eq!(done.details[0].new_bytes, 0, "all of it was there");
        assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
    }
    assert!(restore(&engine, &first.backup_id, "root").unwrap()[4 * MIB..] == disk[4 * MIB..]);
    is_sound(&engine);
}

#[test]
fn a_restore_follows_what_moves_under_it() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 70 * MIB);
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id.parse().unwrap();
    let before = containers(&engine).len();
    let mut reader = engine.read_disk(namespace(&engine), id, "root", 0, 0).unwrap();
    let mut range = engine.read_range(namespace(&engine), id, "root", 0, 8 << 20).unwrap();
    // The header and the first window are planned, and reads are under way.
    for _ in 0..3 {
        reader.next().unwrap().unwrap();
    }
    range.next().unwrap().unwrap();
    move_all(&engine);
    assert!(containers(&engine).len() == before);
    assert!(reader.all(|message| message.is_ok()) && range.all(|answer| answer.is_ok()));
    is_sound(&engine);
}

#[test]
fn a_container_that_went_is_neither_damaged_nor_lost_nor_adopted() {
    let bench = Bench::new();
    let volume = MemoryVolume::new();
    let engine = bench.open(Arc::new(volume.clone()));
    let disk = noise(1, 9 * MIB);
    let done = backup(&engine, "web", &[("root", &disk)]).unwrap();
    let before = containers(&engine);
    move_all(&engine);
    let (core, _) = engine.parts();
    for one in &before {
        core.store.note_damage(one.id, Some(0), "met too late");
        core.store.note_damage(one.id, None, "met too late");
        assert!(core.store.open_afresh(one).is_err());
        crate::recovery::note_if_damaged(&core.store, one, &mut crate::OpenSummary::default()).unwrap();
        assert!(!core.store.has_damage());
        // Listed before it was deleted.
        let file = crate::recovery::ContainerFile { class: one.class, bytes: one.stored_bytes };
        let files = std::iter::once((one.id, file)).collect();
        let mut summary = crate::OpenSummary::default();
        crate::recovery::take_in(&core.catalog, &core.store, &files, &mut summary, &crate::NoProgress)
            .unwrap();
        assert_eq!(summary, crate::OpenSummary::default());
        assert_eq!(core.catalog.container(one.id).unwrap(), None);
        assert!(volume.open(&ContainerName { id: one.id, class: one.class }.blob()).is_err());
    }
    is_sound(&engine);
    drop(engine);
    let engine = bench.open(Arc::new(volume));
    let found = engine.audit(&crate::NoProgress).unwrap();
    assert_eq!((found.adopted_containers, found.damaged_containers), (0, 0));
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == disk);
}

#[test]
fn what_is_held_and_has_no_copy_keeps_its_container() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 9 * MIB);
    backup(&engine, "web", &[("root", &disk)]).unwrap();
    let before = containers(&engine);
    let session: SessionId =
        start(&engine, request("new", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    let (core, _) = engine.parts();
    for one in &before {
        assert!(!core.store.leftovers.condemn_one(one.id, |_| false), "{one:?}");
        assert!(!core.store.leftovers.is_refused(one.id));
    }
    engine.commit(session).unwrap();
    drop(stream);
    // No round in progress: committed restore points are roots of the next.
    assert!(core.store.leftovers.condemn_one(before[0].id, |_| false));
}

#[test]
fn parents_and_disks_being_restored_are_in_use() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let disk = noise(1, 5 * MIB);
    let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id.parse().unwrap();
    let (core, _) = engine.parts();
    let in_use = || core.in_use.with(|| ()).0.len();
    assert_eq!(in_use(), 0);
    let session: SessionId =
        start(&engine, request("web", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
    assert_eq!(in_use(), 1);
    let reader = engine.read_disk(namespace(&engine), id, "root", 0, 0).unwrap();
    assert_eq!(in_use(), 2);
    drop(reader);
    engine.abort(session, "test").unwrap();
    assert_eq!(in_use(), 0);
}
