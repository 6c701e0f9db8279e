//! Killed agents, killed servers, cut connections: acknowledged backups are there, others are invisible, and the
//! next backup works.

use std::path::Path;

use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::files;
use holdfast_tests::server::maintain;
use holdfast_tests::{Agent, Disk, Server, wait_for};
use rustix::process::Signal;
use tempfile::tempdir;

/// Makes a backup of 64 MiB take minutes, for tests that kill its agent long before.
const NEVER_DONE: [&str; 2] = ["--limit-upload", "512K"];

/// Waits until an unfinished or finished container of at least `bytes` is on the server's disk.
pub(crate) fn wait_until_sending(server: &Server, bytes: u64) {
    wait_for("data to arrive at the server", || {
        let blobs = files(&server.data_dir().join("blobs"));
        blobs.iter().any(|file| std::fs::metadata(file).is_ok_and(|file| file.len() >= bytes)).then_some(())
    });
}

/// Same, if there were this many containers before.
pub(crate) fn wait_until_sending_more_than(server: &Server, containers: usize, bytes: u64) {
    wait_for("new data to arrive at the server", || {
        let blobs = files(&server.data_dir().join("blobs"));
        let large = blobs.iter().filter(|file| std::fs::metadata(file).is_ok_and(|file| file.len() >= bytes));
        (large.count() > containers).then_some(())
    });
}

fn check(data_dir: &Path) {
    let (status, said) = maintain(data_dir, "check", &["--read-data"]);
    assert!(status.success(), "check after a crash: {status}\n{said}");
}

#[test]
fn a_server_killed_mid_run_keeps_what_was_finished() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let kept = Disk::varied(folder.path().join("kept.raw"), 1, 30 << 20);
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 5, 64 << 20);
    server.agent().back_up("kept", &[kept.arg()]);
    let run = server.agent().start(&["backup", "--vm", "vm", disk.arg(), "--limit-upload", "16M"]);
    wait_until_sending(&server, 4 << 20);
    let address = server.grpc().to_owned();
    server.kill();

    // The same address, as with a restart by a service manager.
    let server = Server::options().grpc(&address).start(&data_dir);
    let agent = server.agent();
    let ran = run.wait();
    if ran.succeeded() {
        assert_eq!(agent.read_back("vm"), disk.bytes(), "what an agent calls done is done");
    } else {
        assert!(!ran.said().trim().is_empty(), "a failure without a word");
        assert!(agent.backups("vm").is_empty(), "{}", ran.said());
    }
    assert_eq!(agent.read_back("kept"), kept.bytes());
    agent.run(&["backup", "--vm", "vm", disk.arg(), "--take-over"]).ok();
    assert_eq!(agent.read_back("vm"), disk.bytes());
    server.stop();
    check(&data_dir);
}

#[test]
fn a_server_killed_again_and_again_loses_nothing_it_acknowledged() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let mut acknowledged: Vec<(String, Disk)> = Vec::new();
    for round in 0..4u64 {
        let server = Server::start(&data_dir);
        let agent = server.agent();
        let disk = Disk::varied(folder.path().join(format!("{round}.raw")), round * 7, (10 + round) << 20);
        let vm = format!("vm{round}");
        agent.back_up(&vm, &[disk.arg()]);
        acknowledged.push((vm, disk));
        // Killed right after the answer: nothing may still be on its way to the disk.
        server.kill();
    }
    let server = Server::start(&data_dir);
    for (vm, disk) in &acknowledged {
        assert_eq!(server.agent().read_back(vm), disk.bytes(), "{vm}");
    }
    server.stop();
    check(&data_dir);
}

#[test]
fn a_dead_agents_session_can_be_taken_over() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
    let args = ["backup", "--vm", "vm", disk.arg()];
    let run = agent.start(&[&args[..], &NEVER_DONE].concat());
    wait_until_sending(&server, 1 << 20);
    run.kill();
    agent.run(&args).fails(6, &["vm", "--take-over"]);
    assert!(agent.backups("vm").is_empty());
    agent.run(&[&args[..], &["--take-over"]].concat()).ok();
    assert_eq!(agent.backups("vm").len(), 1);
    assert_eq!(agent.read_back("vm"), disk.bytes());
}

