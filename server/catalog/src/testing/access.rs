//! Repository, namespaces, tokens, audit log.

use holdfast_proto::join::JoinSecret;
use holdfast_proto::{KeyId, chunker};
use holdfast_types::clock::Clock;
use holdfast_types::ids::{NamespaceId, TokenId};
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS, all_pages};
use crate::token::{JOIN_MS, PresentedToken, Role, new_join_secret, new_token};
use crate::{
    AUDIT_KEYS_PER_ACTOR_MAX, AUDIT_REPEATS_MAX, AUDIT_WINDOW_MS, AuditEntry, AuditRecord, AuditRepeat,
    CatalogError, DEFAULT_NAMESPACE, PageRequest, REPOSITORY_FORMAT, TOKEN_TOUCH_INTERVAL_MS, TokenSpec,
    VM_PATTERNS_MAX,
};

cases![
    a_repository_knows_its_parameters,
    namespaces_are_made_once,
    an_end_to_end_namespace_keeps_its_key,
    names_are_checked,
    tokens_are_kept_by_hash,
    token_names_are_unique_until_revoked,
    a_join_code_is_redeemed_by_one_agent,
    a_join_code_ends,
    token_specs_are_checked,
    token_use_is_noted_once_a_minute,
    disabled_tokens_wait_for_an_admin,
    the_audit_log_is_newest_first,
    repeated_events_are_counted,
    an_actors_many_keys_share_an_entry,
];

fn a_repository_knows_its_parameters(f: &Fixture) {
    let repository = f.repository().unwrap();
    assert_eq!(repository.created_ms, START_MS);
    assert_eq!(repository.format_version, REPOSITORY_FORMAT);
    assert_eq!(repository.chunker, chunker::params());
    assert_eq!(f.repository().unwrap().id, repository.id);
}

fn namespaces_are_made_once(f: &Fixture) {
    assert_eq!(f.namespaces().unwrap(), std::slice::from_ref(&f.default));
    f.clock.advance_ms(5);
    let lab = f.ensure_namespace("lab").unwrap();
    assert_eq!(lab.created_ms, START_MS + 5);
    f.clock.advance_ms(5);
    assert_eq!(f.ensure_namespace("lab").unwrap(), lab);
    assert_eq!(f.ensure_namespace(DEFAULT_NAMESPACE).unwrap(), f.default);
    assert_eq!(f.namespace(lab.id).unwrap(), Some(lab.clone()));
    assert_eq!(f.namespace_by_name("lab").unwrap(), Some(lab.clone()));
    assert_eq!(f.namespace_by_name("Lab").unwrap(), None, "names are case-sensitive");
    assert_eq!(f.namespace(NamespaceId(Ulid(1))).unwrap(), None);
    let anton = f.ensure_namespace("anton").unwrap();
    assert_eq!(f.namespaces().unwrap(), [anton, f.default.clone(), lab]);
}

fn an_end_to_end_namespace_keeps_its_key(f: &Fixture) {
    let key_id = KeyId::from_bytes([7; 8]);
    let vault = f.create_sealed_namespace("vault", key_id).unwrap();
    assert_eq!((vault.name.as_str(), vault.key_id), ("vault", Some(key_id)));
    assert_eq!(f.ensure_namespace("vault").unwrap(), vault);
    assert_eq!(f.namespace(vault.id).unwrap(), Some(vault.clone()));
    assert_eq!(f.namespaces().unwrap(), [f.default.clone(), vault.clone()]);
    assert_eq!(f.quotas(Some(&[vault.id])).unwrap()[0].namespace, vault);
    for (name, key_id) in [("vault", key_id), ("vault", KeyId::from_bytes([8; 8])), ("default", key_id)] {
        let again = f.create_sealed_namespace(name, key_id);
        assert!(matches!(again, Err(CatalogError::Exists { .. })), "{name}: {again:?}");
    }
    assert_eq!(f.default.key_id, None);
    assert!(matches!(f.create_sealed_namespace(" x", key_id), Err(CatalogError::Invalid { .. })));
}

