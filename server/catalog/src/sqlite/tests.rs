//! Tests of what is SQLite's own: files, versions, crashes, other processes, full disks, query plans.

mod concurrent;
mod crash;
mod damage;
mod full;
mod memory;
mod plans;
mod portable;
mod snapshots;
mod sums;
mod versions;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use holdfast_types::clock::ManualClock;
use rusqlite::Connection;

use super::Catalog;
use crate::testing::fixture::{Fixture, START_MS};
use crate::testing::{InjectedFailure, suite};
use crate::{CatalogError, DEFAULT_NAMESPACE, DetailRow, Latch as _, OwnLatch};

/// A catalog in a folder of its own.
struct Home {
    dir: tempfile::TempDir,
    path: PathBuf,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("catalog.db");
        Self { dir, path }
    }

    fn create(&self) -> Fixture {
        let clock = Arc::new(ManualClock::new(START_MS));
        Fixture::of(Arc::new(Catalog::create(&self.path, clock.clone()).unwrap()), clock)
    }

    fn open(&self) -> Result<Fixture, CatalogError> {
        open(&self.path)
    }

    /// The database without the catalog's code.
    fn raw(&self) -> Connection {
        Connection::open(&self.path).unwrap()
    }
}

fn open(path: &Path) -> Result<Fixture, CatalogError> {
    let clock = Arc::new(ManualClock::new(START_MS + 1_000_000));
    let catalog = Catalog::open(path, clock.clone())?;
    Ok(Fixture::of(Arc::new(catalog), clock))
}

fn wal_of(path: &Path) -> PathBuf {
    path.with_extension("db-wal")
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let number = AtomicU32::new(0);
    suite(|clock| {
        let path = dir.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        Arc::new(Catalog::create(&path, clock).unwrap())
    });
}

#[test]
fn a_new_catalog_has_a_repository_and_a_namespace() {
    let home = Home::new();
    let clock = Arc::new(ManualClock::new(START_MS));
    assert!(matches!(Catalog::open(&home.path, clock.clone()), Err(CatalogError::NotFound { .. })));
    assert!(!home.path.exists(), "looking must not create");
    let (catalog, created) =
        Catalog::open_or_create(&home.path, clock.clone(), Arc::<OwnLatch>::default()).unwrap();
    assert!(created);
    let repository = catalog.repository().unwrap();
    assert_eq!(catalog.namespaces().unwrap()[0].name, DEFAULT_NAMESPACE);
    drop(catalog);
    assert!(matches!(Catalog::create(&home.path, clock.clone()), Err(CatalogError::Exists { .. })));
    let (catalog, created) = Catalog::open_or_create(&home.path, clock, Arc::<OwnLatch>::default()).unwrap();
    assert!(!created);
    assert_eq!(catalog.repository().unwrap(), repository);
    let missing = Catalog::create(Path::new("/nonexistent/x.db"), Arc::new(ManualClock::new(0)));
    assert!(matches!(missing, Err(CatalogError::Io { .. })), "{missing:?}");
}

#[test]
fn everything_survives_and_the_log_is_folded_in_at_the_end() {
    let home = Home::new();
    let fixture = home.create();
    let commit = fixture.committed("web", "nightly");
    assert!(std::fs::metadata(wal_of(&home.path)).unwrap().len() > 0);
    fixture.checkpoint().unwrap();
    let folded_in: u64 = std::fs::metadata(wal_of(&home.path)).unwrap().len();
    assert_eq!(fixture.size_bytes().unwrap(), std::fs::metadata(&home.path).unwrap().len());
    fixture.committed("web", "nightly");
    assert_eq!(std::fs::metadata(wal_of(&home.path)).unwrap().len(), folded_in, "begun anew");
    drop(fixture);
    assert!(!wal_of(&home.path).exists(), "nothing but the database is left");
    let fixture = home.open().unwrap();
    assert_eq!(fixture.backup(commit.backup).unwrap().unwrap().disks, commit.disks);
    assert_eq!(std::fs::read_dir(home.dir.path()).unwrap().count(), 3, "database, log, shared memory");
}

