//! Compression details: what was committed is what is reported.

use holdfast_types::clock::Clock as _;
use holdfast_types::ids::BackupId;

use super::backups::move_to;
use super::cases;
use super::fixture::{Fixture, add_retried, all_pages};
use crate::{
    CatalogError, DetailFilter, DetailRow, PageRequest, PointFate, RowStatus, TotalsBy, TotalsOrder,
};

cases![
    failed_runs_are_reported_and_their_containers_kept,
    rows_of_a_session_are_found_in_the_order_of_its_disks,
    rows_are_filtered_and_in_order,
    tokens_fit_their_filter,
    long_errors_are_clipped_and_make_small_pages,
    a_retry_counts_what_the_attempts_before_it_stored,
    rows_say_what_has_become_of_their_restore_points,
];

fn failed_runs_are_reported_and_their_containers_kept(f: &Fixture) {
    let statuses = [RowStatus::Failed, RowStatus::Aborted, RowStatus::Expired];
    let failed = statuses.map(|status| f.failed("web", "nightly", status));
    for run in &failed {
        f.record_failed_run(run).unwrap();
    }
    let rows = f.details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items;
    assert_eq!(rows, failed.each_ref().map(|run| run.details[0].clone()));
    let containers: Vec<_> = f.all_containers().map(|c| c.unwrap()).collect();
    assert_eq!(containers, failed.each_ref().map(|run| run.containers[0].clone()));
    let actions: Vec<_> =
        f.list_audit(PageRequest::FIRST).unwrap().items.into_iter().map(|r| r.entry.action).collect();
    assert_eq!(actions, ["backup.expire", "backup.abort", "backup.fail"]);
    assert!(f.list_audit(PageRequest::FIRST).unwrap().items[0].entry.detail.contains("Input/output error"));
    assert_eq!(f.latest_backup(f.default.id, "web").unwrap(), None);
}

fn rows_of_a_session_are_found_in_the_order_of_its_disks(f: &Fixture) {
    let mut commit = f.commit("web", "nightly");
    // The first disk began last.
    commit.details[0].started_ms += 100;
    assert_eq!(f.session_details(commit.attempt.session).unwrap(), [], "not ended yet");
    f.commit_backup(&commit).unwrap();
    f.committed("web", "nightly");
    assert_eq!(f.session_details(commit.attempt.session).unwrap(), commit.details);
    let failed = f.failed("web", "nightly", RowStatus::Aborted);
    f.record_failed_run(&failed).unwrap();
    assert_eq!(f.session_details(failed.attempt.session).unwrap(), failed.details);
}

fn rows_are_filtered_and_in_order(f: &Fixture) {
    let lab = f.ensure_namespace("lab").unwrap();
    let mut all = Vec::new();
    for n in 0..20 {
        let (vm, job) = (["web", "db", "build"][n % 3], ["nightly", "weekly"][n % 2]);
        if n % 7 == 3 {
            let failed = f.failed(vm, job, RowStatus::Failed);
            f.record_failed_run(&failed).unwrap();
            all.push((failed.attempt.session, 0, failed.details[0].clone()));
            continue;
        }
        let mut commit = f.commit(vm, job);
        if n % 4 == 0 {
            move_to(&mut commit, lab.id, "lab");
        }
        f.commit_backup(&commit).unwrap();
        all.extend(
            commit.details.iter().enumerate().map(|(i, row)| (commit.attempt.session, i, row.clone())),
        );
    }
    all.sort_by(|(s1, i1, a), (s2, i2, b)| {
        (a.started_ms, &a.run, s1, i1).cmp(&(b.started_ms, &b.run, s2, i2))
    });
    let mut rows: Vec<DetailRow> = all.into_iter().map(|(.., row)| row).collect();
    add_retried(&mut rows);
    let (run, since, until) = (rows[10].run.clone(), rows[8].started_ms, rows[24].started_ms);

    let none = DetailFilter::default();
    let id = run.parse().unwrap();
    let filters = [
        none.clone(),
        DetailFilter { namespaces: Some(vec![]), ..none.clone() },
        DetailFilter { namespaces: Some(vec![lab.id]), ..none.clone() },
        DetailFilter { namespaces: Some(vec![lab.id, f.default.id]), since_ms: Some(since), ..none.clone() },
        DetailFilter { vm: Some("web".into()), ..none.clone() },
        DetailFilter { vm: Some("web".into()), namespaces: Some(vec![f.default.id]), ..none.clone() },
        DetailFilter { job: Some("weekly".into()), until_ms: Some(until), ..none.clone() },
        DetailFilter { job: Some("weekly".into()), vm: Some("db".into()), ..none.clone() },
        DetailFilter { vm: Some("unknown".into()), ..none.clone() },
        DetailFilter { run: Some(id), ..none.clone() },
        DetailFilter { run: Some(id), vm: Some("web".into()), ..none.clone() },
        DetailFilter { since_ms: Some(since), until_ms: Some(until), ..none.clone() },
    ];
    for filter in filters {
        let names: Option<Vec<String>> = filter
            .namespaces
            .as_ref()
            .map(|ids| ids.iter().map(|id| f.namespace(*id).unwrap().unwrap().name).collect());
        let expected: Vec<_> = rows
            .iter()
            .filter(|row| names.as_ref().is_none_or(|names| names.contains(&row.namespace)))
            .filter(|row| filter.vm.as_ref().is_none_or(|vm| row.vm == *vm))
            .filter(|row| filter.job.as_ref().is_none_or(|job| row.job == *job))
            .filter(|row| filter.run.is_none_or(|run| row.run == run.to_string()))
            .filter(|row| filter.since_ms.is_none_or(|since| row.started_ms >= since))
            .filter(|row| filter.until_ms.is_none_or(|until| row.started_ms < until))
            .cloned()
            .collect();
        for size in [1, 3, 1000] {
            assert_eq!(all_pages(size, |page| f.details(&filter, page)), expected, "{filter:?}");
        }
    }
}

