//! Logins in browsers, verifications of restore points.

use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, TokenId};
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS};
use crate::token::{Role, mint};
use crate::{
    BACKUPS_PER_PAGE_MAX, CatalogError, PageRequest, TokenSpec, VERIFICATIONS_PER_BACKUP_MAX, Verification,
    WEB_SESSIONS_PER_TOKEN_MAX, WebSession,
};

cases![
    logins_live_until_they_end,
    contradictory_logins_are_refused,
    logins_end_with_their_token,
    logins_of_a_token_are_bounded,
    the_newest_verification_counts,
    verifications_need_their_backup,
];

fn token(f: &Fixture, name: &str) -> TokenId {
    let (_, id, hash) = mint(f.clock.as_ref()).unwrap();
    let spec =
        TokenSpec { id, name: name.into(), role: Role::Admin, namespaces: Vec::new(), expires_ms: None };
    f.create_token(&spec, &hash).unwrap();
    id
}

fn login(f: &Fixture, token: TokenId, number: u8) -> WebSession {
    let created_ms = f.clock.now_ms();
    WebSession {
        id_hash: [number; 32],
        token,
        csrf: format!("csrf-{number}"),
        created_ms,
        expires_ms: created_ms + 1000,
    }
}

fn logins_live_until_they_end(f: &Fixture) {
    let token = token(f, "admin");
    let (one, two) = (login(f, token, 1), login(f, token, 2));
    f.create_web_session(&one).unwrap();
    f.create_web_session(&two).unwrap();
    assert_eq!(f.web_session(&[1; 32]).unwrap(), Some(one.clone()));
    assert_eq!(f.web_session(&[2; 32]).unwrap(), Some(two));
    assert_eq!(f.web_session(&[3; 32]).unwrap(), None);

    f.extend_web_session(&[1; 32], START_MS + 5000).unwrap();
    f.clock.advance_ms(999);
    assert!(f.web_session(&[2; 32]).unwrap().is_some());
    assert_eq!(f.prune_web_sessions(f.clock.now_ms()).unwrap(), 0);
    f.clock.advance_ms(1);
    assert_eq!(f.web_session(&[2; 32]).unwrap(), None, "it ends on time, pruned or not");
    let late = f.extend_web_session(&[2; 32], START_MS + 9000).unwrap_err();
    assert!(matches!(late, CatalogError::NotFound { .. }), "{late}");
    assert_eq!(f.prune_web_sessions(f.clock.now_ms()).unwrap(), 1);
    assert_eq!(f.prune_web_sessions(f.clock.now_ms()).unwrap(), 0);
    assert_eq!(
        f.web_session(&[1; 32]).unwrap(),
        Some(WebSession { expires_ms: START_MS + 5000, ..one.clone() })
    );
    f.delete_web_session(&[1; 32]).unwrap();
    f.delete_web_session(&[1; 32]).unwrap();
    assert_eq!(f.web_session(&[1; 32]).unwrap(), None);
    f.create_web_session(&WebSession { expires_ms: START_MS + 9000, ..one }).unwrap();
}

fn contradictory_logins_are_refused(f: &Fixture) {
    let token = token(f, "admin");
    let good = login(f, token, 1);
    let refused = |session: WebSession| f.create_web_session(&session).unwrap_err();
    for bad in [
        WebSession { csrf: String::new(), ..good.clone() },
        WebSession { csrf: "x".repeat(129), ..good.clone() },
        WebSession { expires_ms: good.created_ms, ..good.clone() },
    ] {
        assert!(matches!(refused(bad), CatalogError::Invalid { .. }));
    }
    let stranger = refused(WebSession { token: TokenId(Ulid(7)), ..good.clone() });
    assert!(matches!(stranger, CatalogError::NotFound { what: "token", .. }), "{stranger}");
    assert_eq!(f.web_session(&good.id_hash).unwrap(), None, "a refused login leaves nothing");
    f.create_web_session(&good).unwrap();
    let again = refused(WebSession { csrf: "stolen".into(), ..good.clone() });
    assert!(matches!(again, CatalogError::Exists { .. }), "{again}");
    assert!(!again.to_string().contains("stolen") && !format!("{good:?}").contains("csrf-1"));
    assert_eq!(f.web_session(&good.id_hash).unwrap(), Some(good.clone()));
    let error = f.extend_web_session(&good.id_hash, good.created_ms).unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { .. }), "{error}");
}

