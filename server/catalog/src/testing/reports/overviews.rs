//! VMs, disks, jobs, namespaces, backups and containers with what they cost.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_proto::details::Totals;
use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, ContainerClass, NamespaceId};
use ulid::Ulid;

use super::cases;
use super::model::make;
use crate::testing::fixture::{Fixture, add_retried, done, numbers, row};
use crate::{
    BackupCost, CatalogError, ContainerState, ContainerTotals, DetailEntry, DetailFilter, DetailRow,
    DiskOverview, DiskQuery, LastRun, LatestBackup, PageRequest, ProtectedDay, REPORT_PAGE_MAX,
    RepositoryOverview, SpaceDay, TotalsBy, Verification, VmOverview, VmQuery, VmSort, WindowTotals, day_of,
};

cases![
    vms_tell_what_they_protect_and_cost,
    vms_are_found_and_paged,
    a_partial_backup_keeps_no_vm_fresh,
    disks_are_those_of_latest_backups,
    jobs_tell_their_last_run,
    the_repository_adds_up,
    a_job_with_a_failing_vm_says_so_until_it_is_backed_up,
    a_night_with_the_clock_ahead_decides_nothing,
    a_long_backup_counts_from_when_it_ended,
    namespaces_add_up,
    backups_tell_what_they_added,
    containers_add_up,
    protected_bytes_follow_the_latest_restore_points,
    protected_bytes_fall_with_what_is_deleted,
    space_is_kept_by_day,
    overviews_are_bounded,
];

const MONTH_MS: i64 = 30 * 86_400_000;

fn query(f: &Fixture) -> VmQuery {
    VmQuery {
        vm: None,
        search: None,
        stale_before_ms: f.clock.now_ms() - 86_400_000,
        stale: None,
        sort: VmSort::Namespace,
        descending: false,
        offset: 0,
        limit: REPORT_PAGE_MAX,
        now_ms: f.clock.now_ms(),
    }
}

fn id_of(f: &Fixture, namespace: &str) -> NamespaceId {
    f.namespace_by_name(namespace).unwrap().unwrap().id
}

/// Computes the expected overviews, from the rows and from backups one by one; by namespace and VM.
fn vm_model(f: &Fixture, all: &[DetailEntry], query: &VmQuery) -> Vec<VmOverview> {
    let mut vms: BTreeMap<(String, String), Vec<&DetailEntry>> = BTreeMap::new();
    for entry in all {
        vms.entry((entry.row.namespace.clone(), entry.row.vm.clone())).or_default().push(entry);
    }
    let model = |((namespace_name, vm), entries): ((String, String), Vec<&DetailEntry>)| {
        let namespace = id_of(f, &namespace_name);
        let mut sums = Totals::default();
        entries.iter().for_each(|entry| sums.add(&entry.row));
        let latest = f.latest_backup(namespace, &vm).unwrap();
        let of_latest = |of: fn(&crate::DiskRecord) -> u64| {
            latest.as_ref().map_or(0, |backup| backup.disks.iter().map(of).sum())
        };
        let backups: BTreeSet<_> =
            entries.iter().filter(|e| !e.row.backup.is_empty()).map(|e| &e.row.backup).collect();
        let last = entries.last().unwrap();
        let of_last = entries.iter().filter(|e| e.session == last.session);
        let recent = entries.iter().filter(|e| e.row.started_ms >= query.now_ms - MONTH_MS);
        VmOverview {
            id: all_vms(f)[&(namespace, vm.clone())],
            namespace,
            owner: (!backups.is_empty()).then(|| "default".into()),
            backups: backups.len() as u64,
            disks: of_latest(|_| 1),
            first_ms: entries.iter().find(|e| !e.row.backup.is_empty()).map(|e| e.row.started_ms),
            virtual_bytes: of_latest(|disk| disk.size_bytes),
            protected_bytes: of_latest(|disk| disk.data_bytes),
            stored_bytes: sums.post_lc + sums.meta_bytes,
            new_bytes_30d: recent.map(|e| e.row.new_bytes).sum(),
            total_factor: sums.factors().total,
            last_status: last.row.status.word().into(),
            last_error: of_last.map(|e| e.row.error.clone()).find(|e| !e.is_empty()).unwrap_or_default(),
            stale: latest.as_ref().is_none_or(|backup| backup.finished_ms < query.stale_before_ms),
            verification: latest.as_ref().and_then(|backup| f.verifications(&[backup.id]).unwrap().pop()),
            end_to_end: false,
            agent_verified_ms: latest
                .as_ref()
                .and_then(|backup| f.agents_proofs(&[backup.id]).unwrap()[0].vm_ms),
            latest: latest.map(|backup| LatestBackup {
                id: backup.id,
                started_ms: backup.started_ms,
                finished_ms: backup.finished_ms,
                job: backup.job,
                missing_disks: backup.missing_disks,
            }),
            namespace_name,
            vm,
        }
    };
    vms.into_iter().map(model).collect()
}

