//! Several threads, several processes (here: several catalogs on one file, which SQLite tells apart no more
//! than processes).

use std::sync::{Barrier, mpsc};
use std::time::Duration;

use holdfast_types::ids::{ContainerId, SessionId};
use ulid::Ulid;

use super::*;
use crate::sqlite::pool::REPORTS_MAX;
use crate::token::{Role, new_token};
use crate::{PageRequest, TokenSpec};

#[test]
fn two_writers_lose_nothing() {
    let home = Home::new();
    let server = home.create();
    let (commits, tokens) = (30, 30);
    std::thread::scope(|scope| {
        let agents = scope.spawn(|| {
            for n in 0..commits {
                server.committed(&format!("vm-{}", n % 3), "nightly");
            }
        });
        // The token command.
        scope.spawn(|| {
            let command = home.open().unwrap();
            for n in 0..tokens {
                let (_, id, hash) = new_token(command.clock.as_ref()).unwrap();
                let spec = TokenSpec {
                    id,
                    name: n.to_string(),
                    role: Role::Backup,
                    namespaces: vec![],
                    owner: "default".into(),
                    vm_patterns: Vec::new(),
                    expires_ms: None,
                };
                command.create_token(&spec, &hash).unwrap();
            }
        });
        let mut seen = 0;
        while !agents.is_finished() {
            let rows = rows(&server).len();
            assert!(rows >= seen && rows.is_multiple_of(2), "{rows} rows after {seen}");
            seen = rows;
        }
    });
    assert_eq!(rows(&server).len(), commits * 2);
    assert_eq!(server.list_tokens().unwrap().len(), tokens);
    assert_eq!(server.integrity_check().unwrap(), Vec::<String>::new());
}

#[test]
fn more_readers_than_connections_all_get_their_turn() {
    let home = Home::new();
    let fixture = home.create();
    fixture.committed("web", "nightly");
    std::thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| {
                for _ in 0..5 {
                    assert_eq!(
                        fixture
                            .details(&crate::DetailFilter::default(), PageRequest::FIRST)
                            .unwrap()
                            .items
                            .len(),
                        2
                    );
                }
            });
        }
    });
}

/// A browser may ask for as many reports at once as there are connections for them, each over every row.
#[test]
fn look_ups_do_not_wait_for_reports() {
    let home = Home::new();
    let fixture = home.create();
    let backup = fixture.committed("web", "nightly").backup;
    let catalog = Catalog::open(&home.path, fixture.clock.clone()).unwrap();
    let (token, id, hash) = new_token(fixture.clock.as_ref()).unwrap();
    drop(token);
    let spec = TokenSpec {
        id,
        name: "t".into(),
        role: Role::Backup,
        namespaces: vec![],
        owner: "default".into(),
        vm_patterns: Vec::new(),
        expires_ms: None,
    };
    catalog.create_token(&spec, &hash).unwrap();
    let (held, release) = (Barrier::new(REPORTS_MAX + 1), Barrier::new(REPORTS_MAX + 1));
    let answered = std::thread::scope(|scope| {
        for _ in 0..REPORTS_MAX {
            scope.spawn(|| {
                let report = |_: &Connection| {
                    held.wait();
                    release.wait();
                    Ok(())
                };
                catalog.report(report).unwrap();
            });
        }
        held.wait();
        let (done, answer) = mpsc::channel();
        let (catalog, namespace) = (&catalog, fixture.default.id);
        scope.spawn(move || {
            // Queries that authenticate a call.
            assert!(catalog.token(id).unwrap().is_some());
            catalog.touch_token(id).unwrap();
            assert_eq!(catalog.expiring(&[7; 32]).unwrap(), None);
            catalog.namespace(namespace).unwrap().unwrap();
            catalog.namespace_by_name("default").unwrap().unwrap();
            // Queries of a backup and a restore.
            assert_eq!(catalog.latest_backup(namespace, "web").unwrap().unwrap().id, backup);
            assert!(catalog.backup(backup).unwrap().is_some());
            assert!(catalog.backup_by_session(SessionId(Ulid(1))).unwrap().is_none());
            assert_eq!(catalog.session_details(SessionId(Ulid(1))).unwrap(), []);
            assert!(catalog.container(ContainerId::new(1).unwrap()).unwrap().is_some());
            assert_eq!(catalog.damaged().unwrap(), []);
            // No one listens any more when it came too late; the assertion below says so.
            let _ = done.send(());
        });
        // Only a failure waits that long.
        let answered = answer.recv_timeout(Duration::from_secs(600)).is_ok();
        release.wait();
        answered
    });
    assert!(answered, "a look-up waited for a connection that reports held");
}

#[test]
fn a_failed_read_gives_its_connection_back() {
    let home = Home::new();
    let catalog = Catalog::create(&home.path, Arc::new(ManualClock::new(0))).unwrap();
    for _ in 0..100 {
        let failed: super::super::Result<()> = catalog.look_up(|_| Err(CatalogError::Busy));
        assert!(failed.is_err());
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _: super::super::Result<()> = catalog.look_up(|_| panic!("a defect in a reader"));
        }));
        assert!(panicked.is_err());
    }
    catalog.repository().unwrap();
}

#[test]
fn a_writer_that_never_ends_is_busy_not_damage() {
    let home = Home::new();
    drop(home.create());
    let clock = Arc::new(ManualClock::new(START_MS));
    let catalog = Catalog::open_with(&home.path, clock, Duration::from_millis(20)).unwrap();
    let raw = home.raw();
    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = catalog.reserve_container_numbers(1).unwrap_err();
    assert!(matches!(error, CatalogError::Busy), "{error:?}");
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Unavailable);
    catalog.repository().unwrap();
    raw.execute_batch("ROLLBACK").unwrap();
    assert_eq!(catalog.reserve_container_numbers(1).unwrap(), 1..2);
}

#[test]
fn two_that_create_at_once_make_one_repository() {
    for _ in 0..5 {
        let home = Home::new();
        let ids: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let clock = Arc::new(ManualClock::new(START_MS));
                        let (catalog, created) =
                            Catalog::open_or_create(&home.path, clock, Arc::<OwnLatch>::default()).unwrap();
                        (created, catalog.repository().unwrap().id)
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(ids.iter().filter(|(created, _)| *created).count(), 1, "{ids:?}");
        assert!(ids.iter().all(|(_, id)| *id == ids[0].1), "{ids:?}");
    }
}
