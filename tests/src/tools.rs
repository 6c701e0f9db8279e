//! Programs of the system that some tests need, and operations that only root may do. `cargo xtask test` installs
//! programs if it can, and counts tests that lack something as skipped, by name. Run without it, a test that lacks a
//! program fails.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::OFlags;

/// Environment variable: file in which `cargo xtask test` collects skipped tests, one a line.
const SKIPPED_FILE: &str = "HOLDFAST_TESTS_SKIPPED";

/// Reports that the running test lacks a program of the system.
///
/// # Panics
/// When skipped tests are not counted: a test that tests nothing must not look as if it had passed.
pub(crate) fn lack(program: &str) {
    assert!(
        std::env::var_os(SKIPPED_FILE).is_some(),
        "{program} is not installed. `cargo xtask test` installs what tests need, or counts them as skipped"
    );
    skip(&format!("{program} is not installed"));
}

/// Reports that the running test skips what this machine does not allow, and why; a captured output would hide it.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("a test"));
    eprint!("SKIPPED {line}");
    if let Some(file) = std::env::var_os(SKIPPED_FILE) {
        let appended = File::options().append(true).create(true).open(file);
        // One write a line: tests of several threads append to the file.
        drop(appended.and_then(|mut file| file.write_all(line.as_bytes())));
    }
}

/// Path of a program, `/usr/sbin` and `/sbin` included. `None`, with a message, if it is missing.
///
/// # Panics
/// When it is missing and skipped tests are not counted.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok());
    if found.is_none() {
        lack(program);
    }
    found
}

/// Runs a program; returns whether it succeeded, and its output.
pub fn run(program: &Path, args: &[&str]) -> (bool, String) {
    match Command::new(program).args(args).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
            (output.status.success(), text.concat())
        }
        Err(error) => (false, error.to_string()),
    }
}

/// A loop device over a file, detached when dropped.
#[derive(Debug)]
pub struct Loop {
    device: String,
    losetup: PathBuf,
}

impl Loop {
    /// Attaches `file`; `None`, with a message, if that is not allowed.
    pub fn attach(file: &Path) -> Option<Self> {
        let losetup = find("losetup")?;
        let (fine, said) = run(&losetup, &["--find", "--show", file.to_str()?]);
        if !fine {
            skip(&format!("no loop device: {}", said.trim()));
            return None;
        }
        Some(Self { device: said.trim().to_owned(), losetup })
    }

    /// Path of the device: `/dev/loopN`.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run(&self.losetup, &["--detach", &self.device]);
    }
}

/// A small file system in memory, unmounted when dropped.
#[derive(Debug)]
pub struct SmallFileSystem {
    folder: PathBuf,
}

impl SmallFileSystem {
    /// Mounts one of `bytes` on `folder`; `None`, with a message, if that is not allowed.
    pub fn mount(folder: &Path, bytes: u64) -> Option<Self> {
        let options = format!("size={bytes}");
        let args = ["-t", "tmpfs", "-o", &options, "holdfast-test", folder.to_str()?];
        let (fine, said) = run(&find("mount")?, &args);
        if !fine {
            skip(&format!("no small file system: {}", said.trim()));
            return None;
        }
        Some(Self { folder: folder.to_owned() })
    }

    /// Mount point.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if files can be written with `O_DIRECT` here: from Linux 6.6 on. Prints a message if they cannot.
    pub fn takes_direct_writes(&self) -> bool {
        let flags = OFlags::DIRECT.bits().cast_signed();
        let path = self.folder.join("direct");
        let opened = File::options().write(true).create_new(true).custom_flags(flags).open(&path);
        drop(std::fs::remove_file(path));
        if let Err(error) = &opened {
            skip(&format!("no direct writes to the small file system: {error}"));
        }
        opened.is_ok()
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        if let (Some(umount), Some(folder)) = (find("umount"), self.folder.to_str()) {
            run(&umount, &["--lazy", folder]);
        }
    }
}
