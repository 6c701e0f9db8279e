//! Older, newer and foreign databases.

use std::collections::BTreeMap;

use holdfast_types::clock::Clock;
use holdfast_types::ids::BackupId;
use ulid::Ulid;

use super::*;
use crate::sqlite::schema::{APPLICATION_ID, version};
use crate::{ExpiringRecord, RetentionLock, Verification};

/// The first released schema with some content, made without the catalog's code. Never change it: it is
/// what repositories in the field look like.
const FIXTURE_0001: &str = include_str!("fixture_0001.sql");
/// What the second schema added, on top of the first one's content.
const FIXTURE_0002: &str = include_str!("fixture_0002.sql");
const SCHEMA_0002: &str = include_str!("../../../migrations/0002_web.sql");
const SCHEMA_0001: &str = include_str!("../../../migrations/0001_initial.sql");
/// The schemas after the second, up to the last one in which restore points could not be deleted.
const SCHEMAS_0003_TO_0008: [&str; 6] = [
    include_str!("../../../migrations/0003_processes.sql"),
    include_str!("../../../migrations/0004_owners.sql"),
    include_str!("../../../migrations/0005_points.sql"),
    include_str!("../../../migrations/0006_partial.sql"),
    include_str!("../../../migrations/0007_quotas.sql"),
    include_str!("../../../migrations/0008_sessions.sql"),
];
/// What these added, on top of the content of the first two: every table has rows.
const FIXTURE_0008: &str = include_str!("fixture_0008.sql");

#[test]
fn a_catalog_of_the_first_schema_opens_and_goes_on() {
    let home = Home::new();
    let raw = home.raw();
    raw.execute_batch(SCHEMA_0001).unwrap();
    raw.execute_batch(FIXTURE_0001).unwrap();
    drop(raw);

    let fixture = home.open().unwrap();
    assert_eq!(fixture.repository().unwrap().id.to_string(), "00000000000000000000000001");
    let backup = fixture.latest_backup(fixture.default.id, "web").unwrap().unwrap();
    assert_eq!((backup.job.as_str(), backup.disks[0].size_bytes), ("nightly", 10_737_418_240));
    assert_eq!(backup.missing_disks, Vec::<String>::new());
    let rows = rows(&fixture);
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].bytes, rows[0].post_lc, rows[1].error.as_str()),
        (3_000_000, 400_000, "agent vanished")
    );
    assert_eq!(fixture.damaged().unwrap().len(), 1);
    assert_eq!(fixture.list_tokens().unwrap()[0].name, "hv-1");
    assert_eq!(fixture.reserve_container_numbers(1).unwrap(), 4..5);
    // What the second schema added.
    assert_eq!(fixture.verifications(&[backup.id]).unwrap(), []);
    let at_ms = fixture.clock.now_ms();
    let verified = Verification {
        backup: backup.id,
        at_ms,
        who: "op".into(),
        by_agent: true,
        ok: true,
        detail: "".into(),
    };
    fixture.record_verification(&verified).unwrap();
    assert_eq!(fixture.verifications(&[backup.id]).unwrap(), [verified]);
    let token = fixture.list_tokens().unwrap()[0].id;
    let login = ExpiringRecord {
        id_hash: [1; 32],
        token,
        payload: "x".into(),
        created_ms: at_ms,
        expires_ms: at_ms + 1,
    };
    fixture.create_expiring(&login).unwrap();
    assert_eq!(fixture.expiring(&[1; 32]).unwrap(), Some(login));
    // What the fourth schema added: all that there was has one owner.
    let token = &fixture.list_tokens().unwrap()[0];
    assert_eq!((token.owner.as_str(), token.vm_patterns.len()), ("default", 0));
    let owner = fixture.vm_owner(fixture.default.id, "web").unwrap().unwrap().owner;
    assert_eq!((owner.as_deref(), backup.owner.as_str()), (Some("default"), "default"));
    assert_eq!(fixture.run(backup.run).unwrap().unwrap().owner, "default");
    // What the tenth schema added.
    assert_eq!((fixture.unfinished_tasks().unwrap(), fixture.schedules().unwrap()), (vec![], vec![]));
    fixture.add_up_first().unwrap();
    fixture.committed("web", "nightly");
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());
    assert_eq!(pragma(&home, "user_version"), version());
    assert_eq!(pragma(&home, "application_id"), APPLICATION_ID);
}

