//! `holdfast restore` and `holdfast verify`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::details::bytes;
use holdfast_proto::v1::BackupInfo;
use serde_json::{Value, json};

use super::args::{Reading, Restore, Verify};
use super::display::Display;
use super::output::{rate, seconds};
use super::{Context, output::Output};
use crate::error::{ClientError, EXIT_PARTLY};
use crate::repository::{Found, get_backup, record_verification};
use crate::restore::target::{NullTarget, PipeTarget, Target, open};
use crate::restore::{DiskOfBackup, ReadSummary, Reader};
use crate::stages::peak_memory_bytes;

/// A disk and what became of it.
struct Outcome {
    disk: String,
    place: Option<PathBuf>,
    result: Result<ReadSummary, ClientError>,
}

/// What to do with one disk.
struct Task {
    disk: DiskOfBackup,
    place: Option<PathBuf>,
}

pub(super) async fn run(context: &Context, restore: &Restore) -> Result<ExitCode, ClientError> {
    let to_stdout = restore.to == Path::new("-");
    if to_stdout && context.output.json {
        return Err(ClientError::Usage("with --to -, stdout is the disk: leave out --json".to_owned()));
    }
    let (settings, connection, namespace) = context.connect().await?;
    let backup = get_backup(&connection, &namespace, &restore.backup, &restore.vm).await?;
    let tasks = choose(&backup, restore)?;
    let display = Display::start(context.output, tasks.iter().map(|task| task.disk.size_bytes).sum());
    let Reading { threads, retry_for } = restore.reading;
    let mut reader = Reader::new(settings, connection, display.tally(), threads, retry_for)?;
    let begun = Instant::now();
    let target = |task: &Task| -> Result<Arc<dyn Target>, ClientError> {
        match &task.place {
            None => Ok(Arc::new(PipeTarget::new(std::io::stdout()))),
            Some(path) => open(path, task.disk.size_bytes, restore.force, !restore.no_sync).map(Arc::from),
        }
    };
    let outcomes = read_all(context, &mut reader, tasks, target).await?;
    drop(display);
    finish(context.output, "Restored", &backup, &reader, outcomes, begun, to_stdout)
}

pub(super) async fn verify(context: &Context, verify: &Verify) -> Result<ExitCode, ClientError> {
    let (settings, connection, namespace) = context.connect().await?;
    let backup = get_backup(&connection, &namespace, &verify.backup, &verify.vm).await?;
    let tasks: Vec<Task> = disks(&backup).map(|disk| Task { disk, place: None }).collect();
    let display = Display::start(context.output, tasks.iter().map(|task| task.disk.size_bytes).sum());
    let Reading { threads, retry_for } = verify.reading;
    let mut reader = Reader::new(settings, connection.clone(), display.tally(), threads, retry_for)?;
    let begun = Instant::now();
    let outcomes = read_all(context, &mut reader, tasks, |_| Ok(Arc::new(NullTarget))).await?;
    drop(display);
    if let Some(found) = found(&outcomes)
        && let Err(error) = record_verification(&connection, &backup, &found).await
    {
        context.output.note(&format!("holdfast: the server could not note what was found: {error}"));
    }
    finish(context.output, "Verified", &backup, &reader, outcomes, begun, false)
}

/// What a verification came to: everything sound, or damage. Nothing when disks could not be read for another
/// reason, which says nothing about them.
fn found(outcomes: &[Outcome]) -> Option<Found> {
    let read = outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok());
    let bytes = read.map(|summary| summary.data_bytes).sum();
    let failures = || outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err());
    let damage: Vec<String> = failures().filter(|error| error.is_damage()).map(ToString::to_string).collect();
    if damage.is_empty() && failures().next().is_some() {
        return None;
    }
    Some(Found { ok: damage.is_empty(), detail: damage.join("; "), bytes })
}

fn disks(backup: &BackupInfo) -> impl Iterator<Item = DiskOfBackup> {
    backup.disks.iter().map(|disk| DiskOfBackup {
        backup_id: backup.id.clone(),
        disk: disk.name.clone(),
        size_bytes: disk.size_bytes,
    })
}

fn usage(text: String) -> ClientError {
    ClientError::Usage(text)
}

/// Which disks go where.
fn choose(backup: &BackupInfo, restore: &Restore) -> Result<Vec<Task>, ClientError> {
    let names = || backup.disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(name) = &restore.disk
        && !backup.disks.iter().any(|disk| disk.name == *name)
    {
        return Err(usage(format!("backup {} has no disk {name:?}; it has {}", backup.id, names())));
    }
    let chosen: Vec<_> =
        disks(backup).filter(|disk| restore.disk.as_ref().is_none_or(|name| *name == disk.disk)).collect();
    let folder = restore.to.is_dir();
    if chosen.len() != 1 && !folder {
        return Err(usage(format!(
            "backup {} has several disks ({}): name one with --disk, or give an existing folder with --to",
            backup.id,
            names()
        )));
    }
    let to_stdout = restore.to == Path::new("-");
    let place = |disk: &DiskOfBackup| {
        if to_stdout {
            Ok(None)
        } else if !folder {
            Ok(Some(restore.to.clone()))
        } else if disk.disk.contains('/') || disk.disk.starts_with('.') {
            Err(usage(format!(
                "disk {:?} cannot be a file's name: restore it with --disk and --to FILE",
                disk.disk
            )))
        } else {
            Ok(Some(restore.to.join(format!("{}.raw", disk.disk))))
        }
    };
    let tasks = chosen.into_iter().map(|disk| Ok(Task { place: place(&disk)?, disk }));
    let tasks = tasks.collect::<Result<Vec<_>, ClientError>>()?;
    for path in tasks.iter().filter_map(|task| task.place.as_ref()) {
        if !restore.force && path.exists() {
            return Err(ClientError::Exists(path.clone()));
        }
    }
    Ok(tasks)
}

