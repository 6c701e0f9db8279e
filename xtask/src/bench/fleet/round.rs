//! Running many commands, one after another or all at once, and measuring them.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::tools::Stored;
use crate::bench::measure::{Usage, cpu_of, forget_peak, measured, peak_of};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    OneByOne,
    AtOnce,
}

/// Usage of all commands together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Round {
    pub(super) wall: Duration,
    /// CPU time of all processes, the server's included.
    pub(super) cpu: Duration,
    /// Peak memory of the largest process on the agents' side.
    pub(super) agent_peak_bytes: u64,
    /// Peak memory of the server, if there is one.
    pub(super) server_peak_bytes: Option<u64>,
    /// Data added to the repository meanwhile.
    pub(super) stored: Stored,
}

impl Round {
    /// Runs `commands` to their end, beside the process `server`. Their output goes to files that begin with `log`.
    ///
    /// # Errors
    /// When one of them fails.
    pub(super) fn run(server: Option<u32>, commands: Vec<Command>, order: Order, log: &Path) -> Result<Self> {
        let before = server.map(|pid| forget_peak(pid).and_then(|()| cpu_of(pid))).transpose()?;
        let started = Instant::now();
        let mut commands: Vec<_> = (0..)
            .zip(commands)
            .map(|(number, command)| (command, log.with_extension(format!("{number}.log"))))
            .collect();
        let usages: Vec<Usage> = match order {
            Order::OneByOne => {
                commands.iter_mut().map(|(command, log)| measured(command, log)).collect::<Result<_>>()?
            }
            Order::AtOnce => at_once(&mut commands)?,
        };
        let wall = started.elapsed();
        let mut cpu = usages.iter().map(|usage| usage.cpu).sum();
        if let Some((pid, before)) = server.zip(before) {
            cpu += cpu_of(pid)?.saturating_sub(before);
        }
        let agent_peak_bytes = usages.iter().map(|usage| usage.peak_bytes).max().unwrap_or(0);
        let server_peak_bytes = server.map(peak_of).transpose()?;
        Ok(Self { wall, cpu, agent_peak_bytes, server_peak_bytes, stored: Stored::default() })
    }
}

/// Waits for all of them, even if one fails: none may run on into the next measurement.
fn at_once(commands: &mut [(Command, std::path::PathBuf)]) -> Result<Vec<Usage>> {
    let count = commands.len();
    let outcomes: Vec<Result<Usage>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            commands.iter_mut().map(|(command, log)| scope.spawn(|| measured(command, log))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| bail!("panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    let all: Result<_> = outcomes.into_iter().collect();
    all.with_context(|| format!("{failed} of {count} at once failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn commands_run_at_once_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let fifo = folder.path().join("fifo");
        let there = fifo.display();
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        // Opening a pipe to read waits for a writer: these end only in parallel.
        let pair = vec![shell(&format!("cat {there}")), shell(&format!("echo met > {there}"))];
        let round = Round::run(None, pair, Order::AtOnce, &log).unwrap();
        assert!(round.agent_peak_bytes > 0 && round.server_peak_bytes.is_none());
        assert_eq!(std::fs::read_to_string(folder.path().join("log.0.log")).unwrap(), "met\n");
        // The second finds the file that the first left.
        let left = folder.path().join("left").display().to_string();
        let turns = vec![shell(&format!("touch {left}")), shell(&format!("test -e {left}"))];
        let round = Round::run(Some(std::process::id()), turns, Order::OneByOne, &log).unwrap();
        assert!(round.server_peak_bytes > Some(0));
        let failing = vec![shell("true"), shell("echo full; exit 8")];
        let error = format!("{:#}", Round::run(None, failing, Order::AtOnce, &log).unwrap_err());
        assert!(error.contains("1 of 2 at once failed") && error.contains("full"), "{error}");
    }
}
