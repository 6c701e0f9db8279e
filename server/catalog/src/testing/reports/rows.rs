//! Rows sorted, filtered and found by name.

use std::collections::BTreeSet;

use holdfast_types::ids::{NamespaceId, SessionId};
use ulid::Ulid;

use super::cases;
use super::model::{filters, make, matches, sort};
use crate::testing::fixture::{Fixture, all_pages};
use crate::{
    Amounts, CatalogError, DetailEntry, DetailFilter, DetailRow, DetailSort, HISTORY_MAX, PointFate,
    REPORT_PAGE_MAX, RowStatus, RunSums, SEARCH_MAX_BYTES, SortOrder,
};

cases![
    rows_sort_by_any_column_both_ways,
    every_filter_gives_what_matches,
    pages_are_parts_of_the_list,
    a_row_is_found_by_its_name,
    histories_are_earlier_rows_of_the_disk,
    runs_of_a_vm_are_its_disks_added_up,
    findings_are_kept_with_the_disk_that_brought_most,
    questions_are_bounded,
];

fn rows_sort_by_any_column_both_ways(f: &Fixture) {
    let all = make(f, 60);
    for by in DetailSort::ALL {
        for descending in [false, true] {
            let order = SortOrder { by, descending };
            let mut expected = all.clone();
            sort(&mut expected, order);
            let (found, total) = f.details_sorted(&DetailFilter::default(), order, 0, 2000).unwrap();
            assert_eq!(total, all.len() as u64);
            assert_eq!(found, expected, "{order:?}");
            shown_in_order(&found, order);
            let rows: Vec<_> = expected.into_iter().map(|entry| entry.row).collect();
            assert_eq!(all_sorted(f, &DetailFilter::default(), order), rows, "{order:?}");
        }
    }
}

/// Every row, a few at a time.
fn all_sorted(f: &Fixture, filter: &DetailFilter, order: SortOrder) -> Vec<DetailRow> {
    let mut sorted = f.all_sorted(filter, order, Box::new(|| true)).unwrap();
    let mut rows = Vec::new();
    while let Some(more) = sorted.next(7).unwrap() {
        assert!(more.len() <= 7);
        rows.extend(more);
    }
    rows
}

/// Checks that the column is in order as people see it, with nothing last.
fn shown_in_order(found: &[DetailEntry], order: SortOrder) {
    let rows: Vec<_> = found.iter().map(|entry| entry.row.clone()).collect();
    let shown = holdfast_proto::details::json(&rows);
    let column: Vec<_> =
        shown.as_array().unwrap().iter().map(|row| row[order.by.column()].as_f64()).collect();
    if column.iter().all(Option::is_none) {
        return;
    }
    for pair in column.windows(2) {
        let right = match (pair[0], pair[1]) {
            (Some(a), Some(b)) => {
                if order.descending {
                    a >= b
                } else {
                    a <= b
                }
            }
            (a, b) => a.is_some() >= b.is_some(),
        };
        assert!(right, "{order:?}: {pair:?}");
    }
}

fn every_filter_gives_what_matches(f: &Fixture) {
    let all = make(f, 60);
    let mut matched = 0;
    for filter in filters(f, &all) {
        let expected: Vec<_> = all.iter().filter(|e| matches(f, &filter, &e.row)).cloned().collect();
        matched += usize::from(!expected.is_empty());
        let (found, total) = f.details_sorted(&filter, SortOrder::OLDEST_FIRST, 0, 2000).unwrap();
        assert_eq!(total, expected.len() as u64, "{filter:?}");
        assert_eq!(found, expected, "{filter:?}");
        let rows: Vec<_> = expected.into_iter().map(|entry| entry.row).collect();
        assert_eq!(all_pages(7, |page| f.details(&filter, page)), rows, "{filter:?}");
        assert_eq!(all_sorted(f, &filter, SortOrder::OLDEST_FIRST), rows, "{filter:?}");
    }
    assert!(matched > 18, "{matched} filters match something");
}

