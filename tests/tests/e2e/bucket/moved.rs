//! Data that only old restore points need is moved to the bucket.

use std::fs;

use holdfast_bucket::Op;
use holdfast_tests::repository::{copy_folder, files};
use holdfast_tests::server::maintain;
use holdfast_tests::{Disk, Server, wait_for};

use super::{Site, stop};

/// Settings under which everything counts as old.
const MOVING: &str = "encryption = \"on\"\ns3_move_after_days = 0\ns3_move_until_free = 100\n";

fn reclaim(server: &Server) -> String {
    server.agent().run(&["reclaim"]).ok().said()
}

fn data_files(data_dir: &std::path::Path) -> usize {
    let all = files(&data_dir.join("blobs/containers"));
    all.iter().filter(|path| path.to_string_lossy().contains(".data")).count()
}

#[test]
fn old_data_leaves_the_disk_and_is_restored_from_the_bucket() {
    let site = Site::with(MOVING);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 7, 40 << 20);
    let agent = server.agent();
    agent.back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    assert!(data_files(&data_dir) > 0);

    let said = reclaim(&server);
    assert!(said.contains("in the bucket alone"), "{said}");
    assert_eq!(data_files(&data_dir), 0, "{said}");
    let status = site.status(&data_dir);
    assert!(status["moved_containers"].as_u64().unwrap() > 0, "{status}");

    // Backups, reclaim and the scrub go on without reading moved data.
    let read = site.bucket.count(Op::Get);
    agent.back_up("web", &[disk.arg()]);
    reclaim(&server);
    let scrub = agent.run(&["scrub"]).ok().said();
    assert!(scrub.contains("in the bucket alone"), "{scrub}");
    // The lease is read before anything is moved.
    assert!(site.bucket.count(Op::Get) - read <= 2, "{} reads", site.bucket.count(Op::Get) - read);
    assert_eq!(agent.read_back("web"), disk.bytes());
    assert!(site.bucket.count(Op::Get) - read > 2, "the data comes from there");
    stop(server);

    // The record is lost.
    for name in ["tiers.db", "tiers.db-wal", "tiers.db-shm"] {
        let _ = fs::remove_file(data_dir.join(name));
    }
    let lists = site.bucket.count(Op::List);
    let server = site.start(&data_dir);
    assert!(site.bucket.count(Op::List) > lists);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    // The record also had this server's identity in the lease.
    let old = wait_for("the lease to be seen", || {
        site.status(&data_dir)["other_writer"].as_str().map(ToOwned::to_owned)
    });
    let (status, said) = site.maintain(&data_dir, "tier", &["take-over", "--from", &old]);
    assert!(status.success(), "{said}");
    let backups = server.agent().backups("web");
    for backup in &backups {
        server.agent().run(&["delete", backup, "--yes"]).ok();
    }
    reclaim(&server);
    site.wait_up_to_date(&data_dir);
    assert_eq!(site.copies("containers").iter().filter(|key| key.contains(".data")).count(), 0);
    assert!(files(&data_dir.join("blobs/ends")).is_empty());
    stop(server);
}

#[test]
fn while_the_bucket_is_away_nothing_is_moved_and_only_what_was_is_missed() {
    let site = Site::with(MOVING);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let old = Disk::of_noise(site.path("old.raw"), 8, 8 << 20);
    let agent = server.agent();
    agent.back_up("old", &[old.arg()]);
    site.wait_up_to_date(&data_dir);
    reclaim(&server);
    assert_eq!(data_files(&data_dir), 0);
    let new = Disk::of_noise(site.path("new.raw"), 9, 8 << 20);
    agent.back_up("new", &[new.arg()]);
    site.wait_up_to_date(&data_dir);
    site.bucket.go_away();
    let said = reclaim(&server);
    assert!(said.contains("no more was moved"), "{said}");
    assert!(data_files(&data_dir) > 0);
    assert_eq!(agent.read_back("new"), new.bytes());
    let to = site.path("out");
    let refused =
        agent.run(&["restore", "latest", "--vm", "old", "--to", to.to_str().unwrap(), "--retry-for", "0s"]);
    assert!(!refused.succeeded(), "{}", refused.said());
    site.bucket.heal();
    assert_eq!(agent.read_back("old"), old.bytes());
    stop(server);
}

