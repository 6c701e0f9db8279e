//! Runs test programs in parallel: the longest ones mostly wait, for programs, for a browser, for one last test, and
//! leave room for others.

use std::collections::VecDeque;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::tally::{Runner, Tally};

/// Programs that run in parallel; each has threads of its own.
const LANES: usize = 2;

/// A command that runs tests.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
    pub(crate) runner: Runner,
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) runner: Runner,
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) tests: Tally,
    pub(crate) result: Result<()>,
}

/// Runs jobs in their order, two in parallel, and shows the output of each as soon as it ends.
pub(crate) fn side_by_side(jobs: Vec<Job>) -> Vec<Done> {
    let (waiting, done) = (Mutex::new(VecDeque::from(jobs)), Mutex::new(Vec::new()));
    let next = || waiting.lock().ok().and_then(|mut jobs| jobs.pop_front());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let ended = run(job);
                    if let Ok(mut done) = done.lock() {
                        done.push(ended);
                    }
                }
            });
        }
    });
    done.into_inner().unwrap_or_default()
}

fn run(mut job: Job) -> Done {
    let began = Instant::now();
    println!("{} begins", job.name);
    let mut said = Vec::new();
    let result = capture(&mut job.command, &mut said);
    let text = String::from_utf8_lossy(&said);
    let mut tests = Tally::default();
    text.lines().for_each(|line| tests += Tally::of_line(line, job.runner));
    let ended = Instant::now();
    let title = shell::bold(&format!("{}, {}", job.name, shell::time(ended.duration_since(began))));
    // Printed in one piece: another lane may print, too. A test of this program captures it, and is not counted itself.
    println!("\n{title}\n{text}");
    Done { runner: job.runner, began, ended, tests, result }
}

/// Runs a command; `said` gets all its output, even if it fails.
fn capture(command: &mut Command, said: &mut Vec<u8>) -> Result<()> {
    let what = shell::line(command);
    // A pipe would stay open as long as any child of the command lives.
    let mut file = tempfile::tempfile().context("cannot make a temporary file")?;
    let copy = || file.try_clone().context("cannot share a temporary file");
    command.stdin(Stdio::null()).stdout(copy()?).stderr(copy()?);
    let status = command.status().with_context(|| format!("cannot run {what}"))?;
    file.rewind().and_then(|()| file.read_to_end(said)).context("cannot read a temporary file")?;
    if !status.success() {
        bail!("`{what}` ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn job(name: &str, script: &str) -> Job {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Job { name: name.to_owned(), command, runner: Runner::Cargo }
    }

    #[test]
    fn every_job_runs_and_is_counted_whatever_became_of_others() {
        let script = "echo 'test result: FAILED. 3 passed; 1 failed' >&2; exit 101";
        let mut jobs = vec![job("fails", script), job("crashes", "kill -ABRT $$")];
        jobs.extend((0..5).map(|_| job("passes", "echo 'test result: ok. 2 passed; 0 failed'")));
        let done = side_by_side(jobs);
        let mut sum = Tally::default();
        done.iter().for_each(|done| sum += done.tests);
        assert_eq!(sum, Tally { passed: 13, failed: 1, skipped: 0 });
        assert_eq!(done.iter().filter(|done| done.result.is_err()).count(), 2);
    }

    /// Each waits until the other has begun, a minute at most.
    #[test]
    fn two_run_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let meet = |mine: &Path, others: &Path| {
            let (mine, others) = (mine.display(), others.display());
            format!(
                "touch {mine}; for i in $(seq 6000); do [ ! -e {others} ] || exit 0; sleep 0.01; done; exit 1"
            )
        };
        let done = side_by_side(vec![job("one", &meet(&one, &other)), job("other", &meet(&other, &one))]);
        assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    }
}
