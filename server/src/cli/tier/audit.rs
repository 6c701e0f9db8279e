//! `holdfast-server tier audit`, and what `tier status` says of audits.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use holdfast_engine::clock::{Clock, SystemClock, utc_text};
use holdfast_engine::{Engine, Progress as _};
use holdfast_proto::ErrorCode;
use holdfast_tiers::{Flaw, Record};
use holdfast_volume::BlobName;
use serde_json::{Value, json};

use super::super::fail::Failure;
use super::super::out;
use super::super::progress::Ticker;
use super::super::{DataFolder, no_repository};
use crate::repository::{
    AuditPlace, AuditReport, AuditSteering, Beside, audit, is_repository, open_with_all, record_error,
    want_audit,
};

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  holdfast-server tier audit
  holdfast-server tier audit --json --data-dir /srv/holdfast

Exits with 5 when something lies nowhere else any more: every object is named, with the restore points that need it. What was \
put right is named, too, and is no damage.";

/// Objects named by `tier status`.
const FLAWS_SHOWN: u32 = 50;

#[derive(Debug, Args)]
pub(in crate::cli) struct AuditArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &AuditArgs) -> Result<ExitCode, Failure> {
    let settings = args.folder.resolve()?.settings;
    if !is_repository(&settings.data_dir) {
        return Err(no_repository(&settings.data_dir));
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (parts, Beside { tiers, .. }) = match open_with_all(&settings, &clock) {
        Err(error) if error.code == ErrorCode::Busy => return ask(args),
        opened => opened?,
    };
    let Some(tiers) = tiers else {
        let text =
            format!("no bucket has copies of {}: set s3, then start the server", settings.data_dir.display());
        return Err(Failure::new(ErrorCode::NotFound, text));
    };
    let engine = Engine::assemble(parts)?;
    let mut told = Told { ticker: Ticker::new(), lines: Vec::new() };
    let place = AuditPlace::default();
    let audited = audit(&engine, &tiers, place, clock.now_ms(), &mut told);
    told.ticker.end();
    let report = audited?.ok_or_else(|| Failure::new(ErrorCode::Internal, "it was stopped"))?;
    // Blobs found missing are copied again now, not by the next server.
    let settled = if report.figures.copied_again > 0 { tiers.settle() } else { Ok(()) };
    engine.shutdown()?;
    show(args, &report, &told.lines);
    if let Err(error) = settled {
        return Err(Failure::new(
            ErrorCode::Unavailable,
            format!("not all was copied again yet; the next server goes on: {error}"),
        ));
    }
    Ok(report.code().map_or(ExitCode::SUCCESS, |code| ExitCode::from(code.exit_code())))
}

/// A server is running: it does it.
fn ask(args: &AuditArgs) -> Result<ExitCode, Failure> {
    let record = super::open(&args.folder)?;
    want_audit(&record, "holdfast-server tier audit").map_err(record_error)?;
    if args.json {
        out::say(json!({ "type": "summary", "asked": true }));
    } else {
        out::say(
            "the running server begins the audit within a minute: its log, 'holdfast-server tier status' and the web page of its \
             tasks say what it finds",
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &AuditArgs, report: &AuditReport, lines: &[String]) {
    if args.json {
        out::say(json!({
            "type": "summary",
            "sound": report.code().is_none(),
            "verdict": report.verdict,
            "figures": report.figures,
            "lost_restore_points": report.lost.restore_points,
            "lost_bytes": report.lost.bytes,
            "lines": lines,
        }));
    } else {
        lines.iter().for_each(out::say);
    }
}

struct Told {
    ticker: Ticker,
    lines: Vec<String>,
}

impl AuditSteering for Told {
    fn go_on(&mut self, _: u64) -> bool {
        true
    }

    fn progress(&mut self, done: u64, total: u64) {
        self.ticker.step("objects", done, total);
    }

    fn say(&mut self, line: String) {
        self.lines.push(line);
    }

    fn at(&mut self, _: &AuditPlace) {}
}

/// Objects with flaws that were not repaired: their number, and the first of them.
pub(super) struct Flaws {
    count: u64,
    first: Vec<(BlobName, Flaw, i64)>,
}

pub(super) fn flaws(record: &Record) -> Result<Flaws, Failure> {
    let (count, first) = (record.flaws_count(), record.flaws(FLAWS_SHOWN));
    Ok(Flaws { count: count.map_err(record_error)?, first: first.map_err(record_error)? })
}

impl Flaws {
    pub(super) fn as_json(&self) -> Value {
        let first: Vec<Value> = self
            .first
            .iter()
            .map(|(name, flaw, found_ms)| {
                json!({ "name": name.as_str(), "what": flaw.text(), "lost": flaw.is_loss(), "found_ms": found_ms })
            })
            .collect();
        json!({ "count": self.count, "first": first })
    }

    pub(super) fn show(&self) {
        if self.count == 0 {
            return;
        }
        out::say(format_args!("objects there that are not as they should be: {}", self.count));
        for (name, flaw, found_ms) in &self.first {
            out::say(format_args!("  {name}: {} (found {})", flaw.text(), utc_text(*found_ms)));
        }
    }
}

/// The last audit.
pub(super) fn show_last(audit: &Value) {
    let at = audit.get("at_ms").and_then(Value::as_i64).map_or_else(String::new, utc_text);
    let verdict = audit.get("verdict").and_then(Value::as_str).unwrap_or_default();
    out::say(format_args!("last audit, begun {at}: {verdict}"));
}
