//! Two servers and one bucket.

use holdfast_bucket::Op;
use holdfast_tests::{Disk, Server};
use rustix::process::{Signal, kill_process};

use super::{Site, stop};

fn signal(server: &Server, signal: Signal) {
    kill_process(server.pid(), signal).unwrap();
}

/// A second server is refused with the first one's name. When the first one is paused and the second is told to take over,
/// the first one writes nothing more when it goes on, says why, and works on here.
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

    // Made of the bucket while the first one runs, as for a drill: it reads, and writes nothing.
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

    // The first one is paused, with work at hand.
    signal(&a, Signal::STOP);
    let (status, said) = site.maintain(&second, "tier", &["take-over", "--from", &name]);
    assert!(status.success(), "{said}");
    site.wait_for_points(3);
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
    // Each object says who wrote it.
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
