//! Usage of a step, and the results of a run.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::corpus::Size;
use crate::shell;

/// Time and memory used by one step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Usage {
    pub(super) wall: Duration,
    /// User and system time of all processes involved.
    pub(super) cpu: Duration,
    /// The server's share of `cpu`.
    pub(super) server_cpu: Duration,
    pub(super) peak_bytes: u64,
    /// Peak memory of the server, if there is one.
    pub(super) server_peak_bytes: Option<u64>,
    /// Bytes of the disk that are not holes.
    pub(super) data_bytes: u64,
}

impl Usage {
    pub(super) fn line(&self, repository_bytes: u64) -> String {
        let server =
            self.server_peak_bytes.map(|n| format!(" + server {} MB", n / 1_000_000)).unwrap_or_default();
        format!(
            "{:>8.2} s wall {:>8.2} s CPU   peak {} MB{server}   repository {} MB",
            self.wall.as_secs_f64(),
            self.cpu.as_secs_f64(),
            self.peak_bytes / 1_000_000,
            repository_bytes / 1_000_000,
        )
    }
}

/// Runs a command to its end with its output in `log`.
///
/// # Errors
/// When it fails; the message has the end of its output.
pub(super) fn measured(command: &mut Command, log: &Path) -> Result<Usage> {
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let started = Instant::now();
    let child = command.spawn().with_context(|| format!("cannot run {}", shell::line(command)))?;
    let (success, mut usage) = wait4(child.id())?;
    usage.wall = started.elapsed();
    if !success {
        let text = fs::read_to_string(log).unwrap_or_default();
        let last: Vec<_> = text.lines().rev().take(5).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        bail!("`{}` failed:\n{last}", shell::line(command));
    }
    Ok(usage)
}

/// Waits for a child and returns whether it succeeded, with its usage; neither std nor rustix offers that.
fn wait4(pid: u32) -> Result<(bool, Usage)> {
    let pid = libc::pid_t::try_from(pid)?;
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value of that C structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to live values of the types wait4 writes; the child is ours and nothing
        // else waits for it.
        if unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error).context("cannot wait for a child");
        }
    }
    let time = |value: libc::timeval| -> Result<Duration> {
        Ok(Duration::from_secs(value.tv_sec.try_into()?) + Duration::from_micros(value.tv_usec.try_into()?))
    };
    let usage = Usage {
        cpu: time(usage.ru_utime)? + time(usage.ru_stime)?,
        peak_bytes: u64::try_from(usage.ru_maxrss)? * 1024,
        ..Usage::default()
    };
    Ok((libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, usage))
}

/// CPU time a running process has used.
pub(super) fn cpu_of(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("the server is gone")?;
    // The program's name, in parentheses, may have spaces; the fields after it are counted from 3.
    let (_, fields) = stat.rsplit_once(')').context("/proc/PID/stat is not as documented")?;
    let mut fields = fields.split_whitespace().skip(14 - 3);
    let mut ticks = || fields.next().and_then(|field| field.parse::<u64>().ok());
    let sum = ticks().zip(ticks()).map(|(user, system)| user + system);
    let sum = sum.context("/proc/PID/stat is not as documented")?;
    Ok(Duration::from_millis(sum * 1000 / rustix::param::clock_ticks_per_second()))
}

/// Peak memory of a running process since [`forget_peak`].
pub(super) fn peak_of(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).context("the server is gone")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
    Ok(kib.context("/proc/PID/status has no VmHWM")? * 1024)
}

/// Resets the peak that [`peak_of`] returns (proc(5), `clear_refs`).
pub(super) fn forget_peak(pid: u32) -> Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("cannot reset a peak of memory")
}

/// Drops all files below `folder` from the page cache.
pub(super) fn forget_cache(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        if entry.metadata()?.is_dir() {
            forget_cache(&entry.path())?;
        } else if entry.metadata()?.is_file() {
            let file = File::open(entry.path())?;
            file.sync_all()?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
    }
    Ok(())
}

/// Uses and gives back the free memory that a step may fill. On a virtual machine whose host reclaims idle memory, the
/// first process to fill gigabytes pays for getting them back: up to 3 s for 3 GB, whichever tool it belongs to. No
/// tool fills more than a few times the disk.
///
/// # Errors
/// When /proc/meminfo cannot be read.
pub(super) fn claim_free_memory(disk_bytes: u64) -> Result<()> {
    const AT_MOST: u64 = 4 << 30;
    const LEFT_ALONE: u64 = 1 << 30;
    const PIECE: usize = 64 << 20;
    let text = fs::read_to_string("/proc/meminfo").context("cannot read /proc/meminfo")?;
    let free = text.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kib = free.and_then(|free| free.trim().strip_suffix(" kB")).and_then(|kib| kib.parse::<u64>().ok());
    let free = kib.context("/proc/meminfo has no MemFree")? * 1024;
    let at_most = AT_MOST.min(disk_bytes.saturating_mul(4));
    let pieces = free.saturating_sub(LEFT_ALONE).min(at_most) / u64::try_from(PIECE)?;
    let claimed: Vec<Vec<u8>> = (0..pieces).map(|_| vec![1; PIECE]).collect();
    std::hint::black_box(&claimed);
    drop(claimed);
    // A child inherits the peak of its parent.
    forget_peak(std::process::id())
}

/// One line of the results.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Measured {
    pub(super) tool: String,
    pub(super) step: String,
    pub(super) wall_secs: f64,
    pub(super) cpu_secs: f64,
    pub(super) peak_bytes: u64,
    /// 0 without a server.
    pub(super) server_peak_bytes: u64,
    pub(super) repository_bytes: u64,
    pub(super) allocated_bytes: u64,
    /// Part of `cpu_secs`; 0 without a server.
    pub(super) server_cpu_secs: f64,
    pub(super) data_bytes: u64,
}

