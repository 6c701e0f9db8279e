//! The `holdfast` command, configured for a server.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{program, wait_for};

/// Address, token and fingerprint that `holdfast` uses.
#[derive(Debug, Clone)]
pub struct Agent {
    server: String,
    token: String,
    fingerprint: String,
}

impl Agent {
    /// Creates an agent of the server at `server`.
    pub fn new(server: &str, token: &str, fingerprint: &str) -> Self {
        Self { server: server.to_owned(), token: token.to_owned(), fingerprint: fingerprint.to_owned() }
    }

    /// The same agent with another token.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        Self { token: token.to_owned(), ..self.clone() }
    }

    /// The same agent through another address.
    #[must_use]
    pub fn through(&self, server: &str) -> Self {
        Self { server: server.to_owned(), ..self.clone() }
    }

    /// The same agent trusting another certificate.
    #[must_use]
    pub fn trusting(&self, fingerprint: &str) -> Self {
        Self { fingerprint: fingerprint.to_owned(), ..self.clone() }
    }

    /// A command `holdfast ARGS…`, not yet run. It sees nothing of this machine's user: no profile, no variables.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = program("holdfast");
        command.args(args);
        command.env("HOLDFAST_SERVER", &self.server);
        command.env("HOLDFAST_TOKEN", &self.token);
        command.env("HOLDFAST_FINGERPRINT", &self.fingerprint);
        command
    }

    /// Runs `holdfast ARGS…` to its end.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn run(&self, args: &[&str]) -> Ran {
        Ran::of(&args.join(" "), self.command(args).output().expect("holdfast can be run"))
    }

    /// Runs `holdfast backup --vm VM PATH…`, which must succeed.
    pub fn back_up(&self, vm: &str, disks: &[&str]) -> Ran {
        self.run(&[&["backup", "--vm", vm], disks].concat()).ok()
    }

    /// Restores the latest backup of `vm` (its `disk`, when it has several) to `to`, which must succeed.
    pub fn restore(&self, vm: &str, disk: Option<&str>, to: &Path) -> Ran {
        self.restore_of("latest", vm, disk, to)
    }

    /// Same as [`Agent::restore`], of a given backup.
    pub fn restore_of(&self, backup: &str, vm: &str, disk: Option<&str>, to: &Path) -> Ran {
        let to = to.to_string_lossy();
        let mut args = vec!["restore", backup, "--vm", vm, "--to", &to];
        if let Some(disk) = disk {
            args.extend(["--disk", disk]);
        }
        self.run(&args).ok()
    }

    /// Restores the latest backup of `vm`'s only disk into memory.
    pub fn read_back(&self, vm: &str) -> Vec<u8> {
        self.run(&["restore", "latest", "--vm", vm, "--to", "-"]).ok().stdout
    }

    /// The ids of a VM's restore points, newest first.
    ///
    /// # Panics
    /// When the list is not as documented.
    pub fn backups(&self, vm: &str) -> Vec<String> {
        let summary = self.run(&["list", "--vm", vm, "--json"]).ok().summary();
        let list = summary.get("backups").and_then(Value::as_array).cloned();
        let list = list.unwrap_or_else(|| panic!("no backups in {summary}"));
        let ids = list.iter().map(|backup| backup.get("backup").and_then(Value::as_str).map(str::to_owned));
        ids.map(|id| id.unwrap_or_else(|| panic!("no id in {summary}"))).collect()
    }

    /// Compression details, oldest first, as JSON objects.
    ///
    /// # Panics
    /// When the report is not as documented.
    pub fn report(&self) -> Vec<Row> {
        let ran = self.run(&["report", "--format", "json"]).ok();
        let rows: Value = serde_json::from_slice(&ran.stdout).expect("the report is JSON");
        let rows = rows.as_array().expect("the report is a list").clone();
        rows.into_iter().map(Row).collect()
    }

    /// Starts `holdfast ARGS… --json` and leaves it running.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        Running { what: args.join(" "), child: Some(command.spawn().expect("holdfast can be run")) }
    }
}

/// One row of the compression details.
#[derive(Debug, Clone)]
pub struct Row(Value);

impl Row {
    /// Returns a number.
    ///
    /// # Panics
    /// When the column has none.
    pub fn number(&self, column: &str) -> u64 {
        let number = self.0.get(column).and_then(Value::as_u64);
        number.unwrap_or_else(|| panic!("no number {column:?} in {}", self.0))
    }

