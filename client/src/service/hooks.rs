//! Hooks: shell commands around an attempt, such as one that makes a snapshot and one that removes it.
//!
//! Each is a process group of its own, which ends as a whole when it takes too long or the agent stops.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::sync::oneshot;

use crate::cancel::Cancel;
use crate::source::tail;

/// Time between being asked to end and being made to.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for which what a hook said is waited for once it has ended: a process that it left may keep the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(1);

/// A command to run, and what it is told.
#[derive(Debug)]
pub(super) struct Hook<'a> {
    /// `before` or `after`.
    pub(super) name: &'static str,
    pub(super) command: &'a str,
    /// Variables, without those of this process that are ours: tokens and keys are among them.
    pub(super) variables: &'a [(&'static str, String)],
    pub(super) timeout: Duration,
}

impl Hook<'_> {
    /// Runs it to its end.
    ///
    /// # Errors
    /// In words: it could not be started, failed, took longer than `timeout`, or `cancel` ended it.
    pub(super) async fn run(&self, cancel: &Cancel) -> Result<(), String> {
        let Self { name, timeout, .. } = self;
        let started =
            self.start().map_err(|error| format!("the hook {name:?} could not be started: {error}"))?;
        let Started { group, mut ended, output } = started;
        let why = tokio::select! {
            biased;
            status = &mut ended => {
                let said = tokio::time::timeout(OUTPUT_TIMEOUT, output).await;
                return self.outcome(status, &said.ok().and_then(Result::ok).unwrap_or_default());
            }
            () = cancel.cancelled() => cancel.error().to_string(),
            () = tokio::time::sleep(*timeout) => format!("it took longer than {}", humantime::format_duration(*timeout)),
        };
        end(group, Signal::TERM);
        let in_time = tokio::time::timeout(END_TIMEOUT, &mut ended).await;
        // Also what it left: the group is there as long as any of its processes.
        end(group, Signal::KILL);
        if in_time.is_err() {
            drop(ended.await);
        }
        Err(format!("the hook {name:?} was ended: {why}"))
    }

    fn outcome(
        &self,
        status: Result<io::Result<ExitStatus>, oneshot::error::RecvError>,
        said: &str,
    ) -> Result<(), String> {
        let name = self.name;
        let status = status.map_err(io::Error::other).flatten();
        let status = status.map_err(|error| format!("the hook {name:?} cannot be waited for: {error}"))?;
        let colon = if said.is_empty() { "" } else { ": " };
        if !status.success() {
            return Err(format!("the hook {name:?} failed ({status}){colon}{said}"));
        }
        tracing::debug!(hook = name, said, "hook done");
        Ok(())
    }

    fn start(&self) -> io::Result<Started> {
        let (reader, writer) = io::pipe()?;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(self.command).process_group(0).stdin(Stdio::null());
        command.stdout(writer.try_clone()?).stderr(writer);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"HOLDFAST_") {
                command.env_remove(name);
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        let mut child = command.spawn()?;
        // Its ends of the pipe are the child's alone.
        drop(command);
        let group = Pid::from_child(&child);
        let (tell_ended, ended) = oneshot::channel();
        let (tell_output, output) = oneshot::channel();
        let waits = std::thread::Builder::new().name("hook".to_owned());
        waits.spawn(move || drop(tell_ended.send(child.wait())))?;
        std::thread::Builder::new()
            .name("hook output".to_owned())
            .spawn(move || drop(tell_output.send(tail(reader))))?;
        Ok(Started { group, ended, output })
    }
}

struct Started {
    group: Pid,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    output: oneshot::Receiver<String>,
}

/// Signals a process group; one that is gone needs none.
fn end(group: Pid, signal: Signal) {
    if let Err(error) = kill_process_group(group, signal) {
        tracing::debug!(%error, "the process group of a hook is gone");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(command: &str, timeout: Duration, cancel: &Cancel) -> Result<(), String> {
        let variables = [("HOLDFAST_VM", "web".to_owned())];
        Hook { name: "before", command, variables: &variables, timeout }.run(cancel).await
    }

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn what_a_hook_says_is_in_the_error() {
        let never = Cancel::never();
        assert_eq!(run("test \"$HOLDFAST_VM\" = web", LONG, &never).await, Ok(()));
        let failed = run("echo first; echo no snapshot >&2; exit 7", LONG, &never).await.unwrap_err();
        assert!(failed.contains("exit status: 7") && failed.contains("no snapshot"), "{failed}");
        // A process that it leaves keeps the pipe open, and holds up nothing.
        assert_eq!(run("sleep 3600 & echo $! >/dev/null", LONG, &never).await, Ok(()));
    }

    #[tokio::test]
    async fn a_hook_ends_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pid");
        let command = format!(
            "trap '' TERM; sleep 3600 & echo $! > {0}.new; mv {0}.new {0}; wait; wait",
            file.display()
        );
        let (canceller, cancel) = Cancel::pair();
        let ended = async {
            while !file.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            canceller.cancel_because("the agent was stopped");
        };
        let (outcome, ()) = tokio::join!(run(&command, LONG, &cancel), ended);
        assert!(outcome.unwrap_err().contains("the agent was stopped"));
        let left: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let left = Pid::from_raw(left).unwrap();
        // A zombie until whoever adopted it looks: it runs no more.
        while let Ok(state) = std::fs::read_to_string(format!("/proc/{}/stat", left.as_raw_pid())) {
            if state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let late = run("sleep 3600", Duration::from_millis(50), &Cancel::never()).await.unwrap_err();
        assert!(late.contains("took longer than 50ms"), "{late}");
    }
}
