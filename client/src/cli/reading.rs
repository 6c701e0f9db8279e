//! Reading disks back, and saying how it went: what `restore` and `verify` have in common.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::api::Backup;
use holdfast_proto::details::bytes;
use serde_json::{Value, json};

use super::Context;
use super::output::{Output, rate, seconds};
use crate::error::{ClientError, EXIT_PARTLY};
use crate::restore::target::Target;
use crate::restore::{BadRange, DiskOfBackup, ReadSummary, Reader, Salvage};
use crate::stages::peak_memory_bytes;

/// A disk and what became of it.
pub(super) struct Outcome {
    pub(super) disk: String,
    pub(super) place: Option<PathBuf>,
    /// The map of bad ranges, if there are any.
    pub(super) map: Option<PathBuf>,
    pub(super) result: Result<ReadSummary, ClientError>,
}

/// A disk to read, and where to write it; `None` when it is no path.
pub(super) struct Task {
    pub(super) disk: DiskOfBackup,
    pub(super) place: Option<PathBuf>,
    pub(super) salvage: Salvage,
}

/// The disks of a backup.
///
/// # Errors
/// [`ClientError::Protocol`] when it has none: reading nothing must not pass for reading a backup.
pub(super) fn disks(backup: &Backup) -> Result<Vec<DiskOfBackup>, ClientError> {
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
    reader: &Reader,
    tasks: Vec<Task>,
    target: impl Fn(&Task) -> Result<Arc<dyn Target>, ClientError> + Send + Sync + 'static,
) -> Result<Vec<Outcome>, ClientError> {
    let mut outcomes = Vec::new();
    let mut before_bytes = 0;
    let target = Arc::new(target);
    for task in tasks {
        tracing::info!(backup = task.disk.backup_id, disk = task.disk.disk, "reading a disk back");
        let (task, opened) = open(&target, task).await?;
        let result = match opened {
            Ok(target) => {
                reader.read_disk(&task.disk, target, &task.salvage, before_bytes, &context.cancel).await
            }
            Err(error) => Err(error),
        };
        match &result {
            Ok(read) if !read.bad.is_empty() => {
                tracing::error!(
                    disk = task.disk.disk,
                    ranges = read.bad.len(),
                    "ranges of the disk cannot be read"
                );
            }
            Ok(read) => tracing::info!(data_bytes = read.data_bytes, "all data verified"),
            Err(error) => tracing::info!(%error, "reading the disk back failed"),
        }
        match result {
            Err(error) if error.is_interrupted() || error.is_connection_loss() => {
                return Err(error);
            }
            result => outcomes.push(Outcome {
                disk: task.disk.disk,
                place: task.place,
                map: task.salvage.map,
                result,
            }),
        }
        before_bytes += task.disk.size_bytes;
    }
    Ok(outcomes)
}

/// Opens the target of a disk on a thread that may block: QEMU may have to start, or a server to be reached.
async fn open<F>(
    target: &Arc<F>,
    task: Task,
) -> Result<(Task, Result<Arc<dyn Target>, ClientError>), ClientError>
where
    F: Fn(&Task) -> Result<Arc<dyn Target>, ClientError> + Send + Sync + 'static,
{
    let target = Arc::clone(target);
    let work = move || {
        let opened = target(&task);
        (task, opened)
    };
    let cut_short = ClientError::Internal("opening the target was cut short");
    tokio::task::spawn_blocking(work).await.map_err(|_| cut_short)
}

/// A command that reads disks back, as its last words name it.
pub(super) struct Words<'a> {
    /// The verb of the sentences.
    pub(super) done: &'a str,
    /// The sentence about a disk of which nothing is bad.
    pub(super) proof: &'a str,
    /// Disks that were asked for and that the restore point does not have: without them the command is only partly done.
    pub(super) lacking: &'a [String],
    /// The sentences go to stderr.
    pub(super) to_stdout: bool,
}

