//! The agent without libraries, for any Linux of this machine's architecture.
//!
//! By musl where rustup has that target, else by glibc, linked statically. Glibc then still looks up host names by libraries of
//! the machine that it runs on, which must be of the same version: the archive says so.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{archive_of, split};
use crate::shell::{self, Profile, cargo};

/// What is said where names cannot be relied on.
const GLIBC_ONLY: &str = "\
This program is linked statically with glibc, which looks up host names by libraries of the machine it runs on. Where these are
of another version, give the server by its IP address.
";

pub(super) fn build(profile: Profile, version: &str, work: &Path, folder: &Path) -> Result<()> {
    let arch = std::env::consts::ARCH;
    let musl = format!("{arch}-unknown-linux-musl");
    let (target, kind) = if has_target(&musl) {
        (musl, "musl")
    } else {
        println!(
            "\nrustup has no target {musl} here (rustup target add {musl}): the agent is linked statically with glibc"
        );
        (format!("{arch}-unknown-linux-gnu"), "glibc")
    };
    let mut command = cargo();
    command.args([
        "build",
        "--profile",
        profile.name(),
        "--target",
        &target,
        "-p",
        "holdfast",
        "--bin",
        "holdfast",
    ]);
    // Named by the target: programs that run while it is built stay as they are, and nothing else is built anew.
    let flags = format!("CARGO_TARGET_{}_RUSTFLAGS", target.to_uppercase().replace('-', "_"));
    shell::run(command.env(flags, "-C target-feature=+crt-static"))?;
    let built = shell::target_dir()?.join(&target).join(profile.folder()).join("holdfast");
    check_static(&built)?;

    let name = format!("holdfast-{version}-linux-{arch}");
    let tree = work.join("portable").join(&name);
    fs::create_dir_all(&tree)?;
    let debug = work.join("debug-portable");
    fs::create_dir_all(&debug)?;
    fs::copy(split(&built, work, &debug)?, tree.join("holdfast"))?;
    fs::copy(shell::root().join("LICENSE"), tree.join("LICENSE"))?;
    if kind == "glibc" {
        fs::write(tree.join("README"), GLIBC_ONLY)?;
    }
    archive_of(&work.join("portable"), &name, &folder.join(format!("{name}.tar.xz")))?;
    println!("{name}.tar.xz: linked statically with {kind}");
    Ok(())
}

/// Whether the toolchain in use has the standard library of a target.
fn has_target(target: &str) -> bool {
    let mut rustc = Command::new("rustc");
    let folder = shell::capture(rustc.current_dir(shell::root()).args([
        "--print",
        "target-libdir",
        "--target",
        target,
    ]));
    folder.is_ok_and(|folder| fs::read_dir(folder.trim()).is_ok_and(|mut entries| entries.next().is_some()))
}

/// It must need no library, and start.
fn check_static(program: &Path) -> Result<()> {
    let needed = shell::capture(Command::new("objdump").arg("--private-headers").arg(program))?;
    if needed.lines().any(|line| line.trim_start().starts_with("NEEDED")) {
        bail!("{} needs libraries", program.display());
    }
    shell::capture(Command::new(program).arg("--version"))
        .context("the static program does not start")
        .map(drop)
}