#[test]
fn a_dead_agents_session_expires() {
    let folder = tempdir().unwrap();
    // Short, but longer than a busy machine keeps a live agent from sending a heartbeat.
    let server = Server::options().arg("--lease-secs=30").start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
    let run = agent.start(&[&["backup", "--vm", "vm", disk.arg()][..], &NEVER_DONE].concat());
    wait_until_sending(&server, 1 << 20);
    run.kill();
    let disk = Disk::of_noise(folder.path().join("small.raw"), 2, 2 << 20);
    wait_for("the session to expire", || {
        let ran = agent.run(&["backup", "--vm", "vm", disk.arg()]);
        assert!(matches!(ran.code, Some(0 | 6)), "{:?} {}", ran.code, ran.said());
        ran.succeeded().then_some(())
    });
    assert_eq!(agent.read_back("vm"), disk.bytes());
    let statuses: Vec<_> = agent.report().iter().map(|row| row.text("status").to_owned()).collect();
    assert_eq!(statuses, ["expired", "done"]);
}

/// A backup through a proxy that cuts its connections `cuts` times.
/// Neither ends without a trace: of one the cause is told, of the other that no more was heard of it.
#[test]
fn an_interrupted_backup_and_one_whose_token_ends_are_on_record() {
    let folder = tempdir().unwrap();
    // A live agent may lose its session on a busy machine: nothing here depends on it.
    let server = Server::options().arg("--lease-secs=10").start(&folder.path().join("repository"));
    let rows = |vm: &str| -> Vec<_> {
        let rows = server.agent().report().into_iter().filter(|row| row.text("vm") == vm);
        rows.map(|row| (row.text("status").to_owned(), row.text("error").to_owned())).collect()
    };
    let begin = |vm: &str, seed: u64, token: &str| {
        let blobs = files(&server.data_dir().join("blobs"));
        let large =
            blobs.iter().filter(|file| std::fs::metadata(file).is_ok_and(|file| file.len() >= 1 << 20));
        let before = large.count();
        let disk = Disk::of_noise(folder.path().join(vm), seed, 64 << 20);
        let args = [&["backup", "--vm", vm, disk.arg()][..], &NEVER_DONE].concat();
        let run = server.agent().with_token(token).start(&args);
        wait_until_sending_more_than(&server, before, 1 << 20);
        run
    };
    let run = begin("stopped", 1, &server.admin_token());
    run.signal(Signal::INT);
    run.wait().fails(130, &["nothing of this run was kept"]);
    let stopped = rows("stopped");
    assert!(stopped.iter().any(|(status, why)| status == "aborted" && why == "interrupted"), "{stopped:?}");

    let run = begin("revoked", 2, &server.token("hv", "backup", &[]));
    assert!(server.tokens(&["revoke", "hv"]).0.success());
    run.wait().fails(4, &["revoked"]);
    wait_for("the record", || rows("revoked").iter().any(|(status, _)| status == "expired").then_some(()));
}

fn back_up_over_a_bad_wire(server: &Server, agent: &Agent, disk: &Disk, cuts: u64) -> u64 {
    let proxy = Proxy::cutting(server.grpc(), 8 << 20, cuts);
    agent.through(proxy.address()).back_up("vm", &[disk.arg()]);
    assert!(proxy.connections() > cuts, "{} connections", proxy.connections());
    proxy.upstream_bytes()
}

#[test]
fn a_lost_connection_resumes_without_sending_durable_data_again() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let size: usize = 80 << 20;
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, size);
    let sent = back_up_over_a_bad_wire(&server, &agent, &disk, 3);
    assert_eq!(agent.read_back("vm"), disk.bytes());
    assert_eq!(agent.backups("vm").len(), 1);
    // Each cut may lose data that was not durable yet: an open container and data in flight.
    let allowed = (size as u64) + 3 * (48 << 20);
    assert!(sent < allowed, "{sent} bytes were sent for {size}");
    let row = &agent.report()[0];
    assert_eq!(row.number("bytes"), row.number("new_bytes") + row.number("dup_bytes"));
}

#[test]
fn an_unreachable_server_is_an_error_that_says_so() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let address = server.grpc().to_owned();
    server.stop();
    agent.run(&["list"]).fails(9, &[&address]);
}

#[test]
fn one_server_a_data_folder() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let (status, said) = Server::options().try_start(&data_dir).unwrap_err();
    assert!(!status.success());
    assert!(said.contains("in use") && said.contains(data_dir.to_str().unwrap()), "{said}");
    server.agent().run(&["list"]).ok();
    server.kill();
    // The lock of a dead process blocks nothing.
    Server::start(&data_dir).agent().run(&["list"]).ok();
}
