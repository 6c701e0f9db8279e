//! Other backup tools, called as in their manuals.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::corpus::{STEPS, Step};
use super::measure::{Usage, measured};
use super::{Tool, remake};
use crate::shell;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Restic,
    Borg,
    Kopia,
    Rustic,
    Vykar,
}

/// A backup tool.
#[derive(Debug)]
pub(super) struct Peer {
    kind: Kind,
    program: PathBuf,
    work: PathBuf,
    repository: PathBuf,
    last_disk: Option<PathBuf>,
}

impl Peer {
    /// Finds the tool of that name, if it is installed; `$NAME` in capitals may give its path.
    ///
    /// # Errors
    /// When no tool of that name is known.
    pub(super) fn find(name: &str, work: &Path) -> Result<Option<Self>> {
        let kind = match name {
            "restic" => Kind::Restic,
            "borg" => Kind::Borg,
            "kopia" => Kind::Kopia,
            "rustic" => Kind::Rustic,
            "vykar" => Kind::Vykar,
            other => bail!(
                "there is no tool {other:?}; there are restic, borg, kopia, rustic, vykar, holdfast-plain \
                 and holdfast"
            ),
        };
        let program =
            std::env::var_os(name.to_uppercase()).map(PathBuf::from).or_else(|| shell::locate(name));
        Ok(program.map(|program| Self {
            kind,
            program,
            work: work.to_owned(),
            repository: work.join(format!("repo.{name}")),
            last_disk: None,
        }))
    }

    /// A command of the tool with `args`, on its repository.
    pub(super) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let cache = self.work.join(format!("cache.{}", self.name()));
        match self.kind {
            Kind::Restic => command
                .env("RESTIC_PASSWORD", "x")
                .env("RESTIC_REPOSITORY", &self.repository)
                .env("RESTIC_CACHE_DIR", cache),
            Kind::Rustic => command
                .env("RUSTIC_PASSWORD", "x")
                .env("RUSTIC_REPOSITORY", &self.repository)
                .env("RUSTIC_CACHE_DIR", cache),
            Kind::Borg => command
                .env("BORG_REPO", &self.repository)
                .env("BORG_BASE_DIR", cache)
                .env("BORG_PASSPHRASE", "x"),
            Kind::Kopia => command
                .env("KOPIA_PASSWORD", "x")
                .env("KOPIA_CONFIG_PATH", cache.join("config"))
                .env("KOPIA_CHECK_FOR_UPDATES", "false"),
            Kind::Vykar => command.env("VYKAR_PASSPHRASE", "x").env("VYKAR_CONFIG", self.vykar_config()),
        };
        command.args(args);
        command
    }

    /// Returns true if holes are restored as holes: restic before 0.15 writes them out as zeros.
    pub(super) fn restores_sparse(&self) -> bool {
        shell::capture(&mut self.command(&["restore", "--help"])).is_ok_and(|help| help.contains("--sparse"))
    }

    fn vykar_config(&self) -> PathBuf {
        self.work.join("vykar.yaml")
    }

    /// Writes vykar's configuration, which names the folder of each VM's disk.
    fn configure_vykar(&self) -> Result<()> {
        let (repository, cache) = (&self.repository, self.work.join("cache.vykar"));
        let mut text = format!(
            "repositories:\n  - {{label: main, url: {repository:?}}}\ncache_dir: {cache:?}\n\
             compression: {{algorithm: zstd, zstd_level: 3}}\nsources:\n"
        );
        for vm in STEPS.iter().map(|step| step.vm).collect::<BTreeSet<_>>() {
            let folder = self.work.join("src").join(vm);
            std::fs::create_dir_all(&folder)?;
            text.push_str(&format!("  - {{path: {folder:?}, label: {vm}}}\n"));
        }
        std::fs::write(self.vykar_config(), text)?;
        // It creates the folder itself.
        Ok(std::fs::remove_dir(&self.repository)?)
    }

    /// Returns the id of the latest snapshot: kopia has no other name for it.
    fn latest_kopia_snapshot(&self) -> Result<String> {
        let disk = self.last_disk.as_deref().context("nothing was backed up")?;
        let text = shell::capture(self.command(&["snapshot", "list", "--json"]).arg(disk))?;
        let snapshots: serde_json::Value = serde_json::from_str(&text).context("kopia's list is not JSON")?;
        let latest = snapshots.as_array().and_then(|all| all.last()?.get("id")?.as_str());
        Ok(latest.with_context(|| format!("kopia has no snapshot of {}", disk.display()))?.to_owned())
    }

    fn log(&self, step: &str) -> PathBuf {
        self.work.join(format!("{}.{step}.log", self.name()))
    }
}

