//! The folder that tests write to: in memory, if there is room. On a disk, most of the time of storage tests would be
//! spent waiting for flushes that no power failure follows; power failures are simulated, and system calls recorded.

use std::process::Command;

use tempfile::TempDir;

const MEMORY: &str = "/dev/shm";

/// More than parallel test programs have written at once, and use themselves.
const ROOM_BYTES: u64 = 8 << 30;

/// A folder in memory; or the usual temporary folder, if memory has no room.
#[derive(Debug)]
pub(crate) struct Scratch(Option<TempDir>);

impl Scratch {
    /// Creates a folder in memory, if there is room.
    pub(crate) fn in_memory() -> Self {
        Self(make())
    }

    /// Uses the usual temporary folder.
    pub(crate) const fn on_disk() -> Self {
        Self(None)
    }

    /// Makes a command create its temporary files here.
    pub(crate) fn give_to<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match &self.0 {
            Some(folder) => command.env("TMPDIR", folder.path()),
            None => command,
        }
    }
}

fn make() -> Option<TempDir> {
    let free = rustix::fs::statvfs(MEMORY).ok()?;
    let room = free.f_bavail.saturating_mul(free.f_frsize);
    let unused = available_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    if room.min(unused) < ROOM_BYTES {
        return None;
    }
    let folder = tempfile::Builder::new().prefix("holdfast-tests-").tempdir_in(MEMORY).ok()?;
    // Servers of another user use subfolders of it.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), mode).ok()?;
    Some(folder)
}

/// Bytes of memory that are still available, as estimated by the kernel.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        let meminfo =
            "MemTotal:       24674868 kB\nMemFree:          381612 kB\nMemAvailable:   21553196 kB\n";
        assert_eq!(available_bytes(meminfo), Some(21_553_196 << 10));
        assert_eq!(available_bytes("MemTotal:       24674868 kB\n"), None);
    }
}