fn all_vms(f: &Fixture) -> BTreeMap<(NamespaceId, String), holdfast_types::ids::VmId> {
    let vms = f.list_vms(None, PageRequest { size: 1000, token: "" }).unwrap().items;
    vms.into_iter().map(|vm| ((vm.namespace, vm.name), vm.id)).collect()
}

/// Rows of two parts, a month and more apart, the last VM of which has nothing but failures.
fn month(f: &Fixture) -> Vec<DetailEntry> {
    let mut all = make(f, 40);
    f.clock.advance_ms(MONTH_MS);
    all.extend(make(f, 25));
    add_retried(all.iter_mut().map(|entry| &mut entry.row));
    let failed = f.failed("never", "nightly", crate::RowStatus::Expired);
    f.record_failed_run(&failed).unwrap();
    let session = failed.attempt.session;
    all.push(DetailEntry { session, position: 0, row: failed.details[0].clone() });
    let latest = f.latest_backup(f.default.id, "web").unwrap().unwrap();
    for ok in [false, true] {
        let verification = Verification {
            backup: latest.id,
            at_ms: f.clock.now_ms(),
            who: "op".into(),
            by_agent: true,
            ok,
            detail: String::new(),
        };
        f.record_verification(&verification).unwrap();
    }
    all
}

fn vms_tell_what_they_protect_and_cost(f: &Fixture) {
    let all = month(f);
    let query = query(f);
    let expected = vm_model(f, &all, &query);
    assert_eq!(f.vm_overviews(None, &query).unwrap(), (expected.clone(), expected.len() as u64));
    let never = expected.iter().find(|vm| vm.vm == "never").unwrap();
    assert!(never.stale && never.latest.is_none() && never.last_error.contains("Input/output"));
    let web = expected.iter().find(|vm| vm.vm == "web").unwrap();
    assert!(web.verification.as_ref().unwrap().ok && web.new_bytes_30d > 0);
    assert!(expected.iter().any(|vm| vm.stale != never.stale), "some are fresh");

    for sort in VmSort::ALL {
        for descending in [false, true] {
            let mut sorted = expected.clone();
            sorted.sort_by(|a, b| match (key(sort, a), key(sort, b)) {
                (Some(a), Some(b)) if descending => b.partial_cmp(&a).unwrap(),
                (Some(a), Some(b)) => a.partial_cmp(&b).unwrap(),
                (a, b) => a.is_none().cmp(&b.is_none()),
            });
            let query = VmQuery { sort, descending, ..query.clone() };
            assert_eq!(f.vm_overviews(None, &query).unwrap().0, sorted, "{sort:?} {descending}");
            assert_eq!(sort.column().parse(), Ok(sort));
        }
    }
    assert!("nothing".parse::<VmSort>().is_err());
}

fn key(sort: VmSort, vm: &VmOverview) -> Option<(String, f64)> {
    let text = |text: &String| Some((text.clone(), 0.0));
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let number = |number: u64| Some((String::new(), number as f64));
    match sort {
        VmSort::Vm => text(&vm.vm),
        VmSort::Namespace => text(&vm.namespace_name),
        VmSort::Backups => number(vm.backups),
        VmSort::Latest => vm.latest.as_ref().and_then(|l| number(l.finished_ms.try_into().unwrap())),
        VmSort::ProtectedBytes => number(vm.protected_bytes),
        VmSort::StoredBytes => number(vm.stored_bytes),
        VmSort::NewBytes30d => number(vm.new_bytes_30d),
        VmSort::TotalFactor => vm.total_factor.map(|factor| (String::new(), factor)),
    }
}

