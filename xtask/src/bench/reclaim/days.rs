//! A disk that changes a little every day: compares restore times of its newest restore point and its first.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::corpus::{Corpus, STEPS};
use super::super::measure::forget_cache;
use super::Row;
use super::ours::Ours;
use crate::sparse;
use crate::splitmix::SplitMix64;

/// Number of blocks that change each day, and their size: 12 MiB a day, in scattered places.
const BLOCKS_A_DAY: u64 = 768;
const BLOCK_BYTES: usize = 16 << 10;

pub(super) fn measure(corpus: &Corpus, work: &Path, days: u32, rows: &mut Vec<Row>) -> Result<()> {
    let step = STEPS.iter().find(|step| corpus.image(step).exists()).context("no disk")?;
    println!("{}", crate::shell::bold(&format!("{days} days of one disk")));
    let disk = work.join("days.raw");
    sparse::copy(&corpus.image(step), &disk)?;
    let file = File::options().read(true).write(true).open(&disk)?;
    let places = places(&file)?;
    let mut ours = Ours::start(work, "days")?;
    let mut numbers = SplitMix64(days.into());
    let mut ids = Vec::new();
    for day in 0..days {
        if day > 0 {
            change(&file, &places, &mut numbers)?;
        }
        ids.push(ours.backup(&format!("day{day}"), "days", &disk)?.0);
    }
    let (first, newest) = (ids.first().context("no days")?, ids.last().context("no days")?);
    let unmerged = speeds(&mut ours, first, newest, work)?;
    ours.reclaim("reclaim", &[])?;
    let merged = speeds(&mut ours, first, newest, work)?;
    // The restored disk must equal the current one.
    let out = work.join("out.raw");
    let to = out.to_string_lossy();
    ours.run("restore", &["restore", newest, "--json", "--no-sync", "--to", &to])?;
    sparse::same(&out, &disk)?;
    std::fs::remove_file(&out)?;
    ours.stop_and_measure()?;
    ours.remove()?;
    let share = merged.0.as_secs_f64() / merged.1.as_secs_f64();
    rows.push(Row::new(
        "newest of 30 days against the first",
        format!(
            "{:.2} s, the first {:.2} s: {share:.2} of its speed ({:.2} before reclaim)",
            merged.1.as_secs_f64(),
            merged.0.as_secs_f64(),
            unmerged.0.as_secs_f64() / unmerged.1.as_secs_f64()
        ),
        "0.80",
        share >= 0.80,
    ));
    Ok(())
}

/// Restore times of the first and the newest: the faster of two each, with nothing of the repository in the page
/// cache, where the difference is.
fn speeds(ours: &mut Ours, first: &str, newest: &str, work: &Path) -> Result<(Duration, Duration)> {
    let out = work.join("out.raw");
    let to = out.to_string_lossy().into_owned();
    let mut best = [Duration::MAX; 2];
    for _ in 0..2 {
        for (best, id) in best.iter_mut().zip([first, newest]) {
            ours.stop_and_measure()?;
            forget_cache(&ours.folder())?;
            ours.restart()?;
            let usage = ours.run("restore", &["restore", id, "--json", "--no-sync", "--to", &to])?;
            std::fs::remove_file(&out)?;
            *best = (*best).min(usage.wall);
        }
    }
    Ok(best.into())
}

/// Offsets of the disk's data, by block.
fn places(disk: &File) -> Result<Vec<u64>> {
    let mut places = Vec::new();
    sparse::for_data(disk, |offset, bytes| {
        places.extend((offset..offset + bytes.len() as u64).step_by(BLOCK_BYTES));
        Ok(())
    })?;
    Ok(places)
}

fn change(disk: &File, places: &[u64], numbers: &mut SplitMix64) -> Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    for _ in 0..BLOCKS_A_DAY {
        let number = usize::try_from(numbers.next() % places.len().max(1) as u64)?;
        let place = places.get(number).context("the disk is empty")?;
        // Half of it noise, so that it compresses as a disk does.
        for word in block.chunks_exact_mut(16) {
            word.get_mut(..8).context("a word")?.copy_from_slice(&numbers.next().to_le_bytes());
        }
        disk.write_all_at(&block, *place)?;
    }
    Ok(())
}
