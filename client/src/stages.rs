//! CPU time, wall time and bytes of every stage of the pipeline, to find bottlenecks.
//! Counters are atomics; a stage is measured per buffer, never per chunk.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Stages of a backup and of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// `pread` of the source.
    Read,
    /// Zero test and BLAKE3 of whole extents.
    Digest,
    /// `FastCDC`.
    Chunk,
    /// BLAKE3 of chunks.
    Fingerprint,
    /// Copying needed chunks into regions.
    Pack,
    /// zstd compression.
    Compress,
    /// Encrypting regions.
    Seal,
    /// Waiting for the server to take what is ready; wall time only.
    SendWait,
    /// Waiting for the server to deliver; wall time only.
    ReceiveWait,
    /// Opening what is encrypted, and zstd decompression.
    Decompress,
    /// BLAKE3 of restored chunks.
    Check,
    /// Writing to the target.
    Write,
}

const STAGES: [(Stage, &str); 12] = [
    (Stage::Read, "read"),
    (Stage::Digest, "digest"),
    (Stage::Chunk, "chunk"),
    (Stage::Fingerprint, "fingerprint"),
    (Stage::Pack, "pack"),
    (Stage::Compress, "compress"),
    (Stage::Seal, "seal"),
    (Stage::SendWait, "send_wait"),
    (Stage::ReceiveWait, "receive_wait"),
    (Stage::Decompress, "decompress"),
    (Stage::Check, "check"),
    (Stage::Write, "write"),
];

#[derive(Debug, Default)]
struct Counter {
    cpu_nanos: AtomicU64,
    wall_nanos: AtomicU64,
    bytes: AtomicU64,
}

/// Counters of all stages.
#[derive(Debug, Default)]
pub struct Stages([Counter; STAGES.len()]);

/// Time and bytes of one stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct StageTotal {
    /// Summed over threads; 0 for stages that only wait.
    pub cpu_seconds: f64,
    /// Summed over threads.
    pub wall_seconds: f64,
    pub bytes: u64,
}

impl Stages {
    /// Runs `work`, which deals with `bytes`, as part of `stage`.
    pub fn measure<T>(&self, stage: Stage, bytes: u64, work: impl FnOnce() -> T) -> T {
        let mut watch = Stopwatch::start();
        let result = work();
        self.add(stage, watch.lap(), bytes);
        result
    }

    /// Adds a wait of `wall` to `stage`.
    pub fn waited(&self, stage: Stage, wall: Duration, bytes: u64) {
        self.add(stage, Lap { cpu: Duration::ZERO, wall }, bytes);
    }

    /// Adds a measurement taken elsewhere.
    pub fn add(&self, stage: Stage, lap: Lap, bytes: u64) {
        let Some(counter) = self.0.get(stage as usize) else { unreachable!("{stage:?} has no counter") };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        counter.cpu_nanos.fetch_add(nanos(lap.cpu), Ordering::Relaxed);
        counter.wall_nanos.fetch_add(nanos(lap.wall), Ordering::Relaxed);
        counter.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Wall time of a stage so far in milliseconds, summed over threads.
    pub fn wall_ms(&self, stage: Stage) -> u64 {
        self.0.get(stage as usize).map_or(0, |counter| counter.wall_nanos.load(Ordering::Relaxed) / 1_000_000)
    }

    /// Totals by name, without stages that never ran.
    pub fn totals(&self) -> BTreeMap<&'static str, StageTotal> {
        let seconds = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed)).as_secs_f64();
        STAGES
            .iter()
            .zip(&self.0)
            .map(|((_, name), counter)| {
                let total = StageTotal {
                    cpu_seconds: seconds(&counter.cpu_nanos),
                    wall_seconds: seconds(&counter.wall_nanos),
                    bytes: counter.bytes.load(Ordering::Relaxed),
                };
                (*name, total)
            })
            .filter(|(_, total)| total.wall_seconds > 0.0)
            .collect()
    }
}

/// CPU and wall time of one thread between two moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lap {
    pub cpu: Duration,
    pub wall: Duration,
}

impl std::ops::AddAssign for Lap {
    fn add_assign(&mut self, other: Self) {
        self.cpu += other.cpu;
        self.wall += other.wall;
    }
}

/// Measures one step after another on one thread, each from the end of the previous one: reading a thread's
/// CPU clock is a system call.
#[derive(Debug)]
pub struct Stopwatch {
    cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self { cpu: thread_cpu(), wall: Instant::now() }
    }

    /// Time since the start, or since the last lap.
    pub fn lap(&mut self) -> Lap {
        let now = Self::start();
        let lap = Lap { cpu: now.cpu.saturating_sub(self.cpu), wall: now.wall.duration_since(self.wall) };
        *self = now;
        lap
    }
}

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Highest resident memory of this process so far, in bytes; `None` without a readable `/proc`.
pub fn peak_memory_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_stand_in_their_order_and_add_up() {
        for (index, (stage, _)) in STAGES.iter().enumerate() {
            assert_eq!(*stage as usize, index);
        }
        let stages = Stages::default();
        assert!(stages.totals().is_empty());
        for _ in 0..2 {
            let sum: u64 =
                stages.measure(Stage::Chunk, 21, || (0..200_000u64).map(std::hint::black_box).sum());
            assert_eq!(sum, 19_999_900_000);
        }
        let totals = stages.totals();
        assert_eq!(totals.keys().collect::<Vec<_>>(), [&"chunk"]);
        assert_eq!(totals["chunk"].bytes, 42);
        assert!(totals["chunk"].cpu_seconds > 0.0);
        assert!(peak_memory_bytes().unwrap() > 1 << 20);
    }
}
