//! A server and its bucket.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::super::measure::measured;
use super::super::reclaim::Row;
use super::super::remake;
use crate::bucket::Bucket;
use crate::server::{Place, Server};
use crate::shell;

/// Longer than any copy that fits into memory takes.
const COPIED_TIMEOUT: Duration = Duration::from_secs(3600);

/// Prefix in the bucket.
const PREFIX: &str = "bench";

/// Agents that back up small disks in parallel.
const AGENTS: u32 = 4;

/// A server and its bucket.
pub(super) struct Site {
    binaries: PathBuf,
    folder: PathBuf,
    config: PathBuf,
    bucket: Bucket,
    server: Option<Server>,
    /// Requests before this site began.
    puts_before: u64,
    container_puts_before: u64,
    line: (u64, u64),
}

/// Figures of a recovery.
pub(super) struct Recovered {
    wall: Duration,
    said: Value,
}

impl Recovered {
    pub(super) fn row(&self, name: &'static str) -> Row {
        let bucket = self.said.get("bucket").unwrap_or(&Value::Null);
        let requests = bucket.get("requests").and_then(Value::as_object).into_iter().flatten();
        let requests: Vec<_> = requests
            .filter(|(_, count)| count.as_u64() != Some(0))
            .map(|(kind, count)| format!("{count} {}", kind.to_uppercase()))
            .collect();
        Row::said(name, format!("{:.2} s; {}", self.wall.as_secs_f64(), requests.join(", ")))
    }
}

impl Site {
    pub(super) fn new(binaries: &Path, folder: &Path, bucket: Bucket) -> Self {
        Self {
            binaries: binaries.to_owned(),
            folder: folder.to_owned(),
            config: folder.join("server.toml"),
            bucket,
            server: None,
            puts_before: 0,
            container_puts_before: 0,
            line: (0, 0),
        }
    }

    pub(super) fn with_line(mut self, latency_ms: u64, rate: u64) -> Self {
        self.line = (latency_ms, rate);
        self
    }

    pub(super) const fn line(&self) -> (u64, u64) {
        self.line
    }

    pub(super) const fn bucket(&mut self) -> &mut Bucket {
        &mut self.bucket
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// PUTs before this site began, all of them, and those of containers.
    pub(super) const fn puts_before(&self) -> u64 {
        self.puts_before
    }

    pub(super) const fn container_puts_before(&self) -> u64 {
        self.container_puts_before
    }

    fn data_dir(&self) -> PathBuf {
        self.folder.join("repository")
    }

    fn log(&self, step: &str) -> PathBuf {
        self.folder.join(format!("{step}.log"))
    }

    fn start(&mut self, args: Vec<String>) -> Result<()> {
        let place = Place { args, ..Place::default() };
        self.server = Some(Server::start_at(&place, &self.binaries, &self.data_dir(), &self.log("server"))?);
        Ok(())
    }

    /// Starts with an empty repository, encrypted like one with a bucket.
    pub(super) fn begin_without_bucket(&mut self) -> Result<()> {
        self.end()?;
        self.start(vec!["--encrypt=on".to_owned()])
    }

    /// Starts with an empty repository and an empty bucket.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.begin_with("")
    }

    /// Same, but a backup counts only when the bucket has it.
    pub(super) fn begin_primary(&mut self) -> Result<()> {
        self.begin_with("s3_primary = true\n")
    }

    fn begin_with(&mut self, settings: &str) -> Result<()> {
        self.end()?;
        self.bucket.empty()?;
        let counts = self.bucket.counts()?;
        (self.puts_before, self.container_puts_before) =
            (counts.made("put"), counts.about("put", "containers"));
        std::fs::write(&self.config, self.bucket.settings(PREFIX) + settings)?;
        self.start(vec!["--config".to_owned(), self.config.display().to_string()])
    }

    /// Stops the server and removes its repository.
    pub(super) fn end(&mut self) -> Result<()> {
        if let Some(server) = self.server.take() {
            server.stop()?;
        }
        remake(&self.data_dir())
    }

    /// Same, named for the loss of a machine.
    pub(super) fn lose(&mut self) -> Result<()> {
        self.end()
    }

    fn server(&self) -> Result<&Server> {
        self.server.as_ref().context("the server was not started")
    }

    fn maintain(&self, args: &[&str]) -> Command {
        let mut command = Command::new(self.binaries.join("holdfast-server"));
        command.args(args).arg("--data-dir").arg(self.data_dir()).arg("--config").arg(&self.config);
        command
    }

    fn agent(&self, step: &str, args: &[&str]) -> Result<Duration> {
        Ok(measured(&mut self.server()?.holdfast(args)?, &self.log(step))?.wall)
    }