fn names_are_checked(f: &Fixture) {
    for bad in ["", " x", "a\nb", &"x".repeat(201)] {
        assert!(matches!(f.ensure_namespace(bad), Err(CatalogError::Invalid { .. })), "{bad:?}");
    }
    assert_eq!(f.namespaces().unwrap().len(), 1);
}

fn spec(f: &Fixture, name: &str) -> (TokenSpec, [u8; 32]) {
    let (_, id, hash) = new_token(f.clock.as_ref()).unwrap();
    (
        TokenSpec {
            id,
            name: name.into(),
            role: Role::Backup,
            namespaces: Vec::new(),
            owner: "default".into(),
            vm_patterns: Vec::new(),
            expires_ms: None,
        },
        hash,
    )
}

fn tokens_are_kept_by_hash(f: &Fixture) {
    let lab = f.ensure_namespace("lab").unwrap();
    let (text, id, hash) = new_token(f.clock.as_ref()).unwrap();
    let spec = TokenSpec {
        id,
        name: "hv-1".into(),
        role: Role::Restore,
        namespaces: vec![lab.id, f.default.id, lab.id],
        owner: "cluster".into(),
        vm_patterns: vec!["web-*".into(), "db-?".into()],
        expires_ms: Some(START_MS + 10),
    };
    let made = f.create_token(&spec, &hash).unwrap();
    let mut scope = vec![f.default.id, lab.id];
    scope.sort();
    assert_eq!(made.namespaces, scope, "in order, once each");
    assert_eq!((made.role, made.created_ms, made.expires_ms), (Role::Restore, START_MS, Some(START_MS + 10)));
    assert_eq!((made.owner.as_str(), made.vm_patterns.as_slice()), ("cluster", spec.vm_patterns.as_slice()));
    let (found, kept) = f.token(id).unwrap().unwrap();
    assert_eq!(found, made);
    assert!(text.as_str().parse::<crate::token::PresentedToken>().unwrap().matches(&kept));
    assert_eq!(f.token(TokenId(Ulid(5))).unwrap(), None);

    f.clock.advance_ms(7);
    f.revoke_token(id).unwrap();
    f.clock.advance_ms(7);
    f.revoke_token(id).unwrap();
    let (revoked, _) = f.token(id).unwrap().unwrap();
    assert_eq!(revoked.revoked_ms, Some(START_MS + 7), "the first revocation stands");
    assert!(!revoked.is_usable(START_MS));
    assert!(matches!(f.revoke_token(TokenId(Ulid(5))), Err(CatalogError::NotFound { .. })));
    assert_eq!(f.list_tokens().unwrap(), [revoked]);
}

fn token_names_are_unique_until_revoked(f: &Fixture) {
    let (first, hash) = spec(f, "hv-1");
    f.create_token(&first, &hash).unwrap();
    let (second, hash) = spec(f, "hv-1");
    assert!(matches!(f.create_token(&second, &hash), Err(CatalogError::Exists { .. })));
    let (other, hash) = spec(f, "hv-2");
    f.create_token(&other, &hash).unwrap();
    assert!(matches!(
        f.create_token(&TokenSpec { name: "hv-3".into(), ..other }, &hash),
        Err(CatalogError::Exists { .. })
    ));
    f.revoke_token(first.id).unwrap();
    f.create_token(&second, &hash).unwrap();
    assert_eq!(f.list_tokens().unwrap().len(), 3);
}