fn vms_are_found_and_paged(f: &Fixture) {
    let all = month(f);
    let base = query(f);
    let expected = vm_model(f, &all, &base);
    let lab = id_of(f, "lab");
    let finds = |scope: Option<&[NamespaceId]>, query: &VmQuery, keep: &dyn Fn(&&VmOverview) -> bool| {
        let expected: Vec<_> = expected.iter().filter(keep).cloned().collect();
        let total = expected.len() as u64;
        assert_eq!(f.vm_overviews(scope, query).unwrap(), (expected, total), "{query:?}");
        total
    };
    let search = |text: &str| VmQuery { search: Some(text.into()), ..base.clone() };
    assert!(finds(Some(&[lab]), &base, &|vm| vm.namespace == lab) > 2);
    assert_eq!(finds(Some(&[]), &base, &|_| false), 0);
    let named = VmQuery { vm: Some("web".into()), ..base.clone() };
    assert_eq!(finds(None, &named, &|vm| vm.vm == "web"), 2);
    assert_eq!(finds(Some(&[lab]), &named, &|vm| vm.vm == "web" && vm.namespace == lab), 1);
    assert!(finds(None, &search("WEB"), &|vm| vm.vm.to_lowercase().contains("web")) > 2);
    assert!(finds(None, &search("lAb"), &|vm| vm.namespace == lab) > 2);
    assert_eq!(finds(None, &search("%"), &|vm| vm.vm.contains('%')), 2);
    for stale in [true, false] {
        let query = VmQuery { stale: Some(stale), ..base.clone() };
        assert!(finds(None, &query, &|vm| vm.stale == stale) > 0);
    }
    for (offset, limit) in [(0, 2), (3, 4), (expected.len(), 1), (2, 0), (usize::MAX, 5)] {
        let query = VmQuery { offset: offset as u64, limit: u32::try_from(limit).unwrap(), ..base.clone() };
        let part: Vec<_> = expected.iter().skip(offset).take(limit).cloned().collect();
        assert_eq!(f.vm_overviews(None, &query).unwrap(), (part, expected.len() as u64));
    }
}

fn a_partial_backup_keeps_no_vm_fresh(f: &Fixture) {
    f.committed("web", "nightly");
    f.clock.advance_ms(2 * 86_400_000);
    let mut partial = f.commit("web", "nightly");
    partial.missing_disks = vec!["log".into()];
    f.commit_backup(&partial).unwrap();
    let query = query(f);
    let listed = |stale| {
        let (vms, _) = f.vm_overviews(None, &VmQuery { stale, ..query.clone() }).unwrap();
        vms.into_iter().find(|vm| vm.vm == "web")
    };
    let web = listed(None).unwrap();
    let latest = web.latest.unwrap();
    assert_eq!((latest.id, latest.missing_disks), (partial.backup, vec!["log".to_owned()]));
    assert!(web.stale && listed(Some(true)).is_some() && listed(Some(false)).is_none());
    f.committed("web", "nightly");
    assert!(!listed(None).unwrap().stale && listed(Some(true)).is_none());
}

fn disks_are_those_of_latest_backups(f: &Fixture) {
    let all = month(f);
    let query = DiskQuery { vm: None, offset: 0, limit: REPORT_PAGE_MAX, now_ms: f.clock.now_ms() };
    let mut expected = Vec::new();
    for vm in vm_model(f, &all, &self::query(f)) {
        let Some(latest) = vm.latest else { continue };
        for disk in f.backup(latest.id).unwrap().unwrap().disks {
            let rows = || {
                let same = |e: &&DetailEntry| {
                    e.row.namespace == vm.namespace_name && e.row.vm == vm.vm && e.row.disk == disk.name
                };
                all.iter().filter(same).map(|e| &e.row)
            };
            let recent = rows().filter(|row| row.started_ms >= query.now_ms - MONTH_MS);
            expected.push(DiskOverview {
                namespace: vm.namespace,
                namespace_name: vm.namespace_name.clone(),
                vm: vm.vm.clone(),
                size_bytes: disk.size_bytes,
                data_bytes: disk.data_bytes,
                latest_backup: latest.id,
                stored_bytes: rows().map(|row| row.post_lc + row.meta_bytes).sum(),
                new_bytes_30d: recent.map(|row| row.new_bytes).sum(),
                disk: disk.name,
            });
        }
    }
    let count = expected.len();
    assert!(count > 10);
    assert_eq!(f.disk_overviews(None, &query).unwrap(), (expected.clone(), count as u64));
    let lab = id_of(f, "lab");
    let of_lab: Vec<_> = expected.iter().filter(|d| d.namespace == lab && d.vm == "web").cloned().collect();
    let total = of_lab.len() as u64;
    let web = DiskQuery { vm: Some("web".into()), ..query.clone() };
    assert_eq!(f.disk_overviews(Some(&[lab]), &web).unwrap(), (of_lab, total));
    assert_eq!(f.disk_overviews(Some(&[]), &query).unwrap(), (vec![], 0));
    for (offset, limit) in [(1, 3), (count, 3), (2, 0), (usize::MAX, 1)] {
        let query =
            DiskQuery { offset: offset as u64, limit: u32::try_from(limit).unwrap(), ..query.clone() };
        let part: Vec<_> = expected.iter().skip(offset).take(limit).cloned().collect();
        assert_eq!(f.disk_overviews(None, &query).unwrap(), (part, count as u64));
    }
}

