//! Unreadable disks: a clear error and no restore point, or a partial one with the disks that can be read.

use std::os::unix::net::UnixListener;

use holdfast_tests::proxy::Proxy;
use holdfast_tests::web::get;
use holdfast_tests::{Agent, Disk, Ran, Server};
use tempfile::tempdir;

fn nothing_of(agent: &Agent, vm: &str) {
    assert_eq!(agent.backups(vm), Vec::<String>::new());
}

#[test]
fn disks_that_are_not_there() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let good = Disk::varied(folder.path().join("good.raw"), 1, 5 << 20);
    let missing = folder.path().join("missing.raw");
    let missing = missing.to_str().unwrap();
    agent.run(&["backup", "--vm", "vm", missing]).fails(1, &["missing.raw"]);
    agent.run(&["backup", "--vm", "vm", folder.path().to_str().unwrap()]).fails(1, &["directory"]);
    nothing_of(&agent, "vm");
    agent.back_up("vm", &[good.arg()]);
}

#[test]
fn what_is_no_disk_is_refused_before_it_is_opened() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let back_up = |path: &str| agent.run(&["backup", "--vm", "vm", &format!("disk={path}")]);
    // If the pipe were opened, this would block forever.
    back_up(pipe.to_str().unwrap()).fails(1, &["a named pipe"]);
    back_up(socket.to_str().unwrap()).fails(1, &["a socket"]);
    back_up("/dev/null").fails(1, &["a character device"]);
    nothing_of(&agent, "vm");
}

/// Names of the disks of a VM's latest restore point.
fn disks_of_latest(agent: &Agent, vm: &str) -> Vec<String> {
    let summary = agent.run(&["list", "--vm", vm, "--json"]).ok().summary();
    let disks = summary["backups"][0]["disks"].as_array().unwrap().clone();
    disks.iter().map(|disk| disk["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_disk_that_cannot_be_opened_does_not_cost_the_others() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let good = Disk::varied(folder.path().join("good.raw"), 1, 5 << 20);
    let missing = folder.path().join("missing.raw");
    let missing = missing.to_str().unwrap();
    agent
        .run(&["backup", "--vm", "vm", missing, good.arg()])
        .fails(3, &["Partial", "disk missing", "missing.raw"]);
    assert_eq!(disks_of_latest(&agent, "vm"), ["good"]);
    let restored = folder.path().join("restored.raw");
    agent.restore("vm", Some("good"), &restored);
    good.assert_same(&restored);
    let summary = agent.run(&["backup", "--vm", "vm", missing, good.arg(), "--json"]).fails(3, &[]).summary();
    assert_eq!(summary["ok"], false, "{summary}");
    assert_eq!(summary["failed_disks"][0]["disk"], "missing", "{summary}");
    assert!(summary["failed_disks"][0]["error"].as_str().unwrap().contains("missing.raw"), "{summary}");
    let rows: Vec<_> = agent.report().into_iter().filter(|row| row.text("run") == summary["run"]).collect();
    let row =
        |disk: &str| rows.iter().find(|row| row.text("disk") == disk).expect("a row of the run's details");
    assert_eq!((rows.len(), row("good").text("status")), (2, "done"));
    assert_eq!(row("missing").text("status"), "aborted");
    assert!(row("missing").text("error").contains("missing.raw"), "{rows:?}");
    assert_eq!(agent.backups("vm").len(), 2);
}

#[test]
fn a_partial_restore_point_says_so_wherever_it_is_listed() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let good = Disk::varied(folder.path().join("good.raw"), 1, 3 << 20);
    let lost = Disk::varied(folder.path().join("lost.raw"), 2, 3 << 20);
    let (moved, disks) = (folder.path().join("moved"), [good.arg(), lost.arg()]);
    let listed = || agent.run(&["list", "--vm", "vm"]).ok().text();
    let of_backups = |of: &str| {
        let summary = agent.run(&["list", "--vm", "vm", "--json"]).ok().summary();
        summary["backups"].as_array().unwrap().iter().map(|backup| backup[of].clone()).collect::<Vec<_>>()
    };
    let rest = |path: &str| get(&server, &format!("/api/v1/{path}"), &server.admin_token()).json();

    agent.back_up("vm", &disks);
    assert!(!listed().contains("partial"), "{}", listed());
    std::fs::rename(lost.path(), &moved).unwrap();
    agent.run(&[&["backup", "--vm", "vm"], &disks[..]].concat()).fails(3, &["Partial", "lost.raw"]);
    assert!(listed().contains("partial: without lost"), "{}", listed());
    let (none, lacks) = (serde_json::json!([]), serde_json::json!(["lost"]));
    assert_eq!(of_backups("missing_disks"), [lacks.clone(), none.clone()]);
    let id = of_backups("backup")[0].as_str().unwrap().to_owned();
    assert_eq!(rest(&format!("backups/{id}"))["missing_disks"], lacks);
    let to = folder.path().join("restored");
    std::fs::create_dir(&to).unwrap();
    let restore = ["restore", "latest", "--vm", "vm", "--disk", "lost", "--to", to.to_str().unwrap()];
    agent.run(&restore).fails(1, &["lost", "partial", "earlier backup"]);
    agent.restore("vm", Some("good"), &to.join("named.raw"));
    good.assert_same(&to.join("named.raw"));
    // Without a name all disks are requested, which fails.
    let all = ["restore", "latest", "--vm", "vm", "--to", to.to_str().unwrap(), "--json"];
    let summary = agent.run(&all).fails(3, &[]).summary();
    assert_eq!((summary["ok"].as_bool(), &summary["missing_disks"]), (Some(false), &lacks), "{summary}");
    good.assert_same(&to.join("good.raw"));
    // The older one still has the disk, and the next whole one is not partial.
    std::fs::rename(&moved, lost.path()).unwrap();
    let older = of_backups("backup")[1].as_str().unwrap().to_owned();
    agent.restore_of(&older, "vm", Some("lost"), &to.join("older.raw"));
    lost.assert_same(&to.join("older.raw"));
    agent.back_up("vm", &disks);
    assert_eq!(of_backups("missing_disks"), [none.clone(), lacks, none]);
}

#[test]
fn a_disk_that_fails_while_it_is_read_does_not_cost_the_others() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let first = Disk::varied(folder.path().join("first.raw"), 1, 3 << 20);
    let bad = Disk::of_noise(folder.path().join("bad.raw"), 2, FAR_BYTES);
    let last = Disk::varied(folder.path().join("last.raw"), 3, 5 << 20);
    let disks = [first.arg(), bad.arg(), last.arg()];
    let ran = while_sending(&server, &disks, 12 << 20, || bad.resize(20 << 20)).fails(3, &["bad.raw"]);
    let summary = ran.summary();
    assert_eq!(summary["failed_disks"][0]["disk"], "bad", "{summary}");
    assert_eq!(disks_of_latest(&agent, "vm"), ["first", "last"]);
    for (name, disk) in [("first", &first), ("last", &last)] {
        let to = folder.path().join(format!("{name}.restored"));
        agent.restore("vm", Some(name), &to);
        disk.assert_same(&to);
    }
    let rows = agent.report();
    assert!(rows.iter().all(|row| row.text("run") == summary["run"]), "one run: {rows:?}");
    let of_bad: Vec<_> = rows.iter().filter(|row| row.text("disk") == "bad").collect();
    assert!(of_bad.len() == 1 && of_bad[0].text("error").contains("bad.raw"), "{rows:?}");
    let done = rows.iter().filter(|row| row.text("status") == "done").count();
    assert_eq!(done, 2, "{rows:?}");
}

