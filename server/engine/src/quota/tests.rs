//! Sessions that race for the last bytes of a quota.

use std::sync::Barrier;
use std::thread;

use holdfast_catalog::testing::fixture::Fixture;
use holdfast_catalog::{Catalog, DEFAULT_NAMESPACE, Quota};
use holdfast_types::clock::ManualClock;
use holdfast_types::ids::TokenId;

use super::*;

const DATA: ContainerClass = ContainerClass::Data;

struct Bench {
    fixture: Fixture,
    quotas: Arc<Quotas>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(quota: Quota) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_700_000_000));
        let path = dir.path().join("catalog.db");
        let catalog: Arc<Catalog> = Arc::new(Catalog::create(&path, clock.clone()).unwrap());
        let fixture = Fixture::of(Arc::clone(&catalog), clock);
        fixture.set_quota(fixture.default.id, &quota, "test").unwrap();
        Self { quotas: Quotas::new(catalog), fixture, _dir: dir }
    }

    fn start(&self, vm: &str) -> Result<SessionCharge, EngineError> {
        let namespace = &self.fixture.default;
        let tenant = Tenant { namespace: namespace.id, token: TokenId::from_bytes([1; 16]) };
        let session = SessionId(self.fixture.ulid());
        self.quotas.admit(&Applicant { namespace, tenant, session, vm, job: "nightly" })
    }

    fn account(&self) -> Arc<Mutex<Account>> {
        Arc::clone(&self.quotas.accounts.lock()[&self.fixture.default.id])
    }
}

fn refused(outcome: Result<impl Sized, EngineError>, words: &[&str]) {
    let Err(error) = outcome else { panic!("not refused") };
    assert_eq!(error.code(), holdfast_proto::ErrorCode::Quota);
    for word in words.iter().chain(&[DEFAULT_NAMESPACE]) {
        assert!(error.to_string().contains(word), "{word:?} in {error}");
    }
}

#[test]
fn two_sessions_cannot_pass_the_limit_together() {
    const LIMIT: u64 = 1_000_000;
    let bench = Bench::new(Quota { stored_bytes: Some(LIMIT), ..Quota::default() });
    let sessions: Vec<SessionCharge> = (0..8).map(|n| bench.start(&format!("vm-{n}")).unwrap()).collect();
    let barrier = Barrier::new(sessions.len());
    let taken: Vec<u64> = thread::scope(|scope| {
        let race = |session| {
            let barrier = &barrier;
            move || {
                barrier.wait();
                let session: &SessionCharge = session;
                // No more tries than that: without a limit the test fails instead of going on for ever.
                let tries = (0..=LIMIT / 777).map(|_| session.add_stored(DATA, 777));
                tries.take_while(Result::is_ok).count() as u64
            }
        };
        let running: Vec<_> = sessions.iter().map(|session| scope.spawn(race(session))).collect();
        running.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(taken.iter().sum::<u64>(), LIMIT / 777, "to the last region, and not one more");
    refused(sessions[0].add_stored(DATA, 777), &["stored bytes", "1.0 MB (1000000 bytes)", "raise"]);
    sessions[0].add_stored(DATA, LIMIT % 777).unwrap();
    // A VM that has no restore point cannot be unchanged.
    refused(bench.start("new"), &["stored bytes"]);
    drop(sessions);
    bench.start("new").unwrap().add_stored(DATA, LIMIT).unwrap();
}

#[test]
fn what_adds_no_data_goes_on_at_the_limit() {
    let bench = Bench::new(Quota::default());
    bench.fixture.committed("web", "nightly");
    let quota = Quota { stored_bytes: Some(1), protected_bytes: Some(1), ..Quota::default() };
    bench.fixture.set_quota(bench.fixture.default.id, &quota, "test").unwrap();
    let protected = bench.fixture.quotas(None).unwrap()[0].usage.protected_bytes;
    let session = bench.start("web").unwrap();
    session.add_stored(ContainerClass::Recipe, RECIPE_ALLOWANCE_BYTES - 1).unwrap();
    session.add_stored(ContainerClass::Recipe, 1).unwrap();
    session.add_protected(protected).unwrap();
    refused(session.add_stored(ContainerClass::Recipe, 1), &["stored bytes"]);
    refused(session.add_stored(DATA, 1), &["stored bytes"]);
    refused(session.add_protected(1), &["protected bytes"]);
    refused(bench.start("db"), &["protected bytes", "1 bytes"]);
}

#[test]
fn restore_points_in_progress_count() {
    let bench = Bench::new(Quota { restore_points: Some(3), ..Quota::default() });
    bench.fixture.committed("web", "nightly");
    let first = bench.start("a").unwrap();
    let _second = bench.start("b").unwrap();
    refused(bench.start("c"), &["restore points", "1 exist and 2 more are being made", "the limit is 3"]);
    drop(first);
    bench.start("c").unwrap();
}

#[test]
fn backups_of_a_day_are_counted_when_they_start() {
    let bench = Bench::new(Quota { sessions_per_day: Some(2), ..Quota::default() });
    let sessions: Vec<_> = (0..3).map(|n| bench.start(&format!("vm-{n}")).unwrap()).collect();
    sessions[0].count_today().unwrap();
    sessions[1].count_today().unwrap();
    refused(sessions[2].count_today(), &["backups a day", "2 were started", "the limit is 2", "tomorrow"]);
    refused(bench.start("web"), &["backups a day"]);
    bench.fixture.clock.advance_ms(86_400_000);
    bench.start("web").unwrap().count_today().unwrap();
}

/// Between the catalog's transaction and its being noted here, a session is in both; it must count once.
#[test]
fn a_session_that_ends_counts_once() {
    let bench = Bench::new(Quota { stored_bytes: Some(1_000_000), ..Quota::default() });
    let (ends, goes_on) = (bench.start("web").unwrap(), bench.start("db").unwrap());
    ends.add_stored(DATA, 751_000).unwrap();
    let ending = ends.ending();
    let commit = bench.fixture.committed("web", "nightly");
    let stored: u64 = commit.containers.iter().map(|container| container.stored_bytes).sum();
    assert_eq!(stored, 751_000);
    goes_on.add_stored(DATA, 200_000).unwrap();
    refused(goes_on.add_stored(DATA, 50_000), &["951.0 kB"]);
    ending.recorded(stored, true);
    refused(goes_on.add_stored(DATA, 50_000), &["951.0 kB"]);
    goes_on.add_stored(DATA, 49_000).unwrap();
    refused(goes_on.add_stored(DATA, 1), &["1.0 MB"]);
    assert_eq!(bench.account().lock().close(ends.session).map(|_| ()), None);
}

#[test]
fn a_limit_that_is_raised_counts_at_once() {
    let bench = Bench::new(Quota { stored_bytes: Some(10), ..Quota::default() });
    let session = bench.start("web").unwrap();
    refused(session.add_stored(DATA, 11), &["10 bytes"]);
    let raised = Quota { stored_bytes: Some(11), ..Quota::default() };
    bench.fixture.set_quota(bench.fixture.default.id, &raised, "test").unwrap();
    session.add_stored(DATA, 11).unwrap();
}

#[test]
fn sizes_read_well() {
    for (count, text) in [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1_999, "1.9 kB (1999 bytes)"),
        (2_000_000_000_000, "2.0 TB (2000000000000 bytes)"),
        (u64::MAX, "18446744.0 TB (18446744073709551615 bytes)"),
    ] {
        assert_eq!(bytes(count), text);
    }
}