fn a_join_code_is_redeemed_by_one_agent(f: &Fixture) {
    let code = new_join_secret(f.clock.as_ref()).unwrap();
    let (mut hv, _) = spec(f, "hv-1");
    hv.id = TokenId::from_bytes(code.token);
    let made = f.create_join_code(&hv, &code).unwrap();
    assert_eq!(made.joining_until_ms(), Some(START_MS + JOIN_MS));
    assert!(!made.is_usable(START_MS), "no one has its token yet");

    let wrong = JoinSecret { secret: [9; 16], ..code };
    let unknown = JoinSecret { token: [9; 16], ..code };
    for (code, key) in [(&wrong, [1; 32]), (&unknown, [1; 32])] {
        assert_eq!(f.redeem_join_code(code, &key).unwrap(), None);
    }
    let (text, _, again) = f.redeem_join_code(&code, &[1; 32]).unwrap().unwrap();
    assert!(!again);
    let (joined, kept) = f.token(hv.id).unwrap().unwrap();
    assert!(joined.is_usable(START_MS) && joined.joining_until_ms().is_none());
    assert!(text.as_str().parse::<PresentedToken>().unwrap().matches(&kept));

    f.clock.advance_ms(JOIN_MS - 1);
    let (second, _, again) = f.redeem_join_code(&code, &[1; 32]).unwrap().unwrap();
    assert!(again && second == text, "an answer that was lost is given again");
    assert_eq!(f.redeem_join_code(&code, &[2; 32]).unwrap(), None, "but to the same agent only");
    f.clock.advance_ms(1);
    assert_eq!(f.redeem_join_code(&code, &[1; 32]).unwrap(), None, "and not for ever");
    assert!(f.token(hv.id).unwrap().unwrap().0.is_usable(START_MS + JOIN_MS), "the token stays");
}

fn a_join_code_ends(f: &Fixture) {
    let create = |name: &str| {
        let code = new_join_secret(f.clock.as_ref()).unwrap();
        let id = TokenId::from_bytes(code.token);
        f.create_join_code(&TokenSpec { id, ..spec(f, name).0 }, &code).map(|_| code)
    };
    let redeemed = |code: &JoinSecret| f.redeem_join_code(code, &[1; 32]).unwrap().is_some();
    let late = create("late").unwrap();
    f.clock.advance_ms(JOIN_MS);
    let (revoked, replaced, disabled) =
        (create("revoked").unwrap(), create("replaced").unwrap(), create("disabled").unwrap());
    f.revoke_token(TokenId::from_bytes(revoked.token)).unwrap();
    let second = create("replaced").unwrap();
    assert!(redeemed(&second) && create("replaced").is_err(), "the name is an agent's now");
    f.disable_tokens().unwrap();
    for code in [late, revoked, replaced, disabled] {
        assert!(!redeemed(&code));
    }
}

fn token_specs_are_checked(f: &Fixture) {
    let (good, hash) = spec(f, "hv-1");
    let refused = |spec: TokenSpec| f.create_token(&spec, &hash).unwrap_err();
    let invalid = |spec| assert!(matches!(refused(spec), CatalogError::Invalid { .. }));
    invalid(TokenSpec { name: "a\tb".into(), ..good.clone() });
    invalid(TokenSpec { role: Role::Admin, namespaces: vec![f.default.id], ..good.clone() });
    invalid(TokenSpec { expires_ms: Some(START_MS), ..good.clone() });
    invalid(TokenSpec { owner: "".into(), ..good.clone() });
    invalid(TokenSpec { vm_patterns: vec!["web-*".into(); VM_PATTERNS_MAX + 1], ..good.clone() });
    invalid(TokenSpec { vm_patterns: vec!["a".repeat(201)], ..good.clone() });
    invalid(TokenSpec { role: Role::Admin, vm_patterns: vec!["*".into()], ..good.clone() });
    let gone = NamespaceId(Ulid(9));
    let error = refused(TokenSpec { namespaces: vec![f.default.id, gone], ..good.clone() });
    assert!(
        matches!(&error, CatalogError::NotFound { what: "namespace", name } if *name == gone.to_string())
    );
    assert_eq!(f.list_tokens().unwrap(), [], "a refused token leaves nothing");
    f.create_token(&good, &hash).unwrap();
}

