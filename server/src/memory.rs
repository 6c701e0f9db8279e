//! Memory that the server may use, and its division among uses.
//!
//! [`MemoryLimit::find`] finds out what there is: the setting `memory`, the limits of the control groups this process is in,
//! the machine's memory; the smallest counts. [`Budget`] divides it. Everything that grows with what clients do takes its
//! bound from there, so that the sum stays below the limit; what does not fit is refused or waits.

use std::fmt;
use std::path::{Path, PathBuf};

use holdfast_engine::MemoryBounds;
use holdfast_proto::size::ByteSize;

use crate::config::Settings;
use crate::error::ServiceError;
use crate::net::WINDOW_MIN_BYTES;

/// Source of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LimitSource {
    /// The setting `memory`.
    Setting,
    /// This file of a control group.
    ControlGroup(PathBuf),
    /// The machine has no more.
    Machine,
    /// No limit is known.
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
///
/// A control group's limit is a hard one: the kernel kills who goes beyond it. Every group above counts as well, so all
/// are looked at, in version 2 (`memory.max`) and version 1 (`memory.limit_in_bytes`). Inside a container the path that
/// the kernel tells is often one of the host, which is not there; then the groups above it that are there count, down to
/// the container's own at the mount point.
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

const MIB: u64 = 1 << 20;

/// The program and what does not grow with what clients do.
const FIXED_BYTES: u64 = 96 * MIB;

/// One disk coming in; see [`Budget`].
const INGEST_BYTES: u64 = 88 * MIB;

/// One disk going out; see [`Budget`].
const RESTORE_BYTES: u64 = 13 * MIB;

/// Receive windows of all connections together. The first agent's eight have 3 MiB each, which fill a line of 240 MB/s
/// and 100 ms; fifty agents that send at once fill all of it.
const WINDOWS_MAX_BYTES: u64 = 160 * MIB;

/// A blob being sent to a bucket: up to 40 MiB in one request, by which the buffer grows in steps, and what is read of the
/// volume for it.
const COPY_BYTES: u64 = 48 * MIB;

/// The largest page of a table.
const ANSWER_BYTES: u64 = 4 * MIB;

/// With less no disk could be received beside one being restored.
pub const MEMORY_MIN_BYTES: u64 = 640 * MIB;

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server may use {} MiB of memory ({source_text}), and needs {} MiB at least; give it more, or raise `memory`",
    bytes / MIB, MEMORY_MIN_BYTES / MIB
)]
pub struct NotEnoughMemory {
    bytes: u64,
    source_text: String,
}

impl From<NotEnoughMemory> for ServiceError {
    fn from(error: NotEnoughMemory) -> Self {
        Self::invalid(error.to_string())
    }
}

/// Shares of memory: the one place where the limit is divided.
///
/// With a limit of M bytes:
///
/// | share | of | for |
/// |---|---|---|
/// | `FIXED_BYTES` | – | the program, its threads, TLS, SQLite: 13 connections of 2 MiB, a log of 4 MiB; 9 MiB for the filters of a sorted run being written |
/// | M / 8 | M | what the allocator holds back, and what the kernel charges a control group for sockets and pages it is writing |
/// | the rest, R: | | |
/// | R / 8, at most `index_memory` | R | write buffer of the index |
/// | R / 4 | R | filters and fences of the index: some 1.3 bytes an entry. Not allocated before the index needs it; one that needs more does not open |
/// | R / 16, at most 96 MiB | R | directories of containers that are read |
/// | R / 32, at most 16 MiB | R | decoded regions |
/// | R / 32, at most 64 MiB | R | regions as they are stored, that restores side by side share |
/// | R / 32, at most 64 MiB | R | what restores read ahead, all of them together: 2 MiB a read |
/// | R / 8, at most 1 GiB | R | recipes being built and chunks being waited for, of all backups in progress |
/// | R / 16, at most 256 MiB | R | answers of the API, and others over HTTPS: `ANSWER_BYTES` each |
/// | R / 16, at most 160 MiB | R | what connections may have sent that no call has read: gRPC windows of 64 KiB for each of `max_connections`, and shares of what is left for those that come first (`net::Windows`); fewer connections where that is not enough |
/// | R / 8 at most, `COPY_BYTES` for each of `s3_copies` | R | with a bucket: blobs being copied to it |
/// | what is left, about a third | R | streams of the data path: `INGEST_BYTES` for a disk coming in, `RESTORE_BYTES` for one going out |
///
/// A disk coming in (`INGEST_BYTES`): its queue, one message of 8 MiB; another that waits for room, 8 MiB; one that is
/// being received, 8 MiB; 16 regions being verified, 8 MiB with their plain bytes; write buffers of a container that is
/// open and two being sealed, for data and recipe, 6 MiB; directories it met last, 2 × 16 × 200 KiB; zstd, 2 MiB;
/// what one message may add to the recipe before it is counted, 16 MiB; digests being
/// proved: the last regions' plain bytes, 5 MiB, two extents of as much, and 256 that wait, 9 MiB.
///
/// A disk going out (`RESTORE_BYTES`): one read of 2 MiB beside what all restores read ahead together; what is read
/// and not sent, 3 MiB; a queue of 2 messages of 1 MiB, one being sent and one in the connection's buffer; the plans
/// of two windows and the directories they met last, 4 MiB. Not all of it at once for each: what restores of clones read and send is
/// the same memory.
///
/// So at 2 GiB: fixed 96, slack 256, R = 1,696 MiB: index 64 + 424, directories 96, decoded 16, shared 53, read ahead
/// 53, backups 212, answers 106, connections 106, streams 566: 5 disks in and 5 out at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Budget {
    pub limit: MemoryLimit,
    /// Bytes the engine keeps: index, decoded regions, backups in progress.
    pub engine: MemoryBounds,
    /// Write buffer of the index.
    pub index_buffer_bytes: usize,
    /// Directories of containers.
    pub directories_bytes: usize,
    /// Disks received at once.
    pub ingest_streams: u32,
    /// Disks sent at once.
    pub restore_streams: u32,
    /// Requests other than calls of gRPC that are answered at once.
    pub answers: u32,
    /// Network connections of agents; of the HTTPS address there are no more, and at most 256.
    pub connections: u32,
    /// Bytes that all gRPC connections may have sent and no call has read.
    pub windows_bytes: u64,
    /// Blobs sent to a bucket at once; 0 without one.
    pub bucket_copies: u32,
}

