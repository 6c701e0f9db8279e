//! Lists are read in the order of an index, whatever the filter: a page costs the same at the end of 100,000
//! rows as at the beginning. Asserted on the plans, because times say little on a busy machine.

use holdfast_types::ids::RunId;
use rusqlite::params;

use super::*;
use crate::sqlite::details::{findings, history};
use crate::sqlite::{backups, details, overviews};
use crate::testing::fixture::all_pages;
use crate::{BackupFilter, DetailFilter, SortOrder};

fn plan(connection: &Connection, (select, conditions, order): (&str, &str, &str)) -> String {
    let joint = match (select.contains("WHERE"), conditions.starts_with("WHERE")) {
        (_, true) => "",
        (true, false) => "AND",
        _ => "WHERE",
    };
    let limit = if conditions.contains("LIMIT") || order.is_empty() { "" } else { "LIMIT 10" };
    let sql = format!("EXPLAIN QUERY PLAN {select} {joint} {conditions} {order} {limit}");
    let mut statement = connection.prepare(&sql).unwrap();
    // Unbound values are null; a plan does not look at them.
    let lines = statement.raw_query().mapped(|row| row.get::<_, String>("detail"));
    lines.map(|line| line.unwrap()).collect::<Vec<_>>().join("\n")
}

/// Asserts that the plan walks `index` of the table `alias`, looks single rows of others up, and sorts nothing.
fn walks(plan: &str, alias: &str, index: &str) {
    let (walked, others): (Vec<&str>, Vec<&str>) =
        plan.lines().partition(|line| line.contains(&format!(" {alias} USING")));
    assert!(walked.len() == 1 && walked[0].contains(index), "{index} in\n{plan}");
    let is_look_up = |line: &&str| {
        let line = line.trim_end_matches(" LEFT-JOIN");
        line.ends_with("USING PRIMARY KEY (id=?)") || line == "SCAN c" || line.starts_with("SCALAR SUBQUERY")
    };
    // `c` has one row, which is read once.
    assert!(others.iter().all(is_look_up), "more than it must:\n{plan}");
}

#[test]
fn details_are_read_in_order_of_an_index() {
    let home = Home::new();
    let fixture = home.create();
    let lab = fixture.ensure_namespace("lab").unwrap();
    fixture.committed("web", "nightly");
    let mut elsewhere = fixture.commit("web", "nightly");
    crate::testing::move_to_namespace(&mut elsewhere, lab.id, "lab");
    fixture.commit_backup(&elsewhere).unwrap();
    let raw = home.raw();

    let none = DetailFilter::default();
    let (vm, job) = (Some("web".to_owned()), Some("nightly".to_owned()));
    let (one, two) = (Some(vec![lab.id]), Some(vec![lab.id, fixture.default.id]));
    let run = Some(RunId(ulid::Ulid(1)));
    for (filter, index) in [
        (none.clone(), "details_by_start"),
        (DetailFilter { namespaces: one.clone(), ..none.clone() }, "details_of_namespace"),
        (DetailFilter { namespaces: two.clone(), ..none.clone() }, "details_by_start"),
        (DetailFilter { vm: vm.clone(), namespaces: one.clone(), ..none.clone() }, "details_of_vm"),
        (DetailFilter { vm: vm.clone(), ..none.clone() }, "details_by_start"),
        (DetailFilter { job: job.clone(), namespaces: one.clone(), ..none.clone() }, "details_of_job"),
        (DetailFilter { vm, job, namespaces: one, ..none.clone() }, "details_of_vm"),
        (DetailFilter { run, namespaces: two, since_ms: Some(1), ..none.clone() }, "details_of_run"),
        (DetailFilter { since_ms: Some(1), until_ms: Some(2), ..none }, "details_by_start"),
    ] {
        let conditions = details::filter::in_order(&raw, &filter).unwrap().unwrap().text();
        let after = "(d.started_ms, d.run_id, d.session_id, d.position) > (?, ?, ?, ?)";
        for conditions in [conditions.clone(), format!("{conditions} AND {after}")] {
            walks(&plan(&raw, (details::SELECT, &conditions, details::ORDER)), "d", index);
        }
    }
}

