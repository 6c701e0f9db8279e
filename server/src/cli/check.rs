//! `holdfast-server check`. Needs exclusive access to the repository.

use std::process::ExitCode;

use clap::Args;
use holdfast_engine::catalog::{AgentsProofs, DamagedDisk};
use holdfast_engine::{
    CheckOptions, CheckReport, Engine, EngineError, OnLoss, OpenSummary, Problem, Repaired,
};
use holdfast_proto::ErrorCode;
use holdfast_proto::when::timestamp;
use serde_json::{Value, json};

use super::DataFolder;
use super::fail::Failure;
use super::out;
use super::progress::Ticker;
use super::token::who;
use crate::insight::{agents_sentence, lost_text};

pub(super) const EXAMPLES: &str = "\
Examples:
  holdfast-server check
  holdfast-server check --read-data --json
  holdfast-server check --repair --data-dir /srv/holdfast

Exits with 5 when damage is found: every damaged container is named, and every disk that needs what is lost, with the bytes of it that cannot be restored. What \
later backups have healed is named, too, and is no damage any more. \
Back up every VM again, and what still exists at the source is stored again.";

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Also read, decompress and hash every chunk (takes as long as reading the whole repository)
    #[arg(long)]
    read_data: bool,
    /// Record missing containers as lost however many they are, and take over a volume that holds none: only
    /// after making sure that every file system is mounted and every file put back. With names of damaged points: give up
    /// these instead, whatever they locked
    #[arg(long, value_name = "POINT", num_args = 0..)]
    accept_loss: Option<Vec<String>>,
    /// Write what can still be read of containers whose header, directory or footer is damaged into new ones, so that
    /// restores rely on sound copies again. A damaged file is removed once everything in it has a sound copy, and kept otherwise
    #[arg(long)]
    repair: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let mut parts = args.folder.parts()?;
    let given_up = args.accept_loss.as_deref().unwrap_or_default();
    if args.accept_loss.is_some() && given_up.is_empty() {
        parts.options.on_loss = OnLoss::Accept;
    }
    let engine = Engine::assemble(parts)?;
    let progress = Ticker::new();
    let audited = engine.audit(&progress)?;
    engine.write_points()?;
    engine.give_up_points(given_up, &who())?;
    let options = CheckOptions { read_data: args.read_data };
    let checked = check(&engine, options, args.repair, &progress);
    progress.end();
    let Checked { report, repaired, dropped, lost } = checked?;
    let agents = engine.catalog().agents_proof_summaries()?;
    engine.shutdown()?;
    if args.json {
        let mut summary = check_json(&report, &[*engine.opened(), audited], &repaired, dropped);
        if let Value::Object(fields) = &mut summary {
            fields.insert("given_up_points".to_owned(), json!(given_up));
            fields.insert("lost".to_owned(), lost.iter().map(lost_json).collect());
            fields.insert("proved_only_by_agents".to_owned(), agents.iter().map(agents_json).collect());
        }
        out::say(summary);
    } else {
        given_up.iter().for_each(|name| out::say(format_args!("{name}: given up")));
        repaired.iter().for_each(show_repaired);
        if dropped > 0 {
            out::say(format_args!("missing containers that no restore point needs, forgotten: {dropped}"));
        }
        lost.iter().for_each(|disk| out::say(format_args!("{}", lost_text(disk))));
        show(&report, args.read_data);
        agents.iter().for_each(|found| out::say(format_args!("{}", agents_sentence(found))));
    }
    Ok(report.code().map_or(ExitCode::SUCCESS, |code| ExitCode::from(code.exit_code())))
}

/// Result of a check: problems, repairs, and the dropped rows of missing containers.
struct Checked {
    report: CheckReport,
    repaired: Vec<Repaired>,
    dropped: u64,
    /// Disks with data that cannot be restored; the first so many.
    lost: Vec<DamagedDisk>,
}

/// Checks the repository; after a repair, if one was asked for and needed, checks again.
fn check(
    engine: &Engine,
    options: CheckOptions,
    repair: bool,
    progress: &Ticker,
) -> Result<Checked, EngineError> {
    let report = engine.check(options, progress)?;
    if !repair || (report.is_sound() && report.healed.is_empty()) {
        let lost = engine.name_damage(LOST_MAX)?;
        return Ok(Checked { report, repaired: Vec::new(), dropped: 0, lost });
    }
    let repaired = engine.repair(progress)?;
    let dropped = engine.drop_lost_rows(progress)?.dropped;
    let report = engine.check(options, progress)?;
    let lost = engine.name_damage(LOST_MAX)?;
    Ok(Checked { report, repaired, dropped, lost })
}

