//! `holdfast-server rebuild-index`. Needs exclusive access to the repository.

use std::process::ExitCode;

use clap::Args;
use holdfast_engine::Engine;
use holdfast_proto::ErrorCode;
use serde_json::json;

use super::DataFolder;
use super::fail::Failure;
use super::out;
use super::progress::Ticker;

#[derive(Debug, Args)]
pub(super) struct RebuildArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &RebuildArgs) -> Result<ExitCode, Failure> {
    let progress = Ticker::new();
    let engine = Engine::assemble_rebuilding_index(args.folder.parts()?, &progress);
    progress.end();
    let engine = engine?;
    engine.shutdown()?;
    let opened = engine.opened();
    let (indexed, damaged) = (opened.replayed_containers, opened.damaged_containers);
    if args.json {
        out::say(json!({ "type": "summary", "containers": indexed, "damaged_containers": damaged }));
    } else {
        out::say(format_args!("the index was rebuilt from {indexed} containers"));
        if damaged > 0 {
            out::say(format_args!(
                "{damaged} containers are damaged; 'holdfast-server check' says which backups that affects"
            ));
        }
    }
    Ok(if damaged == 0 { ExitCode::SUCCESS } else { ExitCode::from(ErrorCode::Damaged.exit_code()) })
}
