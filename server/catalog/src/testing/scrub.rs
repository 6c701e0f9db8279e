//! Scrub results: times at which data was proved sound, and lost ranges of restore points.

use holdfast_types::clock::Clock as _;
use holdfast_types::ids::{BackupId, ContainerId};
use ulid::Ulid;

use super::cases;
use super::fixture::Fixture;
use crate::{
    ByteRange, CatalogError, DamageTotals, LostRanges, PageRequest, ScrubPhase, ScrubState, Scrubbed,
    WithinBackup,
};

cases![
    the_scrub_keeps_its_place_and_its_proofs,
    restore_points_come_by_vm_and_commit,
    what_is_lost_is_replaced_and_told_once,
    a_restore_point_beside_one_in_doubt_is_in_doubt,
];

fn the_scrub_keeps_its_place_and_its_proofs(f: &Fixture) {
    assert_eq!(f.scrub_state().unwrap(), ScrubState::default());
    let made = f.committed("web", "nightly");
    let (container, backup) = (made.containers[0].id, made.backup);
    let before = f.proof_summary().unwrap();
    assert_eq!((before.containers_unproven, before.backups_unproven), (before.containers, 1));
    // Never proved: as old as what was never read since it was written.
    let (written_ms, made_ms) = (before.oldest_container_ms.unwrap(), before.oldest_backup_ms.unwrap());
    assert!(made.containers.iter().any(|container| container.created_ms == written_ms), "{written_ms}");
    assert_eq!(made_ms, f.backup(backup).unwrap().unwrap().finished_ms);
    let vm = f.vm_owner(f.default.id, "web").unwrap().unwrap().id;
    let state = ScrubState {
        pass: 3,
        phase: ScrubPhase::RestorePoints,
        began_ms: 17,
        ended_ms: Some(9),
        container: 5,
        end: 8,
        after: Some((vm, 1)),
        within: Some(WithinBackup { backup, disk: 2, extent: 77, sound: true }),
        done: 2,
    };
    let gone = ContainerId::new(1 << 30).unwrap();
    let done = Scrubbed {
        containers: vec![(container, 40), (gone, 41)],
        backups: vec![(backup, 42), (BackupId(Ulid(3)), 43)],
        state,
    };
    f.note_scrubbed(&done).unwrap();
    assert_eq!(f.scrub_state().unwrap(), state);
    assert_eq!(f.proofs(&[BackupId(Ulid(3)), backup]).unwrap(), [None, Some(42)]);
    let after = f.proof_summary().unwrap();
    assert_eq!((after.containers, after.containers_unproven), (before.containers, before.containers - 1));
    // The one container was proved longest ago; another was never, and is younger than that.
    assert_eq!((after.oldest_container_ms, after.oldest_backup_ms), (Some(40), Some(42)));
    assert_eq!(after.backups_unproven, 0);
    let idle = ScrubState { phase: ScrubPhase::Idle, after: None, within: None, ..state };
    f.note_scrubbed(&Scrubbed { state: idle, ..Scrubbed::default() }).unwrap();
    assert_eq!(f.scrub_state().unwrap(), idle);
}

fn restore_points_come_by_vm_and_commit(f: &Fixture) {
    assert_eq!(f.backup_in_order(None).unwrap(), None);
    let made = ["web", "db", "web", "db", "web"].map(|vm| (vm, f.committed(vm, "nightly").backup));
    let (mut after, mut found) = (None, Vec::new());
    while let Some(next) = f.backup_in_order(after).unwrap() {
        found.push((next.backup, next.before.map(|(before, _)| before)));
        after = Some((next.vm, next.number));
    }
    assert_eq!(found.len(), 5);
    for vm in ["web", "db"] {
        let of_vm: Vec<BackupId> = made.iter().filter(|(of, _)| *of == vm).map(|(_, id)| *id).collect();
        let start = found.iter().position(|(id, _)| *id == of_vm[0]).unwrap();
        let mut before = None;
        for (place, id) in of_vm.iter().enumerate() {
            assert_eq!(found[start + place], (*id, before), "VM {vm}");
            before = Some(*id);
        }
    }
}

