//! One VM's turn: attempts until one succeeds, each with its hooks, within the entry's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_proto::ErrorCode;
use tokio::time::Instant;

use super::LayersSource;
use super::hooks::Hook;
use super::reached::Reached;
use super::settings::Vm;
use super::state::Untold;
use super::tell::Words;
use crate::backup::{self, BackupOptions, BackupSummary, UploadLimit};
use crate::cancel::Cancel;
use crate::error::ClientError;
use crate::progress::{Notice, Progress, Step};
use crate::source::open_each;

/// Time for a hook after an attempt: the entry's own may have passed.
const AFTER_TIMEOUT: Duration = Duration::from_secs(600);

/// The same once the agent stops: its unit waits 150 s for everything.
const AFTER_STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// Time for which something else may be at work on the VM: the session of an agent that died ends with its lease, which is two
/// minutes unless the server was set otherwise; the record of an attempt in moments.
const BUSY_TIMEOUT: Duration = Duration::from_secs(300);

/// Time before the server is asked again.
const BUSY_PAUSE: Duration = Duration::from_secs(5);

/// A VM to back up.
#[derive(Debug)]
pub(super) struct Turn {
    pub(super) vm: Vm,
    /// The run that all VMs join that are begun together.
    pub(super) run_id: String,
    pub(super) layers: LayersSource,
    pub(super) upload_limit: Arc<UploadLimit>,
    /// The agent's end.
    pub(super) stop: Cancel,
}

/// How a turn ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) outcome: Result<BackupSummary, ClientError>,
    /// Attempts that the server knows nothing of.
    pub(super) untold: Vec<Untold>,
    /// Why the hook after it failed.
    pub(super) after_failed: Option<String>,
}

impl Turn {
    /// Backs the VM up. Ends within seconds of the agent's stop or the end of the entry's time, but for the hook after it.
    pub(super) async fn run(&self) -> Ended {
        let (canceller, cancel) = Cancel::pair();
        let limit = self.vm.entry.rules.time_limit;
        let mut attempts = std::pin::pin!(self.attempts(&cancel));
        let why = tokio::select! {
            biased;
            ended = &mut attempts => return ended,
            () = self.stop.cancelled() => "the agent was stopped".to_owned(),
            () = tokio::time::sleep(limit) => format!("the time limit of {} has passed", humantime::format_duration(limit)),
        };
        canceller.cancel_because(why);
        attempts.await
    }

    async fn attempts(&self, cancel: &Cancel) -> Ended {
        let rules = &self.vm.entry.rules;
        let (mut left, mut untold) = (rules.retries, Vec::new());
        loop {
            let mut ended = self.attempt(cancel).await;
            untold.append(&mut ended.untold);
            let Err(error) = &ended.outcome else { return Ended { untold, ..ended } };
            if left == 0 || is_final(error) || cancel.is_cancelled() {
                return Ended { untold, ..ended };
            }
            left -= 1;
            let pause = humantime::format_duration(rules.retry_pause);
            tracing::warn!(vm = self.vm.name, %error, left, %pause, "attempt failed; trying again after a pause");
            tokio::select! {
                () = cancel.cancelled() => return Ended { untold, ..ended },
                () = tokio::time::sleep(rules.retry_pause) => {}
            }
            untold = self.tell(untold, cancel).await;
        }
    }

    /// Tells the server of failed attempts before the next, which is to be the latest there if it succeeds. Returns those that
    /// it could not be told of.
    async fn tell(&self, untold: Vec<Untold>, cancel: &Cancel) -> Vec<Untold> {
        if untold.is_empty() {
            return untold;
        }
        let words = Words { layers: self.layers.clone(), attempts: untold.clone(), report: None };
        let told = tokio::select! {
            biased;
            () = cancel.cancelled() => return untold,
            told = words.tell() => told,
        };
        match told {
            Ok(told) => untold.into_iter().filter(|attempt| !told.attempts.contains(attempt)).collect(),
            Err(error) => {
                tracing::warn!(vm = self.vm.name, %error, "the server cannot be told of an attempt yet");
                untold
            }
        }
    }

    /// One attempt, with its hooks.
    async fn attempt(&self, cancel: &Cancel) -> Ended {
        let rules = &self.vm.entry.rules;
        let begun = Arc::new(Begun::new(&self.vm.name));
        let outcome = match self.before(cancel).await {
            Ok(()) => self.back_up(cancel, &begun).await,
            Err(error) => Err(error),
        };
        let after_failed = match &rules.after {
            Some(command) => self.after(command, &outcome).await.err(),
            None => None,
        };
        // A server that went away may know nothing of the sessions that it had, and one that takes the token no more was not
        // told why they end.
        let was_told = |error: &&ClientError| {
            begun.at_server.load(Ordering::Relaxed)
                && !error.is_connection_loss()
                && !error.is_unauthenticated()
        };
        let untold = outcome.as_ref().err().filter(|error| !was_told(error)).map(|error| self.untold(error));
        Ended { outcome, untold: untold.into_iter().collect(), after_failed }
    }

    async fn before(&self, cancel: &Cancel) -> Result<(), ClientError> {
        let rules = &self.vm.entry.rules;
        let Some(command) = &rules.before else { return Ok(()) };
        let variables = self.variables();
        let hook = Hook { name: "before", command, variables: &variables, timeout: rules.time_limit };
        hook.run(cancel).await.map_err(|why| {
            if cancel.is_cancelled() { ClientError::Stopped(why) } else { ClientError::Hook(why) }
        })
    }

