use super::render::bytes;
use super::*;
use crate::api::{DaySpan, DaysRow, PointFate, RowStatus, Sums, Time, TotalsRow, UsedNow};

pub(crate) fn row(vm: &str, bytes: u64, new_bytes: u64, post_lc: u64) -> DetailRow {
    DetailRow {
        namespace: "default".into(),
        job: "nightly".into(),
        run: "01J".into(),
        vm: vm.into(),
        disk: "disk0".into(),
        status: RowStatus::Done,
        started_ms: 1_700_000_000_000,
        finished_ms: 1_700_000_002_500,
        virtual_bytes: 2 * bytes,
        bytes,
        dup_bytes: bytes - new_bytes,
        new_bytes,
        post_lc,
        meta_bytes: 7,
        point: PointFate::Exists,
        ..DetailRow::default()
    }
}

#[test]
fn header_names_are_the_contract() {
    let header = tsv(&[]);
    assert_eq!(
        header,
        "namespace job run vm disk backup status started finished seconds virtual_bytes bytes read_bytes \
         unchanged_bytes dup_bytes new_bytes post_lc meta_bytes wire_bytes global_factor local_factor \
         bytes/post_lc reduction_pct chunks new_chunks mb_per_s error retried_post_lc \
         first_full level host agent reading_ms compressing_ms waiting_ms point locked deleted deleted_by\n"
            .replace(' ', "\t")
    );
}

#[test]
fn a_row_in_every_form() {
    let rows = [row("web", 1000, 500, 200)];
    let line = tsv(&rows).lines().nth(1).unwrap().to_owned();
    assert_eq!(
        line,
        "default\tnightly\t01J\tweb\tdisk0\t\tdone\t2023-11-14T22:13:20.000Z\t2023-11-14T22:13:22.500Z\t2.500\t\
         2000\t1000\t0\t0\t500\t500\t200\t7\t0\t2.00\t2.50\t5.00\t80.00\t0\t0\t0.0\t\t0\t\
         false\t0\t\t\t0\t0\t0\texists\tfalse\t\t"
    );
    assert_eq!(csv(&rows).lines().nth(1).unwrap(), line.replace('\t', ","));
    let value = &json(&rows)[0];
    assert_eq!(value["bytes/post_lc"], 5.0);
    assert_eq!(value["post_lc"], 200);
    assert_eq!(value["vm"], "web");
}

#[test]
fn json_has_the_columns_and_a_row_comes_back_as_it_was() {
    let mut row = DetailRow { error: "e".into(), ..row("web", 1000, 300, 70) };
    (row.retried_new_bytes, row.retried_post_lc, row.finished_ms) = (30, 7, 0);
    (row.point, row.deleted_ms, row.deleted_by) = (PointFate::Deleted, 1_700_000_000_000, "op: full".into());
    let shown = json(std::slice::from_ref(&row));
    let mut expected: Vec<&str> = names().collect();
    expected.sort_unstable();
    assert_eq!(shown[0].as_object().unwrap().keys().collect::<Vec<_>>(), expected);
    assert_eq!((&shown[0]["global_factor"], &shown[0]["finished"]), (&3.03.into(), &"".into()));
    let text = serde_json::to_string(&row).unwrap();
    assert_eq!(serde_json::from_str::<DetailRow>(&text).unwrap(), row);
}

#[test]
fn nothing_stored_has_no_factor() {
    let rows = [row("web", 1000, 0, 0)];
    let value = &json(&rows)[0];
    assert!(value["local_factor"].is_null() && value["bytes/post_lc"].is_null());
    assert_eq!(value["reduction_pct"], 100.0);
    let empty = Factors::of(0, 0, 0);
    assert_eq!(empty.reduction_pct, None);
}

#[test]
fn hostile_text_stays_in_its_cell() {
    let mut hostile = row("a,\"b\"", 1, 1, 1);
    hostile.error = "line one\nline\ttwo".into();
    let text = tsv(&[hostile.clone()]);
    assert_eq!(text.lines().count(), 2);
    assert_eq!(text.lines().nth(1).unwrap().split('\t').count(), names().count());
    assert!(csv(&[hostile]).contains("\"a,\"\"b\"\"\""));
}

