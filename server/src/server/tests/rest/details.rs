//! Compression details over HTTP: the same numbers as everywhere else.

use holdfast_proto::api::LINES;
use holdfast_proto::details::{csv, json, tsv};

use super::*;

/// Two namespaces, three VMs, two good runs of one of them, and an aborted run.
async fn seeded() -> Fixture {
    let fixture = Fixture::start().await;
    fixture.catalog().ensure_namespace("berlin").unwrap();
    let admin = fixture.admin().await;
    for (namespace, vm) in [("", "web"), ("berlin", "db"), ("", "web"), ("", "files, and \"more\"")] {
        admin.back_up(namespace, vm).await.unwrap();
    }
    let session = admin.start("", "web").await.unwrap().session_id;
    admin.abort(&session).await.unwrap();
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_those_of_the_command_line_to_the_byte() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let rows = fixture.admin().await.report("").await.unwrap();
    assert_eq!(rows.len(), 5);
    let whole = fixture.get(&token, "/api/v1/details?format=tsv").await;
    assert_eq!(whole.text(), tsv(&rows));
    assert!(whole.header("content-type").starts_with("text/tab-separated-values"));
    assert_eq!(whole.header("content-disposition"), "attachment; filename=\"holdfast-details.tsv\"");
    assert_eq!(fixture.get(&token, "/api/v1/details?format=csv").await.text(), csv(&rows));
    let of: Vec<_> = rows.iter().filter(|row| row.vm == "web").cloned().collect();
    assert_eq!(fixture.get(&token, "/api/v1/details?format=tsv&vm=web").await.text(), tsv(&of));
    let none = fixture.get(&token, "/api/v1/details?format=tsv&vm=absent").await.text();
    assert_eq!(none, tsv(&[]));

    let listed = fixture.get(&token, "/api/v1/details").await.ok();
    let objects = json(&rows);
    for (item, object) in listed["items"].as_array().unwrap().iter().zip(objects.as_array().unwrap()) {
        for (column, value) in object.as_object().unwrap() {
            assert_eq!(&item[column], value, "{column}");
        }
        assert!(item["trend"].as_array().is_some_and(|trend| !trend.is_empty()));
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_in_lines_oldest_first_and_nothing_else() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let lines = |query: &str| {
        Ask::new("GET", &format!("/api/v1/details?{query}")).bearer(&token).header("accept", LINES)
    };
    let items = fixture.ask_as_agent(lines("vm=web&until=2100-01-01")).await.items();
    let rows = items[0]["rows"].as_array().unwrap();
    assert_eq!((items.len(), rows.len()), (1, 3));
    assert!(rows.is_sorted_by_key(|row| row["started"].as_str().unwrap()), "{rows:?}");
    assert!(rows.iter().all(|row| row["vm"] == "web" && row["retried_new_bytes"] == 0), "{rows:?}");
    assert_eq!(items[0]["accepted_changes"], serde_json::json!([]));
    for query in ["sort=vm", "limit=5", "offset=1", "format=tsv", "columns=vm"] {
        let refused = fixture.ask(lines(query)).await;
        assert_eq!((refused.status, refused.problem().as_str()), (400, "invalid"), "{query}");
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn sorted_and_chosen_as_asked() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let get = async |query: &str| fixture.get(&token, &format!("/api/v1/details?{query}")).await;
    let column = async |query: &str, name: &str| -> Vec<String> {
        let page = get(query).await.ok();
        page["items"].as_array().unwrap().iter().map(|item| item[name].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(column("sort=vm", "vm").await, ["db", "files, and \"more\"", "web", "web", "web"]);
    assert_eq!(column("sort=-vm&limit=2&offset=3", "vm").await, ["files, and \"more\"", "db"]);
    assert_eq!(column("status=aborted,failed", "status").await, ["aborted"]);
    assert_eq!(column("q=MORE", "vm").await, ["files, and \"more\""]);
    assert_eq!(column("namespace=berlin", "vm").await, ["db"]);
    assert_eq!(column("since=1h", "vm").await.len(), 5);
    assert_eq!(column("until=1h&limit=1", "vm").await.len(), 0);
    assert_eq!(get("limit=2").await.ok()["total"], 5);

    let sorted = get("format=csv&sort=-vm&columns=vm,status").await.text();
    assert_eq!(
        sorted,
        "vm,status\nweb,done\nweb,done\nweb,aborted\n\"files, and \"\"more\"\"\",done\ndb,done\n"
    );

    for (query, word) in [
        ("sort=size", "virtual_bytes"),
        ("limit=2001", "1 to 2000"),
        ("format=xml", "json, tsv or csv"),
        ("columns=vm", "tsv and csv"),
        ("format=tsv&columns=vm,size", "post_lc"),
        ("format=tsv&limit=5", "every row"),
        ("status=good", "expired"),
        ("since=tomorrow", "since"),
        ("run=x", "run id"),
        ("vm=%09", "control"),
        ("order=vm", "sort"),
    ] {
        let answer = get(query).await;
        assert_eq!((answer.status, answer.problem().as_str()), (400, "invalid"), "{query}");
        assert!(answer.text().contains(word), "{query}: {}", answer.text());
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_is_explained() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let listed = fixture.get(&token, "/api/v1/details?sort=started").await.ok();
    let items = listed["items"].as_array().unwrap();
    for item in items {
        let id = item["id"].as_str().unwrap();
        let row = fixture.get(&token, &format!("/api/v1/details/{id}")).await.ok();
        assert_eq!(row["vm"], item["vm"]);
        let sentences = row["explanation"]["sentences"].as_array().unwrap();
        assert!(!sentences.is_empty(), "{row}");
    }
    let aborted = items.iter().find(|item| item["status"] == "aborted").unwrap();
    assert_eq!(aborted["finding"]["kind"], "failed");
    assert!(aborted["finding"]["text"].as_str().unwrap().contains("test"), "{aborted}");
    for bad in ["nonsense", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAV-x"] {
        assert_eq!(
            fixture.get(&token, &format!("/api/v1/details/{bad}")).await.problem(),
            "invalid",
            "{bad}"
        );
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn totals_agree_with_the_rows() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let rows = fixture.admin().await.report("").await.unwrap();
    let bytes: u64 = rows.iter().map(|row| row.virtual_bytes).sum();
    let all = fixture.get(&token, "/api/v1/details/totals").await.ok();
    assert_eq!((&all["items"][0]["rows"], &all["items"][0]["failed"]), (&5.into(), &1.into()));
    assert_eq!(all["items"][0]["virtual_bytes"], bytes);
    for (by, groups) in [("run", 5), ("vm", 3), ("job", 2), ("disk", 3), ("namespace", 2), ("repository", 1)]
    {
        let found = fixture.get(&token, &format!("/api/v1/details/totals?by={by}")).await.ok();
        assert_eq!(found["total"], groups, "{by}");
        let sum: u64 =
            found["items"].as_array().unwrap().iter().map(|i| i["virtual_bytes"].as_u64().unwrap()).sum();
        assert_eq!(sum, bytes, "{by}");
    }
    let shown = fixture.get(&token, "/api/v1/details/totals?by=vm").await.ok();
    let text = fixture.get(&token, "/api/v1/details/totals?by=vm&format=tsv").await.text();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let column = |name| lines[0].iter().position(|column| *column == name).unwrap();
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (line, item) in lines[1..].iter().zip(shown["items"].as_array().unwrap()) {
        assert_eq!(line[column("vm")], item["vm"], "worst first, as shown");
        assert_eq!(line[column("post_lc")], item["post_lc"].to_string());
        assert_eq!(line[column("rows")], item["rows"].to_string());
    }
    let csv = fixture.get(&token, "/api/v1/details/totals?by=vm&format=csv").await.text();
    assert!(csv.contains(r#","files, and ""more""","#) && csv.lines().count() == 4, "{csv}");
    assert_eq!(fixture.get(&token, "/api/v1/details/totals?format=tsv&limit=1").await.problem(), "invalid");
    let runs = fixture.get(&token, "/api/v1/runs").await.ok();
    let started: Vec<_> =
        runs["items"].as_array().unwrap().iter().map(|run| run["started"].as_str().unwrap()).collect();
    assert!(started.is_sorted_by(|a, b| a >= b), "newest first: {started:?}");
    assert_eq!(fixture.get(&token, "/api/v1/details/totals?by=planet").await.problem(), "invalid");
    assert_eq!(fixture.get(&token, "/api/v1/runs?sort=error").await.problem(), "invalid");
    fixture.server.stop().await.unwrap();
}