fn what_is_in_doubt_is_so_until_it_was_looked_up(f: &Fixture, backup: BackupId) {
    assert!(!f.may_lack(backup).unwrap());
    f.doubt(BackupId::from_bytes([9; 16])).unwrap();
    assert_eq!(f.in_doubt(10).unwrap(), [], "it was deleted");
    for lost in [&[lost(100)][..], &[]] {
        f.doubt(backup).unwrap();
        f.doubt(backup).unwrap();
        assert_eq!(f.in_doubt(10).unwrap(), [backup]);
        assert!(f.may_lack(backup).unwrap());
        f.set_lost(backup, lost).unwrap();
        assert_eq!(f.in_doubt(10).unwrap(), []);
        assert_eq!(f.may_lack(backup).unwrap(), !lost.is_empty());
        f.doubt(backup).unwrap();
        assert_eq!(f.in_doubt(10).unwrap().is_empty(), !lost.is_empty(), "what is known is no doubt");
        f.set_lost(backup, &[]).unwrap();
    }
}

fn a_restore_point_beside_one_in_doubt_is_in_doubt(f: &Fixture) {
    let first = f.committed("mail", "nightly").backup;
    let second = f.committed("mail", "nightly").backup;
    f.doubt(second).unwrap();
    let third = f.committed("mail", "nightly").backup;
    let other = f.committed("news", "nightly").backup;
    for backup in [first, second, third] {
        assert!(f.may_lack(backup).unwrap());
        f.set_lost(backup, &[]).unwrap();
    }
    assert!(!f.may_lack(other).unwrap());
}

fn lost(bytes: u64) -> LostRanges {
    let listed = vec![ByteRange { start: 4096, bytes: bytes - 1 }, ByteRange { start: 1 << 40, bytes: 1 }];
    LostRanges { position: 0, bytes, ranges: 2, listed }
}

fn what_is_lost_is_replaced_and_told_once(f: &Fixture) {
    let made = f.committed("web", "nightly");
    let other = f.committed("db", "nightly");
    what_is_in_doubt_is_so_until_it_was_looked_up(f, other.backup);
    assert!(!f.set_lost(made.backup, &[]).unwrap(), "it was whole");
    let found_ms = f.clock.now_ms();
    assert!(f.set_lost(made.backup, &[lost(100)]).unwrap());
    assert!(!f.set_lost(made.backup, &[lost(100)]).unwrap(), "as it was");
    f.clock.advance_ms(1000);
    assert!(f.set_lost(made.backup, &[lost(200)]).unwrap());
    let disks = f.damaged_disks(None, None, 10).unwrap();
    assert_eq!(disks.len(), 1);
    let disk = &disks[0];
    assert_eq!((disk.backup, disk.vm.as_str(), &disk.lost), (made.backup, "web", &lost(200)));
    assert_eq!((disk.found_ms, &disk.disk), (found_ms, &made.disks[0].name));
    assert_eq!(f.lost_bytes(&[other.backup, made.backup]).unwrap(), [(made.backup, 200)]);
    let totals = DamageTotals { restore_points: 1, disks: 1, bytes: 200 };
    assert_eq!(f.damage_totals(None).unwrap(), totals);
    assert_eq!(f.damage_totals(Some(&[f.default.id])).unwrap(), totals);
    let lab = f.ensure_namespace("lab").unwrap();
    assert_eq!(f.damage_totals(Some(&[lab.id])).unwrap(), DamageTotals::default());
    assert_eq!(f.damaged_disks(Some(&[lab.id]), None, 10).unwrap(), []);
    assert_eq!(f.damaged_disks(Some(&[]), None, 10).unwrap(), []);
    assert_eq!(f.damaged_disks(None, Some((made.backup, 0)), 10).unwrap(), []);
    assert!(f.set_lost(made.backup, &[]).unwrap());
    assert_eq!(f.damage_totals(None).unwrap(), DamageTotals::default());
    let log = f.list_audit(PageRequest::FIRST).unwrap().items;
    let told: Vec<&str> = log
        .iter()
        .filter(|record| record.entry.object == made.backup.to_string())
        .map(|record| record.entry.action.as_str())
        .filter(|action| *action != "backup.commit")
        .collect();
    assert_eq!(told, ["backup.healed", "backup.damaged"], "newest first, each once");
    assert!(!f.set_lost(BackupId(Ulid(3)), &[lost(2)]).unwrap(), "deleted meanwhile");
    let nothing = LostRanges { bytes: 0, ..lost(2) };
    assert!(matches!(f.set_lost(made.backup, &[nothing]), Err(CatalogError::Invalid { .. })));
}
