//! `holdfast-server tier`: what lies in the bucket, and what waits.

mod audit;
mod month;
mod retention;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use holdfast_engine::clock::{Clock as _, SystemClock};
use holdfast_proto::ErrorCode;
use holdfast_tiers::prices::{AS_OF, CLASSES, ClassPrices, INTERNET_GB, LIST, REGION};
use holdfast_tiers::{Holder, KindTotals, Record};
use serde_json::{Value, json};

use super::fail::Failure;
use super::out;
use super::{DataFolder, no_repository};
use crate::repository::{
    Asked, KeptBack, Plan, Totals, cost, is_repository, kept_back, last_audit, moved, published, read_usage,
    record_error, record_path, totals,
};

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
    /// Compare what lies in the bucket with what is known of it, and put right what can be
    ///
    /// Lists the bucket (a request for each 1,000 objects) and finds objects that are gone, cut off, replaced or in an archive,
    /// with the restore points that need them. What lies here, too, is copied again; what lies nowhere else is damage, and the
    /// next backups send it again. Beside a running server it asks that server to do it.
    #[command(after_help = audit::EXAMPLES)]
    Audit(audit::AuditArgs),
    /// Show the price list that costs are computed from
    #[command(after_help = PRICES_EXAMPLES)]
    Prices(PricesArgs),
}

const PRICES_EXAMPLES: &str = "\
Example:
  holdfast-server tier prices";

#[derive(Debug, Args)]
pub(super) struct PricesArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
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
        TierCommand::Prices(args) => {
            prices(args);
            Ok(ExitCode::SUCCESS)
        }
        TierCommand::Audit(args) => audit::run(args),
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

/// Prints what the last round of reclaim kept out of the archive.
fn show_kept_back(record: &Record) -> Result<(), Failure> {
    let kept_back = kept_back(record).map_err(record_error)?;
    if let Some(KeptBack { containers, bytes, class, minimum_days, .. }) = kept_back
        && containers > 0
    {
        out::say(format_args!(
            "kept out of the archive: {containers} containers of {bytes} bytes; what needs them will be deleted within the \
             {minimum_days} days for which {class} is paid at least"
        ));
    }
    Ok(())
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
    let removals = record.removals_count().map_err(record_error)?;
    let location = record.location().map_err(record_error)?;
    let said = published(&record).map_err(record_error)?;
    let writer = record.other_writer().map_err(record_error)?;
    let settings = args.folder.resolve()?.settings;
    let (moved, plan, now_ms) = (moved(&settings.data_dir)?, Plan::of(&settings), SystemClock.now_ms());
    let Totals { kinds, classes } = totals(&record, &plan).map_err(record_error)?;
    let mut usage = read_usage(&record).map_err(record_error)?.unwrap_or_default();
    usage.count(now_ms, Asked::default(), &classes);
    let costs = cost(&usage.month, now_ms, &plan.class);
    let flaws = audit::flaws(&record)?;
    let retention = retention::Retention::of(&record, settings.s3_object_lock, said.as_ref(), now_ms)?;
    if args.json {
        let mut all = as_json(&location, &kinds, removals, said, writer.as_ref());
        if let Some(all) = all.as_object_mut() {
            all.insert("moved_containers".to_owned(), moved.into());
            all.insert("month".to_owned(), month::as_json(&usage.month, costs.as_ref()));
            all.insert(
                "classes".to_owned(),
                classes.iter().map(|class| month::class_as_json(class, costs.as_ref())).collect(),
            );
            all.insert("retention".to_owned(), retention.as_json());
            let kept_back = kept_back(&record).map_err(record_error)?;
            all.insert("kept_back".to_owned(), json!(kept_back));
            all.insert("audit".to_owned(), last_audit(&record).map_err(record_error)?.unwrap_or_default());
            all.insert("flaws".to_owned(), flaws.as_json());
        }
        out::say(all);
    } else {
        show(&location, &kinds, removals, said);
        if moved > 0 {
            out::say(format_args!("{moved} containers lie there alone, but for their directories"));
        }
        out::say("by storage class, directories beside what is archived included:");
        for class in &classes {
            month::show_class(class, costs.as_ref());
        }
        month::show(&usage.month, costs.as_ref(), &plan);
        retention.show();
        show_kept_back(&record)?;
        flaws.show();
        if let Some(audit) = last_audit(&record).map_err(record_error)? {
            audit::show_last(&audit);
        }
        if let Some(writer) = writer {
            out::say(format_args!("another server writes there: {writer}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn prices(args: &PricesArgs) {
    if args.json {
        let classes: Vec<Value> = CLASSES.iter().map(class_as_json).collect();
        out::say(json!({ "region": REGION, "as_of": AS_OF, "list_1000": LIST.times(1000).as_f64(),
            "internet_gb": INTERNET_GB.as_f64(), "classes": classes }));
        return;
    }
    out::say(format_args!(
        "list prices of Amazon S3 in {REGION} as of {AS_OF}, in US dollars; a GB is 2^30 bytes"
    ));
    out::say(format_args!(
        "{:<14} {:>12} {:>12} {:>12} {:>12} {:>10}",
        "class", "GB a month", "1,000 PUT", "1,000 GET", "GB read", "days"
    ));
    for class in CLASSES {
        out::say(format_args!(
            "{:<14} {:>12.5} {:>12.4} {:>12.4} {:>12.4} {:>10}",
            class.class,
            class.gb_month.as_f64(),
            class.put.times(1000).as_f64(),
            class.get.times(1000).as_f64(),
            class.read_gb.as_f64(),
            class.days_min
        ));
        for thaw in class.thaws {
            out::say(format_args!(
                "  made readable {:<10} in {:>2} h: {:.4} for 1,000 requests, {:.4} a GB",
                thaw.thaw.text(),
                thaw.hours,
                thaw.request.times(1000).as_f64(),
                thaw.gb.as_f64()
            ));
        }
    }
    out::say(format_args!(
        "1,000 LIST cost {:.4}; DELETE is free; a GB to the Internet costs {:.4}. days: what is removed earlier is paid for until then",
        LIST.times(1000).as_f64(),
        INTERNET_GB.as_f64()
    ));
}

fn class_as_json(class: &ClassPrices) -> Value {
    json!({
        "class": class.class,
        "gb_month": class.gb_month.as_f64(),
        "put_1000": class.put.times(1000).as_f64(),
        "get_1000": class.get.times(1000).as_f64(),
        "read_gb": class.read_gb.as_f64(),
        "days_min": class.days_min,
        "bytes_min": class.bytes_min,
        "overhead_bytes": class.overhead_bytes,
        "standard_overhead_bytes": class.standard_overhead_bytes,
        "thaws": class.thaws.iter().map(|thaw| json!({
            "thaw": thaw.thaw.text(),
            "request_1000": thaw.request.times(1000).as_f64(),
            "gb": thaw.gb.as_f64(),
            "hours": thaw.hours,
        })).collect::<Vec<_>>(),
    })
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
    if number("thawed_containers") > 0 {
        out::say(format_args!(
            "thawed and kept here: {} containers of {} bytes",
            number("thawed_containers"),
            number("thawed_bytes")
        ));
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
