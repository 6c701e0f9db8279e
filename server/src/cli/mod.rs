//! The `holdfast-server` command line. The only place of the server that prints.
//!
//! Results go to standard output, everything else to standard error, so that output can be piped.

mod check;
mod completions;
mod config;
mod fail;
mod health;
mod job;
mod key;
mod namespace;
mod out;
mod progress;
mod rebuild_index;
mod recover;
mod serve;
mod snapshot;
mod tier;
mod token;
mod vm;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use holdfast_engine::EngineParts;
use holdfast_engine::clock::{Clock, SystemClock};
use holdfast_proto::ErrorCode;

use crate::config::{ENV_PREFIX, Given, Resolved, check_env, resolve};
use crate::memory::Budget;
use crate::process;
use crate::repository::{is_repository, open_parts};
use fail::Failure;

const ABOUT_SETTINGS: &str = "\
Each setting comes from the command line, or else from the environment (HOLDFAST_ and its name in capitals, such \
as HOLDFAST_LEASE_SECS), or else from the file named by --config or HOLDFAST_CONFIG, else from \
/etc/holdfast/server.toml if there is one (TOML: lease_secs = 120), or else from the defaults. Its name is the flag's, \
but for encryption (--encrypt), tls_names (--tls-name) and s3_rate_windows (--s3-rate-window). 'holdfast-server config' \
shows the settings in force and where each comes from.";

const ABOUT_HEALTH: &str = "\
What is not named here comes from the environment (HOLDFAST_ and its name in capitals) and from the configuration file, as \
for 'holdfast-server serve'.";

const EXAMPLES: &str = "\
Examples:
  holdfast-server serve --data-dir /srv/holdfast --grpc 0.0.0.0:7440
  holdfast-server token create --name hv1 --role backup --namespace berlin --owner cluster-a --vm 'web-*'
  holdfast-server vm owner web-1 cluster-b --namespace berlin
  holdfast-server namespace quota berlin --stored 2TB
  holdfast-server config --config /etc/holdfast/server.toml
  holdfast-server check --read-data
  holdfast-server snapshot --to /mnt/elsewhere/holdfast
  holdfast-server recover --from /mnt/disk/blobs --data-dir /srv/holdfast
  holdfast-server tier status

Exit codes:
  0 done                       5 stored data is damaged
  1 failed                     6 in use by another process
  2 wrong usage or settings    7 written by a newer version
  4 not authorised             8 out of space or quota, or read-only
                               9 unavailable; try again";

/// Holdfast: a deduplicating backup repository for virtual machines
#[derive(Debug, Parser)]
#[command(name = "holdfast-server", version, after_help = EXAMPLES, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    ///
    /// The first start creates the repository, a certificate and an admin token.
    #[command(after_help = ABOUT_SETTINGS)]
    Serve(AllSettings),
    /// Check whether the server on this machine is healthy (for container engines)
    ///
    /// Trusts the certificate in the data folder and no other. Exits with 0 if the server is healthy, else with 1.
    ///
    /// Example: holdfast-server health --ready --data-dir /srv/holdfast
    #[command(after_help = ABOUT_HEALTH)]
    Health(health::HealthArgs),
    /// Show the settings in force and where each comes from
    #[command(after_help = ABOUT_SETTINGS)]
    Config(AllSettings),
    /// Create, list, revoke and enable access tokens (also while the server is running)
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// List VMs with their owners, change the owner of one, remove or rename one (also while the server is running)
    #[command(subcommand)]
    Vm(vm::VmCommand),
    /// Rename a job (also while the server is running)
    #[command(subcommand)]
    Job(job::JobCommand),
    /// List namespaces, and show or change what each may take (also while the server is running)
    #[command(subcommand)]
    Namespace(namespace::NamespaceCommand),
    /// Show and change what opens an encrypted repository
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Show the copies of the repository in a bucket
    #[command(subcommand)]
    Tier(tier::TierCommand),
    /// Check the whole repository and report damage; the server must not be running
    #[command(after_help = check::EXAMPLES)]
    Check(check::CheckArgs),
    /// Discard the chunk index and rebuild it from the containers; the server must not be running
    #[command(after_help = "Example:\n  holdfast-server rebuild-index --data-dir /srv/holdfast")]
    RebuildIndex(rebuild_index::RebuildArgs),
    /// Make a working data folder of nothing but a volume (a blobs folder, or a bucket with copies of one)
    ///
    /// Takes the newest catalog snapshot that can be read, enters every restore point that is newer than it, and
    /// says what cannot be known. Tokens come back disabled; a new admin token is written to the data folder. Refuses
    /// a data folder that holds a catalog; a repository that was never used is moved to unused-repository below the folder.
    /// Running it again after a crash is fine.
    #[command(after_help = recover::EXAMPLES)]
    Recover(recover::RecoverArgs),
    /// Write a backup of the server itself (also while it is running)
    ///
    /// A copy of the catalog, the settings in force and the self-signed certificate with its key. Keep it as secret as
    /// the data folder.
    #[command(after_help = snapshot::EXAMPLES)]
    Snapshot(snapshot::SnapshotArgs),
    /// Print a shell completion script
    ///
    /// For bash: holdfast-server completions bash > /etc/bash_completion.d/holdfast-server
    Completions(completions::CompletionsArgs),
}

