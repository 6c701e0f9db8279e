//! Corrupted answers of the bucket: an answer that fails its check is read once more, and nothing is reported as
//! damaged.

use holdfast_bucket::{Fault, Op};
use holdfast_tests::{Disk, Server};

use super::{Site, stop};

/// Settings under which only the bucket has the data.
const MOVING: &str = "s3_move_after_days = 0\ns3_move_until_free = 100\n";

/// From now on the first answer for each object is altered.
fn alter(site: &Site) {
    for part in ["/containers/", "/points/", "/keys/", "/snapshots/"] {
        site.bucket.fail(Op::Get, part, usize::MAX, Fault::Flip);
    }
}

fn assert_sound(server: &Server, disk: &Disk) {
    let agent = server.agent();
    assert_eq!(agent.read_back("web"), disk.bytes());
    agent.run(&["verify", "--at-server"]).ok();
    let listed = agent.run(&["list"]).ok().said();
    assert!(!listed.to_lowercase().contains("damage"), "{listed}");
}

/// `settings`: of the repository.
fn try_with(settings: &str) {
    let site = Site::with(&format!("{settings}{MOVING}"));
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    // More than a piece that a recovery copies at a time.
    let disk = Disk::of_noise(site.path("disk.raw"), 41, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    server.agent().run(&["reclaim"]).ok();
    alter(&site);
    assert_sound(&server, &disk);
    site.bucket.heal();
    stop(server);
}

#[test]
fn a_restore_from_the_bucket_reads_what_arrived_altered_once_more() {
    try_with("s3_plain = true\n");
}

#[test]
fn an_encrypted_restore_from_the_bucket_reads_what_arrived_altered_once_more() {
    try_with("encryption = \"on\"\n");
}

#[test]
fn a_server_is_made_of_answers_that_arrive_altered() {
    let site = Site::plain();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 43, 40 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    stop(server);
    alter(&site);
    let new = site.path("new");
    let from = format!("s3://{}/site", holdfast_bucket::BUCKET);
    let (status, said) = site.maintain(&new, "recover", &["--from", &from]);
    assert!(status.success() && said.contains("newly found missing or damaged: 0"), "{said}");
    let server = site.start(&new);
    assert_sound(&server, &disk);
    stop(server);
}
