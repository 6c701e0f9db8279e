//! Disks of restore points read where they are: by NBD clients that no one here wrote, and by a guest that boots.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use holdfast_tests::agent::Agent;
use holdfast_tests::proxy::Proxy;
use holdfast_tests::repository::{Class, Container, containers_of};
use holdfast_tests::{Disk, Server, tools, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::end_to_end;

/// A `holdfast export` in progress. Ended when dropped.
struct Export {
    child: Child,
    stdout: BufReader<ChildStdout>,
    socket: PathBuf,
}

impl Export {
    /// Exports the newest restore point of `vm`, once it listens.
    fn start(agent: &Agent, vm: &str, folder: &Path, args: &[&str]) -> Self {
        let socket = folder.join("export.sock");
        let listen = format!("unix:{}", socket.display());
        let mut command = agent.command(&["export", "latest", "--vm", vm, "--json", "--listen", &listen]);
        let log = std::fs::File::create(folder.join("export.log")).unwrap();
        let mut child = command.args(args).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"));
        assert_eq!(said["type"], "listening");
        Self { child, stdout, socket }
    }

    fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket.display())
    }

    /// Ends it as Ctrl-C does.
    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let status = wait_for("the export to end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
        let mut summary = String::new();
        self.stdout.read_line(&mut summary).unwrap();
        assert!(summary.contains("summary"), "{summary}");
        assert!(!self.socket.exists());
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn server() -> (TempDir, Server) {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    (folder, server)
}

/// Runs a program of the system, which must succeed. `None`: it is not installed.
fn run(program: &str, args: &[&str]) -> Option<String> {
    let (done, said) = tools::run(&tools::find(program)?, args);
    assert!(done, "{program} {args:?}: {said}");
    Some(said)
}

#[test]
fn clients_that_others_wrote_read_what_was_backed_up() {
    let (folder, server) = server();
    let root = Disk::varied(folder.path().join("root.raw"), 1, (90 << 20) + 512);
    let data = Disk::of_noise(folder.path().join("data.raw"), 2, 5 << 20);
    server.agent().back_up("vm", &[root.arg(), data.arg()]);
    let export = Export::start(&server.agent(), "vm", folder.path(), &[]);
    let copy = folder.path().join("copy");
    let copy = copy.to_str().unwrap();
    for (name, disk) in [("root", &root), ("data", &data)] {
        let uri = export.uri(name);
        if run("nbdcopy", &[&uri, copy]).is_some() {
            disk.assert_same(Path::new(copy));
        }
        run("qemu-img", &["compare", "-f", "raw", "-F", "raw", disk.arg(), &uri]);
        let qcow2 = format!("{copy}.qcow2");
        run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &qcow2]);
        run("qemu-img", &["compare", "-f", "raw", "-F", "qcow2", disk.arg(), &qcow2]);
    }
    let uri = export.uri("root");
    // Reads here and there, one of them not by blocks, and writes are refused.
    let read = ["-c", "read 77777 12345", "-c", "read 90M 512", "-c", "read 3M 17M"];
    run("qemu-io", &[&["-r", "-f", "raw"][..], &read, &[&uri]].concat());
    if let Some(info) = run("nbdinfo", &["--json", &export.uri("data")]) {
        let info: Value = serde_json::from_str(&info).unwrap();
        let only = &info["exports"][0];
        assert_eq!(
            (&only["export-size"], &only["is_read_only"]),
            (&Value::from(5 << 20), &Value::from(true))
        );
        assert_eq!((&only["can_multi_conn"], &info["structured"]), (&Value::from(true), &Value::from(true)));
    }
    if let Some(list) = run("nbdinfo", &["--list", "--json", &export.uri("")]) {
        let list: Value = serde_json::from_str(&list).unwrap();
        let names: Vec<_> =
            list["exports"].as_array().unwrap().iter().map(|one| &one["export-name"]).collect();
        assert_eq!(names, ["root", "data"]);
    }
    // Holes are where the recipe has zeros.
    if let Some(map) = run("nbdinfo", &["--map", "--json", &uri]) {
        let map: Value = serde_json::from_str(&map).unwrap();
        let bytes = root.bytes();
        for extent in map.as_array().unwrap() {
            let number = |field: &str| usize::try_from(extent[field].as_u64().unwrap()).unwrap();
            let part = &bytes[number("offset")..number("offset") + number("length")];
            assert!(extent["type"] == 0 || part.iter().all(|byte| *byte == 0), "{extent}");
        }
        assert!(map.as_array().unwrap().iter().any(|extent| extent["type"] != 0), "{map}");
    }
    export.end();
    // The only disk has no name, also over TCP.
    let args = ["export", "latest", "--vm", "vm", "--disk", "none", "--listen", ":0"];
    server.agent().run(&args).fails(1, &["has no disk", "root, data"]);
}

