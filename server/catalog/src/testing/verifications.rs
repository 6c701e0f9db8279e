//! Verifications of restore points.

use holdfast_types::ids::BackupId;
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS};
use crate::{BACKUPS_PER_PAGE_MAX, CatalogError, PageRequest, VERIFICATIONS_PER_BACKUP_MAX, Verification};

cases![the_newest_verification_counts, verifications_need_their_backup];

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
