//! The `holdfast` command: arguments in, text and exit codes out. The only place that talks to people.

mod agent;
mod args;
mod ask;
mod backup;
mod boot;
mod delete;
mod disk_args;
mod display;
mod estimate;
mod export;
mod files;
mod forget;
mod guestfish;
mod list;
mod lock;
mod log;
mod login;
mod namespace_key;
mod output;
mod policy;
mod readable;
mod reading;
mod reclaim;
mod report;
mod restore;
mod retention_args;
mod signals;
mod task;
mod thaw;
mod thaw_args;
mod units;
mod verify;
mod verify_all;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser as _};
use holdfast_keys::SecretBytes;
use tracing::Instrument as _;

use crate::cancel::Cancel;
use crate::connect::layers::Layers;
use crate::connect::profile::{self, Layer};
use crate::connect::{Connection, RequestId, Settings, open_retrying};
use crate::end_to_end::Cipher;
use crate::error::ClientError;
use crate::progress::Notice;
use args::{Cli, Command, Global};
use output::Output;

/// Context of every command.
struct Context {
    output: Output,
    /// Flags and environment, without the profile.
    given: Layers,
    /// Path of the profile, whether or not it exists.
    profile: Option<std::path::PathBuf>,
    /// The profile that a flag names.
    named_profile: Option<std::path::PathBuf>,
    /// Identifies this command in its own log and the server's.
    request: RequestId,
    cancel: Cancel,
}

impl Context {
    fn new(global: &Global, cancel: Cancel) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self {
            output: Output::new(global),
            given: Layers(vec![global.layer(), Layer::from_env(variable)]),
            profile: global.profile.clone().or_else(|| profile::default_path(variable)),
            named_profile: global.profile.clone(),
            request: RequestId::random(),
            cancel,
        }
    }

    /// Flags, environment and profile.
    fn layers(&self) -> Result<Layers, ClientError> {
        let mut layers = self.given.clone();
        if let Some(path) = &self.profile {
            layers.0.push(Layer::load(path)?);
        }
        Ok(layers)
    }

    /// Returns how chunks are named and protected: by the key of the namespace, if one is given.
    fn cipher(&self) -> Result<Cipher, ClientError> {
        let layers = self.layers()?;
        let source = layers.namespace_key()?;
        source.map_or(Ok(Cipher::Plain), |source| source.cipher(&|| Self::key_passphrase(&layers)))
    }

    /// Returns the passphrase of a wrapped key, and asks for it if it is not configured.
    fn key_passphrase(layers: &Layers) -> Result<SecretBytes, ClientError> {
        layers.namespace_key_passphrase()?.map_or_else(ask::ask_passphrase, Ok)
    }

    /// Returns the settings to reach the server with, from these layers.
    fn settings(&self, layers: &Layers) -> Result<Settings, ClientError> {
        Ok(Settings { request: self.request.clone(), ..layers.settings()? })
    }

    /// A connection, what it was made with, and the namespace.
    async fn connect(&self) -> Result<(Settings, Connection, String), ClientError> {
        self.connect_within(Duration::ZERO).await
    }

    /// Connects as `connect` does, trying for as long as `retry_for`.
    async fn connect_within(
        &self,
        retry_for: Duration,
    ) -> Result<(Settings, Connection, String), ClientError> {
        let layers = self.layers()?;
        let settings = self.settings(&layers)?;
        let tell = |notice: &Notice| self.output.note(&notice.to_string());
        let connection = tokio::select! {
            biased;
            () = self.cancel.cancelled() => return Err(ClientError::Interrupted),
            connection = open_retrying(&settings, retry_for, tell) => connection?,
        };
        Ok((settings, connection, layers.namespace()))
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    cli.global.log.start(cli.command.is_service());
    let output = Output::new(&cli.global);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = without_panic(|| runtime.block_on(run(cli)));
            // A thread may be in a read that never returns: do not wait for it.
            runtime.shutdown_background();
            outcome
        }
        Err(_) => Err(ClientError::Internal("the threads of this process could not be started")),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            output.failure(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

/// A panic is a defect, and its message has been shown. It still ends the command with a documented exit code.
fn without_panic<T>(work: impl FnOnce() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let panicked = Err(ClientError::Internal("the command panicked"));
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(panicked)
}

async fn run(cli: Cli) -> Result<ExitCode, ClientError> {
    if let Command::Completions(completions) = &cli.command {
        let mut script = Vec::new();
        clap_complete::generate(completions.shell, &mut Cli::command(), "holdfast", &mut script);
        Output::plain().text(&String::from_utf8_lossy(&script))?;
        return Ok(ExitCode::SUCCESS);
    }
    let context = Context::new(&cli.global, signals::interruptible(!cli.command.is_service())?);
    let span = tracing::info_span!("command", request = %context.request);
    command(&context, cli.command).instrument(span).await
}

async fn command(context: &Context, command: Command) -> Result<ExitCode, ClientError> {
    match command {
        Command::Login(login) => login::run(context, &login).await,
        Command::Agent(agent) => agent::run(context, &agent).await,
        Command::Backup(backup) => backup::run(context, &backup).await,
        Command::List(list) => list::run(context, &list).await,
        Command::Restore(restore) => restore::run(context, &restore).await,
        Command::Export(export) => export::run(context, &export).await,
        Command::Boot(boot) => boot::run(context, &boot).await,
        Command::Files(files) => files::run(context, &files).await,
        Command::Verify(verify) if verify.all => verify_all::run(context, &verify).await,
        Command::Verify(verify) => verify::run(context, &verify).await,
        Command::Report(report) => report::run(context, report).await,
        Command::Delete(delete) => delete::run(context, &delete).await,
        Command::Forget(forget) => forget::run(context, &forget).await,
        Command::Reclaim(reclaim) => reclaim::run(context, &reclaim).await,
        Command::Scrub(scrub) => task::run_scrub(context, &scrub).await,
        Command::Lock(lock) => lock::lock(context, &lock).await,
        Command::Hold(hold) => lock::hold(context, &hold).await,
        Command::Policy(policy) => policy::run(context, &policy).await,
        Command::Estimate(estimate) => estimate::run(context, estimate).await,
        Command::NamespaceKey(asked) => namespace_key::run(context, &asked),
        Command::Completions(_) => Ok(ExitCode::SUCCESS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_with_a_documented_exit_code() {
        let outcome = without_panic(|| -> Result<(), ClientError> { panic!("a defect") });
        assert_eq!(outcome.unwrap_err().exit_code(), 1);
    }
}