#[test]
fn an_export_survives_its_server_and_names_what_it_cannot_read() {
    let (folder, server) = server();
    let disk = Disk::of_noise(folder.path().join("disk.raw"), 3, 40 << 20);
    server.agent().back_up("vm", &[disk.arg()]);
    let copy = folder.path().join("copy");
    let copy = copy.to_str().unwrap();
    // The connection breaks halfway.
    let proxy = Proxy::cutting_one_down(server.grpc(), 9 << 20);
    let export =
        Export::start(&server.agent().through(proxy.address()), "vm", folder.path(), &["--disk", "disk"]);
    if run("nbdcopy", &[&export.uri(""), copy]).is_some() {
        assert!(proxy.has_cut_one());
        disk.assert_same(Path::new(copy));
    }
    export.end();
    // Damage fails the reads that need the data, and no other. The server has in memory what was read before, and nothing else.
    let read = containers_of(server.data_dir(), Class::Data);
    let hurt = Disk::of_noise(folder.path().join("hurt.raw"), 5, 40 << 20);
    server.agent().back_up("hurt", &[&format!("disk={}", hurt.arg())]);
    let is_new = |container: &Container| read.iter().all(|known| known.path != container.path);
    let container = containers_of(server.data_dir(), Class::Data).into_iter().find(is_new).unwrap();
    container.flip_bit(container.len / 2);
    let export = Export::start(&server.agent(), "hurt", folder.path(), &[]);
    let Some(qemu_io) = tools::find("qemu-io") else { return };
    let mut lost = 0;
    for at in 0..40 {
        let read = format!("read {at}M 1M");
        let (done, said) = tools::run(&qemu_io, &["-r", "-f", "raw", "-c", &read, &export.uri("disk")]);
        let failed = !done || said.contains("Input/output error");
        lost += u32::from(failed);
        assert!(failed || said.contains("read 1048576/1048576"), "{said}");
    }
    assert!((1..4).contains(&lost), "{lost} MiB of 40 cannot be read");
    let log = std::fs::read_to_string(folder.path().join("export.log")).unwrap();
    assert!(log.contains("cannot be read"), "{log}");
}

#[test]
fn a_namespace_with_a_key_is_read_with_it_and_a_deleted_restore_point_is_an_error() {
    let scene = end_to_end::Scene::new();
    let disk = Disk::varied(scene.folder.path().join("disk.raw"), 4, 20 << 20);
    scene.back_up("vm", &disk);
    let key = ["--namespace", "vault", "--namespace-key", scene.key.to_str().unwrap()];
    let export = Export::start(&scene.agent, "vm", scene.folder.path(), &key);
    let Some(qemu_img) = tools::find("qemu-img") else { return };
    let (same, said) =
        tools::run(&qemu_img, &["compare", "-f", "raw", "-F", "raw", disk.arg(), &export.uri("")]);
    assert!(same, "{said}");
    export.end();
    // Deleted before it is read.
    let export = Export::start(&scene.agent, "vm", scene.folder.path(), &key);
    let id = scene.points("vm").remove(0);
    scene.run(&["delete", &id, "--vm", "vm", "--yes"]).ok();
    let (same, said) =
        tools::run(&qemu_img, &["compare", "-f", "raw", "-F", "raw", disk.arg(), &export.uri("")]);
    assert!(!same, "{said}");
    let log = std::fs::read_to_string(scene.folder.path().join("export.log")).unwrap();
    assert!(log.contains("reads of a disk failed") && log.contains(&id), "{log}");
}

/// A boot sector that prints a marker on the first serial port, in the machine's 16-bit code, and halts.
fn boot_sector(marker: &str) -> Vec<u8> {
    // cli; xor ax, ax; mov ds, ax; mov si, 0x7c00 + text; cld
    let mut code = vec![0xFA, 0x31, 0xC0, 0x8E, 0xD8, 0xBE, 0, 0, 0xFC];
    // next: lodsb; test al, al; jz end; mov ah, 1; xor dx, dx; int 0x14; jmp next
    code.extend([0xAC, 0x84, 0xC0, 0x74, 0x08, 0xB4, 0x01, 0x31, 0xD2, 0xCD, 0x14, 0xEB, 0xF3]);
    // end: hlt; jmp end
    code.extend([0xF4, 0xEB, 0xFD]);
    let text = u16::try_from(0x7C00 + code.len()).unwrap().to_le_bytes();
    code[6..8].copy_from_slice(&text);
    code.extend(marker.bytes());
    code.resize(510, 0);
    code.extend([0x55, 0xAA]);
    code
}