/// Damage is for the look of a start to tell: bringing the schema up needs no row of compression details.
#[test]
fn a_damaged_catalog_of_an_older_schema_opens_and_its_sums_are_made_later() {
    let home = Home::new();
    home.create().committed("web", "nightly");
    let raw = home.raw();
    raw.execute_batch(
        "DROP TRIGGER sums_of_new_row; DROP TRIGGER sums_of_removed_row; DROP TRIGGER sums_of_changed_row; \
         DROP TRIGGER jobs_new_run; DROP TRIGGER jobs_removed_run; DROP TRIGGER jobs_moved_run; \
         DROP INDEX details_failed_by_end; DROP TABLE detail_sums; ALTER TABLE jobs DROP COLUMN runs; \
         PRAGMA user_version = 23",
    )
    .unwrap();
    let root: i64 = raw
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'details'", [], |row| row.get(0))
        .unwrap();
    drop(raw);
    let sound = std::fs::read(&home.path).unwrap();
    let mut damaged = sound.clone();
    let start = (usize::try_from(root).unwrap() - 1) * 4096;
    damaged[start..start + 4096].fill(0xA5);
    std::fs::write(&home.path, damaged).unwrap();
    let clock = Arc::new(ManualClock::new(START_MS));
    let catalog = Catalog::open(&home.path, clock.clone()).unwrap();
    catalog.add_up_first().unwrap_err();
    drop(catalog);
    let home = Home::new();
    std::fs::write(&home.path, sound).unwrap();
    let catalog = Catalog::open(&home.path, clock).unwrap();
    let rows = || catalog.job_overviews(None).unwrap().iter().map(|job| job.sums.rows).collect::<Vec<_>>();
    assert_eq!(rows(), [0]);
    catalog.add_up_first().unwrap();
    assert_eq!(rows(), [2]);
    assert_eq!(catalog.integrity_check().unwrap(), Vec::<String>::new());
}