#[test]
fn a_disks_past_is_read_by_index() {
    let home = Home::new();
    home.create().committed("web", "nightly");
    let raw = home.raw();
    let earlier = plan(&raw, (history::OF_THE_PAST, history::EARLIER, history::LATEST_FIRST));
    walks(&earlier, "d", "details_of_disk (vm_id=? AND disk=? AND (started_ms,run_id,session_id,position)<");
    let cost = plan(&raw, (overviews::DISK_COST, "true", ""));
    assert!(cost.starts_with("SEARCH d USING INDEX details_of_disk (vm_id=? AND disk=?)"), "{cost}");
    let before = plan(&raw, (backups::SELECT, backups::BEFORE, ""));
    assert!(!before.contains("SCAN") && !before.contains("TEMP B-TREE"), "{before}");
}

#[test]
fn a_vms_runs_and_findings_are_read_by_index() {
    let home = Home::new();
    home.create().committed("web", "nightly");
    let raw = home.raw();
    let runs = plan(&raw, (findings::RUNS, &format!("WHERE {}", findings::UP_TO), history::LATEST_FIRST));
    assert!(
        runs.contains(
            "SEARCH d USING INDEX details_of_vm (vm_id=? AND (started_ms,run_id,session_id,position)<"
        ),
        "{runs}"
    );
    assert!(runs.contains("SEARCH e USING INDEX details_of_disk (vm_id=? AND disk=?"), "{runs}");
    assert!(!runs.contains("TEMP B-TREE"), "{runs}");
    let found = plan(&raw, (findings::SELECT, "WHERE f.finished_ms >= ?", "ORDER BY f.finished_ms DESC"));
    assert!(found.starts_with("SEARCH f USING INDEX findings_by_end (finished_ms>?)"), "{found}");
    assert!(
        found.contains("SEARCH d USING INDEX sqlite_autoindex_details_1 (session_id=? AND position=?)"),
        "{found}"
    );
    assert!(!found.contains("TEMP B-TREE"), "{found}");
}

/// Rows that are all read anyway are read by an index only where it leaves most of them out.
#[test]
fn whole_answers_are_read_by_index_only_where_it_saves() {
    let home = Home::new();
    let fixture = home.create();
    let lab = fixture.ensure_namespace("lab").unwrap();
    let mut few = fixture.commit("rare", "seldom");
    crate::testing::move_to_namespace(&mut few, lab.id, "lab");
    fixture.commit_backup(&few).unwrap();
    for _ in 0..20 {
        fixture.committed("web", "nightly");
    }
    let late = fixture.committed("web", "nightly").attempt.started_ms;
    let raw = home.raw();
    let none = DetailFilter::default();
    let job = |job: &str| DetailFilter { job: Some(job.into()), ..none.clone() };
    let of = |id| DetailFilter { namespaces: Some(vec![id]), ..none.clone() };
    for (filter, expected) in [
        (none.clone(), "SCAN d"),
        (job("nightly"), "SCAN d"),
        (job("seldom"), "SEARCH d USING INDEX details_of_job"),
        (of(fixture.default.id), "SCAN d"),
        (of(lab.id), "SEARCH d USING INDEX details_of_namespace"),
        (DetailFilter { vm: Some("rare".into()), ..none.clone() }, "SEARCH d USING INDEX details_of_"),
        (DetailFilter { since_ms: Some(1), ..none.clone() }, "SCAN d"),
        (DetailFilter { since_ms: Some(late), ..none.clone() }, "SEARCH d USING INDEX details_by_start"),
        (DetailFilter { finished_since_ms: Some(1), ..none.clone() }, "SCAN d"),
        (
            DetailFilter { finished_since_ms: Some(late), ..none.clone() },
            "SEARCH d USING INDEX details_by_end",
        ),
        (DetailFilter { since_ms: Some(late), ..job("seldom") }, "SEARCH d USING INDEX details_of_job"),
    ] {
        let conditions = details::filter::of_all(&raw, &filter).unwrap().unwrap().text();
        let plan = plan(&raw, ("SELECT d.number, d.bytes FROM details d", &conditions, ""));
        assert!(plan.starts_with(expected), "{filter:?}\n{plan}");
    }
    // Rows that are not done are few, and have an index in order of their end.
    let failed = DetailFilter {
        statuses: Some(vec![crate::RowStatus::Failed, crate::RowStatus::Aborted, crate::RowStatus::Expired]),
        ..none.clone()
    };
    let conditions = details::filter::of_all(&raw, &failed).unwrap().unwrap();
    let latest =
        details::sorted::by(SortOrder { by: crate::DetailSort::Finished, descending: true }, &conditions);
    walks(
        &plan(&raw, ("SELECT d.number FROM details d", &conditions.text(), &latest)),
        "d",
        "details_failed_by_end",
    );
    // Runs come one after the other without being sorted, unless an index finds the few rows that match.
    let week = DetailFilter { since_ms: Some(late), ..none.clone() };
    for (filter, expected) in [
        (&none, "SCAN d USING INDEX details_of_run"),
        (&week, "SEARCH d USING INDEX details_by_start (started_ms>?)\nUSE TEMP B-TREE FOR ORDER BY"),
    ] {
        let conditions = details::filter::of_all(&raw, filter).unwrap().unwrap();
        let order = details::sums::Reading::ByRun.order(&conditions);
        assert_eq!(plan(&raw, ("SELECT d.bytes FROM details d", &conditions.text(), &order)), expected);
    }
    // Names are looked up once, not for every row.
    let search = DetailFilter { search: Some("web".into()), ..none };
    let conditions = details::filter::of_all(&raw, &search).unwrap().unwrap().text();
    let plan = plan(&raw, ("SELECT d.number FROM details d", &conditions, ""));
    assert_eq!(plan.matches("LIST SUBQUERY").count(), 3, "{plan}");
    assert!(!plan.contains("CORRELATED") && !plan.contains("MULTI-INDEX"), "{plan}");
}