    async fn after(&self, command: &str, outcome: &Result<BackupSummary, ClientError>) -> Result<(), String> {
        let mut variables = self.variables();
        variables.push(("HOLDFAST_RESULT", word_of(outcome).to_owned()));
        match outcome {
            Ok(summary) => variables.push(("HOLDFAST_BACKUP", summary.backup_id.clone())),
            Err(error) => variables.push(("HOLDFAST_ERROR", error.to_string())),
        }
        let hook = Hook { name: "after", command, variables: &variables, timeout: AFTER_TIMEOUT };
        // It cleans up: neither the end of the entry's time nor the agent's keeps it from that.
        let (canceller, cancel) = Cancel::pair();
        let mut ran = std::pin::pin!(hook.run(&cancel));
        let stopped = async {
            self.stop.cancelled().await;
            tokio::time::sleep(AFTER_STOP_TIMEOUT).await;
        };
        tokio::select! {
            biased;
            ran = &mut ran => return ran,
            () = stopped => canceller.cancel_because("the agent was stopped"),
        }
        ran.await
    }

    fn variables(&self) -> Vec<(&'static str, String)> {
        let rules = &self.vm.entry.rules;
        let paths: Vec<_> = self.vm.disks.iter().map(|(disk, _)| disk.path.display().to_string()).collect();
        vec![
            ("HOLDFAST_VM", self.vm.name.clone()),
            ("HOLDFAST_JOB", rules.job.clone()),
            ("HOLDFAST_NAMESPACE", rules.namespace.clone().unwrap_or_default()),
            ("HOLDFAST_RUN", self.run_id.clone()),
            ("HOLDFAST_DISKS", paths.join("\n")),
        ]
    }

    async fn back_up(&self, cancel: &Cancel, begun: &Arc<Begun>) -> Result<BackupSummary, ClientError> {
        if let Some(problem) = &self.vm.problem {
            return Err(ClientError::Usage(problem.clone()));
        }
        let (layers, disks) = (self.layers.clone(), self.vm.disks.clone());
        let opening = tokio::task::spawn_blocking(move || {
            let reached = Reached::new(&layers)?;
            let (opened, unopened) = open_each(disks.iter().map(|(disk, opening)| (disk, *opening)))?;
            Ok::<_, ClientError>((reached, opened, unopened))
        });
        let (reached, disks, unopened) = tokio::select! {
            biased;
            // A thread may be in a call that never returns: it is left to itself.
            () = cancel.cancelled() => return Err(cancel.error()),
            opened = opening => opened.map_err(|_| ClientError::Internal("opening disks panicked"))??,
        };
        let rules = &self.vm.entry.rules;
        let namespace = rules.namespace.clone().unwrap_or_else(|| reached.namespace.clone());
        let options = BackupOptions {
            job: rules.job.clone(),
            run_id: self.run_id.clone(),
            upload_limit: Arc::clone(&self.upload_limit),
            cipher: reached.cipher.clone(),
            ..BackupOptions::new(namespace, &self.vm.name)
        };
        let asked = Instant::now();
        loop {
            let progress = Arc::clone(begun) as Arc<dyn Progress>;
            let outcome =
                backup::run(&reached.settings, &disks, unopened.clone(), &options, progress, cancel.clone())
                    .await;
            match outcome {
                // No attempt is spent on waiting, and no hook run again.
                Err(error) if error.is_busy() && asked.elapsed() < BUSY_TIMEOUT => {
                    tracing::info!(vm = self.vm.name, %error, "waiting for the VM");
                }
                outcome => return outcome,
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(cancel.error()),
                () = tokio::time::sleep(BUSY_PAUSE) => {}
            }
        }
    }

    fn untold(&self, error: &ClientError) -> Untold {
        let rules = &self.vm.entry.rules;
        let mut disks: Vec<_> = self.vm.disks.iter().map(|(disk, _)| disk.name.clone()).collect();
        if disks.is_empty() {
            disks.push("disks".to_owned());
        }
        Untold {
            namespace: rules.namespace.clone().unwrap_or_default(),
            vm: self.vm.name.clone(),
            job: rules.job.clone(),
            run: self.run_id.clone(),
            disks,
            reason: error.to_string(),
            at_ms: jiff::Timestamp::now().as_millisecond(),
        }
    }
}

/// Returns whether another attempt would end the same way: wrong settings, no rights, incompatible versions, or a stop.
fn is_final(error: &ClientError) -> bool {
    let codes = [ErrorCode::Forbidden, ErrorCode::Unauthenticated, ErrorCode::Unsupported];
    error.is_interrupted()
        || matches!(error, ClientError::Usage(_))
        || codes.iter().any(|code| code.exit_code() == error.exit_code())
}

/// The outcome of an attempt, in a word.
pub(super) fn word_of(outcome: &Result<BackupSummary, ClientError>) -> &'static str {
    match outcome {
        Ok(summary) if summary.failed_disks.is_empty() => "done",
        Ok(_) => "partly",
        Err(_) => "failed",
    }
}

/// Notes whether the server knows of an attempt, and logs what a person would be shown.
#[derive(Debug)]
struct Begun {
    vm: String,
    at_server: AtomicBool,
}

impl Begun {
    fn new(vm: &str) -> Self {
        Self { vm: vm.to_owned(), at_server: AtomicBool::new(false) }
    }
}

impl Progress for Begun {
    fn session(&self) {
        self.at_server.store(true, Ordering::Relaxed);
    }

    fn disk(&self, name: &str, _: u64) {
        tracing::info!(vm = self.vm, disk = name, "backing up");
    }

    fn advance(&self, _: Step) {}

    fn waits(&self, ahead: Option<u32>) {
        tracing::debug!(vm = self.vm, ahead, "waiting for a turn at the server");
    }

    fn notice(&self, notice: &Notice) {
        match notice {
            Notice::FirstBackup { .. } => tracing::info!(vm = self.vm, "{notice}"),
            _ => tracing::warn!(vm = self.vm, "{notice}"),
        }
    }
}
