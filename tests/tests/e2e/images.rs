//! Images of disks and exports of NBD servers: the disk in them is what is backed up.

use std::fs;
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use holdfast_tests::proxy::Proxy;
use holdfast_tests::{Agent, Disk, Ran, Server, disk::noise, tools, wait_for};
use serde_json::Value;
use tempfile::{TempDir, tempdir};

use super::sources::{FAR_BYTES, while_sending};

/// A server, and a folder with a guest's disk, from which images are made.
struct Site {
    folder: TempDir,
    server: Server,
    qemu_img: PathBuf,
    disk: Disk,
}

impl Site {
    /// `None`, said aloud, where QEMU's programs are not installed.
    fn new(size_bytes: u64) -> Option<Self> {
        let (qemu_img, _) = (tools::find("qemu-img")?, tools::find("qemu-nbd")?);
        let folder = tempdir().unwrap();
        let server = Server::start(&folder.path().join("repository"));
        let disk = Disk::varied(folder.path().join("guest.raw"), 1, size_bytes);
        Some(Self { folder, server, qemu_img, disk })
    }

    fn agent(&self) -> Agent {
        self.server.agent()
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    fn qemu_img(&self, args: &[&str]) {
        let (done, said) = tools::run(&self.qemu_img, args);
        assert!(done, "qemu-img {args:?}: {said}");
    }

    /// An image of the guest's disk.
    fn convert(&self, name: &str, options: &[&str]) -> String {
        let to = self.path(name);
        self.qemu_img(&[&["convert", "-f", "raw"], options, &[self.disk.arg(), &to]].concat());
        to
    }

    /// The restored disk is that of the image, read by QEMU, and that of the guest; formats that count in larger units
    /// than bytes add zeros.
    fn assert_restored(&self, vm: &str, format: &str, image: &str) {
        let restored = self.folder.path().join(format!("{vm}.restored"));
        self.agent().restore(vm, None, &restored);
        self.qemu_img(&["compare", "-f", "raw", "-F", format, restored.to_str().unwrap(), image]);
        let (bytes, guest) = (fs::read(&restored).unwrap(), self.disk.bytes());
        assert!(bytes.starts_with(&guest) && bytes[guest.len()..].iter().all(|byte| *byte == 0), "{vm}");
    }
}

/// A backup that must succeed: its details' only row, and what it read.
fn back_up(agent: &Agent, vm: &str, args: &[&str]) -> (Value, u64) {
    let summary = agent.run(&[&["backup", "--vm", vm, "--json"], args].concat()).ok().summary();
    let read = summary["stages"]["read"]["bytes"].as_u64().unwrap_or_else(|| panic!("{summary}"));
    (summary["details"][0].clone(), read)
}

fn number(row: &Value, column: &str) -> u64 {
    row[column].as_u64().unwrap_or_else(|| panic!("no {column} in {row}"))
}

/// Name, QEMU's format, and what `qemu-img convert` is told.
const IMAGES: [(&str, &str, &[&str]); 10] = [
    ("plain.qcow2", "qcow2", &["-O", "qcow2"]),
    ("old.qcow2", "qcow2", &["-O", "qcow2", "-o", "compat=0.10"]),
    ("compressed.qcow2", "qcow2", &["-c", "-O", "qcow2"]),
    ("sparse.vmdk", "vmdk", &["-O", "vmdk"]),
    ("split.vmdk", "vmdk", &["-O", "vmdk", "-o", "subformat=twoGbMaxExtentFlat"]),
    ("streamed.vmdk", "vmdk", &["-O", "vmdk", "-o", "subformat=streamOptimized"]),
    ("box.vdi", "vdi", &["-O", "vdi"]),
    ("hyper.vhdx", "vhdx", &["-O", "vhdx"]),
    ("dynamic.vhd", "vpc", &["-O", "vpc"]),
    ("fixed.vhd", "vpc", &["-O", "vpc", "-o", "subformat=fixed"]),
];

#[test]
fn a_guest_is_the_same_disk_in_every_format() {
    let Some(site) = Site::new(40 << 20) else { return };
    let agent = site.agent();
    let (raw, _) = back_up(&agent, "raw", &[site.disk.arg()]);
    for (name, format, options) in IMAGES {
        let image = site.convert(name, options);
        let (row, read) = back_up(&agent, name, &[&image]);
        let (data, new) = (number(&row, "bytes"), number(&row, "new_bytes"));
        assert!(new * 200 < number(&raw, "bytes"), "{new} of {data} bytes are new in {name}");
        // QEMU's driver for VHDX does not tell holes.
        let most = if format == "vhdx" { u64::MAX } else { site.disk.bytes().len() as u64 / 3 };
        assert!(read < most, "holes of {name} were read: {read} bytes");
        site.assert_restored(name, format, &image);
        let again = number(&back_up(&agent, name, &[&image]).0, "new_bytes");
        assert_eq!(again, 0, "{name} again");
    }
}

#[test]
fn an_image_is_not_opened_on_the_word_of_its_bytes_alone() {
    let Some(site) = Site::new(5 << 20) else { return };
    let agent = site.agent();
    let image = site.convert("guest.img", &["-O", "qcow2"]);
    let back_up = |more: &[&str]| agent.run(&[&["backup", "--vm", "vm"], more, &[&image]].concat());
    back_up(&[]).fails(1, &["guest.img", "begins like a qcow2 image", "--format qcow2", "--format raw"]);
    agent.run(&["estimate", &image]).fails(1, &["--format qcow2"]);
    back_up(&["--format", "qcow2"]).ok();
    site.assert_restored("vm", "qcow2", &image);
    back_up(&["--format", "vdi"]).fails(1, &["guest.img", "qemu-img check", "Unsupported VDI image size"]);
    back_up(&["--format", "raw", "--accept-change"]).ok();
    assert_eq!(agent.read_back("vm"), fs::read(&image).unwrap());
    let called = site.path("called.qcow2");
    fs::copy(site.disk.path(), &called).unwrap();
    agent.run(&["backup", "--vm", "vm", &called]).fails(1, &["does not begin like one"]);
    // An estimate reads what a backup reads.
    let good = site.convert("guest.qcow2", &["-c", "-O", "qcow2"]);
    let estimate = |disk: &str| agent.run(&["estimate", "--json", &format!("d={disk}")]).ok().summary();
    let (of_image, of_raw) = (estimate(&good), estimate(site.disk.arg()));
    assert_eq!(of_image["figures"], of_raw["figures"]);
}

#[test]
fn an_encrypted_image_is_refused_and_its_ciphertext_is_not() {
    let Some(site) = Site::new(3 << 20) else { return };
    let agent = site.agent();
    let image = site.convert("luks.qcow2", &["-O", "qcow2"]);
    // As `qemu-img` makes them: it measures how fast the machine is, and fails on a busy one.
    let mut qcow2 = fs::read(&image).unwrap();
    qcow2[32..36].copy_from_slice(&2u32.to_be_bytes());
    let luks = [&b"LUKS\xba\xbe\0\x01"[..], &noise(5, 1 << 20)].concat();
    for (name, bytes) in [("luks.qcow2", qcow2), ("luks.img", luks)] {
        let image = site.path(name);
        fs::write(&image, &bytes).unwrap();
        agent.run(&["backup", "--vm", name, &image]).fails(1, &[name, "encrypted", "--format raw"]);
        agent.run(&["backup", "--vm", name, "--format", "raw", &image]).ok();
        assert!(agent.read_back(name) == bytes);
    }
}

#[test]
fn a_chain_of_images_is_one_disk_and_leaves_its_folder_only_with_leave() {
    let Some(site) = Site::new(9 << 20) else { return };
    let agent = site.agent();
    fs::create_dir(site.folder.path().join("vm")).unwrap();
    let base = site.convert("base.qcow2", &["-c", "-O", "qcow2"]);
    let (middle, top) = (site.path("vm/middle.qcow2"), site.path("vm/top.qcow2"));
    site.qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "../base.qcow2", &middle]);
    let data = format!("data_file={}", site.path("vm/top.data"));
    site.qemu_img(&["create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "middle.qcow2", "-o", &data, &top]);
    let write = format!("write -P 90 {} 70k", 1 << 20);
    if let Some(qemu_io) = tools::find("qemu-io") {
        let (done, said) = tools::run(&qemu_io, &["-f", "qcow2", "-c", &write, &top]);
        assert!(done, "{said}");
        site.disk.put(1 << 20, &[90; 70 << 10]);
    }
    agent
        .run(&["backup", "--vm", "vm", &top])
        .fails(1, &["middle.qcow2", "../base.qcow2", "--allow-backing"]);
    back_up(&agent, "vm", &["--allow-backing", &top]);
    site.assert_restored("vm", "qcow2", &top);
    fs::remove_file(&base).unwrap();
    agent.run(&["backup", "--vm", "vm", "--allow-backing", &top]).fails(1, &["base.qcow2", "cannot open"]);
}

#[test]
fn a_hostile_image_reads_no_file_of_the_host() {
    let Some(site) = Site::new(2 << 20) else { return };
    let agent = site.agent();
    fs::create_dir(site.folder.path().join("vm")).unwrap();
    let secret = site.path("secret");
    fs::write(&secret, noise(9, 1 << 20)).unwrap();
    let image = site.path("vm/hostile.qcow2");
    let json =
        format!("json:{{\"driver\":\"raw\",\"file\":{{\"driver\":\"file\",\"filename\":\"{secret}\"}}}}");
    for (backing, why) in
        [(secret.as_str(), "outside the image's folder"), (json.as_str(), "not the path of a file")]
    {
        site.qemu_img(&["create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", backing, &image, "1M"]);
        agent.run(&["backup", "--vm", "vm", &image]).fails(1, &[why]);
    }
    let vmdk = site.path("vm/hostile.vmdk");
    let descriptor = format!(
        "# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\
         RW 2048 FLAT \"{secret}\" 0\n"
    );
    fs::write(&vmdk, descriptor).unwrap();
    agent.run(&["backup", "--vm", "vm", &vmdk]).fails(1, &["outside the image's folder"]);
    assert!(agent.backups("vm").is_empty());
    agent.run(&["backup", "--vm", "vm", "--allow-backing", &vmdk]).ok();
    assert_eq!(agent.read_back("vm"), fs::read(&secret).unwrap(), "the descriptor is one that QEMU follows");
}

#[test]
fn without_qemu_its_package_is_named() {
    let Some(site) = Site::new(1 << 20) else { return };
    let image = site.convert("guest.qcow2", &["-O", "qcow2"]);
    let output = site.agent().command(&["backup", "--vm", "vm", &image]).env("PATH", "").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("qemu-utils") && said.contains("guest.qcow2"), "{said}");
}