#[test]
fn a_disk_that_is_written_to_while_it_is_read_is_reported() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let quiet = Disk::varied(folder.path().join("quiet.raw"), 1, 3 << 20);
    let busy = Disk::of_noise(folder.path().join("busy.raw"), 2, FAR_BYTES);
    let disks = [quiet.arg(), busy.arg()];
    let ran = while_sending(&server, &disks, 12 << 20, || busy.put(7, b"written to"));
    assert_eq!(ran.ok().summary()["written_while_read"], serde_json::json!(["busy"]));
    let again = agent.run(&["backup", "--vm", "vm", quiet.arg(), busy.arg(), "--json"]).ok().summary();
    assert_eq!(again["written_while_read"], serde_json::json!([]));
}

#[test]
fn two_disks_of_one_name_are_refused() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::varied(folder.path().join("disk.raw"), 1, 5 << 20);
    let named = format!("root={}", disk.arg());
    let ran = agent.run(&["backup", "--vm", "vm", &named, &named]);
    assert!(matches!(ran.code, Some(1 | 2)), "{:?}", ran.code);
    assert!(ran.said().contains("root"), "{}", ran.said());
    nothing_of(&agent, "vm");
}

#[test]
fn a_disk_that_shrinks_while_it_is_read() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 1, FAR_BYTES);
    shrinking_backup(&server, &disk, 20 << 20).fails(1, &["disk.raw"]);
    nothing_of(&agent, "vm");
    agent.back_up("vm", &[disk.arg()]);
    assert_eq!(agent.read_back("vm"), disk.bytes());
}

/// More than an agent with one compressing thread reads ahead of the data it has sent: 14 extents in buffers, and some
/// 25 MiB compressed and in flight.
pub(crate) const FAR_BYTES: usize = 160 << 20;

/// A backup of the VM "vm" whose disk is truncated to `len` bytes when some of it has been sent, and most of it
/// not been read.
pub(crate) fn shrinking_backup(server: &Server, disk: &Disk, len: u64) -> Ran {
    while_sending(server, &[disk.arg()], 4 << 20, || disk.resize(len))
}

/// A backup of `disks` as the VM "vm". `act` is called when some megabytes have been sent; only `hold_at` bytes pass
/// before it returns.
pub(crate) fn while_sending(server: &Server, disks: &[&str], hold_at: u64, act: impl FnOnce()) -> Ran {
    let proxy = Proxy::holding(server.grpc(), hold_at);
    let agent = server.agent().through(proxy.address());
    let run = agent.start(&[&["backup", "--vm", "vm", "--threads", "1"], disks].concat());
    super::crash::wait_until_sending(server, hold_at / 4);
    act();
    proxy.release();
    run.wait()
}
