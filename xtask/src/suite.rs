//! The tests of all built programs: those of every crate, and the web interface's.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use crate::lanes::{Done, Job, side_by_side};
use crate::programs::Program;
use crate::scratch::Scratch;
use crate::shell;
use crate::steps::{Step, taken};
use crate::tally::{Runner, Tally};
use crate::web;

/// Environment variable that makes tests skip nothing.
pub(crate) const SLOW: &str = "HOLDFAST_SLOW_TESTS";

/// The message about tests that are skipped otherwise.
const LEFT_OUT: &str = "Left out without --slow: 99 of 100 power failures of everything at once; for each write of the other \
                        lives that power fails in, one of the two outcomes (lost, done); 90,000 of the 100,000 rows that a browser scrolls";

/// Environment variable: number of tests of one program that run in parallel.
const THREADS: &str = "RUST_TEST_THREADS";

const END_TO_END: &str = "e2e";

/// The longest programs begin first, so that nothing waits for them at the end.
const LONGEST_FIRST: [&str; 4] = [END_TO_END, BROWSER, "holdfast_engine", "power_loss"];

pub(crate) const BROWSER: &str = "web: browser";
const WEB_TESTS: &str = "web: tests";

/// The web interface's tests without a browser.
pub(crate) fn web_tests() -> Job {
    Job { name: WEB_TESTS.to_owned(), command: web::npm(&["test"]), runner: Runner::Vitest }
}

/// The web interface's tests in a browser.
pub(crate) fn browser_tests(chromium: &Path) -> Job {
    let mut command = web::npm(&["run", "test:browser"]);
    command.env("HOLDFAST_CHROMIUM", chromium);
    Job { name: BROWSER.to_owned(), command, runner: Runner::Playwright }
}

/// Runs the test programs in parallel with the web interface's tests; `slow`: everything, on a disk.
pub(crate) fn run(programs: &[Program], web: Vec<Job>, slow: bool) -> Vec<Step> {
    println!("\n{}", shell::bold("── tests"));
    let began = Instant::now();
    match try_run(programs, web, slow) {
        Ok(steps) => steps,
        Err(error) => vec![taken("tests", began.elapsed(), Tally::default(), Err(error))],
    }
}

fn try_run(programs: &[Program], web: Vec<Job>, slow: bool) -> Result<Vec<Step>> {
    let skipped = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let scratch = if slow { Scratch::on_disk() } else { Scratch::in_memory() };
    let built = shell::target_dir()?.join("debug");
    let mut jobs: Vec<Job> = programs.iter().map(rust_job).chain(web).collect();
    jobs.sort_by_key(|job| LONGEST_FIRST.iter().position(|name| job.name == *name).unwrap_or(usize::MAX));
    for Job { command, .. } in &mut jobs {
        command.env("HOLDFAST_TESTS_SKIPPED", skipped.path()).env(shell::BIN_DIR, &built);
        scratch.give_to(command);
        if slow {
            command.env(SLOW, "1");
        }
    }
    let mut done = side_by_side(jobs);
    if !slow {
        println!("{LEFT_OUT}");
    }
    let mut of = |runner: Runner| done.extract_if(.., |done| done.runner == runner).collect::<Vec<_>>();
    let (rust, vitest, playwright) = (of(Runner::Cargo), of(Runner::Vitest), of(Runner::Playwright));
    let mut steps = vec![summed_up("tests", rust, count_skipped(skipped.path())?)];
    for (name, done) in [(WEB_TESTS, vitest), (BROWSER, playwright)] {
        if !done.is_empty() {
            steps.push(summed_up(name, done, 0));
        }
    }
    Ok(steps)
}

/// A test program as cargo would run it.
fn rust_job(program: &Program) -> Job {
    let mut command = Command::new(&program.file);
    command.current_dir(&program.folder);
    if std::env::var_os(THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        // End-to-end tests mostly wait: for programs, and for killed processes to be replaced.
        let threads = if program.name() == END_TO_END { 2 * cores } else { cores };
        command.env(THREADS, threads.to_string());
    }
    Job { name: program.name().to_owned(), command, runner: Runner::Cargo }
}

/// Names the tests that skipped something, and counts them.
fn count_skipped(file: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(file).context("cannot read what was skipped")?;
    let lines: BTreeSet<&str> = text.lines().collect();
    if !lines.is_empty() {
        println!("Skipped, or in part:");
        lines.iter().for_each(|line| println!("  {line}"));
    }
    let names: BTreeSet<&str> = lines.iter().filter_map(|line| line.split(": ").next()).collect();
    Ok(names.len() as u64)
}

/// Sums several jobs up as one step: from the start of the first to the end of the last.
fn summed_up(name: &'static str, jobs: Vec<Done>, skipped: u64) -> Step {
    let mut tests = Tally::default();
    jobs.iter().for_each(|job| tests += job.tests);
    tests.skip(skipped);
    let began = jobs.iter().map(|job| job.began).min();
    let ended = jobs.iter().map(|job| job.ended).max();
    let took = began.zip(ended).map_or(Duration::ZERO, |(began, ended)| ended.duration_since(began));
    let failed: Vec<String> =
        jobs.into_iter().filter_map(|job| Some(job.result.err()?.to_string())).collect();
    let result = if failed.is_empty() { Ok(()) } else { Err(anyhow!(failed.join("\n"))) };
    taken(name, took, tests, result)
}
