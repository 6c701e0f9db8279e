//! Faults of the system under a running program: failing system calls, and a kill at a chosen call.
//!
//! `strace` sits between a program and the kernel and answers chosen calls itself, so the real program meets them on
//! its real files. It counts calls by thread: the second `fdatasync` is the second one of any thread.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::tools::{find, skip};
use crate::wait_for;

/// Every call that changes a disk, except buffered writes.
pub const DURABLE: &str = "fdatasync,fsync,rename,renameat2,unlink,unlinkat,ftruncate";

/// Every call that writes to a file, and those of [`DURABLE`].
pub const CHANGES: &str = "write,pwrite64,fdatasync,fsync,rename,renameat2,unlink,unlinkat,ftruncate,openat";

/// A fault, and the calls it applies to.
#[derive(Debug, Clone)]
pub struct Fault {
    calls: String,
    what: String,
    when: String,
    paths: Vec<PathBuf>,
}

impl Fault {
    /// Makes each of `calls` (names of system calls, separated by commas) fail as on a disk that cannot be read or
    /// written.
    pub fn io_error(calls: &str) -> Self {
        Self::new(calls, "error=EIO")
    }

    /// Makes each of `calls` fail as unsupported by the file system.
    pub fn refusal(calls: &str) -> Self {
        Self::new(calls, "error=EINVAL")
    }

    /// Kills the program at one of `calls`, the `nth` of any thread: like a power cut as far as a process can tell.
    pub fn kill_at(calls: &str, nth: u64) -> Self {
        Self::new(calls, "signal=KILL").when(&nth.to_string())
    }

    fn new(calls: &str, what: &str) -> Self {
        let (calls, what) = (calls.to_owned(), what.to_owned());
        Self { calls, what, when: "1+".to_owned(), paths: Vec::new() }
    }

    /// Limits the fault to certain calls of a thread: `2` the second, `2+` that and all after it.
    #[must_use]
    pub fn when(mut self, when: &str) -> Self {
        when.clone_into(&mut self.when);
        self
    }

    /// Limits the fault to calls on this file or folder, by its name at the time of the call.
    #[must_use]
    pub fn on(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// A command `strace` with this fault, logging to `log`.
    fn strace(&self, strace: &Path, log: &Path) -> Command {
        let Self { calls, what, when, paths } = self;
        let mut command = Command::new(strace);
        command.args(["-f", "-qq", "-o"]).arg(log).args([
            "-e",
            "signal=none",
            "-e",
            &format!("trace={calls}"),
        ]);
        command.args(["-e", &format!("inject={calls}:{what}:when={when}")]);
        for path in paths {
            command.arg("-P").arg(path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Applies it to a running program, until the guard is dropped. `None`, with a message, if that is impossible.
    ///
    /// # Panics
    /// When `strace` cannot be run.
    pub fn on_process(&self, pid: Pid) -> Option<Faulty> {
        let strace = find("strace")?;
        let log = NamedTempFile::new().expect("a temporary file");
        let mut command = self.strace(&strace, log.path());
        command.args(["-p", &pid.as_raw_nonzero().to_string()]);
        let mut child = command.spawn().expect("strace can be run");
        let tracer = child.id();
        let attached = wait_for("strace to attach", || {
            // It can meet the fault, and be killed by it, before all its threads are traced.
            if has_ended(pid) {
                return Some(true);
            }
            if child.try_wait().expect("our child").is_some() {
                return Some(has_ended(pid));
            }
            is_traced(pid, tracer).then_some(true)
        });
        if attached {
            return Some(Faulty { strace: child, pid, log });
        }
        let said = child.wait_with_output().expect("our child").stderr;
        skip(&format!("no faults: {}", String::from_utf8_lossy(&said).trim()));
        None
    }

    /// Applies it to a command, which is run to its end; returns its exit code (`None`: it was killed) and its output.
    /// `None`, with a message, if that is impossible.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn on_command(&self, command: &Command) -> Option<(Option<i32>, String)> {
        let strace = find("strace")?;
        let log = NamedTempFile::new().expect("a temporary file");
        let mut around = self.strace(&strace, log.path());
        around.arg("--").arg(command.get_program()).args(command.get_args()).stdout(Stdio::piped());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => around.env(name, value),
                None => around.env_remove(name),
            };
        }
        let output = around.output().expect("strace can be run");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Some((output.status.code(), said.concat()))
    }
}

/// Returns true if a process has ended, reaped or not. If it is killed while `strace` traces it, one of its threads
/// may hang until `strace` is gone, so that it cannot be reaped.
pub(crate) fn has_ended(pid: Pid) -> bool {
    // After the name, which is in parentheses and may itself contain parentheses.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.map_or(true, |stat| {
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['Z', 'X']))
    })
}

/// Returns true if `tracer` traces every thread of a process.
fn is_traced(pid: Pid, tracer: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero()));
    let Ok(threads) = threads else { return false };
    let wanted = format!("TracerPid:\t{tracer}");
    threads.filter_map(Result::ok).all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status"));
        // A thread that has ended needs no tracer.
        status.map_or(true, |status| status.lines().any(|line| line == wanted))
    })
}

/// A program under faults. Dropping this ends the faults.
#[derive(Debug)]
pub struct Faulty {
    strace: Child,
    pid: Pid,
    log: NamedTempFile,
}

impl Faulty {
    /// Number of calls that were answered with an error so far.
    pub fn errors(&self) -> usize {
        self.log().matches("(INJECTED)").count()
    }

    /// The calls it saw, for messages.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        // `strace` detaches and ends; or has ended with the program, or cannot: it waits for a hanging thread.
        let signal = if has_ended(self.pid) { Signal::KILL } else { Signal::TERM };
        let _ = kill_process(Pid::from_child(&self.strace), signal);
        drop(self.strace.wait());
    }
}