fn tokens_fit_their_filter(f: &Fixture) {
    f.committed("web", "nightly");
    let filter = DetailFilter::default();
    let token = f.details(&filter, PageRequest { size: 1, token: "" }).unwrap().next.unwrap();
    let other = DetailFilter { vm: Some("web".into()), ..filter.clone() };
    for (filter, token) in [(&other, token.as_str()), (&filter, "00"), (&filter, &token[1..]), (&filter, "ü")]
    {
        let error = f.details(filter, PageRequest { size: 1, token }).unwrap_err();
        assert!(matches!(error, CatalogError::Invalid { .. }), "{error}");
    }
    // Rows added later do not disturb a list being read.
    f.committed("web", "nightly");
    let next = f.details(&filter, PageRequest { size: 1, token: &token }).unwrap();
    assert_eq!(next.items[0].disk, "data");
}

fn long_errors_are_clipped_and_make_small_pages(f: &Fixture) {
    for number in 0..10 {
        // Of one VM they would be added up.
        let mut failed = f.failed(&format!("web-{number}"), "nightly", RowStatus::Failed);
        let row = DetailRow { error: "é".repeat(3000), ..failed.details[0].clone() };
        failed.details = (0..256).map(|n| DetailRow { disk: n.to_string(), ..row.clone() }).collect();
        f.record_failed_run(&failed).unwrap();
    }
    let page = f.details(&DetailFilter::default(), PageRequest { size: 10_000, token: "" }).unwrap();
    assert_eq!(page.items[0].error, "é".repeat(1000));
    let bytes: usize = page.items.iter().map(|row| row.error.len()).sum();
    assert!(bytes > 3 << 18 && bytes < 1 << 20, "{bytes}");
    let (mut read, mut next) = (page.items.len(), page.next);
    while let Some(token) = next {
        let page = f.details(&DetailFilter::default(), PageRequest { size: 10_000, token: &token }).unwrap();
        (read, next) = (read + page.items.len(), page.next);
    }
    assert_eq!(read, 2560);
}

