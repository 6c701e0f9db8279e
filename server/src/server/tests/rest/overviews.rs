//! Lists and overviews: VMs, disks, jobs, restore points, series, capacity.

use super::*;

async fn seeded() -> Fixture {
    let fixture = Fixture::start().await;
    fixture.catalog().ensure_namespace("berlin").unwrap();
    let admin = fixture.admin().await;
    for (namespace, vm) in [("", "web"), ("berlin", "my db"), ("", "web")] {
        admin.back_up(namespace, vm).await.unwrap();
    }
    fixture
}

#[tokio::test(flavor = "multi_thread")]
async fn vms_with_their_disks_and_restore_points() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let get = async |path: &str| fixture.get(&token, &format!("/api/v1{path}")).await.ok();
    let vms = get("/vms").await;
    assert_eq!(vms["total"], 2);
    let web = &vms["items"][1];
    assert_eq!((&web["vm"], &web["backups"], &web["disks"]), (&"web".into(), &2.into(), &1.into()));
    assert_eq!((&web["stale"], &web["last_status"]), (&false.into(), &"done".into()));
    assert_eq!(get("/vms?stale=true").await["total"], 0);
    assert_eq!(get("/vms?q=BERL").await["items"][0]["vm"], "my db");
    assert_eq!(get("/vms?sort=-backups&limit=1").await["items"][0]["vm"], "web");
    let one = get("/vms/berlin/my%20db").await;
    assert_eq!(one["disk_list"][0]["disk"], "root");
    assert_eq!(one["disk_list"][0]["size_bytes"], DISK_BYTES);
    assert_eq!(get("/disks?vm=web").await["total"], 1);
    assert_eq!(get("/jobs").await["total"], 2);
    assert_eq!(get("/namespaces").await["total"], 2);

    let backups = get("/backups?page_size=1").await;
    let next = backups["next_page_token"].as_str().unwrap();
    let newest = &backups["items"][0];
    assert_eq!(newest["vm"], "web");
    assert_eq!(newest["verify"], Value::Null);
    let second = get(&format!("/backups?page_size=1&page_token={next}")).await;
    let second = &second["items"][0];
    let id = second["id"].as_str().unwrap();
    assert_eq!(
        second["restore_commands"][0]["command"],
        format!("holdfast restore {id} --namespace berlin --vm 'my db' --disk root --to 'my db-root.raw'")
    );
    assert_eq!(get(&format!("/backups/{id}")).await, *second);
    assert_eq!(get("/backups?since=1h").await["items"].as_array().unwrap().len(), 3);
    assert_eq!(get("/backups?until=1h").await["items"].as_array().unwrap().len(), 0);
    let first = get("/backups?since=1h&page_size=1").await;
    let next = first["next_page_token"].as_str().unwrap();
    let rest = get(&format!("/backups?since=2h&page_token={next}")).await;
    assert_eq!(rest["items"].as_array().unwrap().len(), 2, "an hour ago is another time with every call");
    for (path, code) in [
        ("/vms/berlin/absent", "not-found"),
        ("/vms/absent/web", "not-found"),
        ("/backups/01ARZ3NDEKTSV4RRFFQ69G5FAV", "not-found"),
        ("/backups/latest", "invalid"),
        ("/vms?sort=size", "invalid"),
        ("/vms?stale=perhaps", "invalid"),
        ("/namespaces?x=1", "invalid"),
    ] {
        assert_eq!(fixture.get(&token, &format!("/api/v1{path}")).await.problem(), code, "{path}");
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn verifications_of_restore_points_are_shown() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let backups = fixture.get(&token, "/api/v1/backups").await.ok();
    let id = backups["items"][0]["id"].as_str().unwrap();
    let verification = holdfast_engine::catalog::Verification {
        backup: id.parse().unwrap(),
        at_ms: 1_700_000_000_000,
        who: "hv1".into(),
        by_agent: true,
        ok: false,
        detail: "a chunk is damaged".into(),
    };
    fixture.catalog().record_verification(&verification).unwrap();
    let shown = fixture.get(&token, &format!("/api/v1/backups/{id}")).await.ok();
    let expected = serde_json::json!(
        {
            "at": "2023-11-14T22:13:20.000Z", "by": "hv1", "by_agent": true, "ok": false,
            "detail": "a chunk is damaged"
        }
    );
    assert_eq!(shown["verify"], expected);
    assert_eq!(fixture.get(&token, "/api/v1/vms/default/web").await.ok()["verify"], expected);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn days_have_no_gaps_and_add_up() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let get = async |path: &str| fixture.get(&token, &format!("/api/v1{path}")).await;
    let series = get("/series").await.ok();
    let days = series["days"].as_array().unwrap();
    assert_eq!(days.len(), 90);
    let today = holdfast_proto::when::timestamp(SystemClock.now_ms());
    assert_eq!(days[89].as_str().unwrap(), &today[..10]);
    let group = &series["groups"][0];
    for column in
        ["pre_comp", "new_bytes", "post_lc", "meta_bytes", "stored", "protected", "failed", "total_factor"]
    {
        assert_eq!(group[column].as_array().unwrap().len(), 90, "{column}");
    }
    let rows = fixture.admin().await.report("").await.unwrap();
    let stored: u64 = rows.iter().map(|row| row.post_lc + row.meta_bytes).sum();
    assert_eq!(group["stored"][89], stored);
    let by_vm = get("/series?by=vm&since=6d").await.ok();
    assert_eq!(by_vm["days"].as_array().unwrap().len(), 7);
    assert_eq!(by_vm["groups"].as_array().unwrap().len(), 2);
    assert_eq!(get("/series?by=vm&top=1").await.ok()["groups"].as_array().unwrap().len(), 1);
    let future = get("/series?since=2020-01-01&until=2020-01-03").await.ok();
    assert_eq!(future["days"], serde_json::json!(["2020-01-01", "2020-01-02", "2020-01-03"]));
    for (query, word) in [
        ("since=2010-01-01", "400"),
        ("since=2020-01-02&until=2020-01-01", "400"),
        ("top=51", "50"),
        ("by=disk", "vm"),
    ] {
        let answer = get(&format!("/series?{query}")).await;
        assert_eq!(answer.problem(), "invalid");
        assert!(answer.text().contains(word), "{query}: {}", answer.text());
    }
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn capacity_totals_and_parts() {
    let fixture = seeded().await;
    let token = fixture.admin_token();
    let totals = fixture.get(&token, "/api/v1/totals").await.ok();
    assert_eq!((&totals["vms"], &totals["backups"]), (&2.into(), &3.into()));
    assert_eq!(totals["virtual_bytes"], 2 * DISK_BYTES);
    let windows: Vec<_> = totals["windows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|w| (w["window"].clone(), w["disks"].clone()))
        .collect();
    assert_eq!(windows, [("24h".into(), 3.into()), ("7d".into(), 3.into()), ("all".into(), 3.into())]);
    let capacity = fixture.get(&token, "/api/v1/capacity").await.ok();
    assert_eq!(capacity["forecast"]["state"], "too_early");
    assert!(capacity["total_bytes"].as_u64().unwrap() > capacity["free_bytes"].as_u64().unwrap());
    let storage = fixture.get(&token, "/api/v1/storage").await.ok();
    let stored: u64 =
        storage["containers"].as_array().unwrap().iter().map(|c| c["stored_bytes"].as_u64().unwrap()).sum();
    assert_eq!(stored, capacity["repository_bytes"]);
    assert_eq!(totals["stored_bytes"], stored);
    assert_eq!(storage["read_only_reason"], Value::Null);
    let statistics = fixture.get(&token, "/api/v1/storage/statistics").await.ok();
    let edges = statistics["region_factor"]["edges"].as_array().unwrap().len();
    assert_eq!(statistics["region_factor"]["regions"].as_array().unwrap().len(), edges);
    let server = fixture.get(&token, "/api/v1/server").await.ok();
    assert_eq!(server["fingerprint"], fixture.server.fingerprint);
    assert_eq!(server["grpc_address"], fixture.server.grpc_address.to_string());
    fixture.server.stop().await.unwrap();
}
