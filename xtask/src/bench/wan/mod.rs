//! `cargo xtask bench wan`: backups and restores over a long line, compared with one plain TCP connection.
//!
//! Two network namespaces, each with a TUN device; this process carries the packets between them, with the line's
//! delay, rate and losses. So the kernel needs no packet scheduler for it (netem), only root and `/dev/net/tun`.
//! The server runs at one end, agents at the other, as shipped. Namespaces and devices have no names and last as
//! long as this process.

mod figures;
mod line;
mod namespace;
mod probe;
mod shaper;
mod trip;
mod tun;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::remake;
use crate::needs::{self, IP, NSENTER, SETPRIV, UNSHARE};
use crate::server::{Place, Server};
use crate::shell::{self, Profile};
use figures::{Figure, Figures, Way, What};
use line::Line;
use namespace::Namespace;
use shaper::Quality;
use trip::Trip;
use tun::{TUN, Tun};

pub(crate) use probe::{ProbeOptions, run as run_probe};

/// One of the addresses that RFC 5737 reserves for documentation: it is in use nowhere.
const SERVER_ADDRESS: &str = "192.0.2.1";
const AGENT_ADDRESS: &str = "192.0.2.2";
const NETWORK: &str = "192.0.2.0/24";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Round trip in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 150, value_parser = clap::value_parser!(u64).range(1..=5000))]
    rtt: u64,
    /// Rate of the line in Mbit/s, each way
    #[arg(long, value_name = "MBIT", default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=2000))]
    rate: u64,
    /// Percent of packets lost, each way; several are measured one after another
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_value = "0,0.5")]
    loss: Vec<f64>,
    /// MiB of new data to back up and restore on a line without loss
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    size: u64,
    /// The same on a line with loss; over one connection an eighth of it, as that takes minutes
    #[arg(long, value_name = "MIB", default_value_t = 128)]
    lossy_size: u64,
    /// Connections for the figures that are not of one connection
    #[arg(long, value_name = "N|auto", default_value = "auto")]
    connections: String,
    /// Seconds that the plain TCP connection is measured for
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// What TCP does about loss, for all that is measured
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Chooses the packets that are lost
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder for disks and repository; takes about four times --size [default: the system's for temporary files]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Print Markdown, as in docs/BENCHMARKS.md
    #[arg(long)]
    markdown: bool,
}

impl Options {
    /// The line with `loss` percent. Its router holds the usual one bandwidth-delay product.
    fn quality(&self, loss: f64) -> Quality {
        let bits_per_sec = self.rate * 1_000_000;
        Quality {
            bits_per_sec,
            delay: Duration::from_micros(self.rtt * 500),
            loss: loss / 100.0,
            queue_bytes: bits_per_sec / 8 * self.rtt / 1000,
        }
    }

    /// Bytes to transfer.
    const fn bytes(&self, lossy: bool, way: Way) -> u64 {
        let mib = match (lossy, way) {
            (false, _) => self.size,
            (true, Way::Several) => self.lossy_size,
            (true, Way::One) => self.lossy_size.div_ceil(8),
        };
        mib << 20
    }
}

/// The line, its ends, and a server at one of them.
struct Site {
    // Dropped in this order: the programs at the ends before the ends.
    server: Server,
    line: Line,
    server_end: Namespace,
    agent_end: Namespace,
    binaries: PathBuf,
    work: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(options.loss.iter().all(|loss| (0.0..100.0).contains(loss)), "a loss is 0 to 100 percent");
    ensure!(
        !options.loss.is_empty() && options.size > 0 && options.lossy_size > 0,
        "there is nothing to measure"
    );
    check_possible()?;
    let parent = options.work.clone().unwrap_or_else(std::env::temp_dir);
    let work = parent.join("holdfast-wan");
    remake(&work)?;
    let site = Site::open(options, work.canonicalize()?)?;
    let mut figures = Figures::new(options.rate * 1_000_000, options.rtt);
    for &loss in &options.loss {
        site.measure(options, loss, &mut figures)?;
    }
    let Site { server, work, .. } = site;
    server.stop()?;
    std::fs::remove_dir_all(&work)?;
    println!("\n{}", figures.render(options.markdown));
    let missed = figures.missed();
    ensure!(missed == 0, "{missed} targets missed");
    Ok(())
}

/// Reports everything that is missing, not only the first.
fn check_possible() -> Result<()> {
    let mut missing = Vec::new();
    if !needs::provide(&[IP, UNSHARE, NSENTER, SETPRIV]).is_empty() {
        missing.push("programs (see above)".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        missing.push(
            "root, to make network namespaces: run it with sudo, or in a container with --privileged".into(),
        );
    }
    if !Path::new(TUN).exists() {
        missing.push(format!("{TUN}: 'modprobe tun', or give the container --device {TUN}"));
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("this needs:\n  {}", missing.join("\n  "))
}

impl Site {
    fn open(options: &Options, work: PathBuf) -> Result<Self> {
        let binaries =
            shell::binaries(Profile::Release)?.canonicalize().context("no folder with programs")?;
        let (server_end, agent_end) = (Namespace::new()?, Namespace::new()?);
        let (server_tun, agent_tun) = (Tun::create()?, Tun::create()?);
        for (end, tun, address) in
            [(&server_end, &server_tun, SERVER_ADDRESS), (&agent_end, &agent_tun, AGENT_ADDRESS)]
        {
            end.attach(tun, &format!("{address}/32"), NETWORK, &options.congestion)?;
        }
        let line = Line::join(&agent_tun, &server_tun, options.quality(0.0), options.seed)?;
        let grpc = format!("{SERVER_ADDRESS}:0");
        let place = Place { before: server_end.prefix(), grpc, ..Place::default() };
        let server = Server::start_at(&place, &binaries, &work.join("repository"), &work.join("server.log"))?;
        Ok(Self { server, line, server_end, agent_end, binaries, work })
    }

    /// Measures everything on a line with `loss` percent.
    fn measure(&self, options: &Options, loss: f64, figures: &mut Figures) -> Result<()> {
        println!("\n{}", shell::bold(&format!("{} ms, {} Mbit/s, {loss} % loss", options.rtt, options.rate)));
        self.line.set(options.quality(loss), options.seed);
        let plain = trip::plain(self, options.seconds)?;
        println!("  round trip {:.0} ms", plain.round_trip.as_secs_f64() * 1e3);
        figures.push(Figure { loss, what: What::Plain, way: Way::One, bytes: plain.bytes, wall: plain.wall });
        for way in [Way::One, Way::Several] {
            let bytes = options.bytes(loss > 0.0, way);
            let trip = Trip::prepare(self, &format!("loss-{loss}-{}", way.name()), bytes, options)?;
            for what in [What::Backup, What::Restore] {
                let Some(wall) = trip.take(self, what, way)? else {
                    println!("  {}: this version has no --connections, left out", what.name());
                    continue;
                };
                let figure = Figure { loss, what, way, bytes, wall };
                println!("  {}", figures.line(&figure));
                figures.push(figure);
            }
            trip.remove()?;
        }
        let (sent, lost, dropped) = self.line.counts();
        println!("  packets so far: {sent} delivered, {lost} lost, {dropped} dropped by a full queue");
        Ok(())
    }
}
