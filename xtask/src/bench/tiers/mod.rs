//! `cargo xtask bench tiers`: copies in a bucket: requests, money, and time of backups, restores and a recovery.
//!
//! The bucket is an object store in memory on this machine, behind a line with a latency and a rate: the figures
//! include the CPU time of its program, but not the write time of a real one. Backups with and without a bucket take
//! turns, on generated disks; the fastest of each counts. [`site`] is a server with its bucket, [`costs`] the money.

mod costs;
mod site;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use self::site::Site;
use super::reclaim::{Row, render};
use crate::bucket::{self, Bucket, Counts};
use crate::shell::{self, Profile};
use crate::sparse;
use crate::splitmix::SplitMix64;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// MiB of data of the disk
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(4..))]
    size_mib: u64,
    /// Containers of the repository that is recovered, made by half as many small backups; 0 leaves it out
    #[arg(long, value_name = "N", default_value_t = 1000)]
    containers: u32,
    /// How much longer each request takes
    #[arg(long, value_name = "MS", default_value_t = 30)]
    latency_ms: u64,
    /// MiB a second that pass between server and bucket, each way
    #[arg(long, value_name = "MIB", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    rate_mib: u64,
    /// How often a first backup is made with a bucket, and without
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Where repositories go: four times the disk [default: the system's folder for temporary files]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
}

impl Options {
    const fn rate(&self) -> u64 {
        self.rate_mib << 20
    }
}

/// Days on which the disk changes a little.
const DAYS: u64 = 4;

/// One part in this many of the disk changes a day.
const CHANGED_PART: u64 = 50;

pub(crate) fn run(options: &Options) -> Result<()> {
    let parent = options.work.clone().unwrap_or_else(std::env::temp_dir);
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let work = tempfile::Builder::new().prefix("holdfast-tiers-").tempdir_in(parent.canonicalize()?)?;
    let binaries = shell::binaries(Profile::Release)?;
    let mut bucket = Bucket::start(&bucket::program(Profile::Release)?, &work.path().join("credentials"))?;
    bucket.set_line(options.latency_ms, options.rate())?;
    println!(
        "{} MiB disk; the bucket answers {} ms later, over {} MiB/s each way",
        options.size_mib, options.latency_ms, options.rate_mib
    );
    let disk = work.path().join("disk.raw");
    write_noise(&File::create(&disk)?, 0, options.size_mib << 20, 1)?;
    let mut rows = Vec::new();
    let mut site = Site::new(&binaries, work.path(), bucket).with_line(options.latency_ms, options.rate());
    first_backups(&mut site, &disk, options.rounds, &mut rows)?;
    let stored = days(&mut site, &disk, &mut rows)?;
    reclaim(&mut site, &mut rows)?;
    let restored = restore(&mut site, &disk, options, &mut rows)?;
    let table = costs::table(&binaries, &stored, &restored)?;
    primary(&mut site, &disk, options, &mut rows)?;
    if options.containers > 0 {
        recovery_of_many(&mut site, options.containers, &mut rows)?;
    }
    println!("\n{}", render(&rows));
    println!("\n{table}");
    let missed = rows.iter().filter(|row| row.reached == Some(false)).count();
    if missed > 0 {
        bail!("{missed} targets missed");
    }
    Ok(())
}

/// Objects in the bucket, and the requests that put them there.
struct Stored {
    objects: u64,
    bytes: u64,
    puts: u64,
}

/// Bytes read from the bucket, and the requests for them.
struct Restored {
    bytes: u64,
    gets: u64,
    heads: u64,
}