impl Budget {
    /// Divides what this process may use, as the settings say.
    ///
    /// # Errors
    /// [`NotEnoughMemory`].
    pub fn find(settings: &Settings) -> Result<Self, NotEnoughMemory> {
        Self::divide(MemoryLimit::find(settings.memory), settings)
    }

    /// Divides `limit`.
    ///
    /// # Errors
    /// [`NotEnoughMemory`].
    pub fn divide(limit: MemoryLimit, settings: &Settings) -> Result<Self, NotEnoughMemory> {
        if limit.bytes < MEMORY_MIN_BYTES {
            return Err(NotEnoughMemory { bytes: limit.bytes, source_text: limit.source.to_string() });
        }
        let rest = limit.bytes - FIXED_BYTES - limit.bytes / 8;
        let write_buffer = (rest / 8).min(settings.index_memory.0);
        let resident = rest / 4;
        let directories = (rest / 16).min(96 * MIB);
        let decoded = (rest / 32).min(16 * MIB);
        let (shared, read_ahead) = ((rest / 32).min(64 * MIB), (rest / 32).min(64 * MIB));
        let sessions = (rest / 8).min(1 << 30);
        let answers = (rest / 16).min(256 * MIB);
        let connections = (rest / 16).min(WINDOWS_MAX_BYTES);
        let others = write_buffer + resident + directories + sessions + answers + connections;
        let copies = bucket_copies(rest, settings);
        let others = others + decoded + shared + read_ahead + copies * COPY_BYTES;
        let (ingest_streams, restore_streams) = streams(rest - others, settings);
        // Fewer connections where the smallest window would be too large for so many.
        let most = (connections / WINDOW_MIN_BYTES).clamp(1, u64::from(settings.max_connections));
        Ok(Self {
            limit,
            engine: MemoryBounds {
                index_resident_bytes: resident,
                decoded_bytes: size(decoded),
                shared_bytes: size(shared),
                read_ahead_bytes: size(read_ahead),
                sessions_bytes: sessions,
            },
            index_buffer_bytes: size(write_buffer),
            directories_bytes: size(directories),
            ingest_streams,
            restore_streams,
            answers: count(answers / ANSWER_BYTES),
            connections: count(most),
            windows_bytes: connections,
            bucket_copies: count(copies),
        })
    }