fn a_retry_counts_what_the_attempts_before_it_stored(f: &Fixture) {
    let numbers = |row: &mut DetailRow, dup_bytes: u64, new_bytes: u64| {
        (row.dup_bytes, row.new_bytes, row.bytes) = (dup_bytes, new_bytes, dup_bytes + new_bytes);
        (row.post_lc, row.meta_bytes) = (new_bytes / 2, 0);
    };
    for (job, status) in [("nightly", RowStatus::Failed), ("hourly", RowStatus::Aborted)] {
        let mut failed = f.failed("web", job, status);
        numbers(&mut failed.details[0], 0, 450_000);
        failed.containers[0].stored_bytes = 225_000;
        f.record_failed_run(&failed).unwrap();
    }
    let mut commit = f.commit("web", "nightly");
    commit.details.truncate(1);
    commit.disks.truncate(1);
    numbers(&mut commit.details[0], 900_000, 100_000);
    (commit.details[0].unchanged_bytes, commit.disks[0].data_bytes) = (0, 1_000_000);
    commit.containers.truncate(1);
    commit.containers[0].stored_bytes = 50_000;
    f.commit_backup(&commit).unwrap();
    f.committed("web", "nightly");
    let rows = f.details(&DetailFilter::default(), PageRequest::FIRST).unwrap().items;
    let retried: Vec<_> = rows.iter().map(|row| (row.retried_new_bytes, row.retried_post_lc)).collect();
    assert_eq!(retried, [(0, 0), (0, 0), (900_000, 450_000), (0, 0), (0, 0)], "until the next restore point");
    let done = &rows[2];
    assert_eq!(
        (done.factors().total, done.factors().global),
        (Some(2.0), Some(1.0)),
        "20 and 10 without them"
    );
    let of_run = DetailFilter { run: Some(commit.attempt.run), ..DetailFilter::default() };
    for by in [TotalsBy::Vm, TotalsBy::Job, TotalsBy::Run] {
        let (groups, _) = f.detail_totals(&of_run, by, TotalsOrder::WORST_FIRST, 0, 9).unwrap();
        assert_eq!(groups[0].sums.total_factor, Some(2.0), "{by:?}");
        assert_eq!(groups[0].trend, [Some(2.0)], "{by:?}");
    }
}

fn rows_say_what_has_become_of_their_restore_points(f: &Fixture) {
    f.advance_lock_clock().unwrap();
    let kept = f.committed("web", "nightly").backup;
    let mut partial = f.commit("web", "nightly");
    partial.missing_disks.push("swap".into());
    f.commit_backup(&partial).unwrap();
    let [locked, passed, held, gone, lost] = [(); 5].map(|()| f.committed("web", "nightly").backup);
    let failed = f.failed("web", "nightly", RowStatus::Failed);
    f.record_failed_run(&failed).unwrap();
    let now_ms = f.clock.now_ms();
    f.lock_backups(&[passed], now_ms + 1000, "op").unwrap();
    f.lock_backups(&[locked], now_ms + 10_000_000, "op").unwrap();
    f.hold_backups(&[held], "lawsuit", "op").unwrap();
    f.clock.advance_ms(5_000_000);
    f.advance_lock_clock().unwrap();
    let deleted_ms = f.clock.now_ms();
    let reason = format!("policy \"all\": {}", "é".repeat(200));
    let point = f.point(gone).unwrap().unwrap();
    f.begin_deletion(&[gone], "op", &reason).unwrap();
    f.drop_deleted(lost, "engine", "").unwrap();
    f.clock.advance_ms(5000);
    let none = DetailFilter::default();
    let told = |filter: &DetailFilter| -> Vec<(String, PointFate, bool, i64, String)> {
        let rows = f.details(filter, PageRequest::FIRST).unwrap().items.into_iter();
        let mut told: Vec<_> =
            rows.map(|r| (r.backup, r.point, r.locked, r.deleted_ms, r.deleted_by)).collect();
        told.dedup();
        told
    };
    let of = |id: BackupId, point, locked| (id.to_string(), point, locked, 0, String::new());
    let there = [
        of(kept, PointFate::Exists, false),
        of(partial.backup, PointFate::Partial, false),
        of(locked, PointFate::Exists, true),
        of(passed, PointFate::Exists, false),
        of(held, PointFate::Exists, true),
    ];
    let by: String = format!("op: {reason}").chars().take(137).collect();
    let mut all = there.to_vec();
    all.push((gone.to_string(), PointFate::Deleted, false, deleted_ms, by));
    all.push((lost.to_string(), PointFate::Deleted, false, 0, "engine".into()));
    all.push((String::new(), PointFate::None, false, 0, String::new()));
    assert_eq!(told(&none), all);
    let existing = DetailFilter { existing: true, ..none.clone() };
    assert_eq!(told(&existing), there);
    let (sums, _) = f.detail_totals(&existing, TotalsBy::Repository, TotalsOrder::WORST_FIRST, 0, 9).unwrap();
    assert_eq!((sums[0].sums.totals.rows, sums[0].sums.totals.failed), (10, 0), "two disks each");
    // One that comes back was not deleted.
    f.finish_deletion(&[gone]).unwrap();
    f.enter_points(&[point]).unwrap();
    assert!(told(&existing).contains(&of(gone, PointFate::Exists, false)));
}