/// Processes whose command line has `text`.
fn processes_with(text: &str) -> Vec<i32> {
    let pids =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let named = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"qemu-nbd") && String::from_utf8_lossy(&line).contains(text)
    };
    pids.filter(named).collect()
}

/// An image whose backup can be stopped in the middle.
fn long_image(site: &Site) -> String {
    let disk = Disk::of_noise(site.folder.path().join("long.raw"), 3, FAR_BYTES);
    let image = site.path("long.qcow2");
    site.qemu_img(&["convert", "-O", "qcow2", disk.arg(), &image]);
    image
}

#[test]
fn a_killed_agent_leaves_no_qemu_behind() {
    let Some(site) = Site::new(1 << 20) else { return };
    let image = long_image(&site);
    let proxy = Proxy::holding(site.server.grpc(), 4 << 20);
    let run = site.agent().through(proxy.address()).start(&["backup", "--vm", "vm", &image]);
    super::crash::wait_until_sending(&site.server, 1 << 20);
    assert_eq!(processes_with(&image).len(), 1);
    run.kill();
    wait_for("qemu-nbd to end", || processes_with(&image).is_empty().then_some(()));
}

#[test]
fn a_killed_qemu_fails_the_backup_and_the_attempt_is_recorded() {
    let Some(site) = Site::new(1 << 20) else { return };
    let image = long_image(&site);
    let kill = || {
        let pid = processes_with(&image)[0];
        rustix::process::kill_process(
            rustix::process::Pid::from_raw(pid).unwrap(),
            rustix::process::Signal::KILL,
        )
        .unwrap();
        wait_for("qemu-nbd to end", || processes_with(&image).is_empty().then_some(()));
    };
    let ran = while_sending(&site.server, &[&image], 4 << 20, kill)
        .fails(1, &["long.qcow2", "qemu-nbd", "signal: 9"]);
    assert!(site.agent().backups("vm").is_empty(), "{}", ran.said());
    let rows = site.agent().report();
    assert!(
        rows.iter().any(|row| row.text("status") == "aborted" && row.text("error").contains("qemu-nbd")),
        "{rows:?}"
    );
    // It was nothing of the image.
    back_up(&site.agent(), "vm", &[&image]);
}