fn jobs_tell_their_last_run(f: &Fixture) {
    let all = month(f);
    let mut names: BTreeMap<(&str, &str), Vec<&DetailEntry>> = BTreeMap::new();
    for entry in &all {
        names.entry((&entry.row.namespace, &entry.row.job)).or_default().push(entry);
    }
    let jobs = f.job_overviews(None).unwrap();
    assert_eq!(
        jobs.iter().map(|job| (job.namespace_name.as_str(), job.job.as_str())).collect::<Vec<_>>(),
        names.keys().copied().collect::<Vec<_>>()
    );
    for (job, entries) in jobs.iter().zip(names.values()) {
        let sums = kept(entries.iter().map(|entry| &entry.row));
        let distinct = |of: fn(&DetailEntry) -> &str| {
            entries.iter().map(|entry| of(entry)).collect::<BTreeSet<_>>().len() as u64
        };
        assert_eq!(job.sums, sums);
        assert_eq!((job.runs, job.vms), (distinct(|e| &e.row.run), distinct(|e| &e.row.vm)));
        assert_eq!(job.namespace, id_of(f, &job.namespace_name));
        let begun =
            |run: &str| entries.iter().filter(|e| e.row.run == run).map(|e| e.row.started_ms).min().unwrap();
        let run = entries.iter().map(|e| (begun(&e.row.run), &e.row.run)).max().unwrap().1;
        let rows: Vec<_> = entries.iter().filter(|e| e.row.run == *run).map(|e| &e.row).collect();
        let expected = LastRun {
            id: run.parse().unwrap(),
            started_ms: begun(run),
            finished_ms: rows.iter().map(|row| row.finished_ms).max().unwrap(),
            disks: rows.len() as u64,
            failed: rows.iter().filter(|row| row.backup.is_empty()).count() as u64,
        };
        assert_eq!(job.last_run.as_ref(), Some(&expected));
    }
    let lab = id_of(f, "lab");
    let of_lab: Vec<_> = jobs.into_iter().filter(|job| job.namespace == lab).collect();
    assert_eq!(f.job_overviews(Some(&[lab])).unwrap(), of_lab);
    assert_eq!(f.job_overviews(Some(&[])).unwrap(), []);
}

/// Returns the kept columns of the sums of these rows.
fn kept<'a>(rows: impl Iterator<Item = &'a DetailRow>) -> Totals {
    let mut all = Totals::default();
    rows.for_each(|row| all.add(row));
    let Totals { rows, failed, bytes, new_bytes, post_lc, meta_bytes, wire_bytes, .. } = all;
    let Totals { done_bytes, done_new_bytes, done_post_lc, .. } = all;
    Totals {
        rows,
        failed,
        bytes,
        new_bytes,
        post_lc,
        meta_bytes,
        wire_bytes,
        done_bytes,
        done_new_bytes,
        done_post_lc,
        ..Totals::default()
    }
}

/// The overview of everything must be what its rows, VMs and restore points add up to.
fn check_repository(f: &Fixture, all: &[DetailEntry]) {
    let (lab, now_ms) = (id_of(f, "lab"), f.clock.now_ms());
    let since = [Some(now_ms - MONTH_MS), None, Some(now_ms - MONTH_MS / 90), Some(now_ms)];
    let vms = vm_model(f, all, &query(f));
    for scope in [None, Some(&[lab][..]), Some(&[f.default.id, lab][..]), Some(&[][..])] {
        let within = |id: NamespaceId| scope.is_none_or(|scope| scope.contains(&id));
        let sum =
            |of: fn(&VmOverview) -> u64| vms.iter().filter(|vm| within(vm.namespace)).map(of).sum::<u64>();
        let window = |since_ms: &Option<i64>| {
            let rows = || {
                let rows = all.iter().map(|entry| &entry.row);
                rows.filter(|row| {
                    within(id_of(f, &row.namespace)) && since_ms.is_none_or(|ms| row.finished_ms >= ms)
                })
            };
            let runs: BTreeSet<_> = rows().map(|row| &row.run).collect();
            WindowTotals { runs: runs.len() as u64, sums: kept(rows()) }
        };
        let expected = RepositoryOverview {
            vms: sum(|vm| u64::from(vm.backups > 0)),
            backups: sum(|vm| vm.backups),
            virtual_bytes: sum(|vm| vm.virtual_bytes),
            protected_bytes: sum(|vm| vm.protected_bytes),
            windows: since.iter().map(window).collect(),
        };
        assert_eq!(f.repository_overview(scope, &since).unwrap(), expected, "{scope:?}");
    }
}