#[test]
fn text_cells_are_no_formulas_and_numbers_are_untouched() {
    let mut hostile = row("=HYPERLINK(\"http://x\")", 100, 100, 200);
    hostile.job = "@SUM(A1)".into();
    hostile.disk = "-1+1".into();
    hostile.error = "\r=1+1".into();
    let line = tsv(&[hostile.clone()]).lines().nth(1).unwrap().to_owned();
    let cells: Vec<&str> = line.split('\t').collect();
    let cell = |name: &str| cells[names().position(|column| column == name).unwrap()];
    assert_eq!(cell("vm"), "'=HYPERLINK(\"http://x\")");
    assert_eq!((cell("job"), cell("disk"), cell("error")), ("'@SUM(A1)", "'-1+1", "' =1+1"));
    assert_eq!(cell("reduction_pct"), "-100.00", "a number that begins with a minus stays one");
    let line = csv(&[hostile.clone()]).lines().nth(1).unwrap().to_owned();
    assert!(line.starts_with("default,'@SUM(A1),01J,\"'=HYPERLINK(\"\"http://x\"\")\",'-1+1,"), "{line}");
    assert!(line.contains(",-100.00,") && line.contains(",' =1+1,0,false,"), "{line}");
    assert_eq!(json(&[hostile])[0]["vm"], "=HYPERLINK(\"http://x\")", "JSON has the name as it is");
}

#[test]
fn a_quotation_mark_at_the_start_swallows_no_cells() {
    let quoting = row("\"web\" 1", 1, 1, 1);
    let line = tsv(&[quoting]).lines().nth(1).unwrap().to_owned();
    assert!(line.contains("\t\"\"\"web\"\" 1\"\t"), "{line}");
    let inside = tsv(&[row("web \"1\"", 1, 1, 1)]);
    assert!(inside.contains("\tweb \"1\"\t"), "elsewhere it is a mark like any other: {inside}");
}

#[test]
fn text_that_acts_on_a_terminal_is_escaped() {
    let mut hostile = row("a\u{1b}]0;x\u{7}\u{202e}b", 1, 1, 1);
    hostile.error = "one\r\ntwo\u{9b}".into();
    let (tab, comma) = (tsv(&[hostile.clone()]), csv(&[hostile]));
    for text in [&tab, &comma] {
        assert!(text.contains("a\\u{1b}]0;x\\u{7}\\u{202e}b"), "{text:?}");
        assert!(text.contains("two\\u{9b}"), "{text:?}");
        assert!(!text.chars().any(|c| is_unsafe(c) && !matches!(c, '\t' | '\n')), "{text:?}");
    }
    assert!(
        tab.contains("\tone  two\\u{9b}\t0\t") && comma.contains(",\"one \ntwo\\u{9b}\",0,"),
        "{tab:?} {comma:?}"
    );
}

fn totals(rows: &[DetailRow]) -> Totals {
    let mut sums = Totals::default();
    rows.iter().for_each(|row| sums.add(row));
    sums
}

#[test]
fn totals_are_sums_and_worst_is_by_bytes_stored() {
    let mut rows = vec![row("a", 1000, 10, 5), row("b", 100, 100, 90), row("a", 1000, 0, 0)];
    rows[2].started_ms -= 7;
    rows[1].status = RowStatus::Failed;
    let all = totals(&rows);
    assert_eq!((all.post_lc, all.rows, all.failed, all.done_post_lc), (95, 3, 1, 5));
    for part in 0..=3 {
        let mut merged = totals(&rows[..part]);
        merged.merge(&totals(&rows[part..]));
        assert_eq!(merged, all, "{part}");
    }
    sort_worst_first(&mut rows);
    assert_eq!(rows.iter().map(|r| r.post_lc).collect::<Vec<_>>(), [90, 5, 0]);
}

