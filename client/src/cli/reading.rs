//! Reading disks back, and saying how it went: what `restore` and `verify` have in common.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::details::bytes;
use holdfast_proto::v1::BackupInfo;
use serde_json::{Value, json};

use super::Context;
use super::output::{Output, rate, seconds};
use crate::error::{ClientError, EXIT_PARTLY};
use crate::restore::target::Target;
use crate::restore::{DiskOfBackup, ReadSummary, Reader};
use crate::stages::peak_memory_bytes;

/// A disk and what became of it.
pub(super) struct Outcome {
    pub(super) disk: String,
    pub(super) place: Option<PathBuf>,
    pub(super) result: Result<ReadSummary, ClientError>,
}

/// A disk to read, and where to write it; `None` when it is no path.
pub(super) struct Task {
    pub(super) disk: DiskOfBackup,
    pub(super) place: Option<PathBuf>,
}

/// The disks of a backup.
///
/// # Errors
/// [`ClientError::Protocol`] when it has none: reading nothing must not pass for reading a backup.
pub(super) fn disks(backup: &BackupInfo) -> Result<Vec<DiskOfBackup>, ClientError> {
    if backup.disks.is_empty() {
        return Err(ClientError::Protocol(format!("backup {} has no disks", backup.id)));
    }
    let disks = backup.disks.iter().map(|disk| DiskOfBackup {
        backup_id: backup.id.clone(),
        disk: disk.name.clone(),
        size_bytes: disk.size_bytes,
    });
    Ok(disks.collect())
}

/// Reads disk after disk. One that fails does not keep the others from being read, unless the user ended the
/// command or the connection is gone for good.
pub(super) async fn read_all(
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

/// Says how it went. `done` is the verb of the sentences; with `to_stdout` these go to stderr.
pub(super) fn finish(
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
    // One disk was asked for and failed: that is simply the command's failure.
    let outcomes = match <[Outcome; 1]>::try_from(outcomes) {
        Ok([Outcome { result: Err(error), .. }]) => return Err(error),
        Ok(one) => Vec::from(one),
        Err(several) => several,
    };
    let code = exit_code(&outcomes, failed);
    if !backup.missing_disks.is_empty() {
        let missing = backup.missing_disks.join(", ");
        output.note(&format!(
            "holdfast: restore point {} is partial: disk {missing} could not be read when it was made",
            backup.id
        ));
    }
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

/// Damage comes first; otherwise, if some disks succeeded and some failed, it is *partly*.
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
        "{done} disk {} of {} ({}){place}: {} of data on a disk of {} in {}, {}; every fingerprint matched.",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_without_disks_is_no_success() {
        let empty = BackupInfo { id: "01A".into(), ..BackupInfo::default() };
        assert!(disks(&empty).unwrap_err().to_string().contains("01A"));
    }
}
