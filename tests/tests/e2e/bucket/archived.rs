//! Archived data: nothing reads it by accident, a restore first says what thawing costs, and thawed data equals the
//! original.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use holdfast_bucket::{Fault, Op};
use holdfast_tests::repository::files;
use holdfast_tests::{Disk, Server, wait_for};
use serde_json::Value;

use super::{Site, stop};

/// Settings under which everything counts as old.
pub(super) const ARCHIVING: &str = "encryption = \"on\"\ns3_move_after_days = 0\ns3_move_until_free = 100\ns3_archive_after_days = 0\n\
                         s3_archive_class = \"DEEP_ARCHIVE\"\n";

fn reclaim(server: &Server) -> String {
    server.agent().run(&["reclaim"]).ok().said()
}

/// A backup of a disk of noise, with all of its data archived.
pub(super) fn archived(site: &Site, data_dir: &Path) -> (Server, Disk) {
    let server = site.start(data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 21, 72 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(data_dir);
    let said = reclaim(&server);
    assert!(said.contains("to the archive"), "{said}");
    (server, disk)
}

fn class(site: &Site, key: &str) -> Option<String> {
    site.bucket.object(key).unwrap().class
}

/// Keys of data containers.
pub(super) fn data(site: &Site) -> Vec<String> {
    site.copies("containers").into_iter().filter(|key| key.contains(".data")).collect()
}

/// Parses a number between two texts of an output.
fn figure(said: &str, after: &str, before: &str) -> u64 {
    let from = said.split_once(after).unwrap_or_else(|| panic!("{after:?} is not in {said}")).1;
    let text = from.split(before).next().unwrap();
    let digits = text.rsplit(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
    digits.unwrap_or_else(|| panic!("no number before {before:?} in {said}")).parse().unwrap()
}

const RESTORE: [&str; 4] = ["restore", "latest", "--vm", "web"];

/// Checks that every object is counted in its storage class.
fn is_counted_by_class(site: &Site, status: &Value) {
    for class in status["classes"].as_array().unwrap() {
        let in_class = |key: &String| {
            let object = site.bucket.object(key).unwrap();
            let of = object.class.unwrap_or_else(|| "STANDARD".to_owned());
            (of == class["class"] && !key.ends_with("/lease")).then_some(object.bytes.len())
        };
        let lengths: Vec<usize> = site.bucket.keys().iter().filter_map(in_class).collect();
        assert_eq!(
            (&class["blobs"], &class["bytes"]),
            (&lengths.len().into(), &lengths.iter().sum::<usize>().into()),
            "{class}"
        );
    }
    assert_eq!(status["classes"].as_array().unwrap().len(), 2, "{status}");
}

/// Checks that the month includes the thaws, by the prices of the quote: requests, retrieval, and copies for 3 days.
fn is_in_the_month(site: &Site, data_dir: &Path, objects: u64, asked: u64) {
    let month = wait_for("the month to be written down", || {
        let month = site.status(data_dir)["month"].clone();
        (month["thaws"][0]["objects"] == objects).then_some(month)
    });
    let thawed = &month["thaws"][0];
    assert_eq!((&thawed["class"], &thawed["speed"]), (&"DEEP_ARCHIVE".into(), &"bulk".into()));
    assert_eq!(thawed["bytes"], asked);
    assert_eq!(month["class_changes"]["DEEP_ARCHIVE"], data(site).len());
    assert_eq!(month["dollars_thawing"], thawed["dollars"]);
    let gb = asked as f64 / f64::from(1 << 30);
    let expected = objects as f64 * 0.000_025 + gb * (0.0025 + 0.023 * 3.0 / 30.0);
    assert!((thawed["dollars"].as_f64().unwrap() - expected).abs() < 1e-7, "{expected} in {month}");
}

#[test]
fn what_is_archived_is_quoted_thawed_and_restored() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let (server, disk) = archived(&site, &data_dir);
    // (T10) Only data is cold, with its ends beside it.
    for key in site.bucket.keys() {
        let is_cold = class(&site, &key).as_deref() == Some("DEEP_ARCHIVE");
        assert_eq!(is_cold, key.starts_with("site/containers/") && key.contains(".data"), "{key}");
    }
    for key in data(&site) {
        assert!(site.bucket.object(&key.replacen("site/", "site/ends/", 1)).is_some(), "{key}");
    }

    is_counted_by_class(&site, &site.status(&data_dir));

    // Refused, with a quote, and without a request.
    let (out, agent) = (site.path("out.raw"), server.agent());
    let to = ["--to", out.to_str().unwrap()];
    let refused = agent.run(&[&RESTORE[..], &to].concat());
    let said = refused.said();
    assert_eq!(refused.code, Some(10), "{said}");
    assert!(said.contains("bulk       within 48 hours") && said.contains("--thaw bulk --yes"), "{said}");
    assert!(!out.exists() && site.bucket.count(Op::Restore) == 0, "{said}");
    let (objects, bytes) = (figure(&said, "To thaw: ", " objects"), figure(&said, "To thaw: ", " bytes"));
    let refused = agent.run(&[&RESTORE[..], &to, &["--thaw", "expedited", "--yes"]].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.said());

    // Upkeep goes on; nothing requests cold objects, and nothing is reported as damaged.
    let gets = site.bucket.requests(Op::Get, ".data");
    reclaim(&server);
    agent.run(&["scrub"]).ok();
    let verified = agent.run(&["verify", "--at-server"]).ok().said();
    assert!(verified.contains("archive"), "{verified}");
    let verified = agent.run(&["verify", "latest", "--vm", "web"]);
    assert_eq!(verified.code, Some(10), "{}", verified.said());
    assert_eq!(site.bucket.requests(Op::Get, ".data"), gets);

    // Requested once, even if another restore asks again, and whatever happens to the server.
    let thaw = [&RESTORE[..], &to, &["--thaw", "bulk", "--yes"]].concat();
    agent.run(&[&thaw[..], &["--thaw-days", "3", "--no-wait"]].concat()).ok();
    wait_for("the requests", || (site.bucket.thaws().len() as u64 == objects).then_some(()));
    for (key, thaw) in site.bucket.thaws() {
        assert_eq!((thaw.days, thaw.tier.as_str()), (3, "Bulk"), "{key}");
    }
    let asked: u64 =
        site.bucket.thaws().iter().map(|(key, _)| site.bucket.object(key).unwrap().bytes.len() as u64).sum();
    assert!(bytes.abs_diff(asked) * 10 <= asked, "{bytes} bytes were quoted, and {asked} asked for");
    let requests = site.bucket.count(Op::Restore);
    assert_eq!(requests, objects);
    is_in_the_month(&site, &data_dir, objects, asked);
    stop(server);
    let server = site.start(&data_dir);
    let agent = server.agent();
    let refused = agent.run(&[&RESTORE[..], &to].concat());
    assert_eq!(refused.code, Some(10), "{}", refused.said());
    assert!(refused.said().contains("are being thawed"), "{}", refused.said());
    agent.run(&[&thaw[..], &["--no-wait"]].concat()).ok();
    site.bucket.finish_thaws("");
    agent.run(&thaw).ok();
    assert!(fs::read(&out).unwrap() == disk.bytes());
    assert_eq!(site.bucket.count(Op::Restore), requests, "nothing is asked for twice");
    // Now it can be read without another option.
    assert_eq!(agent.read_back("web"), disk.bytes());
    stop(server);
}

/// (T10)
#[test]
fn a_backup_never_comes_to_need_the_archive() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let (server, disk) = archived(&site, &data_dir);
    let agent = server.agent();
    let old: BTreeSet<String> = data(&site).into_iter().collect();
    // Unchanged since a cold parent, found as cold chunks, and after a restart that has to know.
    agent.back_up("web", &[disk.arg()]);
    assert_eq!(agent.read_back("web"), disk.bytes());
    site.wait_up_to_date(&data_dir);
    let added = data(&site).into_iter().filter(|key| !old.contains(key)).count();
    assert!(added >= 2, "{added} containers of what was in the archive alone");
    stop(server);
    let server = site.start(&data_dir);
    let agent = server.agent();
    agent.back_up("web", &[disk.arg()]);
    assert_eq!(agent.read_back("web"), disk.bytes());
    assert_eq!(site.bucket.count(Op::Restore), 0);
    // An object that is also local is not needed there: it is removed, with its ends.
    for backup in agent.backups("web") {
        agent.run(&["delete", &backup, "--yes"]).ok();
    }
    reclaim(&server);
    site.wait_up_to_date(&data_dir);
    assert!(data(&site).is_empty() && site.copies("ends").is_empty(), "{:?}", site.bucket.keys());
    assert!(files(&data_dir.join("blobs/ends")).is_empty());
    stop(server);
}