    /// Backs a disk up, and returns how long it took.
    pub(super) fn backup(&self, vm: &str, disk: &Path) -> Result<Duration> {
        rustix::fs::sync();
        let disk = disk.to_string_lossy();
        let took = self.agent("backup", &["backup", "--json", "--vm", vm, "--job", "bench", &disk])?;
        println!("  backup: {:.2} s", took.as_secs_f64());
        Ok(took)
    }

    pub(super) fn restore(&self, vm: &str, to: &Path) -> Result<Duration> {
        let to = to.to_string_lossy();
        self.agent("restore", &["restore", "latest", "--json", "--no-sync", "--vm", vm, "--to", &to])
    }

    /// Makes `count` backups of small disks, each different from those before.
    pub(super) fn many_backups(&self, count: u32) -> Result<()> {
        let began = Instant::now();
        std::thread::scope(|scope| {
            let agents: Vec<_> = (0..AGENTS)
                .map(|agent| {
                    scope.spawn(move || -> Result<()> {
                        let disk = self.folder.join(format!("small-{agent}.raw"));
                        for number in (agent..count).step_by(AGENTS as usize) {
                            let file = std::fs::File::create(&disk)?;
                            super::write_noise(&file, 0, 64 << 10, 10_000 + u64::from(number))?;
                            let vm = format!("small-{agent}");
                            let path = disk.to_string_lossy();
                            self.agent(&vm, &["backup", "--json", "--vm", &vm, "--job", "small", &path])?;
                        }
                        Ok(())
                    })
                })
                .collect();
            agents
                .into_iter()
                .try_for_each(|agent| agent.join().map_err(|_| anyhow::anyhow!("an agent panicked"))?)
        })?;
        println!("  {count} small backups in {}", shell::time(began.elapsed()));
        Ok(())
    }

    /// Deletes the older half of the restore points, and reclaims.
    pub(super) fn delete_and_reclaim(&self) -> Result<()> {
        let list = shell::capture(&mut self.server()?.holdfast(&["list", "--json"])?)?;
        let list: Value = serde_json::from_str(&list).context("list --json is not JSON")?;
        let backups = list.get("backups").and_then(Value::as_array).into_iter().flatten();
        let ids =
            backups.filter_map(|backup| backup.get("backup").and_then(Value::as_str).map(str::to_owned));
        // Ids ascend with time.
        let mut ids: Vec<String> = ids.collect();
        ids.sort();
        ids.truncate(ids.len() / 2);
        if ids.is_empty() {
            bail!("there are no restore points to delete: {list}");
        }
        let mut args = vec!["delete", "--yes", "--reason", "benchmark"];
        args.extend(ids.iter().map(String::as_str));
        self.agent("delete", &args)?;
        self.agent("reclaim", &["reclaim", "--json"]).map(|_| ())
    }

    /// Writes a kit that opens the copies, too, once they are up to date.
    pub(super) fn export_kit(&self) -> Result<PathBuf> {
        let kit = self.folder.join("kit.txt");
        std::fs::write(&kit, shell::capture(&mut self.maintain(&["key", "export-kit"]))?)?;
        Ok(kit)
    }

    /// Recovers the server from the bucket, and starts it.
    pub(super) fn recover(&mut self, kit: &Path) -> Result<Recovered> {
        let from = self.bucket.place(PREFIX);
        let kit = kit.display().to_string();
        let mut command = self.maintain(&["recover", "--json", "--from", &from, "--kit", &kit]);
        let log = self.log("recover");
        let wall = measured(&mut command, &log)?.wall;
        let text = std::fs::read_to_string(&log)?;
        let said = text.lines().rev().find_map(|line| serde_json::from_str::<Value>(line).ok());
        let said = said.with_context(|| format!("recover said {text:?}"))?;
        self.start(vec!["--config".to_owned(), self.config.display().to_string()])?;
        Ok(Recovered { wall, said })
    }

    /// Waits until the bucket has everything in the data folder, and nothing that was removed from it.
    pub(super) fn wait_until_copied(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            let text = shell::capture(&mut self.maintain(&["tier", "status", "--json"]))?;
            let status: Value = serde_json::from_str(&text).context("tier status is not JSON")?;
            let said = status.get("server").unwrap_or(&Value::Null);
            if let Some(failure) = said.get("failure").and_then(Value::as_str) {
                bail!("copying fails: {failure}");
            }
            let data_dir = self.data_dir();
            let done = self.bucket.has_all_of(PREFIX, &data_dir)?
                && said.get("waiting_blobs") == Some(&0.into())
                && said.get("comparing") == Some(&false.into())
                && status.get("removals") == Some(&0.into());
            if done {
                return Ok(());
            }
            if started.elapsed() > COPIED_TIMEOUT {
                bail!("not everything was copied within {}: {text}", shell::time(COPIED_TIMEOUT));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}