#[test]
fn an_image_that_is_written_to_while_it_is_read_is_not_backed_up() {
    let Some(site) = Site::new(1 << 20) else { return };
    let image = long_image(&site);
    // Its last cluster: neither its tables nor its length change.
    let touch = || {
        let last = fs::metadata(&image).unwrap().len() - 1;
        let file = fs::File::options().write(true).open(&image).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", last).unwrap();
    };
    while_sending(&site.server, &[&image], 4 << 20, touch)
        .fails(1, &["long.qcow2", "was written to", "snapshot"]);
    assert!(site.agent().backups("vm").is_empty());
}

#[test]
fn an_image_that_a_machine_writes_to_is_refused() {
    let Some(site) = Site::new(1 << 20) else { return };
    let image = site.convert("guest.qcow2", &["-O", "qcow2"]);
    // Holds QEMU's lock as a guest does.
    let _guest = Export::start(&site, &["--format=qcow2", &image]);
    site.agent().run(&["backup", "--vm", "vm", &image]).fails(1, &["guest.qcow2", "lock"]);
}

/// An NBD server that is not ours, ended when dropped.
struct Export {
    child: Child,
    socket: PathBuf,
}

impl Export {
    fn start(site: &Site, args: &[&str]) -> Self {
        let socket = site.folder.path().join("nbd.sock");
        let mut command = Command::new(tools::find("qemu-nbd").unwrap());
        command.args(["--persistent", "--export-name=web root", "--socket"]).arg(&socket).args(args);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_for("qemu-nbd to listen", || UnixStream::connect(&socket).ok());
        Self { child, socket }
    }

