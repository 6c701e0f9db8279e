//! Verifications of restore points.

use holdfast_proto::KeyId;
use holdfast_types::ids::BackupId;
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS};
use crate::{
    AgentsProof, BACKUPS_PER_PAGE_MAX, CatalogError, PageRequest, VERIFICATIONS_PER_BACKUP_MAX, Verification,
};

cases![the_newest_verification_counts, verifications_need_their_backup, proofs_of_agents_are_kept];

fn verification(backup: BackupId, number: i64) -> Verification {
    Verification {
        backup,
        at_ms: START_MS - number,
        who: format!("operator-{number}"),
        by_agent: number % 3 == 0,
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

fn proofs_of_agents_are_kept(f: &Fixture) {
    let plain = f.committed("web", "nightly").backup;
    assert_eq!(f.agents_proof_summaries().unwrap(), [], "of what the server can read nothing is asked");
    let vault = f.create_sealed_namespace("vault", KeyId::from_bytes([7; 8])).unwrap();
    let [first, second, other] =
        ["db", "db", "mail"].map(|vm| f.committed_in(vault.id, vm, "nightly").backup);
    let backups = [plain, second, other];
    let read = |backup, by_agent, ok, at_ms| Verification {
        backup,
        at_ms,
        who: "op".into(),
        by_agent,
        ok,
        detail: String::new(),
    };
    // Neither what the server reads nor damage is a proof.
    f.record_verification(&read(second, false, true, 5)).unwrap();
    f.record_verification(&read(second, true, false, 6)).unwrap();
    f.record_verification(&read(plain, true, true, 7)).unwrap();
    let none = |backup| AgentsProof { backup, end_to_end: true, point_ms: None, vm_ms: None };
    let read_plain = AgentsProof { backup: plain, end_to_end: false, point_ms: Some(7), vm_ms: Some(7) };
    assert_eq!(f.agents_proofs(&backups).unwrap(), [read_plain, none(second), none(other)]);
    f.record_verification(&read(first, true, true, 8)).unwrap();
    let of_vm = AgentsProof { vm_ms: Some(8), ..none(second) };
    assert_eq!(f.agents_proofs(&backups).unwrap(), [read_plain, of_vm, none(other)]);
    let summary = f.agents_proof_summaries().unwrap().remove(0);
    assert_eq!((summary.name.as_str(), summary.vms, summary.never), ("vault", 2, 1));
    assert_eq!((summary.oldest_ms, summary.unproved_since_ms), (Some(8), 8));
    f.record_verification(&read(second, true, true, START_MS + 90)).unwrap();
    f.record_verification(&read(other, true, true, START_MS + 80)).unwrap();
    let summary = f.agents_proof_summaries().unwrap().remove(0);
    assert_eq!((summary.never, summary.oldest_ms), (0, Some(START_MS + 80)));
    let many = vec![plain; usize::try_from(BACKUPS_PER_PAGE_MAX).unwrap() + 1];
    assert!(matches!(f.agents_proofs(&many), Err(CatalogError::Invalid { .. })));
}

fn verifications_need_their_backup(f: &Fixture) {
    let error = f.record_verification(&verification(BackupId(Ulid(3)), 1)).unwrap_err();
    assert!(matches!(error, CatalogError::NotFound { what: "backup", .. }), "{error}");
    assert_eq!(f.list_audit(PageRequest::FIRST).unwrap().items, []);
    let many = vec![BackupId(Ulid(3)); usize::try_from(BACKUPS_PER_PAGE_MAX).unwrap() + 1];
    assert_eq!(f.verifications(&many[1..]).unwrap(), []);
    assert!(matches!(f.verifications(&many), Err(CatalogError::Invalid { .. })));
}