/// An upgrade that was killed before it made its index leaves that to the next start.
#[test]
fn an_index_that_an_upgrade_did_not_make_is_made_by_the_next_start() {
    let home = Home::new();
    home.create().committed("web", "nightly");
    home.raw().execute("DROP INDEX details_failed_by_end", []).unwrap();
    let _fixture = home.open().unwrap();
    let named = "SELECT count(*) FROM sqlite_schema WHERE name = 'details_failed_by_end'";
    assert_eq!(home.raw().query_row(named, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}

#[test]
fn a_catalog_of_the_second_schema_keeps_its_damage_and_logins() {
    let home = Home::new();
    let raw = home.raw();
    raw.execute_batch(SCHEMA_0001).unwrap();
    raw.execute_batch(FIXTURE_0001).unwrap();
    raw.execute_batch(SCHEMA_0002).unwrap();
    raw.execute_batch(FIXTURE_0002).unwrap();
    drop(raw);

    let fixture = home.open().unwrap();
    assert_eq!(pragma(&home, "user_version"), version());
    let known = fixture.damaged().unwrap();
    assert_eq!(known.len(), 2);
    let all = fixture.damage_changed_since(0).unwrap();
    assert_eq!(all.damage, known, "what was found before counts as changed");
    assert_eq!((all.containers.len(), all.last), (1, 1));
    fixture.clear_damage(all.containers[0], &[None, Some(5)]).unwrap();
    let cleared = fixture.damage_changed_since(all.last).unwrap();
    assert_eq!((cleared.containers, cleared.damage, cleared.last), (all.containers, vec![], 2));

    let record = fixture.expiring(&[7; 32]).unwrap().unwrap();
    assert_eq!((record.payload.as_str(), record.expires_ms), ("00ff", 4_000_000_000_000));
    fixture.add_up_first().unwrap();
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());
}

/// Every row of every table, by table, with the columns it was read from.
type Contents = BTreeMap<String, (Vec<String>, Vec<String>)>;

/// In the columns that `of` has, or in all that there are.
fn contents(raw: &Connection, of: Option<&Contents>) -> Contents {
    let strings = |sql: &str| -> Vec<String> {
        let mut statement = raw.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let tables = match of {
        Some(contents) => contents.keys().cloned().collect(),
        None => strings("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"),
    };
    let table = |name: String| {
        let columns = match of.and_then(|contents| contents.get(&name)) {
            Some((columns, _)) => columns.clone(),
            None => strings(&format!("SELECT name FROM pragma_table_info('{name}')")),
        };
        let quoted: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
        let mut rows = strings(&format!("SELECT {} FROM {name}", quoted.join(" || ',' || ")));
        rows.sort_unstable();
        (name, (columns, rows))
    };
    tables.into_iter().map(table).collect()
}

#[test]
fn a_catalog_of_the_eighth_schema_loses_nothing_and_its_restore_points_can_be_locked_and_deleted() {
    let home = Home::new();
    let raw = home.raw();
    let steps = [SCHEMA_0001, FIXTURE_0001, SCHEMA_0002, FIXTURE_0002];
    for step in steps.into_iter().chain(SCHEMAS_0003_TO_0008).chain([FIXTURE_0008]) {
        raw.execute_batch(step).unwrap();
    }
    let before = contents(&raw, None);
    let empty: Vec<_> = before.iter().filter(|(_, (_, rows))| rows.is_empty()).collect();
    assert!(empty.is_empty(), "tables without content prove nothing: {empty:?}");
    drop(raw);
    let fixture = home.open().unwrap();
    assert_eq!(contents(&home.raw(), Some(&before)), before);
    assert_eq!(pragma(&home, "user_version"), version());
    fixture.add_up_first().unwrap();
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());

    let ids: Vec<BackupId> = [7, 0x12, 0x14].map(|id| BackupId(Ulid(id))).into();
    for id in &ids {
        let backup = fixture.backup(*id).unwrap().unwrap();
        assert_eq!(backup.lock, RetentionLock::default(), "{id}");
        let point = fixture.point_state(*id).unwrap().unwrap();
        assert_eq!((point.revision, point.wanted), (1, 1), "{id}");
    }
    assert_eq!((fixture.lock_time().unwrap(), fixture.has_locks().unwrap()), (None, false));
    assert_eq!((fixture.deletions(None, 10).unwrap(), fixture.policies(None).unwrap()), (vec![], vec![]));
    assert_eq!(fixture.stale_points(None, 10).unwrap(), []);
    assert_eq!(fixture.proofs(&ids).unwrap(), [None; 3]);
    assert_eq!(fixture.damaged_disks(None, None, 10).unwrap(), []);
    assert_eq!(fixture.attribution().unwrap(), None);
    assert_eq!(fixture.condemned_containers().unwrap().len(), 1, "the next start finishes it");
    // Goes on as if it had been made by this version.
    let branch = fixture.namespace_by_name("branch").unwrap().unwrap().id;
    fixture.advance_lock_clock().unwrap();
    let until_ms = fixture.clock.now_ms() + 1000;
    assert_eq!(fixture.lock_backups(&ids[1..2], until_ms, "op").unwrap(), ids[1..2]);
    let error = fixture.begin_deletion(&ids, "op", "").unwrap_err();
    assert!(matches!(error, CatalogError::Locked { .. }), "{error:?}");
    assert_eq!(fixture.begin_deletion(&ids[2..], "op", "").unwrap().len(), 1);
    assert_eq!(fixture.latest_backup(fixture.default.id, "web").unwrap().unwrap().id, ids[0]);
    let held = fixture.latest_backup(branch, "db").unwrap().unwrap();
    assert_eq!(
        (held.lock.until_ms, held.missing_disks),
        (Some(until_ms), vec!["scratch".to_owned(), "swap".to_owned()])
    );
    fixture.add_up_first().unwrap();
    fixture.committed("web", "nightly");
    assert_eq!(fixture.integrity_check().unwrap(), Vec::<String>::new());
}

fn pragma(home: &Home, name: &str) -> i32 {
    home.raw().pragma_query_value(None, name, |row| row.get(0)).unwrap()
}

#[test]
fn a_newer_catalog_is_unsupported_and_not_touched() {
    let home = Home::new();
    drop(home.create());
    home.raw().pragma_update(None, "user_version", version() + 1).unwrap();
    let before = std::fs::read(&home.path).unwrap();
    let error = home.open().unwrap_err();
    let CatalogError::Unsupported { found, known, .. } = &error else { panic!("{error:?}") };
    let (newer, ours) = (version() + 1, version());
    assert_eq!(*found, format!("version {newer}"));
    assert_eq!(*known, format!("versions 1 to {ours}"));
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Unsupported);
    let clock = Arc::new(ManualClock::new(0));
    let error = Catalog::open_or_create(&home.path, clock, Arc::<OwnLatch>::default()).unwrap_err();
    assert!(matches!(error, CatalogError::Unsupported { .. }), "{error:?}");
    assert_eq!(std::fs::read(&home.path).unwrap(), before);
}

