//! Many VMs with the same new data at the same moment: it is stored once, by any of them, and no backup fails because
//! another is cut off.

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

/// More than three extents of noise with their framing.
const HELD_NEAR_END_AT_BYTES: u64 = 13 << 20;

/// More than the description of a disk, and less than the data sent by an agent that is held near its end.
const PART_BYTES: u64 = 1 << 20;

/// Enough for an agent's connection and first query, and not for those of its whole disk.
const HELD_AT_BYTES: u64 = 16 << 10;

/// Bytes of a repository in which these VMs were backed up one after another.
fn one_after_another(data_dir: &Path, vms: &[String], disk: &Disk) -> u64 {
    let server = Server::start(data_dir);
    for vm in vms {
        server.agent().back_up(vm, &[disk.arg()]);
    }
    container_bytes(data_dir, Class::Data)
}

/// Asserts that at most 2 % more are stored.
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

/// Starts a backup of a VM through its own proxy.
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
    // All of them have begun, and none has sent its data.
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

/// Bytes of its disk that a VM's backup has described to the server so far.
fn described_bytes(server: &Server, vm: &str) -> Option<u64> {
    let activity = get(server, "/api/v1/activity", &server.admin_token()).json();
    let sessions = activity.get("sessions").and_then(Value::as_array).expect("a list").clone();
    let session = sessions.iter().find(|session| session.get("vm").and_then(Value::as_str) == Some(vm))?;
    Some(session.get("bytes_done").and_then(Value::as_u64).expect("a number"))
}

/// A backup that is held while it sends its disk's last extent of 4 MiB, and its proxy: by then it was asked for all
/// of the disk's chunks, however slow its queries were.
fn held_near_its_end(server: &Server, vm: &str, disk: &Disk) -> (Proxy, Running) {
    let proxy = Proxy::holding(server.grpc(), HELD_NEAR_END_AT_BYTES);
    let run = start_through(&proxy, &server.agent(), vm, disk);
    wait_until_held(&proxy, HELD_NEAR_END_AT_BYTES);
    (proxy, run)
}

/// Agents and servers probe a silent connection after 20 seconds, and close it after as many again; a chunk is
/// waited for a minute.
const SILENCE: Duration = Duration::from_secs(35);

/// A server, a disk, and backups of it that counted on an agent which is dead by now.
struct CountedOn {
    server: Server,
    disk: Disk,
    /// Backups with their proxies, in the order of the VMs.
    others: Vec<(Proxy, Running)>,
    _folder: TempDir,
}

/// Kills the agent "killed" once the server has told the backups of `vms` that another one sends the chunks they lack:
/// they have described their whole disk, and sent hardly anything. These backups run over proxies
/// from `wire`, with `more` arguments.
///
/// Starts over if the machine stalled for so long that the server may have dropped the agent before: then others
/// are told to send.
fn counted_on(vms: &[&str], wire: impl Fn(&str) -> Proxy, more: &[&str]) -> CountedOn {
    wait_for("an attempt in time", || {
        let folder = tempdir().unwrap();
        let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, DISK_BYTES);
        let server = Server::start(&folder.path().join("repository"));
        let begun = Instant::now();
        let (dying_wire, killed) = held_near_its_end(&server, "killed", &disk);
        let others: Vec<(Proxy, Running)> = vms
            .iter()
            .map(|vm| {
                let proxy = wire(server.grpc());
                let agent = server.agent().through(proxy.address());
                let run = agent.start(&[&["backup", "--vm", vm, disk.arg()], more].concat());
                (proxy, run)
            })
            .collect();
        let is_late = || begun.elapsed() >= SILENCE;
        for vm in vms {
            wait_for("a backup to have described its disk", || {
                (is_late() || described_bytes(&server, vm) == Some(DISK_BYTES as u64)).then_some(())
            });
        }
        let sent: Vec<u64> = others.iter().map(|(proxy, _)| proxy.upstream_bytes()).collect();
        // The server notices as with any host that crashed and restarted: the connection breaks.
        killed.kill();
        drop(dying_wire);
        if is_late() {
            return None;
        }
        assert!(
            sent.iter().all(|bytes| *bytes < PART_BYTES),
            "told that nothing is to be sent, they sent {sent:?}"
        );
        Some(CountedOn { server, disk, others, _folder: folder })
    })
}

