//! `cargo xtask demo --s3`: the server's machine is lost, and recovered from a bucket and a sheet of paper.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::disks::Studio;
use super::{Narrator, back_up_all, holdfast, look_further, restore_and_compare};
use crate::bucket::{self, Bucket};
use crate::server::{Place, Server};
use crate::shell::{self, Profile};

/// Prefix in the bucket.
const PREFIX: &str = "demo";

/// The demo's data is copied in seconds.
const COPIED_TIMEOUT: Duration = Duration::from_secs(300);

/// Paths and processes of the demo.
struct Site {
    binaries: PathBuf,
    folder: PathBuf,
    config: PathBuf,
    bucket: Bucket,
}

impl Site {
    fn start(&self, data_dir: &Path, log: &str) -> Result<Server> {
        let args = vec!["--config".to_owned(), self.config.display().to_string()];
        let place = Place { args, ..Place::default() };
        Server::start_at(&place, &self.binaries, data_dir, &self.folder.join(log))
    }

    /// `holdfast-server ARGS… --data-dir … --config …`.
    fn maintain(&self, args: &[&str], data_dir: &Path) -> Command {
        let mut command = Command::new(self.binaries.join("holdfast-server"));
        command.args(args).arg("--data-dir").arg(data_dir).arg("--config").arg(&self.config);
        command
    }

    /// Same, and shows the command as it would be typed.
    fn say(&self, args: &[&str], data_dir: &Path) -> Result<()> {
        let mut command = self.maintain(args, data_dir);
        println!("\n   $ {}", shell::line(&command));
        shell::run(&mut command)
    }

    /// Waits until the bucket has everything in the data folder.
    fn wait_until_copied(&mut self, data_dir: &Path) -> Result<()> {
        let started = Instant::now();
        loop {
            let text = shell::capture(&mut self.maintain(&["tier", "status", "--json"], data_dir))?;
            let status: Value = serde_json::from_str(&text).context("tier status is not JSON")?;
            let said = status.get("server").unwrap_or(&Value::Null);
            let is = |key: &str, value: &Value| said.get(key) == Some(value);
            let is_copied = self.bucket.has_all_of(PREFIX, data_dir)?;
            let says_so = is("waiting_blobs", &0.into())
                && is("comparing", &false.into())
                && is("failure", &Value::Null);
            if is_copied && says_so {
                return Ok(());
            }
            if started.elapsed() > COPIED_TIMEOUT {
                bail!("not everything was copied within {}: {text}", shell::time(COPIED_TIMEOUT));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

pub(super) fn show(narrator: &mut Narrator, binaries: &Path, folder: &Path, keep: bool) -> Result<()> {
    let mut site = narrator.step("Starting an object store that speaks S3, in memory", || {
        let program = bucket::program(Profile::Demo)?;
        let bucket = Bucket::start(&program, &folder.join("s3-credentials"))?;
        let config = folder.join("server.toml");
        fs::write(&config, bucket.settings(PREFIX))?;
        println!("   {} at {}", bucket.place(PREFIX), bucket.endpoint());
        println!("   the server's settings, in {}:", config.display());
        bucket.settings(PREFIX).lines().for_each(|line| println!("     {line}"));
        Ok(Site { binaries: binaries.to_owned(), folder: folder.to_owned(), config, bucket })
    })?;
    let lost = folder.join("repository");
    let server = narrator.step("Starting a server that keeps copies there", || {
        let server = site.start(&lost, "server.log")?;
        println!("   repository in {}, encrypted", lost.display());
        println!("   Web: https://{}/bucket", server.https());
        Ok(server)
    })?;
    let kit = folder.join("kit.txt");
    narrator.step("Exporting a recovery kit, to be printed and kept elsewhere", || {
        let mut command = site.maintain(&["key", "export-kit"], &lost);
        println!("   $ {} > kit.txt", shell::line(&command));
        fs::write(&kit, shell::capture(&mut command)?)?;
        Ok(())
    })?;
    let studio =
        narrator.step("Making three VM disks that share an operating system", || Studio::make(folder))?;
    narrator.step("Backing them up for the first time", || back_up_all(&server, &studio))?;
    narrator.step("A day goes by: logs grow, a package is updated, files go", || studio.next_day())?;
    narrator.step("Backing them up again", || back_up_all(&server, &studio))?;
    narrator.step("Waiting until everything is in the bucket, too", || {
        site.wait_until_copied(&lost)?;
        site.say(&["tier", "status"], &lost)
    })?;
    narrator.step("The machine is lost: its data folder is gone", || {
        server.stop()?;
        println!("   $ rm -r {}", lost.display());
        Ok(fs::remove_dir_all(&lost)?)
    })?;
    let (server, site) = recover(narrator, site, &kit)?;
    narrator.step("Restoring a disk from the bucket and comparing every byte", || {
        restore_and_compare(&server, &studio)
    })?;
    narrator.step("Reading a whole backup back and checking every fingerprint", || {
        holdfast(&server, &["verify", "latest", "--vm", "web"])
    })?;
    narrator.step("What the bucket was asked for, and what that costs", || {
        site.say(&["tier", "status"], &folder.join("recovered"))
    })?;
    println!("\n{}", shell::bold(&format!("All done in {}.", shell::time(narrator.elapsed()))));
    if keep {
        println!("   The object store keeps running; end it with: kill {}", site.bucket.leave_running()?);
    }
    look_further(server, keep)
}

/// Recovers on a new machine: from nothing but the bucket, its settings, and the kit.
fn recover(narrator: &mut Narrator, site: Site, kit: &Path) -> Result<(Server, Site)> {
    let new = site.folder.join("recovered");
    narrator.step("On a new machine: recovering from the bucket with the kit", || {
        let from = site.bucket.place(PREFIX);
        site.say(&["recover", "--from", &from, "--kit", &kit.display().to_string()], &new)
    })?;
    let server =
        narrator.step("Starting a server on it, and taking the bucket over from the lost one", || {
            let server = site.start(&new, "recovered.log")?;
            let text = shell::capture(&mut site.maintain(&["tier", "status", "--json"], &new))?;
            let status: Value = serde_json::from_str(&text).context("tier status is not JSON")?;
            if let Some(writer) = status.get("other_writer").and_then(Value::as_str) {
                site.say(&["tier", "take-over", "--from", writer], &new)?;
            }
            Ok(server)
        })?;
    Ok((server, site))
}