#[test]
fn a_repository_of_other_parameters_is_unsupported() {
    for (sql, words) in [
        ("UPDATE repository SET chunker_avg_bytes = 32768", ["8192/32768/65536", "8192/16384/65536"]),
        ("UPDATE repository SET chunker_algorithm = 'rabin'", ["rabin", "fastcdc-2020"]),
        ("UPDATE repository SET format_version = 7", ["format is 7", "knows 1"]),
    ] {
        let home = Home::new();
        drop(home.create());
        home.raw().execute(sql, []).unwrap();
        let error = home.open().unwrap_err();
        assert!(matches!(error, CatalogError::Unsupported { .. }), "{error:?}");
        assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
    }
}

#[test]
fn foreign_databases_are_not_touched() {
    for (sql, word) in [
        ("CREATE TABLE theirs (x); INSERT INTO theirs VALUES (1)", "no Holdfast catalog"),
        ("PRAGMA user_version = 3", "no Holdfast catalog"),
        ("PRAGMA application_id = 66; CREATE TABLE theirs (x)", "another application (0x42)"),
    ] {
        let home = Home::new();
        home.raw().execute_batch(sql).unwrap();
        let before = std::fs::read(&home.path).unwrap();
        let clock = Arc::new(ManualClock::new(0));
        for result in [
            Catalog::open(&home.path, clock.clone()),
            Catalog::open_or_create(&home.path, clock.clone(), Arc::<OwnLatch>::default()).map(|(c, _)| c),
        ] {
            let error = result.unwrap_err();
            assert!(matches!(error, CatalogError::Invalid { .. }), "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
        }
        let created = Catalog::create(&home.path, clock);
        assert!(matches!(created, Err(CatalogError::Exists { .. })), "{created:?}");
        assert_eq!(std::fs::read(&home.path).unwrap(), before);
    }
}

/// What a crash between making the file and filling it leaves.
#[test]
fn an_empty_file_is_no_catalog_and_is_taken_over() {
    let home = Home::new();
    std::fs::write(&home.path, b"").unwrap();
    let error = home.open().unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "catalog", .. }), "{error:?}");
    home.create().committed("web", "nightly");
}
