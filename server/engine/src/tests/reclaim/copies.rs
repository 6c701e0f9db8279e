//! Copying forward: what is live of sparse containers moves, and the rest goes.

use super::*;

fn bytes(scene: &Scene) -> u64 {
    crate::container::list_containers(&scene.volume).unwrap().containers.iter().map(|one| one.1).sum()
}

#[test]
fn what_is_live_of_sparse_containers_moves() {
    let scene = Scene::new();
    let mut disk = noise(1, 40 * MIB);
    let old = scene.backup("web", &disk);
    for at in (0..40).map(|part| part * MIB) {
        disk[at..at + 600_000].copy_from_slice(&noise(100 + at as u64, 600_000));
    }
    let new = scene.backup("web", &disk);
    scene.delete(&old);
    let before = bytes(&scene);
    let report = scene.reclaim();
    assert!(report.copied_bytes > 0 && report.containers_written > 0, "{report:?}");
    assert_eq!(report.freed_bytes, before - bytes(&scene), "{report:?}");
    // 40 MiB are needed; recipes and the rounding of chunks come on top.
    assert!(bytes(&scene) < 42 << 20, "{} of {before} bytes are left: {report:?}", bytes(&scene));
    assert!(scene.restores(&new, &disk));
    scene.is_sound();
    let again = scene.reclaim();
    assert_eq!((again.containers_deleted, again.copied_bytes), (0, 0), "{again:?}");
    let scene = scene.reopened();
    assert!(scene.restores(&new, &disk));
    scene.is_sound();
}

#[test]
fn small_containers_of_small_runs_are_merged_once() {
    let scene = Scene::new();
    let mut disk = noise(1, 5 * MIB);
    let mut made = Vec::new();
    for day in 0..12usize {
        disk[day * 100_000..day * 100_000 + 50_000].copy_from_slice(&noise(day as u64 + 10, 50_000));
        made.push((scene.backup("web", &disk), disk.clone()));
    }
    let before = scene.containers();
    let report = scene.reclaim();
    assert!(report.small_merged >= 12 && scene.containers() < before / 2, "{before}: {report:?}");
    assert!(made.iter().all(|(backup, disk)| scene.restores(backup, disk)));
    scene.is_sound();
    assert_eq!(scene.reclaim().containers_written, 0, "not again each night");
}

/// (D1) Row: query answered *have*. What a session found is copied, and then needed by no restore point any more.
#[test]
fn what_a_session_found_stays_wherever_it_is_moved() {
    let scene = Scene::new();
    let mut disk = noise(1, 9 * MIB);
    let old = scene.backup("web", &disk);
    for at in (0..9).map(|part| part * MIB) {
        disk[at..at + 700_000].copy_from_slice(&noise(100 + at as u64, 700_000));
    }
    let needs_it = scene.backup("web", &disk);
    let session = scene.start("new", &disk);
    scene.send(session, &disk);
    scene.delete(&old);
    let report = scene.reclaim();
    assert!(report.containers_written > 0 && report.containers_deleted > 0, "{report:?}");
    scene.delete(&needs_it);
    // Twice: what is held moves again, perhaps.
    scene.reclaim();
    scene.reclaim();
    let new = scene.commit(session).backup_id;
    assert!(scene.restores(&new, &disk));
    scene.is_sound();
    scene.reclaim();
    assert!(scene.restores(&new, &disk));
    scene.delete(&new);
    scene.reclaim();
    assert_eq!(scene.containers(), 0, "held by no one");
}
