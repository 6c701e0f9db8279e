//! A volume that is really full.

use holdfast_proto::ErrorCode;
use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};

use super::*;

type Small = Arc<FaultyVolume<MemoryVolume>>;

fn open(bench: &Bench, volume: &Small) -> Engine {
    let mut parts = bench.parts(Arc::<FaultyVolume<MemoryVolume>>::clone(volume)).unwrap();
    parts.options.reserve_bytes = Some(20 << 20);
    Engine::assemble(parts).unwrap()
}

#[test]
fn a_full_volume_gets_its_room_back() {
    let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
    volume.limit_capacity(120 << 20);
    let engine = open(&bench, &volume);
    let mut made = Vec::new();
    let refused = loop {
        let seed = made.len() as u64;
        match backup(&engine, &format!("vm-{seed}"), &[("root", &noise(seed, 14 * MIB))]) {
            Ok(done) => made.push(done.backup_id),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.code(), ErrorCode::Full, "{refused}");
    assert!(made.len() >= 4);
    // Nothing is left at all.
    let free = volume.space().unwrap().unwrap().free_bytes;
    volume.limit_capacity((120 << 20) - free);
    let stays = made.pop().unwrap();
    for id in &made {
        delete(&engine, id);
    }
    let report = reclaim(&engine);
    assert!(report.freed_bytes >= made.len() as u64 * (14 << 20), "{report:?}");
    let seed = made.len() as u64;
    assert!(restore(&engine, &stays, "root").unwrap() == noise(seed, 14 * MIB));
    let done = backup(&engine, "again", &[("root", &noise(99, 14 * MIB))]).unwrap();
    assert!(restore(&engine, &done.backup_id, "root").unwrap() == noise(99, 14 * MIB));
}

/// Power or the disk fails between any two of a deletion's operations; the next round, or start, goes on.
#[test]
fn a_round_that_fails_is_finished_by_the_next_or_by_a_start() {
    for restart in [false, true] {
        let (bench, volume) = (Bench::new(), Arc::new(FaultyVolume::new(MemoryVolume::new())));
        let mut engine = open(&bench, &volume);
        let dead = backup(&engine, "dead", &[("root", &noise(1, 9 * MIB))]).unwrap().backup_id;
        let stays = backup(&engine, "stays", &[("root", &noise(2, 9 * MIB))]).unwrap().backup_id;
        delete(&engine, &dead);
        volume.fail_next(OpKind::Remove, 2, Fault::Unavailable);
        let control = Arc::new(Control::default());
        engine.reclaim(&ReclaimOptions::default(), &control).unwrap_err();
        assert_ne!(engine.parts().0.catalog.condemned_containers().unwrap(), []);
        assert!(restore(&engine, &stays, "root").unwrap() == noise(2, 9 * MIB));
        if restart {
            drop(engine);
            engine = open(&bench, &volume);
        } else {
            reclaim(&engine);
        }
        assert_eq!(engine.parts().0.catalog.condemned_containers().unwrap(), []);
        assert_eq!(crate::count_containers(&*volume).unwrap(), 2);
        assert!(restore(&engine, &stays, "root").unwrap() == noise(2, 9 * MIB));
    }
}
