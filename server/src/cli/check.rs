//! `holdfast-server check` and `holdfast-server rebuild-index`. Both need exclusive access to the repository.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_engine::check::{CheckOptions, CheckReport};
use holdfast_engine::clock::{Clock, SystemClock};
use holdfast_engine::{Engine, EngineOptions, OpenSummary, Progress};
use holdfast_proto::ErrorCode;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::DataFolder;
use super::fail::Failure;
use super::out;
use super::token::no_repository;
use crate::process::logging;
use crate::server::{engine_options, is_repository};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Also read, decompress and hash every chunk (takes as long as reading the whole repository)
    #[arg(long)]
    read_data: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct RebuildArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let engine = Engine::open(options(&args.folder)?)?;
    let progress = Ticker::new();
    let report = engine.check(CheckOptions { read_data: args.read_data }, &progress);
    progress.end();
    let report = report?;
    engine.shutdown()?;
    let opened = engine.opened();
    if args.json {
        out::say(check_json(&report, opened));
    } else {
        show(&report, args.read_data);
    }
    Ok(report.code().map_or(ExitCode::SUCCESS, |code| ExitCode::from(code.exit_code())))
}

pub(super) fn rebuild(args: &RebuildArgs) -> Result<ExitCode, Failure> {
    let progress = Ticker::new();
    let engine = Engine::open_rebuilding_index(options(&args.folder)?, &progress);
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

/// Refuses to create a repository where there is none.
fn options(folder: &DataFolder) -> Result<EngineOptions, Failure> {
    let settings = folder.resolve()?.settings;
    logging::start(&settings);
    if !is_repository(&settings.data_dir) {
        return Err(no_repository(&settings.data_dir));
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    Ok(engine_options(&settings, &clock))
}

fn show(report: &CheckReport, read_data: bool) {
    for problem in &report.problems {
        out::say(format_args!("{}: {}", problem.object, problem.what));
    }
    if report.further_problems > 0 {
        out::say(format_args!("and {} more problems", report.further_problems));
    }
    let CheckReport { containers, container_bytes, backups, disks, extents, chunks, .. } = report;
    out::say(format_args!(
        "checked {containers} containers ({container_bytes} bytes) and {backups} backups \
         ({disks} disks, {extents} extents, {chunks} chunk references)"
    ));
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

fn check_json(report: &CheckReport, opened: &OpenSummary) -> Value {
    let problems: Vec<Value> = report
        .problems
        .iter()
        .map(|problem| json!({ "object": problem.object, "what": problem.what, "code": problem.code.as_str() }))
        .collect();
    json!({
        "type": "summary",
        "sound": report.is_sound(),
        "containers": report.containers,
        "container_bytes": report.container_bytes,
        "adopted_containers": opened.adopted_containers,
        "replayed_containers": opened.replayed_containers,
        "backups": report.backups,
        "disks": report.disks,
        "extents": report.extents,
        "chunks": report.chunks,
        "problems": problems,
        "further_problems": report.further_problems,
    })
}

/// Shows progress on standard error: one line rewritten on a terminal, a line every few seconds in a log.
struct Ticker {
    terminal: bool,
    shown: Mutex<Option<(Instant, &'static str)>>,
}

impl Ticker {
    fn new() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: Mutex::new(None) }
    }

    /// Ends the line that was rewritten.
    fn end(&self) {
        if self.terminal && self.shown.lock().is_some() {
            out::note("");
        }
    }
}

impl Progress for Ticker {
    fn step(&self, phase: &'static str, done: u64, total: u64) {
        let every = Duration::from_millis(if self.terminal { 200 } else { 10_000 });
        let mut shown = self.shown.lock();
        if shown.is_some_and(|(at, last)| last == phase && at.elapsed() < every) {
            return;
        }
        *shown = Some((Instant::now(), phase));
        if self.terminal {
            let mut terminal = io::stderr().lock();
            // A terminal that went away is not a failure.
            let _ = write!(terminal, "\r{phase}: {done} of {total}\x1b[K").and_then(|()| terminal.flush());
        } else {
            out::note(format_args!("{phase}: {done} of {total}"));
        }
    }
}
