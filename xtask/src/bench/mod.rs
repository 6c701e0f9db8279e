//! `cargo xtask bench`: compares Holdfast with other backup tools on the same steps, in one run on one machine.
//!
//! Every VM's disk is backed up from the same path every day, as an agent sees it. Before a step its disk is read into
//! the page cache, everything pending is written out and free memory is claimed from the host, so that no tool pays for
//! another's turn. Holdfast's client and server run on this machine with TLS between them; their CPU times are added.
//!
//! `$HOLDFAST_BIN_DIR` names a folder with built programs, for trying a command out: only figures of a release build
//! are meaningful.

mod corpus;
mod details;
mod fleet;
mod holdfast;
mod index;
mod marking;
mod measure;
mod peers;
mod reclaim;
mod tables;
mod targets;
mod tiers;
mod wan;

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::shell;
use corpus::{Corpus, STEPS, Step};
use measure::{Measured, Results, Usage};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    only: Option<Only>,
    /// Folder with VM disks: {web,db,build}-day{0,1,2}.raw; those that are missing are left out
    #[arg(long, value_name = "DIR", required = true)]
    corpus: Option<PathBuf>,
    /// Where repositories go while they are measured; needs room for all of them and a restored disk
    /// [default: a folder beside the corpus]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Tools to measure, which all encrypt but holdfast-plain; $RESTIC, $BORG, $KOPIA, $RUSTIC and $VYKAR
    /// may name their programs. Those not found are left out
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "restic,borg,kopia,rustic,vykar,holdfast-plain,holdfast"
    )]
    tools: Vec<String>,
    /// Steps to take, all unless given: web-day0, …, build-day2-again, restore
    #[arg(long, value_delimiter = ',')]
    steps: Vec<String>,
    /// Keep what an earlier run in the same work folder measured of the other tools
    #[arg(long)]
    add: bool,
    /// Say what became slower since an earlier run, whose results.tsv this is
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// Print Markdown, as in docs/BENCHMARKS.md
    #[arg(long)]
    markdown: bool,
}

#[derive(Debug, Subcommand)]
enum Only {
    /// The chunk index alone: inserts, lookups and memory at a given number of entries
    Index(index::Options),
    /// Marking alone: references a second and memory at a given number of references
    Marking(marking::Options),
    /// How long the table of compression details takes to answer
    Details(details::Options),
    /// Backups and restores over a long line: late, slow, with losses. Needs root
    Wan(wan::Options),
    /// One end of a plain TCP connection, for `wan`
    #[command(hide = true)]
    WanProbe(wan::ProbeOptions),
    /// Many VMs at once, against the same VMs one after another: what is stored, and what it takes
    Fleet(fleet::Options),
    /// What it takes to get space back after restore points were deleted
    Reclaim(reclaim::Options),
    /// Copies in a bucket: requests, what they cost, and what backups and restores take with them
    Tiers(tiers::Options),
}

/// A tool to back disks up with.
trait Tool {
    fn name(&self) -> &'static str;
    /// Its name and version.
    fn version(&self) -> String;
    /// Makes an empty repository.
    fn prepare(&mut self) -> Result<()>;
    fn backup(&mut self, step: &Step, disk: &Path) -> Result<Usage>;
    /// Restores the last backup of `vm` below `folder`; `None` if the tool cannot do that.
    fn restore(&mut self, step: &Step, folder: &Path) -> Result<Option<Usage>>;
    /// The folder with everything it stores.
    fn repository(&self) -> &Path;
    /// Called after the last step, before the repository's final size is taken.
    fn finish(&mut self) -> Result<()>;
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.only {
        Some(Only::Index(options)) => return index::run(options),
        Some(Only::Marking(options)) => return marking::run(options),
        Some(Only::Details(options)) => return details::run(options),
        Some(Only::Wan(options)) => return wan::run(options),
        Some(Only::WanProbe(options)) => return wan::run_probe(options),
        Some(Only::Fleet(options)) => return fleet::run(options),
        Some(Only::Reclaim(options)) => return reclaim::run(options),
        Some(Only::Tiers(options)) => return tiers::run(options),
        None => {}
    }
    let folder = options.corpus.as_deref().context("--corpus is needed")?;
    let folder = folder.canonicalize().with_context(|| format!("no folder {}", folder.display()))?;
    let work = match &options.work {
        Some(work) => work.clone(),
        None => folder.with_file_name("holdfast-bench"),
    };
    std::fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let work = work.canonicalize()?;
    let corpus = Corpus::open(&folder, &work)?;
    let steps = chosen(&corpus, &options.steps)?;
    // Read first: it may be the file that is overwritten below.
    let earlier = options.against.as_deref().map(Results::open).transpose()?;
    let file = work.join("results.tsv");
    let mut results = if options.add { Results::load(&file)? } else { Results::default() };
    let mut tools = Vec::new();
    for name in &options.tools {
        match tool(name, &work)? {
            Some(tool) => tools.push(tool),
            None => println!("{name}: not installed, left out"),
        }
    }
    measure_in_turn(&mut tools, &corpus, &steps, &work, &mut results)?;
    results.save(&file)?;
    std::fs::remove_dir_all(work.join("src"))?;
    println!("\n{}", tables::render(&results, options.markdown));
    if let Some(earlier) = earlier {
        println!("{}", tables::slower(&results, &earlier).render(options.markdown));
    }
    println!("Figures in {}, output of every step beside them.", file.display());
    let missed = targets::missed(&results);
    if missed > 0 {
        bail!("{missed} targets missed");
    }
    Ok(())
}