/// Every setting, for commands that use all of them.
#[derive(Debug, Args)]
struct AllSettings {
    /// Configuration file (TOML) [default: /etc/holdfast/server.toml if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
}

/// Where the repository is, for commands that need no more.
#[derive(Debug, Args)]
struct DataFolder {
    /// Configuration file (TOML) [default: /etc/holdfast/server.toml if there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder of the repository
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// The settings of a packaged server.
const PACKAGED_CONFIG: &str = "/etc/holdfast/server.toml";

/// The configuration file: the one that is named, or else that of a packaged server, if there is one.
fn config_file(named: Option<&Path>) -> Option<PathBuf> {
    let of_environment = || std::env::var_os(format!("{ENV_PREFIX}CONFIG")).map(PathBuf::from);
    // One that cannot be looked at is named by the error of reading it: without its settings nothing must run.
    let packaged = || Some(PathBuf::from(PACKAGED_CONFIG)).filter(|path| path.try_exists().unwrap_or(true));
    named.map(Path::to_path_buf).or_else(of_environment).or_else(packaged)
}

/// The settings in force, `given` being the flags.
fn settings(given: &Given, config: Option<&Path>) -> Result<Resolved, Failure> {
    Ok(resolve(given, config_file(config).as_deref(), &|name| std::env::var_os(name))?)
}

impl AllSettings {
    fn resolve(&self) -> Result<Resolved, Failure> {
        check_env(std::env::vars_os())?;
        settings(&self.given, self.config.as_deref())
    }
}

impl DataFolder {
    fn resolve(&self) -> Result<Resolved, Failure> {
        let given = Given::default().with("data_dir", self.data_dir.as_ref())?;
        check_env(std::env::vars_os())?;
        settings(&given, self.config.as_deref())
    }

    /// Opens the repository's parts. Starts logging.
    ///
    /// # Errors
    /// When the settings are not valid, or there is no repository: commands must not create one.
    fn parts(&self) -> Result<EngineParts, Failure> {
        let settings = self.resolve()?.settings;
        process::start_logging(&settings);
        Budget::find(&settings)?;
        if !is_repository(&settings.data_dir) {
            return Err(no_repository(&settings.data_dir));
        }
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        Ok(open_parts(&settings, &clock)?)
    }
}

/// For commands that need a repository.
fn no_repository(folder: &Path) -> Failure {
    Failure::new(
        ErrorCode::NotFound,
        format!(
            "there is no repository in {}; name its folder with --data-dir, or create one by starting \
             'holdfast-server serve'",
            folder.display()
        ),
    )
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    process::configure_allocator();
    // The catalog has token hashes, and containers have all clients' disks: no other user may read either.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    // Fails only when there is one already, which is then the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::parse();
    match run(&cli.command) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

fn run(command: &Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(settings) => serve::run(settings),
        Command::Health(args) => health::run(args),
        Command::Config(settings) => config::run(settings),
        Command::Token(command) => token::run(command),
        Command::Vm(command) => vm::run(command),
        Command::Job(command) => job::run(command),
        Command::Namespace(command) => namespace::run(command),
        Command::Key(command) => key::run(command),
        Command::Tier(command) => tier::run(command),
        Command::Check(args) => check::run(args),
        Command::RebuildIndex(args) => rebuild_index::run(args),
        Command::Recover(args) => recover::run(args),
        Command::Snapshot(args) => snapshot::run(args),
        Command::Completions(args) => completions::run(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
