//! Restores into images, devices of an NBD server and folders; and names of restore points.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use holdfast_tests::disk::{allocated_bytes, noise};
use holdfast_tests::proxy::Proxy;
use holdfast_tests::tools::SmallFileSystem;
use holdfast_tests::{Agent, Disk, Ran, Server, tools, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

/// A server with one restore point of the VM "vm".
struct Site {
    folder: TempDir,
    server: Server,
    qemu_img: PathBuf,
    qemu_nbd: PathBuf,
    disk: Disk,
}

impl Site {
    /// `None`, said aloud, where QEMU's programs are not installed. The disk has odd ends, text, noise, zeros and holes.
    fn new(size_bytes: u64) -> Option<Self> {
        let (qemu_img, qemu_nbd) = (tools::find("qemu-img")?, tools::find("qemu-nbd")?);
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        let disk = Disk::varied(folder.path().join("guest.raw"), 1, size_bytes);
        server.agent().back_up("vm", &[disk.arg()]);
        Some(Self { folder, server, qemu_img, qemu_nbd, disk })
    }

    fn qemu_img(&self, args: &[&str]) {
        let (done, said) = tools::run(&self.qemu_img, args);
        assert!(done, "qemu-img {args:?}: {said}");
    }

    fn restore(&self, to: &str, more: &[&str]) -> Ran {
        self.server.agent().run(&[&["restore", "vm@latest", "--to", to], more].concat())
    }

    /// A restore of `vm` by an agent whose `qemu-nbd` does `first`, and then is the real one.
    fn restore_with(&self, agent: &Agent, vm: &str, first: &str, to: &Path) -> Command {
        let programs = self.folder.path().join("programs");
        fs::create_dir_all(&programs).unwrap();
        let script = format!("#!/bin/sh\n{first}\nexec {} \"$@\"\n", self.qemu_nbd.display());
        fs::write(programs.join("qemu-nbd"), script).unwrap();
        fs::set_permissions(programs.join("qemu-nbd"), Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let to = to.to_str().unwrap();
        let mut command = agent.command(&["restore", "latest", "--vm", vm, "--to", to]);
        command.env("PATH", path);
        command
    }

    /// Serves a raw file for writing, once.
    fn serve(&self, file: &Disk, name: &str, more: &[&str]) -> (String, Serving) {
        let socket = self.folder.path().join(name);
        let mut command = Command::new(&self.qemu_nbd);
        command.args(["--persistent", "--format=raw", "--socket"]).arg(&socket).args(more).arg(file.path());
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let serving = Serving(child);
        wait_for("qemu-nbd to listen", || socket.exists().then_some(()));
        (format!("nbd+unix:///?socket={}", socket.display()), serving)
    }
}

/// Ended when dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

const FORMATS: [(&str, &str); 5] =
    [("qcow2", "qcow2"), ("vmdk", "vmdk"), ("vdi", "vdi"), ("vhd", "vpc"), ("vhdx", "vhdx")];

#[test]
fn a_disk_is_the_same_in_every_format_it_is_restored_to() {
    let Some(site) = Site::new((40 << 20) + 777) else { return };
    let folder = site.folder.path().join("restored");
    fs::create_dir(&folder).unwrap();
    let to = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    site.restore(&to("guest.raw"), &[]).ok();
    for (ending, format) in FORMATS {
        let image = to(&format!("guest.{ending}"));
        site.restore(&image, &[]).ok();
        site.qemu_img(&["compare", "-f", "raw", "-F", format, &to("guest.raw"), &image]);
        if format != "vpc" {
            site.qemu_img(&["check", "-q", "-f", format, &image]);
        }
        let (room, data) = (allocated_bytes(image.as_ref()), allocated_bytes(to("guest.raw").as_ref()));
        assert!(room < data * 3 / 2 + (8 << 20), "{room} bytes as {format} for {data} of data");
        assert_eq!(fs::metadata(&image).unwrap().permissions().mode() & 0o777, 0o600, "{format}");
        // What is there is kept without --force, and replaced as a whole with it.
        let before = fs::read(&image).unwrap();
        site.restore(&image, &[]).fails(1, &["already exists", "--force"]);
        assert!(fs::read(&image).unwrap() == before);
        fs::write(&image, b"old").unwrap();
        site.restore(&image, &["--force", "--mode", "0640"]).ok();
        site.qemu_img(&["compare", "-f", "raw", "-F", format, &to("guest.raw"), &image]);
        assert_eq!(fs::metadata(&image).unwrap().permissions().mode() & 0o777, 0o640, "{format}");
        // The image is the disk again, but for zeros at the end that fill its last sector.
        let disk = format!("guest={image}");
        let row = site.server.agent().run(&["backup", "--vm", format, "--json", &disk]).ok().summary();
        let new = row["details"][0]["new_bytes"].as_u64().unwrap();
        assert!(new <= 64 << 10, "{new} bytes are new in {ending}");
    }
    // The name decides unless it is said.
    site.restore(&to("other.qcow2"), &["--format", "raw"]).ok();
    site.disk.assert_same(&folder.join("other.qcow2"));
    site.restore("-", &["--format", "qcow2"]).fails(2, &["standard output", "--to"]);
    let skip = ["--keep-going", "--bad-ranges", "skip"];
    site.restore(&to("skip.qcow2"), &skip).fails(2, &["--bad-ranges skip", "image"]);
    assert_eq!(names(&folder).len(), 7, "{:?}", names(&folder));
}

#[test]
fn an_image_that_cannot_be_finished_leaves_nothing() {
    let Some(site) = Site::new(24 << 20) else { return };
    let agent = site.server.agent();
    let folder = site.folder.path().join("restored");
    fs::create_dir(&folder).unwrap();
    let to = folder.join("guest.qcow2");
    let ran = |first: &str| Ran::of(first, site.restore_with(&agent, "vm", first, &to).output().unwrap());
    // A child that cannot start, and one whose file may not be longer than 1024 blocks.
    ran("echo no luck >&2; exit 7").fails(1, &["no luck", "guest.qcow2"]);
    ran("trap '' XFSZ; ulimit -f 1024").fails(1, &["writing", "guest.qcow2", "nothing of it was kept"]);
    // One that ends badly after all was written, and one that leaves an image whose tables are wrong.
    let real = format!("{} \"$@\"", site.qemu_nbd.display());
    ran(&format!("{real}; exit 3")).fails(1, &["closing", "exit status: 3"]);
    let partial = folder.join("guest.qcow2.holdfast-partial");
    let spoil = format!("printf XXXXXXXX | dd of={} bs=1 seek=65536 conv=notrunc", partial.display());
    ran(&format!("{real}; {spoil}; exit 0")).fails(1, &["closing", "qemu-img check"]);
    assert_eq!(names(&folder), Vec::<String>::new());

    // One whose name was made to lead elsewhere while it was written: it is not followed.
    let victim = site.folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let swap = format!("ln -sf {} {}", victim.display(), partial.display());
    ran(&swap).fails(1, &["another process replaced", "guest.qcow2.holdfast-partial"]);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    fs::remove_file(&partial).unwrap();

    // One that is killed in the middle: what comes from the server stops there.
    let noise = Disk::of_noise(site.folder.path().join("noise.raw"), 5, 24 << 20);
    agent.back_up("noise", &[noise.arg()]);
    let proxy = Proxy::rationing(site.server.grpc(), 10 << 20, u64::MAX);
    let pid = site.folder.path().join("pid");
    let first = format!("echo $$ > {}", pid.display());
    let mut restore = site.restore_with(&agent.through(proxy.address()), "noise", &first, &to);
    let restore = restore.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("a part of the image", || {
        (partial.exists() && allocated_bytes(&partial) > 2 << 20).then_some(())
    });
    let pid: i32 = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    proxy.release();
    let killed = Ran::of("restore", restore.wait_with_output().unwrap());
    killed.fails(1, &["qemu-nbd ended (signal: 9", "nothing of it was kept"]);
    assert_eq!(names(&folder), Vec::<String>::new());

    let full = site.folder.path().join("small");
    fs::create_dir(&full).unwrap();
    let Some(small) = SmallFileSystem::mount(&full, 2 << 20) else { return };
    for (ending, _) in FORMATS {
        let to = small.folder().join(format!("guest.{ending}"));
        site.restore(to.to_str().unwrap(), &[]).fails(1, &["no space left", "nothing of it was kept"]);
        assert_eq!(names(small.folder()), Vec::<String>::new(), "{ending}");
    }
}

#[test]
fn an_export_gets_the_disk_and_keeps_what_is_beyond() {
    let Some(site) = Site::new((16 << 20) + 100) else { return };
    let size = site.disk.bytes().len();
    let target = Disk::of_noise(site.folder.path().join("target.raw"), 99, 20 << 20);
    let (address, serving) = site.serve(&target, "target", &[]);
    site.restore(&address, &[]).fails(1, &["already exists", "--force"]);
    site.restore(&address, &["--force", "--format", "vdi"]).fails(2, &["an export", "--format vdi"]);
    assert_eq!(target.bytes(), noise(99, 20 << 20), "nothing was written");
    site.restore(&address, &["--force"]).ok();
    drop(serving);
    let written = target.bytes();
    assert!(written[..size] == site.disk.bytes(), "the disk");
    assert!(written[size..] == noise(99, 20 << 20)[size..], "what is beyond");
    let small = Disk::of_noise(site.folder.path().join("small.raw"), 98, 16 << 20);
    let (address, _serving) = site.serve(&small, "small", &[]);
    let sizes = ["16777216 bytes", "16777316"];
    site.restore(&address, &["--force"]).fails(1, &sizes);
    let (address, _serving) = site.serve(&target, "read-only", &["--read-only"]);
    site.restore(&address, &["--force"]).fails(1, &["read-only"]);
    assert!(target.bytes() == written && small.bytes() == noise(98, 16 << 20));
}

/// Restore points of a VM, oldest first, with the times at which they started.
fn points(agent: &Agent, vm: &str) -> Vec<(String, String)> {
    let summary = agent.run(&["list", "--vm", vm, "--json"]).ok().summary();
    let list = summary["backups"].as_array().unwrap().iter().rev();
    list.map(|point| (text(&point["backup"]), text(&point["started"]))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text")).to_owned()
}

#[test]
fn a_restore_point_is_named_by_its_vm_and_a_time_and_all_its_disks_go_to_a_folder() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("repository"));
    let agent = server.agent();
    let root = Disk::varied(folder.path().join("root.raw"), 1, 5 << 20);
    let data = Disk::varied(folder.path().join("data.raw"), 2, 6 << 20);
    agent.back_up("web@site", &[root.arg(), data.arg()]);
    let first = root.bytes();
    root.put(7, b"changed");
    agent.back_up("web@site", &[root.arg(), data.arg()]);
    let points = points(&agent, "web@site");
    let ((old, at), (new, _)) = (&points[0], &points[1]);
    let verified = |name: &str| text(&agent.run(&["verify", name, "--json"]).ok().summary()["backup"]);
    assert_eq!(verified(&format!("web@site@{at}")), *old, "not after that time");
    assert_eq!(verified("web@site@latest"), *new);
    let today = &points[1].1[..10];
    assert_eq!(verified(&format!("web@site@{today}")), *new, "the newest of the day");
    assert_eq!(verified("web@site@0s"), *new);
    let fails = |name: &str, code, words: &[&str]| drop(agent.run(&["verify", name]).fails(code, words));
    // To the second, as a list shows it: at least the one whose second it is.
    let (_, newest_at) = &points[1];
    assert_eq!(verified(&format!("web@site@{}Z", &newest_at[..19])), *new, "not after that second");
    fails("web@site@1969-12-31", 1, &["no restore point of 1969-12-31", old]);
    fails("web@site@1999-12-31", 1, &["no restore point of 1999-12-31", old]);
    fails("web@site@1999-12-31T12:00:00Z", 1, &["or before", old]);
    fails("web@site@2026-11-20T12:00:00", 2, &["is no time", "with its zone"]);
    fails("other@latest", 1, &["other"]);
    agent.run(&["verify", "web@site@latest", "--vm", "web"]).fails(2, &["--vm", "web@site"]);

    let to = folder.path().join("restored");
    let to_folder = format!("{}/", to.display());
    let restore = |name: &str, more: &[&str]| {
        agent.run(&[&["restore", name, "--to", &to_folder, "--json"], more].concat())
    };
    let summary = restore(&format!("web@site@{at}"), &[]).ok().summary();
    assert_eq!(names(&to), ["data.raw", "root.raw"]);
    assert!(fs::read(to.join("root.raw")).unwrap() == first);
    data.assert_same(&to.join("data.raw"));
    let of_disks =
        summary["disks"].as_array().unwrap().iter().map(|disk| disk["data_bytes"].as_u64().unwrap());
    assert_eq!(summary["data_bytes"].as_u64(), Some(of_disks.sum()), "{summary}");
    // One of them cannot be written: the other is, and the sum says which is missing.
    fs::remove_file(to.join("root.raw")).unwrap();
    fs::create_dir(to.join("root.raw.holdfast-partial")).unwrap();
    let partly = ["restore", new, "--to", &to_folder, "--force"];
    agent.run(&partly).fails(3, &["Restored 1 of 2 disks", "not whole: root"]);
    data.assert_same(&to.join("data.raw"));
    assert!(!to.join("root.raw").exists());
    // What a link in the folder leads to is no file: nothing is written to it, nor to the others.
    fs::remove_dir(to.join("root.raw.holdfast-partial")).unwrap();
    std::os::unix::fs::symlink("/dev/null", to.join("root.raw")).unwrap();
    agent.run(&partly).fails(2, &["root.raw is no file", "--disk"]);

    agent.run(&["hold", &format!("web@site@{at}"), "--reason", "a test"]).ok();
    agent.run(&["delete", &format!("web@site@{at}"), "--yes"]).fails(4, &["held"]);
    agent.run(&["delete", &format!("web@site@{today}"), "--yes"]).ok();
    assert_eq!(agent.backups("web@site"), std::slice::from_ref(old));
}
