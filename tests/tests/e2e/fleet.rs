//! Many VMs with the same new data at the same moment: it is stored once, by any of them, and no backup depends on
//! another that breaks off.

use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_tests::agent::Running;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::{Class, container_bytes};
use holdfast_tests::server::maintain;
use holdfast_tests::web::get;
use holdfast_tests::{Agent, Disk, Server, wait_for};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::{TempDir, tempdir};

const DISK_BYTES: usize = 16 << 20;

/// Three extents of noise, and what they are wrapped in, are less.
const HELD_NEAR_END_AT_BYTES: u64 = 13 << 20;

/// What a disk is made of is told in less, and more than that was not sent when an agent was held near its end.
const PART_BYTES: u64 = 1 << 20;

/// An agent's connection and first question fit, and its whole disk's do not.
const HELD_AT_BYTES: u64 = 16 << 10;

/// Bytes of a repository in which these VMs were backed up one after another.
fn one_after_another(data_dir: &Path, vms: &[String], disk: &Disk) -> u64 {
    let server = Server::start(data_dir);
    for vm in vms {
        server.agent().back_up(vm, &[disk.arg()]);
    }
    container_bytes(data_dir, Class::Data)
}

/// At most 2 % more than that.
fn assert_stored_once(server: &Server, alone: u64) {
    let stored = container_bytes(server.data_dir(), Class::Data);
    assert!(stored * 100 <= alone * 102, "{stored} bytes are stored, {alone} one after another");
    let rows = server.agent().report();
    let reported: u64 = rows.iter().map(|row| row.number("post_lc")).sum();
    assert_eq!(reported, stored, "what the report adds up to, and the containers");
}

fn assert_sound(server: Server) {
    let data_dir = server.data_dir().to_owned();
    server.stop();
    let (status, said) = maintain(&data_dir, "check", &["--read-data"]);
    assert!(status.success(), "{said}");
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("vm-{number}")).collect()
}

/// Starts a backup of a VM through a wire of its own.
fn start_through(proxy: &Proxy, agent: &Agent, vm: &str, disk: &Disk) -> Running {
    agent.through(proxy.address()).start(&["backup", "--vm", vm, disk.arg()])
}

/// Waits until nothing more of the agent's passes.
fn wait_until_held(proxy: &Proxy, at_bytes: u64) {
    wait_for("the wire to hold", || (proxy.upstream_bytes() > at_bytes).then_some(()));
}

#[test]
fn eight_clones_at_the_same_moment() {
    let folder = tempdir().unwrap();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, DISK_BYTES);
    let vms = names(8);
    let alone = one_after_another(&folder.path().join("alone"), &vms, &disk);

    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let proxies: Vec<_> = vms.iter().map(|_| Proxy::holding(server.grpc(), HELD_AT_BYTES)).collect();
    let runs: Vec<_> =
        proxies.iter().zip(&vms).map(|(proxy, vm)| start_through(proxy, &agent, vm, &disk)).collect();
    // All of them have begun and none has sent its data.
    proxies.iter().for_each(|proxy| wait_until_held(proxy, HELD_AT_BYTES));
    proxies.iter().for_each(Proxy::release);
    let ended: Vec<_> = runs.into_iter().map(Running::wait).collect();
    ended.into_iter().for_each(|ran| drop(ran.ok()));

    assert_stored_once(&server, alone);
    let new_bytes: u64 = agent.report().iter().map(|row| row.number("new_bytes")).sum();
    assert_eq!(new_bytes, DISK_BYTES as u64, "every chunk is new to one backup only");
    let sent: u64 = proxies.iter().map(Proxy::upstream_bytes).sum();
    assert!(sent < 2 * DISK_BYTES as u64, "{sent} bytes were sent for {DISK_BYTES}");
    for vm in &vms {
        assert_eq!(agent.read_back(vm), disk.bytes(), "{vm}");
    }
    assert_sound(server);
}

/// Waits until the server knows what all of the VM's disk is made of.
fn wait_until_described(server: &Server, vm: &str) {
    let token = server.admin_token();
    wait_for("a backup to have described its disk", || {
        let activity = get(server, "/api/v1/activity", &token).json();
        let sessions = activity.get("sessions").and_then(Value::as_array).expect("a list").clone();
        let session =
            sessions.iter().find(|session| session.get("vm").and_then(Value::as_str) == Some(vm))?;
        let done = session.get("bytes_done").and_then(Value::as_u64).expect("a number");
        (done == DISK_BYTES as u64).then_some(())
    });
}

/// A backup that is held while it sends its disk's last extent of 4 MiB, and its wire: by then it was asked for all that the
/// disk is made of, however slow it was in asking.
fn held_near_its_end(server: &Server, vm: &str, disk: &Disk) -> (Proxy, Running) {
    let proxy = Proxy::holding(server.grpc(), HELD_NEAR_END_AT_BYTES);
    let run = start_through(&proxy, &server.agent(), vm, disk);
    wait_until_held(&proxy, HELD_NEAR_END_AT_BYTES);
    (proxy, run)
}

/// The server learns of it as of any host that crashed and is up again: the connection breaks.
fn kill(agent: Running, wire: Proxy) {
    agent.kill();
    drop(wire);
}

