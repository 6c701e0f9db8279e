//! `cargo xtask bench reclaim`: the cost of freeing space, beside restic's `forget --prune` in the same run.
//!
//! All steps of the corpus are backed up with both tools, half of the restore points are deleted, and the space that
//! only they needed is freed. The right amount is measured: a separate repository gets backups of only the restore
//! points that stay. A backup is timed by itself and beside a reclaim, on copies of one repository. Then old
//! containers are recompressed, and a disk that changes a little on thirty days is restored as it was on the first
//! and on the last.

mod days;
mod ours;
mod peer;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::ours::Ours;
use super::corpus::{self, Corpus, STEPS, Step};
use super::measure::Usage;
use super::peers::Peer;
use crate::shell;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder with VM disks: {web,db,build}-day{0,1,2}.raw; those that are missing are left out
    #[arg(long, value_name = "DIR")]
    corpus: PathBuf,
    /// Where repositories go: about four times the largest [default: a folder beside the corpus]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Days of the disk that changes a little every day; 0 leaves that part out
    #[arg(long, value_name = "N", default_value_t = 30)]
    days: u32,
}

/// A figure, its target, and whether it was reached.
#[derive(Debug)]
pub(super) struct Row {
    name: &'static str,
    measured: String,
    limit: String,
    pub(super) reached: Option<bool>,
}

impl Row {
    pub(super) fn new(name: &'static str, measured: String, limit: impl Into<String>, reached: bool) -> Self {
        Self { name, measured, limit: limit.into(), reached: Some(reached) }
    }

