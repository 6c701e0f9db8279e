//! Objects that locked restore points need stay in a bucket with Object Lock: extended for newer ones, requested once,
//! found by the audit when too short, and restored when someone deleted them.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_bucket::{Op, Retention};
use holdfast_tests::disk::noise;
use holdfast_tests::repository::{files, give_to};
use holdfast_tests::web::get;
use holdfast_tests::{Disk, Server, tasks, wait_for};
use rustix::process::getuid;
use serde_json::{Value, json};

use super::{Site, stop};

const DAY_MS: u64 = 24 * 3600 * 1000;

/// A user id that is not in use.
const USER: u32 = 54_321;

const COMPLIANCE: &str = "encryption = \"on\"\ns3_object_lock = \"compliance\"\n";

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// Waits until everything that so many locked restore points need is retained.
fn wait_kept(site: &Site, data_dir: &Path, points: u64) -> Value {
    wait_for("the retention", || {
        let retention = site.status(data_dir)["retention"].clone();
        assert!(retention["failure"].is_null(), "{retention}");
        (retention["kept_points"] == points && retention["behind"] == 0).then_some(retention)
    })
}

/// End of the retention of each retained object.
fn retained(site: &Site) -> BTreeMap<String, u64> {
    let all = site.bucket.keys().into_iter();
    all.filter_map(|key| {
        let Retention { mode, until_ms } = site.bucket.retention(&key)?;
        assert_eq!((mode.as_str(), until_ms % DAY_MS), ("COMPLIANCE", 0), "{key}");
        Some((key, until_ms))
    })
    .collect()
}

fn lock(server: &Server, vm: &str, time: &str) {
    server.agent().run(&["lock", "latest", "--vm", vm, "--for", time, "--yes"]).ok();
}

fn of_kind<'a>(keys: impl IntoIterator<Item = &'a String>, kind: &str) -> usize {
    keys.into_iter().filter(|key| key.contains(kind)).count()
}

/// (T17) (T18)
#[test]
fn what_locked_points_need_stays_as_long_as_they_do() {
    let site = Site::locking(COMPLIANCE);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("web.raw"), 51, 3 << 20);
    let free = Disk::of_noise(site.path("free.raw"), 52, 3 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    server.agent().back_up("free", &[free.arg()]);
    let before_ms = now_ms();
    lock(&server, "web", "2d");
    wait_kept(&site, &data_dir, 1);
    let first = retained(&site);
    // A container of data and one of recipes, the point, the mark, and the newest table of keys.
    assert_eq!((of_kind(first.keys(), ".data"), of_kind(first.keys(), ".recipe")), (1, 1), "{first:?}");
    assert_eq!(of_kind(first.keys(), "/points/"), 1, "{first:?}");
    assert!(first.contains_key("site/repository") && of_kind(first.keys(), "/keys/") == 1, "{first:?}");
    for (key, until_ms) in &first {
        assert!((before_ms + 2 * DAY_MS..=now_ms() + 3 * DAY_MS).contains(until_ms), "{key}: {until_ms}");
    }
    assert_eq!(site.bucket.count(Op::Retain), 5);

    // A newer one extends the objects that both need.
    disk.put(0, &noise(54, 1 << 20));
    server.agent().back_up("web", &[disk.arg()]);
    lock(&server, "web", "9d");
    wait_kept(&site, &data_dir, 2);
    let second = retained(&site);
    let longer = |key: &&String| second[*key] > first[*key];
    let extended: Vec<&String> = first.keys().filter(longer).collect();
    assert_eq!(
        (of_kind(extended.iter().copied(), ".data"), of_kind(extended.iter().copied(), "/points/")),
        (1, 0),
        "{extended:?}"
    );
    assert!(extended.contains(&&"site/repository".to_owned()), "{extended:?}");
    assert!(first.iter().all(|(key, until_ms)| second[key] >= *until_ms), "nothing is shortened");
    assert!(second.values().any(|until_ms| *until_ms >= before_ms + 9 * DAY_MS));

    // A restarted server requests retention for new objects, and nothing twice.
    stop(server);
    let asked = site.bucket.count(Op::Retain);
    let server = site.start(&data_dir);
    lock(&server, "free", "1d");
    wait_kept(&site, &data_dir, 3);
    let third = retained(&site);
    let new = third.iter().filter(|(key, until_ms)| second.get(*key) != Some(until_ms)).count();
    assert_eq!(new, 3, "its containers and its point");
    assert_eq!(site.bucket.count(Op::Retain) - asked, 3);

    // A point that is sealed anew replaces one under retention, whose removal waits, and no other.
    lock(&server, "web", "20d");
    let status = wait_for("the removal to wait", || {
        let status = site.status(&data_dir);
        (status["retention"]["held"] == 1 && status["retention"]["kept_points"] == 3).then_some(status)
    });
    assert_eq!((&status["removals"], &status["server"]["failure"]), (&json!(1), &Value::Null), "{status}");
    assert_eq!(site.copies("points").len(), 4);
    let told = get(&server, "/api/v1/tiers", &server.admin_token()).json()["bucket"]["retention"].clone();
    assert_eq!((&told["mode"], &told["failure"]), (&json!("compliance"), &Value::Null), "{told}");
    let text = get(&server, "/metrics", &server.admin_token()).text();
    assert!(text.contains("holdfast_bucket_retained_objects"), "{text}");
    stop(server);
}

