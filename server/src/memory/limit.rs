//! What memory there is.
//!
//! A control group's limit is a hard one: the kernel kills who goes beyond it. Every group above counts as well, so all
//! are looked at, in version 2 (`memory.max`) and version 1 (`memory.limit_in_bytes`). Inside a container the path that
//! the kernel tells is often one of the host, which is not there; then the groups above it that are there count, down to
//! the container's own at the mount point.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::config::ByteSize;

/// Where a limit comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitSource {
    /// The setting `memory`.
    Setting,
    /// This file of a control group.
    ControlGroup(PathBuf),
    /// The machine has no more.
    Machine,
    /// Nothing is known.
    Unknown,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting => f.write_str("setting memory"),
            Self::ControlGroup(path) => write!(f, "control group {}", path.display()),
            Self::Machine => f.write_str("memory of the machine"),
            Self::Unknown => f.write_str("assumed; the machine does not say"),
        }
    }
}

/// Bytes the process may use at most.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryLimit {
    pub bytes: u64,
    pub source: LimitSource,
}

/// Assumed where not even the machine's memory can be found out.
const UNKNOWN_BYTES: u64 = 2 << 30;

impl MemoryLimit {
    /// The smallest limit there is, the setting's among them.
    pub fn find(setting: Option<ByteSize>) -> Self {
        Self::find_below(Path::new("/"), setting)
    }

    /// As [`MemoryLimit::find`], with `/proc` and `/sys` below `root`.
    fn find_below(root: &Path, setting: Option<ByteSize>) -> Self {
        let set = setting.map(|ByteSize(bytes)| Self { bytes, source: LimitSource::Setting });
        let machine = machine_bytes(root).map(|bytes| Self { bytes, source: LimitSource::Machine });
        let all = set.into_iter().chain(machine).chain(control_groups(root));
        all.min_by_key(|limit| limit.bytes)
            .unwrap_or(Self { bytes: UNKNOWN_BYTES, source: LimitSource::Unknown })
    }
}

fn machine_bytes(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The limits of this process's control groups and of all above them.
fn control_groups(root: &Path) -> Vec<MemoryLimit> {
    let text = std::fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounted = root.join("sys/fs/cgroup");
    let mut limits = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (base, file) = match controllers {
            "" => (mounted.clone(), "memory.max"),
            list if list.split(',').any(|name| name == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(path.trim_start_matches('/'));
        for above in group.ancestors() {
            let file = base.join(above).join(file);
            limits.extend(read_limit(&file));
        }
    }
    limits
}

/// `None` when there is no such file or no limit.
fn read_limit(file: &Path) -> Option<MemoryLimit> {
    // "max", and in version 1 a number near 2⁶³, are no limits: the machine's memory is less.
    let bytes = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    Some(MemoryLimit { bytes, source: LimitSource::ControlGroup(file.to_owned()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A machine of 8 GiB with these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let meminfo = ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree: 1 kB\n");
        for (path, text) in files.iter().chain([&meminfo]) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn found(files: &[(&str, &str)], setting: Option<u64>) -> (u64, String) {
        let root = machine(files);
        let limit = MemoryLimit::find_below(root.path(), setting.map(ByteSize));
        let source = limit.source.to_string().replace(&root.path().display().to_string(), "");
        (limit.bytes >> 20, source)
    }

    #[test]
    fn the_smallest_limit_counts() {
        assert_eq!(found(&[], None), (8192, "memory of the machine".into()));
        assert_eq!(found(&[], Some(1 << 30)), (1024, "setting memory".into()));
        assert_eq!(found(&[], Some(1 << 40)).0, 8192);
    }

    #[test]
    fn groups_and_those_above_them_are_asked() {
        let own = ("proc/self/cgroup", "0::/system.slice/holdfast.service\n");
        let (service, slice) = (
            "sys/fs/cgroup/system.slice/holdfast.service/memory.max",
            "sys/fs/cgroup/system.slice/memory.max",
        );
        assert_eq!(found(&[own, (service, "1073741824\n"), (slice, "max\n")], None).0, 1024);
        let (mib, source) = found(&[own, (service, "max\n"), (slice, "536870912\n")], None);
        assert_eq!((mib, source.as_str()), (512, "control group /sys/fs/cgroup/system.slice/memory.max"));
    }

    #[test]
    fn version_1_and_a_container_that_sees_the_hosts_path() {
        let own = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/0123abcd\n0::/\n");
        let inside = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
        assert_eq!(found(&[own, inside], None).0, 2048);
        let none = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(found(&[own, none], None).0, 8192);
    }
}