fn tool(name: &str, work: &Path) -> Result<Option<Box<dyn Tool>>> {
    if name == holdfast::HOLDFAST || name == holdfast::PLAIN {
        return Ok(Some(Box::new(holdfast::Holdfast::build(work, name == holdfast::PLAIN)?)));
    }
    Ok(peers::Peer::find(name, work)?.map(|peer| Box::new(peer) as Box<dyn Tool>))
}

/// The requested steps for which the corpus has disks.
fn chosen<'a>(corpus: &Corpus, wanted: &[String]) -> Result<Vec<&'a Step>> {
    if let Some(unknown) = wanted.iter().find(|name| STEPS.iter().all(|step| step.name != **name)) {
        bail!("there is no step {unknown:?}; there are {}", STEPS.map(|step| step.name).join(", "));
    }
    let chosen = STEPS.iter().filter(|step| wanted.is_empty() || wanted.iter().any(|name| name == step.name));
    let steps: Vec<_> = chosen.filter(|step| corpus.image(step).exists()).collect();
    if steps.is_empty() {
        bail!(
            "{} has none of the disks; it should have web-day0.raw and the like",
            corpus.folder().display()
        );
    }
    Ok(steps)
}

/// Restores twice, and returns the faster one.
fn restore_twice(tool: &mut dyn Tool, step: &Step, out: &Path) -> Result<Option<Usage>> {
    let mut best: Option<Usage> = None;
    for _ in 0..2 {
        remake(out)?;
        let usage = tool.restore(step, out);
        std::fs::remove_dir_all(out)?;
        let Some(usage) = usage? else { return Ok(None) };
        if best.as_ref().is_none_or(|best| usage.wall < best.wall) {
            best = Some(usage);
        }
    }
    Ok(best)
}

/// Takes every step with every tool before the next step, so that all of them meet the same hour of a shared machine;
/// a different tool begins each time.
fn measure_in_turn(
    tools: &mut [Box<dyn Tool>],
    corpus: &Corpus,
    steps: &[&Step],
    work: &Path,
    results: &mut Results,
) -> Result<()> {
    for tool in &mut *tools {
        println!("{} ({})", shell::bold(tool.name()), tool.version());
        results.forget(tool.name());
        tool.prepare().with_context(|| format!("{}: cannot make a repository", tool.name()))?;
    }
    for step in steps {
        println!("\n{}", shell::bold(step.name));
        for tool in &mut *tools {
            measure_step(tool.as_mut(), corpus, step, work, results)?;
        }
        tools.rotate_left(1.min(tools.len()));
    }
    println!("\n{}", shell::bold("repository"));
    tools.iter_mut().try_for_each(|tool| finish(tool.as_mut(), results))
}

fn measure_step(
    tool: &mut dyn Tool,
    corpus: &Corpus,
    step: &Step,
    work: &Path,
    results: &mut Results,
) -> Result<()> {
    let disk = corpus.present(step)?;
    rustix::fs::sync();
    measure::claim_free_memory(std::fs::metadata(&disk)?.len())?;
    let usage = if step.restore {
        restore_twice(tool, step, &work.join("out"))
    } else {
        tool.backup(step, &disk).map(Some)
    };
    let mut usage = match usage {
        Ok(Some(usage)) => usage,
        Ok(None) => return Ok(()),
        // Another tool's failure does not end the benchmark.
        Err(error) if !tool.name().starts_with(holdfast::HOLDFAST) => {
            println!("  {:<16} left out: {error:#}", tool.name());
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    usage.data_bytes = std::fs::metadata(&disk)?.blocks() * 512;
    let size = corpus::size(tool.repository())?;
    println!("  {:<16} {}", tool.name(), usage.line(size.apparent_bytes));
    results.push(Measured::of(tool.name(), step.name, &usage, size));
    Ok(())
}

/// Takes the final size of the repository and removes it.
fn finish(tool: &mut dyn Tool, results: &mut Results) -> Result<()> {
    tool.finish()?;
    rustix::fs::sync();
    let size = corpus::size(tool.repository())?;
    println!(
        "  {:<16} {} MB in all, {} MB of blocks",
        tool.name(),
        size.apparent_bytes / 1_000_000,
        size.allocated_bytes / 1_000_000
    );
    results.push(Measured::of(tool.name(), "repository", &Usage::default(), size));
    std::fs::remove_dir_all(tool.repository())?;
    Ok(())
}

/// An empty folder.
fn remake(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}
