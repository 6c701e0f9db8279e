//! `qemu-nbd` as a child, which reads an image and serves the disk in it on a socket that no one else can reach.
//!
//! It ends with us, however we end: it exits when its last client is gone, and the kernel ends it with the thread that
//! started it.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use holdfast_nbd::{Address, CONNECTIONS_MAX, Export, NbdError};
use holdfast_proto::details::escape_line;
use parking_lot::{Condvar, Mutex};
use serde_json::Value;

use crate::child::{PrivateFolder, bound_to_thread, without_environment};

/// The program.
const PROGRAM: &str = "qemu-nbd";
/// Its neighbour in the same package.
const CHECKER: &str = "qemu-img";
/// For opening an image; one of many terabytes on a slow disk has tables of gigabytes.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time between the end of a connection and that of the child, which says why.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes kept of its standard error.
const STDERR_MAX: usize = 2048;

/// A running child. Dropping it ends it.
#[derive(Debug)]
pub(super) struct QemuNbd {
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
/// [`io::ErrorKind::NotFound`] only when the program is not installed; [`io::ErrorKind::InvalidData`] with what it found.
pub(super) fn check(node: &Value) -> io::Result<()> {
    const LEAKS: i32 = 3;
    const CANNOT_BE_CHECKED: i32 = 63;
    let mut image = node;
    while image.is_object() {
        let mut command = Command::new(CHECKER);
        command.args(["check", "-q"]).arg(format!("json:{image}")).stdin(Stdio::null());
        without_environment(&mut command);
        let done = command.output()?;
        if !matches!(done.status.code(), Some(0 | LEAKS | CANNOT_BE_CHECKED)) {
            let said = tail([done.stderr, done.stdout].concat().as_slice());
            let kind = io::ErrorKind::InvalidData;
            return Err(io::Error::new(
                kind,
                format!("the image is damaged or cut off ({CHECKER} check): {said}"),
            ));
        }
        image = image.get("backing").unwrap_or(&Value::Null);
    }
    Ok(())
}

impl QemuNbd {
    /// Starts to serve the disk that `node` describes, and connects to it. `direct`: past the page cache.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] only when the program is not installed; otherwise with what it said.
    pub(super) fn serve(node: &Value, direct: bool) -> io::Result<(Self, Export)> {
        let folder = PrivateFolder::new()?;
        let socket = folder.path().join("nbd");
        let mut command = Command::new(PROGRAM);
        command.args(["--read-only", &format!("--shared={CONNECTIONS_MAX}")]);
        if direct {
            command.arg("--cache=none");
        }
        command.arg("--socket").arg(&socket).arg(format!("json:{node}"));
        without_environment(&mut command);
        let child = Self::start(command)?;
        let export = child.connect(&socket)?;
        Ok((child, export))
    }

    /// The kernel ties a child to the thread that starts it, so a thread of its own does, and lives as long.
    fn start(mut command: Command) -> io::Result<Self> {
        // A terminal's Ctrl-C is for us: what is under way may still be ended in order.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        bound_to_thread(&mut command);
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
            if let Some(why) = self.ended(Duration::from_millis(10)) {
                return Err(io::Error::other(why));
            }
            if Instant::now() > deadline {
                let seconds = START_TIMEOUT.as_secs();
                return Err(io::Error::other(format!("{PROGRAM} did not begin to serve within {seconds} s")));
            }
        }
    }

    /// Returns the error to report for a failed read: why the child ended, if it did.
    pub(super) fn explain(&self, error: NbdError) -> io::Error {
        match &error {
            NbdError::Io(_) | NbdError::Lost => {
                self.ended(EXIT_TIMEOUT).map_or_else(|| error.into(), io::Error::other)
            }
            _ => error.into(),
        }
    }

    /// Why it ended; `None` while it runs, for `within` at least.
    fn ended(&self, within: Duration) -> Option<String> {
        let mut text = self.stderr.text.lock();
        if text.is_none() {
            self.stderr.closed.wait_for(&mut text, within);
        }
        let text = text.clone()?;
        // It has closed its end of the pipe: what is left of ending takes no time.
        let status = self.child.lock().wait().ok()?;
        let colon = if text.is_empty() { "" } else { ": " };
        Some(format!("{PROGRAM} ended ({status}){colon}{text}"))
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        let mut child = self.child.lock();
        drop(child.kill());
        drop(child.wait());
    }
}

/// The last of all that can be read.
fn tail(mut from: impl io::Read) -> String {
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