#[test]
fn settings_are_what_durability_needs() {
    let home = Home::new();
    let catalog = Catalog::create(&home.path, Arc::new(ManualClock::new(0))).unwrap();
    let pragma = |connection: &Connection, name: &str| -> String {
        connection
            .pragma_query_value(None, name, |row| {
                Ok(match row.get_ref(0)? {
                    rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                    other => other.as_str().unwrap().to_owned(),
                })
            })
            .unwrap()
    };
    let writer = catalog.writer.lock();
    for (name, value) in [
        ("journal_mode", "wal"),
        ("synchronous", "2"),
        ("foreign_keys", "1"),
        ("busy_timeout", "10000"),
        ("trusted_schema", "0"),
    ] {
        assert_eq!(pragma(&writer, name), value, "{name}");
    }
    drop(writer);
    let refused = catalog.look_ups.with(|reader| {
        assert_eq!(pragma(reader, "trusted_schema"), "0");
        assert_eq!(pragma(reader, "busy_timeout"), "10000");
        Ok(reader.execute("DELETE FROM namespaces", []).unwrap_err().to_string())
    });
    assert!(refused.unwrap().contains("readonly"));
}

/// The checks before a write are one line of defence; the schema is the other.
#[test]
fn the_schema_refuses_what_breaks_the_rules() {
    let home = Home::new();
    let fixture = home.create();
    fixture.committed("web", "nightly");
    drop(fixture);
    let raw = home.raw();
    raw.pragma_update(None, "foreign_keys", true).unwrap();
    for sql in [
        "UPDATE details SET bytes = bytes + 1",
        "UPDATE details SET new_chunks = chunks + 1",
        "UPDATE details SET post_lc = -1",
        "UPDATE details SET backup_id = NULL",
        "UPDATE details SET status = 'failed'",
        "UPDATE details SET status = 'unknown'",
        "UPDATE details SET run_id = x'00'",
        "UPDATE disks SET data_bytes = size_bytes + 1",
        "UPDATE disks SET root = x'00'",
        "UPDATE disks SET size_bytes = 'many'",
        "UPDATE containers SET id = 1 << 40 WHERE id = 1",
        "UPDATE containers SET state = 'gone'",
        "UPDATE backups SET vm_id = randomblob(16)",
        "UPDATE backups SET ordinal = 0",
        "UPDATE repository SET next_container = 0",
        "INSERT INTO repository SELECT 2, id, 1, 1, 'x', 1, 1, 1, 1, 1, 1, 0, 0, 0 FROM repository",
        "DELETE FROM namespaces",
    ] {
        let refused = raw.execute(sql, []).expect_err(sql);
        assert_eq!(
            refused.sqlite_error_code(),
            Some(rusqlite::ErrorCode::ConstraintViolation),
            "{sql}: {refused}"
        );
    }
}

#[test]
fn after_an_io_error_nothing_more_is_written() {
    let home = Home::new();
    let clock = Arc::new(ManualClock::new(START_MS));
    let catalog = Catalog::create(&home.path, clock.clone()).unwrap();
    assert_eq!(catalog.reserve_container_numbers(1).unwrap(), 1..2);
    let error = catalog.fail_a_change(InjectedFailure::Io);
    assert!(matches!(error, CatalogError::WriteFailed { .. }), "{error:?}");
    for refused in [catalog.reserve_container_numbers(1).unwrap_err(), catalog.checkpoint().unwrap_err()] {
        assert!(
            matches!(&refused, CatalogError::ReadOnly { .. }) && refused.to_string().contains("restart"),
            "{refused}"
        );
        assert_eq!(refused.code(), holdfast_proto::ErrorCode::ReadOnly);
    }
    catalog.repository().unwrap();
    let log = std::fs::read(wal_of(&home.path)).unwrap();
    drop(catalog);
    assert!(std::fs::read(wal_of(&home.path)).unwrap() == log, "closing does not fold the log in");
    let catalog = Catalog::open(&home.path, clock).unwrap();
    assert_eq!(catalog.reserve_container_numbers(1).unwrap(), 2..3);
}

