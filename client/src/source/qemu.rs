//! `qemu-nbd` as a child, which opens an image and serves the disk in it on a socket that no one else can reach: to read it,
//! or to write one that was just made.
//!
//! It ends with us, however we end: it exits when its last client is gone, and the kernel ends it with the thread that
//! started it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use holdfast_nbd::{Address, CONNECTIONS_MAX, Export, NbdError};
use holdfast_proto::details::escape_line;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};

use super::Format;
use crate::child::{PrivateFolder, bound_to_thread, is_installed, without_environment};

/// The program.
const PROGRAM: &str = "qemu-nbd";
/// Its neighbour in the same package.
const IMG: &str = "qemu-img";
/// The remedy where they are missing.
pub(crate) const PACKAGE: &str =
    "install the package qemu-utils (Debian, Ubuntu) or qemu-img (Fedora, RHEL, SUSE)";
/// For opening an image; one of many terabytes on a slow disk has tables of gigabytes.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// For closing an image that was written and flushed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time between the end of a connection and that of the child, which says why.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes kept of its standard error.
const STDERR_MAX: usize = 2048;

/// A running child. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct QemuNbd {
    child: Mutex<Child>,
    stderr: Arc<Stderr>,
}

/// The end of a child's standard error, once it is closed.
#[derive(Debug, Default)]
struct Stderr {
    text: Mutex<Option<String>>,
    closed: Condvar,
}

