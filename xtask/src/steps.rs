//! Steps of `cargo xtask test`: each runs whether or not those before it failed, and the end summarises all of them.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell;
use crate::tally::Tally;

enum Outcome {
    Passed,
    Skipped(String),
    Failed(String),
}

/// A step that was run or skipped.
pub(crate) struct Step {
    name: &'static str,
    took: Duration,
    outcome: Outcome,
    tests: Tally,
}

impl Step {
    pub(crate) fn failed(&self) -> bool {
        matches!(self.outcome, Outcome::Failed(_))
    }
}

/// Runs a step without tests.
pub(crate) fn step(name: &'static str, action: impl FnOnce() -> Result<()>) -> Step {
    tests(name, |_| action())
}

/// Runs a step that counts its tests.
pub(crate) fn tests(name: &'static str, action: impl FnOnce(&mut Tally) -> Result<()>) -> Step {
    println!("\n{}", shell::bold(&format!("── {name}")));
    let started = Instant::now();
    let mut tests = Tally::default();
    let result = action(&mut tests);
    taken(name, started.elapsed(), tests, result)
}

/// Adds a step that was run elsewhere.
pub(crate) fn taken(name: &'static str, took: Duration, tests: Tally, result: Result<()>) -> Step {
    let outcome = match result {
        Ok(()) => Outcome::Passed,
        Err(error) => {
            println!("{error:#}");
            Outcome::Failed(format!("{error:#}").lines().next().unwrap_or_default().to_owned())
        }
    };
    Step { name, took, outcome, tests }
}

/// Adds a skipped step.
pub(crate) fn skipped(name: &'static str, why: &str) -> Step {
    let outcome = Outcome::Skipped(why.to_owned());
    Step { name, took: Duration::ZERO, outcome, tests: Tally::default() }
}

/// Summarises all steps; success if none failed. The last line is `N passed, N failed`, with `, N skipped` behind it
/// if something was skipped, and nothing else, for programs.
pub(crate) fn summarise(steps: &[Step], total: Duration) -> ExitCode {
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
    let failed: Vec<_> = steps.iter().filter(|step| step.failed()).collect();
    if let Some(first) = failed.first() {
        println!(
            "\n{} of {} steps failed, {:?} first: its output is above.",
            failed.len(),
            steps.len(),
            first.name
        );
    }
    println!("\n{}", closing_line(steps));
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Sums up all tests. A step that failed without a failed test (a lint, a build, a crash) counts as one, and so does
/// a skipped step.
fn closing_line(steps: &[Step]) -> String {
    let mut sum = Tally::default();
    for step in steps {
        sum += step.tests;
        sum.failed += u64::from(step.failed() && step.tests.failed == 0);
        sum.skipped += u64::from(matches!(step.outcome, Outcome::Skipped(_)));
    }
    let skipped = if sum.skipped > 0 { format!(", {} skipped", sum.skipped) } else { String::new() };
    format!("{} passed, {} failed{skipped}", sum.passed, sum.failed)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    fn counting(passed: u64, failed: u64) -> impl FnOnce(&mut Tally) -> Result<()> {
        move |tally| {
            *tally += Tally { passed, failed, skipped: 0 };
            if failed > 0 {
                bail!("{failed} tests failed");
            }
            Ok(())
        }
    }

    #[test]
    fn the_closing_line_adds_up_all_tests() {
        let steps = [step("format", || Ok(())), tests("rust", counting(40, 0)), tests("web", counting(2, 0))];
        assert_eq!(closing_line(&steps), "42 passed, 0 failed");
    }

    #[test]
    fn whatever_fails_is_counted() {
        let steps = [
            step("lints", || bail!("a warning")),
            tests("rust", counting(40, 3)),
            skipped("web", "no Node.js"),
            // It did not build, so no test ran.
            tests("browser", |_| bail!("no build")),
        ];
        assert_eq!(closing_line(&steps), "40 passed, 5 failed, 1 skipped");
    }

    #[test]
    fn a_test_that_lacked_something_has_not_passed() {
        let lacking = |tally: &mut Tally| {
            *tally += Tally { passed: 40, failed: 0, skipped: 1 };
            tally.skip(2);
            Ok(())
        };
        assert_eq!(closing_line(&[tests("rust", lacking)]), "38 passed, 0 failed, 3 skipped");
    }
}
