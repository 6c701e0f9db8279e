use holdfast_engine::catalog::token::{self, Action, Role};
use holdfast_engine::catalog::{DEFAULT_NAMESPACE, PageRequest, TokenSpec};
use holdfast_engine::clock::ManualClock;

use super::*;

struct Fixture {
    _folder: tempfile::TempDir,
    catalog: Arc<Catalog>,
    clock: Arc<ManualClock>,
    auth: Authenticator,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let catalog: Arc<Catalog> =
            Arc::new(Catalog::create(&folder.path().join("catalog.db"), clock.clone()).unwrap());
        let auth = Authenticator::new(Arc::clone(&catalog), clock.clone());
        Self { _folder: folder, catalog, clock, auth }
    }

    fn token(
        &self,
        name: &str,
        role: Role,
        namespaces: &[&str],
        expires_ms: Option<i64>,
    ) -> (String, TokenId) {
        let (text, id, hash) = token::new_token(self.clock.as_ref()).unwrap();
        let namespaces =
            namespaces.iter().map(|name| self.catalog.ensure_namespace(name).unwrap().id).collect();
        let spec = TokenSpec {
            id,
            name: name.into(),
            role,
            namespaces,
            owner: "default".into(),
            vm_patterns: vec![],
            expires_ms,
        };
        self.catalog.create_token(&spec, &hash).unwrap();
        (format!("Bearer {}", text.as_str()), id)
    }

    fn caller(&self, header: &str) -> Caller {
        self.auth.authenticate(Some(header), None).unwrap()
    }
}

#[test]
fn every_wrong_token_gets_the_same_answer() {
    let fixture = Fixture::new();
    let (valid, _) = fixture.token("valid", Role::Backup, &[], None);
    let (revoked, id) = fixture.token("revoked", Role::Admin, &[], None);
    fixture.catalog.revoke_token(id).unwrap();
    let (expired, _) = fixture.token("expired", Role::Admin, &[], Some(1_700_000_000_000 + 5));
    fixture.clock.advance_ms(5);
    let (unknown, _, _) = token::new_token(fixture.clock.as_ref()).unwrap();
    let mut wrong = valid.clone();
    let last = wrong.pop().unwrap();
    wrong.push(if last == '0' { '1' } else { '0' });

    assert_eq!(fixture.caller(&valid).token.name, "valid");
    assert_eq!(fixture.caller(&valid.replacen("Bearer", "bearer", 1)).token.name, "valid");
    let unknown = format!("Bearer {}", unknown.as_str());
    let basic = valid.replacen("Bearer", "Basic", 1);
    for header in [
        None,
        Some(""),
        Some("Bearer x"),
        Some(&basic),
        Some(&wrong),
        Some(&unknown),
        Some(&revoked),
        Some(&expired),
    ] {
        let header: Option<&str> = header;
        let error = fixture.auth.authenticate(header, None).unwrap_err();
        assert_eq!(error, ServiceError::new(ErrorCode::Unauthenticated, REFUSED), "{header:?}");
    }
}

#[test]
fn refusals_reach_the_audit_log_once_in_a_while() {
    let fixture = Fixture::new();
    for _ in 0..50 {
        fixture.auth.authenticate(Some("Bearer nonsense"), None).unwrap_err();
    }
    fixture.auth.audit_log().flush().unwrap();
    let log = fixture.catalog.list_audit(PageRequest::FIRST).unwrap();
    let refused = log.items.iter().filter(|record| record.entry.action == "login.refuse").count();
    assert_eq!(refused, 1);
}

#[test]
fn foreign_and_missing_namespaces_look_alike() {
    let fixture = Fixture::new();
    fixture.catalog.ensure_namespace("theirs").unwrap();
    let (scoped, _) = fixture.token("scoped", Role::Backup, &["mine"], None);
    let (all, _) = fixture.token("all", Role::Backup, &[], None);
    let scoped = fixture.caller(&scoped);
    let namespace = |caller: &Caller, name| caller.namespace(&fixture.catalog, name, Action::Backup);

    assert_eq!(namespace(&scoped, "mine").unwrap().name, "mine");
    assert_eq!(namespace(&scoped, "").unwrap().name, "mine");
    let theirs = namespace(&scoped, "theirs").unwrap_err();
    let missing = namespace(&scoped, "absent").unwrap_err();
    assert_eq!(theirs.code, ErrorCode::Forbidden);
    assert_eq!(theirs.message.replace("theirs", "absent"), missing.message);
    assert_eq!(theirs.code, missing.code);

    let all = fixture.caller(&all);
    assert_eq!(namespace(&all, "theirs").unwrap().name, "theirs");
    assert_eq!(namespace(&all, "").unwrap().name, DEFAULT_NAMESPACE);
    assert_eq!(namespace(&all, "absent").unwrap_err().code, ErrorCode::NotFound);
    assert_eq!(namespace(&all, "a\nb").unwrap_err().code, ErrorCode::Invalid);

    let (two, _) = fixture.token("two", Role::Backup, &["mine", "theirs"], None);
    assert_eq!(namespace(&fixture.caller(&two), "").unwrap_err().code, ErrorCode::Invalid);
    let (reader, _) = fixture.token("reader", Role::Restore, &["mine"], None);
    assert_eq!(namespace(&fixture.caller(&reader), "mine").unwrap_err().code, ErrorCode::Forbidden);
}

#[test]
fn revocation_is_seen_at_once() {
    let fixture = Fixture::new();
    let (header, id) = fixture.token("short", Role::Operator, &[], None);
    assert!(fixture.auth.still_valid(id).unwrap());
    fixture.caller(&header);
    fixture.catalog.revoke_token(id).unwrap();
    assert!(!fixture.auth.still_valid(id).unwrap());
    assert_eq!(fixture.auth.authenticate(Some(&header), None).unwrap_err().code, ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn a_panic_is_an_answer_and_costs_no_thread() {
    let lookups = Lookups::start().unwrap();
    for _ in 0..=THREADS {
        let failed = lookups.run(|| -> Result<(), _> { panic!("on purpose") }).await;
        assert_eq!(failed.unwrap_err().code, ErrorCode::Internal);
    }
    assert_eq!(lookups.run(|| Ok(7)).await, Ok(7));
}

#[test]
fn more_than_can_wait_are_refused_at_once() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    let lookups = Lookups::start().unwrap();
    let gate = Arc::new(Mutex::new(()));
    let closed = gate.lock();
    let (entered, inside) = mpsc::channel();
    // Asked once, it is in the queue or refused; nothing reads the answer.
    let ask = || {
        let (gate, entered) = (Arc::clone(&gate), entered.clone());
        let asked = pin!(lookups.run(move || {
            let _ = entered.send(());
            drop(gate.lock());
            Ok(())
        }));
        match asked.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(refused) => refused.map_err(|error| error.code),
            Poll::Pending => Ok(()),
        }
    };
    for _ in 0..THREADS {
        assert_eq!(ask(), Ok(()));
        inside.recv().unwrap();
    }
    for _ in 0..WAITING_MAX {
        assert_eq!(ask(), Ok(()));
    }
    assert_eq!(ask(), Err(ErrorCode::Limit));
    drop(closed);
}
