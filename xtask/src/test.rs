//! `cargo xtask test`: the same steps before a commit and on the build machine. Every step runs even when
//! an earlier one failed, so that one run shows everything that is wrong.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::needs::{self, CHROMIUM, DEBUGFS, E2FSCK, MKE2FS, NPM, Need, QEMU_IMG};
use crate::shell::{self, cargo};
use crate::web;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Leave out the end-to-end tests, the documentation and the web interface
    #[arg(long)]
    quick: bool,
}

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

struct Step {
    name: &'static str,
    took: Duration,
    outcome: Outcome,
}

/// Crates that must not be in the tree: a second TLS stack is a second thing to keep patched.
const BANNED: [&str; 3] = ["ring", "openssl-sys", "native-tls"];

pub(crate) fn run(options: &Options) -> Result<()> {
    let started = Instant::now();
    let with_web = !options.quick && web::folder().join("package.json").exists();
    let mut wanted: Vec<Need> = vec![MKE2FS, DEBUGFS, E2FSCK, QEMU_IMG];
    if with_web {
        wanted.extend([NPM, CHROMIUM]);
    }
    let missing = needs::provide(&wanted);
    let lacks = |program: &str| missing.iter().any(|need| need.program == program);
    if missing.iter().any(|need| !matches!(need.program, "npm" | "chromium")) {
        println!("  Tests that need these test nothing and pass; they are listed after the tests.");
    }

    let mut steps = vec![step("format", || shell::run(cargo().args(["fmt", "--all", "--check"])))];
    // Before anything that builds the server, which takes the web interface in.
    let built = with_web && {
        let (web_steps, built) = web_steps();
        steps.extend(web_steps);
        built
    };
    steps.extend([
        step("lints", || {
            let args = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
            shell::run(cargo().args(args))
        }),
        step("dependencies", check_dependencies),
    ]);
    if shell::locate("cargo-deny").is_some() {
        steps.push(step("licences", || shell::run(cargo().args(["deny", "--all-features", "check"]))));
    } else {
        steps.push(skipped("licences", "cargo-deny is not installed (cargo install cargo-deny)"));
    }
    if options.quick {
        steps.push(step("unit tests", || {
            shell::run(cargo().args(["test", "--workspace", "--no-fail-fast", "--exclude", "holdfast-tests"]))
        }));
        steps.push(skipped("the rest", "--quick"));
    } else {
        steps.push(step("documentation", || {
            let args = ["doc", "--workspace", "--no-deps", "--quiet"];
            shell::run(cargo().args(args).env("RUSTDOCFLAGS", "-D warnings"))
        }));
        steps.push(step("tests", run_tests));
        if with_web {
            steps.push(browser_step(built, lacks("chromium")));
        }
    }
    summarise(&steps, started.elapsed())
}

fn step(name: &'static str, action: impl FnOnce() -> Result<()>) -> Step {
    println!("\n{}", shell::bold(&format!("── {name}")));
    let started = Instant::now();
    let outcome = match action() {
        Ok(()) => Outcome::Passed,
        Err(error) => {
            println!("{error:#}");
            Outcome::Failed(format!("{error:#}").lines().next().unwrap_or_default().to_owned())
        }
    };
    Step { name, took: started.elapsed(), outcome }
}

fn skipped(name: &'static str, why: &str) -> Step {
    Step { name, took: Duration::ZERO, outcome: Outcome::Skipped(why.to_owned()) }
}

/// Every test of every crate, and what some of them left out: `cargo test` hides what passing tests say.
fn run_tests() -> Result<()> {
    let skipped = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let mut command = cargo();
    command.args(["test", "--workspace", "--no-fail-fast"]).env("HOLDFAST_TESTS_SKIPPED", skipped.path());
    let result = shell::run(&mut command);
    let text = std::fs::read_to_string(skipped.path()).context("cannot read what was skipped")?;
    if !text.is_empty() {
        println!("Tests that left something out:");
        text.lines().for_each(|line| println!("  {line}"));
    }
    result
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
    let passed = |steps: &[Step]| !steps.iter().any(|step| matches!(step.outcome, Outcome::Failed(_)));
    if !passed(&steps) {
        return (steps, false);
    }
    steps.push(step("web: lints", web::lint));
    steps.push(step("web: tests", web::test));
    let build = step("web: build", web::build);
    let built = passed(std::slice::from_ref(&build));
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
    step(NAME, || {
        let chromium = shell::locate("chromium").context("chromium went away")?;
        shell::run(cargo().args(["build", "--bins", "-p", "holdfast-server", "-p", "holdfast"]))?;
        shell::run(cargo().args(["build", "-p", "holdfast-engine", "--example", "fill_details"]))?;
        let mut tests = web::npm(&["run", "test:browser"]);
        tests.env("HOLDFAST_CHROMIUM", chromium).env("HOLDFAST_BIN_DIR", shell::target_dir()?.join("debug"));
        shell::run(&mut tests)
    })
}

fn summarise(steps: &[Step], total: Duration) -> Result<()> {
    println!("\n{}", shell::bold("Summary"));
    for step in steps {
        let (word, note) = match &step.outcome {
            Outcome::Passed => ("passed", ""),
            Outcome::Skipped(why) => ("skipped", why.as_str()),
            Outcome::Failed(why) => ("FAILED", why.as_str()),
        };
        println!("  {:<16} {:<8} {:>13}  {note}", step.name, word, shell::time(step.took));
    }
    println!("  {:<16} {:<8} {:>13}", "all", "", shell::time(total));
    let failed = steps.iter().filter(|step| matches!(step.outcome, Outcome::Failed(_))).count();
    if failed > 0 {
        bail!("{failed} of {} steps failed", steps.len());
    }
    Ok(())
}