/// Lost answers and refusals cost time, never a second thaw: each is billed.
#[test]
fn a_thaw_is_asked_for_once_whatever_becomes_of_its_answer() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let (server, disk) = archived(&site, &data_dir);
    let objects = data(&site).len();
    assert!(objects >= 2, "one whose answer is lost, and one that is refused");
    site.bucket.fail(Op::Restore, "", 1, Fault::Refuse(503, "SlowDown"));
    site.bucket.fail(Op::Restore, "", 1, Fault::LoseAnswer);
    let out = site.path("out.raw");
    let to = ["--to", out.to_str().unwrap(), "--thaw", "bulk", "--yes"];
    // Two at the same time: the second one shares the request of the first.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| server.agent().run(&[&RESTORE[..], &to, &["--no-wait"]].concat()).ok());
        }
    });
    wait_for("the requests", || (site.bucket.thaws().len() == objects).then_some(()));
    site.bucket.finish_thaws("");
    server.agent().run(&[&RESTORE[..], &to].concat()).ok();
    assert!(fs::read(&out).unwrap() == disk.bytes());
    assert_eq!(site.bucket.count(Op::Restore), objects as u64 + 1, "the one that was refused");
    stop(server);
}

/// The answer to a change of class is lost: the container counts as cold, and the next round determines its class.
#[test]
fn a_change_of_class_without_an_answer_is_finished_by_the_next_round() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 22, 8 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    // Not the request that puts its ends beside it.
    site.bucket.fail(Op::Put, "site/containers/", 1, Fault::LoseAnswer);
    let said = reclaim(&server);
    assert!(said.contains("no answer came"), "{said}");
    // No backup counts on it.
    server.agent().back_up("db", &[disk.arg()]);
    let read = site.bucket.requests(Op::Get, ".data");
    assert_eq!(server.agent().read_back("db"), disk.bytes());
    assert_eq!(site.bucket.requests(Op::Get, ".data"), read);
    stop(server);
    let server = site.start(&data_dir);
    site.wait_up_to_date(&data_dir);
    server.agent().run(&["delete", &server.agent().backups("db")[0], "--yes"]).ok();
    reclaim(&server);
    site.wait_up_to_date(&data_dir);
    let cold = data(&site).iter().filter(|key| class(&site, key).as_deref() == Some("DEEP_ARCHIVE")).count();
    assert!(cold >= 1);
    let refused = server.agent().run(&[&RESTORE[..], &["--to", "-"]].concat());
    assert_eq!(refused.code, Some(10), "{}", refused.said());
    stop(server);
}

