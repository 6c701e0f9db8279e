//! The harness of the end-to-end tests: the real binaries, over real TLS, on generated disks.
//!
//! | module | contents |
//! |---|---|
//! | [`server`] | a `holdfast-server` for one test, stopped when dropped |
//! | [`agent`] | the `holdfast` command, configured for a server |
//! | [`chance`] | pseudorandom choices |
//! | [`clock`] | a clock that a test sets while a server runs |
//! | [`faults`] | failing system calls, and kills at a chosen one |
//! | [`tasks`] | tasks of a server |
//! | [`proxy`] | a wire between the two that can be cut and held |
//! | [`disk`] | disks with known contents |
//! | [`documents`] | the commands shown in the documents |
//! | [`http2`] | a peer that speaks HTTP/2 frame by frame |
//! | [`memory`] | memory limits for servers |
//! | [`raw`] | an agent that sends whatever a test wants |
//! | [`repository`] | the server's files, to look at and to damage |
//! | [`web`] | a small HTTPS client |
//! | [`tools`] | programs of the system that some tests need |
//!
//! Everything binds port 0 and works in temporary folders, so tests run in parallel. A process is killed by its own id
//! and nothing else. Tests wait for conditions, with a deadline far beyond any real duration; an operation that must
//! be in progress when a test checks it is held there, not slowed down. A program's answer says nothing about what the
//! other has logged so far: wait for the line.
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a harness fails by panicking in the test that uses it, and shows what the server said"
)]

pub mod agent;
pub mod chance;
pub mod clock;
pub mod disk;
pub mod documents;
pub mod faults;
pub mod http2;
pub mod memory;
pub mod proxy;
pub mod raw;
pub mod repository;
pub mod server;
pub mod tasks;
pub mod tools;
pub mod web;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub use agent::{Agent, Ran};
pub use disk::Disk;
pub use server::Server;

/// Longer than anything here takes on a slow machine with twenty times the load it can handle. Only a failing
/// test waits for it.
pub const DEADLINE: Duration = Duration::from_secs(600);

/// Environment variable that names a folder with built programs.
const BIN_DIR: &str = "HOLDFAST_BIN_DIR";

/// The folder with `holdfast` and `holdfast-server`: `$HOLDFAST_BIN_DIR`, or else cargo's, where they are built first,
/// once a test binary.
pub fn binaries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        given().unwrap_or_else(|| build(&["-p", "holdfast", "-p", "holdfast-server", "--bins"]))
    })
}

/// The folder with `xtask`, and with the examples below it; like [`binaries`].
pub fn development_binaries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| given().unwrap_or_else(|| build(&["--workspace", "--bin", "xtask", "--examples"])))
}

fn given() -> Option<PathBuf> {
    std::env::var_os(BIN_DIR).map(PathBuf::from)
}

/// Test binaries are in TARGET/PROFILE/deps; the programs are in TARGET/PROFILE.
fn build(what: &[&str]) -> PathBuf {
    let test = std::env::current_exe().expect("a test binary knows where it is");
    let folder = test.ancestors().nth(2).expect("a test binary is in TARGET/PROFILE/deps").to_owned();
    let target = folder.parent().expect("PROFILE is in TARGET");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).arg("build").arg("--quiet").args(what);
    cargo.arg("--target-dir").arg(target);
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo runs");
    assert!(status.success(), "building the binaries under test failed");
    folder
}

/// A program under test with nothing of this machine's user in its environment.
pub fn program(name: &str) -> Command {
    without_user(Command::new(binaries().join(name)))
}

/// `cargo xtask`, on the programs under test: it builds nothing.
pub fn xtask() -> Command {
    let mut command = without_user(Command::new(development_binaries().join("xtask")));
    command.current_dir(documents::root()).env(BIN_DIR, development_binaries());
    // Programs that it starts may be in the same folder.
    assert!(binaries().join("holdfast").exists(), "the programs under test are built");
    command
}

fn without_user(mut command: Command) -> Command {
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("HOLDFAST_") {
            command.env_remove(variable);
        }
    }
    command.stdin(std::process::Stdio::null());
    command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
    command
}

/// Polls `condition` every few milliseconds until it returns a value.
///
/// # Panics
/// When it does not within [`DEADLINE`].
pub fn wait_for<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
