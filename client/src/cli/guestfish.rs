//! `guestfish` as a child, which opens disks of a guest in a virtual machine of its own.
//!
//! A guest's file systems are data that a stranger may have made. What reads them is QEMU with a kernel of its own; started by root,
//! it is *nobody*, without a network. It gets a socket, a folder and a few limits, and is ended when nothing moves any more.

use std::fs;
use std::io::{self, Read, Write as _};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_nbd::{Disk, Extent, Place, Server};
use holdfast_proto::details::escape_line;
use parking_lot::Mutex;
use rustix::process::geteuid;

use super::export;
use super::readable::Opened;
use crate::cancel::Cancel;
use crate::child::{PrivateFolder, bound_to_thread, without_environment};
use crate::error::ClientError;

pub(super) const PROGRAM: &str = "guestfish";
pub(super) const PACKAGE: &str = "libguestfs-tools";
/// User and group that it works as when root starts it.
const NOBODY: u32 = 65_534;
/// Time without a read of a disk and without output after which it is ended: that of a slow server's longest outage, and more.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// How often that is looked at, and whether the user ended the command.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of one file that it may write: what it notes of a disk, and the appliance that it makes at first.
const FILE_MAX_BYTES: u64 = 16 << 30;
/// Bytes kept of its messages.
const MESSAGES_MAX: u64 = 4096;

/// The disks of a guest, where `guestfish` finds them.
pub(super) struct Guest {
    uris: Vec<String>,
    /// Sizes of all disks together.
    pub(super) size_bytes: u64,
    activity: Arc<Activity>,
    cancel: Cancel,
    folder: PrivateFolder,
    _server: Server,
}

/// Signs of work of a child.
#[derive(Default)]
struct Activity {
    /// Reads that ended, and pieces of output.
    moved: AtomicU64,
    /// Reads under way: one that waits for the server is no idleness of the child.
    reading: AtomicU64,
}

/// A disk whose reads are counted.
struct Counted(Arc<dyn Disk>, Arc<Activity>);

impl Disk for Counted {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.1.reading.fetch_add(1, Ordering::Relaxed);
        let read = self.0.read_at(offset, buffer);
        self.1.moved.fetch_add(1, Ordering::Relaxed);
        self.1.reading.fetch_sub(1, Ordering::Relaxed);
        read
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Vec<Extent>> {
        self.0.extents(range)
    }

