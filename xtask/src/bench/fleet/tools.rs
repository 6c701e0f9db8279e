//! Holdfast and restic, as used by a fleet: one repository, and an agent for each VM.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::disks::Vm;
use crate::bench::peers::Peer;
use crate::bench::{Tool as _, corpus, remake};
use crate::server::Server;
use crate::shell::{self, Profile};

/// Contents of a repository, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// Bytes written to it.
    pub(super) bytes: u64,
    /// Bytes sent by agents, if known.
    pub(super) sent_bytes: Option<u64>,
}

impl Stored {
    /// The difference to `before`.
    pub(super) fn since(self, before: Self) -> Self {
        let sent_bytes =
            self.sent_bytes.zip(before.sent_bytes).map(|(after, before)| after.saturating_sub(before));
        Self { bytes: self.bytes.saturating_sub(before.bytes), sent_bytes }
    }
}

/// A way to back a fleet up.
pub(super) trait Tool {
    fn name(&self) -> &'static str;
    fn version(&self) -> String;
    /// Makes an empty repository.
    fn prepare(&mut self) -> Result<()>;
    /// The command that backs `vm` up.
    fn backup(&self, vm: &Vm) -> Result<Command>;
    /// The command that restores the last backup of `vm` to `to`, which does not exist yet.
    fn restore(&self, vm: &Vm, to: &Path) -> Result<Command>;
    /// Path of the disk that this command restores.
    fn restored(&self, vm: &Vm, to: &Path) -> PathBuf;
    fn stored(&self) -> Result<Stored>;
    /// The server's process, if there is a server.
    fn server_pid(&self) -> Option<u32>;
}

/// The tool of that name, if it is installed.
///
/// # Errors
/// When no tool of that name is known, or building Holdfast fails.
pub(super) fn find(name: &str, work: &Path) -> Result<Option<Box<dyn Tool>>> {
    match name {
        "holdfast" => {
            let binaries = shell::binaries(Profile::Release)?;
            Ok(Some(Box::new(Holdfast { binaries, work: work.to_owned(), server: None })))
        }
        "restic" => Ok(Peer::find(name, work)?.map(|peer| Box::new(Restic(peer)) as Box<dyn Tool>)),
        other => bail!("there is no tool {other:?}; there are holdfast and restic"),
    }
}

struct Holdfast {
    binaries: PathBuf,
    work: PathBuf,
    server: Option<Server>,
}

impl Holdfast {
    fn command(&self, args: &[&str]) -> Result<Command> {
        self.server.as_ref().context("the server was not started")?.holdfast(args)
    }
}

impl Tool for Holdfast {
    fn name(&self) -> &'static str {
        "holdfast"
    }

    fn version(&self) -> String {
        let text = shell::capture(Command::new(self.binaries.join("holdfast")).arg("--version"));
        text.unwrap_or_default().trim().to_owned()
    }

    fn prepare(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        let repository = self.work.join("repo.holdfast");
        remake(&repository)?;
        let log = self.work.join("holdfast.server.log");
        self.server = Some(Server::start(&self.binaries, &repository, &log)?);
        Ok(())
    }

    fn backup(&self, vm: &Vm) -> Result<Command> {
        self.command(&["backup", "--json", "--vm", &vm.name, "--job", "bench", &vm.disk.to_string_lossy()])
    }

    fn restore(&self, vm: &Vm, to: &Path) -> Result<Command> {
        let to = to.to_string_lossy();
        self.command(&["restore", "latest", "--json", "--no-sync", "--vm", &vm.name, "--to", &to])
    }

    fn restored(&self, _: &Vm, to: &Path) -> PathBuf {
        to.to_owned()
    }

    /// The figures of its own report.
    fn stored(&self) -> Result<Stored> {
        let text = shell::capture(&mut self.command(&["report", "--format", "json"])?)?;
        let rows: Value = serde_json::from_str(&text).context("the report is not JSON")?;
        let rows = rows.as_array().context("the report is not a list")?;
        let sum = |column: &str| -> Result<u64> {
            let numbers = rows.iter().map(|row| row.get(column).and_then(Value::as_u64));
            numbers.sum::<Option<u64>>().with_context(|| format!("the report has rows without {column}"))
        };
        Ok(Stored { bytes: sum("post_lc")?, sent_bytes: Some(sum("wire_bytes")?) })
    }

    fn server_pid(&self) -> Option<u32> {
        self.server.as_ref().and_then(Server::pid)
    }
}

struct Restic(Peer);

impl Tool for Restic {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn version(&self) -> String {
        self.0.version()
    }

    fn prepare(&mut self) -> Result<()> {
        self.0.prepare()
    }

    fn backup(&self, vm: &Vm) -> Result<Command> {
        Ok(self.0.command(&["backup", "-q", "--host", &vm.name, &vm.disk.to_string_lossy()]))
    }

    fn restore(&self, vm: &Vm, to: &Path) -> Result<Command> {
        let to = to.to_string_lossy();
        let mut command = self.0.command(&["restore", "-q", "latest", "--host", &vm.name, "--target", &to]);
        if self.0.restores_sparse() {
            command.arg("--sparse");
        }
        Ok(command)
    }

    /// Below `to`, with the path it had below the root.
    fn restored(&self, vm: &Vm, to: &Path) -> PathBuf {
        to.join(vm.disk.strip_prefix("/").unwrap_or(&vm.disk))
    }

    fn stored(&self) -> Result<Stored> {
        Ok(Stored { bytes: corpus::size(self.0.repository())?.apparent_bytes, sent_bytes: None })
    }

    fn server_pid(&self) -> Option<u32> {
        None
    }
}
