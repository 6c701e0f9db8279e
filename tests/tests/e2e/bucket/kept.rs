//! Containers kept out of the archive, because they will be deleted before that pays off; and thawed copies kept here.

use std::fs;
use std::path::Path;

use holdfast_bucket::Op;
use holdfast_tests::repository::files;
use holdfast_tests::tools::skip;
use holdfast_tests::web::get;
use holdfast_tests::{Disk, wait_for};
use serde_json::Value;

use super::{Site, stop};

const ARCHIVING: &str = "encryption = \"on\"\ns3_move_after_days = 0\ns3_move_until_free = 100\ns3_archive_after_days = 0\n\
                         s3_archive_class = \"DEEP_ARCHIVE\"\n";

const PRICES: &str = r#"
region = "nowhere"
as_of = "2026-11"
copy_gb_month = "0"
get_per_1000 = "0"
internet_gb = "0"
thaw = {}
minimum_days = { DEEP_ARCHIVE = 0 }
"#;

/// Numbers of data containers in the archive and outside of it.
fn containers(site: &Site) -> (usize, usize) {
    let data = site.copies("containers").into_iter().filter(|key| key.contains(".data"));
    let is_cold = |key: &String| site.bucket.object(key).unwrap().class.as_deref() == Some("DEEP_ARCHIVE");
    let (cold, warm): (Vec<String>, Vec<String>) = data.partition(is_cold);
    (cold.len(), warm.len())
}

/// Data that a policy will delete within the 180 days billed for the class is not archived, and its sum is reported.
#[test]
fn what_will_be_deleted_soon_stays_out_of_the_archive() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    for (seed, vm) in [(51, "years"), (52, "days")] {
        let disk = Disk::of_noise(site.path(vm), seed, 4 << 20);
        server.agent().back_up(vm, &[disk.arg()]);
    }
    let policy = ["policy", "set", "short", "--vm", "days", "--keep-last", "7", "--schedule", "@yearly"];
    server.agent().run(&policy).ok();
    site.wait_up_to_date(&data_dir);
    server.agent().run(&["reclaim"]).ok();
    assert_eq!(containers(&site), (1, 1));
    let status = site.status(&data_dir);
    let kept: &Value = &status["kept_back"];
    assert_eq!((kept["containers"].as_u64(), kept["minimum_days"].as_u64()), (Some(1), Some(180)));
    assert!(kept["bytes"].as_u64().unwrap() >= 4 << 20, "{kept}");
    let told = get(&server, "/api/v1/tiers", &server.admin_token()).json();
    assert_eq!(told["bucket"]["kept_back"]["containers"], 1, "{told}");
    stop(server);
    // Where no minimum duration is billed, all of it is archived.
    fs::write(site.path("prices.toml"), PRICES).unwrap();
    site.configure(&format!("{ARCHIVING}s3_prices = {:?}\n", site.path("prices.toml")));
    let server = site.start(&data_dir);
    server.agent().run(&["reclaim"]).ok();
    assert_eq!(containers(&site), (2, 0));
    assert_eq!(site.status(&data_dir)["kept_back"]["containers"], 0);
    stop(server);
}

/// Returns true if the volume is too full to keep thawed copies beside backups.
fn is_nearly_full(folder: &Path) -> bool {
    let space = rustix::fs::statvfs(folder).unwrap();
    space.f_bavail * 100 < space.f_blocks * 12
}

/// Two restores in a week pay once: the second one reads the copies kept by the first, also after a restart, and after
/// the thawed copies in the bucket have expired.
#[test]
fn what_was_thawed_is_kept_for_the_next_restore() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    if is_nearly_full(&site.path("")) {
        return skip("less than a tenth of the volume is free");
    }
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 53, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    server.agent().run(&["reclaim"]).ok();
    let objects = containers(&site).0;
    let out = site.path("out.raw");
    let restore = ["restore", "latest", "--vm", "web", "--to", out.to_str().unwrap()];
    let thaw = [&restore[..], &["--thaw", "bulk", "--yes"]].concat();
    server.agent().run(&[&thaw[..], &["--no-wait"]].concat()).ok();
    wait_for("the requests", || (site.bucket.thaws().len() == objects).then_some(()));
    site.bucket.finish_thaws("");
    server.agent().run(&thaw).ok();
    assert!(fs::read(&out).unwrap() == disk.bytes());
    assert_eq!(files(&data_dir.join("thawed/containers")).len(), objects);
    site.bucket.end_thaws();
    stop(server);

    let server = site.start(&data_dir);
    let (gets, thaws) = (site.bucket.requests(Op::Get, ".data"), site.bucket.count(Op::Restore));
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    assert_eq!((site.bucket.requests(Op::Get, ".data"), site.bucket.count(Op::Restore)), (gets, thaws));
    assert_eq!(site.wait_up_to_date(&data_dir)["server"]["thawed_containers"], objects as u64);
    // No backup counts on it.
    server.agent().back_up("db", &[disk.arg()]);
    stop(server);
    fs::remove_dir_all(data_dir.join("thawed")).unwrap();
    let server = site.start(&data_dir);
    assert_eq!(server.agent().read_back("db"), disk.bytes());
    // Copies beyond a reduced limit are removed.
    stop(server);
    site.configure(&format!("{ARCHIVING}s3_thaw_cache = 0\n"));
    let server = site.start(&data_dir);
    assert!(files(&data_dir.join("thawed/containers")).is_empty());
    stop(server);
}
