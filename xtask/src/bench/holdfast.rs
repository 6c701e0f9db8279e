//! Holdfast itself: a release build, a fresh server on loopback, the command line as the agent.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::corpus::Step;
use super::measure::{Usage, cpu_of, forget_peak, measured, peak_of};
use super::{Tool, remake};
use crate::server::{Place, Server};
use crate::shell::{self, Profile};
use crate::sparse;

/// Its name with encryption, which the others have.
pub(super) const HOLDFAST: &str = "holdfast";
/// Its name without encryption.
pub(super) const PLAIN: &str = "holdfast-plain";

/// Client and server.
#[derive(Debug)]
pub(super) struct Holdfast {
    is_plain: bool,
    binaries: PathBuf,
    work: PathBuf,
    repository: PathBuf,
    server: Option<Server>,
    last_disk: Option<PathBuf>,
}

impl Holdfast {
    /// Builds client and server.
    pub(super) fn build(work: &Path, is_plain: bool) -> Result<Self> {
        let binaries = shell::binaries(Profile::Release)?;
        let repository = work.join(if is_plain { "repo.holdfast-plain" } else { "repo.holdfast" });
        Ok(Self { is_plain, binaries, work: work.to_owned(), repository, server: None, last_disk: None })
    }

    /// Runs a client command; adds the server's share.
    fn measured(&self, step: &Step, args: &[&str]) -> Result<Usage> {
        let server = self.server.as_ref().context("the server was not started")?;
        let pid = server.pid().context("the server was not started")?;
        forget_peak(pid)?;
        let before = cpu_of(pid)?;
        let log = self.work.join(format!("{}.{}.log", self.name(), step.name));
        let mut usage = measured(&mut server.holdfast(args)?, &log)?;
        usage.server_cpu = cpu_of(pid)?.saturating_sub(before);
        usage.cpu += usage.server_cpu;
        usage.server_peak_bytes = Some(peak_of(pid)?);
        Ok(usage)
    }
}

impl Tool for Holdfast {
    fn name(&self) -> &'static str {
        if self.is_plain { PLAIN } else { HOLDFAST }
    }

    fn version(&self) -> String {
        let text = shell::capture(Command::new(self.binaries.join("holdfast")).arg("--version"));
        text.unwrap_or_default().trim().to_owned()
    }

    fn prepare(&mut self) -> Result<()> {
        remake(&self.repository)?;
        let log = self.work.join(format!("{}.server.log", self.name()));
        let encrypt = format!("--encrypt={}", if self.is_plain { "off" } else { "on" });
        let place = Place { args: vec![encrypt], ..Place::default() };
        self.server = Some(Server::start_at(&place, &self.binaries, &self.repository, &log)?);
        Ok(())
    }

    fn backup(&mut self, step: &Step, disk: &Path) -> Result<Usage> {
        self.last_disk = Some(disk.to_owned());
        self.measured(step, &["backup", "--json", "--vm", step.vm, "--job", "bench", &disk.to_string_lossy()])
    }

    fn restore(&mut self, step: &Step, folder: &Path) -> Result<Option<Usage>> {
        let file = folder.join("disk.raw");
        let to = file.to_string_lossy();
        let restore = ["restore", "latest", "--json", "--vm", step.vm, "--to", &to];
        // Measured first, so that it finds the server in the same state as every other step does: the other tools do
        // not wait for the disk after a restore.
        let usage = self.measured(step, &[&restore[..], &["--no-sync"]].concat())?;
        // Not timed: the restored disk must equal the original.
        sparse::same(&file, self.last_disk.as_deref().context("nothing was backed up")?)?;
        println!("  restored disk compared: every byte is the same");
        std::fs::remove_file(&file)?;
        let waiting = self.measured(step, &restore)?;
        println!(
            "  {:.2} s when waiting for the disk, as holdfast does by default",
            waiting.wall.as_secs_f64()
        );
        Ok(Some(usage))
    }

    fn repository(&self) -> &Path {
        &self.repository
    }

    fn finish(&mut self) -> Result<()> {
        self.server.take().context("the server was not started")?.stop()
    }
}
