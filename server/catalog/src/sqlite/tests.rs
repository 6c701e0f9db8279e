//! What is SQLite's own: files, versions, crashes, other processes, full disks, query plans.

mod concurrent;
mod crash;
mod damage;
mod full;
mod memory;
mod plans;
mod snapshots;
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

/// Sums follow rows that are removed or changed, too, by whatever code.
#[test]
fn sums_follow_removals() {
    let home = Home::new();
    let fixture = home.create();
    let commits: Vec<_> = (0..4).map(|_| fixture.committed("web", "nightly")).collect();
    fixture.committed("db", "nightly");
    let raw = home.raw();
    raw.pragma_update(None, "foreign_keys", true).unwrap();
    let points = || fixture.quotas(None).unwrap()[0].usage.restore_points;
    let sound = |what: &str| assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{what}");
    // An older one, the newest, the rest.
    for (number, left) in [(1, 4), (3, 3), (0, 2), (2, 1)] {
        raw.execute("DELETE FROM backups WHERE id = ?", [commits[number].backup.to_bytes()]).unwrap();
        assert_eq!(points(), left);
        sound("a backup was removed");
    }
    raw.execute("DELETE FROM containers WHERE id = 2", []).unwrap();
    sound("a container was removed");
    raw.execute("UPDATE containers SET stored_bytes = stored_bytes + 5 WHERE id = 1", []).unwrap();
    sound("a container was changed");
    raw.execute("UPDATE namespace_usage SET stored_bytes = -1", []).unwrap();
    let problems = fixture.integrity_check().unwrap();
    assert!(problems.len() == 1 && problems[0].contains("-1 stored bytes"), "{problems:?}");
    assert_eq!(fixture.quotas(None).unwrap()[0].usage.stored_bytes, 0, "starting goes on");
}

/// As those of namespaces, sums of compression details.
#[test]
fn sums_of_details_follow_every_change() {
    let home = Home::new();
    let fixture = home.create();
    let commits: Vec<_> = (0..3).map(|_| fixture.committed("web", "nightly")).collect();
    fixture.committed("db", "weekly");
    let raw = home.raw();
    let sound = |what: &str| assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{what}");
    let jobs = || fixture.job_overviews(None).unwrap();
    let other = "(SELECT id FROM vms WHERE name = 'db')";
    raw.execute(
        &format!("UPDATE details SET vm_id = {other} WHERE session_id = ?"),
        [commits[0].attempt.session.to_bytes()],
    )
    .unwrap();
    assert_eq!((jobs()[0].vms, jobs()[0].runs), (2, 3));
    sound("rows became another VM's");
    raw.execute("DELETE FROM backups", []).unwrap();
    raw.execute(&format!("DELETE FROM details WHERE vm_id = {other}"), []).unwrap();
    sound("rows were removed");
    raw.execute("UPDATE containers SET run_id = NULL", []).unwrap();
    raw.execute("DELETE FROM runs WHERE id NOT IN (SELECT run_id FROM details)", []).unwrap();
    sound("runs were removed");
    assert_eq!(jobs().len(), 1, "a job without rows is in no overview");
    raw.execute("UPDATE details SET wire_bytes = 9223372036854775807", []).unwrap();
    assert_eq!(jobs()[0].sums.wire_bytes, 1 << 62, "a sum ends, and does not overflow");
    sound("a sum that ended");
    // Each column is looked at, those beside one that ended, too.
    for column in ["rows", "failed", "bytes", "new_bytes", "post_lc", "meta_bytes"] {
        raw.execute(&format!("UPDATE detail_sums SET {column} = {column} + 1"), []).unwrap();
        let problems = fixture.integrity_check().unwrap();
        assert!(problems.len() == 1 && problems[0].contains(column), "{problems:?}");
        assert_eq!(fixture.correct_sums(Box::new(|| true)).unwrap(), Some(problems));
        sound("it was corrected");
    }
}

/// The first row of a sum may be more than its end.
#[test]
fn a_sum_of_a_single_row_ends_too() {
    let home = Home::new();
    let fixture = home.create();
    fixture.record_failed_run(&fixture.failed("web", "nightly", crate::RowStatus::Failed)).unwrap();
    let raw = home.raw();
    let ends = |what: &str| {
        assert_eq!(fixture.job_overviews(None).unwrap()[0].sums.wire_bytes, 1 << 62, "{what}");
        assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{what}");
    };
    raw.execute("UPDATE details SET wire_bytes = 9223372036854775807", []).unwrap();
    ends("a row was changed");
    let again = "CREATE TEMP TABLE one AS SELECT * FROM details; DELETE FROM details; INSERT INTO details SELECT * FROM one";
    raw.execute_batch(again).unwrap();
    ends("a row is new");
    fixture.add_up().unwrap();
    ends("rows were added up");
}

/// A job whose sums are lost says all the same which run was its last, and how many VMs fail.
#[test]
fn a_job_without_sums_is_listed() {
    let home = Home::new();
    let fixture = home.create();
    let failed = fixture.failed("web", "nightly", crate::RowStatus::Failed);
    fixture.record_failed_run(&failed).unwrap();
    home.raw().execute("DELETE FROM detail_sums", []).unwrap();
    let jobs = fixture.job_overviews(None).unwrap();
    assert_eq!((jobs.len(), jobs[0].vms, jobs[0].failing_vms), (1, 0, 1));
    assert_eq!(jobs[0].last_run.as_ref().map(|run| run.id), Some(failed.attempt.run));
}

/// Statistics that are damaged, in whatever way, keep no backup from being committed and no page from being shown.
#[test]
fn wrong_sums_are_in_the_way_of_nothing() {
    for damage in [
        "UPDATE detail_sums SET rows = -5, failed = 7, bytes = -9223372036854775808",
        "UPDATE detail_sums SET rows = 9223372036854775807, wire_bytes = 9223372036854775807",
        "UPDATE detail_sums SET rows = NULL, failed = 'x', bytes = x'00', new_bytes = 1e300, post_lc = NULL",
        "UPDATE detail_sums SET vm_id = x'07'",
        "DELETE FROM detail_sums; UPDATE jobs SET runs = -1; DELETE FROM namespace_usage",
        "UPDATE namespace_usage SET restore_points = -1, protected_bytes = -1",
    ] {
        let query = crate::VmQuery {
            vm: None,
            search: None,
            stale: None,
            stale_before_ms: 0,
            sort: crate::VmSort::StoredBytes,
            descending: true,
            offset: 0,
            limit: 10,
            now_ms: START_MS,
        };
        let home = Home::new();
        let fixture = home.create();
        fixture.committed("web", "nightly");
        home.raw().execute_batch(damage).unwrap();
        fixture.committed("web", "nightly");
        fixture.job_overviews(None).unwrap();
        fixture.repository_overview(None, &[None, Some(0)]).unwrap();
        fixture.vm_overviews(None, &query).unwrap();
        let wrong = fixture.correct_sums(Box::new(|| true)).unwrap().unwrap();
        assert!(!wrong.is_empty(), "{damage}");
        assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new(), "{damage}");
        assert_eq!(fixture.job_overviews(None).unwrap()[0].runs, 2);
    }
}
