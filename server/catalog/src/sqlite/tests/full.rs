//! No room.

use holdfast_types::ids::BackupId;

use super::*;
use crate::sqlite::room::BYTES;

#[test]
fn a_full_disk_changes_nothing_and_passes() {
    let home = Home::new();
    let clock = Arc::new(ManualClock::new(START_MS));
    let catalog = Arc::new(Catalog::create(&home.path, clock.clone()).unwrap());
    let fixture = Fixture::of(catalog.clone(), clock);
    fixture.committed("web", "nightly");
    let limit = |pages: i64| {
        let writer = catalog.writer.lock();
        writer.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(())).unwrap();
    };
    let pages = i64::try_from(fixture.size_bytes().unwrap() / 4096).unwrap();
    limit(pages + 1);

    let mut commits = 1;
    let refused = loop {
        let commit = fixture.commit("web", "nightly");
        match fixture.commit_backup(&commit) {
            Ok(()) => commits += 1,
            Err(CatalogError::Full) => break commit,
            Err(other) => panic!("{other:?}"),
        }
        assert!(commits < 1000, "the limit is never reached");
    };
    let state = || {
        (
            rows(&fixture).len(),
            fixture.all_roots().count(),
            fixture.all_containers().count(),
            fixture.damaged().unwrap(),
        )
    };
    assert_eq!(state(), (commits * 2, commits * 2, commits * 4, vec![]));
    assert_eq!(fixture.backup(refused.backup).unwrap(), None);
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());

    limit(1 << 30);
    fixture.commit_backup(&refused).unwrap();
    assert_eq!(state(), (commits * 2 + 2, commits * 2 + 2, commits * 4 + 4, vec![]));
}

fn room_bytes(home: &Home) -> Option<u64> {
    std::fs::metadata(home.path.with_file_name("catalog.room")).ok().map(|found| found.len())
}

#[test]
fn room_is_kept_grown_and_given_up_once() {
    let home = Home::new();
    let catalog = Catalog::create(&home.path, Arc::new(ManualClock::new(START_MS))).unwrap();
    // An earlier version kept less.
    std::fs::write(home.path.with_file_name("catalog.room"), vec![1; 64 << 10]).unwrap();
    for _ in 0..2 {
        catalog.keep_room().unwrap();
        assert_eq!(room_bytes(&home), Some(BYTES as u64));
    }
    assert!(crate::give_up_room(&home.path) && !crate::give_up_room(&home.path));
    assert_eq!(room_bytes(&home), None);
}

#[test]
fn room_that_could_not_be_kept_is_kept_once_something_was_deleted() {
    let home = Home::new();
    let catalog = Catalog::create(&home.path, Arc::new(ManualClock::new(START_MS))).unwrap();
    catalog.remove_condemned(&[]).unwrap();
    assert_eq!(room_bytes(&home), None, "no one asked for it");
    let in_the_way = home.path.with_file_name("catalog.room");
    std::fs::create_dir(&in_the_way).unwrap();
    catalog.keep_room().unwrap_err();
    std::fs::remove_dir(&in_the_way).unwrap();
    catalog.remove_condemned(&[]).unwrap();
    assert_eq!(room_bytes(&home), Some(BYTES as u64));
}

/// The room covers the log that a deletion writes, and the growth of the database when that is folded in.
#[test]
fn a_thousand_restore_points_are_deleted_in_the_room_that_is_kept() {
    let home = Home::new();
    let fixture = home.create();
    let mut points: Vec<BackupId> = Vec::new();
    // Of many VMs in turn, among others: hardly two of them are in one page.
    for round in 0..20 {
        for vm in 0..100 {
            let made = fixture.committed(&format!("vm-{vm}"), "nightly").backup;
            points.extend((round % 2 == 0).then_some(made));
        }
    }
    assert_eq!(points.len(), 1000);
    let folded = || home.raw().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    let bytes = |end: &str| {
        let name = format!("{}{end}", home.path.file_name().unwrap().to_str().unwrap());
        std::fs::metadata(home.path.with_file_name(name)).map_or(0, |found| found.len())
    };
    folded();
    let before = bytes("");
    let reason = "x".repeat(2000);
    fixture.begin_deletion(&points, "operator", &reason).unwrap();
    fixture.finish_deletion(&points).unwrap();
    let log = bytes("-wal");
    folded();
    let grown = bytes("").saturating_sub(before);
    assert!(log > 1 << 20, "{log}");
    assert!(log + grown <= BYTES as u64, "{log} and {grown}");
}
