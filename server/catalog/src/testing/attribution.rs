//! Attribution of live bytes.

use holdfast_types::ids::{BackupId, VmId};
use ulid::Ulid;

use super::cases;
use super::fixture::Fixture;
use crate::{
    AttributedBy, AttributedDay, AttributionRecord, AttributionState, BACKUPS_PER_PAGE_MAX, BackupCommit,
    BackupShareRecord, CatalogError, CountedShare,
};

cases![
    nothing_is_attributed_before_the_first_round,
    sums_are_those_of_the_last_round,
    what_has_gone_since_is_left_out,
    what_a_round_found_stays_when_its_restore_points_go,
    each_day_is_kept_for_a_while_then_one_a_week,
    what_does_not_add_up_is_refused,
];

fn share(backup: BackupId, exclusive_bytes: u64, attributed_bytes: u64) -> BackupShareRecord {
    BackupShareRecord { backup, exclusive_bytes, attributed_bytes }
}

fn counted(
    backup: BackupId,
    at_ms: i64,
    exclusive_bytes: Option<u64>,
    attributed_bytes: u64,
) -> CountedShare {
    CountedShare { backup, at_ms, exclusive_bytes, attributed_bytes }
}

/// Two backups of "web", one of "db" by another job.
fn three(f: &Fixture) -> [BackupCommit; 3] {
    [f.committed("web", "nightly"), f.committed("web", "nightly"), f.committed("db", "weekly")]
}

fn vm(f: &Fixture, name: &str) -> VmId {
    f.vm_owner(f.default.id, name).unwrap().unwrap().id
}

fn found(f: &Fixture, made: &[BackupCommit; 3]) -> AttributionRecord {
    let [one, two, three] = made;
    AttributionRecord {
        at_ms: 17,
        live_bytes: 600,
        is_complete: true,
        backups: vec![share(one.backup, 50, 100), share(two.backup, 10, 300), share(three.backup, 200, 200)],
        vms: vec![(vm(f, "web"), 350), (vm(f, "db"), 200)],
        jobs: vec![(f.default.id, "nightly".into(), 350), (f.default.id, "weekly".into(), 200)],
    }
}

fn nothing_is_attributed_before_the_first_round(f: &Fixture) {
    let made = f.committed("web", "nightly");
    assert_eq!(f.attribution().unwrap(), None);
    assert_eq!(f.backup_shares(&[made.backup]).unwrap(), []);
    assert_eq!(f.attributed(AttributedBy::Vm, None, 10).unwrap(), []);
}

fn sums_are_those_of_the_last_round(f: &Fixture) {
    let made = three(f);
    let later = f.committed("web", "nightly");
    let first = found(f, &made);
    f.record_attribution(&first).unwrap();
    let state = AttributionState { at_ms: 17, live_bytes: 600, is_complete: true };
    assert_eq!(f.attribution().unwrap(), Some(state));
    let ids = [made[2].backup, later.backup, made[0].backup];
    assert_eq!(
        f.backup_shares(&ids).unwrap(),
        [counted(made[2].backup, 17, Some(200), 200), counted(made[0].backup, 17, None, 100)],
        "of the VM that has a newer one, how much of it is in no other is not known"
    );
    let sums = |by| {
        let groups = f.attributed(by, None, 10).unwrap();
        assert!(groups.iter().all(|group| group.namespace == f.default.id));
        let figures = groups.into_iter().map(|g| (g.name, g.backups, g.exclusive_bytes, g.attributed_bytes));
        figures.collect::<Vec<_>>()
    };
    assert_eq!(sums(AttributedBy::Vm), [("web".to_owned(), 2, 350, 400), ("db".to_owned(), 1, 200, 200)]);
    assert_eq!(
        sums(AttributedBy::Job),
        [("nightly".to_owned(), 2, 350, 400), ("weekly".to_owned(), 1, 200, 200)]
    );
    assert_eq!(sums(AttributedBy::Namespace), [(f.default.name.clone(), 3, 600, 600)]);
    assert_eq!(f.attributed(AttributedBy::Vm, None, 1).unwrap().len(), 1);
    let lab = f.ensure_namespace("lab").unwrap();
    assert_eq!(f.attributed(AttributedBy::Vm, Some(&[lab.id]), 10).unwrap(), []);
    assert_eq!(f.attributed(AttributedBy::Vm, Some(&[]), 10).unwrap(), []);
    // The next round replaces all of it.
    let next = AttributionRecord {
        at_ms: 18,
        live_bytes: 5,
        is_complete: false,
        backups: vec![share(later.backup, 0, 5)],
        ..AttributionRecord::default()
    };
    f.record_attribution(&next).unwrap();
    assert_eq!(f.backup_shares(&ids).unwrap(), [counted(later.backup, 18, Some(0), 5)]);
    assert_eq!(sums(AttributedBy::Vm), [("web".to_owned(), 1, 0, 5)]);
    assert!(!f.attribution().unwrap().unwrap().is_complete);
}

