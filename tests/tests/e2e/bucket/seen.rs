//! Reported figures of the bucket match its contents.

use holdfast_bucket::{BUCKET, Op};
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, wait_for};
use serde_json::Value;

use super::{Site, stop};

fn tiers(server: &Server) -> Value {
    let token = std::fs::read_to_string(server.data_dir().join("admin.token")).unwrap();
    let answer = get(server, "/api/v1/tiers", token.trim());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["bucket"].clone()
}

fn place<'a>(bucket: &'a Value, kind: &str) -> &'a Value {
    bucket["places"].as_array().unwrap().iter().find(|place| place["kind"] == kind).unwrap()
}

/// Blobs and bytes of a kind in the bucket.
fn held(site: &Site, kind: &str) -> (usize, usize) {
    let keys = site.copies(kind);
    let bytes = keys.iter().map(|key| site.bucket.object(key).unwrap().bytes.len()).sum();
    (keys.len(), bytes)
}

#[test]
fn what_lies_there_and_what_was_asked_is_told_exactly() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 31, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(1);
    site.wait_up_to_date(&data_dir);
    // The result is cached for a moment.
    let bucket = wait_for("the figures of now", || {
        let bucket = tiers(&server);
        let is_there = |kind: &str| {
            let (place, (blobs, bytes)) = (place(&bucket, kind), held(&site, kind));
            place["both"]["blobs"] == blobs && place["both"]["bytes"] == bytes && place["local"]["blobs"] == 0
        };
        ["containers", "points", "keys"].into_iter().all(is_there).then_some(bucket)
    });
    assert_eq!(place(&bucket, "containers")["bucket"]["blobs"], 0);
    assert_eq!((&bucket["mode"], &bucket["configured"]), (&"copy".into(), &true.into()));
    assert!(bucket["location"].as_str().unwrap().starts_with(&format!("s3://{BUCKET}/site")));
    assert!(bucket["failure"].is_null() && bucket["writer"]["other"].is_null(), "{bucket}");
    assert!(bucket["writer"]["own"]["name"].as_str().unwrap().ends_with("repository"), "{bucket}");
    assert_eq!(bucket["prices"]["applies"], false, "it is not Amazon's");
    assert!(bucket["month"]["cost"]["sum"].as_f64().unwrap() > 0.0, "{bucket}");
    assert!(bucket["month"]["forecast"].is_null(), "of less than a day");
    // Nothing is requested while nothing changes.
    let counted = wait_for("the requests to be counted", || {
        let counted = tiers(&server)["requests"].clone();
        (counted["put"] == site.bucket.count(Op::Put)).then_some(counted)
    });
    assert_eq!(counted["list"], site.bucket.count(Op::List) + site.bucket.count(Op::Parts));
    assert_eq!(tiers(&server)["month"]["requests"]["put"], counted["put"]);
    stop(server);

    // The month continues, the server's own count starts over.
    let server = site.start(&data_dir);
    disk.put(0, b"changed");
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(2);
    site.wait_up_to_date(&data_dir);
    let (month, own) = wait_for("the requests to be counted", || {
        let bucket = tiers(&server);
        let (month, own) = (bucket["month"]["requests"]["put"].clone(), bucket["requests"]["put"].clone());
        (month == site.bucket.count(Op::Put)).then_some((month, own))
    });
    assert!(own.as_u64() < month.as_u64() && own.as_u64() > Some(0), "{own} of {month}");
    assert_eq!(site.status(&data_dir)["month"]["requests"]["put"], month);
    // The result is cached for a moment here as well.
    let token = std::fs::read_to_string(data_dir.join("admin.token")).unwrap();
    let line = format!("holdfast_bucket_stored_blobs{{kind=\"points\"}} {}", held(&site, "points").0);
    wait_for("the metrics of now", || {
        get(&server, "/metrics", token.trim()).text().contains(&line).then_some(())
    });
    stop(server);
}

#[test]
fn without_a_bucket_there_is_none_to_tell_of() {
    let site = Site::new();
    let server = Server::start(&site.path("repository"));
    assert_eq!(tiers(&server), Value::Null);
    stop(server);
}