#[test]
fn an_agent_killed_while_others_count_on_it() {
    let folder = tempdir().unwrap();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, DISK_BYTES);
    let alone = one_after_another(&folder.path().join("alone"), &names(2), &disk);

    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let (wire, killed) = held_near_its_end(&server, "killed", &disk);
    let others = names(2);
    let runs: Vec<_> = others.iter().map(|vm| agent.start(&["backup", "--vm", vm, disk.arg()])).collect();
    others.iter().for_each(|vm| wait_until_described(&server, vm));
    kill(killed, wire);
    runs.into_iter().for_each(|run| drop(run.wait().ok()));

    assert!(agent.backups("killed").is_empty());
    for vm in &others {
        assert_eq!(agent.read_back(vm), disk.bytes(), "{vm}");
    }
    let stored = container_bytes(server.data_dir(), Class::Data);
    assert!(
        stored * 100 <= alone * 102,
        "{stored} bytes are stored, {alone} without the agent that was killed"
    );
    assert_sound(server);
}

/// A server, a disk, and a backup of it as `vm` that counted on an agent which is dead by now.
struct AskedAgain {
    server: Server,
    disk: Disk,
    proxy: Proxy,
    run: Running,
    /// What it had sent of what its disk is made of.
    described_bytes: u64,
    _folder: TempDir,
}

/// Agents and servers look after a silent wire when 20 seconds have passed, and give it up after as many again.
const SILENCE: Duration = Duration::from_secs(35);

/// Begins anew as long as the machine stood still for so long that `vm` may have been asked before the agent was killed.
fn asked_again(hold_at_bytes: u64, more: &[&str]) -> AskedAgain {
    wait_for("an attempt in time", || {
        let folder = tempdir().unwrap();
        let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, DISK_BYTES);
        let server = Server::start(&folder.path().join("repository"));
        let begun = Instant::now();
        let (wire, killed) = held_near_its_end(&server, "killed", &disk);
        let proxy = Proxy::holding(server.grpc(), hold_at_bytes);
        let agent = server.agent().through(proxy.address());
        let run = agent.start(&[&["backup", "--vm", "vm", disk.arg()], more].concat());
        wait_until_described(&server, "vm");
        let described_bytes = proxy.upstream_bytes();
        let in_time = begun.elapsed() < SILENCE;
        kill(killed, wire);
        in_time.then_some(AskedAgain { server, disk, proxy, run, described_bytes, _folder: folder })
    })
}

/// What the agent is asked for after Finish goes over lanes as well, and then Finish once more, over the stream itself.
#[test]
fn chunks_are_sent_again_over_four_connections() {
    let asked = asked_again(u64::MAX, &["--connections", "4", "--retry-for", "0s"]);
    let ran = asked.run.wait().ok();

    assert!(ran.said().contains("extents read again"), "{}", ran.said());
    // One for short calls, one for the stream, and the lanes.
    assert_eq!(asked.proxy.connections(), 2 + 4);
    let sent_again = asked.proxy.upstream_bytes() - asked.described_bytes;
    assert!(sent_again > PART_BYTES, "{sent_again} bytes were sent again");
    assert_eq!(asked.server.agent().read_back("vm"), asked.disk.bytes());
    assert_sound(asked.server);
}

#[test]
fn a_connection_lost_while_chunks_are_sent_again() {
    let folder = tempdir().unwrap();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, DISK_BYTES);
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let (wire, killed) = held_near_its_end(&server, "killed", &disk);
    // Until it is asked again it sends no data.
    let proxy = Proxy::cutting(server.grpc(), PART_BYTES, 2);
    let run = start_through(&proxy, &agent, "vm", &disk);
    wait_until_described(&server, "vm");
    kill(killed, wire);
    run.wait().ok();

    assert!(proxy.connections() > 2, "{} connections", proxy.connections());
    assert_eq!(agent.backups("vm").len(), 1);
    assert_eq!(agent.read_back("vm"), disk.bytes());
    let row = agent.report().into_iter().find(|row| row.text("vm") == "vm").unwrap();
    assert_eq!(
        row.number("bytes"),
        row.number("unchanged_bytes") + row.number("new_bytes") + row.number("dup_bytes")
    );
    assert_sound(server);
}

/// Ctrl-C in the second pass, of which a part has been sent: the agent ends without a restore point, and the VM's next
/// backup has everything.
#[test]
fn an_agent_interrupted_while_chunks_are_sent_again() {
    // Until it is asked again it sends no data.
    let AskedAgain { server, disk, proxy, run, described_bytes, _folder } = asked_again(PART_BYTES, &[]);
    assert!(described_bytes < PART_BYTES, "it has sent nothing but what its disk is made of");
    wait_until_held(&proxy, PART_BYTES);
    run.signal(Signal::INT);
    let ran = run.wait().fails(130, &[]);
    assert!(ran.said().contains("extents read again"), "{}", ran.said());
    drop(proxy);

    let agent = server.agent();
    assert!(agent.backups("vm").is_empty());
    // The server may not have heard of the end: nothing passed the wire any more.
    agent.start(&["backup", "--vm", "vm", disk.arg(), "--take-over"]).wait().ok();
    assert_eq!(agent.read_back("vm"), disk.bytes());
    assert_sound(server);
}
