//! Actions of a session, at every step of a round.

use super::*;

/// A restore point that is to be deleted, and one that needs a part of its containers, with its disk.
fn sparse(scene: &Scene) -> (String, String, Vec<u8>) {
    let mut disk = noise(7, 9 * MIB);
    let old = scene.backup("sparse", &disk);
    for at in (0..9).map(|part| part * MIB) {
        disk[at..at + 700_000].copy_from_slice(&noise(100 + at as u64, 700_000));
    }
    (old, scene.backup("sparse", &disk), disk)
}

/// Runs `act` at every step of a round, and checks the restore points each time.
fn everywhere(
    prepare: impl Fn(&Scene) -> Vec<SessionId>,
    act: impl Fn(&Scene, &[SessionId]) -> Vec<(String, Vec<u8>)> + Send + Sync,
) {
    for step in RoundStep::ALL {
        let scene = Scene::new();
        let dead = scene.backup("dead", &noise(1, 9 * MIB));
        let stays = scene.backup("stays", &noise(2, 5 * MIB));
        let (old, sparse, rest) = sparse(&scene);
        let sessions = prepare(&scene);
        scene.delete(&dead);
        scene.delete(&old);
        let made = parking_lot::Mutex::new(None);
        scene.reclaim_with(|at| {
            if at == step && made.lock().is_none() {
                let done = act(&scene, &sessions);
                *made.lock() = Some(done);
            }
        });
        let made = made.into_inner().unwrap_or_else(|| act(&scene, &sessions));
        for round in 0..2 {
            assert!(scene.restores(&stays, &noise(2, 5 * MIB)), "{step:?}, round {round}");
            assert!(scene.restores(&sparse, &rest), "{step:?}, round {round}");
            for (backup, disk) in &made {
                assert!(scene.restores(backup, disk), "{step:?}, round {round}");
            }
            scene.is_sound();
            scene.reclaim();
        }
    }
}

/// Row: query answered *have*. All of it within one step.
#[test]
fn a_backup_of_what_is_dead_is_made_within_a_round() {
    everywhere(
        |_| Vec::new(),
        |scene, _| {
            let disk = noise(1, 9 * MIB);
            vec![(scene.backup("new", &disk), disk)]
        },
    );
}

/// Rows: accepted extents; tree entries in memory; a recipe node found. Sent before the round, committed within it.
#[test]
fn what_a_session_found_before_a_round_is_committed_within_it() {
    everywhere(
        |scene| {
            let session = scene.start("new", &noise(1, 9 * MIB));
            scene.send(session, &noise(1, 9 * MIB));
            vec![session]
        },
        |scene, sessions| vec![(scene.commit(sessions[0]).backup_id, noise(1, 9 * MIB))],
    );
}

/// Rows: chunks sent and not named; containers of sessions in progress.
#[test]
fn what_a_session_sent_before_a_round_is_committed_within_it() {
    everywhere(
        |scene| {
            let session = scene.start("new", &noise(3, 9 * MIB));
            scene.send(session, &noise(3, 9 * MIB));
            vec![session]
        },
        |scene, sessions| vec![(scene.commit(sessions[0]).backup_id, noise(3, 9 * MIB))],
    );
}

/// Row: `unchanged`. The parent is deleted before the round begins.
#[test]
fn a_session_whose_parent_was_deleted_takes_it_over_within_a_round() {
    everywhere(
        |scene| vec![scene.start("dead", &noise(1, 9 * MIB))],
        |scene, sessions| {
            scene.send(sessions[0], &noise(1, 9 * MIB));
            let done = scene.commit(sessions[0]);
            assert_eq!(done.details[0].unchanged_bytes, 9 << 20);
            vec![(done.backup_id, noise(1, 9 * MIB))]
        },
    );
}

/// Row: a session that ended without a backup, in whose containers another found something.
#[test]
fn what_another_found_in_a_session_that_ends_within_a_round() {
    everywhere(
        |scene| {
            let failing = scene.start("failing", &noise(4, 9 * MIB));
            scene.send(failing, &noise(4, 9 * MIB));
            let other = scene.start("other", &noise(4, 9 * MIB));
            scene.send(other, &noise(4, 9 * MIB));
            vec![failing, other]
        },
        |scene, sessions| {
            scene.engine.abort(sessions[0], "test").unwrap();
            vec![(scene.commit(sessions[1]).backup_id, noise(4, 9 * MIB))]
        },
    );
}

/// Row: chunks of a container that is copied forward, found before, within and after.
#[test]
fn a_backup_of_what_moves_is_made_within_a_round() {
    everywhere(
        |scene| {
            let session = scene.start("early", &noise(7, 9 * MIB));
            scene.send(session, &noise(7, 9 * MIB));
            vec![session]
        },
        |scene, sessions| {
            let disk = noise(7, 9 * MIB);
            let early = (scene.commit(sessions[0]).backup_id, disk.clone());
            vec![early, (scene.backup("late", &disk), disk)]
        },
    );
}

/// A backup that begins with what is there, and one that ends, around each other's steps.
#[test]
fn a_chain_of_backups_within_a_round() {
    everywhere(
        |_| Vec::new(),
        |scene, _| {
            let mut disk = noise(2, 5 * MIB);
            disk[..50_000].copy_from_slice(&noise(5, 50_000));
            let first = scene.backup("stays", &disk);
            scene.delete(&first);
            disk[MIB..MIB + 50_000].copy_from_slice(&noise(6, 50_000));
            vec![(scene.backup("stays", &disk), disk)]
        },
    );
}
