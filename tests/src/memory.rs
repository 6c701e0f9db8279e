//! Servers that the system kills when they exceed a memory limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Environment variable: memory limit, in bytes, of every server that a test starts.
pub const MEMORY_VARIABLE: &str = "HOLDFAST_TEST_MEMORY_BYTES";

/// Memory that a process maps without using it: stacks of its threads, and arenas of the allocator. Only counts
/// without control groups.
const MAPPED_BYTES: u64 = 512 << 20;

/// A memory limit on one process: a control group if the test may create one, else a limit of its address space.
#[derive(Debug)]
pub struct MemoryCage {
    bytes: u64,
    group: Option<PathBuf>,
}

impl MemoryCage {
    /// Creates the limit in the environment, if any.
    pub fn of_environment() -> Option<Self> {
        let bytes = std::env::var(MEMORY_VARIABLE).ok()?.parse().expect("a number of bytes");
        Some(Self::new(bytes))
    }

    /// Creates a limit of `bytes`.
    pub fn new(bytes: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("holdfast-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let roots = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        let group = roots.into_iter().find_map(|(root, file)| {
            let group = Path::new(root).join(&name);
            fs::create_dir(&group).ok()?;
            // Without the controller there is no such file, and it cannot be created.
            let limited = group.join(file).exists() && fs::write(group.join(file), bytes.to_string()).is_ok();
            if !limited {
                drop(fs::remove_dir(&group));
            }
            limited.then_some(group)
        });
        Self { bytes, group }
    }

    /// Wraps `command` to run within the limit.
    pub fn around(&self, command: &Command) -> Command {
        let mut caged = Command::new("/bin/sh");
        match &self.group {
            Some(group) => {
                let procs = group.join("cgroup.procs");
                caged.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(procs);
            }
            None => {
                let kib = (self.bytes + MAPPED_BYTES) >> 10;
                caged.args(["-c", &format!("ulimit -v {kib} && exec \"$0\" \"$@\"")]);
            }
        }
        caged.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
        for (variable, value) in command.get_envs() {
            match value {
                Some(value) => caged.env(variable, value),
                None => caged.env_remove(variable),
            };
        }
        if self.group.is_none() {
            caged.arg(format!("--memory={}", self.bytes));
        }
        caged
    }
}

impl Drop for MemoryCage {
    fn drop(&mut self) {
        if let Some(group) = &self.group {
            // Possible once the process has ended; the kernel may need a moment.
            crate::wait_for("the control group to be empty", || fs::remove_dir(group).is_ok().then_some(()));
        }
    }
}