/// Makes first backups with a bucket and without, in turn, to empty repositories. The last one with a bucket stays.
fn first_backups(site: &mut Site, disk: &Path, rounds: u32, rows: &mut Vec<Row>) -> Result<()> {
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    for round in 1..=rounds {
        site.begin_without_bucket()?;
        without = without.min(site.backup("web", disk)?);
        site.end()?;
        site.begin()?;
        with = with.min(site.backup("web", disk)?);
        let behind = Instant::now();
        site.wait_until_copied()?;
        println!("  round {round}: copied {} after the backup ended", shell::time(behind.elapsed()));
    }
    let slower = with.as_secs_f64() / without.as_secs_f64() - 1.0;
    rows.push(Row::new(
        "a first backup with copies",
        format!(
            "{:.2} s, {:.2} s without: {:+.1} %",
            with.as_secs_f64(),
            without.as_secs_f64(),
            slower * 100.0
        ),
        "+5 %",
        slower < 0.05,
    ));
    Ok(())
}

/// Measures a backup that counts only when the bucket has it, against the slower of a backup without a bucket and the
/// line: a first one, and one of a changed disk.
fn primary(site: &mut Site, disk: &Path, options: &Options, rows: &mut Vec<Row>) -> Result<()> {
    let len = disk.metadata()?.len();
    let changed = (len / CHANGED_PART).next_multiple_of(4096);
    let both = |site: &mut Site, seed: u64| -> Result<[Duration; 2]> {
        let first = site.backup("web", disk)?;
        write_noise(&File::options().write(true).open(disk)?, 0, changed, seed)?;
        Ok([first, site.backup("web", disk)?])
    };
    site.begin_without_bucket()?;
    let local = both(site, 200)?;
    site.begin_primary()?;
    let took = both(site, 201)?;
    let cases = [("a first backup into the bucket", len), ("a daily one", changed)];
    for (((name, bytes), local), took) in cases.into_iter().zip(local).zip(took) {
        let line = ratio(bytes, options.rate());
        let share = local.as_secs_f64().max(line) / took.as_secs_f64();
        rows.push(Row::new(
            name,
            format!(
                "{:.2} s; {:.2} s without a bucket, {line:.2} s of the line: {:.0} %",
                took.as_secs_f64(),
                local.as_secs_f64(),
                share * 100.0
            ),
            "80 %",
            share >= 0.80,
        ));
    }
    Ok(())
}

/// Changes and backs up the disk each day. Returns the contents of the bucket afterwards.
fn days(site: &mut Site, disk: &Path, rows: &mut Vec<Row>) -> Result<Stored> {
    let len = disk.metadata()?.len();
    let mut puts = Vec::new();
    for day in 1..=DAYS {
        let before = site.bucket().counts()?;
        let changed = (len / CHANGED_PART).next_multiple_of(4096);
        let file = File::options().write(true).open(disk)?;
        write_noise(
            &file,
            (len / DAYS * (day - 1)).next_multiple_of(4096).min(len - changed),
            changed,
            100 + day,
        )?;
        site.backup("web", disk)?;
        site.wait_until_copied()?;
        let after = site.bucket().counts()?;
        let beyond = |counts: &Counts| counts.made("put") - counts.about("put", "containers");
        puts.push(beyond(&after) - beyond(&before));
    }
    let counts = site.bucket().counts()?;
    let (containers, _) = counts.objects("containers");
    let per_container = ratio(counts.about("put", "containers") - site.container_puts_before(), containers);
    rows.push(Row::new(
        "PUTs a container",
        format!("{per_container:.3} ({containers} containers)"),
        "1.05",
        per_container <= 1.05,
    ));
    let most = puts.iter().max().copied().unwrap_or(0);
    rows.push(Row::new("PUTs a backup beside these", format!("{most} at most"), "3", most <= 3));
    Ok(Stored {
        objects: ["containers", "points", "snapshots", "keys"]
            .map(|kind| counts.objects(kind).0)
            .iter()
            .sum(),
        bytes: counts.stored_bytes(),
        puts: counts.made("put") - site.puts_before(),
    })
}