/// Looks whether the tables of an image, and of those it is based on, lead to what is there: QEMU reads zeros where an image
/// is cut off. Leaks do no harm, and some formats cannot be checked.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] only when the program is not installed; [`io::ErrorKind::InvalidData`] with what it found; any
/// other with why it could not look.
pub(crate) fn check(node: &Value) -> io::Result<()> {
    const DAMAGED: i32 = 2;
    const LEAKS: i32 = 3;
    const CANNOT_BE_CHECKED: i32 = 63;
    let mut image = node;
    while image.is_object() {
        let done = bare(IMG).args(["check", "-q"]).arg(format!("json:{image}")).output()?;
        let said = || tail([done.stderr.as_slice(), done.stdout.as_slice()].concat().as_slice());
        match done.status.code() {
            Some(0 | LEAKS | CANNOT_BE_CHECKED) => {}
            Some(DAMAGED) => {
                let message = format!("the image is damaged or cut off ({IMG} check): {}", said());
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            _ => {
                let message = format!("{IMG} check could not be completed ({}): {}", done.status, said());
                return Err(io::Error::other(message));
            }
        }
        image = image.get("backing").unwrap_or(&Value::Null);
    }
    Ok(())
}

/// The name under which a child of ours opens this very file, whatever the path leads to by then. For as long as it is open.
pub(crate) fn name_of(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

/// Makes an empty image of a disk of `size_bytes` in the file that [`name_of`] names, and returns how QEMU is to open it. QEMU
/// counts in sectors of 512 bytes, and for VHDX in larger units: the disk in it may be longer.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] only when the program is not installed; otherwise with what it said.
pub(crate) fn create(name: &str, format: Format, size_bytes: u64) -> io::Result<Value> {
    let mut command = bare(IMG);
    command.args(["create", "-q", "-f", format.word()]);
    if format == Format::Vpc {
        // Otherwise it is rounded to what cylinders and heads can count.
        command.args(["-o", "force_size=on"]);
    }
    let done = command.arg(name).arg(size_bytes.to_string()).output()?;
    if !done.status.success() {
        let said = tail([done.stderr, done.stdout].concat().as_slice());
        return Err(io::Error::other(said));
    }
    let file = json!({ "driver": "file", "filename": name });
    Ok(json!({ "driver": format.word(), "file": file }))
}

/// Names a program that cannot be started, if there is one: both of them are needed to write an image.
pub(crate) fn missing() -> Option<&'static str> {
    [IMG, PROGRAM].into_iter().find(|&program| !is_installed(program))
}

/// A program that sees nothing of our environment, in which tokens and keys are, and ends with the thread that starts it.
fn bare(program: &str) -> Command {
    let mut command = Command::new(program);
    // A terminal's Ctrl-C is for us: what is under way may still be ended in order.
    without_environment(&mut command).stdin(Stdio::null()).process_group(0);
    bound_to_thread(&mut command);
    command
}

impl QemuNbd {
    /// Starts to serve the disk that `node` describes, and connects to it. `direct`: past the page cache.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] only when the program is not installed; otherwise with what it said.
    pub(super) fn serve(node: &Value, direct: bool) -> io::Result<(Self, Export)> {
        let shared = format!("--shared={CONNECTIONS_MAX}");
        let cache = if direct { &["--cache=none"][..] } else { &[] };
        Self::serve_with(&[&["--read-only", &shared], cache].concat(), node)
    }

    /// As `serve`, for writing, over one connection. Nothing of it is durable before the file was flushed by another: waiting
    /// for the disk after each of QEMU's own tables would take many times as long, and an image that is not whole is of no use.
    ///
    /// # Errors
    /// The errors of `serve`.
    pub(crate) fn serve_for_writing(node: &Value) -> io::Result<(Self, Export)> {
        Self::serve_with(&["--cache=unsafe"], node)
    }

    fn serve_with(options: &[&str], node: &Value) -> io::Result<(Self, Export)> {
        let folder = PrivateFolder::new()?;
        let socket = folder.path().join("nbd");
        let mut command = bare(PROGRAM);
        command.args(options).arg("--socket").arg(&socket).arg(format!("json:{node}"));
        let child = Self::start(command)?;
        let export = child.connect(&socket)?;
        Ok((child, export))
    }

    /// Waits until the child has closed the image, after the last connection to it was.
    ///
    /// # Errors
    /// It does not end, or ends with a failure.
    pub(crate) fn close(self) -> io::Result<()> {
        match self.exit(CLOSE_TIMEOUT) {
            Some((status, _)) if status.success() => Ok(()),
            Some(ended) => Err(io::Error::other(said(&ended))),
            None => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{PROGRAM} does not end"))),
        }
    }

    /// The kernel ties a child to the thread that starts it, so a thread of its own does, and lives as long.
    fn start(mut command: Command) -> io::Result<Self> {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let stderr = Arc::new(Stderr::default());
        let (sender, receiver) = mpsc::channel();
        let collected = Arc::clone(&stderr);
        std::thread::Builder::new().name(PROGRAM.to_owned()).spawn(move || {
            let mut spawned = command.spawn();
            let pipe = spawned.as_mut().ok().and_then(|child| child.stderr.take());
            drop(sender.send(spawned));
            let text = pipe.map(tail).unwrap_or_default();
            *collected.text.lock() = Some(text);
            collected.closed.notify_all();
        })?;
        let child = receiver.recv().map_err(io::Error::other)??;
        Ok(Self { child: Mutex::new(child), stderr })
    }

    /// Connects as soon as it listens.
    fn connect(&self, socket: &Path) -> io::Result<Export> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match Export::connect(&Address::of_socket(socket)) {
                Ok(export) => return Ok(export),
                Err(NbdError::Io(_)) => {}
                Err(error) => return Err(error.into()),
            }
            if let Some(ended) = self.exit(Duration::from_millis(10)) {
                return Err(io::Error::other(said(&ended)));
            }
            if Instant::now() > deadline {
                let seconds = START_TIMEOUT.as_secs();
                return Err(io::Error::other(format!("{PROGRAM} did not begin to serve within {seconds} s")));
            }
        }
    }

    /// Returns the error to report for a failed read or write: why the child ended, if it did.
    pub(crate) fn explain(&self, error: NbdError) -> io::Error {
        match &error {
            NbdError::Io(_) | NbdError::Lost => {
                self.exit(EXIT_TIMEOUT).map_or_else(|| error.into(), |ended| io::Error::other(said(&ended)))
            }
            _ => error.into(),
        }
    }

    /// How it ended, and its last words; `None` while it runs, for `within` at least.
    fn exit(&self, within: Duration) -> Option<(ExitStatus, String)> {
        let deadline = Instant::now() + within;
        let mut text = self.stderr.text.lock();
        while text.is_none() && !self.stderr.closed.wait_until(&mut text, deadline).timed_out() {}
        let text = text.clone()?;
        // It has closed its end of the pipe: what is left of ending takes no time.
        let status = self.child.lock().wait().ok()?;
        Some((status, text))
    }
}

/// Says how a child ended.
fn said((status, text): &(ExitStatus, String)) -> String {
    let colon = if text.is_empty() { "" } else { ": " };
    format!("{PROGRAM} ended ({status}){colon}{text}")
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        let mut child = self.child.lock();
        drop(child.kill());
        drop(child.wait());
    }
}

/// The last of all that can be read, in one line.
pub(crate) fn tail(mut from: impl io::Read) -> String {
    let mut text = Vec::new();
    let mut piece = [0; 512];
    while let Ok(read) = from.read(&mut piece)
        && read > 0
    {
        text.extend(piece.iter().take(read));
        text.drain(..text.len().saturating_sub(STDERR_MAX));
    }
    escape_line(String::from_utf8_lossy(&text).trim()).into_owned()
}