    /// `root=nbd+unix:///…`
    fn argument(&self, export: &str) -> String {
        format!("root=nbd+unix:///{export}?socket={}", self.socket.display())
    }

    /// A port that leads to the socket, while the test runs.
    fn over_tcp(&self) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let socket = self.socket.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map(Result::unwrap) {
                let far = UnixStream::connect(&socket).unwrap();
                let (mut up, mut to) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                std::thread::spawn(move || pass_on(&mut up, &mut to).map(|()| to.shutdown(Shutdown::Write)));
                let (mut near, mut far) = (near, far);
                std::thread::spawn(move || {
                    pass_on(&mut far, &mut near).map(|()| near.shutdown(Shutdown::Write))
                });
            }
        });
        port
    }
}

fn pass_on(from: &mut impl std::io::Read, to: &mut impl std::io::Write) -> std::io::Result<()> {
    std::io::copy(from, to).map(drop)
}

impl Drop for Export {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn an_export_of_an_nbd_server_is_a_source() {
    let Some(site) = Site::new(20 << 20) else { return };
    let agent = site.agent();
    let (raw, _) = back_up(&agent, "raw", &[site.disk.arg()]);
    for (mode, shared) in
        [("--read-only", "--shared=8"), ("--read-only", "--shared=1"), ("--discard=unmap", "--shared=8")]
    {
        let image = site.convert("served.qcow2", &["-O", "qcow2"]);
        let export = Export::start(&site, &["--format=qcow2", mode, shared, &image]);
        let tcp = format!("root=nbd://127.0.0.1:{}/web%20root", export.over_tcp());
        for argument in [export.argument("web%20root"), tcp] {
            let vm = format!("vm{mode}{shared}{}", argument.len());
            let (row, read) = back_up(&agent, &vm, &[&argument]);
            assert_eq!(
                (number(&row, "bytes"), number(&row, "new_bytes")),
                (number(&raw, "bytes"), 0),
                "{argument}"
            );
            assert!(read < 10 << 20, "holes were read: {read} bytes");
            assert_eq!(agent.read_back(&vm), site.disk.bytes());
        }
    }
}

#[test]
fn an_export_that_cannot_be_read_is_an_error_with_its_address() {
    let Some(site) = Site::new(2 << 20) else { return };
    let image = site.convert("served.qcow2", &["-O", "qcow2"]);
    let export = Export::start(&site, &["--format=raw", "--read-only", &image]);
    let back_up = |disk: &str| -> Ran { site.agent().run(&["backup", "--vm", "vm", disk]) };
    back_up(&export.argument("other")).fails(1, &["nbd+unix:///other", "no such export"]);
    back_up(&export.argument("web%20root")).fails(1, &["serves the bytes of a qcow2 image", "--format raw"]);
    back_up("nbd://host/disk").fails(1, &["NAME="]);
    back_up("root=nbds://host/disk").fails(1, &["tls-certificates"]);
    let nowhere = format!("root=nbd+unix:///?socket={}", site.path("nowhere"));
    back_up(&nowhere).fails(1, &["cannot open nbd+unix", "No such file"]);
    let raw = ["backup", "--vm", "vm", "--format", "raw", &export.argument("web%20root")];
    site.agent().run(&raw).ok();
    assert_eq!(site.agent().read_back("vm"), fs::read(&image).unwrap());
    let vdi = ["backup", "--vm", "vm", "--format", "vdi", &export.argument("web%20root")];
    site.agent().run(&vdi).fails(1, &["--format vdi is for files"]);
}
