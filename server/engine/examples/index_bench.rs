//! Measures the chunk index: insertion, lookups (half of them hits), memory and disk per chunk, and what ten
//! times as many chunks need.
//!
//! `cargo run --release -p holdfast-engine --example index_bench -- ENTRIES THREADS DIR`
//!
//! Keys are made as the engine makes them (keyed BLAKE3 of a fingerprint); that is part of every figure.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_engine::IndexOptions;
use holdfast_engine::bench::{Index, IndexKey, NamespaceKey};
use holdfast_proto::fingerprint::Fingerprint;
use holdfast_types::ids::{ContainerClass, ContainerId, Location, NamespaceId, RepositoryId};
use holdfast_volume::LocalVolume;
use ulid::Ulid;

/// Chunks of a container: 32 MiB of chunks of 16 KiB.
const CHUNKS: u64 = 2048;
/// Keys of one query message.
const BATCH: u64 = 1024;
/// Look-ups of each kind, at most: a small index is asked ten times for each of its entries.
const LOOKUPS_MAX: u64 = 10_000_000;
/// Chunks with this bit in their number were never stored.
const ABSENT: u64 = 1 << 60;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("usage: index_bench ENTRIES THREADS DIR");
    let entries: u64 = next()?.parse::<u64>().context("ENTRIES must be a number")?.next_multiple_of(CHUNKS);
    let threads: u64 = next()?.parse().context("THREADS must be a number")?;
    let dir = next()?;
    std::fs::create_dir_all(&dir)?;
    let volume = Arc::new(LocalVolume::open(std::path::Path::new(&dir))?);
    let open = || Index::open(volume.clone(), RepositoryId(Ulid(1)), IndexOptions::default());
    let index = open()?;
    let namespace = index.key_for(NamespaceId(Ulid(1)), ContainerClass::Data);
    println!("{entries} entries, {threads} threads, {dir}");

    if index.stats().entries == 0 {
        let took = timed(|| insert(&index, &namespace, entries, threads))?;
        rate("insert", entries, &took);
        rate("checkpoint, merges", 0, &timed(|| Ok(index.checkpoint().and_then(|()| index.settle())?))?);
        println!("written {:.2} times on average", index.stats().write_amplification());
    }
    drop(index);
    let mut reopened = None;
    let took = timed(|| {
        reopened = Some(open()?);
        Ok(())
    })?;
    rate("reopen", 0, &took);
    let index = reopened.context("not reopened")?;
    print_stats(&index, entries);
    for (name, miss_percent) in [("half hits", 50), ("all hits", 0), ("all misses", 100)] {
        for batch in [BATCH, 1] {
            let took = timed(|| look_up(&index, &namespace, entries, threads, batch, miss_percent))?;
            rate(&format!("lookup, {name}, {batch} at a time"), lookups(entries), &took);
        }
    }
    println!("peak memory of the process: {} (page cache not counted)", peak_memory()?);
    Ok(())
}

fn lookups(entries: u64) -> u64 {
    entries.saturating_mul(10).min(LOOKUPS_MAX)
}

/// Wall and processor time.
struct Took {
    wall: Duration,
    /// Of all threads, the index's own included.
    cpu: Duration,
}

fn timed(work: impl FnOnce() -> Result<()>) -> Result<Took> {
    let (start, cpu) = (Instant::now(), cpu_time()?);
    work()?;
    Ok(Took { wall: start.elapsed(), cpu: cpu_time()?.saturating_sub(cpu) })
}

/// Processor time so far. On a machine that others use too, it tells more than wall time.
fn cpu_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields = stat.rsplit(')').next().context("no fields in /proc/self/stat")?;
    let ticks: Vec<u64> =
        fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 10))
}

fn rate(what: &str, count: u64, took: &Took) {
    let (wall, cpu) = (took.wall.as_secs_f64(), took.cpu.as_secs_f64());
    print!("{what:<40} {wall:8.2} s {cpu:8.2} s of CPU");
    if count > 0 {
        print!(" {:10.0} /s {:10.0} per CPU second", lossy(count) / wall, lossy(count) / cpu);
    }
    println!();
}

fn lossy(number: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let float = number as f64;
    float
}

