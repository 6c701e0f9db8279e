//! `cargo xtask test`: the same steps before a commit and on the build machine. Every step runs even if an earlier one
//! failed, so that one run shows everything that is wrong. It ends with a line `N passed, N failed`, or `N passed, N
//! failed, N skipped`, which sums up all tests of all languages. Skipped steps are named above it and have not passed.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use crate::needs::{
    self, CHROMIUM, CURL, DEBOOTSTRAP, DEBUGFS, DPKG_DEB, DPKG_SHLIBDEPS, E2FSCK, FAKETIME, GUESTFISH, IP,
    MKE2FS, NBDCOPY, NPM, Need, PROMTOOL, QEMU, QEMU_IMG, QEMU_NBD, STRACE, UNSHARE,
};
use crate::programs;
use crate::scratch::Scratch;
use crate::shell::{self, cargo};
use crate::steps::{Step, skipped, step, summarise, tests};
use crate::suite::{self, BROWSER};
use crate::tally::{self, Runner};
use crate::web;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out the end-to-end tests, the documentation and the web interface
    #[arg(long)]
    quick: bool,
    /// Only what takes seconds when little changed: formatting, structure, lints. The pre-commit hook runs this
    #[arg(long, conflicts_with = "quick")]
    first: bool,
    /// Leave nothing out of any test, and write to a disk, not to memory: takes hours
    #[arg(long, conflicts_with_all = ["quick", "first"])]
    slow: bool,
}

/// Crates that must not be in the tree: a second TLS stack is a second thing to keep patched.
const BANNED: [&str; 3] = ["ring", "openssl-sys", "native-tls"];

pub(crate) fn run(options: &Options) -> ExitCode {
    let started = Instant::now();
    let steps = match options {
        Options { first: true, .. } => first_steps(),
        Options { quick: true, .. } => quick_steps(),
        Options { slow, .. } => all_steps(*slow),
    };
    summarise(&steps, started.elapsed())
}

fn format_step() -> Step {
    step("format", || shell::run(cargo().args(["fmt", "--all", "--check"])))
}

fn lints_step() -> Step {
    step("lints", || {
        let args = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
        shell::run(cargo().args(args))
    })
}

fn first_steps() -> Vec<Step> {
    let mut steps = vec![format_step()];
    // They read sources as text: fast, and often the first to fail after a change.
    steps.push(tests("structure", |tally| {
        tally::run(cargo().args(["test", "--quiet", "-p", "xtask"]), Runner::Cargo, tally)
    }));
    steps.push(lints_step());
    steps
}

fn quick_steps() -> Vec<Step> {
    let mut steps = vec![format_step()];
    steps.extend(dependency_steps());
    steps.push(lints_step());
    steps.push(tests("unit tests", |tally| {
        let args = ["test", "--workspace", "--tests", "--no-fail-fast", "--exclude", "holdfast-tests"];
        tally::run(Scratch::in_memory().give_to(cargo().args(args)), Runner::Cargo, tally)
    }));
    steps.push(skipped("the rest", "--quick"));
    steps
}

/// The cheapest first: a failure shows as early as possible.
fn all_steps(slow: bool) -> Vec<Step> {
    let with_web = web::folder().join("package.json").exists();
    let mut wanted: Vec<Need> =
        vec![MKE2FS, DEBUGFS, E2FSCK, QEMU_IMG, QEMU_NBD, NBDCOPY, QEMU, STRACE, FAKETIME, CURL, PROMTOOL];
    if with_web {
        wanted.extend([NPM, CHROMIUM]);
    }
    if slow {
        wanted.extend([GUESTFISH, DEBOOTSTRAP, DPKG_DEB, DPKG_SHLIBDEPS, IP, UNSHARE]);
    }
    let missing = needs::provide(&wanted);
    let mut steps = vec![format_step(), step("needs", || needs::insist(&missing))];
    steps.extend(dependency_steps());
    // Before the server is built, which embeds the web interface.
    let (web_steps, built) = if with_web { web_steps() } else { (Vec::new(), false) };
    steps.extend(web_steps);
    let mut programs = Vec::new();
    steps.push(step("lints, programs", || programs::build(&mut programs)));
    if programs.is_empty() {
        steps.push(skipped("the rest", "the programs were not built"));
        return steps;
    }
    steps.push(step("documentation", programs::document));
    let mut web = Vec::new();
    if built {
        web.push(suite::web_tests());
    }
    match shell::locate("chromium") {
        Some(chromium) if built => web.push(suite::browser_tests(&chromium)),
        Some(_) if with_web => steps.push(skipped(BROWSER, "the web interface was not built")),
        None if with_web => steps.push(skipped(BROWSER, "chromium is missing")),
        _ => {}
    }
    steps.extend(suite::run(&programs, web, slow));
    steps
}

fn dependency_steps() -> [Step; 2] {
    let licences = if shell::locate("cargo-deny").is_some() {
        step("licences", || shell::run(cargo().args(["deny", "--all-features", "check"])))
    } else {
        skipped("licences", "cargo-deny is not installed (cargo install cargo-deny)")
    };
    [step("dependencies", check_dependencies), licences]
}

/// Checks for a single TLS stack, and for other banned crates, on all targets.
fn check_dependencies() -> Result<()> {
    let args = ["tree", "--workspace", "--target=all", "--edges=all", "--prefix=none", "--format={p}"];
    let tree = shell::capture(cargo().args(args))?;
    let found: Vec<_> = BANNED
        .iter()
        .filter(|name| tree.lines().any(|line| line.split(' ').next() == Some(**name)))
        .collect();
    if let Some(name) = found.first() {
        bail!("{found:?} must not be in the tree; `cargo tree --target=all -i {name}` says who brings it");
    }
    println!("none of {} is in the tree", BANNED.join(", "));
    Ok(())
}

/// Installs, builds and lints the web interface; also returns whether it is built.
fn web_steps() -> (Vec<Step>, bool) {
    if let Some(obstacle) = web::obstacle() {
        return (vec![skipped("web", &obstacle)], false);
    }
    let install = step("web: install", web::install);
    if install.failed() {
        return (vec![install], false);
    }
    let build = step("web: build", web::build);
    let built = !build.failed();
    (vec![install, build, step("web: lints", web::lint)], built)
}
