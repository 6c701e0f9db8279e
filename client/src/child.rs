//! Programs of the system that work for us, and the folder in which we meet.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Returns true if a program can be started.
pub(crate) fn is_installed(program: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| folder.join(program).is_file())
}

/// Gives a program no environment but the path to other programs: tokens and keys are in ours.
pub(crate) fn without_environment(command: &mut Command) -> &mut Command {
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).env("LC_ALL", "C")
}

/// Ends a program with the thread that starts it, however that ends.
pub(crate) fn bound_to_thread(command: &mut Command) -> &mut Command {
    let ours = getpid();
    // SAFETY: two system calls, neither of which allocates or takes a lock.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // Too late if we are gone already.
            if getppid() == Some(ours) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
        })
    }
}

/// A folder that only this user can enter, removed when dropped.
#[derive(Debug)]
pub(crate) struct PrivateFolder(PathBuf);

impl PrivateFolder {
    pub(crate) fn new() -> io::Result<Self> {
        let mut number = 0;
        loop {
            let path = std::env::temp_dir().join(format!("holdfast-{}-{number}", std::process::id()));
            // A folder that exists already is not ours, whoever made it.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 10_000 => number += 1,
                // Not an error of the kind that a missing program gives.
                Err(error) => {
                    return Err(io::Error::other(format!("cannot make {}: {error}", path.display())));
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}
