//! `holdfast-server job`: what jobs are called. Works on the catalog directly, as `vm` does.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use holdfast_engine::catalog::{Catalog, DEFAULT_NAMESPACE};
use holdfast_engine::clock::{Clock, SystemClock};

use super::fail::Failure;
use super::token::{open, who};
use super::vm::find_namespace;
use super::{DataFolder, out};

const RENAME_EXAMPLES: &str = "\
Restore points, history and policies follow. Rename it in the agent's command as well: a backup under the old name \
begins a new job.

Examples:
  holdfast-server job rename nightly daily
  holdfast-server job rename nightly daily --namespace berlin";

#[derive(Debug, Subcommand)]
pub(super) enum JobCommand {
    /// Give a job another name
    #[command(after_help = RENAME_EXAMPLES)]
    Rename(RenameArgs),
}

#[derive(Debug, Args)]
pub(super) struct RenameArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Name of the job
    job: String,
    /// Its new name
    name: String,
    /// The job's namespace
    #[arg(long, default_value = DEFAULT_NAMESPACE)]
    namespace: String,
}

pub(super) fn run(command: &JobCommand) -> Result<ExitCode, Failure> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let JobCommand::Rename(args) = command;
    let catalog = open(&args.folder, &clock)?;
    out::note(rename(&catalog, &who(), args)?);
    Ok(ExitCode::SUCCESS)
}

fn rename(catalog: &Catalog, who: &str, args: &RenameArgs) -> Result<String, Failure> {
    let namespace = find_namespace(catalog, &args.namespace)?;
    catalog.rename_job(namespace.id, &args.job, &args.name, who)?;
    Ok(format!("job {:?} in namespace {:?} is called {:?} now", args.job, namespace.name, args.name))
}
