//! Counts tests in the output of test programs, while they print it.

use std::io::{BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// `cargo test`: a line `test result: ok. 12 passed; 0 failed; …` for each test program.
    Cargo,
    /// A line `Tests  1 failed | 122 passed (123)` at the end.
    Vitest,
    /// Lines `1 failed` and `25 passed (1.2m)` at the end.
    Playwright,
}

/// Counts of tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Not counted as passed.
    pub(crate) skipped: u64,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl Tally {
    /// Counts of one line of output; zero if it is not a summary.
    pub(crate) fn of_line(line: &str, runner: Runner) -> Self {
        let line = without_colours(line);
        let line = line.trim();
        match runner {
            Runner::Cargo => match line.strip_prefix("test result: ") {
                Some(counts) => Self::of_counts(counts.split(['.', ';'])),
                None => Self::default(),
            },
            Runner::Vitest => match line.strip_prefix("Tests ") {
                Some(counts) => Self::of_counts(counts.split('|')),
                None => Self::default(),
            },
            Runner::Playwright => {
                let counts = line.split_once(" (").map_or(line, |(counts, _)| counts);
                // Nothing else: a failing test's own output may contain such words in a sentence.
                if counts.split(' ').count() == 2 { Self::of_counts([counts]) } else { Self::default() }
            }
        }
    }

    /// Moves tests that reported skipping something from passed to skipped: their program counts them as passed.
    pub(crate) fn skip(&mut self, tests: u64) {
        self.passed = self.passed.saturating_sub(tests);
        self.skipped += tests;
    }

    /// Adds up parts such as "12 passed".
    fn of_counts<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tally = Self::default();
        for part in parts {
            let mut words = part.split_whitespace();
            let Some(count) = words.next().and_then(|word| word.parse::<u64>().ok()) else { continue };
            match words.next() {
                // A test that passed only on a retry did pass.
                Some("passed" | "flaky") => tally.passed += count,
                Some("failed") => tally.failed += count,
                Some("skipped") => tally.skipped += count,
                _ => {}
            }
        }
        tally
    }
}

/// Runs a command, shows its standard output as it comes and adds its tests to `tally`.
///
/// # Errors
/// When it cannot be started or ends in failure.
pub(crate) fn run(command: &mut Command, runner: Runner, tally: &mut Tally) -> Result<()> {
    let what = shell::line(command);
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {what}"))?;
    let mut output = BufReader::new(child.stdout.take().context("standard output is piped")?);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).with_context(|| format!("cannot read from {what}"))? > 0 {
        let text = String::from_utf8_lossy(&line);
        print!("{text}");
        *tally += Tally::of_line(&text, runner);
        line.clear();
    }
    let status = child.wait().with_context(|| format!("cannot wait for {what}"))?;
    if !status.success() {
        bail!("`{what}` ended with {status}");
    }
    Ok(())
}

/// Removes `ESC [ … m`.
fn without_colours(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once('m').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(line: &str, runner: Runner) -> (u64, u64) {
        let tally = Tally::of_line(line, runner);
        (tally.passed, tally.failed)
    }

    #[test]
    fn summaries_of_cargo_are_counted() {
        let fine =
            "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(counted(fine, Runner::Cargo), (12, 0));
        let bad = "test result: FAILED. 11 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        assert_eq!(counted(bad, Runner::Cargo), (11, 2));
        assert_eq!(counted("test result: \u{1b}[32mok\u{1b}[0m. 4 passed; 0 failed", Runner::Cargo), (4, 0));
        assert_eq!(counted("test tests::five_failed ... ok", Runner::Cargo), (0, 0));
    }

    #[test]
    fn summaries_of_web_tests_are_counted() {
        assert_eq!(counted("      Tests  1 failed | 122 passed | 2 skipped (125)", Runner::Vitest), (122, 1));
        let skipped = |line, runner| Tally::of_line(line, runner).skipped;
        assert_eq!(skipped("      Tests  122 passed | 2 skipped (124)", Runner::Vitest), 2);
        assert_eq!(skipped("  3 skipped", Runner::Playwright), 3);
        assert_eq!(counted(" Test Files  12 passed (12)", Runner::Vitest), (0, 0));
        let coloured = "\u{1b}[2m      Tests \u{1b}[22m \u{1b}[1m\u{1b}[32m9 passed\u{1b}[39m\u{1b}[22m (9)";
        assert_eq!(counted(coloured, Runner::Vitest), (9, 0));
        assert_eq!(counted("  25 passed (1.2m)", Runner::Playwright), (25, 0));
        assert_eq!(counted("  1 failed", Runner::Playwright), (0, 1));
        assert_eq!(counted("  2 flaky", Runner::Playwright), (2, 0));
        assert_eq!(counted("3 failed runs are shown", Runner::Playwright), (0, 0));
        assert_eq!(
            counted("  ✓  1 [chromium] › login.spec.ts:9:1 › logs in (1.2s)", Runner::Playwright),
            (0, 0)
        );
    }

    #[test]
    fn a_command_that_fails_is_counted_to_its_end() {
        let mut tally = Tally::default();
        let script = "echo 'test result: FAILED. 3 passed; 1 failed'; echo 'test result: ok. 2 passed; 0 failed'; exit 101";
        let error = run(Command::new("sh").args(["-c", script]), Runner::Cargo, &mut tally).unwrap_err();
        assert!(error.to_string().contains("101"), "{error}");
        assert_eq!(tally, Tally { passed: 5, failed: 1, skipped: 0 });
        tally.skip(2);
        assert_eq!(tally, Tally { passed: 3, failed: 1, skipped: 2 });
    }
}
