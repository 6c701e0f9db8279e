//! Compression details in all formats.

use holdfast_proto::details;
use holdfast_tests::{Agent, Disk, Server};
use tempfile::{TempDir, tempdir};

use super::sources::{FAR_BYTES, shrinking_backup};

/// The exact header that users' scripts rely on.
const HEADER: &str = "namespace\tjob\trun\tvm\tdisk\tbackup\tstatus\tstarted\tfinished\tseconds\tvirtual_bytes\tbytes\tread_bytes\tunchanged_bytes\tdup_bytes\tnew_bytes\tpost_lc\tmeta_bytes\twire_bytes\tglobal_factor\tlocal_factor\tbytes/post_lc\treduction_pct\tchunks\tnew_chunks\tmb_per_s\terror\tretried_post_lc\tfirst_full\tlevel\thost\tagent\treading_ms\tcompressing_ms\twaiting_ms\tpoint\tlocked\tdeleted\tdeleted_by";

fn three_runs() -> (TempDir, Server, Agent) {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let small = Disk::of_noise(folder.path().join("small.raw"), 1, 2 << 20);
    let large = Disk::of_noise(folder.path().join("large.raw"), 2, 12 << 20);
    let both = [format!("root={}", small.arg()), format!("data={}", large.arg())];
    agent.run(&["backup", "--vm", "db", "--job", "nightly", &both[0], &both[1]]).ok();
    agent.run(&["backup", "--vm", "web", "--job", "hourly", small.arg()]).ok();
    agent.run(&["backup", "--vm", "db", "--job", "nightly", &both[0], &both[1]]).ok();
    (folder, server, agent)
}

#[test]
fn tsv_and_csv_have_exactly_the_documented_columns() {
    let (_folder, _server, agent) = three_runs();
    let tsv = agent.run(&["report", "--format", "tsv"]).ok().text();
    assert_eq!(tsv.lines().next(), Some(HEADER));
    let columns: Vec<_> = details::names().collect();
    assert_eq!(HEADER.split('\t').collect::<Vec<_>>(), columns);
    assert_eq!(tsv.lines().count(), 1 + 5, "one row a run and disk:\n{tsv}");
    for line in tsv.lines() {
        assert_eq!(line.split('\t').count(), columns.len(), "{line}");
    }
    let csv = agent.run(&["report", "--format", "csv"]).ok().text();
    assert_eq!(csv, tsv.replace('\t', ","), "no value here needs quotes");
}

#[test]
fn json_has_the_same_values() {
    let (_folder, _server, agent) = three_runs();
    let rows = agent.report();
    assert_eq!(rows.len(), 5);
    let mut columns: Vec<_> = HEADER.split('\t').collect();
    columns.sort_unstable();
    for row in &rows {
        let mut found = row.columns();
        found.sort_unstable();
        assert_eq!(found, columns);
        assert_eq!((row.text("namespace"), row.text("status")), ("default", "done"));
        assert_eq!(row.text("run").len(), 26);
    }
    let names: Vec<_> = rows.iter().map(|row| (row.text("job"), row.text("vm"), row.text("disk"))).collect();
    assert_eq!(names[2], ("hourly", "web", "small"));
    assert_eq!(rows[0].text("run"), rows[1].text("run"), "one run for both disks of a VM");
    assert_eq!(rows[0].text("backup"), rows[1].text("backup"));
    assert_ne!(rows[0].text("run"), rows[3].text("run"));
}

#[test]
fn rows_can_be_chosen() {
    let (_folder, _server, agent) = three_runs();
    let lines = |args: &[&str]| {
        let ran = agent.run(&[&["report", "--format", "tsv"], args].concat()).ok();
        ran.text().lines().count() - 1
    };
    assert_eq!(lines(&["--job", "nightly"]), 4);
    assert_eq!(lines(&["--job", "hourly"]), 1);
    assert_eq!(lines(&["--job", "weekly"]), 0);
    assert_eq!(lines(&["--vm", "web"]), 1);
    assert_eq!(lines(&["--since", "1h"]), 5);
    assert_eq!(lines(&["--since", "2999-01-01"]), 0);
}

#[test]
fn the_worst_comes_first() {
    let (_folder, _server, agent) = three_runs();
    let text = agent.run(&["report", "--worst", "--format", "tsv"]).ok().text();
    let column = |name: &str| HEADER.split('\t').position(|column| column == name).unwrap();
    let stored: Vec<u64> = text
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<_> = line.split('\t').collect();
            let number = |name: &str| cells[column(name)].parse::<u64>().unwrap();
            number("post_lc") + number("meta_bytes")
        })
        .collect();
    assert!(stored.is_sorted_by(|a, b| a >= b), "{stored:?}");
    assert!(stored[0] > 12 << 20);
}

