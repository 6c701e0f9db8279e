//! VMs and jobs that are renamed, in a run or before a recovery, and policies beside an older catalog.

use std::io::Read as _;
use std::sync::Arc;

use holdfast_catalog::{Catalog, RetentionPolicy};
use holdfast_proto::v1;
use holdfast_types::clock::ManualClock;
use holdfast_types::ids::BackupId;
use holdfast_volume::MemoryVolume;

use super::retention::{SIZE, made, policy, recovered, sound};
use super::{Bench, namespace, noise};
use crate::engine::Engine;
use crate::jobs::NoProgress;
use crate::recover::enter_points;

/// A copy of the catalog as it is now, as a snapshot or an administrator keeps it.
fn copied(engine: &Engine, folder: &tempfile::TempDir) -> std::path::PathBuf {
    let copy = folder.path().join("older.db");
    let mut bytes = Vec::new();
    engine.catalog().snapshot(&Arc::default()).unwrap().read_to_end(&mut bytes).unwrap();
    std::fs::write(&copy, bytes).unwrap();
    copy
}

/// (P9) The next VM's backup began before the rename, and one after it says the old name as well.
#[test]
fn a_job_is_renamed_while_its_run_is_in_progress() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let begin = |vm: &str, run: &str, disk: &[u8]| {
        let request = super::agent::request(vm, &[("root", disk)]);
        let job = "nightly".to_owned();
        super::agent::start(&engine, v1::StartRequest { job, run_id: run.into(), ..request }).unwrap()
    };
    let finish = |started: &v1::StartResponse, disk: &[u8]| -> BackupId {
        let session = started.session_id.parse().unwrap();
        let stream = engine.open_stream(session, 0).unwrap();
        super::agent::send_disk(&engine, session, &stream, 0, disk).unwrap();
        engine.commit(session).unwrap().backup_id.parse().unwrap()
    };
    let disks = [noise(1, SIZE), noise(2, SIZE), noise(3, SIZE)];
    let first = begin("web", "", &disks[0]);
    let second = begin("db", &first.run_id, &disks[1]);
    let mut ids = vec![finish(&first, &disks[0])];
    engine.rename_job(namespace(&engine), "nightly", "daily", "admin").unwrap();
    let third = begin("mail", &first.run_id, &disks[2]);
    ids.extend([finish(&second, &disks[1]), finish(&third, &disks[2])]);
    assert_eq!(engine.catalog().stale_points(None, 10).unwrap(), [], "the points say the name that it has");
    let check = |catalog: &holdfast_catalog::Catalog| {
        for id in &ids {
            assert_eq!(catalog.backup(*id).unwrap().unwrap().job, "daily");
        }
    };
    check(engine.catalog());
    check(&recovered(&bench, &volume).0);
    sound(&engine, 3);
}

/// (P10) As `recover` does it: the snapshot is older than two renames and a change of locks, which went round.
#[test]
fn names_are_taken_over_from_points_all_at_once() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    let mut of_a = vec![made(&engine, "a", 1), made(&engine, "a", 2)];
    let mut of_b = vec![made(&engine, "b", 3), made(&engine, "b", 4)];
    let only_a = RetentionPolicy { vm: Some("a".into()), ..policy(&engine, 0) };
    engine.catalog().set_policy(&only_a, "admin").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = copied(&engine, &folder);
    let default = namespace(&engine);
    engine.rename_vm(default, "b", "c", "admin").unwrap();
    engine.rename_vm(default, "a", "b", "admin").unwrap();
    of_a.push(made(&engine, "b", 5));
    of_b.push(made(&engine, "c", 6));
    let older = Catalog::open(&copy, Arc::<ManualClock>::clone(&bench.clock)).unwrap();
    let found = enter_points(&volume, &older, &NoProgress).unwrap();
    assert_eq!((found.entered_count, found.problem_count(), found.resting_policies), (2, 0, 1));
    let vms = |ids: &[BackupId]| -> Vec<String> {
        ids.iter().map(|id| older.backup(*id).unwrap().unwrap().vm).collect()
    };
    assert_eq!((vms(&of_a), vms(&of_b)), (vec!["b".to_owned(); 3], vec!["c".to_owned(); 3]));
    let now = older.policy(only_a.id).unwrap().unwrap();
    assert_eq!(now.vm.as_deref(), Some("b"), "it follows");
    assert!(!now.is_at_work());
    assert_eq!(older.stale_points(None, 10).unwrap(), []);
    let again = enter_points(&volume, &older, &NoProgress).unwrap();
    assert_eq!((again.entered_count, again.resting_policies), (0, 0));
}

/// (P10) A start beside an older catalog that someone put back.
#[test]
fn policies_rest_beside_an_older_catalog() {
    let (bench, volume) = (Bench::new(), MemoryVolume::new());
    let engine = bench.open(Arc::new(volume.clone()));
    made(&engine, "web", 1);
    engine.write_points().unwrap();
    engine.catalog().set_policy(&policy(&engine, 0), "admin").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = copied(&engine, &folder);
    engine.catalog().reserve_container_numbers(640).unwrap();
    made(&engine, "web", 2);
    drop(engine);
    for file in ["catalog.db", "catalog.db-wal", "catalog.db-shm"] {
        let _ = std::fs::remove_file(bench.folder.path().join(file));
    }
    std::fs::copy(&copy, bench.folder.path().join("catalog.db")).unwrap();
    let engine = bench.open(Arc::new(volume));
    assert_eq!(engine.opened().entered_points, 1);
    let policy = engine.catalog().policies(None).unwrap().remove(0);
    assert!(policy.resting_since_ms.is_some());
}