/// A copy of the volume without `blobs/ends`, as by a careless rsync: moved containers are missing without a trace.
#[test]
fn what_a_copied_volume_lacks_is_looked_for_in_the_bucket_before_it_is_called_lost() {
    let site = Site::with(MOVING);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 10, 12 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    reclaim(&server);
    stop(server);
    let [older, partly, copy] = ["older", "partly", "copy"].map(|name| site.path(name));
    copy_folder(&data_dir.join("blobs"), &older);
    fs::remove_dir_all(older.join("ends")).unwrap();
    let server = site.start(&data_dir);
    let late = Disk::of_noise(site.path("late.raw"), 11, 6 << 20);
    server.agent().back_up("late", &[late.arg()]);
    site.wait_up_to_date(&data_dir);
    stop(server);
    for to in [&partly, &copy] {
        copy_folder(&data_dir.join("blobs"), to);
    }
    fs::remove_dir_all(copy.join("ends")).unwrap();
    let [new, newer, without] = ["new", "newer", "without"].map(|name| {
        let folder = site.path(name);
        fs::create_dir(&folder).unwrap();
        fs::copy(site.path("repository/repository.key"), folder.join("repository.key")).unwrap();
        folder
    });
    fs::remove_file(data_dir.join("catalog.db")).unwrap();
    let from = ["--from", copy.to_str().unwrap()];

    // While the bucket cannot be asked, nothing is reported lost.
    site.bucket.go_away();
    let (status, said) = site.maintain(&new, "recover", &from);
    assert_eq!(status.code(), Some(9), "{said}");
    assert!(said.contains("that do not name s3") && !new.join("catalog.db").exists(), "{said}");
    site.bucket.heal();
    // A bucket of another repository says nothing about this one.
    let mark = site.bucket.object("site/repository").unwrap().bytes;
    stop(Server::start(&site.path("another")));
    site.bucket.replace("site/repository", fs::read(site.path("another/blobs/repository")).unwrap());
    let (status, said) = site.maintain(&new, "recover", &from);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("holds copies of repository"), "{said}");
    site.bucket.replace("site/repository", mark);
    assert!(
        !new.join("tiers.db").exists() && !new.join("blobs").exists(),
        "nothing is made of a wrong bucket"
    );
    // Containers of restore points that the copy lacks would be freed.
    let (status, said) = site.maintain(&newer, "recover", &["--from", older.to_str().unwrap()]);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("holds restore points that are not here (1; "), "{said}");
    // Without the bucket, containers known to be there would be reported lost.
    let (status, said) = maintain(&without, "recover", &["--from", partly.to_str().unwrap()]);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("set s3") && !without.join("catalog.db").exists(), "{said}");

    let (status, said) = site.maintain(&new, "recover", &from);
    assert!(status.success(), "{said}");
    assert!(
        said.contains("containers that the volume lacks") && said.contains("missing or damaged: 0"),
        "{said}"
    );
    let server = site.start(&new);
    assert_eq!(server.agent().read_back("web"), disk.bytes());
    assert_eq!(server.agent().read_back("late"), late.bytes());
    let verified = server.agent().run(&["verify", "--all"]).ok().said();
    assert!(verified.contains("Verified 2 restore points"), "{verified}");
    stop(server);
    // Even without the record and the bucket, it is known that containers were moved.
    for name in ["tiers.db", "tiers.db-wal", "tiers.db-shm"] {
        let _ = fs::remove_file(new.join(name));
    }
    let (status, said) = Server::options().try_start(&new).unwrap_err();
    assert!(!status.success() && said.contains("set s3"), "{said}");
}