/// Two catalogs, one latch: what one meets stops the other, and what passes stops neither.
#[test]
fn the_latch_is_the_owners() {
    let (one, other) = (Home::new(), Home::new());
    let latch = Arc::<OwnLatch>::default();
    let open = |home: &Home| {
        let clock = Arc::new(ManualClock::new(START_MS));
        Catalog::open_or_create(&home.path, clock, Arc::<OwnLatch>::clone(&latch)).unwrap().0
    };
    let (one, other) = (open(&one), open(&other));
    for failure in [InjectedFailure::Full, InjectedFailure::Busy] {
        let error = one.fail_a_change(failure);
        assert!(!error.stops_writes(), "{error}");
        assert_eq!(latch.reason(), None, "{error}");
    }
    one.fail_a_change(InjectedFailure::Io);
    assert!(latch.reason().is_some());
    let refused = other.reserve_container_numbers(1).unwrap_err();
    assert!(matches!(refused, CatalogError::ReadOnly { .. }), "{refused}");
}

/// Every row of details, all fields.
fn rows(fixture: &Fixture) -> Vec<DetailRow> {
    use crate::testing::fixture::all_pages;
    all_pages(1000, |page| fixture.details(&crate::DetailFilter::default(), page))
}

/// (L2, L3, L4, N2) Whatever statement, the database refuses it once more.
#[test]
fn guards_refuse_what_no_method_asks_for() {
    let home = Home::new();
    let fixture = home.create();
    let [held, locked, free] = [(); 3].map(|()| fixture.committed("web", "nightly").backup);
    let lock_time_ms = fixture.advance_lock_clock().unwrap();
    fixture.hold_backups(&[held], "for the court", "ann").unwrap();
    fixture.lock_backups(&[locked], lock_time_ms + 1000, "ann").unwrap();
    fixture.create_sealed_namespace("sealed", holdfast_proto::KeyId::from_bytes([7; 8])).unwrap();
    let raw = home.raw();
    for (sql, word) in [
        ("DELETE FROM backups WHERE hold_reason IS NOT NULL", "is locked"),
        ("DELETE FROM backups WHERE locked_until_ms IS NOT NULL", "is locked"),
        ("DELETE FROM backups", "is locked"),
        ("UPDATE backups SET locked_until_ms = locked_until_ms - 1", "never gets shorter"),
        ("UPDATE backups SET locked_until_ms = NULL", "never gets shorter"),
        ("UPDATE lock_clock SET now_ms = now_ms - 1", "never goes back"),
        ("UPDATE lock_clock SET now_ms = NULL", "never goes back"),
        ("DELETE FROM lock_clock", "never goes back"),
        ("UPDATE namespaces SET key_id = NULL WHERE key_id IS NOT NULL", "cannot be changed"),
        ("UPDATE namespaces SET key_id = zeroblob(8) WHERE key_id IS NOT NULL", "cannot be changed"),
    ] {
        let refused = raw.execute(sql, []).expect_err(sql);
        assert!(refused.to_string().contains(word), "{sql}: {refused}");
    }
    assert_eq!(raw.execute("DELETE FROM backups WHERE id = ?", [free.to_bytes()]).unwrap(), 1);
    raw.execute("UPDATE lock_clock SET now_ms = now_ms + 1000", []).unwrap();
    assert_eq!(
        raw.execute("DELETE FROM backups WHERE id = ?", [locked.to_bytes()]).unwrap(),
        1,
        "it has ended"
    );
}