fn the_repository_adds_up(f: &Fixture) {
    let all = month(f);
    check_repository(f, &all);
    assert!(f.repository_overview(None, &[None]).unwrap().windows[0].runs > 20);
    let many: Vec<_> = (0..1001).map(|n| NamespaceId(Ulid(n))).collect();
    assert!(matches!(f.repository_overview(Some(&many), &[None]), Err(CatalogError::Invalid { .. })));
}

fn a_job_with_a_failing_vm_says_so_until_it_is_backed_up(f: &Fixture) {
    let failing = || -> Vec<(String, u64)> {
        let jobs = f.job_overviews(None).unwrap().into_iter();
        jobs.map(|job| (job.job, job.failing_vms)).collect()
    };
    let of = |nightly: u64, hourly: u64| vec![("hourly".to_owned(), hourly), ("nightly".to_owned(), nightly)];
    f.committed("db", "hourly");
    for vm in ["db", "web", "old"] {
        f.record_failed_run(&f.failed(vm, "nightly", crate::RowStatus::Failed)).unwrap();
    }
    // The last run is of another VM, and was good.
    f.committed("mail", "nightly");
    assert_eq!(failing(), of(3, 0));
    // Without one of its disks is not whole.
    let mut partial = f.commit("web", "nightly");
    partial.missing_disks = vec!["logs".into()];
    f.commit_backup(&partial).unwrap();
    assert_eq!(failing(), of(3, 0));
    f.begin_deletion(&[partial.backup], "admin", "test").unwrap();
    f.finish_deletion(&[partial.backup]).unwrap();
    assert_eq!(failing(), of(3, 0), "deleted, it says nothing");
    f.committed("web", "nightly");
    assert_eq!(failing(), of(2, 0));
    f.committed("db", "hourly");
    assert_eq!(failing(), of(1, 0), "whichever job backs it up");
    f.record_failed_run(&f.failed("db", "hourly", crate::RowStatus::Aborted)).unwrap();
    assert_eq!(failing(), of(1, 1));
    let lab = f.ensure_namespace("lab").unwrap();
    assert!(f.job_overviews(Some(&[lab.id])).unwrap().is_empty());
    let old = f.named_vm(f.default.id, "old").unwrap().unwrap().id;
    f.remove_vm(old, "admin").unwrap();
    assert_eq!(failing(), of(0, 1));
}

fn a_night_with_the_clock_ahead_decides_nothing(f: &Fixture) {
    let fail = |vm: &str, job: &str, disks: usize| {
        let mut failed = f.failed(vm, job, crate::RowStatus::Failed);
        let row = failed.details[0].clone();
        let disk = |n: usize| DetailRow { disk: format!("disk-{n}"), ..row.clone() };
        failed.details = (0..disks).map(disk).collect();
        f.record_failed_run(&failed).unwrap();
    };
    f.clock.set_by_ms(MONTH_MS);
    f.committed("mail", "nightly");
    f.committed("web", "nightly");
    fail("db", "nightly", 1);
    f.clock.set_by_ms(-MONTH_MS);
    fail("web", "hourly", 1);
    // More rows than one session can have.
    fail("web", "nightly", 256);
    fail("mail", "nightly", 1);
    f.committed("db", "nightly");
    let jobs = f.job_overviews(None).unwrap();
    let failing: Vec<_> = jobs.iter().map(|job| (job.job.as_str(), job.failing_vms)).collect();
    assert_eq!(failing, [("hourly", 1), ("nightly", 2)]);
    let now_ms = f.clock.now_ms();
    assert!(jobs.iter().all(|job| job.last_run.as_ref().unwrap().started_ms <= now_ms));
    for (stale, expected) in [(None, &["db", "mail", "web"][..]), (Some(true), &["mail", "web"][..])] {
        let (vms, _) = f.vm_overviews(None, &VmQuery { stale, ..query(f) }).unwrap();
        assert_eq!(vms.iter().map(|vm| vm.vm.as_str()).collect::<Vec<_>>(), expected);
        assert!(vms.iter().all(|vm| vm.stale == (vm.vm != "db")));
        let says = |vm: &VmOverview| (vm.last_status == "done", vm.last_error.is_empty());
        assert!(vms.iter().all(|vm| says(vm) == (vm.vm == "db", vm.vm == "db")));
    }
}