#[test]
fn what_is_out_of_line_is_told_before_the_worst_rows() {
    let (_folder, _server, agent) = three_runs();
    let told = |args: &[&str]| agent.run(&[&["report", "--worst"], args].concat()).ok();
    let lines = [
        "nightly/db: first backup of 14.0 MiB, of which 0 % was stored already",
        "  There was no restore point of it to build on.",
        "hourly/web: first backup of 2.00 MiB, of which 100 % was stored already",
    ];
    let text = told(&[]).text();
    assert!(text.starts_with(&lines.join("\n")), "{text}");
    assert!(text.contains("post_lc"), "the rows follow\n{text}");
    let one = told(&["1"]).text();
    assert!(one.starts_with(lines[0]) && !one.contains(lines[2]), "{one}");
    assert!(told(&["--vm", "web"]).text().starts_with(lines[2]));
    assert!(!told(&["--since", "2999-01-01"]).text().contains("first backup"));
    assert!(told(&["--format", "tsv"]).text().starts_with(HEADER), "programs read rows alone");
    let summary = told(&["--json"]).summary();
    let found = summary["findings"].as_array().unwrap();
    assert_eq!(found.len(), 2, "{summary}");
    assert_eq!((&found[0]["kind"], &found[0]["vm"]), (&"first_full".into(), &"db".into()));
    assert!(!agent.run(&["report"]).ok().text().contains("first backup"), "asked for only");
}

#[test]
fn the_table_is_for_people_and_has_totals() {
    let (_folder, _server, agent) = three_runs();
    let text = agent.run(&["report"]).ok().text();
    for word in ["post_lc", "global", "local", "nightly", "hourly", "db", "web"] {
        assert!(text.contains(word), "no {word:?} in\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colours where no one looks");
}

/// Deleted restore points stay in the report, and the server adds up what is shown.
#[test]
fn a_deletion_is_in_the_report_and_totals_say_what_is_used_now() {
    let (_folder, _server, agent) = three_runs();
    let [newest, older] = agent.backups("db").try_into().unwrap();
    agent.run(&["delete", "--vm", "db", &older, "--reason", "no longer needed", "--yes"]).ok();
    agent.run(&["reclaim"]).ok();
    let rows = agent.report();
    let gone: Vec<_> = rows.iter().filter(|row| row.text("point") == "deleted").collect();
    assert_eq!(gone.len(), 2, "both of its disks");
    for row in &gone {
        assert_eq!(row.text("backup"), older);
        assert!(!row.text("deleted").is_empty() && row.text("deleted_by").ends_with(": no longer needed"));
    }
    let lines = |args: &[&str]| -> Vec<Vec<String>> {
        let text = agent.run(&[&["report", "--format", "tsv"], args].concat()).ok().text();
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    };
    let existing = lines(&["--existing"]);
    assert_eq!(existing.len(), 1 + 3);
    assert!(
        existing.iter().all(|row| !row.contains(&older))
            && existing[1..].iter().any(|row| row.contains(&newest))
    );
    let totals = lines(&["--totals", "vm"]);
    let used = totals[0].iter().position(|column| column == "used_bytes").unwrap();
    assert_eq!((totals.len(), totals[1][2].as_str()), (1 + 2, "db"));
    assert!(totals[1][used].parse::<u64>().unwrap() > 12 << 20, "{:?}", totals[1]);
    let days = lines(&["--totals", "day"]);
    assert_eq!(days[0][..2], ["span", "day"]);
    assert!(days[1..].iter().any(|row| row[0] == "week") && days[1..].iter().any(|row| row[0] == "day"));
    let shown = agent.run(&["report", "--totals", "vm"]).ok();
    assert!(shown.text().contains("used now") && shown.text().contains("default/db"), "{}", shown.text());
    assert!(shown.said().contains("does not include what was written or deleted since the last reclaim on"));
}

/// An accepted change is reported for the restore points whose rows are shown, and for no other.
#[test]
fn a_change_that_was_accepted_is_said() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 6 << 20);
    agent.back_up("web", &[disk.arg()]);
    agent.back_up("db", &[disk.arg()]);
    disk.resize(4 << 20);
    agent.back_up("web", &[disk.arg(), "--accept-change"]);
    let changed = agent.backups("web").remove(0);
    let said = agent.run(&["report"]).ok().said();
    let lines: Vec<_> =
        said.lines().filter(|line| line.contains("less than the one before, as accepted")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains(&changed) && lines[0].contains("VM web"), "{said}");
    let json = agent.run(&["report", "--json"]).ok().text();
    let json: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert_eq!(json["accepted_changes"], serde_json::json!([changed]));
    assert!(!agent.run(&["report", "--vm", "db"]).ok().said().contains("as accepted"));
}

#[test]
fn a_failed_run_is_in_the_details() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, FAR_BYTES);
    shrinking_backup(&server, &disk, 1 << 20).fails(1, &["disk.raw"]);
    let rows = agent.report();
    assert_eq!(rows.len(), 1);
    assert!(matches!(rows[0].text("status"), "failed" | "aborted"), "{}", rows[0].text("status"));
    assert!(rows[0].text("error").contains("disk"), "{}", rows[0].text("error"));
    assert_eq!(rows[0].text("backup"), "");
}