fn pages_are_parts_of_the_list(f: &Fixture) {
    let all = make(f, 40);
    let filter = DetailFilter { search: Some("we".into()), ..DetailFilter::default() };
    let matching: Vec<_> = all.into_iter().filter(|e| matches(f, &filter, &e.row)).collect();
    let count = matching.len();
    assert!(count > 20);
    for by in [DetailSort::PostLc, DetailSort::Vm, DetailSort::LocalFactor, DetailSort::Started] {
        let order = SortOrder { by, descending: true };
        let mut expected = matching.clone();
        sort(&mut expected, order);
        for (offset, limit) in
            [(0, 1), (0, 7), (5, 7), (count - 1, 9), (count, 3), (count + 9, 3), (3, 0), (usize::MAX, 2000)]
        {
            let part: Vec<_> = expected.iter().skip(offset).take(limit).cloned().collect();
            let (found, total) =
                f.details_sorted(&filter, order, offset as u64, u32::try_from(limit).unwrap()).unwrap();
            assert_eq!((found, total), (part, count as u64), "{order:?} {offset} {limit}");
        }
    }
}

fn a_row_is_found_by_its_name(f: &Fixture) {
    for entry in make(f, 12) {
        assert_eq!(f.detail(entry.session, entry.position).unwrap().as_ref(), Some(&entry));
        assert_eq!(f.detail(entry.session, entry.position + 100).unwrap(), None);
    }
    assert_eq!(f.detail(SessionId(Ulid(4)), 0).unwrap(), None);
}

fn histories_are_earlier_rows_of_the_disk(f: &Fixture) {
    let all = make(f, 80);
    let mut longest = 0;
    for limit in [0, 3, HISTORY_MAX] {
        let expected: Vec<Vec<DetailRow>> = all
            .iter()
            .enumerate()
            .map(|(place, entry)| {
                let same = |e: &&DetailEntry| {
                    let name =
                        |e: &DetailEntry| (e.row.namespace.clone(), e.row.vm.clone(), e.row.disk.clone());
                    name(e) == name(entry)
                };
                let earlier: Vec<_> = all[..place]
                    .iter()
                    .filter(same)
                    .map(|e| DetailRow { point: PointFate::None, ..e.row.clone() })
                    .collect();
                earlier[earlier.len().saturating_sub(limit as usize)..].to_vec()
            })
            .collect();
        assert_eq!(f.detail_histories(&all, limit).unwrap(), expected);
        for (entry, expected) in all.iter().zip(&expected).step_by(17) {
            assert_eq!(f.detail_history(entry, limit).unwrap(), *expected);
        }
        longest = expected.iter().map(Vec::len).max().unwrap();
    }
    assert!(longest > 5, "{longest}");
    let stranger = DetailEntry { session: SessionId(Ulid(1)), ..all[9].clone() };
    assert_eq!(f.detail_history(&stranger, 5).unwrap(), [], "a row that is not there has no past");
    assert_eq!(f.detail_histories(&[], 5).unwrap(), Vec::<Vec<DetailRow>>::new());
}

fn runs_of_a_vm_are_its_disks_added_up(f: &Fixture) {
    let all = make(f, 80);
    let done: Vec<&DetailEntry> = all.iter().filter(|entry| entry.row.status == RowStatus::Done).collect();
    let of_vm = |entry: &DetailEntry| (entry.row.namespace.clone(), entry.row.vm.clone());
    let (mut longest, mut firsts) = (0, 0);
    for entry in &all {
        let mut expected: Vec<(SessionId, RunSums)> = Vec::new();
        let last = done.iter().rposition(|one| one.session == entry.session);
        let past: Vec<_> =
            done[..last.map_or(0, |last| last + 1)].iter().filter(|one| of_vm(one) == of_vm(entry)).collect();
        for (place, one) in past.iter().enumerate() {
            let row = &one.row;
            if expected.last().is_none_or(|(session, _)| *session != one.session) {
                let (started_ms, finished_ms) = (row.started_ms, row.finished_ms);
                expected.push((one.session, RunSums { started_ms, finished_ms, ..RunSums::default() }));
            }
            let is_first =
                row.first_full || !past[..place].iter().any(|earlier| earlier.row.disk == row.disk);
            let run = &mut expected.last_mut().unwrap().1;
            if is_first { &mut run.first } else { &mut run.known }.add(&Amounts {
                bytes: row.bytes,
                read_bytes: row.read_bytes,
                dup_bytes: row.dup_bytes.saturating_sub(row.retried_new_bytes),
                new_bytes: row.new_bytes + row.retried_new_bytes,
                stored_bytes: row.post_lc + row.retried_post_lc,
                retried_bytes: row.retried_post_lc,
            });
            firsts += usize::from(is_first);
        }
        let expected: Vec<RunSums> = expected.into_iter().map(|(_, run)| run).collect();
        for limit in [0, 2, HISTORY_MAX] {
            let part = &expected[expected.len().saturating_sub(limit as usize)..];
            assert_eq!(f.runs_up_to(entry.session, limit).unwrap(), part);
        }
        longest = longest.max(expected.len());
    }
    assert!(longest > 5 && firsts > 5, "{longest} {firsts}");
    assert_eq!(f.runs_up_to(SessionId(Ulid(1)), 5).unwrap(), []);
    assert!(matches!(f.runs_up_to(all[0].session, HISTORY_MAX + 1), Err(CatalogError::Invalid { .. })));
}