    pub(super) fn said(name: &'static str, measured: String) -> Self {
        Self { name, measured, limit: String::new(), reached: None }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder =
        options.corpus.canonicalize().with_context(|| format!("no folder {}", options.corpus.display()))?;
    let work = options.work.clone().unwrap_or_else(|| folder.with_file_name("holdfast-bench-reclaim"));
    super::remake(&work)?;
    let work = work.canonicalize()?;
    let corpus = Corpus::open(&folder, &work)?;
    let steps: Vec<&Step> =
        STEPS.iter().filter(|step| !step.restore && corpus.image(step).exists()).collect();
    ensure!(steps.len() > 1, "{} has fewer than two of the disks", folder.display());
    let mut rows = Vec::new();
    let freed = on_the_corpus(&corpus, &steps, &work, &mut rows)?;
    match Peer::find("restic", &work)? {
        Some(restic) => beside_restic(restic, &corpus, &steps, &freed, &mut rows)?,
        None => println!("restic: not installed, left out"),
    }
    if options.days > 0 {
        days::measure(&corpus, &work, options.days, &mut rows)?;
    }
    println!("\n{}", render(&rows));
    std::fs::remove_dir_all(&work)?;
    let missed = rows.iter().filter(|row| row.reached == Some(false)).count();
    if missed > 0 {
        bail!("{missed} targets missed");
    }
    Ok(())
}

/// Figures of Holdfast.
struct Freed {
    usage: Usage,
    /// Size after reclaim, and after recompressing old containers.
    repository_bytes: u64,
    squeezed_bytes: u64,
}

/// Number of restore points that are deleted, oldest first.
const fn deleted(steps: usize) -> usize {
    steps / 2
}

fn on_the_corpus(corpus: &Corpus, steps: &[&Step], work: &Path, rows: &mut Vec<Row>) -> Result<Freed> {
    println!("{}", shell::bold("holdfast"));
    // The size of a repository that never had the others.
    let mut alone = Ours::start(work, "alone")?;
    for step in steps.iter().skip(deleted(steps.len())) {
        alone.backup(step.name, step.vm, &corpus.present(step)?)?;
    }
    let ideal_bytes = alone.stop_and_measure()?;
    alone.remove()?;

    let mut all = Ours::start(work, "all")?;
    let mut ids = Vec::new();
    for step in steps {
        ids.push(all.backup(step.name, step.vm, &corpus.present(step)?)?.0);
    }
    ids.truncate(deleted(steps.len()));
    let before_bytes = all.stop_and_measure()?;
    let beside = slowdown(&all, &ids, corpus, steps, work)?;
    all.restart()?;
    rustix::fs::sync();
    let deletion = all.delete(&ids)?;
    let reclaim = all.reclaim("reclaim", &[])?;
    let usage = Usage { wall: deletion.wall + reclaim.wall, cpu: deletion.cpu + reclaim.cpu, ..reclaim };
    println!("  deleting and reclaiming {}", usage.line(all.bytes()?));
    let after_bytes = all.stop_and_measure()?;
    all.restart()?;
    let squeeze = all.reclaim("squeeze", &["--squeeze", "--squeeze-older-than", "0d"])?;
    println!("  compressing anew        {}", squeeze.line(all.bytes()?));
    let squeezed_bytes = all.stop_and_measure()?;
    all.remove()?;

    let dead = before_bytes.saturating_sub(ideal_bytes);
    let returned = before_bytes.saturating_sub(after_bytes);
    let share = ratio(returned, dead);
    rows.push(Row::new(
        "dead bytes returned",
        format!("{} of {} MB = {share:.3}", mb(returned), mb(dead)),
        "0.97",
        share >= 0.97,
    ));
    rows.push(Row::new(
        "a backup beside reclaim",
        format!("{beside:.2} × by itself"),
        "1.15 ×",
        beside < 1.15,
    ));
    let gained = ratio(squeezed_bytes, after_bytes);
    rows.push(Row::said(
        "compressing anew",
        format!(
            "{} → {} MB = {gained:.3} in {:.1} s ({:.1} s CPU)",
            mb(after_bytes),
            mb(squeezed_bytes),
            squeeze.wall.as_secs_f64(),
            squeeze.cpu.as_secs_f64()
        ),
    ));
    Ok(Freed { usage, repository_bytes: after_bytes, squeezed_bytes })
}

/// Duration of a backup beside a reclaim, as a multiple of one by itself, on copies of one repository.
fn slowdown(all: &Ours, ids: &[String], corpus: &Corpus, steps: &[&Step], work: &Path) -> Result<f64> {
    let step = steps.last().context("no steps")?;
    let disk = corpus.present(step)?;
    let mut walls = Vec::new();
    for (name, busy) in [("by-itself", false), ("beside", true)] {
        let mut copy = all.copy(work, name)?;
        copy.delete(ids)?;
        rustix::fs::sync();
        let reclaim = if busy { Some(copy.begin_reclaim()?) } else { None };
        // Under another VM, so that all of the disk is read and queried.
        let (_, usage) = copy.backup("beside", "another", &disk)?;
        if let Some(mut reclaim) = reclaim {
            let went_on = reclaim.try_wait()?.is_none();
            println!("  the backup ended {} reclaim did", if went_on { "before" } else { "after" });
            ensure!(reclaim.wait()?.success(), "reclaim beside a backup failed");
        }
        println!("  a backup {name}: {:.2} s", usage.wall.as_secs_f64());
        walls.push(usage.wall.as_secs_f64());
        copy.stop_and_measure()?;
        copy.remove()?;
    }
    match walls.as_slice() {
        [alone, beside] => Ok(beside / alone),
        _ => bail!("two backups were to be timed"),
    }
}

fn beside_restic(
    mut restic: Peer,
    corpus: &Corpus,
    steps: &[&Step],
    ours: &Freed,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let theirs = peer::measure(&mut restic, corpus, steps, deleted(steps.len()))?;
    let (wall, limit) = (ours.usage.wall.as_secs_f64(), theirs.usage.wall.as_secs_f64());
    rows.insert(
        0,
        Row::new(
            "delete and reclaim",
            format!("{wall:.2} s = {:.2} × restic", wall / limit),
            format!("0.30 × {limit:.2} s"),
            wall <= 0.30 * limit,
        ),
    );
    let after = ratio(ours.repository_bytes, theirs.repository_bytes);
    rows.push(Row::said(
        "repository after reclaim",
        format!("{} MB = {after:.3} × restic", mb(ours.repository_bytes)),
    ));
    let share = ratio(ours.squeezed_bytes, theirs.repository_bytes);
    rows.push(Row::new(
        "and compressed anew",
        format!("{} MB = {share:.3} × restic", mb(ours.squeezed_bytes)),
        format!("0.78 × {} MB", mb(theirs.repository_bytes)),
        share <= 0.78,
    ));
    Ok(())
}

/// Renders a table; rows with a target tell whether it was reached.
pub(super) fn render(rows: &[Row]) -> String {
    let lines = rows.iter().map(|row| {
        let verdict = match row.reached {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        format!("| {} | {} | {} | {verdict} |", row.name, row.measured, row.limit)
    });
    let head = ["| | measured | target | |".to_owned(), "|---|---|---|---|".to_owned()];
    head.into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

const fn mb(bytes: u64) -> u64 {
    bytes / 1_000_000
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Bytes of the files below `folder`.
fn bytes_of(folder: &Path) -> Result<u64> {
    Ok(corpus::size(folder)?.apparent_bytes)
}
