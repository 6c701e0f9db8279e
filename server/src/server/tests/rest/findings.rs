//! Findings against three weeks of history, over HTTP.

use std::sync::Arc;

use holdfast_catalog::testing::fixture::{self, done, numbers, row};
use holdfast_engine::catalog::{Attempt, DetailRow};
use holdfast_engine::clock::ManualClock;
use holdfast_engine::ids::{BackupId, ContainerClass};

use super::*;
use crate::findings;

const GIB: u64 = 1 << 30;
const DAY_MS: i64 = 86_400_000;

/// Three weeks of four VMs of 10 GiB, with 1 GiB new a night that compresses 2×. Last night that of three did not, and one was
/// encrypted.
async fn three_weeks() -> Fixture {
    let server = Fixture::start().await;
    let clock = Arc::new(ManualClock::new(SystemClock.now_ms() - 22 * DAY_MS));
    let catalog = fixture::Fixture::of(Arc::clone(server.server.app().engine.catalog()), Arc::clone(&clock));
    for night in 0..=21 {
        clock.advance_ms(DAY_MS - 4000);
        let run = catalog.attempt("any", "nightly").run;
        for vm in ["web1", "web2", "web3", "db"] {
            let attempt = Attempt { run, ..catalog.attempt(vm, "nightly") };
            let (new_bytes, post_lc) = match (night, vm) {
                (0, _) => (10 * GIB, 5 * GIB),
                (21, "db") => (8 * GIB, 8 * GIB),
                (21, _) => (GIB, GIB),
                _ => (GIB, GIB / 2),
            };
            let unchanged_bytes = 10 * GIB - new_bytes;
            let disk = numbers(DetailRow { unchanged_bytes, new_bytes, post_lc, ..row(&attempt, "sda") });
            let empty = numbers(row(&attempt, "sdb"));
            let containers = vec![catalog.sealed(&attempt, ContainerClass::Data, post_lc)];
            let commit = done(attempt, BackupId(catalog.ulid()), vec![empty, disk], containers);
            catalog.commit_backup(&commit).unwrap();
            findings::note(server.catalog(), commit.attempt.session);
        }
    }
    server
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worst_are_told_first_and_mark_their_rows() {
    let fixture = three_weeks().await;
    let token = fixture.admin_token();
    let get = async |path: &str| fixture.get(&token, &format!("/api/v1/{path}")).await.ok();
    let found = get("findings?finished_since=7d").await;
    let texts: Vec<&str> =
        found["items"].as_array().unwrap().iter().map(|item| item["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(texts[0].starts_with("nightly/db: 20.0× → 1.2×, 7.50 GiB more than usual, since "), "{texts:?}");
    let together = "nightly: 3 VMs, 20.0× → 10.0×, 1.50 GiB more than usual, since ";
    assert!(texts[1].starts_with(together), "{texts:?}");
    let worst = &found["items"][0];
    assert_eq!((&worst["kind"], &worst["vm"]), (&"incompressible".into(), &"db".into()));
    assert_eq!((&worst["runs"], &worst["more_bytes"]), (&1.into(), &(7 * GIB + GIB / 2).into()));
    assert!(worst["cause"].as_str().unwrap().contains("1.0× instead of 2.0×"), "{worst}");

    let all = get("findings").await;
    assert_eq!((&all["total"], &all["items"][2]["kind"]), (&3.into(), &"first_full".into()));
    assert!(all["items"][2]["text"].as_str().unwrap().contains("first backups of 4 VMs"), "{all}");
    assert_eq!(get("findings?limit=1").await["items"].as_array().unwrap().len(), 1);
    assert_eq!(get("findings?job=hourly").await["total"], 0);

    let rows = get("details?vm=db&sort=-started&limit=4").await;
    let marked: Vec<_> =
        rows["items"].as_array().unwrap().iter().map(|row| &row["finding"]["kind"]).collect();
    assert_eq!(marked.iter().filter(|kind| ***kind == "incompressible").count(), 1, "{marked:?}");
    let row = rows["items"].as_array().unwrap().iter().find(|row| !row["finding"].is_null()).unwrap();
    assert_eq!((&row["disk"], &row["finding"]["text"]), (&"sda".into(), &texts[0].into()));
    let explained = get(&format!("details/{}", row["id"].as_str().unwrap())).await;
    let sentences = explained["explanation"]["sentences"].as_array().unwrap();
    assert_eq!(sentences[0], format!("{}.", texts[0]));
    assert_eq!(explained["explanation"]["usual"]["new_bytes"], GIB);

    let metrics = fixture.get(&token, "/metrics").await.text();
    let line = "holdfast_job_dedupe_regression{namespace=\"default\",backup_job=\"nightly\"} 16.";
    assert!(metrics.contains(line), "{metrics}");
    fixture.server.stop().await.unwrap();
}