fn show(report: &CheckReport, read_data: bool) {
    for problem in &report.problems {
        out::say(format_args!("{}: {}", problem.object, problem.what));
    }
    if report.further_problems > 0 {
        out::say(format_args!("and {} more problems", report.further_problems));
    }
    for healed in &report.healed {
        out::say(format_args!(
            "{}: {}; healed: every restore point is whole without it. The file, if it is there, is kept: what else is in \
             it is in use",
            healed.object, healed.what
        ));
    }
    if report.further_healed > 0 {
        out::say(format_args!("and {} more that are healed", report.further_healed));
    }
    let CheckReport { containers, container_bytes, backups, points, disks, extents, chunks, .. } = report;
    out::say(format_args!(
        "checked {containers} containers ({container_bytes} bytes), {backups} backups ({disks} disks, {extents} \
         extents, {chunks} chunk references) and {points} points"
    ));
    if report.cold_containers > 0 && read_data {
        out::say(format_args!(
            "{} containers lie in an archive: what is in them was not read",
            report.cold_containers
        ));
    }
    match (report.code(), read_data) {
        (None, true) => out::say("no damage found"),
        (None, false) => out::say("no damage found; use --read-data to read every chunk as well"),
        (Some(ErrorCode::Unsupported), _) => {
            out::say(
                "parts of the repository were written by a newer version of Holdfast; run the check with that version",
            );
        }
        (Some(_), _) => out::say(
            "damage found. Damaged chunks are not used for new backups: back up every VM again, and chunks that \
             still exist at the source are stored again",
        ),
    }
}

/// Disks that lack something shown at most.
const LOST_MAX: u32 = 1000;

fn lost_json(disk: &DamagedDisk) -> Value {
    let ranges: Vec<Value> =
        disk.lost.listed.iter().map(|range| json!({ "start": range.start, "bytes": range.bytes })).collect();
    json!({
        "backup": disk.backup.to_string(),
        "namespace": disk.namespace_name,
        "vm": disk.vm,
        "disk": disk.disk,
        "started": timestamp(disk.started_ms),
        "bytes": disk.lost.bytes,
        "ranges": disk.lost.ranges,
        "listed": ranges,
    })
}

/// Verifications by agents in an end-to-end encrypted namespace, as JSON: a check does not prove its content.
fn agents_json(found: &AgentsProofs) -> Value {
    json!({
        "namespace": found.name,
        "vms": found.vms,
        "never_verified": found.never,
        "oldest_verification": found.oldest_ms.map(timestamp),
    })
}

fn show_repaired(repaired: &Repaired) {
    let Repaired { container, chunks, rewritten, into, complete } = repaired;
    let into: Vec<String> = into.iter().map(ToString::to_string).collect();
    let into = if into.is_empty() { String::new() } else { format!(" into container {}", into.join(", ")) };
    let file = if *complete {
        "all of it has sound copies now, and the damaged file was removed"
    } else {
        "not all of it could be read, so the damaged file is kept"
    };
    out::say(format_args!(
        "container {container}: {chunks} chunks could be read, {rewritten} of them were written{into}; {file}"
    ));
}

/// `found`: what opening and the audit found.
fn check_json(report: &CheckReport, found: &[OpenSummary], repaired: &[Repaired], dropped: u64) -> Value {
    let repaired: Vec<Value> = repaired
        .iter()
        .map(|one| {
            json!({
                "container": one.container.to_string(),
                "chunks": one.chunks,
                "rewritten_chunks": one.rewritten,
                "into": one.into.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "complete": one.complete,
            })
        })
        .collect();
    let sum = |count: fn(&OpenSummary) -> u64| found.iter().map(count).sum::<u64>();
    let list = |all: &[Problem]| -> Vec<Value> {
        all.iter()
            .map(|one| json!({ "object": one.object, "what": one.what, "code": one.code.as_str() }))
            .collect()
    };
    json!({
        "type": "summary",
        "sound": report.is_sound(),
        "containers": report.containers,
        "container_bytes": report.container_bytes,
        "cold_containers": report.cold_containers,
        "adopted_containers": sum(|found| found.adopted_containers),
        "replayed_containers": sum(|found| found.replayed_containers),
        "backups": report.backups,
        "points": report.points,
        "entered_points": sum(|found| found.entered_points),
        "unreadable_points": sum(|found| found.unreadable_points),
        "missing_points": sum(|found| found.missing_points),
        "disks": report.disks,
        "extents": report.extents,
        "chunks": report.chunks,
        "problems": list(&report.problems),
        "further_problems": report.further_problems,
        "healed": list(&report.healed),
        "further_healed": report.further_healed,
        "dropped_containers": dropped,
        "repaired": repaired,
    })
}
