//! A Holdfast repository with its server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::super::measure::{Usage, cpu_of, measured};
use super::super::remake;
use crate::server::Server;
use crate::shell::{self, Profile};

/// A Holdfast repository with its server.
pub(super) struct Ours {
    binaries: PathBuf,
    work: PathBuf,
    name: String,
    server: Option<Server>,
}

impl Ours {
    /// Creates an empty repository, for a release build.
    pub(super) fn start(work: &Path, name: &str) -> Result<Self> {
        let binaries = shell::binaries(Profile::Release)?;
        let mut ours = Self { binaries, work: work.to_owned(), name: name.to_owned(), server: None };
        remake(&ours.folder())?;
        ours.restart()?;
        Ok(ours)
    }

    /// Copies a repository whose server was stopped.
    pub(super) fn copy(&self, work: &Path, name: &str) -> Result<Self> {
        let mut copy = Self {
            binaries: self.binaries.clone(),
            work: work.to_owned(),
            name: name.to_owned(),
            server: None,
        };
        let to = copy.folder();
        if to.exists() {
            std::fs::remove_dir_all(&to)?;
        }
        shell::capture(Command::new("cp").args(["-a", "--reflink=auto"]).arg(self.folder()).arg(&to))?;
        copy.restart()?;
        Ok(copy)
    }

    /// Folder of the repository.
    pub(super) fn folder(&self) -> PathBuf {
        self.work.join(format!("repo.{}", self.name))
    }

    fn log(&self, step: &str) -> PathBuf {
        self.work.join(format!("{}.{step}.log", self.name))
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server was not started")
    }

    pub(super) fn restart(&mut self) -> Result<()> {
        self.server = Some(Server::start(&self.binaries, &self.folder(), &self.log("server"))?);
        Ok(())
    }

    /// Stops the server, so that everything is merged, and returns the size of the repository.
    pub(super) fn stop_and_measure(&mut self) -> Result<u64> {
        self.server.take().context("the server was not started")?.stop()?;
        rustix::fs::sync();
        self.bytes()
    }

    /// Current size of the repository.
    pub(super) fn bytes(&self) -> Result<u64> {
        super::bytes_of(&self.folder())
    }

    /// Removes a repository whose server was stopped.
    pub(super) fn remove(self) -> Result<()> {
        Ok(std::fs::remove_dir_all(self.folder())?)
    }

    /// Runs a command; adds the server's CPU time.
    pub(super) fn run(&self, step: &str, args: &[&str]) -> Result<Usage> {
        let server = self.server()?;
        let pid = server.pid().context("the server was not started")?;
        let before = cpu_of(pid)?;
        let mut usage = measured(&mut server.holdfast(args)?, &self.log(step))?;
        usage.cpu += cpu_of(pid)?.saturating_sub(before);
        Ok(usage)
    }

    /// Backs a disk up; returns the restore point's id.
    pub(super) fn backup(&self, step: &str, vm: &str, disk: &Path) -> Result<(String, Usage)> {
        let disk = disk.to_string_lossy();
        let usage = self.run(step, &["backup", "--json", "--vm", vm, "--job", "bench", &disk])?;
        let log = self.log(step);
        let text = std::fs::read_to_string(&log)?;
        let summary =
            text.lines().rev().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let id = summary.as_ref().and_then(|summary| summary.get("backup")).and_then(|id| id.as_str());
        let id = id.with_context(|| format!("{} names no restore point", log.display()))?;
        Ok((id.to_owned(), usage))
    }

    pub(super) fn delete(&self, ids: &[String]) -> Result<Usage> {
        let mut args = vec!["delete", "--yes", "--reason", "benchmark"];
        args.extend(ids.iter().map(String::as_str));
        self.run("delete", &args)
    }

    /// Frees unreferenced space, and waits until that is done.
    pub(super) fn reclaim(&self, step: &str, more: &[&str]) -> Result<Usage> {
        self.run(step, &[&["reclaim", "--json"], more].concat())
    }

    /// Starts a reclaim; the caller waits for it.
    pub(super) fn begin_reclaim(&self) -> Result<Child> {
        let mut command = self.server()?.holdfast(&["reclaim", "--json"])?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().with_context(|| format!("cannot run {}", shell::line(&command)))
    }
}