fn token_use_is_noted_once_a_minute(f: &Fixture) {
    let (spec, hash) = spec(f, "hv-1");
    f.create_token(&spec, &hash).unwrap();
    let last_used = || f.token(spec.id).unwrap().unwrap().0.last_used_ms;
    assert_eq!(last_used(), None);
    f.touch_token(spec.id).unwrap();
    assert_eq!(last_used(), Some(START_MS));
    f.clock.advance_ms(TOKEN_TOUCH_INTERVAL_MS - 1);
    f.touch_token(spec.id).unwrap();
    assert_eq!(last_used(), Some(START_MS));
    f.clock.advance_ms(1);
    f.touch_token(spec.id).unwrap();
    assert_eq!(last_used(), Some(START_MS + TOKEN_TOUCH_INTERVAL_MS));
    // The clock is set back by a day.
    f.clock.advance_ms(-86_400_000);
    f.touch_token(spec.id).unwrap();
    assert_eq!(last_used(), Some(f.clock.now_ms()));
    assert!(matches!(f.touch_token(TokenId(Ulid(5))), Err(CatalogError::NotFound { .. })));
}

fn the_audit_log_is_newest_first(f: &Fixture) {
    let entry = |n: u32| AuditEntry {
        who: format!("admin-{n}"),
        action: "token.create".into(),
        object: n.to_string(),
        detail: "x".repeat(5000),
    };
    for n in 0..25 {
        // Several within one millisecond, and the clock is set back once.
        f.clock.advance_ms(if n == 13 { -1000 } else { i64::from(n % 3) });
        f.audit(&entry(n)).unwrap();
    }
    let records = all_pages(4, |page| f.list_audit(page));
    assert_eq!(records.len(), 25);
    let order: Vec<u32> = records.iter().map(|r| r.entry.object.parse().unwrap()).collect();
    assert_eq!(order, (0..25).rev().collect::<Vec<_>>());
    assert_eq!(records[0].at_ms, f.clock.now_ms());
    assert_eq!(records[0].entry.detail.len(), 2000, "long texts are clipped");
    let page = f.list_audit(PageRequest { size: 1, token: "" }).unwrap();
    assert_eq!(page.items, records[..1]);
}

fn disabled_tokens_wait_for_an_admin(f: &Fixture) {
    let now_ms = f.clock.now_ms();
    let spec = |name: &str| TokenSpec {
        id: TokenId(f.ulid()),
        name: name.into(),
        role: Role::Backup,
        namespaces: vec![f.default.id],
        owner: "ops".into(),
        vm_patterns: vec![],
        expires_ms: None,
    };
    let (kept, gone) = (spec("hv-1"), spec("hv-2"));
    for spec in [&kept, &gone] {
        f.create_token(spec, &[3; 32]).unwrap();
    }
    f.revoke_token(gone.id).unwrap();
    let login = crate::ExpiringRecord {
        id_hash: [1; 32],
        token: kept.id,
        payload: "x".into(),
        created_ms: now_ms,
        expires_ms: now_ms + 1000,
    };
    f.create_expiring(&login).unwrap();
    assert_eq!(f.disable_tokens().unwrap(), 1);
    assert_eq!(f.disable_tokens().unwrap(), 0);
    let token = |id| f.token(id).unwrap().unwrap().0;
    assert!(!token(kept.id).is_usable(now_ms) && token(kept.id).disabled_ms.is_some());
    assert_eq!(f.expiring(&[1; 32]).unwrap(), None, "logins end");
    f.enable_token(kept.id).unwrap();
    f.enable_token(kept.id).unwrap();
    assert!(token(kept.id).is_usable(now_ms));
    // Revoked for good.
    assert!(matches!(f.enable_token(gone.id), Err(CatalogError::Invalid { .. })));
    assert!(!token(gone.id).is_usable(now_ms));
    let unknown = f.enable_token(TokenId(f.ulid()));
    assert!(matches!(unknown, Err(CatalogError::NotFound { what: "token", .. })));
}