fn a_long_backup_counts_from_when_it_ended(f: &Fixture) {
    const HOUR_MS: i64 = 3_600_000;
    let now_ms = f.clock.now_ms();
    let commit = |vm: &str, began_hours: i64, ended_hours: i64| {
        let mut commit = f.commit(vm, "nightly");
        let times = (now_ms - began_hours * HOUR_MS, now_ms - ended_hours * HOUR_MS);
        (commit.attempt.started_ms, commit.attempt.finished_ms) = times;
        commit.details.iter_mut().for_each(|row| (row.started_ms, row.finished_ms) = times);
        f.commit_backup(&commit).unwrap();
    };
    commit("long", 31, 1);
    commit("short", 30, 29);
    let windows = f.repository_overview(None, &[Some(now_ms - 24 * HOUR_MS), None]).unwrap().windows;
    assert_eq!(windows.iter().map(|window| window.runs).collect::<Vec<_>>(), [1, 2]);
    let newest = |until_ms| f.newest_restore_point_ms(f.default.id, until_ms).unwrap();
    assert_eq!(newest(now_ms), Some(now_ms - HOUR_MS), "the one begun first was finished last");
    assert_eq!(
        newest(now_ms - HOUR_MS),
        Some(now_ms - 29 * HOUR_MS),
        "what a clock was ahead for counts for nothing"
    );
    let latest_first = VmQuery { sort: VmSort::Latest, descending: true, ..query(f) };
    let (vms, _) = f.vm_overviews(None, &latest_first).unwrap();
    assert_eq!(vms.iter().map(|vm| vm.vm.as_str()).collect::<Vec<_>>(), ["long", "short"]);
}

fn namespaces_add_up(f: &Fixture) {
    let all = month(f);
    let empty = f.ensure_namespace("empty").unwrap();
    let found = f.namespace_overviews(None).unwrap();
    assert_eq!(
        found.iter().map(|n| n.namespace.name.as_str()).collect::<Vec<_>>(),
        ["default", "empty", "lab"]
    );
    for overview in &found {
        let name = &overview.namespace.name;
        let rows = || all.iter().map(|e| &e.row).filter(|row| row.namespace == *name);
        let backups: BTreeSet<_> = rows().map(|row| &row.backup).filter(|id| !id.is_empty()).collect();
        let vms: BTreeSet<_> = rows().filter(|row| !row.backup.is_empty()).map(|row| &row.vm).collect();
        assert_eq!((overview.vms, overview.backups), (vms.len() as u64, backups.len() as u64), "{name}");
        // The fixture's failed session stored what its row says, so rows and containers agree.
        let stored: u64 = rows().map(|row| row.post_lc + row.meta_bytes).sum();
        assert_eq!(overview.stored_bytes, stored, "{name}");
        assert_eq!(Some(&overview.namespace), f.namespace(overview.namespace.id).unwrap().as_ref());
    }
    assert_eq!(f.namespace_overviews(Some(&[empty.id])).unwrap(), found[1..2]);
    assert_eq!(f.namespace_overviews(Some(&[])).unwrap(), []);
}

fn backups_tell_what_they_added(f: &Fixture) {
    let all = month(f);
    let mut costs: BTreeMap<BackupId, BackupCost> = BTreeMap::new();
    for row in all.iter().map(|e| &e.row).filter(|row| !row.backup.is_empty()) {
        let cost = costs.entry(row.backup.parse().unwrap()).or_default();
        cost.new_bytes += row.new_bytes;
        cost.post_lc += row.post_lc;
        cost.meta_bytes += row.meta_bytes;
    }
    costs.insert(BackupId(Ulid(u128::MAX)), BackupCost::default());
    let (backups, expected): (Vec<_>, Vec<_>) = costs.into_iter().rev().unzip();
    assert_eq!(f.backup_costs(&backups).unwrap(), expected);
    assert_eq!(f.backup_costs(&[]).unwrap(), []);
    let mut less = f.commit("web", "nightly");
    less.attempt.accepted_change = true;
    f.commit_backup(&less).unwrap();
    assert_eq!(f.accepted_changes(&[backups[0], less.backup, backups[1]]).unwrap(), [less.backup]);
}