/// (T18)
#[test]
fn a_restore_point_that_cannot_be_read_now_ends_no_lock_of_others() {
    let site = Site::locking(COMPLIANCE);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    for (seed, vm) in [(61, "web"), (62, "free")] {
        let disk = Disk::of_noise(site.path(vm), seed, 3 << 20);
        server.agent().back_up(vm, &[disk.arg()]);
    }
    site.wait_up_to_date(&data_dir);
    stop(server);
    let containers = files(&data_dir.join("blobs/containers"));
    let recipe = containers.iter().find(|path| path.to_string_lossy().contains(".recipe")).unwrap();
    // Root may read everything.
    let mut options = Server::options().args(&["--config", site.config.to_str().unwrap()]);
    if getuid().is_root() {
        give_to(site.folder.path(), USER);
        options = options.user(USER);
    }
    fs::set_permissions(recipe, Permissions::from_mode(0o0)).unwrap();

    let server = options.start(&data_dir);
    lock(&server, "web", "2d");
    lock(&server, "free", "2d");
    wait_for("the other restore point", || {
        let retention = site.status(&data_dir)["retention"].clone();
        (!retention["failure"].is_null() && retention["kept_points"] == 1).then_some(())
    });
    fs::set_permissions(recipe, Permissions::from_mode(0o600)).unwrap();
    wait_for("both", || (site.status(&data_dir)["retention"]["kept_points"] == 2).then_some(()));
    stop(server);
}

fn audit(server: &Server) -> (Value, Vec<String>) {
    let task = tasks::run(server, "audit", &json!({}));
    let log =
        task["log"].as_array().unwrap().iter().map(|line| tasks::text(line, "text").to_owned()).collect();
    (task["figures"].clone(), log)
}

/// (T19) Objects whose retention someone with more rights shortened, or that they deleted, are found, repaired, and
/// named with their restore points.
#[test]
fn the_audit_finds_what_does_not_stay_and_brings_back_what_was_deleted() {
    let site = Site::locking(COMPLIANCE);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let mut keys = Vec::new();
    for (seed, vm) in (60..).zip(["short", "gone"]) {
        let disk = Disk::of_noise(site.path(&format!("{vm}.raw")), seed, 3 << 20);
        server.agent().back_up(vm, &[disk.arg()]);
        lock(&server, vm, "3d");
        site.wait_up_to_date(&data_dir);
        keys = site.copies("containers");
        keys.retain(|key| key.contains(".data"));
    }
    wait_kept(&site, &data_dir, 2);
    let [short, gone] = keys.as_slice() else { panic!("{keys:?}") };
    let before = retained(&site);
    audit(&server);
    site.bucket.set_retention(short, None);
    site.bucket.delete(gone);
    assert!(site.bucket.object(gone).is_none());
    let (figures, log) = audit(&server);
    for (key, vm, what) in
        [(short, "short", "made to stay again"), (gone, "gone", "lay below, and is there again")]
    {
        let name = key.strip_prefix("site/").unwrap();
        let line =
            log.iter().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in {log:#?}"));
        assert!(line.contains(what) && line.contains(&format!("VM {vm:?}")), "{line}");
    }
    assert_eq!((&figures["short_retention"], &figures["brought_back"]), (&json!(1), &json!(1)), "{figures}");
    assert_eq!((&figures["lost"], &figures["copied_again"]), (&json!(0), &json!(0)), "{figures}");
    assert_eq!(retained(&site), before);
    let (figures, _) = audit(&server);
    assert_eq!((&figures["short_retention"], &figures["missing"]), (&json!(0), &json!(0)), "{figures}");
    stop(server);
}

/// Copies go on; and the message says what to do.
#[test]
fn a_bucket_without_object_lock_says_what_to_do() {
    let site = Site::with(COMPLIANCE);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("web.raw"), 71, 1 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    lock(&server, "web", "2d");
    let failure = wait_for("the failure to be told", || {
        site.status(&data_dir)["retention"]["failure"].as_str().map(ToString::to_string)
    });
    assert!(failure.contains("put-object-lock-configuration"), "{failure}");
    assert!(failure.contains("s3_object_lock = \"off\""), "{failure}");
    site.wait_up_to_date(&data_dir);
    assert_eq!(site.status(&data_dir)["retention"]["kept_points"], 0);
    stop(server);
}

/// Removed blobs are deleted for good after their retention, without a request by anyone.
#[test]
fn what_is_kept_too_long_goes_when_it_may() {
    let site = Site::locking(COMPLIANCE);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("web.raw"), 81, 1 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    lock(&server, "web", "1d");
    wait_kept(&site, &data_dir, 1);
    lock(&server, "web", "30d");
    wait_for("the removal to wait", || (site.status(&data_dir)["retention"]["held"] == 1).then_some(()));
    stop(server);
    // The bucket's clock decides; the server's retry time in the record is set back to simulate the passing of time.
    site.bucket.set_ahead(Duration::from_secs(3 * 24 * 3600));
    let record = rusqlite::Connection::open(data_dir.join("tiers.db")).unwrap();
    record.execute("UPDATE held SET again_ms = 0", []).unwrap();
    drop(record);
    let server = site.start(&data_dir);
    site.wait_up_to_date(&data_dir);
    assert_eq!(site.copies("points").len(), 1);
    stop(server);
}