fn repeat(f: &Fixture, who: &str, key: &str, count: u64) -> AuditRepeat {
    let last_ms = f.clock.now_ms();
    let entry = AuditEntry {
        who: who.into(),
        action: "login.refuse".into(),
        object: format!("{key} {count}"),
        detail: format!("detail {count}"),
    };
    AuditRepeat { entry, key: key.into(), count, first_ms: last_ms - 10, last_ms }
}

fn log(f: &Fixture) -> Vec<AuditRecord> {
    all_pages(500, |page| f.list_audit(page))
}

fn repeated_events_are_counted(f: &Fixture) {
    let began = f.clock.now_ms();
    f.audit_repeats(&[repeat(f, "a", "x", 2), repeat(f, "a", "y", 1), repeat(f, "b", "x", 4)]).unwrap();
    f.clock.advance_ms(1000);
    f.audit_repeats(&[repeat(f, "a", "x", 5), repeat(f, "a", "x", 1)]).unwrap();
    let entries = log(f);
    assert_eq!(entries.iter().map(|entry| entry.count).collect::<Vec<_>>(), [4, 1, 8], "newest first");
    let (first, last) = (began - 10, began + 1000);
    assert_eq!((entries[2].at_ms, entries[2].last_ms), (first, last));
    assert_eq!((entries[2].entry.object.as_str(), entries[2].entry.detail.as_str()), ("x 1", "detail 1"));
    // An entry of its own is never counted with others.
    let alone = repeat(f, "a", "x", 1).entry;
    f.audit(&alone).unwrap();
    f.audit(&alone).unwrap();
    assert_eq!(log(f).len(), 5);
    assert_eq!((log(f)[0].count, log(f)[0].last_ms), (1, f.clock.now_ms()));
    // Nor are events of the next window.
    f.clock.advance_ms(AUDIT_WINDOW_MS);
    f.audit_repeats(&[repeat(f, "a", "x", 3)]).unwrap();
    assert_eq!((log(f).len(), log(f)[0].count), (6, 3));
    // The clock is set back: what lies in the future does not go on.
    f.clock.advance_ms(-2 * AUDIT_WINDOW_MS);
    f.audit_repeats(&[repeat(f, "a", "x", 9)]).unwrap();
    assert_eq!((log(f).len(), log(f)[0].count), (7, 9));
    for refused in [vec![repeat(f, "a", "x", 0)], vec![repeat(f, "a", "x", 1); AUDIT_REPEATS_MAX + 1]] {
        assert!(matches!(f.audit_repeats(&refused), Err(CatalogError::Invalid { .. })));
    }
    f.audit_repeats(&[]).unwrap();
    assert_eq!(log(f).len(), 7);
}

fn an_actors_many_keys_share_an_entry(f: &Fixture) {
    let keys = AUDIT_KEYS_PER_ACTOR_MAX as u64 * 2;
    for key in 0..keys {
        f.audit_repeats(&[repeat(f, "a", &format!("key {key}"), 3)]).unwrap();
    }
    f.audit_repeats(&[repeat(f, "a", "key 0", 1), repeat(f, "b", "key 9999", 1)]).unwrap();
    let entries = log(f);
    assert_eq!(
        entries.len(),
        AUDIT_KEYS_PER_ACTOR_MAX + 2,
        "and one that is shared, and one of another actor"
    );
    assert_eq!(entries.iter().map(|entry| entry.count).sum::<u64>(), keys * 3 + 2, "none is lost");
    let shared: Vec<_> = entries.iter().filter(|entry| entry.entry.object == "several").collect();
    assert_eq!((shared.len(), shared[0].count), (1, keys * 3 / 2));
    assert!(shared[0].entry.detail.contains("key 511 3"), "{:?}", shared[0]);
}
