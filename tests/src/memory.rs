//! Servers that the system kills when they use more memory than they may.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// With this set to a number of bytes, every server a test starts may use no more.
pub const MEMORY_VARIABLE: &str = "HOLDFAST_TEST_MEMORY_BYTES";

/// What a process maps without using it: stacks of its threads, and room of the allocator's arenas. Only counts where
/// there are no control groups.
const MAPPED_BYTES: u64 = 512 << 20;

/// A limit on one process: a control group where the test may make one, a limit of its address space elsewhere.
#[derive(Debug)]
pub struct MemoryCage {
    bytes: u64,
    group: Option<PathBuf>,
}

impl MemoryCage {
    /// The one that the environment asks for.
    pub fn of_environment() -> Option<Self> {
        let bytes = std::env::var(MEMORY_VARIABLE).ok()?.parse().expect("a number of bytes");
        Some(Self::new(bytes))
    }

    /// One of `bytes`.
    pub fn new(bytes: u64) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("holdfast-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let roots = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];
        let group = roots.into_iter().find_map(|(root, file)| {
            let group = Path::new(root).join(&name);
            fs::create_dir(&group).ok()?;
            // Without the controller there is no such file, and none can be made.
            let limited = group.join(file).exists() && fs::write(group.join(file), bytes.to_string()).is_ok();
            if !limited {
                drop(fs::remove_dir(&group));
            }
            limited.then_some(group)
        });
        Self { bytes, group }
    }

    /// `command`, to be run inside.
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
            // Once the process has ended; the kernel may need a moment.
            crate::wait_for("the control group to be empty", || fs::remove_dir(group).is_ok().then_some(()));
        }
    }
}