fn logins_end_with_their_token(f: &Fixture) {
    let (gone, stays) = (token(f, "gone"), token(f, "stays"));
    f.create_web_session(&login(f, gone, 1)).unwrap();
    f.create_web_session(&login(f, stays, 2)).unwrap();
    f.revoke_token(gone).unwrap();
    assert_eq!(f.web_session(&[1; 32]).unwrap(), None);
    assert!(f.web_session(&[2; 32]).unwrap().is_some());
}

fn logins_of_a_token_are_bounded(f: &Fixture) {
    let (busy, other) = (token(f, "busy"), token(f, "other"));
    f.create_web_session(&WebSession { expires_ms: i64::MAX, ..login(f, other, 255) }).unwrap();
    let max = u8::try_from(WEB_SESSIONS_PER_TOKEN_MAX).unwrap();
    for number in 0..max + 2 {
        f.clock.advance_ms(1);
        f.create_web_session(&WebSession { expires_ms: i64::MAX, ..login(f, busy, number) }).unwrap();
    }
    let lives = |number: u8| f.web_session(&[number; 32]).unwrap().is_some();
    assert_eq!((0..max + 2).filter(|&number| lives(number)).collect::<Vec<_>>(), Vec::from_iter(2..max + 2));
    assert!(lives(255), "another token's logins do not give way");
}

fn verification(backup: BackupId, number: i64) -> Verification {
    Verification {
        backup,
        at_ms: START_MS - number,
        who: format!("operator-{number}"),
        ok: number % 2 == 0,
        detail: format!("{number} chunks read"),
    }
}

fn the_newest_verification_counts(f: &Fixture) {
    let backups = ["web", "db", "mail"].map(|vm| f.committed(vm, "nightly").backup);
    let [web, db, mail] = backups;
    assert_eq!(f.verifications(&backups).unwrap(), []);
    let rounds = i64::from(VERIFICATIONS_PER_BACKUP_MAX) + 3;
    for number in 0..rounds {
        // The clock goes backwards; what was recorded last counts all the same.
        f.record_verification(&verification(web, number)).unwrap();
    }
    f.record_verification(&Verification { detail: "é".repeat(3000), ..verification(mail, 5) }).unwrap();
    let found = f.verifications(&[mail, db, web]).unwrap();
    assert_eq!(found[0].detail, "é".repeat(1000), "long texts are clipped");
    assert_eq!(found[1..], [verification(web, rounds - 1)]);
    assert_eq!(f.verifications(&[]).unwrap(), []);
    let log = f.list_audit(PageRequest::FIRST).unwrap().items;
    let entry = &log[1].entry;
    assert_eq!(
        (entry.who.as_str(), entry.action.as_str(), &entry.object),
        ("operator-18", "backup.verify", &web.to_string())
    );
    assert_eq!(entry.detail, "sound: 18 chunks read");
    assert!(log[0].entry.detail.starts_with("DAMAGED"));
}

fn verifications_need_their_backup(f: &Fixture) {
    let error = f.record_verification(&verification(BackupId(Ulid(3)), 1)).unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "backup", .. }), "{error}");
    assert_eq!(f.list_audit(PageRequest::FIRST).unwrap().items, []);
    let many = vec![BackupId(Ulid(3)); usize::try_from(BACKUPS_PER_PAGE_MAX).unwrap() + 1];
    assert_eq!(f.verifications(&many[1..]).unwrap(), []);
    assert!(matches!(f.verifications(&many), Err(CatalogError::Invalid { .. })));
}
