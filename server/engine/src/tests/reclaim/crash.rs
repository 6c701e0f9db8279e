//! Power fails at every operation of a life with deletions and rounds: nothing that was acknowledged is lost, what was
//! deleted does not come back, and space does.

use holdfast_volume::testing::{CrashPoint, FaultyVolume, InFlight};

use super::*;
use crate::tests::crash::outcomes;

type Faulty = Arc<FaultyVolume<MemoryVolume>>;

#[derive(Default)]
struct Promised {
    committed: Vec<(String, Vec<u8>)>,
    deleted: Vec<String>,
}

/// Makes and deletes backups until the power fails, and returns the promises made.
fn live(engine: &Engine) -> Promised {
    let mut promised = Promised::default();
    let mut disk = noise(1, 5 * MIB);
    for day in 0..4u64 {
        let at = usize::try_from(day).unwrap() * MIB;
        disk[at..at + 600_000].copy_from_slice(&noise(day + 10, 600_000));
        let Ok(done) = backup(engine, "web", &[("root", &disk)]) else { break };
        promised.committed.push((done.backup_id, disk.clone()));
        if promised.committed.len() < 3 {
            continue;
        }
        let (oldest, _) = promised.committed.remove(0);
        let oldest_id = oldest.parse().unwrap();
        if engine.delete_backups(&[oldest_id], "test", "old").is_err() {
            break;
        }
        promised.deleted.push(oldest);
        let done = engine.reclaim(&ReclaimOptions::default(), &Arc::new(Control::default()));
        if done.is_err() || (day == 2 && engine.core_index_checkpoint().is_err()) {
            break;
        }
    }
    promised
}

#[test]
fn nothing_is_lost_and_nothing_comes_back_wherever_power_fails() {
    let operations = {
        let (bench, volume) = (Bench::new(), Faulty::new(FaultyVolume::new(MemoryVolume::new())));
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        let promised = live(&engine);
        assert_eq!((promised.committed.len(), promised.deleted.len()), (2, 2));
        volume.mutations()
    };
    for after in 0..=operations {
        for &in_flight in outcomes(after) {
            crash_once(after, in_flight);
        }
    }
}

fn crash_once(after: u64, in_flight: InFlight) {
    let at = format!("crash after {after}, {in_flight:?}");
    let (bench, volume) = (Bench::new(), Faulty::new(FaultyVolume::new(MemoryVolume::new())));
    volume.crash_at(CrashPoint { after_mutations: after, in_flight });
    let promised = match bench.try_open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume)) {
        Ok(engine) => live(&engine),
        Err(_) => Promised::default(),
    };
    let engine = bench.open(volume.survivor());
    engine.audit(&crate::NoProgress).unwrap();
    for round in 0..2 {
        for (id, disk) in &promised.committed {
            assert!(restore(&engine, id, "root").unwrap() == *disk, "{at}, round {round}");
        }
        let ids: Vec<_> = engine.catalog().all_backup_ids().map(|id| id.unwrap().to_string()).collect();
        assert!(promised.deleted.iter().all(|id| !ids.contains(id)), "{at}, round {round}");
        let report = engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
        assert!(report.is_sound(), "{at}, round {round}: {:?}", report.problems);
        reclaim(&engine);
    }
    let options = ReclaimOptions { dry_run: true, ..ReclaimOptions::default() };
    let left = engine.reclaim(&options, &Arc::new(Control::default())).unwrap();
    assert_eq!(left.cleanable_bytes, 0, "{at}: {left:?}");
    let rows = engine.catalog().all_containers().count();
    assert_eq!(crate::count_containers(&*volume.survivor()).unwrap(), rows, "{at}");
}

/// (W12) The record of a container, noted while its backup was in progress, is not written after a round has deleted
/// it.
#[test]
fn containers_that_went_are_not_known_again() {
    let scene = Scene::new();
    let gone = scene.backup("gone", &noise(1, MIB));
    scene.delete(&gone);
    assert_eq!(scene.reclaim().containers_deleted, 2);
    // The next batch is due.
    scene.bench.clock.advance_ms(10_000);
    let stays = scene.backup("stays", &noise(2, MIB));
    let scene = scene.reopened();
    assert_eq!(scene.engine.opened().damaged_containers, 0, "{:?}", scene.engine.opened());
    assert_eq!(scene.containers(), 2);
    assert!(scene.restores(&stays, &noise(2, MIB)));
    scene.is_sound();
}
