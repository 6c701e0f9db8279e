//! Recipes that are in use although their restore points are gone.

use super::super::namespace;
use super::*;

/// Row: restores between plan and read, of a restore point that is deleted meanwhile.
#[test]
fn a_restore_goes_on_when_its_restore_point_is_deleted() {
    let scene = Scene::new();
    let disk = noise(1, 70 * MIB);
    let backup = scene.backup("web", &disk);
    let id: BackupId = backup.parse().unwrap();
    let mut reader = scene.engine.read_disk(namespace(&scene.engine), id, "root", 0, 0).unwrap();
    for _ in 0..2 {
        reader.next().unwrap().unwrap();
    }
    scene.delete(&backup);
    assert_eq!(scene.reclaim().containers_deleted, 0, "it is being read");
    assert!(reader.all(|message| message.is_ok()));
    drop(reader);
    assert!(scene.reclaim().containers_deleted > 0);
    assert_eq!(scene.containers(), 0);
    scene.is_sound();
}

/// Row: `unchanged`, of a parent deleted while its session lasts, over several rounds.
#[test]
fn a_parent_stays_as_long_as_its_session() {
    let scene = Scene::new();
    let disk = noise(1, 9 * MIB);
    let parent = scene.backup("web", &disk);
    let session = scene.start("web", &disk);
    scene.delete(&parent);
    for _ in 0..2 {
        assert_eq!(scene.reclaim().containers_deleted, 0);
    }
    scene.send(session, &disk);
    scene.reclaim();
    let done = scene.commit(session);
    assert_eq!(done.details[0].unchanged_bytes, 9 << 20);
    scene.reclaim();
    assert!(scene.restores(&done.backup_id, &disk));
    scene.is_sound();
}

/// Row: a verification, of a restore point that is deleted meanwhile. What was freed would be called damage.
#[test]
fn a_verification_goes_on_when_its_restore_point_is_deleted() {
    let scene = Scene::new();
    let disk = noise(1, 70 * MIB);
    let backup = scene.backup("web", &disk);
    let id: BackupId = backup.parse().unwrap();
    let mut is_first = true;
    let report = scene.engine.verify_backup(namespace(&scene.engine), id, "op", &mut |_| {
        if std::mem::take(&mut is_first) {
            scene.delete(&backup);
            assert_eq!(scene.reclaim().containers_deleted, 0, "it is being read");
        }
        true
    });
    let report = report.unwrap().unwrap();
    assert_eq!((report.bytes, report.damaged_extents), (70 << 20, 0), "{report:?}");
    scene.reclaim();
    assert_eq!(scene.containers(), 0);
    scene.is_sound();
}
