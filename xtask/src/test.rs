//! `cargo xtask test`: the same steps before a commit and on the build machine. Every step runs even when
//! an earlier one failed, so that one run shows everything that is wrong. It ends with a line
//! `N passed, N failed`, or `N passed, N failed, N skipped`, which sums up all tests of all languages. What was skipped
//! is named above it and has not passed.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::needs::{
    self, CHROMIUM, CURL, DEBUGFS, E2FSCK, FAKETIME, MKE2FS, NPM, Need, PROMTOOL, QEMU_IMG, STRACE,
};
use crate::shell::{self, cargo};
use crate::steps::{Step, skipped, step, summarise, tests};
use crate::tally::{self, Runner, Tally};
use crate::web;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out the end-to-end tests, the documentation and the web interface
    #[arg(long)]
    quick: bool,
    /// Only what takes seconds when little changed: formatting, structure, lints. The pre-commit hook runs this
    #[arg(long, conflicts_with = "quick")]
    first: bool,
}

/// Crates that must not be in the tree: a second TLS stack is a second thing to keep patched.
const BANNED: [&str; 3] = ["ring", "openssl-sys", "native-tls"];

/// How many tests of one program run at once.
const THREADS: &str = "RUST_TEST_THREADS";

pub(crate) fn run(options: &Options) -> ExitCode {
    let started = Instant::now();
    let steps = if options.first { first_steps() } else { all_steps(options.quick) };
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
    // They read sources as text: fast, and often what a change breaks first.
    steps.push(tests("structure", |tally| {
        tally::run(cargo().args(["test", "--quiet", "-p", "xtask"]), Runner::Cargo, tally)
    }));
    steps.push(lints_step());
    steps
}

fn all_steps(quick: bool) -> Vec<Step> {
    let with_web = !quick && web::folder().join("package.json").exists();
    let mut wanted: Vec<Need> = vec![MKE2FS, DEBUGFS, E2FSCK, QEMU_IMG, STRACE, FAKETIME, CURL, PROMTOOL];
    if with_web {
        wanted.extend([NPM, CHROMIUM]);
    }
    let missing = needs::provide(&wanted);
    let lacks = |program: &str| missing.iter().any(|need| need.program == program);

    let mut steps = vec![format_step()];
    if !quick {
        steps.push(step("needs", || needs::insist(&missing)));
    }
    // Before anything that builds the server, which takes the web interface in.
    let built = with_web && {
        let (web_steps, built) = web_steps();
        steps.extend(web_steps);
        built
    };
    steps.extend([lints_step(), step("dependencies", check_dependencies)]);
    if shell::locate("cargo-deny").is_some() {
        steps.push(step("licences", || shell::run(cargo().args(["deny", "--all-features", "check"]))));
    } else {
        steps.push(skipped("licences", "cargo-deny is not installed (cargo install cargo-deny)"));
    }
    if quick {
        steps.push(tests("unit tests", |tally| {
            let args = ["test", "--workspace", "--tests", "--no-fail-fast", "--exclude", "holdfast-tests"];
            tally::run(cargo().args(args), Runner::Cargo, tally)
        }));
        steps.push(skipped("the rest", "--quick"));
    } else {
        steps.push(step("documentation", || {
            let args = ["doc", "--workspace", "--no-deps", "--quiet"];
            shell::run(cargo().args(args).env("RUSTDOCFLAGS", "-D warnings"))
        }));
        steps.push(step("programs", || {
            // With what tests need, so that nothing is built twice, for other features.
            shell::run(cargo().args(["build", "--workspace", "--all-targets", "--quiet"]))
        }));
        steps.push(tests("tests", run_tests));
        if with_web {
            steps.push(browser_step(built, lacks("chromium")));
        }
    }
    steps
}

/// Every test of every crate. Those that left something out are named, and counted as skipped.
fn run_tests(tally: &mut Tally) -> Result<()> {
    let skipped = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut command = cargo();
    // No example in a comment is a test: looking for one takes a minute.
    command.args(["test", "--workspace", "--tests", "--no-fail-fast"]);
    command.env("HOLDFAST_TESTS_SKIPPED", skipped.path()).env(shell::BIN_DIR, built_programs()?);
    if std::env::var_os(THREADS).is_none() {
        // End-to-end tests mostly wait: for fsync, for programs, for what was killed.
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        command.env(THREADS, (2 * cores).to_string());
    }
    let result = tally::run(&mut command, Runner::Cargo, tally);
    let text = std::fs::read_to_string(skipped.path()).context("cannot read what was skipped")?;
    let lines: BTreeSet<&str> = text.lines().collect();
    if !lines.is_empty() {
        println!("Skipped, or in part:");
        lines.iter().for_each(|line| println!("  {line}"));
    }
    let names: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
    tally.skip(names.len() as u64);
    result
}

/// What the step "programs" built.
fn built_programs() -> Result<PathBuf> {
    Ok(shell::target_dir()?.join("debug"))
}

/// One TLS stack, and nothing else that is banned, whatever the target.
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

/// Installs, tests and builds the web interface; also says whether it is built.
fn web_steps() -> (Vec<Step>, bool) {
    if let Some(obstacle) = web::obstacle() {
        return (vec![skipped("web", &obstacle)], false);
    }
    let mut steps = vec![step("web: install", web::install)];
    if steps.iter().any(Step::failed) {
        return (steps, false);
    }
    steps.push(step("web: lints", web::lint));
    steps.push(tests("web: tests", |tally| tally::run(&mut web::npm(&["test"]), Runner::Vitest, tally)));
    let build = step("web: build", web::build);
    let built = !build.failed();
    steps.push(build);
    (steps, built)
}

/// The web interface in a browser, against the programs just tested.
fn browser_step(built: bool, no_chromium: bool) -> Step {
    const NAME: &str = "web: browser";
    if !built {
        return skipped(NAME, "the web interface was not built");
    }
    if no_chromium {
        return skipped(NAME, "chromium is missing");
    }
    tests(NAME, |tally| {
        let chromium = shell::locate("chromium").context("chromium went away")?;
        let mut tests = web::npm(&["run", "test:browser"]);
        tests.env("HOLDFAST_CHROMIUM", chromium).env(shell::BIN_DIR, built_programs()?);
        tally::run(&mut tests, Runner::Playwright, tally)
    })
}
