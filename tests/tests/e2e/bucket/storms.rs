//! Failures for each way to use a bucket: outages during a backup, mass refusals, wrong clocks.

use std::path::Path;

use holdfast_bucket::{Fault, Op};
use holdfast_tests::proxy::Proxy;
use holdfast_tests::{Disk, Server, wait_for};

use super::{Site, copied, stop};

const COPY: &str = "encryption = \"on\"\n";
const MOVE: &str = "encryption = \"on\"\ns3_move_after_days = 0\ns3_move_until_free = 100\n";
const PRIMARY: &str = "encryption = \"on\"\ns3_primary = true\ns3_move_until_free = 100\n";
const ARCHIVE: &str =
    "encryption = \"on\"\ns3_move_after_days = 0\ns3_move_until_free = 100\ns3_archive_after_days = 0\n";

/// More requests than any test makes.
const MANY: usize = usize::MAX;

fn wait_for_copies(site: &Site, data_dir: &Path) {
    wait_for("all copies", || {
        let keys = site.bucket.keys();
        copied(data_dir).iter().all(|name| keys.contains(&format!("site/{name}"))).then_some(())
    });
}

/// The bucket becomes unreachable in the middle of a backup, which still ends here; if it counts only once the bucket
/// has it, its agent waits. Earlier data can be restored, except what only the bucket has.
#[test]
fn an_outage_in_mid_backup_costs_time_in_every_mode() {
    for settings in [COPY, MOVE, PRIMARY, ARCHIVE] {
        let site = Site::with(settings);
        let data_dir = site.path("repository");
        let server = site.start(&data_dir);
        let old = Disk::of_noise(site.path("old.raw"), 41, 4 << 20);
        server.agent().back_up("old", &[old.arg()]);
        site.wait_up_to_date(&data_dir);
        let disk = Disk::of_noise(site.path("disk.raw"), 42, 72 << 20);
        // More than a container, and less than the disk.
        let wire = Proxy::holding(server.grpc(), 56 << 20);
        let before = site.copies("containers").len();
        let mut run = server.agent().through(wire.address()).start(&["backup", "--vm", "web", disk.arg()]);
        wait_for("the first containers to be copied", || {
            (site.copies("containers").len() > before).then_some(())
        });
        site.bucket.go_away();
        wire.release();
        wait_for("the restore point", || (server.agent().backups("web").len() == 1).then_some(()));
        assert_eq!(server.agent().read_back("web"), disk.bytes(), "{settings}");
        // Nothing is removed from the disk meanwhile.
        server.agent().run(&["reclaim"]);
        assert_eq!(server.agent().read_back("web"), disk.bytes(), "{settings}");
        assert_eq!(server.agent().read_back("old"), old.bytes(), "{settings}");
        if settings == PRIMARY {
            assert!(run.runs(), "it is not acknowledged");
        }
        assert_eq!(site.copies("points").len(), 1, "{settings}");
        site.bucket.heal();
        run.wait().ok();
        wait_for_copies(&site, &data_dir);
        stop(server);
        site.assert_same(&data_dir);
    }
}

/// Mass refusals of all requests: copies, removals and reads of data that only the bucket has get slower, and nothing
/// else.
#[test]
fn a_storm_of_refusals_costs_time() {
    let site = Site::with(MOVE);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 43, 24 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    server.agent().run(&["reclaim"]).ok();
    assert!(copied(&data_dir).iter().all(|name| !name.contains(".data")), "{:?}", copied(&data_dir));
    // The next requests, two for each.
    let storm = |times: usize| {
        for _ in 0..times {
            site.bucket.fail(Op::Any, "", 2, Fault::Refuse(503, "SlowDown"));
        }
    };
    storm(1);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    let first = server.agent().backups("web").remove(0);
    storm(4);
    disk.put(3 << 20, b"changed in the storm");
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_for_points(2);
    storm(4);
    server.agent().run(&["delete", &first, "--yes"]).ok();
    site.wait_up_to_date(&data_dir);
    assert_eq!(site.copies("points").len(), 1);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    stop(server);
    site.assert_same(&data_dir);
}

/// The object store refuses requests signed a day too early or too late: the message says so, and copying
/// resumes by itself.
#[test]
fn a_clock_that_is_off_by_a_day_is_explained() {
    for settings in [COPY, PRIMARY] {
        let site = Site::with(settings);
        let data_dir = site.path("repository");
        let server = site.start(&data_dir);
        site.bucket.fail(Op::Any, "", MANY, Fault::Refuse(403, "RequestTimeTooSkewed"));
        let disk = Disk::of_noise(site.path("disk.raw"), 44, 4 << 20);
        let run = server.agent().start(&["backup", "--vm", "web", disk.arg()]);
        // A refused HEAD has no body that says why: then the rights are named first.
        site.wait_for_failure(&data_dir, "clock of this machine");
        wait_for("the restore point", || (server.agent().backups("web").len() == 1).then_some(()));
        assert_eq!(server.agent().read_back("web"), disk.bytes());
        site.bucket.heal();
        run.wait().ok();
        site.wait_up_to_date(&data_dir);
        stop(server);
        site.assert_same(&data_dir);
    }
}

/// Two servers of one repository, such as a clone of a machine, start at the same moment: one of them gets the bucket.
#[test]
fn of_two_that_start_at_once_one_writes() {
    let site = Site::with(COPY);
    let (first, second) = (site.path("first"), site.path("second"));
    let disk = Disk::of_noise(site.path("disk.raw"), 45, 4 << 20);
    let alone = site.path("alone.toml");
    std::fs::write(&alone, COPY).unwrap();
    let server = Server::options().args(&["--config", alone.to_str().unwrap()]).start(&first);
    server.agent().back_up("web", &[disk.arg()]);
    stop(server);
    let copy = std::process::Command::new("cp").arg("-a").args([&first, &second]).status().unwrap();
    assert!(copy.success());
    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(|| site.start(&first));
        let b = scope.spawn(|| site.start(&second));
        (a.join().unwrap(), b.join().unwrap())
    });
    let failure = |folder: &Path| {
        site.status(folder)["server"]["failure"].as_str().is_some_and(|text| text.contains("one writer"))
    };
    let refused = wait_for("one of them to be refused", || {
        [&first, &second].into_iter().position(|folder| failure(folder))
    });
    let (winner, other) = if refused == 0 { (&second, &first) } else { (&first, &second) };
    site.wait_up_to_date(winner);
    assert!(!failure(winner) && failure(other));
    // Both work locally.
    for server in [&a, &b] {
        assert_eq!(server.agent().read_back("web"), disk.bytes());
    }
    let servers: std::collections::BTreeSet<String> = site
        .bucket
        .keys()
        .iter()
        .filter_map(|key| site.bucket.object(key).unwrap().metadata.get("holdfast-writer").cloned())
        .collect();
    assert_eq!(servers.len(), 1, "{servers:?}");
    stop(a);
    stop(b);
}
