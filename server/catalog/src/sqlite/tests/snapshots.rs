//! Copies of the database, and catalogs made for a repository that lost its own.

use std::io::Read as _;

use holdfast_types::ids::RepositoryId;

use super::*;
use crate::{DEFAULT_NAMESPACE, discard_copies};

/// The copy as a catalog of its own.
fn copied(fixture: &Fixture) -> Home {
    let mut bytes = Vec::new();
    fixture.snapshot(&Arc::default()).unwrap().read_to_end(&mut bytes).unwrap();
    let home = Home::new();
    std::fs::write(&home.path, bytes).unwrap();
    home
}

#[test]
fn a_copy_holds_what_only_the_log_has() {
    let home = Home::new();
    let fixture = home.create();
    let first = fixture.committed("web", "nightly").backup;
    assert!(std::fs::metadata(wal_of(&home.path)).unwrap().len() > 0, "not folded in yet");
    let copy = copied(&fixture);
    fixture.committed("web", "nightly");
    let opened = copy.open().unwrap();
    assert_eq!(opened.integrity_check().unwrap(), Vec::<String>::new());
    assert_eq!(opened.catalog.all_backup_ids().map(Result::unwrap).collect::<Vec<_>>(), [first]);
    assert_eq!(opened.repository().unwrap(), fixture.repository().unwrap());
}

#[test]
fn a_copy_leaves_no_file_behind() {
    let home = Home::new();
    let fixture = home.create();
    let names = || {
        let entries = std::fs::read_dir(home.dir.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    let before = names();
    // A copy left by a crash in the middle of it, of an earlier process of this number.
    std::fs::write(home.dir.path().join(format!("catalog.db.copy-{}", std::process::id())), b"half").unwrap();
    let mut copy = fixture.snapshot(&Arc::default()).unwrap();
    assert_eq!(names(), before, "it has no name while it is read");
    let mut bytes = Vec::new();
    copy.read_to_end(&mut bytes).unwrap();
    assert!(bytes.starts_with(b"SQLite format 3\0"));
}

/// A stop does not wait for a copy of a large catalog.
#[test]
fn a_copy_gives_way_to_a_stop() {
    let home = Home::new();
    let fixture = home.create();
    // More than the steps between two looks.
    home.raw()
        .execute_batch(
            "CREATE TABLE much AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 50000) \
             SELECT i FROM n",
        )
        .unwrap();
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(true));
    assert!(fixture.snapshot(&stop).is_err());
    let left = std::fs::read_dir(home.dir.path()).unwrap();
    let copies =
        left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().contains(".copy-"));
    assert_eq!(copies.count(), 0);
    assert!(fixture.snapshot(&Arc::default()).is_ok(), "and is made later");
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());
}

/// Of whichever process.
#[test]
fn copies_that_were_left_go() {
    let home = Home::new();
    drop(home.create());
    let path = |name: &str| home.dir.path().join(name);
    for name in ["catalog.db.copy-1", "catalog.db.copy-77-journal", "catalog.db.copied", "other.copy-1"] {
        std::fs::write(path(name), b"x").unwrap();
    }
    discard_copies(&home.path).unwrap();
    assert!(!path("catalog.db.copy-1").exists() && !path("catalog.db.copy-77-journal").exists());
    assert!(path("catalog.db.copied").exists() && path("other.copy-1").exists());
    home.open().unwrap();
}

#[test]
fn a_catalog_for_a_repository_that_exists_has_its_id_and_no_namespace() {
    let home = Home::new();
    let clock = Arc::new(ManualClock::new(START_MS));
    let id = RepositoryId(ulid::Ulid::from_parts(5, 6));
    let catalog = Catalog::create_for(&home.path, clock.clone(), id).unwrap();
    assert_eq!((catalog.repository().unwrap().id, catalog.repository().unwrap().created_ms), (id, 5));
    assert_eq!(catalog.namespaces().unwrap(), []);
    assert!(catalog.ensure_namespace(DEFAULT_NAMESPACE).is_ok());
    drop(catalog);
    assert!(matches!(Catalog::create_for(&home.path, clock, id), Err(CatalogError::Exists { .. })));
}

#[test]
fn only_a_catalog_that_is_there_is_opened_as_existing() {
    let home = Home::new();
    let open = || {
        let clock = Arc::new(ManualClock::new(START_MS));
        Catalog::open_existing(&home.path, clock, Arc::<OwnLatch>::default())
    };
    assert!(matches!(open(), Err(CatalogError::NotFound { .. })));
    std::fs::write(&home.path, b"").unwrap();
    assert!(matches!(open(), Err(CatalogError::NotFound { .. })));
    std::fs::write(&home.path, b"not a database, but long enough to look at").unwrap();
    assert!(matches!(open(), Err(CatalogError::Corrupt { .. })));
    std::fs::remove_file(&home.path).unwrap();
    home.create();
    open().unwrap();
}