/// Says how it went.
pub(super) fn finish(
    output: Output,
    words: &Words<'_>,
    backup: &Backup,
    reader: &Reader,
    outcomes: Vec<Outcome>,
    begun: Instant,
) -> Result<ExitCode, ClientError> {
    let &Words { lacking, to_stdout, .. } = words;
    let took = begun.elapsed().as_secs_f64();
    let failed = outcomes.iter().filter(|outcome| !outcome.is_whole()).count();
    // One disk was asked for and failed: that is simply the command's failure.
    let outcomes = match <[Outcome; 1]>::try_from(outcomes) {
        Ok([Outcome { result: Err(error), .. }]) => return Err(error),
        Ok(one) => Vec::from(one),
        Err(several) => several,
    };
    let code = exit_code(&outcomes, failed, lacking);
    if failed > 0 {
        tracing::error!(exit_code = code, disks = failed, "not everything could be read");
    }
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
        for line in bad_lines(outcome) {
            output.note(&format!("holdfast: {line}"));
        }
    }
    let text = || {
        let sentences = outcomes.iter().filter_map(|outcome| sentence(words, backup, outcome));
        sentences.chain(sum(words, backup, &outcomes, took)).collect::<Vec<_>>().join("\n")
    };
    if to_stdout {
        output.note(&text());
    } else {
        let summary = || {
            json!({
                "ok": code == 0,
                "backup": backup.id,
                "missing_disks": backup.missing_disks,
                "vm": backup.vm,
                "seconds": took,
                "disks": outcomes.iter().map(outcome_json).collect::<Vec<_>>(),
                "data_bytes": data_bytes(&outcomes),
                "stages": reader.stages(),
                "peak_memory_bytes": peak_memory_bytes(),
            })
        };
        output.summary(summary, text)?;
    }
    Ok(ExitCode::from(code))
}

/// Damage comes first; otherwise, if some disks succeeded and some failed or are lacking, it is *partly*.
fn exit_code(outcomes: &[Outcome], failed: usize, lacking: &[String]) -> u8 {
    let damaged = holdfast_proto::ErrorCode::Damaged.exit_code();
    let codes = outcomes.iter().filter(|outcome| !outcome.is_whole());
    let codes = codes.map(|outcome| outcome.result.as_ref().map_or_else(ClientError::exit_code, |_| damaged));
    let mut codes: Vec<u8> = codes.collect();
    codes.sort_by_key(|code| *code != damaged);
    match codes.first() {
        None if lacking.is_empty() => 0,
        None => EXIT_PARTLY,
        Some(code) if *code == damaged || failed == outcomes.len() => *code,
        Some(_) => EXIT_PARTLY,
    }
}

fn sentence(&Words { done, proof, .. }: &Words<'_>, backup: &Backup, outcome: &Outcome) -> Option<String> {
    let summary = outcome.result.as_ref().ok()?;
    let place = outcome.place.as_ref().map(|path| format!(" to {}", path.display())).unwrap_or_default();
    let verdict = bad_text(outcome).unwrap_or_else(|| proof.to_owned());
    Some(format!(
        "{done} disk {} of {} ({}){place}: {} of data on a disk of {} in {}, {}; {verdict}.",
        outcome.disk,
        backup.vm,
        backup.id,
        bytes(summary.data_bytes),
        bytes(summary.size_bytes),
        seconds(summary.seconds),
        rate(summary.data_bytes, summary.seconds)
    ))
}

/// Bytes of data of all disks that could be read.
fn data_bytes(outcomes: &[Outcome]) -> u64 {
    outcomes.iter().filter_map(|outcome| outcome.result.as_ref().ok()).map(|read| read.data_bytes).sum()
}

/// The sentence about several disks together, with those that are not whole; `None` for one disk.
fn sum(
    &Words { done, lacking, .. }: &Words<'_>,
    backup: &Backup,
    outcomes: &[Outcome],
    took: f64,
) -> Option<String> {
    let count = outcomes.len() + lacking.len();
    let failed = outcomes.iter().filter(|outcome| !outcome.is_whole()).map(|outcome| outcome.disk.as_str());
    let missing: Vec<&str> = failed.chain(lacking.iter().map(String::as_str)).collect();
    let without =
        if missing.is_empty() { String::new() } else { format!("; not whole: {}", missing.join(", ")) };
    (count > 1).then(|| {
        format!(
            "{done} {} of {count} disks of {} ({}): {} of data in {}{without}.",
            count - missing.len(),
            backup.vm,
            backup.id,
            bytes(data_bytes(outcomes)),
            seconds(took)
        )
    })
}