#[test]
fn an_archived_object_that_is_gone_is_named() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let (server, _) = archived(&site, &data_dir);
    let gone = data(&site).pop().unwrap();
    site.bucket.delete(&gone);
    let out = site.path("out.raw");
    let to = ["--to", out.to_str().unwrap(), "--thaw", "standard", "--yes"];
    let ran = server.agent().run(&[&RESTORE[..], &to].concat());
    assert_eq!(ran.code, Some(10), "{}", ran.said());
    let name = gone.strip_prefix("site/").unwrap();
    assert!(ran.said().contains(name) && ran.said().contains("no such object"), "{}", ran.said());
    assert!(!out.exists());
    stop(server);
}

/// A server recovered from the bucket alone knows the contents of archived containers, and which are cold.
#[test]
fn a_recovered_server_thaws_what_it_needs() {
    let site = Site::with(ARCHIVING);
    let data_dir = site.path("repository");
    let (server, disk) = archived(&site, &data_dir);
    stop(server);
    let kit = site.export_kit(&data_dir, "kit");
    let new = site.path("new");
    let (status, said) = site.recover(&new, &kit);
    assert!(status.success(), "{said}");
    let server = site.start(&new);
    let agent = server.agent();
    let out = site.path("out.raw");
    let to = ["--to", out.to_str().unwrap()];
    let refused = agent.run(&[&RESTORE[..], &to].concat());
    assert_eq!(refused.code, Some(10), "{}", refused.said());
    agent.run(&[&RESTORE[..], &to, &["--thaw", "bulk", "--yes", "--no-wait"]].concat()).ok();
    wait_for("the requests", || (site.bucket.thaws().len() == data(&site).len()).then_some(()));
    site.bucket.finish_thaws("");
    agent.run(&[&RESTORE[..], &to, &["--thaw", "bulk", "--yes"]].concat()).ok();
    assert!(fs::read(&out).unwrap() == disk.bytes());
    stop(server);
}