fn findings_are_kept_with_the_disk_that_brought_most(f: &Fixture) {
    let all = make(f, 60);
    let sessions: BTreeSet<SessionId> = all.iter().map(|entry| entry.session).collect();
    for session in &sessions {
        f.record_finding(*session, "before").unwrap();
        f.record_finding(*session, &session.to_string()).unwrap();
    }
    f.record_finding(SessionId(Ulid(1)), "of no row").unwrap();
    let found = f.findings_of(&all).unwrap();
    let with: Vec<&DetailEntry> =
        all.iter().zip(&found).filter(|(_, found)| found.is_some()).map(|(e, _)| e).collect();
    assert_eq!(with.iter().map(|entry| entry.session).collect::<BTreeSet<_>>(), sessions);
    assert_eq!(with.len(), sessions.len(), "one row each");
    let new = |entry: &DetailEntry| entry.row.new_bytes + entry.row.retried_new_bytes;
    for entry in &with {
        assert!(all.iter().filter(|e| e.session == entry.session).all(|e| new(e) <= new(entry)));
    }
    for filter in filters(f, &all) {
        let expected: Vec<_> = with.iter().filter(|entry| matches(f, &filter, &entry.row)).collect();
        let found = f.findings(&filter).unwrap();
        assert_eq!(found.len(), expected.len(), "{filter:?}");
        let mut ended_ms = i64::MAX;
        for row in found {
            let entry = expected.iter().find(|entry| entry.session.to_string() == row.found).unwrap();
            assert!(entry.row.finished_ms <= ended_ms, "the latest first");
            ended_ms = entry.row.finished_ms;
            assert_eq!(
                (&row.vm, &row.job, row.run.to_string()),
                (&entry.row.vm, &entry.row.job, entry.row.run.clone())
            );
            let later = |e: &DetailEntry| {
                let same = (&e.row.namespace, &e.row.vm) == (&entry.row.namespace, &entry.row.vm);
                same && e.row.status == RowStatus::Done && e.row.started_ms > entry.row.started_ms
            };
            assert_eq!(row.is_over, all.iter().any(later));
        }
    }
}

fn questions_are_bounded(f: &Fixture) {
    let none = DetailFilter::default();
    let ask = |filter: &DetailFilter, limit| f.details_sorted(filter, SortOrder::OLDEST_FIRST, 0, limit);
    let search = |text: String| DetailFilter { search: Some(text), ..none.clone() };
    let namespaces = Some((0..1001).map(|n| NamespaceId(Ulid(n))).collect());
    for (filter, limit) in [
        (none.clone(), REPORT_PAGE_MAX + 1),
        (search("x".repeat(SEARCH_MAX_BYTES + 1)), 1),
        (search("a\0".into()), 1),
        (DetailFilter { namespaces, ..none.clone() }, 1),
        (DetailFilter { statuses: Some(vec![crate::RowStatus::Done; 17]), ..none.clone() }, 1),
    ] {
        let error = ask(&filter, limit).unwrap_err();
        assert!(matches!(error, CatalogError::Invalid { .. }), "{error}");
    }
    assert_eq!(ask(&search("x".repeat(SEARCH_MAX_BYTES)), REPORT_PAGE_MAX).unwrap(), (vec![], 0));
    let entry = DetailEntry { session: SessionId(Ulid(1)), position: 0, row: DetailRow::default() };
    assert!(matches!(f.detail_history(&entry, HISTORY_MAX + 1), Err(CatalogError::Invalid { .. })));
    let many = vec![entry; REPORT_PAGE_MAX as usize + 1];
    assert!(matches!(f.detail_histories(&many, 1), Err(CatalogError::Invalid { .. })));
}