#[test]
fn a_guest_boots_by_its_own_boot_loader() {
    if [tools::find("qemu-system-x86_64"), tools::find("qemu-img")].contains(&None) {
        return;
    }
    let (folder, server) = server();
    let disk = Disk::empty(folder.path().join("disk.raw"), 8 << 20);
    disk.put(0, &boot_sector("HOLDFAST-BOOTED"));
    server.agent().back_up("vm", &[disk.arg()]);
    let kept = folder.path().join("kept");
    std::fs::create_dir(&kept).unwrap();
    // The second time takes up the overlay of the first.
    for _ in 0..2 {
        let args = ["boot", "latest", "--vm", "vm", "--memory", "64MiB", "--cpus", "1", "--overlay"];
        let mut command: Command = server.agent().command(&args);
        let mut child = command
            .arg(&kept)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut console = BufReader::new(child.stdout.take().unwrap());
        let mut said = Vec::new();
        while !String::from_utf8_lossy(&said).contains("HOLDFAST-BOOTED") {
            let more = console.fill_buf().unwrap().to_vec();
            assert!(!more.is_empty(), "it ended: {}", String::from_utf8_lossy(&said));
            console.consume(more.len());
            said.extend(more);
        }
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        let status = wait_for("the command to end", || child.try_wait().unwrap());
        assert!(status.success(), "{status}");
        assert!(kept.join("disk.qcow2").exists());
    }
    disk.put(4096, b"another");
    server.agent().back_up("vm", &[disk.arg()]);
    let args = ["boot", "latest", "--vm", "vm", "--overlay", kept.to_str().unwrap()];
    server.agent().run(&args).fails(2, &["another disk", "--overlay"]);
}

/// Takes half a minute a command without KVM, so `cargo xtask test --slow` runs it.
#[test]
fn files_come_out_of_a_file_system_by_libguestfs() {
    if std::env::var_os("HOLDFAST_SLOW_TESTS").is_none() {
        return;
    }
    let (Some(mke2fs), Some(_), Some(tar)) =
        (tools::find("mke2fs"), tools::find("guestfish"), tools::find("tar"))
    else {
        return;
    };
    let (folder, server) = server();
    let tree = folder.path().join("tree");
    std::fs::create_dir_all(tree.join("etc")).unwrap();
    std::fs::write(tree.join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    std::fs::write(tree.join("etc/a\nb\x1b[2J"), "odd").unwrap();
    let disk = Disk::empty(folder.path().join("disk.raw"), 64 << 20);
    let (made, said) = tools::run(&mke2fs, &["-q", "-t", "ext4", "-d", tree.to_str().unwrap(), disk.arg()]);
    assert!(made, "{said}");
    server.agent().back_up("vm", &[disk.arg()]);
    let files = |args: &[&str]| {
        let mut command = server.agent().command(&["files"]);
        let ran = command.args(args).env("LIBGUESTFS_BACKEND_SETTINGS", "force_tcg").output().unwrap();
        let said = [&ran.stdout, &ran.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        (ran.status.code(), said.concat())
    };
    let (code, said) = files(&["ls", "latest", "--vm", "vm", "sda:/etc"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("hosts\n") && said.contains("a\\u{a}b\\u{1b}[2J"), "{said}");
    let archive = folder.path().join("etc.tar");
    let to = archive.to_str().unwrap();
    let (code, said) = files(&["tar", "latest", "--vm", "vm", "sda:/etc", to]);
    assert_eq!(code, Some(0), "{said}");
    let (read, listed) = tools::run(&tar, &["-xOf", to, "./hosts"]);
    assert!(read && listed.starts_with("127.0.0.1 localhost\n"), "{listed}");
    let (code, said) = files(&["tar", "latest", "--vm", "vm", "sda:/etc", to]);
    assert!(code == Some(2) && said.contains("already exists"), "{said}");
    // Without an operating system, a path needs its file system.
    let none = folder.path().join("none.tar");
    let (code, said) = files(&["tar", "latest", "--vm", "vm", "/etc", none.to_str().unwrap()]);
    assert!(code == Some(1) && said.contains("name the file system"), "{said}");
    assert!(!none.exists());
}
