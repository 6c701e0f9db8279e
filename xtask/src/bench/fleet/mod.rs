//! `cargo xtask bench fleet`: many VMs backed up at once, against the same VMs one after another.
//!
//! The stored size must not depend on it: data that several VMs have is kept once, also when all of them bring it in
//! the same minute. Also measured: wall time, CPU and memory of both sides, and restores of all VMs at once. Each way
//! starts with an empty repository; restored disks are compared byte for byte, outside of the timing.
//!
//! [`disks`] generates the VMs' disks, [`tools`] has the ways to back them up, [`round`] measures, [`figures`] judges.

mod disks;
mod figures;
mod round;
mod tools;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::disks::{Fleet, Kind};
use self::figures::{Figures, Row};
use self::round::{Order, Round};
use self::tools::Tool;
use super::remake;
use crate::shell;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How many VMs, each number in turn
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "8", value_parser = clap::value_parser!(u32).range(2..=1000))]
    vms: Vec<u32>,
    /// MiB of data of each VM's disk, where disks are generated: always the same bytes
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(4..))]
    size_mib: u64,
    /// What the VMs have in common
    #[arg(long, value_enum, value_delimiter = ',', default_value = "clones,distinct,patch,half")]
    kinds: Vec<Kind>,
    /// Folder with raw disk images to use instead of generated disks: for clones the first *.raw in it, for distinct
    /// VMs as many as there are; the other kinds are left out
    #[arg(long, value_name = "DIR")]
    corpus: Option<PathBuf>,
    /// Where disks, repositories and restored disks go: about 4 times what all VMs hold
    /// [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Tools to measure: holdfast, restic; $RESTIC may name its program. One not found is left out
    #[arg(long, value_delimiter = ',', default_value = "holdfast,restic")]
    tools: Vec<String>,
    /// Print Markdown, as in docs/BENCHMARKS.md
    #[arg(long)]
    markdown: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let parent = options.work.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let work = tempfile::Builder::new().prefix("holdfast-fleet-").tempdir_in(parent.canonicalize()?)?;
    let mut figures = Figures::default();
    for name in &options.tools {
        let Some(mut tool) = tools::find(name, work.path())? else {
            println!("{name}: not installed, left out");
            continue;
        };
        println!("\n{}", shell::bold(&tool.version()));
        for (&kind, &vms) in
            options.kinds.iter().flat_map(|kind| options.vms.iter().map(move |vms| (kind, vms)))
        {
            let Some(fleet) = fleet(options, kind, vms, work.path())? else { continue };
            let row = measure(tool.as_mut(), &fleet, work.path())
                .with_context(|| format!("{}, {} of {vms} VMs", tool.name(), kind.name()))?;
            println!("  {}", row.line());
            figures.push(row);
        }
    }
    ensure!(!figures.is_empty(), "nothing was measured: no kind of fleet and tool is left");
    println!("\n{}{}", command(options), figures.render(options.markdown));
    match figures.missed() {
        0 => Ok(()),
        missed => bail!("{missed} targets missed"),
    }
}

/// The command that yields these figures, for the page that shows them.
fn command(options: &Options) -> String {
    if !options.markdown {
        return String::new();
    }
    let vms = options.vms.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let disks = match options.corpus {
        Some(_) => "--corpus DIR".to_owned(),
        None => format!("--size-mib {}", options.size_mib),
    };
    format!("Command: `cargo xtask bench fleet --vms {vms} {disks} --markdown`.\n\n")
}

/// The disks of one fleet; `None` if a corpus has none of the kind.
fn fleet(options: &Options, kind: Kind, vms: u32, work: &Path) -> Result<Option<Fleet>> {
    let folder = work.join("disks");
    remake(&folder)?;
    match &options.corpus {
        Some(corpus) => Fleet::of_corpus(kind, vms, corpus),
        None => Fleet::generate(kind, vms, options.size_mib << 20, &folder).map(Some),
    }
}

/// Measures backups one after another, backups at once, and restores.
fn measure(tool: &mut dyn Tool, fleet: &Fleet, work: &Path) -> Result<Row> {
    let one_by_one = backups(tool, fleet, work, Order::OneByOne)?;
    let at_once = backups(tool, fleet, work, Order::AtOnce)?;
    let restore = restores(tool, fleet, work)?;
    let vms = fleet.vms().len();
    Ok(Row { tool: tool.name(), kind: fleet.kind(), vms, one_by_one, at_once, restore })
}

/// Backs all VMs up to an empty repository, or to one with their earlier state.
fn backups(tool: &mut dyn Tool, fleet: &Fleet, work: &Path, order: Order) -> Result<Round> {
    tool.prepare()?;
    if fleet.has_before() {
        fleet.write_before()?;
        let commands = fleet.vms().iter().map(|vm| tool.backup(vm)).collect::<Result<_>>()?;
        Round::run(tool.server_pid(), commands, Order::OneByOne, &work.join("before"))?;
        fleet.write_patch()?;
    }
    let before = tool.stored()?;
    rustix::fs::sync();
    let commands = fleet.vms().iter().map(|vm| tool.backup(vm)).collect::<Result<_>>()?;
    let round = Round::run(tool.server_pid(), commands, order, &work.join("backup"))?;
    Ok(Round { stored: tool.stored()?.since(before), ..round })
}

/// Restores all VMs at once, and compares the result with their disks.
fn restores(tool: &dyn Tool, fleet: &Fleet, work: &Path) -> Result<Round> {
    let out = work.join("out");
    remake(&out)?;
    rustix::fs::sync();
    let commands =
        fleet.vms().iter().map(|vm| tool.restore(vm, &out.join(&vm.name))).collect::<Result<_>>()?;
    let round = Round::run(tool.server_pid(), commands, Order::AtOnce, &work.join("restore"))?;
    for vm in fleet.vms() {
        crate::sparse::same(&tool.restored(vm, &out.join(&vm.name)), &vm.disk)?;
    }
    std::fs::remove_dir_all(&out)?;
    Ok(round)
}
