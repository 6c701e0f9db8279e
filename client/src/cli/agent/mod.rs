//! `holdfast agent`: what makes a machine an agent of a server, and the agent itself.

mod check;
mod join;
mod list;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::args::{Agent, AgentCommand, AgentFile, RunArgs};
use super::{Context, signals};
use crate::connect::layers::Layers;
use crate::connect::profile::{self, Layer};
use crate::error::{ClientError, EXIT_PARTLY};
use crate::service::{LayersSource, Service, Tally};

/// Name of the agent's file, beside the profile.
const FILE: &str = "agent.toml";

/// Folder of what is remembered, where systemd names no other.
const STATE_FOLDER: &str = "/var/lib/holdfast-agent";

pub(super) async fn run(context: &Context, agent: &Agent) -> Result<ExitCode, ClientError> {
    match &agent.command {
        Some(AgentCommand::Join(args)) => join::run(context, args).await,
        Some(AgentCommand::Check(args)) => check::run(context, args).await,
        Some(AgentCommand::List(_)) => list::run(context).await,
        Some(AgentCommand::Run(args)) => serve(context, args).await,
        None => serve(context, &agent.run).await,
    }
}

/// The agent's file: the one that is named, or that beside the profile.
fn file(context: &Context, args: &AgentFile) -> PathBuf {
    let profile = context.profile.as_deref().unwrap_or_else(|| Path::new(profile::OF_MACHINE));
    let of_machine = Path::new(profile::OF_MACHINE).with_file_name(FILE);
    let beside = profile.with_file_name(FILE);
    let is_used = context.named_profile.is_some() || beside.exists() || !rustix::process::geteuid().is_root();
    args.file.clone().unwrap_or(if is_used { beside } else { of_machine })
}

async fn serve(context: &Context, args: &RunArgs) -> Result<ExitCode, ClientError> {
    let (given, profile) = (context.given.clone(), context.profile.clone());
    let layers = LayersSource::new(move || {
        let profile = profile.as_deref().map(Layer::load).transpose()?;
        Ok(Layers(given.0.iter().cloned().chain(profile).collect()))
    });
    let service = Service {
        file: file(context, &args.file),
        layers,
        stop: context.cancel.clone(),
        reload: signals::hangups()?,
    };
    let Some(names) = &args.once else {
        let named = args.state.clone();
        let folder = named.or_else(|| std::env::var_os("STATE_DIRECTORY").map(PathBuf::from));
        let folder = folder.unwrap_or_else(|| PathBuf::from(STATE_FOLDER));
        service.run(&folder).await?;
        return Ok(ExitCode::SUCCESS);
    };
    let tally = service.run_once(names).await?;
    let Tally { done, partly, failed } = tally;
    context.output.summary(
        || json!({ "ok": partly + failed == 0, "done": done, "partly": partly, "failed": failed }),
        || format!("{done} VMs backed up, {partly} without some of their disks, {failed} failed; the log says more."),
    )?;
    Ok(match (done + partly, partly + failed) {
        _ if context.cancel.is_cancelled() => return Err(ClientError::Interrupted),
        (_, 0) => ExitCode::SUCCESS,
        (0, _) => ExitCode::FAILURE,
        _ => ExitCode::from(EXIT_PARTLY),
    })
}