    /// Returns a text.
    ///
    /// # Panics
    /// When the column has none.
    pub fn text(&self, column: &str) -> &str {
        let text = self.0.get(column).and_then(Value::as_str);
        text.unwrap_or_else(|| panic!("no text {column:?} in {}", self.0))
    }

    /// Names of the columns.
    ///
    /// # Panics
    /// When the row is not an object.
    pub fn columns(&self) -> Vec<&str> {
        self.0.as_object().expect("a row is an object").keys().map(String::as_str).collect()
    }
}

/// Result of a command.
#[derive(Debug)]
pub struct Ran {
    what: String,
    /// Exit code; `None` after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Ran {
    /// The outcome of the command `what`.
    pub fn of(what: &str, output: Output) -> Self {
        Self {
            what: what.to_owned(),
            code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Returns true if it succeeded.
    ///
    /// # Panics
    /// When it did not.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }

    /// Asserts that it succeeded.
    ///
    /// # Panics
    /// When it did not.
    pub fn ok(self) -> Self {
        assert!(self.succeeded(), "holdfast {} ended with {:?}:\n{}", self.what, self.code, self.said());
        self
    }

    /// Asserts that it failed with `code` and printed all of `words`.
    ///
    /// # Panics
    /// When it did not.
    pub fn fails(self, code: i32, words: &[&str]) -> Self {
        let said = self.said();
        assert_eq!(self.code, Some(code), "exit code of holdfast {}, which said:\n{said}", self.what);
        for word in words {
            let found = said.to_lowercase().contains(&word.to_lowercase());
            assert!(found, "holdfast {} should say {word:?} but says:\n{said}", self.what);
        }
        self
    }

    /// All its output that is text.
    pub fn said(&self) -> String {
        let stdout = if self.stdout.len() < 1 << 20 { self.text() } else { "(a lot)".to_owned() };
        format!("{stdout}{}", self.stderr)
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Parses the last line of JSON output, which must be the summary.
    ///
    /// # Panics
    /// When it is not.
    pub fn summary(&self) -> Value {
        let text = self.text();
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let value: Value = serde_json::from_str(last).unwrap_or_else(|e| panic!("{e} in {last:?}"));
        assert_eq!(value.get("type").and_then(Value::as_str), Some("summary"), "{last}");
        value
    }
}

/// A running command. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    what: String,
    child: Option<Child>,
}

impl Running {
    /// Sends it a signal.
    ///
    /// # Panics
    /// When it ended already.
    pub fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("still running");
        kill_process(Pid::from_child(child), signal).expect("our child");
    }

    /// Returns true while it runs.
    ///
    /// # Panics
    /// When it was waited for before.
    pub fn runs(&mut self) -> bool {
        self.child.as_mut().expect("still running").try_wait().expect("our child").is_none()
    }

    /// Waits until it ends.
    ///
    /// # Panics
    /// When it does not.
    pub fn wait(mut self) -> Ran {
        let mut child = self.child.take().expect("still running");
        let mut collect = [
            child.stdout.take().map(|pipe| std::thread::spawn(move || read_all(pipe))),
            child.stderr.take().map(|pipe| std::thread::spawn(move || read_all(pipe))),
        ]
        .map(|thread| thread.expect("piped"))
        .into_iter();
        let status = wait_for("holdfast to end", || child.try_wait().expect("our child"));
        let mut next = || collect.next().and_then(|thread| thread.join().ok()).unwrap_or_default();
        Ran {
            what: std::mem::take(&mut self.what),
            code: status.code(),
            stdout: next(),
            stderr: String::from_utf8_lossy(&next()).into_owned(),
        }
    }

    /// Kills it without warning, as a crash of its host would.
    ///
    /// # Panics
    /// When it ended already.
    pub fn kill(mut self) {
        let mut child = self.child.take().expect("still running");
        child.kill().expect("our child");
        child.wait().expect("our child");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn read_all(pipe: impl std::io::Read) -> Vec<u8> {
    let mut reader = BufReader::new(pipe);
    let mut bytes = Vec::new();
    while reader.read_until(b'\n', &mut bytes).is_ok_and(|read| read > 0) {}
    bytes
}
