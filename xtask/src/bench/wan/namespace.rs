//! A network namespace without a name: it lasts as long as a process in it, and cannot be left behind.

use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::tun::Tun;
use crate::needs::{IP, UNSHARE};
use crate::shell;

/// MTU of an Ethernet.
const MTU_BYTES: &str = "1500";
const READY_TIMEOUT: Duration = Duration::from_secs(10);

/// One end of the line. The process that holds it ends with its standard input: when this value is dropped, and
/// however this program ends.
#[derive(Debug)]
pub(super) struct Namespace {
    holder: Child,
    stdin: Option<ChildStdin>,
}

impl Namespace {
    pub(super) fn new() -> Result<Self> {
        let mut command = Command::new(UNSHARE.program);
        command.args(["--net", "--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut holder = command.spawn().with_context(|| format!("cannot run {}", shell::line(&command)))?;
        let stdin = holder.stdin.take();
        let mut namespace = Self { holder, stdin };
        namespace.wait_apart()?;
        Ok(namespace)
    }

    /// Waits until the process has left our namespace.
    fn wait_apart(&mut self) -> Result<()> {
        let ours = std::fs::read_link("/proc/self/ns/net")?;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.holder.try_wait()? {
                bail!("no network namespace can be made here: unshare ended with {status}");
            }
            match std::fs::read_link(self.path()) {
                Ok(theirs) if theirs != ours => return Ok(()),
                _ if begun.elapsed() > READY_TIMEOUT => bail!("unshare made no network namespace"),
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn path(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.holder.id()).into()
    }

    /// The words before a program and its arguments that run it here. It stays one process, and ends with this one.
    pub(super) fn prefix(&self) -> Vec<String> {
        let net = format!("--net={}", self.path().display());
        ["nsenter", &net, "--", "setpriv", "--pdeathsig", "KILL", "--"].map(str::to_owned).to_vec()
    }

    /// A command for `program` in this namespace.
    pub(super) fn command(&self, program: &std::path::Path) -> Command {
        let prefix = self.prefix();
        let mut words = prefix.iter();
        let mut command = Command::new(words.next().map_or("nsenter", String::as_str));
        command.args(words).arg(program);
        command
    }

    /// Runs `ip` here.
    fn run(&self, args: &[&str]) -> Result<()> {
        let ip = shell::locate(IP.program).context("there is no program ip")?;
        shell::capture(self.command(&ip).args(args)).map(drop)
    }

    /// Moves `tun` here and makes it the route to `network`, with `address`. `congestion` is TCP's congestion control:
    /// a property of the route, because a namespace may not choose it for itself.
    pub(super) fn attach(&self, tun: &Tun, address: &str, network: &str, congestion: &str) -> Result<()> {
        let pid = self.holder.id().to_string();
        let ip = shell::locate(IP.program).context("there is no program ip")?;
        shell::capture(Command::new(ip).args(["link", "set", "dev", &tun.name, "netns", &pid]))?;
        for line in [
            &["link", "set", "dev", "lo", "up"][..],
            &["addr", "add", address, "dev", &tun.name],
            &["link", "set", "dev", &tun.name, "mtu", MTU_BYTES, "txqueuelen", "10000", "up"],
        ] {
            self.run(line)?;
        }
        self.run(&["route", "add", network, "dev", &tun.name, "congctl", congestion])
            .with_context(|| format!("does this kernel have TCP congestion control {congestion:?}?"))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It ends by itself; a failure is ignored.
        drop(self.holder.wait());
    }
}
