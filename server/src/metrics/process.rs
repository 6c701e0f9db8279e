//! What the operating system says about this process.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// Figures of one moment; 0 for what cannot be read: figures about the process must not stand in the way of those
/// about the repository.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct ProcessStats {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) threads: u64,
    pub(super) open_fds: u64,
    pub(super) max_fds: u64,
    /// Unix time.
    pub(super) started_seconds: f64,
}

/// Reads them. Costs a few system calls and one more for every few hundred open files.
pub(super) fn read() -> ProcessStats {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    ProcessStats {
        open_fds: fs::read_dir("/proc/self/fd").map_or(0, |entries| {
            // One of them is the open folder itself.
            (entries.count() as u64).saturating_sub(1)
        }),
        // `None`: unlimited.
        max_fds: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        ..parse(&stat, &uptime, now)
    }
}

/// Reads `/proc/self/stat` (see proc_pid_stat(5)) and `/proc/uptime`.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn parse(stat: &str, uptime: &str, now_seconds: f64) -> ProcessStats {
    // The second field is the program's name in parentheses, which may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    // Field 3 (state) is the first here.
    let field = |number: usize| -> u64 {
        number.checked_sub(3).and_then(|at| fields.get(at)).and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let ticks = clock_ticks_per_second().max(1) as f64;
    let page_bytes = page_size() as u64;
    let up_seconds: f64 = uptime.split_whitespace().next().and_then(|text| text.parse().ok()).unwrap_or(0.0);
    ProcessStats {
        cpu_seconds: (field(14).saturating_add(field(15))) as f64 / ticks,
        threads: field(20),
        started_seconds: now_seconds - up_seconds + field(22) as f64 / ticks,
        virtual_bytes: field(23),
        resident_bytes: field(24).saturating_mul(page_bytes),
        ..ProcessStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let stat = "7 (a ) b) S 1 1 1 0 -1 4194560 1 0 0 0 100 50 0 0 20 0 9 0 3000 4096000 12 0";
        let read = parse(stat, "40.00 70.00\n", 1_000_000.0);
        let ticks = clock_ticks_per_second() as f64;
        assert_eq!(read.cpu_seconds, 150.0 / ticks);
        assert_eq!((read.threads, read.virtual_bytes), (9, 4_096_000));
        assert_eq!(read.resident_bytes, 12 * page_size() as u64);
        assert_eq!(read.started_seconds, 1_000_000.0 - 40.0 + 3000.0 / ticks);
        assert_eq!(parse("", "", 1.0), ProcessStats { started_seconds: 1.0, ..ProcessStats::default() });
    }

    #[test]
    fn this_process_has_figures() {
        let read = read();
        assert!(read.resident_bytes > 1 << 20 && read.virtual_bytes >= read.resident_bytes, "{read:?}");
        assert!(read.open_fds >= 3 && read.max_fds >= read.open_fds && read.threads >= 1, "{read:?}");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(read.started_seconds > 0.0 && read.started_seconds <= now + 1.0, "{read:?}");
    }
}