    /// Results, a line each.
    pub fn lines(&self) -> Vec<String> {
        let Self {
            limit,
            engine,
            ingest_streams,
            restore_streams,
            answers,
            connections,
            windows_bytes,
            bucket_copies,
            ..
        } = self;
        let mib = |bytes: u64| format!("{} MiB", bytes / MIB);
        let mut lines = vec![
            format!("limit {} ({})", mib(limit.bytes), limit.source),
            format!("index write buffer {}", mib(self.index_buffer_bytes as u64)),
            format!("index filters and fences, at most {}", mib(engine.index_resident_bytes)),
            format!("container directories {}", mib(self.directories_bytes as u64)),
            format!("decoded regions {}", mib(engine.decoded_bytes as u64)),
            format!("stored regions that restores share {}", mib(engine.shared_bytes as u64)),
            format!("read ahead by all restores together {}", mib(engine.read_ahead_bytes as u64)),
            format!("recipes of backups in progress {}", mib(engine.sessions_bytes)),
            format!("disks received at once {ingest_streams}, of {} each", mib(INGEST_BYTES)),
            format!("disks sent at once {restore_streams}, of {} each", mib(RESTORE_BYTES)),
            format!("HTTPS answers at once {answers}, of {} each", mib(ANSWER_BYTES)),
            format!("connections {connections}, windows of {} together", mib(*windows_bytes)),
        ];
        if *bucket_copies > 0 {
            lines.push(format!(
                "blobs copied to the bucket at once {bucket_copies}, of {} each",
                mib(COPY_BYTES)
            ));
        }
        lines
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines().join("; "))
    }
}

/// Copies to a bucket at once.
fn bucket_copies(rest: u64, settings: &Settings) -> u64 {
    if settings.s3.is_none() {
        return 0;
    }
    u64::from(settings.s3_copies).min((rest / 8 / COPY_BYTES).max(1))
}

/// Disks that `bytes` are enough for, in and out: as many as the settings say, fewer of both alike otherwise.
fn streams(bytes: u64, settings: &Settings) -> (u32, u32) {
    let (ingest, restore) = (u64::from(settings.max_streams), u64::from(settings.max_restores));
    let wanted = ingest * INGEST_BYTES + restore * RESTORE_BYTES;
    if wanted <= bytes {
        return (settings.max_streams, settings.max_restores);
    }
    let share = |count: u64| count.saturating_mul(bytes) / wanted;
    (count(share(ingest).max(1)), count(share(restore).max(1)))
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn count(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

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

    fn divide(mib: u64, settings: &Settings) -> Result<Budget, NotEnoughMemory> {
        Budget::divide(MemoryLimit { bytes: mib * MIB, source: LimitSource::Setting }, settings)
    }

    /// Memory used with everything at its bound at once.
    fn sum(budget: &Budget) -> u64 {
        let engine = budget.engine;
        FIXED_BYTES
            + engine.index_resident_bytes
            + (budget.index_buffer_bytes + budget.directories_bytes + engine.decoded_bytes) as u64
            + (engine.shared_bytes + engine.read_ahead_bytes) as u64
            + engine.sessions_bytes
            + u64::from(budget.ingest_streams) * INGEST_BYTES
            + u64::from(budget.restore_streams) * RESTORE_BYTES
            + u64::from(budget.answers) * ANSWER_BYTES
            + budget.windows_bytes
            + u64::from(budget.bucket_copies) * COPY_BYTES
    }

    #[test]
    fn the_parts_are_never_more_than_the_whole() {
        let with_bucket = Settings { s3: Some("s3://abc".into()), s3_copies: 32, ..Settings::default() };
        let sizes = || (640..4096).step_by(37).chain([8192, 65_536, 1 << 20]);
        let all = sizes()
            .map(|mib| (mib, Settings::default()))
            .chain(sizes().map(|mib| (mib, with_bucket.clone())));
        for (mib, settings) in all {
            let budget = divide(mib, &settings).unwrap();
            let sum = sum(&budget);
            assert!(sum <= mib * MIB, "{mib} MiB: {} MiB in {budget}", sum / MIB);
            assert!(budget.ingest_streams >= 1 && budget.restore_streams >= 1, "{budget}");
        }
    }

    #[test]
    fn a_large_machine_gives_what_the_settings_say() {
        let budget = divide(16 << 10, &Settings::default()).unwrap();
        assert_eq!((budget.ingest_streams, budget.restore_streams, budget.answers), (16, 16, 64));
        assert_eq!(budget.index_buffer_bytes, 64 << 20);
        let many = Settings { max_streams: 64, max_restores: 8, ..Settings::default() };
        let budget = divide(64 << 10, &many).unwrap();
        assert_eq!((budget.ingest_streams, budget.restore_streams), (64, 8));
    }

    #[test]
    fn the_example_of_the_text_is_right() {
        let budget = divide(2048, &Settings::default()).unwrap();
        assert_eq!((budget.ingest_streams, budget.restore_streams), (5, 5));
        assert_eq!(
            (budget.engine.sessions_bytes, budget.engine.index_resident_bytes),
            (212 * MIB, 424 * MIB)
        );
    }

    #[test]
    fn too_little_is_said_with_both_figures() {
        let error = divide(400, &Settings::default()).unwrap_err().to_string();
        assert!(
            error.contains("400 MiB") && error.contains("640 MiB") && error.contains("setting"),
            "{error}"
        );
    }
}