fn what_has_gone_since_is_left_out(f: &Fixture) {
    let made = three(f);
    let mut first = found(f, &made);
    first.backups.push(share(BackupId(Ulid(9)), 0, 0));
    first.vms.push((VmId(Ulid(9)), 7));
    first.jobs.push((f.default.id, "never".into(), 7));
    f.record_attribution(&first).unwrap();
    assert_eq!(f.backup_shares(&[BackupId(Ulid(9))]).unwrap(), []);
    assert_eq!(f.attributed(AttributedBy::Job, None, 10).unwrap().len(), 2);
}

/// The oldest restore point is attributed what the later ones share.
fn what_a_round_found_stays_when_its_restore_points_go(f: &Fixture) {
    let made = three(f);
    f.record_attribution(&found(f, &made)).unwrap();
    let before = f.attributed(AttributedBy::Vm, None, 10).unwrap();
    f.begin_deletion(&[made[1].backup], "op", "retention").unwrap();
    f.finish_deletion(&[made[1].backup]).unwrap();
    assert_eq!(f.backup_shares(&[made[1].backup]).unwrap(), []);
    assert_eq!(f.attributed(AttributedBy::Vm, None, 10).unwrap(), before);
    let days = |by, name| f.attributed_days(by, f.default.id, name, 0).unwrap();
    let day = AttributedDay { day: 0, backups: 2, exclusive_bytes: 350, attributed_bytes: 400 };
    assert_eq!(days(AttributedBy::Vm, "web"), [day]);
    assert_eq!(days(AttributedBy::Vm, "nightly"), []);
    assert_eq!(days(AttributedBy::Job, "nightly"), [day]);
    let all = AttributedDay { day: 0, backups: 3, exclusive_bytes: 600, attributed_bytes: 600 };
    assert_eq!(days(AttributedBy::Namespace, ""), [all]);
}

fn each_day_is_kept_for_a_while_then_one_a_week(f: &Fixture) {
    const DAY_MS: i64 = 86_400_000;
    let made = three(f);
    for day in 0..500i64 {
        // A round every day, but for a month in which there were a few.
        if !(200..230).contains(&day) || day % 9 == 0 {
            f.record_attribution(&AttributionRecord { at_ms: day * DAY_MS, ..found(f, &made) }).unwrap();
        }
    }
    let days = |last| -> Vec<i32> {
        let kept = f.attributed_days(AttributedBy::Job, f.default.id, "weekly", last).unwrap();
        kept.iter().map(|day| day.day).collect()
    };
    let had = |day: &i32| !(200..230).contains(day) || day % 9 == 0;
    let weekly = |day: &i32| (day + 1..440).find(had).is_none_or(|next| next / 7 > day / 7);
    let older: Vec<i32> = (0..440).filter(had).filter(weekly).collect();
    let kept = [&older[older.len() - 44..], &(440..500).collect::<Vec<_>>()].concat();
    assert_eq!(days(499), kept);

    // A clock that is ahead for two nights, one that is behind, and the round after them.
    for day in [5000, 5001, 3, 500] {
        f.record_attribution(&AttributionRecord { at_ms: day * DAY_MS, ..found(f, &made) }).unwrap();
        assert_eq!(f.attributed(AttributedBy::Job, None, 10).unwrap().len(), 2, "{day}: the last round");
    }
    let after = days(500);
    assert!(after.len() > 95 && after.ends_with(&[498, 499, 500]), "{after:?}");
}

fn what_does_not_add_up_is_refused(f: &Fixture) {
    let made = three(f);
    let good = found(f, &made);
    let mut short = good.clone();
    short.live_bytes += 1;
    let mut more = good.clone();
    more.backups[0].exclusive_bytes = 101;
    for bad in [short, more] {
        assert!(matches!(f.record_attribution(&bad), Err(CatalogError::Invalid { .. })));
    }
    assert_eq!(f.attribution().unwrap(), None, "a refused one leaves nothing");
    let many = vec![made[0].backup; BACKUPS_PER_PAGE_MAX as usize + 1];
    assert!(matches!(f.backup_shares(&many), Err(CatalogError::Invalid { .. })));
}
