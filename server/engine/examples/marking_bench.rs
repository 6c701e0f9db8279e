//! Measures marking: references a second and peak memory, and what 10¹⁰ references would take.
//!
//! `cargo run --release -p holdfast-engine --example marking_bench -- REFERENCES DIR`
//!
//! The repository is made first: VMs with a first full and 29 daily backups, in each of which 3 % of the extents
//! change, and of these 30 % of the chunks. Data containers have directories and no payloads, which marking never reads;
//! all else is as backups write it.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use holdfast_engine::bench::{Shape, fill, measure};
use holdfast_engine::catalog::Catalog;
use holdfast_engine::clock::SystemClock;
use holdfast_engine::{Engine, EngineOptions, EngineParts, Health};
use holdfast_volume::LocalVolume;

const VMS: u32 = 8;
const DAYS: u32 = 30;
const CHANGED_PERMILLE: u64 = 30;
/// Chunks of an extent.
const CHUNKS: u64 = 256;
/// Times it is measured; the best counts, because others only disturb.
const ROUNDS: u32 = 3;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("usage: marking_bench REFERENCES DIR");
    let references: u64 = next()?.parse().context("REFERENCES must be a number")?;
    let dir = std::path::PathBuf::from(next()?);
    std::fs::create_dir_all(&dir)?;
    // Every changed extent is a node that refers to all of its chunks.
    let of_extent = CHUNKS * (1000 + u64::from(DAYS - 1) * CHANGED_PERMILLE) / 1000;
    let extents = (references / u64::from(VMS) / of_extent).max(1);
    let shape = Shape { vms: VMS, extents, days: DAYS, changed_permille: CHANGED_PERMILLE };
    let engine = open(&dir)?;
    let namespace = engine.catalog().ensure_namespace("default")?.id;
    let begun = Instant::now();
    let made = fill(&engine, namespace, shape)?;
    println!("made {} chunks in {:.0} s", made.chunks, begun.elapsed().as_secs_f64());
    let before = peak_kib("VmHWM:")?;
    // What filling took is not what marking takes.
    reset_peak();
    let mut best = f64::MAX;
    for round in 1..=ROUNDS {
        let begun = Instant::now();
        let found = measure(&engine, &made)?;
        let took = begun.elapsed().as_secs_f64();
        best = best.min(took);
        ensure!(found.live_chunks == made.chunks, "{} chunks are live of {}", found.live_chunks, made.chunks);
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let rate = found.references as f64 / took;
        println!(
            "mark {round}: {} references, {} containers, {} windows, {took:.1} s, {:.1} M references/s",
            found.references,
            found.containers,
            found.windows,
            rate / 1e6
        );
        if round == ROUNDS {
            // 2 × 10^9 chunks are two windows, each with a walk over all recipes.
            println!("10^10 references: {:.0} s a window at the best rate", 1e10 / rate.max(1.0));
        }
    }
    println!(
        "best {best:.1} s; peak memory {} MiB (while filling {} MiB)",
        peak_kib("VmHWM:")? >> 10,
        before >> 10
    );
    Ok(())
}

fn open(dir: &std::path::Path) -> Result<Engine> {
    let clock = Arc::new(SystemClock);
    let health = Arc::<Health>::default();
    let volume = Arc::new(LocalVolume::open(dir.join("blobs"))?);
    let (catalog, _) =
        Catalog::open_or_create(&dir.join("catalog.db"), clock.clone(), Arc::<Health>::clone(&health))?;
    ensure!(catalog.all_backup_ids().next().is_none(), "{} is not empty", dir.display());
    Ok(Engine::assemble(EngineParts {
        data: volume.clone(),
        index: volume,
        catalog: Arc::new(catalog),
        clock,
        health,
        options: EngineOptions::default(),
        lock: None,
    })?)
}

/// What the kernel says of this process's memory.
fn peak_kib(name: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("no such line")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Where it is not allowed, the peak is that of filling.
fn reset_peak() {
    let _ignored = std::fs::write("/proc/self/clear_refs", "5");
}
