//! One disk over several connections: what arrives equals what was sent, whatever is lost on the way.

use std::net::TcpListener;
use std::path::Path;

use holdfast::connect::connections::LONG_RTT;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::server::maintain;
use holdfast_tests::{Agent, Disk, Ran, Server, wait_for};
use tempfile::tempdir;

use super::crash::wait_until_sending;

/// Connections without data: one for short calls, one for the stream with its queries.
const OTHERS: u64 = 2;

fn args<'a>(disk: &'a Disk, more: &[&'a str]) -> Vec<&'a str> {
    [&["backup", "--vm", "vm", disk.arg(), "--connections", "4"], more].concat()
}

fn check(data_dir: &Path) {
    let (status, said) = maintain(data_dir, "check", &["--read-data"]);
    assert!(status.success(), "check: {status}\n{said}");
}

/// Returns true if the agent measured a short line. On an overloaded machine, a local connection takes as long as one
/// over a long line, and the agent cannot tell them apart.
fn is_short(ran: &Ran) -> bool {
    let measured = ran.stderr.split("rtt_ms=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let rtt_ms: f64 = measured.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{}", ran.stderr));
    rtt_ms < LONG_RTT.as_secs_f64() * 1e3
}

#[test]
fn a_disk_over_four_connections_is_the_disk() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 64 << 20);
    let through = |proxy: &Proxy| server.agent().through(proxy.address());
    let proxy = Proxy::holding(server.grpc(), u64::MAX);
    through(&proxy).run(&args(&disk, &[])).ok();
    assert_eq!(proxy.connections(), OTHERS + 4);
    assert_eq!(server.agent().read_back("vm"), disk.bytes());
    // The next one, of two disks.
    disk.put(9 << 20, &vec![7; 3 << 20]);
    let other = Disk::of_noise(folder.path().join("other.raw"), 2, 24 << 20);
    through(&proxy).run(&args(&disk, &[other.arg()])).ok();
    let to = folder.path().join("restored");
    for (name, source) in [("disk", &disk), ("other", &other)] {
        server.agent().restore("vm", Some(name), &to.with_extension(name));
        source.assert_same(&to.with_extension(name));
    }
    // By default there is one on a line as short as this, whatever is sent.
    let proxy = Proxy::holding(server.grpc(), u64::MAX);
    let new = Disk::of_noise(folder.path().join("new.raw"), 3, 8 << 20);
    let ran = through(&proxy).run(&["--log-level=info", "backup", "--vm", "auto", new.arg()]).ok();
    assert_eq!(
        proxy.connections() == OTHERS,
        is_short(&ran),
        "{} connections\n{}",
        proxy.connections(),
        ran.stderr
    );
    let data_dir = server.data_dir().to_owned();
    server.stop();
    check(&data_dir);
}

#[test]
fn one_of_four_connections_is_cut_and_the_backup_goes_on() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 64 << 20);
    // Only a connection that carries data gets that far.
    let proxy = Proxy::cutting_one(server.grpc(), 6 << 20);
    let ran = server.agent().through(proxy.address()).run(&args(&disk, &[])).ok();
    assert!(ran.said().contains("reconnected; the server already has"), "{}", ran.said());
    assert!(proxy.connections() >= 2 * (OTHERS + 4), "{} connections", proxy.connections());
    assert_eq!(server.agent().read_back("vm"), disk.bytes());
    assert_eq!(server.agent().backups("vm").len(), 1);
    // All of them, several times.
    let proxy = Proxy::cutting(server.grpc(), 12 << 20, 3);
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 3, 48 << 20);
    server.agent().through(proxy.address()).run(&args(&disk, &["--accept-change"])).ok();
    assert_eq!(server.agent().read_back("vm"), disk.bytes());
    let data_dir = server.data_dir().to_owned();
    server.stop();
    check(&data_dir);
}

#[test]
fn killed_agents_and_servers_leave_no_lane_behind() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, 48 << 20);
    let run = server.agent().start(&args(&disk, &["--limit-upload", "512K"]));
    wait_until_sending(&server, 1 << 20);
    run.kill();
    let run = server.agent().start(&args(&disk, &["--take-over", "--limit-upload", "16M"]));
    wait_until_sending(&server, 8 << 20);
    let address = server.grpc().to_owned();
    server.kill();
    let server = Server::options().grpc(&address).start(&data_dir);
    run.wait().ok();
    assert_eq!(server.agent().read_back("vm"), disk.bytes());
    server.stop();
    check(&data_dir);
}

#[test]
fn the_first_connection_is_tried_for_as_long_as_any_other() {
    let folder = tempdir().unwrap();
    let data_dir = folder.path().join("repository");
    let server = Server::start(&data_dir);
    let (agent, disk) = (server.agent(), Disk::of_noise(folder.path().join("disk.raw"), 1, 1 << 20));
    server.stop();
    // Accepts and closes connections, so that the agent's attempts are known.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let agent: Agent = agent.through(&address);
    let at_once = ["backup", "--vm", "vm", disk.arg(), "--retry-for", "0s"];
    let refused = agent.start(&at_once);
    drop(listener.accept().unwrap());
    refused.wait().fails(9, &[&address]);
    let mut run = agent.start(&["backup", "--vm", "vm", disk.arg(), "--retry-for", "1h"]);
    for _ in 0..2 {
        drop(listener.accept().unwrap());
    }
    assert!(run.runs());
    drop(listener);
    // Another test may have taken the port in the meantime.
    let server = wait_for("the port", || Server::options().grpc(&address).try_start(&data_dir).ok());
    let ran = run.wait().ok();
    assert!(ran.stderr.contains("retrying in"), "{}", ran.stderr);
    assert_eq!(server.agent().read_back("vm"), disk.bytes());
}