    fn is_at_hand(&self, range: Range<u64>) -> bool {
        self.0.is_at_hand(range)
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> ClientError {
    ClientError::File { what, path: path.to_owned(), source }
}

fn said(text: &str) -> ClientError {
    failed("running", Path::new(PROGRAM), io::Error::other(escape_line(text.trim()).into_owned()))
}

impl Guest {
    /// Serves the disks of a restore point to `guestfish` alone.
    pub(super) fn new(opened: Opened, cancel: Cancel) -> Result<Self, ClientError> {
        let folder = PrivateFolder::new().map_err(|error| failed("using", &std::env::temp_dir(), error))?;
        let socket = folder.path().join("nbd");
        let listener = export::listen(&Place::Unix(socket.clone()))?;
        if geteuid().is_root() {
            // The socket while the folder is still ours: in a folder of theirs its name could lead elsewhere.
            for path in [socket.as_path(), folder.path()] {
                chown(path, Some(NOBODY), Some(NOBODY))
                    .map_err(|error| failed("giving away", path, error))?;
            }
        }
        let activity = Arc::<Activity>::default();
        let counted = |disk| Arc::new(Counted(disk, Arc::clone(&activity))) as Arc<dyn Disk>;
        // By number: names of disks may be anything.
        let disks = opened
            .disks
            .into_iter()
            .enumerate()
            .map(|(number, (_, disk))| (number.to_string(), counted(disk)));
        let disks: Vec<_> = disks.collect();
        let size_bytes = disks.iter().map(|(_, disk)| disk.size_bytes()).sum();
        let uris =
            disks.iter().map(|(name, _)| format!("nbd+unix:///{name}?socket={}", socket.display())).collect();
        let server = export::serve(listener, disks)?;
        Ok(Self { uris, size_bytes, activity, cancel, folder, _server: server })
    }

    /// Runs a script, and hands out what it prints. `inspect`: the guest's file systems are mounted as the guest has them. Blocks.
    ///
    /// # Errors
    /// What it said; the error of `output`.
    pub(super) fn run(
        &self,
        inspect: bool,
        script: &str,
        output: &mut dyn FnMut(&[u8]) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let mut command = Command::new(PROGRAM);
        command.args(["--ro", "--format=raw"]);
        command.args(self.uris.iter().flat_map(|uri| ["-a", uri]));
        command.args(inspect.then_some("-i"));
        without_environment(&mut command).env("HOME", self.folder.path());
        command.env("LIBGUESTFS_TMPDIR", self.folder.path()).env("LIBGUESTFS_CACHEDIR", "/var/tmp");
        command.env("LIBGUESTFS_BACKEND", "direct").current_dir("/").process_group(0);
        // As for a machine whose KVM is there and does not work: force_tcg.
        let settings = std::env::var_os("LIBGUESTFS_BACKEND_SETTINGS");
        command.envs(settings.map(|settings| ("LIBGUESTFS_BACKEND_SETTINGS", settings)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        bound_to_thread(confined(&mut command));
        let mut child = command.spawn().map_err(|error| said(&error.to_string()))?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let child = Mutex::new(child);
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| self.watch(&child, &ended));
            let messages = scope.spawn(|| messages(stderr));
            // It may end before it has read all.
            let begin = if inspect { "" } else { "run\n" };
            drop(stdin.map(|mut stdin| stdin.write_all(format!("{begin}{script}").as_bytes())));
            let copied = self.copy(stdout, output);
            if copied.is_err() {
                drop(child.lock().kill());
            }
            let text = messages.join().unwrap_or_default();
            ended.store(true, Ordering::Relaxed);
            let status = child.lock().wait().map_err(|error| said(&error.to_string()))?;
            if self.cancel.is_cancelled() {
                return Err(ClientError::Interrupted);
            }
            copied?;
            if status.success() { Ok(()) } else { Err(explained(&text)) }
        })
    }

    fn copy(
        &self,
        stdout: Option<impl Read>,
        output: &mut dyn FnMut(&[u8]) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let Some(mut stdout) = stdout else { return Ok(()) };
        let mut buffer = vec![0; 256 << 10];
        loop {
            let read = stdout.read(&mut buffer).map_err(|error| said(&error.to_string()))?;
            if read == 0 {
                return Ok(());
            }
            self.activity.moved.fetch_add(1, Ordering::Relaxed);
            output(buffer.get(..read).unwrap_or_default())?;
        }
    }

    /// Ends the child when nothing moves, or the user says so.
    fn watch(&self, child: &Mutex<Child>, ended: &AtomicBool) {
        let (mut seen, mut since) = (0, Instant::now());
        while !ended.load(Ordering::Relaxed) {
            let now = self.activity.moved.load(Ordering::Relaxed);
            if now != seen || self.activity.reading.load(Ordering::Relaxed) > 0 {
                (seen, since) = (now, Instant::now());
            }
            if self.cancel.is_cancelled() || since.elapsed() > IDLE_TIMEOUT {
                drop(child.lock().kill());
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// The beginning of a child's messages; the rest is read and dropped.
fn messages(stderr: Option<impl Read>) -> String {
    let Some(mut stderr) = stderr else { return String::new() };
    let mut text = Vec::new();
    drop((&mut stderr).take(MESSAGES_MAX).read_to_end(&mut text));
    drop(io::copy(&mut stderr, &mut io::sink()));
    String::from_utf8_lossy(&text).into_owned()
}

/// The error for what `guestfish` said, with what to do about it.
fn explained(text: &str) -> ClientError {
    let hint = if text.contains("no operating system was found") || text.contains("multi-boot") {
        "; name the file system before the path, as sda1:/etc (files ls without a path shows which there are)"
    } else if text.contains("BitLocker") || text.contains("LUKS") || text.contains("crypto") {
        "; the file system is encrypted in the guest, and only its owner can open it"
    } else if text.contains("unknown filesystem type") || text.contains("wrong fs type") {
        "; libguestfs does not know this file system, as ReFS, or it is encrypted: 'holdfast export' serves the whole disk"
    } else if text.contains("/boot/vmlinuz") || text.contains("supermin") {
        "; libguestfs needs a kernel that it can read, see 'libguestfs-test-tool'"
    } else {
        ""
    };
    said(&format!("{}{hint}", text.trim()))
}

/// Takes privileges from a program that is to be started, and gives it limits.
fn confined(command: &mut Command) -> &mut Command {
    let is_root = geteuid().is_root();
    // With the group of KVM's device it is ten times as fast.
    let kvm = fs::metadata("/dev/kvm").map_or(NOBODY, |device| device.gid());
    let groups = [if kvm == 0 { NOBODY } else { kvm }];
    let limit = |bytes| libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    let limits = [
        (libc::RLIMIT_CORE, limit(0)),
        (libc::RLIMIT_FSIZE, limit(FILE_MAX_BYTES)),
        (libc::RLIMIT_NOFILE, limit(1024)),
    ];
    let done = |outcome: libc::c_int| if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: system calls on values of this closure, none of which allocates or takes a lock.
    unsafe {
        command.pre_exec(move || {
            for (resource, limit) in &limits {
                done(libc::setrlimit(*resource, limit))?;
            }
            if is_root {
                done(libc::unshare(libc::CLONE_NEWNET))?;
                done(libc::setgroups(groups.len(), groups.as_ptr()))?;
                done(libc::setgid(NOBODY))?;
                done(libc::setuid(NOBODY))?;
            }
            Ok(())
        })
    }
}