/// Bad ranges named on a terminal, and in a summary; the map has all of them.
const BAD_LINES_MAX: usize = 20;
const BAD_JSON_MAX: usize = 10_000;

impl Outcome {
    fn is_whole(&self) -> bool {
        self.result.as_ref().is_ok_and(|summary| summary.bad.is_empty())
    }

    /// Returns true if damage ended the reading of it.
    pub(super) fn ended_by_damage(&self) -> bool {
        let damaged = holdfast_proto::ErrorCode::Damaged.exit_code();
        self.result.as_ref().is_err_and(|error| error.exit_code() == damaged)
    }
}

fn bad_bytes(summary: &ReadSummary) -> u64 {
    summary.bad.iter().map(|range| range.len).sum()
}

/// Describes how much of a disk is damaged, in one sentence; `None` when nothing is.
pub(super) fn bad_text(outcome: &Outcome) -> Option<String> {
    let summary = outcome.result.as_ref().ok().filter(|summary| !summary.bad.is_empty())?;
    let (count, total) = (summary.bad.len(), bytes(bad_bytes(summary)));
    let ranges = if count == 1 { "range" } else { "ranges" };
    let map = outcome.map.as_ref().map(|path| format!("; {} says where", path.display())).unwrap_or_default();
    Some(format!(
        "disk {:?} is damaged: {count} {ranges} of together {total} cannot be read{map}",
        outcome.disk
    ))
}

/// One line a bad range, as far as that is readable.
fn bad_lines(outcome: &Outcome) -> Vec<String> {
    let Ok(summary) = &outcome.result else { return Vec::new() };
    let line = |range: &BadRange| {
        let BadRange { offset, len, reason, container } = range;
        let container = if container.is_empty() { String::new() } else { format!("container {container}: ") };
        format!("disk {}: {len} bytes at {offset} cannot be read: {container}{reason}", outcome.disk)
    };
    let mut lines: Vec<String> = summary.bad.iter().take(BAD_LINES_MAX).map(line).collect();
    if let Some(more) = summary.bad.len().checked_sub(BAD_LINES_MAX).filter(|more| *more > 0) {
        lines.push(format!("disk {}: and {more} more", outcome.disk));
    }
    lines
}

fn bad_json(range: &BadRange) -> Value {
    json!({
        "offset": range.offset,
        "length": range.len,
        "reason": &*range.reason,
        "container": &*range.container,
    })
}

fn outcome_json(outcome: &Outcome) -> Value {
    match &outcome.result {
        Ok(summary) => json!({
            "disk": outcome.disk,
            "to": outcome.place,
            "ok": summary.bad.is_empty(),
            "bad_ranges": summary.bad.len(),
            "bad_bytes": bad_bytes(summary),
            "bad": summary.bad.iter().take(BAD_JSON_MAX).map(bad_json).collect::<Vec<_>>(),
            "bad_map": outcome.map.as_ref().filter(|_| !summary.bad.is_empty()),
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

    fn read(disk: &str) -> Outcome {
        let result = Ok(ReadSummary {
            size_bytes: 1,
            data_bytes: 1,
            seconds: 1.0,
            bad: Vec::new(),
            false_chunks: Vec::new(),
            false_digests: Default::default(),
        });
        Outcome { disk: disk.to_owned(), place: None, map: None, result }
    }

    #[test]
    fn all_disks_of_a_restore_point_that_lacks_one_are_not_all_disks() {
        let lacking = ["data".to_owned()];
        assert_eq!(exit_code(&[read("root")], 0, &lacking), EXIT_PARTLY);
        assert_eq!(exit_code(&[read("root")], 0, &[]), 0, "or that disk was not asked for");
        let damaged = Outcome {
            result: Err(ClientError::Damaged { disk: "swap".into(), what: "rot".into() }),
            ..read("swap")
        };
        assert_eq!(exit_code(&[read("root"), damaged], 1, &lacking), 5);
    }

    #[test]
    fn a_backup_without_disks_is_no_success() {
        let empty = Backup { id: "01A".into(), ..Backup::default() };
        assert!(disks(&empty).unwrap_err().to_string().contains("01A"));
    }
}