fn containers_add_up(f: &Fixture) {
    month(f);
    f.clock.advance_ms(3 * 86_400_000);
    f.committed("late", "nightly");
    let some: Vec<_> = f.all_containers().map(|c| c.unwrap()).collect();
    for container in some.iter().step_by(9) {
        f.mark_container_damaged(container.id, "bad").unwrap();
    }
    let all: Vec<_> = f.all_containers().map(|c| c.unwrap()).collect();
    let lab = id_of(f, "lab");
    for scope in [None, Some(&[lab][..]), Some(&[lab, f.default.id][..]), Some(&[][..])] {
        let mut expected = Vec::new();
        for class in [ContainerClass::Data, ContainerClass::Recipe] {
            for state in [ContainerState::Damaged, ContainerState::Live] {
                let of: Vec<_> = all
                    .iter()
                    .filter(|c| (c.class, c.state) == (class, state))
                    .filter(|c| scope.is_none_or(|scope| scope.contains(&c.namespace)))
                    .collect();
                let sum =
                    |of_one: fn(&crate::ContainerRecord) -> u64| of.iter().map(|c| of_one(c)).sum::<u64>();
                expected.push(ContainerTotals {
                    class,
                    state,
                    count: of.len() as u64,
                    stored_bytes: sum(|c| c.stored_bytes),
                    plain_bytes: sum(|c| c.plain_bytes),
                    chunk_count: sum(|c| c.chunk_count),
                });
            }
        }
        expected.retain(|totals| totals.count > 0);
        assert_eq!(f.container_totals(scope).unwrap(), expected, "{scope:?}");
    }
}

fn protected_bytes_follow_the_latest_restore_points(f: &Fixture) {
    let all = month(f);
    let since = all[all.len() / 3].row.started_ms;
    let none = DetailFilter::default();
    for (by, filter) in [
        (TotalsBy::Repository, none.clone()),
        (TotalsBy::Namespace, none.clone()),
        (TotalsBy::Job, DetailFilter { since_ms: Some(since), ..none.clone() }),
        (TotalsBy::Vm, DetailFilter { since_ms: Some(since), job: Some("nightly".into()), ..none.clone() }),
        (TotalsBy::Vm, DetailFilter { namespaces: Some(vec![]), ..none.clone() }),
    ] {
        let names = |e: &DetailEntry| match by {
            TotalsBy::Namespace => (e.row.namespace.clone(), String::new()),
            TotalsBy::Job => (e.row.namespace.clone(), e.row.job.clone()),
            TotalsBy::Vm => (e.row.namespace.clone(), e.row.vm.clone()),
            _ => (String::new(), String::new()),
        };
        let day = |ms: i64| i32::try_from(ms / 86_400_000).unwrap();
        let rows: Vec<_> = all
            .iter()
            .filter(|e| !e.row.backup.is_empty() && filter.namespaces.is_none())
            .filter(|e| filter.job.as_ref().is_none_or(|job| e.row.job == *job))
            .collect();
        let first = filter.since_ms.map_or(0, day);
        let mut expected: BTreeMap<(i32, String, String), u64> = BTreeMap::new();
        for entry in &rows {
            // The latest session of each VM of the group by the end of that day, added up from scratch.
            let (group, on) = (names(entry), day(entry.row.finished_ms).max(first));
            let mut latest: BTreeMap<(&str, &str), &DetailEntry> = BTreeMap::new();
            let by_then = |e: &&&DetailEntry| names(e) == group && day(e.row.finished_ms) <= on;
            for e in rows.iter().filter(by_then) {
                latest
                    .entry((&e.row.namespace, &e.row.vm))
                    .and_modify(|known| {
                        if (known.row.finished_ms, known.session) < (e.row.finished_ms, e.session) {
                            *known = e;
                        }
                    })
                    .or_insert(e);
            }
            let sessions: BTreeSet<_> = latest.values().map(|e| e.session).collect();
            let bytes = rows.iter().filter(|e| sessions.contains(&e.session)).map(|e| e.row.bytes).sum();
            expected.insert((on, group.0, group.1), bytes);
        }
        let found = f.protected_days(&filter, by).unwrap();
        let tell = |((day, namespace, name), protected_bytes)| ProtectedDay {
            day,
            namespace,
            name,
            protected_bytes,
        };
        assert_eq!(found, expected.into_iter().map(tell).collect::<Vec<_>>(), "{by:?} {filter:?}");
    }
    for by in [TotalsBy::Run, TotalsBy::Disk] {
        assert!(matches!(f.protected_days(&none, by), Err(CatalogError::Invalid { .. })));
    }
}