impl Tool for Peer {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Restic => "restic",
            Kind::Borg => "borg",
            Kind::Kopia => "kopia",
            Kind::Rustic => "rustic",
            Kind::Vykar => "vykar",
        }
    }

    fn version(&self) -> String {
        let argument = if self.kind == Kind::Restic { "version" } else { "--version" };
        let text = shell::capture(&mut self.command(&[argument])).unwrap_or_default();
        text.lines().next().unwrap_or("unknown version").to_owned()
    }

    fn prepare(&mut self) -> Result<()> {
        remake(&self.repository)?;
        remake(&self.work.join(format!("cache.{}", self.name())))?;
        let repository = self.repository.to_string_lossy();
        let path = format!("--path={repository}");
        let commands: &[&[&str]] = match self.kind {
            Kind::Restic => &[&["init", "-q", "--repository-version", "2"]],
            Kind::Borg => &[&["init", "-e", "repokey-blake2"]],
            Kind::Rustic | Kind::Vykar => &[&["init"]],
            Kind::Kopia => &[
                &["repository", "create", "filesystem", &path],
                &["policy", "set", "--global", "--compression=zstd-fastest"],
            ],
        };
        if self.kind == Kind::Vykar {
            self.configure_vykar()?;
        }
        for args in commands {
            shell::capture(&mut self.command(args))?;
        }
        Ok(())
    }

    fn backup(&mut self, step: &Step, disk: &Path) -> Result<Usage> {
        let archive = format!("::{}", step.name);
        let args: &[&str] = match self.kind {
            Kind::Restic => &["backup", "-q"],
            Kind::Borg => &["create", "-C", "zstd,3", &archive],
            Kind::Rustic => &["backup", "--no-progress"],
            Kind::Kopia => &["snapshot", "create", "--no-progress"],
            Kind::Vykar => &["backup", "--source", step.vm],
        };
        self.last_disk = Some(disk.to_owned());
        let mut command = self.command(args);
        if self.kind != Kind::Vykar {
            command.arg(disk);
        }
        measured(&mut command, &self.log(step.name))
    }

    fn restore(&mut self, step: &Step, folder: &Path) -> Result<Option<Usage>> {
        let target = folder.to_string_lossy();
        let mut command = match self.kind {
            Kind::Restic if self.restores_sparse() => {
                self.command(&["restore", "-q", "latest", "--sparse", "--target", &target])
            }
            Kind::Restic => self.command(&["restore", "-q", "latest", "--target", &target]),
            Kind::Rustic => self.command(&["restore", "--no-progress", "latest", &target]),
            Kind::Borg => self.command(&["extract", "--sparse", "::build-day2-again"]),
            Kind::Kopia => {
                let file = folder.join("disk.raw");
                let id = self.latest_kopia_snapshot()?;
                let restore = ["restore", "--no-progress", "--write-sparse-files", &id];
                let mut command = self.command(&restore);
                command.arg(file);
                command
            }
            Kind::Vykar => self.command(&["restore", "latest", &target]),
        };
        measured(command.current_dir(folder), &self.log(step.name)).map(Some)
    }

    fn repository(&self) -> &Path {
        &self.repository
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
}
