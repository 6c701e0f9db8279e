//! `holdfast-server recover`: a working data folder of nothing but a volume.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use holdfast_engine::clock::{Clock, SystemClock, utc_text};
use holdfast_engine::ids::RepositoryId;
use holdfast_engine::{DroppedRows, Engine, OnLoss, OpenSummary};
use holdfast_proto::ErrorCode;
use serde_json::{Value, json};

use super::fail::Failure;
use super::out;
use super::progress::Ticker;
use super::{DataFolder, PACKAGED_CONFIG, config_file};
use crate::config::{Resolved, Settings};
use crate::process;
use crate::repository::recover::{Needed, Recovered, Recovery, set_aside};
use crate::repository::{Beside, Brought, Requests, open_with_all};
use crate::server::{FIRST_TOKEN_FILE, create_recovery_token};

pub(super) const EXAMPLES: &str = "\
Examples:
  holdfast-server recover --from /var/lib/holdfast/blobs          (in place: the catalog is lost)
  holdfast-server recover --from /mnt/disk/blobs --data-dir /srv/holdfast
  holdfast-server recover --from /mnt/disk/blobs --snapshot /mnt/elsewhere/holdfast
  holdfast-server recover --from /mnt/disk/blobs --kit kit.txt                (encrypted, the key file is lost)
  holdfast-server recover --from s3://bucket/prefix --kit kit.txt --data-dir /srv/holdfast   (the machine is lost)

The volume stays where it is: a data folder elsewhere gets a link to it. Of a bucket, restore points, recipes and keys are
copied; data is read from there, with the settings that name it (s3, s3_endpoint and so on), which the server needs, too: they
are put into the file that --config names, or printed. Containers that a folder lacks are looked for in the bucket that the
settings name. Afterwards, start the server, look at the tokens
('holdfast-server token list') and enable those that are still wanted ('holdfast-server token enable NAME').";