const HEADER: &str = "tool\tstep\twall_secs\tcpu_secs\tpeak_bytes\tserver_peak_bytes\trepository_bytes\t\
                      allocated_bytes\tserver_cpu_secs\tdata_bytes";

impl Measured {
    pub(super) fn of(tool: &str, step: &str, usage: &Usage, size: Size) -> Self {
        Self {
            tool: tool.to_owned(),
            step: step.to_owned(),
            wall_secs: usage.wall.as_secs_f64(),
            cpu_secs: usage.cpu.as_secs_f64(),
            peak_bytes: usage.peak_bytes,
            server_peak_bytes: usage.server_peak_bytes.unwrap_or(0),
            repository_bytes: size.apparent_bytes,
            allocated_bytes: size.allocated_bytes,
            server_cpu_secs: usage.server_cpu.as_secs_f64(),
            data_bytes: usage.data_bytes,
        }
    }

    fn line(&self) -> String {
        format!(
            "{}\t{}\t{:.3}\t{:.3}\t{}\t{}\t{}\t{}\t{:.3}\t{}",
            self.tool,
            self.step,
            self.wall_secs,
            self.cpu_secs,
            self.peak_bytes,
            self.server_peak_bytes,
            self.repository_bytes,
            self.allocated_bytes,
            self.server_cpu_secs,
            self.data_bytes
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.split('\t');
        Some(Self {
            tool: cells.next()?.to_owned(),
            step: cells.next()?.to_owned(),
            wall_secs: cells.next()?.parse().ok()?,
            cpu_secs: cells.next()?.parse().ok()?,
            peak_bytes: cells.next()?.parse().ok()?,
            server_peak_bytes: cells.next()?.parse().ok()?,
            repository_bytes: cells.next()?.parse().ok()?,
            allocated_bytes: cells.next()?.parse().ok()?,
            // Earlier versions of the file end here.
            server_cpu_secs: cells.next().map_or(Ok(0.0), str::parse).ok()?,
            data_bytes: cells.next().map_or(Ok(0), str::parse).ok()?,
        })
    }
}

/// All results, by tool and step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Results(Vec<Measured>);

impl Results {
    pub(super) fn push(&mut self, measured: Measured) {
        self.0.push(measured);
    }

    /// Drops the results of a tool.
    pub(super) fn forget(&mut self, tool: &str) {
        self.0.retain(|measured| measured.tool != tool);
    }

    pub(super) fn get(&self, tool: &str, step: &str) -> Option<&Measured> {
        self.0.iter().find(|measured| measured.tool == tool && measured.step == step)
    }

    /// Tools, in the order of their first result.
    pub(super) fn tools(&self) -> Vec<&str> {
        let mut tools: Vec<&str> = Vec::new();
        for measured in &self.0 {
            if !tools.contains(&measured.tool.as_str()) {
                tools.push(&measured.tool);
            }
        }
        tools
    }

    pub(super) fn all(&self) -> &[Measured] {
        &self.0
    }

    /// Reads a file written by [`Results::save`].
    pub(super) fn open(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let lines = text.lines().skip(1).map(|line| {
            Measured::parse(line).with_context(|| format!("{} has a line {line:?}", file.display()))
        });
        Ok(Self(lines.collect::<Result<_>>()?))
    }

    /// Same as [`Results::open`], but empty if there is no such file.
    pub(super) fn load(file: &Path) -> Result<Self> {
        if file.exists() { Self::open(file) } else { Ok(Self::default()) }
    }

    pub(super) fn save(&self, file: &Path) -> Result<()> {
        let lines = self.0.iter().map(Measured::line);
        let text: Vec<_> = std::iter::once(HEADER.to_owned()).chain(lines).collect();
        fs::write(file, text.join("\n") + "\n").with_context(|| format!("cannot write {}", file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo finished";
        let usage = measured(Command::new("sh").args(["-c", busy]), &log).unwrap();
        assert!(usage.cpu > Duration::ZERO && usage.wall > Duration::ZERO);
        assert!(usage.peak_bytes > 100_000);
        assert_eq!(fs::read_to_string(&log).unwrap(), "finished\n");
        let error = measured(Command::new("sh").args(["-c", "echo no room; exit 8"]), &log).unwrap_err();
        assert!(error.to_string().contains("no room"), "{error}");
    }

    #[test]
    fn a_running_process_is_measured() {
        let pid = std::process::id();
        forget_peak(pid).unwrap();
        let before = peak_of(pid).unwrap();
        let memory = vec![1u8; 64 << 20];
        assert!(peak_of(pid).unwrap() >= before + (60 << 20), "{} bytes touched", memory.len());
        cpu_of(pid).unwrap();
    }

    #[test]
    fn results_survive_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("results.tsv");
        assert_eq!(Results::load(&file).unwrap(), Results::default());
        let mut results = Results::default();
        let usage = Usage { wall: Duration::from_millis(1500), ..Usage::default() };
        results.push(Measured::of(
            "restic",
            "web-day0",
            &usage,
            Size { apparent_bytes: 5, allocated_bytes: 8 },
        ));
        results.push(Measured::of("borg", "web-day0", &usage, Size::default()));
        results.save(&file).unwrap();
        let mut loaded = Results::load(&file).unwrap();
        assert_eq!(loaded, results);
        loaded.forget("restic");
        assert_eq!(loaded.tools(), ["borg"]);
    }
}