fn mix(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn key(namespace: &NamespaceKey, chunk: u64) -> IndexKey {
    let mut bytes = [0; 32];
    for (word, slot) in (0..).zip(bytes.as_chunks_mut::<8>().0) {
        *slot = mix(chunk.wrapping_add(word << 40)).to_le_bytes();
    }
    namespace.of(&Fingerprint::from_bytes(bytes))
}

/// Where the chunk of this number is.
fn location(chunk: u64) -> Result<Location> {
    let container = ContainerId::new(chunk / CHUNKS).context("too many entries")?;
    let within = u16::try_from(chunk % CHUNKS)?;
    Ok(Location { container, region: within / 16, slot: within % 16 })
}

fn insert(index: &Index, namespace: &NamespaceKey, entries: u64, threads: u64) -> Result<()> {
    let next = AtomicU64::new(0);
    let work = || -> Result<()> {
        loop {
            let container = next.fetch_add(1, Ordering::Relaxed);
            if container * CHUNKS >= entries {
                return Ok(());
            }
            let chunks = container * CHUNKS..(container + 1) * CHUNKS;
            let located: Vec<_> =
                chunks.map(|n| Ok((key(namespace, n), location(n)?))).collect::<Result<_>>()?;
            index.insert_container(ContainerId::new(container).context("too many entries")?, located)?;
        }
    };
    in_threads(threads, |_| work())
}

fn look_up(
    index: &Index,
    namespace: &NamespaceKey,
    entries: u64,
    threads: u64,
    batch: u64,
    miss_percent: u64,
) -> Result<()> {
    in_threads(threads, |thread| {
        let mut keys = Vec::new();
        let mut chunks = Vec::new();
        for first in (0..lookups(entries) / threads).step_by(usize::try_from(batch)?) {
            chunks.clear();
            chunks.extend((first..first + batch).map(|n| {
                let random = mix(n | thread << 50);
                let absent = if random % 100 < miss_percent { ABSENT } else { 0 };
                (mix(random) % entries) | absent
            }));
            keys.clear();
            keys.extend(chunks.iter().map(|&chunk| key(namespace, chunk)));
            let mut wrong = 0u64;
            let mut check = |chunk: u64, found: Option<Location>| {
                let wanted = if chunk & ABSENT == 0 { location(chunk).ok() } else { None };
                wrong += u64::from(found != wanted);
            };
            match (keys.as_slice(), chunks.as_slice()) {
                ([key], [chunk]) => check(*chunk, index.get(key, |_| true)?),
                _ => {
                    let answer = |at: usize, found| check(chunks.get(at).copied().unwrap_or(ABSENT), found);
                    index.get_batch(&keys, |_, _| true, answer)?;
                }
            }
            // 96-bit keys and no deletions: every candidate is right.
            ensure!(wrong == 0, "{wrong} wrong answers");
        }
        Ok(())
    })
}

fn in_threads(threads: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let spawned: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        spawned.into_iter().try_for_each(|thread| {
            thread.join().map_err(|_| anyhow::anyhow!("a benchmark thread panicked"))?
        })
    })
}

fn print_stats(index: &Index, entries: u64) {
    let stats = index.stats();
    println!("runs {}, at most {} asked by one lookup", stats.runs, stats.depth);
    let ram = stats.ram_bytes_per_entry();
    let disk = lossy(stats.disk_bytes) / lossy(stats.entries);
    println!(
        "memory {ram:.3} bytes a chunk (filters {:.3}, fences {:.3}), disk {disk:.2} bytes a chunk",
        lossy(stats.filter_bytes) / lossy(stats.entries),
        lossy(stats.fence_bytes) / lossy(stats.entries),
    );
    for count in [entries, 1_000_000_000] {
        let mib = lossy(1 << 20);
        println!(
            "{count} chunks ({:.1} TB at 16 KiB): {:.0} MiB of memory beside the write buffer of {} MiB, {:.1} GB on disk",
            lossy(count) * 16384.0 / 1e12,
            ram * lossy(count) / mib,
            IndexOptions::default().write_buffer_bytes >> 20,
            disk * lossy(count) / 1e9,
        );
    }
}

fn peak_memory() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line.unwrap_or("unknown").trim().to_owned())
}
