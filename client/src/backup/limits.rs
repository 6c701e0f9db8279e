//! Limits on the threads, buffers and memory of a backup.

/// How many threads and buffers a backup uses. Peak memory: `buffers` × 4 MiB + (2 × `regions` + 24) × 512 KiB +
/// threads × 1.5 MB (level 2) + 17 MiB known fingerprints + 16 MiB window: on 2 cores 56 + 20 + 3 + 17 + 16
/// = 112 MiB, on 24 cores or more 128 + 42 + 36 + 33 = 239 MiB if ever all were full at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) compress_threads: usize,
    pub(crate) scan_threads: usize,
    /// Extent buffers: one per scanning thread, and as many as wait to be packed.
    pub(crate) buffers: usize,
    /// Regions in compression or waiting to be sent.
    pub(crate) regions: usize,
}

impl Limits {
    /// Returns the limits for `threads` that compress; `None`: one per core.
    pub(crate) fn for_threads(threads: Option<usize>) -> Self {
        let cores = threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from));
        let compress_threads = cores.unwrap_or(2).clamp(1, 24);
        // More than cores, so that reading and computing overlap; 4 keep a disk's queue busy.
        let scan_threads = compress_threads.clamp(4, 16);
        let buffers = scan_threads + (scan_threads * 2).clamp(10, 16);
        Self { compress_threads, scan_threads, buffers, regions: compress_threads + 6 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_stays_within_its_bound_on_any_machine() {
        for threads in [1, 2, 4, 8, 16, 32, 1000] {
            let limits = Limits::for_threads(Some(threads));
            assert!(limits.buffers > limits.scan_threads, "{limits:?}");
            let mib =
                limits.buffers * 4 + (2 * limits.regions + 24) / 2 + limits.compress_threads * 3 / 2 + 33;
            assert!(mib < 256, "{threads} threads: {mib} MiB");
        }
    }
}