#[test]
fn an_agent_killed_while_others_count_on_it() {
    let folder = tempdir().unwrap();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, DISK_BYTES);
    let alone = one_after_another(&folder.path().join("alone"), &names(2), &disk);

    let vms = names(2);
    let vms: Vec<&str> = vms.iter().map(String::as_str).collect();
    let CountedOn { server, disk, others, _folder } =
        counted_on(&vms, |server| Proxy::holding(server, u64::MAX), &[]);
    let wires: Vec<Proxy> = others.into_iter().map(|(wire, run)| (wire, run.wait().ok()).0).collect();

    let sent: u64 = wires.iter().map(Proxy::upstream_bytes).sum();
    assert!(sent > 2 * PART_BYTES, "{sent} bytes were sent instead of those of the agent that was killed");
    let agent = server.agent();
    assert!(agent.backups("killed").is_empty());
    for vm in vms {
        assert_eq!(agent.read_back(vm), disk.bytes(), "{vm}");
    }
    let stored = container_bytes(server.data_dir(), Class::Data);
    assert!(
        stored * 100 <= alone * 102,
        "{stored} bytes are stored, {alone} without the agent that was killed"
    );
    assert_sound(server);
}

/// A backup that counted on the killed agent, and its proxy.
fn asked_again(wire: impl Fn(&str) -> Proxy, more: &[&str]) -> (CountedOn, Proxy, Running) {
    let mut counted = counted_on(&["vm"], wire, more);
    let (proxy, run) = counted.others.remove(0);
    (counted, proxy, run)
}

/// Chunks requested from the agent after Finish are sent over lanes as well, and then Finish once more, over the
/// stream itself.
#[test]
fn chunks_are_sent_again_over_four_connections() {
    let more = ["--connections", "4", "--retry-for", "0s"];
    let (counted, proxy, run) = asked_again(|server| Proxy::holding(server, u64::MAX), &more);
    let ran = run.wait().ok();

    assert!(ran.said().contains("extents read again"), "{}", ran.said());
    // One for short calls, one for the stream, and the lanes.
    assert_eq!(proxy.connections(), 2 + 4);
    // Before it was asked again it had sent less than a part.
    let sent = proxy.upstream_bytes();
    assert!(sent > 2 * PART_BYTES, "{sent} bytes were sent");
    assert_eq!(counted.server.agent().read_back("vm"), counted.disk.bytes());
    assert_sound(counted.server);
}

#[test]
fn a_connection_lost_while_chunks_are_sent_again() {
    // Until it is asked again it sends no data.
    let (counted, proxy, run) = asked_again(|server| Proxy::cutting(server, PART_BYTES, 2), &[]);
    run.wait().ok();

    assert!(proxy.connections() > 2, "{} connections", proxy.connections());
    let agent = counted.server.agent();
    assert_eq!(agent.backups("vm").len(), 1);
    assert_eq!(agent.read_back("vm"), counted.disk.bytes());
    let row = agent.report().into_iter().find(|row| row.text("vm") == "vm").unwrap();
    assert_eq!(
        row.number("bytes"),
        row.number("unchanged_bytes") + row.number("new_bytes") + row.number("dup_bytes")
    );
    assert_sound(counted.server);
}

/// Ctrl-C in the second pass, of which a part has been sent: the agent ends without a restore point, and the VM's next
/// backup has everything.
#[test]
fn an_agent_interrupted_while_chunks_are_sent_again() {
    // Until it is asked again it sends no data.
    let (counted, proxy, run) = asked_again(|server| Proxy::holding(server, PART_BYTES), &[]);
    wait_until_held(&proxy, PART_BYTES);
    run.signal(Signal::INT);
    let ran = run.wait().fails(130, &[]);
    assert!(ran.said().contains("extents read again"), "{}", ran.said());
    drop(proxy);

    let agent = counted.server.agent();
    assert!(agent.backups("vm").is_empty());
    // The server may not know of the end: nothing more passed the proxy.
    agent.start(&["backup", "--vm", "vm", counted.disk.arg(), "--take-over"]).wait().ok();
    assert_eq!(agent.read_back("vm"), counted.disk.bytes());
    assert_sound(counted.server);
}