#[test]
fn tables_of_sums_have_a_cell_for_each_column_and_rows_come_back() {
    let sums = Sums::from(totals(&[row("a", 1000, 500, 200)]));
    let used = Some(UsedNow { used_bytes: 77, at: Time::new(1_700_000_000_000), is_complete: false });
    let group = TotalsRow { vm: "a\tb".into(), sums: sums.clone(), used, ..TotalsRow::default() };
    let text = totals_table(std::slice::from_ref(&group), Delimiter::Tab);
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(lines[0], totals_columns().collect::<Vec<_>>());
    assert_eq!(lines[1].len(), lines[0].len());
    assert_eq!(lines[1][lines[0].len() - 3..], ["77", "2023-11-14T22:13:20.000Z", "false"]);
    let json = serde_json::to_value(&group).unwrap();
    assert_eq!((&json["post_lc"], &json["bytes/post_lc"]), (&200.into(), &5.0.into()));
    assert_eq!(serde_json::from_value::<TotalsRow>(json).unwrap(), group);
    let shown = |used| Table::of_totals(&[("a".into(), &sums.totals, used)], "vm");
    assert_eq!(shown(used).rows[0].last().unwrap(), "at least 77 B");
    assert_eq!((shown(None).header.last(), shown(None).rows[0].len()), (Some(&"saved"), 14));
    let day = DaysRow {
        span: DaySpan::Week,
        day: "2026-11-23".into(),
        namespace: String::new(),
        name: String::new(),
        sums,
    };
    let text = days_table(&[day], Delimiter::Comma);
    assert!(
        text.starts_with("span,day,namespace,name,rows,") && text.contains("\nweek,2026-11-23,,,1,0,"),
        "{text}"
    );
}

#[test]
fn a_retry_counts_what_was_stored_before_it_and_protects_its_bytes_once() {
    const TIB: u64 = 1 << 40;
    let failed =
        DetailRow { status: RowStatus::Failed, ..row("vm", TIB / 10 * 9, TIB / 10 * 9, TIB / 20 * 9) };
    let done = DetailRow {
        retried_new_bytes: failed.new_bytes,
        retried_post_lc: failed.post_lc,
        ..row("vm", TIB, TIB - failed.new_bytes, TIB / 2 - failed.post_lc)
    };
    assert_eq!((done.factors().global, done.factors().total), (Some(1.0), Some(2.0)), "and not 20");
    let all = totals(&[failed.clone(), done]);
    assert_eq!((all.factors().local, all.factors().total), (Some(2.0), Some(2.0)), "and not 3.8");
    assert_eq!((all.bytes, all.post_lc), (failed.bytes + TIB, TIB / 2), "the sums are of all rows");
    assert_eq!(totals(&[failed]).factors().total, None, "nothing is protected yet");
}

#[test]
fn bytes_for_people() {
    for (count, text) in [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (1536, "1.50 KiB"),
        (10 << 20, "10.0 MiB"),
        (1023 << 20, "1.00 GiB"),
        (16 << 30, "16.0 GiB"),
        (u64::MAX, "16.0 EiB"),
    ] {
        assert_eq!(bytes(count), text);
    }
}

#[test]
fn pieces_make_the_same_table_and_columns_can_be_chosen() {
    let rows = [row("web", 100, 10, 5), row("a,\"b\"\t", 200, 20, 7)];
    for (delimiter, whole) in [(Delimiter::Tab, tsv(&rows)), (Delimiter::Comma, csv(&rows))] {
        let table = Delimited::new(delimiter, None);
        assert_eq!(table.header() + &table.rows(&rows[..1]) + &table.rows(&rows[1..]), whole);
    }
    let some = Delimited::new(Delimiter::Comma, Some(&["new_bytes", "vm"]));
    assert_eq!(some.header(), "vm,new_bytes\n", "in the order of a report");
    assert_eq!(some.rows(&rows[1..]), "\"a,\"\"b\"\"\t\",20\n");
}

#[test]
fn totals_of_lies_stay_large() {
    let lie =
        DetailRow { virtual_bytes: u64::MAX - 1, read_bytes: u64::MAX, bytes: 7, ..DetailRow::default() };
    let total = totals(&[lie.clone(), lie]);
    assert_eq!((total.virtual_bytes, total.read_bytes, total.bytes), (u64::MAX, u64::MAX, 14));
}

#[test]
fn names_are_one_word_to_a_shell() {
    for (name, word) in [
        ("web-01", "web-01"),
        ("web 01", "'web 01'"),
        ("it's", r"'it'\''s'"),
        ("$(reboot)", "'$(reboot)'"),
        ("a;b|c&d>e`f`\\g*h?", r"'a;b|c&d>e`f`\g*h?'"),
        ("~root", "'~root'"),
        ("-rf", "'-rf'"),
        ("", "''"),
        ("Bücher", "'Bücher'"),
    ] {
        assert_eq!(shell_word(name), word);
    }
}