/// Reads disk after disk; a disk that fails does not keep the others from being read, unless the user ended
/// it or the connection is gone for good.
async fn read_all(
    context: &Context,
    reader: &mut Reader,
    tasks: Vec<Task>,
    target: impl Fn(&Task) -> Result<Arc<dyn Target>, ClientError>,
) -> Result<Vec<Outcome>, ClientError> {
    let mut outcomes = Vec::new();
    let mut before_bytes = 0;
    for task in tasks {
        tracing::info!(backup = task.disk.backup_id, disk = task.disk.disk, "reading a disk back");
        let result = match target(&task) {
            Ok(target) => reader.read_disk(&task.disk, target, before_bytes, &context.cancel).await,
            Err(error) => Err(error),
        };
        match &result {
            Ok(read) => tracing::info!(data_bytes = read.data_bytes, "every fingerprint matched"),
            Err(error) => tracing::info!(%error, "reading the disk back failed"),
        }
        match result {
            Err(error) if matches!(error, ClientError::Interrupted) || error.is_connection_loss() => {
                return Err(error);
            }
            result => outcomes.push(Outcome { disk: task.disk.disk, place: task.place, result }),
        }
        before_bytes += task.disk.size_bytes;
    }
    Ok(outcomes)
}

fn finish(
    output: Output,
    done: &str,
    backup: &BackupInfo,
    reader: &Reader,
    outcomes: Vec<Outcome>,
    begun: Instant,
    to_stdout: bool,
) -> Result<ExitCode, ClientError> {
    let took = begun.elapsed().as_secs_f64();
    let failed = outcomes.iter().filter(|outcome| outcome.result.is_err()).count();
    // One disk asked for and failed: that is simply the command's failure.
    if outcomes.len() == 1
        && let Some(Outcome { result: Err(_), .. }) = outcomes.first()
    {
        return outcomes
            .into_iter()
            .find_map(|outcome| outcome.result.err())
            .map_or(Ok(ExitCode::SUCCESS), Err);
    }
    let code = exit_code(&outcomes, failed);
    for outcome in &outcomes {
        if let Err(error) = &outcome.result {
            output.note(&format!("holdfast: disk {}: {error}", outcome.disk));
        }
    }
    let text = || outcomes.iter().filter_map(|o| sentence(done, backup, o)).collect::<Vec<_>>().join("\n");
    if to_stdout {
        output.note(&text());
    } else {
        let summary = || {
            json!({
                "ok": failed == 0,
                "backup": backup.id,
                "vm": backup.vm,
                "seconds": took,
                "disks": outcomes.iter().map(outcome_json).collect::<Vec<_>>(),
                "stages": reader.stages(),
                "peak_memory_bytes": peak_memory_bytes(),
            })
        };
        output.summary(summary, text)?;
    }
    Ok(ExitCode::from(code))
}

/// Damage counts most; otherwise something done and something failed is *partly*.
fn exit_code(outcomes: &[Outcome], failed: usize) -> u8 {
    let codes =
        outcomes.iter().filter_map(|outcome| outcome.result.as_ref().err()).map(ClientError::exit_code);
    let damaged = holdfast_proto::ErrorCode::Damaged.exit_code();
    let mut codes: Vec<u8> = codes.collect();
    codes.sort_by_key(|code| *code != damaged);
    match codes.first() {
        None => 0,
        Some(code) if *code == damaged || failed == outcomes.len() => *code,
        Some(_) => EXIT_PARTLY,
    }
}

fn sentence(done: &str, backup: &BackupInfo, outcome: &Outcome) -> Option<String> {
    let summary = outcome.result.as_ref().ok()?;
    let place = outcome.place.as_ref().map(|path| format!(" to {}", path.display())).unwrap_or_default();
    Some(format!(
        "{done} disk {} of {} ({}){place}: {} of data in {} of disk, {}, {}; every fingerprint matched.",
        outcome.disk,
        backup.vm,
        backup.id,
        bytes(summary.data_bytes),
        bytes(summary.size_bytes),
        seconds(summary.seconds),
        rate(summary.data_bytes, summary.seconds)
    ))
}

fn outcome_json(outcome: &Outcome) -> Value {
    match &outcome.result {
        Ok(summary) => json!({
            "disk": outcome.disk,
            "to": outcome.place,
            "ok": true,
            "size_bytes": summary.size_bytes,
            "data_bytes": summary.data_bytes,
            "seconds": summary.seconds,
        }),
        Err(error) => {
            json!({ "disk": outcome.disk, "to": outcome.place, "ok": false, "error": error.to_string() })
        }
    }
}
