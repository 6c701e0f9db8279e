//! A Holdfast server, on loopback, on ports it picks itself.
//!
//! Its output goes to a file rather than a pipe, so that it can outlive this program (`demo --keep`).

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a server may take to become ready: creating keys and a repository takes well under a second.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may take to stop before it counts as hung.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Where and how a server runs.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Words before the program, such as a command that runs it elsewhere, in the same process.
    pub(crate) before: Vec<String>,
    /// Address for agents.
    pub(crate) grpc: String,
    /// Further arguments of `serve`.
    pub(crate) args: Vec<String>,
}

impl Default for Place {
    fn default() -> Self {
        Self { before: Vec::new(), grpc: "127.0.0.1:0".to_owned(), args: Vec::new() }
    }
}

/// A running `holdfast-server`. Killed when dropped, unless [`Server::leave_running`] was called.
#[derive(Debug)]
pub(crate) struct Server {
    child: Option<Child>,
    data_dir: PathBuf,
    binaries: PathBuf,
    log: PathBuf,
    grpc: String,
    https: String,
}

impl Server {
    /// Starts the server of `binaries` on `data_dir` (created if need be) and waits until it is ready. Its output
    /// goes to `log`.
    ///
    /// # Errors
    /// When it does not become ready; the message has its last lines of output.
    pub(crate) fn start(binaries: &Path, data_dir: &Path, log: &Path) -> Result<Self> {
        Self::start_at(&Place::default(), binaries, data_dir, log)
    }

    /// Same as [`Server::start`], at a given place.
    ///
    /// # Errors
    /// Same as [`Server::start`].
    pub(crate) fn start_at(place: &Place, binaries: &Path, data_dir: &Path, log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let program = binaries.join("holdfast-server");
        let mut words = place.before.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().unwrap_or(program.as_os_str()));
        command.args(words).arg("serve").arg("--data-dir").arg(data_dir);
        command.args(["--grpc", &place.grpc, "--http", "127.0.0.1:0"]).args(&place.args);
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("cannot run {:?}", command.get_program()))?;
        let mut server = Self {
            child: Some(child),
            data_dir: data_dir.to_owned(),
            binaries: binaries.to_owned(),
            log: log.to_owned(),
            grpc: String::new(),
            https: String::new(),
        };
        server.wait_ready()?;
        Ok(server)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            let text = std::fs::read_to_string(&self.log).unwrap_or_default();
            if text.lines().any(|line| line.trim() == "ready") {
                self.grpc = address(&text, "gRPC listening on ")?;
                self.https = address(&text, "HTTPS listening on ")?;
                return Ok(());
            }
            let ended = self.child.as_mut().context("no server")?.try_wait()?;
            if ended.is_some() || started.elapsed() > READY_TIMEOUT {
                let why =
                    ended.map_or("did not become ready".to_owned(), |status| format!("ended with {status}"));
                bail!("the server {why}; it said:\n{}", text.trim_end());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Its web address.
    pub(crate) fn https(&self) -> &str {
        &self.https
    }

    /// The environment variables that an agent needs for this server.
    ///
    /// # Errors
    /// When the server wrote no certificate fingerprint.
    pub(crate) fn environment(&self) -> Result<Vec<(&'static str, String)>> {
        let file = self.data_dir.join("tls/fingerprint");
        let fingerprint =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(vec![
            ("HOLDFAST_SERVER", self.grpc.clone()),
            ("HOLDFAST_TOKEN_FILE", self.data_dir.join("admin.token").to_string_lossy().into_owned()),
            ("HOLDFAST_FINGERPRINT", fingerprint.trim().to_owned()),
        ])
    }

    /// A `holdfast` command with `args` for this server.
    ///
    /// # Errors
    /// Same as [`Server::environment`].
    pub(crate) fn holdfast(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(self.binaries.join("holdfast"));
        command.args(args).envs(self.environment()?);
        Ok(command)
    }

    /// Asks the server to stop and waits until it has.
    ///
    /// # Errors
    /// When it does not stop in time, or ends in failure.
    pub(crate) fn stop(mut self) -> Result<()> {
        let mut child = self.child.take().context("no server")?;
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::TERM,
        )?;
        let started = Instant::now();
        let status: ExitStatus = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if started.elapsed() > STOP_TIMEOUT {
                child.kill()?;
                child.wait()?;
                bail!("the server did not stop within {STOP_TIMEOUT:?} of being asked to");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        if !status.success() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            bail!("the server ended with {status}; it said:\n{}", log.trim_end());
        }
        Ok(())
    }

    /// Lets the server run on after this program; returns its process id.
    ///
    /// # Errors
    /// Never in practice: there is a server as long as there is a value of this type.
    pub(crate) fn leave_running(mut self) -> Result<u32> {
        Ok(self.child.take().context("no server")?.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Failures are ignored; both fail only if the process has ended already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

fn address(text: &str, label: &str) -> Result<String> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
    line.map(str::to_owned).with_context(|| format!("the server did not print {label:?}; it said:\n{text}"))
}