/// The line of a VM falls when its restore points are deleted, to an older one that is left, and to nothing with the last.
fn protected_bytes_fall_with_what_is_deleted(f: &Fixture) {
    f.advance_lock_clock().unwrap();
    let first_day = day_of(f.clock.now_ms());
    let day_ms = 86_400_000;
    let mut made = Vec::new();
    for bytes in [40u64, 30, 50] {
        let attempt = f.attempt("web", "nightly");
        let rows = vec![numbers(DetailRow { unchanged_bytes: bytes, ..row(&attempt, "system") })];
        let commit = done(attempt, BackupId(f.ulid()), rows, vec![]);
        f.commit_backup(&commit).unwrap();
        made.push(commit.backup);
        f.clock.advance_ms(day_ms);
    }
    let delete = |ids: &[BackupId], days: i64| {
        f.begin_deletion(ids, "op", "x").unwrap();
        f.finish_deletion(ids).unwrap();
        f.clock.advance_ms(days * day_ms);
    };
    // On the fourth day the one in the middle goes, and nothing changes; then the newest, and two days later the last.
    delete(&[made[1]], 1);
    delete(&[made[2]], 2);
    delete(&[made[0]], 1);
    let line = |filter: &DetailFilter, by| -> Vec<(i32, u64)> {
        let days = f.protected_days(filter, by).unwrap();
        days.into_iter().map(|day| (day.day - first_day, day.protected_bytes)).collect()
    };
    let none = DetailFilter::default();
    let whole = [(0, 40), (1, 30), (2, 50), (4, 40), (6, 0)];
    for by in [TotalsBy::Vm, TotalsBy::Job, TotalsBy::Repository] {
        assert_eq!(line(&none, by), whole);
    }
    assert_eq!(f.repository_overview(None, &[]).unwrap().protected_bytes, 0, "as the line says");
    let at = |day: i32| Some(i64::from(first_day + day) * day_ms);
    let span = DetailFilter { finished_since_ms: at(3), finished_until_ms: at(6), ..none.clone() };
    assert_eq!(line(&span, TotalsBy::Vm), [(3, 50), (4, 40)]);
    // Of one that is gone no one knows since when: until the next one was made, or for a day.
    let [one, two] = [(); 2].map(|()| {
        let commit = f.committed("db", "nightly");
        f.clock.advance_ms(3 * day_ms);
        commit
    });
    let bytes = one.disks.iter().map(|disk| disk.data_bytes).sum();
    f.drop_deleted(one.backup, "engine", "x").unwrap();
    f.drop_deleted(two.backup, "engine", "x").unwrap();
    let db = DetailFilter { vm: Some("db".into()), ..none };
    assert_eq!(line(&db, TotalsBy::Vm), [(7, bytes), (10, bytes), (11, 0)]);
}

/// The last look of a day counts.
fn space_is_kept_by_day(f: &Fixture) {
    assert_eq!(f.space_days(i32::MIN, i32::MAX).unwrap(), []);
    let space = |day, data_bytes| SpaceDay {
        day,
        data_bytes,
        recipe_bytes: 2,
        parity_bytes: 3,
        condemned_bytes: 4,
        bucket_bytes: 5,
        archive_bytes: 6,
    };
    for look in [SpaceDay { day: 7, ..SpaceDay::default() }, space(6, 10), space(9, 10), space(7, 11)] {
        f.record_space(&look).unwrap();
    }
    assert_eq!(f.space_days(i32::MIN, i32::MAX).unwrap(), [space(6, 10), space(7, 11), space(9, 10)]);
    assert_eq!(f.space_days(7, 8).unwrap(), [space(7, 11)]);
    assert_eq!(space(7, 11).here_bytes(), 20);
}

fn overviews_are_bounded(f: &Fixture) {
    let (base, many) = (query(f), (0..1001).map(|n| NamespaceId(Ulid(n))).collect::<Vec<_>>());
    let disks = DiskQuery { vm: None, offset: 0, limit: 1, now_ms: 0 };
    for error in [
        f.vm_overviews(Some(&many), &base).unwrap_err(),
        f.vm_overviews(None, &VmQuery { limit: REPORT_PAGE_MAX + 1, ..base.clone() }).unwrap_err(),
        f.vm_overviews(None, &VmQuery { search: Some("x".repeat(300)), ..base.clone() }).unwrap_err(),
        f.disk_overviews(Some(&many), &disks).unwrap_err(),
        f.disk_overviews(None, &DiskQuery { limit: REPORT_PAGE_MAX + 1, ..disks.clone() }).unwrap_err(),
        f.job_overviews(Some(&many)).unwrap_err(),
        f.namespace_overviews(Some(&many)).unwrap_err(),
        f.container_totals(Some(&many)).unwrap_err(),
        f.backup_costs(&vec![BackupId(Ulid(1)); 1001]).unwrap_err(),
    ] {
        assert!(matches!(error, CatalogError::Invalid { .. }), "{error}");
    }
    assert_eq!(f.vm_overviews(None, &base).unwrap(), (vec![], 0));
    assert_eq!(f.disk_overviews(None, &disks).unwrap(), (vec![], 0));
}
