//! Restarts between the condemnation of containers and the end of their deletion.

use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};

use super::sessions::first_chunk;
use super::*;

type Faulty = Arc<FaultyVolume<MemoryVolume>>;

/// Files that a round deletes here: of one backup.
const DELETED: u64 = 2;

/// More than a start would remove.
const REMOVALS: u64 = 64;

/// A repository in which a round failed when it removed its file number `nth`, and a backup that it was not about.
fn failed_at(nth: u64, disk: &[u8], other: &[u8]) -> (Bench, Faulty, String) {
    let (bench, volume) = (Bench::new(), Faulty::new(FaultyVolume::new(MemoryVolume::new())));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let dead = backup(&engine, "dead", &[("root", disk)]).unwrap().backup_id;
    let stays = backup(&engine, "stays", &[("root", other)]).unwrap().backup_id;
    delete(&engine, &dead);
    volume.fail_next(OpKind::Remove, nth, Fault::Unavailable);
    engine.reclaim(&ReclaimOptions::default(), &Arc::new(Control::default())).unwrap_err();
    let condemned = engine.catalog().condemned_containers().unwrap().len() as u64;
    assert_eq!(condemned, DELETED, "a row goes after its file");
    (bench, volume, stays)
}

/// Row: adoption and replay. The start cannot remove what is condemned either, and its index knows nothing of it: it is
/// not adopted, not indexed and not found.
#[test]
fn what_is_condemned_is_neither_adopted_nor_found_by_a_start() {
    let (disk, other) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    for nth in 1..=DELETED {
        let (bench, volume, stays) = failed_at(nth, &disk, &other);
        for nth in 1..=REMOVALS {
            volume.fail_next(OpKind::Remove, nth, Fault::Unavailable);
        }
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        assert_eq!((engine.opened().adopted_containers, engine.opened().replayed_containers), (0, 2));
        engine.audit(&crate::NoProgress).unwrap();
        let session = start(&engine, request("new", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
        let stream = engine.open_stream(session, 0).unwrap();
        assert!(is_needed(&stream, first_chunk(&disk)), "it is on the volume, and does not count");
        drop(stream);
        engine.abort(session, "only asked").unwrap();
        let again = backup(&engine, "new", &[("root", &disk)]).unwrap().backup_id;
        drop(engine);
        volume.heal();
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        let scene = Scene { bench, volume: (*volume.survivor()).clone(), engine };
        assert_eq!(scene.engine.opened().adopted_containers, 0);
        assert!(scene.restores(&again, &disk) && scene.restores(&stays, &other));
        scene.is_sound();
    }
}

/// Row: adoption and replay. A file without a row is one whose row was never written: rows go last.
#[test]
fn what_is_half_deleted_is_deleted_by_a_start_and_not_adopted() {
    let (disk, other) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    for nth in 1..=DELETED {
        let (bench, volume, stays) = failed_at(nth, &disk, &other);
        let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
        let scene = Scene { bench, volume: (*volume.survivor()).clone(), engine };
        assert_eq!(scene.engine.opened().adopted_containers, 0);
        assert_eq!(scene.containers(), 2);
        assert!(scene.restores(&stays, &other));
        scene.is_sound();
    }
}
