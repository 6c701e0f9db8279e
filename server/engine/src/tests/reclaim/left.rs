//! Restore points that only the volume knows.

use holdfast_volume::testing::{Fault, FaultyVolume, OpKind};

use super::super::agent::restore;
use super::*;
use crate::error::EngineError;

/// (P2, G5) A session ends within a round and leaves its point: the catalog has no restore point of it, and its parent,
/// which is deleted, is in use no more. The next start enters it, so all that it took over has to be there.
#[test]
fn a_point_that_is_left_within_a_round_ends_the_round() {
    let bench = Bench::new();
    let volume = Arc::new(FaultyVolume::new(MemoryVolume::new()));
    let engine = bench.open(Arc::<FaultyVolume<MemoryVolume>>::clone(&volume));
    let disk = noise(1, 9 * MIB);
    let parent = backup(&engine, "web", &[("root", &disk)]).unwrap().backup_id;
    let session: SessionId =
        start(&engine, request("web", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
    let stream = engine.open_stream(session, 0).unwrap();
    send_disk(&engine, session, &stream, 0, &disk).unwrap();
    drop(stream);
    let (core, sessions) = engine.parts();
    let (options, control) = (ReclaimOptions::default(), Control::default());
    let done = crate::reclaim::run_watched(core, sessions, &options, &control, &|step| {
        if step == RoundStep::Listed {
            delete(&engine, &parent);
            volume.fail_next(OpKind::Seal, 1, Fault::OutcomeUnknown { applied: true });
            engine.commit(session).unwrap_err();
            volume.fail_next(OpKind::Remove, 1, Fault::OutcomeUnknown { applied: false });
            engine.abort(session, "given up").unwrap();
        }
    });
    assert!(matches!(done, Err(EngineError::NotReclaimable(_))), "{done:?}");
    drop(engine);
    let engine = bench.open(volume.survivor());
    assert_eq!(engine.opened().entered_points, 1);
    let id = engine.catalog().backup_by_session(session).unwrap().unwrap().id;
    assert!(restore(&engine, &id.to_string(), "root").unwrap() == disk);
}
