//! `holdfast-server tier`: what lies in the bucket, and what waits.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdfast_engine::clock::{Clock as _, SystemClock};
use holdfast_proto::ErrorCode;
use holdfast_tiers::{Holder, KindTotals, Record};
use serde_json::{Value, json};

use super::fail::Failure;
use super::out;
use super::{DataFolder, no_repository};
use crate::repository::{is_repository, moved, published, record_error, record_path};

pub(super) const EXAMPLES: &str = "\
Example:
  holdfast-server tier status --data-dir /srv/holdfast";

#[derive(Debug, Subcommand)]
pub(super) enum TierCommand {
    /// Show what lies in the bucket, how far it is behind, and the requests made (also while the server is running)
    #[command(after_help = EXAMPLES)]
    Status(StatusArgs),
    /// Write to the bucket from here, in place of another server that is gone for good
    ///
    /// A bucket has one writer. A second server, such as one that was recovered, reads from there and copies nothing until this
    /// is said; the first one stops writing when it looks next. A running server does it within a minute.
    #[command(after_help = TAKE_OVER_EXAMPLES)]
    TakeOver(TakeOverArgs),
}

const TAKE_OVER_EXAMPLES: &str = "\
Example:
  holdfast-server tier take-over --from backup1:/var/lib/holdfast   (the name that 'tier status' shows)";

#[derive(Debug, Args)]
pub(super) struct TakeOverArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// The server that is gone, as 'tier status' names it: no other one is replaced
    #[arg(long, value_name = "NAME")]
    from: String,
}

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(command: &TierCommand) -> Result<ExitCode, Failure> {
    match command {
        TierCommand::Status(args) => status(args),
        TierCommand::TakeOver(args) => take_over(args),
    }
}

/// The record of a data folder.
fn open(folder: &DataFolder) -> Result<Record, Failure> {
    let settings = folder.resolve()?.settings;
    let path = record_path(&settings.data_dir);
    if !is_repository(&settings.data_dir) {
        return Err(no_repository(&settings.data_dir));
    }
    if !path.exists() {
        return Err(Failure::new(
            ErrorCode::NotFound,
            format!("no bucket has copies of {}: set s3, then start the server", settings.data_dir.display()),
        ));
    }
    Ok(Record::open(&path).map_err(record_error)?)
}

fn take_over(args: &TakeOverArgs) -> Result<ExitCode, Failure> {
    let record = open(&args.folder)?;
    let location = record.location().map_err(record_error)?;
    let writer = record.other_writer().map_err(record_error)?;
    let writer = writer.ok_or_else(|| {
        let text = format!(
            "no other server is known to write to {location}: start this one, and it does, or 'holdfast-server tier status' says \
             who is in the way"
        );
        Failure::new(ErrorCode::NotFound, text)
    })?;
    if writer.name != args.from {
        let text = format!("{writer} writes to {location}, not {:?}: nothing was changed", args.from);
        return Err(Failure::new(ErrorCode::Invalid, text));
    }
    record.take_over().map_err(record_error)?;
    out::say(format_args!(
        "the server here takes {location} over from {writer} within a minute, or when it is started. Should that one still run, \
         it stops writing there, and its backups are not copied any more"
    ));
    Ok(ExitCode::SUCCESS)
}

fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let record = open(&args.folder)?;
    let (totals, removals) =
        (record.totals().map_err(record_error)?, record.removals_count().map_err(record_error)?);
    let location = record.location().map_err(record_error)?;
    let said = published(&record).map_err(record_error)?;
    let writer = record.other_writer().map_err(record_error)?;
    let moved = moved(&args.folder.resolve()?.settings.data_dir)?;
    if args.json {
        let mut all = as_json(&location, &totals, removals, said, writer.as_ref());
        if let Some(all) = all.as_object_mut() {
            all.insert("moved_containers".to_owned(), moved.into());
        }
        out::say(all);
    } else {
        show(&location, &totals, removals, said);
        if moved > 0 {
            out::say(format_args!("{moved} containers lie there alone, but for their directories"));
        }
        if let Some(writer) = writer {
            out::say(format_args!("another server writes there: {writer}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(
    location: &str,
    totals: &[KindTotals],
    removals: u64,
    said: Option<(Value, Option<i64>)>,
    writer: Option<&Holder>,
) -> Value {
    let kinds: Vec<Value> = totals
        .iter()
        .map(|kind| json!({ "kind": kind.folder, "blobs": kind.blobs, "bytes": kind.bytes }))
        .collect();
    let (said, at_ms) = said.map_or((Value::Null, None), |(said, at)| (said, at));
    json!({
        "type": "summary",
        "location": location,
        "copied": kinds,
        "removals": removals,
        "other_writer": writer.map(|writer| &writer.name),
        "server": said,
        "server_at_ms": at_ms,
    })
}

fn show(location: &str, totals: &[KindTotals], removals: u64, said: Option<(Value, Option<i64>)>) {
    out::say(format_args!("copies in {location}"));
    for kind in totals {
        out::say(format_args!("  {:<12} {:>10} blobs {:>16} bytes", kind.folder, kind.blobs, kind.bytes));
    }
    if removals > 0 {
        out::say(format_args!("to be removed from there: {removals} blobs"));
    }
    let Some((said, at_ms)) = said else {
        out::say("no server has copied anything yet");
        return;
    };
    let number = |key: &str| said.get(key).and_then(Value::as_u64).unwrap_or(0);
    if said.get("comparing").and_then(Value::as_bool) == Some(true) {
        out::say("being compared with the data folder: more may wait than is known");
    }
    match (number("waiting_blobs"), said.get("copied_up_to_ms").and_then(Value::as_i64)) {
        (0, None) => out::say("up to date"),
        (blobs, since) => {
            let behind = since.map_or(0, |since| SystemClock.now_ms().saturating_sub(since).max(0) / 1000);
            out::say(format_args!(
                "waiting: {blobs} blobs, {} bytes; {behind} s behind",
                number("waiting_bytes")
            ));
        }
    }
    if let Some(failure) = said.get("failure").and_then(Value::as_str) {
        out::say(format_args!("failing: {failure}"));
    }
    for name in said.get("unreadable").and_then(Value::as_array).into_iter().flatten() {
        out::say(format_args!(
            "cannot be read here, so it is not copied: {}",
            name.as_str().unwrap_or_default()
        ));
    }
    if let Some(requests) = said.get("requests").and_then(Value::as_object) {
        let requests: Vec<String> = requests.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        out::say(format_args!("requests since the server started: {}", requests.join(", ")));
    }
    if let Some(at_ms) = at_ms {
        out::say(format_args!("as of {}", holdfast_engine::clock::utc_text(at_ms)));
    }
}
