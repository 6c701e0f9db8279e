//! Reading restore points back at the server.

use std::sync::Arc;

use holdfast_catalog::PageRequest;
use holdfast_proto::limits::EXTENT_BYTES;
use holdfast_proto::v1::read_disk_response::Kind;
use holdfast_types::ids::{BackupId, ContainerClass};
use holdfast_volume::MemoryVolume;
use holdfast_volume::testing::{Damage, FaultyVolume};

use super::agent::{backup, request, send_disk_claiming, start_as, starter};
use super::{Bench, namespace, noise};
use crate::container::{ContainerName, list_containers};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::verify::VerifyReport;

const EXTENT: usize = EXTENT_BYTES as usize;

fn verify(engine: &Engine, id: &str) -> VerifyReport {
    let id: BackupId = id.parse().unwrap();
    engine.verify_backup(namespace(engine), id, "op", &mut |_| true).unwrap().unwrap()
}

#[test]
fn a_sound_restore_point_is_read_whole() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let mut disk = noise(1, 5 * EXTENT + 77);
    disk[EXTENT..3 * EXTENT].fill(0);
    let zeros = vec![0; 3 * EXTENT];
    let done = backup(&engine, "web", &[("root", &disk), ("swap", &zeros), ("empty", &[])]).unwrap();
    let report = verify(&engine, &done.backup_id);
    let expected = VerifyReport { bytes: (3 * EXTENT + 77) as u64, ..VerifyReport::default() };
    assert_eq!(report, expected);
    assert!(report.is_sound());
}

/// (R9) It rotted after it was read last: at the server, and at an agent.
#[test]
fn what_memory_says_proves_no_restore_point() {
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        let bench = Bench::new();
        let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
        let engine = bench.open(Arc::<FaultyVolume<_>>::clone(&volume));
        let id = backup(&engine, "web", &[("root", &noise(1, 3 * EXTENT))]).unwrap().backup_id;
        engine.shutdown().unwrap();
        drop(engine);
        for (name, _) in list_containers(&*volume).unwrap().containers {
            if name.class == class {
                volume.damage(&name.blob(), &Damage::FlipBit { offset: 5000, bit: 0 }).unwrap();
            }
            volume.cache(&name.blob(), None).unwrap();
        }
        let engine = bench.open(Arc::<FaultyVolume<_>>::clone(&volume));
        assert!(!verify(&engine, &id).is_sound(), "{class:?}");
        if class == ContainerClass::Data {
            for (name, _) in list_containers(&*volume).unwrap().containers {
                volume.cache(&name.blob(), None).unwrap();
            }
            let backup = id.parse().unwrap();
            let reader = engine.read_disk_past_damage(namespace(&engine), backup, "root", 0, 0).unwrap();
            let mut messages = reader.from_volume().map(|message| message.unwrap().kind);
            assert!(messages.any(|kind| matches!(kind, Some(Kind::Damaged(_)))));
        }
    }
}

#[test]
fn damage_of_data_and_of_recipes_is_found_and_counted() {
    for class in [ContainerClass::Data, ContainerClass::Recipe] {
        let bench = Bench::new();
        let volume = MemoryVolume::new();
        let disk = noise(1, 3 * EXTENT);
        let id = {
            let engine = bench.open(Arc::new(volume.clone()));
            let id = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
            engine.shutdown().unwrap();
            id
        };
        let all = list_containers(&volume).unwrap().containers.into_iter();
        let victim = ContainerName::blob(all.map(|(name, _)| name).find(|name| name.class == class).unwrap());
        let mut bytes = volume.get(&victim).unwrap().to_vec();
        bytes[5000] ^= 1;
        volume.replace(&victim, bytes);
        let engine = bench.open(Arc::new(volume));
        let report = verify(&engine, &id);
        assert!(!report.is_sound() && report.damaged_extents >= 1, "{class:?}: {report:?}");
        assert!(report.places[0].contains("root"), "{report:?}");
    }
}

#[test]
fn a_false_digest_is_found_and_kept() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let (evil, honest) = (noise(2, EXTENT), noise(1, EXTENT));
    backup(&engine, "decoy", &[("root", &evil)]).unwrap();
    let started = start_as(&engine, request("web", &[("root", &evil)]), starter(1)).unwrap();
    let session = started.session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    let claimed = holdfast_proto::Fingerprint::of(&honest);
    send_disk_claiming(&engine, session, &stream, (0, &evil), |_, _| claimed).unwrap();
    let lied = engine.commit(session).unwrap().backup_id;
    let report = verify(&engine, &lied);
    assert_eq!((report.damaged_extents, report.false_digests), (0, 1), "{report:?}");
    assert_eq!(engine.stats().unwrap().digests.found_false, 1);
    let log = engine.catalog().list_audit(PageRequest::FIRST).unwrap().items;
    assert!(log.iter().any(|record| record.entry.action == "digest.false" && record.entry.who == "op"));
}

#[test]
fn it_ends_when_it_is_told_to() {
    let bench = Bench::new();
    let engine = bench.open(Arc::new(MemoryVolume::new()));
    let done = backup(&engine, "web", &[("root", &noise(1, 3 * EXTENT))]).unwrap();
    let id: BackupId = done.backup_id.parse().unwrap();
    let mut charged = Vec::new();
    let stopped = engine.verify_backup(namespace(&engine), id, "op", &mut |bytes| {
        charged.push(bytes);
        charged.len() < 2
    });
    assert_eq!(stopped.unwrap(), None);
    assert_eq!(charged, [EXTENT as u64; 2]);
    let elsewhere = engine.verify_backup(
        namespace(&engine),
        "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap(),
        "op",
        &mut |_| true,
    );
    assert!(matches!(elsewhere, Err(EngineError::NotFound { what: "backup", .. })), "{elsewhere:?}");
}
