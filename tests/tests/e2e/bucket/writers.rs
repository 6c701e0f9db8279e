//! Two servers and one bucket.

use holdfast_bucket::{BUCKET, Op};
use holdfast_tests::{Disk, Server};
use rustix::process::{Signal, kill_process};

use super::{Site, stop};

fn signal(server: &Server, signal: Signal) {
    kill_process(server.pid(), signal).unwrap();
}

/// A second server is refused with the first one's name. When the first one is paused and the second is told to take
/// over, the first one writes nothing more when it resumes, says why, and still works locally.
#[test]
fn a_bucket_has_one_writer() {
    let site = Site::new();
    let (first, second) = (site.path("first"), site.path("second"));
    let server = site.start(&first);
    let disk = Disk::of_noise(site.path("disk.raw"), 31, 6 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&first);
    stop(server);
    let kit = site.export_kit(&first, "kit.txt");
    let a = site.start(&first);
    disk.put(0, b"the second backup");
    a.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&first);

    // Recovered from the bucket while the first one runs, as for a drill: it reads, and writes nothing.
    // A wrong name leaves the folder as it was.
    let wrong = format!("s3://{BUCKET}/elsewhere");
    let (status, said) =
        site.maintain(&second, "recover", &["--from", &wrong, "--kit", kit.to_str().unwrap()]);
    assert!(!status.success() && said.contains("holds nothing of a repository"), "{said}");
    let (status, said) = site.recover(&second, &kit);
    assert!(status.success(), "{said}");
    let b = site.start(&second);
    assert_eq!(b.agent().read_back("web"), disk.bytes());
    let other = Disk::of_noise(site.path("other.raw"), 32, 5 << 20);
    b.agent().back_up("mail", &[other.arg()]);
    let failure = site.wait_for_failure(&second, "a bucket has one writer");
    let name = site.status(&second)["other_writer"].as_str().unwrap().to_owned();
    assert!(name.ends_with(first.to_str().unwrap()) && failure.contains(&name), "{failure}");
    assert_eq!(site.copies("points").len(), 2);
    let (status, said) = site.maintain(&second, "tier", &["take-over", "--from", "someone else"]);
    assert!(!status.success() && said.contains(&name), "{said}");

    // The first one is paused, with work to do.
    signal(&a, Signal::STOP);
    let (status, said) = site.maintain(&second, "tier", &["take-over", "--from", &name]);
    assert!(status.success(), "{said}");
    site.wait_for_points(3);
    // Including its snapshot of the catalog.
    site.wait_up_to_date(&second);
    let objects = site.bucket.keys();
    let (puts, deletes) = (site.bucket.count(Op::Put), site.bucket.count(Op::Delete));
    signal(&a, Signal::CONT);
    disk.put(1 << 20, b"the third backup");
    a.agent().back_up("web", &[disk.arg()]);
    let failure = site.wait_for_failure(&first, "a bucket has one writer");
    assert!(failure.contains(second.to_str().unwrap()), "{failure}");
    assert_eq!(a.agent().read_back("web"), disk.bytes());
    assert_eq!(site.bucket.keys(), objects, "nothing was written there");
    assert_eq!((site.bucket.count(Op::Put), site.bucket.count(Op::Delete)), (puts, deletes));
    // Each object names its writer.
    let writers: Vec<String> = site
        .copies("points")
        .iter()
        .map(|key| site.bucket.object(key).unwrap().metadata["holdfast-writer"].clone())
        .collect();
    let distinct: std::collections::BTreeSet<_> = writers.iter().collect();
    assert_eq!(distinct.len(), 3, "each process has a number: {writers:?}");
    stop(a);
    stop(b);
}

/// The lease is gone, and an object with it: the server that wrote it asks first, and continues when it is told to.
#[test]
fn a_bucket_that_lost_its_lease_is_written_to_on_request() {
    let site = Site::new();
    let data_dir = site.path("repository");
    let server = site.start(&data_dir);
    let disk = Disk::of_noise(site.path("disk.raw"), 33, 6 << 20);
    server.agent().back_up("web", &[disk.arg()]);
    site.wait_up_to_date(&data_dir);
    stop(server);
    let lost = site.copies("containers").remove(0);
    site.bucket.delete("site/lease");
    site.bucket.delete(&lost);

    let server = site.start(&data_dir);
    disk.put(0, b"the second backup");
    server.agent().back_up("web", &[disk.arg()]);
    let failure = site.wait_for_failure(&data_dir, "the bucket's lease is missing");
    assert!(failure.contains("0 objects more, 1 fewer"), "{failure}");
    let name = site.status(&data_dir)["other_writer"].as_str().unwrap().to_owned();
    let (status, said) = site.maintain(&data_dir, "tier", &["take-over", "--from", &name]);
    assert!(status.success(), "{said}");
    site.wait_for_points(2);
    assert!(site.bucket.keys().contains(&"site/lease".to_owned()));
    stop(server);
}