#[derive(Debug, Args)]
pub(super) struct RecoverArgs {
    #[command(flatten)]
    folder: DataFolder,
    /// The volume: the folder blobs of the lost server, or the bucket with its copies
    #[arg(long, value_name = "FOLDER|s3://BUCKET/PREFIX")]
    from: PathBuf,
    /// Use this backup of the server instead of the volume's own snapshots: a folder written by 'holdfast-server
    /// snapshot', or a snapshot file
    #[arg(long, value_name = "FILE|FOLDER")]
    snapshot: Option<PathBuf>,
    /// Open an encrypted volume with this recovery kit, the page or just its words; a new key file is made
    #[arg(long, value_name = "FILE")]
    kit: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Everything that the command reports.
struct Outcome {
    repository: RepositoryId,
    data_dir: PathBuf,
    recovered: Recovered,
    token: String,
    dropped: DroppedRows,
    opened: OpenSummary,
    audited: OpenSummary,
    bucket: Option<(Brought, Requests, Duration)>,
    missing: Option<(String, u64)>,
    needed: Option<Needed>,
}

pub(super) fn run(args: &RecoverArgs) -> Result<ExitCode, Failure> {
    let mut resolved = args.folder.resolve()?;
    let settings = &mut resolved.settings;
    process::start_logging(settings);
    if let Some(location) = args.from.to_str().filter(|from| from.starts_with("s3://")) {
        settings.s3 = Some(location.to_owned());
        // Plain or encrypted was decided when the copies were made.
        settings.s3_plain = true;
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let outcome = recover(args, &resolved, &clock)?;
    if args.json {
        out::say(as_json(&outcome));
    } else {
        show(&outcome);
    }
    let lost = outcome.recovered.points.problem_count() > 0
        || outcome.damaged() > 0
        || outcome.without_key() + outcome.unreadable() > 0;
    Ok(if lost { ExitCode::from(ErrorCode::Damaged.exit_code()) } else { ExitCode::SUCCESS })
}

fn recover(args: &RecoverArgs, resolved: &Resolved, clock: &Arc<dyn Clock>) -> Result<Outcome, Failure> {
    let settings = &resolved.settings;
    let progress = Ticker::new();
    let begun = Instant::now();
    let recovery = if args.from.to_str().is_some_and(|from| from.starts_with("s3://")) {
        Recovery::begin_from_bucket(settings, args.kit.as_deref(), clock)?
    } else {
        Recovery::begin(&args.from, settings, args.kit.as_deref(), clock)?
    };
    let (brought, missing) = (recovery.brought.clone(), recovery.missing.clone());
    let repository = recovery.repository;
    let (catalog, recovered) = recovery.catalog(clock, args.snapshot.as_deref(), &progress)?;
    let path = settings.data_dir.join(FIRST_TOKEN_FILE);
    // The file of a token that is disabled now; its text is nowhere else.
    set_aside(&path)?;
    let token = create_recovery_token(&catalog, &**clock, &path)?;
    recovery.finish(catalog)?;
    let (dropped, dropping) = drop_lost_rows(settings, clock, &progress)?;
    // From here on any start would do the same.
    let (parts, Beside { tiers, encryption }) = open_with_all(settings, clock)?;
    // (S13) As soon as it is known what the server needs.
    let bucket = settings.s3.as_deref().filter(|_| brought.is_some() || missing.is_some());
    // A recovery into a folder of its own, such as a drill, is not that of the packaged server; a file that was named is meant.
    let is_elsewhere = args.folder.data_dir.is_some();
    let found = || config_file(None).filter(|file| !is_elsewhere || file != Path::new(PACKAGED_CONFIG));
    let config = args.folder.config.clone().or_else(found);
    let needed = bucket.map(|bucket| Needed::keep(resolved, bucket, encryption.is_none(), config.as_deref()));
    let engine = Engine::assemble(parts)?;
    let audited = engine.audit(&progress)?;
    engine.write_points()?;
    let opened = *engine.opened();
    engine.shutdown()?;
    progress.end();
    let data_dir = settings.data_dir.clone();
    let bucket = brought.map(|brought| {
        let opening = tiers.map(|tiers| tiers.requests()).unwrap_or_default();
        let requests = brought.requests.and(dropping).and(opening);
        (brought, requests, begun.elapsed())
    });
    Ok(Outcome { repository, data_dir, recovered, token, dropped, opened, audited, bucket, missing, needed })
}

/// Drops the rows of containers that were deleted after the catalog's copy was made, so that they are not taken for lost.
fn drop_lost_rows(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    progress: &Ticker,
) -> Result<(DroppedRows, Requests), Failure> {
    let (mut parts, Beside { tiers, .. }) = open_with_all(settings, clock)?;
    parts.options.on_loss = OnLoss::Hold;
    let dropped = Engine::assemble(parts)?.drop_lost_rows(progress)?;
    Ok((dropped, tiers.map(|tiers| tiers.requests()).unwrap_or_default()))
}

impl Outcome {
    fn adopted(&self) -> u64 {
        self.opened.adopted_containers + self.audited.adopted_containers
    }

    fn damaged(&self) -> u64 {
        self.opened.damaged_containers + self.audited.damaged_containers
    }

    /// Both looks meet the same ones.
    fn without_key(&self) -> u64 {
        self.opened.containers_without_key.max(self.audited.containers_without_key)
    }

    /// As [`Outcome::without_key`].
    fn unreadable(&self) -> u64 {
        self.opened.unreadable_containers.max(self.audited.unreadable_containers)
    }
}

fn show(outcome: &Outcome) {
    let Outcome { repository, data_dir, recovered, token, .. } = outcome;
    out::say(format_args!("recovered repository {repository} into {}", data_dir.display()));
    if let Some((brought, requests, took)) = &outcome.bucket {
        show_bucket(brought, requests, *took);
    }
    if let Some((location, count)) = &outcome.missing {
        out::say(format_args!(
            "containers that the volume lacks and {location} has, read from there: {count}"
        ));
    }
    for (name, why) in &recovered.unusable {
        out::say(format_args!("catalog snapshot {name} cannot be used: {why}"));
    }
    show_snapshot(recovered);
    show_points(recovered);
    let (adopted, damaged) = (outcome.adopted(), outcome.damaged());
    out::say(format_args!(
        "containers that the catalog did not know: {adopted}; newly found missing or damaged: {damaged}"
    ));
    if outcome.dropped.dropped > 0 {
        out::say(format_args!(
            "containers deleted since the catalog's copy was made, which no restore point needs; forgotten: {}",
            outcome.dropped.dropped
        ));
    }
    if damaged > 0 {
        out::say("'holdfast-server check' says which backups the damage affects");
    }
    if outcome.without_key() > 0 {
        out::say(format_args!(
            "containers skipped, because the data key they are encrypted with is not among the keys (the log names them): {}. \
             They are left over from a namespace that was destroyed; or the keys were copied before the containers, and \
             restore points in these cannot be read until a newer copy of blobs/keys is put there",
            outcome.without_key()
        ));
    }
    if outcome.unreadable() > 0 {
        out::say(format_args!(
            "containers skipped, because they cannot be read now (the log names them, and says why): {}. Nothing says that they \
             are damaged; they are looked at again while the server runs, and by each start",
            outcome.unreadable()
        ));
    }
    let folder = data_dir.display();
    if recovered.disabled_tokens > 0 {
        out::say(format_args!(
            "tokens disabled, because one of them may have been revoked since: {}; see 'holdfast-server token list \
             --data-dir {folder}', then 'holdfast-server token enable NAME --data-dir {folder}' for each that is still \
             wanted; revoked tokens stay revoked. A token that is not listed is newer than the catalog's copy: create it again, \
             with the owner of the VMs it backs up ('holdfast-server vm list')",
            recovered.disabled_tokens
        ));
    }
    if recovered.points.resting_policies > 0 {
        out::say(format_args!(
            "retention policies that rest, and delete nothing, because names and rules may have changed since: {}; see 'holdfast \
             policy list', then 'holdfast policy enable NAME' for each that is still wanted",
            recovered.points.resting_policies
        ));
    }
    let path = data_dir.join(FIRST_TOKEN_FILE);
    out::say(format_args!("new admin token {token:?} in {}", path.display()));
    if let Some(needed) = &outcome.needed {
        show_settings(needed);
    }
    let arguments = outcome.needed.as_ref().map(Needed::arguments).unwrap_or_default();
    out::say(format_args!("next, start the server: holdfast-server serve --data-dir {folder}{arguments}"));
}

fn show_settings(needed: &Needed) {
    match &needed.file {
        Some(file) => out::say(format_args!("the settings of the bucket are in {}", file.display())),
        None => {
            out::say("the server needs these settings, too; put them into its configuration file:");
            needed.lines().for_each(|line| out::say(format_args!("  {line}")));
        }
    }
}

fn show_bucket(brought: &Brought, requests: &Requests, took: Duration) {
    let fetched = &brought.fetched;
    out::say(format_args!(
        "the bucket holds {} blobs; copied from there: {} ({} bytes); data is read from there when it is needed",
        brought.blobs, fetched.blobs, fetched.bytes
    ));
    if fetched.unreadable > 0 {
        out::say(format_args!(
            "cannot be read there now (archived, or refused), so not copied: {}",
            fetched.unreadable
        ));
    }
    let by_kind: Vec<String> =
        requests.by_kind().into_iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    out::say(format_args!(
        "requests: {}; {} bytes received in {:.1} s",
        by_kind.join(", "),
        requests.received_bytes,
        took.as_secs_f64()
    ));
    if let Some(writer) = &brought.writer {
        out::say(format_args!(
            "{writer} writes to the bucket: until it is said that it is gone for good ('holdfast-server tier take-over'), this one \
             reads from there, and copies nothing"
        ));
    }
}

fn show_snapshot(recovered: &Recovered) {
    let unknown = "tokens created or revoked, quotas and owners of VMs changed, failed runs, verifications and audit entries";
    match &recovered.snapshot {
        Some((name, header)) => {
            let at = utc_text(header.created_ms);
            out::say(format_args!("catalog: snapshot {name} of {at}"));
            out::say(format_args!("not known, because it is newer than {at}: {unknown}"));
        }
        None => {
            out::say("catalog: made of the restore points alone; no catalog snapshot can be used");
            out::say(format_args!(
                "not known: every token, job's failed run, verification and audit entry ({unknown})"
            ));
        }
    }
}

fn show_points(recovered: &Recovered) {
    let points = &recovered.points;
    out::say(format_args!("restore points newer than the catalog's copy, entered: {}", points.entered_count));
    for point in &points.entered {
        out::say(format_args!(
            "  {} of {}: VM {:?}, namespace {:?}, job {:?}",
            point.backup,
            utc_text(point.started_ms),
            point.vm,
            point.namespace,
            point.job
        ));
    }
    if points.entered_count > points.entered.len() as u64 {
        out::say(format_args!("  and {} more", points.entered_count - points.entered.len() as u64));
    }
    if points.deleted_count > 0 {
        out::say(format_args!(
            "restore points of the copy that were deleted after it was made, not brought back: {}",
            points.deleted_count
        ));
    }
    for backup in &points.deleted {
        out::say(format_args!("  {backup}"));
    }
    for problem in &points.problems {
        out::say(format_args!("{}: {}", problem.object, problem.what));
    }
    if points.problem_count() > points.problems.len() as u64 {
        out::say(format_args!("and {} more points", points.problem_count() - points.problems.len() as u64));
    }
}

fn as_json(outcome: &Outcome) -> Value {
    let recovered = &outcome.recovered;
    let points = &recovered.points;
    let entered: Vec<Value> = points
        .entered
        .iter()
        .map(|point| {
            json!({
                "backup": point.backup.to_string(),
                "started": utc_text(point.started_ms),
                "vm": point.vm,
                "namespace": point.namespace,
                "job": point.job,
            })
        })
        .collect();
    let named = |object: &str, what: &str| json!({ "object": object, "what": what });
    let problems: Vec<Value> = points.problems.iter().map(|p| named(&p.object, &p.what)).collect();
    let unusable: Vec<Value> = recovered.unusable.iter().map(|(name, why)| named(name, why)).collect();
    json!({
        "type": "summary",
        "repository": outcome.repository.to_string(),
        "data_dir": outcome.data_dir.display().to_string(),
        "snapshot": recovered.snapshot.as_ref().map(|(name, _)| name),
        "snapshot_created": recovered.snapshot.as_ref().map(|(_, header)| utc_text(header.created_ms)),
        "unusable_snapshots": unusable,
        "entered_points": points.entered_count,
        "entered": entered,
        "deleted_points": points.deleted_count,
        "deleted": points.deleted.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "unreadable_points": points.problem_count(),
        "problems": problems,
        "disabled_tokens": recovered.disabled_tokens,
        "resting_policies": points.resting_policies,
        "adopted_containers": outcome.adopted(),
        "dropped_containers": outcome.dropped.dropped,
        "damaged_containers": outcome.damaged(),
        "containers_without_key": outcome.without_key(),
        "unreadable_containers": outcome.unreadable(),
        "bucket": outcome.bucket.as_ref().map(|(brought, requests, took)| json!({
            "blobs": brought.blobs,
            "copied_blobs": brought.fetched.blobs,
            "copied_bytes": brought.fetched.bytes,
            "unreadable_blobs": brought.fetched.unreadable,
            "writer": brought.writer.as_ref().map(|writer| &writer.name),
            "requests": requests.by_kind(),
            "received_bytes": requests.received_bytes,
            "seconds": took.as_secs_f64(),
        })),
        "containers_in_bucket": outcome.missing.as_ref().map(|(_, count)| count),
        "settings": outcome.needed.as_ref().map(|needed| needed.settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect::<serde_json::Map<_, _>>()),
        "settings_file": outcome.needed.as_ref().and_then(|needed| needed.file.clone()),
        "admin_token": outcome.token,
        "admin_token_file": token_file(&outcome.data_dir),
    })
}

fn token_file(data_dir: &Path) -> String {
    data_dir.join(FIRST_TOKEN_FILE).display().to_string()
}