#[test]
fn backups_are_read_in_order_of_an_index() {
    let home = Home::new();
    let fixture = home.create();
    fixture.committed("web", "nightly");
    let raw = home.raw();
    let none = BackupFilter::default();
    let one = Some(vec![fixture.default.id]);
    for (filter, index) in [
        (none.clone(), "backups_by_start"),
        (BackupFilter { namespaces: one.clone(), ..none.clone() }, "backups_of_namespace"),
        (BackupFilter { vm: Some("web".into()), namespaces: one.clone(), ..none.clone() }, "backups_of_vm"),
        (BackupFilter { job: Some("nightly".into()), namespaces: one, ..none }, "backups_of_job"),
    ] {
        let conditions = backups::conditions(&raw, &filter).unwrap().unwrap().text();
        let after = "(b.started_ms, b.id) < (?, ?)";
        for conditions in [conditions.clone(), format!("{conditions} AND {after}")] {
            walks(&plan(&raw, (backups::SELECT, &conditions, backups::ORDER)), "b", index);
        }
    }
}

#[test]
fn a_hundred_thousand_rows_are_paged_whole_and_in_order() {
    let home = Home::new();
    let fixture = home.create();
    let commit = fixture.committed("web", "nightly");
    let mut raw = home.raw();
    let tx = raw.transaction().unwrap();
    let mut insert = tx
        .prepare(
            "INSERT INTO details SELECT NULL, ?1, position, namespace_id, job_id, run_id, vm_id, disk, backup_id, \
             status, ?2, finished_ms, virtual_bytes, bytes, read_bytes, unchanged_bytes, dup_bytes, new_bytes, \
             post_lc, meta_bytes, wire_bytes, chunks, new_chunks, error, \
                 retried_new_bytes, retried_post_lc, \
                 first_full, level, host, agent, reading_ms, compressing_ms, waiting_ms FROM details WHERE session_id = ?3",
        )
        .unwrap();
    let original = commit.attempt.session.to_bytes();
    for n in 0..50_000u128 {
        // Many of one millisecond, and not in the order of their sessions.
        let session = n.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835).to_be_bytes();
        insert.execute(params![session, START_MS + i64::try_from(n % 999).unwrap(), original]).unwrap();
    }
    drop(insert);
    tx.commit().unwrap();

    let rows = all_pages(1000, |page| fixture.details(&DetailFilter::default(), page));
    assert_eq!(rows.len(), 100_002);
    assert!(rows.is_sorted_by_key(|row| row.started_ms));
    let web =
        DetailFilter { vm: Some("web".into()), since_ms: Some(START_MS + 998), ..DetailFilter::default() };
    assert_eq!(all_pages(7, |page| fixture.details(&web, page)).len(), 2 * 50_000 / 999 + 2);
}
