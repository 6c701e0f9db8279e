//! Records that end by themselves.

use holdfast_types::clock::Clock;
use holdfast_types::ids::TokenId;
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS};
use crate::token::{Role, new_token};
use crate::{CatalogError, EXPIRING_PER_TOKEN_MAX, ExpiringRecord, TokenSpec};

cases![
    records_live_until_they_end,
    contradictory_records_are_refused,
    records_end_with_their_token,
    records_of_a_token_are_bounded,
];

fn token(f: &Fixture, name: &str) -> TokenId {
    let (_, id, hash) = new_token(f.clock.as_ref()).unwrap();
    let spec = TokenSpec {
        id,
        name: name.into(),
        role: Role::Admin,
        namespaces: Vec::new(),
        owner: "default".into(),
        vm_patterns: Vec::new(),
        expires_ms: None,
    };
    f.create_token(&spec, &hash).unwrap();
    id
}

fn record(f: &Fixture, token: TokenId, number: u8) -> ExpiringRecord {
    let created_ms = f.clock.now_ms();
    ExpiringRecord {
        id_hash: [number; 32],
        token,
        payload: format!("payload-{number}"),
        created_ms,
        expires_ms: created_ms + 1000,
    }
}

fn records_live_until_they_end(f: &Fixture) {
    let token = token(f, "admin");
    let (one, two) = (record(f, token, 1), record(f, token, 2));
    f.create_expiring(&one).unwrap();
    f.create_expiring(&two).unwrap();
    assert_eq!(f.expiring(&[1; 32]).unwrap(), Some(one.clone()));
    assert_eq!(f.expiring(&[2; 32]).unwrap(), Some(two));
    assert_eq!(f.expiring(&[3; 32]).unwrap(), None);

    f.extend_expiring(&[1; 32], START_MS + 5000).unwrap();
    f.clock.advance_ms(999);
    assert!(f.expiring(&[2; 32]).unwrap().is_some());
    assert_eq!(f.prune_expiring(f.clock.now_ms()).unwrap(), 0);
    f.clock.advance_ms(1);
    assert_eq!(f.expiring(&[2; 32]).unwrap(), None, "it ends on time, pruned or not");
    let late = f.extend_expiring(&[2; 32], START_MS + 9000).unwrap_err();
    assert!(matches!(late, CatalogError::NotFound { .. }), "{late}");
    assert_eq!(f.prune_expiring(f.clock.now_ms()).unwrap(), 1);
    assert_eq!(f.prune_expiring(f.clock.now_ms()).unwrap(), 0);
    assert_eq!(
        f.expiring(&[1; 32]).unwrap(),
        Some(ExpiringRecord { expires_ms: START_MS + 5000, ..one.clone() })
    );
    f.delete_expiring(&[1; 32]).unwrap();
    f.delete_expiring(&[1; 32]).unwrap();
    assert_eq!(f.expiring(&[1; 32]).unwrap(), None);
    f.create_expiring(&ExpiringRecord { expires_ms: START_MS + 9000, ..one }).unwrap();
}

fn contradictory_records_are_refused(f: &Fixture) {
    let token = token(f, "admin");
    let good = record(f, token, 1);
    let refused = |record: ExpiringRecord| f.create_expiring(&record).unwrap_err();
    for bad in [
        ExpiringRecord { payload: String::new(), ..good.clone() },
        ExpiringRecord { payload: "x".repeat(129), ..good.clone() },
        ExpiringRecord { expires_ms: good.created_ms, ..good.clone() },
    ] {
        assert!(matches!(refused(bad), CatalogError::Invalid { .. }));
    }
    let stranger = refused(ExpiringRecord { token: TokenId(Ulid(7)), ..good.clone() });
    assert!(matches!(stranger, CatalogError::NotFound { what: "token", .. }), "{stranger}");
    assert_eq!(f.expiring(&good.id_hash).unwrap(), None, "a refused record leaves nothing");
    f.create_expiring(&good).unwrap();
    let again = refused(ExpiringRecord { payload: "stolen".into(), ..good.clone() });
    assert!(matches!(again, CatalogError::Exists { .. }), "{again}");
    assert!(!again.to_string().contains("stolen") && !format!("{good:?}").contains("payload-1"));
    assert_eq!(f.expiring(&good.id_hash).unwrap(), Some(good.clone()));
    let error = f.extend_expiring(&good.id_hash, good.created_ms).unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { .. }), "{error}");
}

fn records_end_with_their_token(f: &Fixture) {
    let (gone, stays) = (token(f, "gone"), token(f, "stays"));
    f.create_expiring(&record(f, gone, 1)).unwrap();
    f.create_expiring(&record(f, stays, 2)).unwrap();
    f.revoke_token(gone).unwrap();
    assert_eq!(f.expiring(&[1; 32]).unwrap(), None);
    assert!(f.expiring(&[2; 32]).unwrap().is_some());
}

fn records_of_a_token_are_bounded(f: &Fixture) {
    let (busy, other) = (token(f, "busy"), token(f, "other"));
    f.create_expiring(&ExpiringRecord { expires_ms: i64::MAX, ..record(f, other, 255) }).unwrap();
    let max = u8::try_from(EXPIRING_PER_TOKEN_MAX).unwrap();
    for number in 0..max + 2 {
        f.clock.advance_ms(1);
        f.create_expiring(&ExpiringRecord { expires_ms: i64::MAX, ..record(f, busy, number) }).unwrap();
    }
    let lives = |number: u8| f.expiring(&[number; 32]).unwrap().is_some();
    assert_eq!((0..max + 2).filter(|&number| lives(number)).collect::<Vec<_>>(), Vec::from_iter(2..max + 2));
    assert!(lives(255), "another token's records do not give way");
}
