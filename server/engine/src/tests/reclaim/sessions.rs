//! Memory of a stream while containers are deleted.

use holdfast_proto::Fingerprint;
use holdfast_proto::chunker::Chunker;

use super::*;

pub(super) fn first_chunk(disk: &[u8]) -> Fingerprint {
    let piece = Chunker::default().cut(&disk[..4 * MIB])[0];
    Fingerprint::of(&disk[..piece.len as usize])
}

/// Row: an agent that offers a chunk that went is asked for it; one that was found stays.
#[test]
fn what_went_is_asked_for_and_what_was_found_stays() {
    let scene = Scene::new();
    let disk = noise(1, 9 * MIB);
    let dead = scene.backup("dead", &disk);
    let session = scene.start("new", &disk);
    let stream = scene.engine.open_stream(session, 0).unwrap();
    assert!(!is_needed(&stream, first_chunk(&disk)));
    scene.delete(&dead);
    let held = scene.reclaim();
    assert_eq!(held.containers_deleted, 1, "the recipe; {held:?}");
    assert!(held.containers_held >= 1, "{held:?}");
    assert!(!is_needed(&stream, first_chunk(&disk)), "as it was told before");
    drop(stream);
    scene.engine.abort(session, "test").unwrap();
    assert_eq!(scene.reclaim().containers_deleted, 1);
    let session = scene.start("new", &disk);
    let stream = scene.engine.open_stream(session, 0).unwrap();
    assert!(is_needed(&stream, first_chunk(&disk)));
    scene.is_sound();
}

/// Row: a stream's recently read directories. Its neighbours were found there; they are not, once it is gone.
#[test]
fn a_directory_read_lately_answers_no_more() {
    let scene = Scene::new();
    let disk = noise(1, 9 * MIB);
    let dead = scene.backup("dead", &disk);
    let session = scene.start("new", &disk);
    let stream = scene.engine.open_stream(session, 0).unwrap();
    let pieces = Chunker::default().cut(&disk[..4 * MIB]);
    let name = |place: usize| {
        let piece = &pieces[place];
        Fingerprint::of(&disk[piece.offset as usize..(piece.offset + piece.len) as usize])
    };
    assert!(!is_needed(&stream, name(0)));
    scene.delete(&dead);
    // Condemned although its chunk is held, as if the chunk had a copy.
    let (core, _) = scene.engine.parts();
    let holder = scene.engine.catalog().all_containers().map(Result::unwrap);
    for one in holder.filter(|one| one.class == holdfast_types::ids::ContainerClass::Data) {
        core.store.leftovers.condemn_unasked(one.id);
    }
    assert!(is_needed(&stream, name(1)), "refused");
    drop(stream);
}

/// Two rounds at once; a round after the engine stops; one that is stopped.
#[test]
fn one_round_at_a_time() {
    let scene = Scene::new();
    let dead = scene.backup("dead", &noise(1, 9 * MIB));
    scene.delete(&dead);
    scene.reclaim_with(|step| {
        // Not while something is deleted: the other would wait for that first.
        if matches!(step, RoundStep::Condemned | RoundStep::Deleted) {
            return;
        }
        let control = Arc::new(Control::default());
        let error = scene.engine.reclaim(&ReclaimOptions::default(), &control).unwrap_err();
        assert_eq!(error.code(), holdfast_proto::ErrorCode::Busy, "{error}");
    });
    let control = Arc::new(Control::default());
    control.stop();
    assert!(scene.engine.reclaim(&ReclaimOptions::default(), &control).is_err());
    scene.engine.shutdown().unwrap();
    assert!(scene.engine.reclaim(&ReclaimOptions::default(), &Arc::new(Control::default())).is_err());
}

/// A session that has stored once more all that a restore point needs.
fn with_newer_copies(scene: &Scene, disk: &[u8]) -> SessionId {
    let (core, _) = scene.engine.parts();
    let own: Vec<_> = scene.engine.catalog().all_containers().map(Result::unwrap).collect();
    // Its look-ups find nothing meanwhile.
    for one in &own {
        core.store.leftovers.condemn_unasked(one.id);
    }
    let session = scene.start("again", disk);
    scene.send(session, disk);
    for one in &own {
        core.store.leftovers.take_back(&[crate::store::Leftover {
            id: one.id,
            class: one.class,
            stored_bytes: one.stored_bytes,
        }]);
    }
    session
}

/// (G3) A session in progress may have the newest copy of what a restore point needs, and may yet fail.
#[test]
fn a_copy_of_a_session_in_progress_makes_no_other_dead() {
    let scene = Scene::new();
    let disk = noise(1, 9 * MIB);
    let kept = scene.backup("kept", &disk);
    let session = with_newer_copies(&scene, &disk);
    let report = scene.reclaim();
    assert_eq!((report.containers_deleted, report.dead_bytes), (0, 0), "{report:?}");
    scene.engine.abort(session, "test").unwrap();
    assert!(scene.restores(&kept, &disk));
    scene.is_sound();
}

/// A container that a failed session left may hold the newest copy of a chunk that a restore point needs.
#[test]
fn a_copy_that_a_failed_session_left_makes_none_other_dead() {
    let scene = Scene::new();
    let disk = noise(1, 9 * MIB);
    let kept = scene.backup("kept", &disk);
    let (core, _) = scene.engine.parts();
    let failing = with_newer_copies(&scene, &disk);
    scene.engine.abort(failing, "test").unwrap();
    scene.reclaim();
    // Space is short: what failed sessions left goes.
    let unused = core.store.leftovers.condemn();
    core.store.delete(&*core.volume, &unused).unwrap();
    assert!(scene.restores(&kept, &disk));
    scene.is_sound();
}