/// Deletes half of the restore points, and frees the space that only they needed, in the bucket, too.
fn reclaim(site: &mut Site, rows: &mut Vec<Row>) -> Result<()> {
    let before = site.bucket().counts()?;
    site.delete_and_reclaim()?;
    site.wait_until_copied()?;
    let after = site.bucket().counts()?;
    let (lists, deletes) = (after.made_since("list", &before), after.made_since("delete", &before));
    let freed = before.stored_bytes().saturating_sub(after.stored_bytes());
    let gone = before.objects("containers").0.saturating_sub(after.objects("containers").0);
    rows.push(Row::new(
        "LISTs a reclaim",
        format!("{lists} ({deletes} DELETEs; {} containers fewer, {} MB freed)", gone, freed / 1_000_000),
        "0",
        lists == 0,
    ));
    Ok(())
}

/// Removes the data folder, recovers the server from the bucket, and restores the disk from there.
fn restore(site: &mut Site, disk: &Path, options: &Options, rows: &mut Vec<Row>) -> Result<Restored> {
    let kit = site.export_kit()?;
    site.wait_until_copied()?;
    site.lose()?;
    let recovery = site.recover(&kit)?;
    rows.push(recovery.row("recovery from the bucket"));
    let out = site.folder().join("restored.raw");
    let before = site.bucket().counts()?;
    let took = site.restore("web", &out)?;
    let after = site.bucket().counts()?;
    sparse::same(&out, disk)?;
    std::fs::remove_file(&out)?;
    let bytes = after.figure("sent_bytes") - before.figure("sent_bytes");
    // Noise does not compress: the whole disk had to be read.
    let len = disk.metadata()?.len();
    let share = ratio(len, options.rate()) / took.as_secs_f64();
    let in_flight = after.figure("gets_in_flight_max");
    ensure!(bytes > 0, "nothing was read from the bucket");
    rows.push(Row::new(
        "a restore from the bucket alone",
        format!(
            "{} MB in {:.2} s: {:.0} % of the line; {} MB came over it",
            len / 1_000_000,
            took.as_secs_f64(),
            share * 100.0,
            bytes / 1_000_000
        ),
        "80 %",
        share >= 0.80,
    ));
    rows.push(Row::new("GETs at once", in_flight.to_string(), "32", in_flight <= 32));
    let (gets, heads) = (after.made_since("get", &before), after.made_since("head", &before));
    rows.push(Row::said("requests of it", format!("{gets} GETs, {heads} HEADs")));
    Ok(Restored { bytes, gets, heads })
}

/// Recovers a repository of many containers: the time does not depend on how much they contain.
fn recovery_of_many(site: &mut Site, containers: u32, rows: &mut Vec<Row>) -> Result<()> {
    site.end()?;
    site.begin()?;
    // Creating them is not measured.
    site.bucket().set_line(0, 0)?;
    site.many_backups(containers.div_ceil(2))?;
    site.wait_until_copied()?;
    let kit = site.export_kit()?;
    site.wait_until_copied()?;
    site.lose()?;
    let line = site.line();
    site.bucket().set_line(line.0, line.1)?;
    let recovery = site.recover(&kit)?;
    let there = site.bucket().counts()?.objects("containers").0;
    println!("  {there} containers in the bucket");
    rows.push(recovery.row("recovery of many small containers"));
    Ok(())
}

/// Writes `len` bytes of noise from `offset` on.
fn write_noise(file: &File, offset: u64, len: u64, seed: u64) -> Result<()> {
    const BLOCK_BYTES: usize = 1 << 20;
    let mut noise = SplitMix64(seed << 40);
    let mut block = vec![0; BLOCK_BYTES];
    let mut written = 0;
    while written < len {
        for word in block.chunks_mut(8) {
            word.copy_from_slice(&noise.next().to_le_bytes());
        }
        let now = usize::try_from(len - written).unwrap_or(BLOCK_BYTES).min(BLOCK_BYTES);
        file.write_all_at(block.get(..now).unwrap_or_default(), offset + written)?;
        written += now as u64;
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
