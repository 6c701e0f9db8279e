//! Backup and restore of one disk over the line, and the plain connection to compare with.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::super::measure::measured;
use super::figures::{Way, What};
use super::{Options, SERVER_ADDRESS, Site};
use crate::splitmix::SplitMix64;
use crate::{shell, sparse};

/// A disk of new data, on its own VM.
pub(super) struct Trip {
    vm: String,
    disk: PathBuf,
    connections: String,
}

impl Trip {
    /// Creates a disk of `bytes` new, incompressible bytes.
    pub(super) fn prepare(site: &Site, name: &str, bytes: u64, options: &Options) -> Result<Self> {
        let vm = name.replace('.', "-");
        let disk = site.work.join(format!("{vm}.raw"));
        let seed =
            vm.bytes().fold(options.seed, |seed, byte| seed.wrapping_mul(257).wrapping_add(byte.into()));
        let mut random = SplitMix64(seed);
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&disk)?);
        for _ in 0..bytes / 8 {
            file.write_all(&random.next().to_le_bytes())?;
        }
        file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        Ok(Self { vm, disk, connections: options.connections.clone() })
    }

    /// Measures the time; `None` if these programs have no option for the number of connections.
    pub(super) fn take(&self, site: &Site, what: What, way: Way) -> Result<Option<Duration>> {
        let program = site.binaries.join("holdfast");
        let help = shell::capture(Command::new(&program).args([what.name(), "--help"]))?;
        let known = help.contains("--connections");
        if !known && way == Way::Several {
            return Ok(None);
        }
        let disk = self.disk.to_string_lossy();
        let out = site.work.join(format!("{}.restored", self.vm));
        let to = out.to_string_lossy();
        let mut args = match what {
            What::Backup => vec!["backup", "--json", "--vm", &self.vm, "--job", "bench", &disk],
            What::Restore => vec!["restore", "latest", "--json", "--vm", &self.vm, "--no-sync", "--to", &to],
            What::Plain => Vec::new(),
        };
        if known {
            let count = if way == Way::One { "1" } else { self.connections.as_str() };
            args.extend(["--connections", count]);
        }
        let mut command = site.agent_end.command(&program);
        command.args(args).envs(site.server.environment()?);
        let log = site.work.join(format!("{}.{}.log", self.vm, what.name()));
        let usage = measured(&mut command, &log)?;
        if what == What::Restore {
            sparse::same(&out, &self.disk)?;
            std::fs::remove_file(&out)?;
        }
        Ok(Some(usage.wall))
    }

    pub(super) fn remove(self) -> Result<()> {
        std::fs::remove_file(&self.disk).with_context(|| format!("cannot remove {}", self.disk.display()))
    }
}

/// Figures of one TCP connection.
pub(super) struct Plain {
    pub(super) round_trip: Duration,
    pub(super) bytes: u64,
    pub(super) wall: Duration,
}

/// Sends over one TCP connection for `seconds`, from the agent's end to the server's.
pub(super) fn plain(site: &Site, seconds: u64) -> Result<Plain> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let mut receiver = site.server_end.command(&program);
    receiver.args(["bench", "wan-probe", "--listen", &format!("{SERVER_ADDRESS}:0")]);
    let mut receiver = receiver.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut said = BufReader::new(receiver.stdout.take().context("no output")?).lines();
    let outcome = (|| -> Result<Plain> {
        let address = said.next().context("the receiver did not start")??;
        let mut sender = site.agent_end.command(&program);
        sender.args(["bench", "wan-probe", "--connect", &address, "--seconds", &seconds.to_string()]);
        let round_trip: f64 = shell::capture(&mut sender)?.trim().parse()?;
        let line = said.next().context("the receiver said nothing of what it received")??;
        let (bytes, wall) = line.split_once(' ').context("the receiver did not say bytes and seconds")?;
        let wall: f64 = wall.parse()?;
        Ok(Plain {
            round_trip: Duration::from_secs_f64(round_trip),
            bytes: bytes.parse()?,
            wall: Duration::from_secs_f64(wall),
        })
    })();
    if outcome.is_err() {
        // It may be waiting for a sender that never came.
        drop(receiver.kill());
    }
    let status = receiver.wait()?;
    let plain = outcome?;
    ensure!(status.success(), "the receiver ended with {status}");
    Ok(plain)
}
