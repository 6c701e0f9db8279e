//! `holdfast restore`.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use holdfast_proto::ErrorCode;
use holdfast_proto::api::Backup;

use super::Context;
use super::args::{BadRanges, Restore};
use super::display::Display;
use super::reading::{Outcome, Task, Words, disks, finish, read_all};
use super::thaw::{self, Thawed};
use crate::error::ClientError;
use crate::repository::get_backup;
use crate::restore::target::{FileOptions, PipeTarget, Target, open};
use crate::restore::{DiskOfBackup, MAP_SUFFIX, OnDamage, Reader, Salvage, check_free};

pub(super) async fn run(context: &Context, restore: &Restore) -> Result<ExitCode, ClientError> {
    let to_stdout = restore.to == Path::new("-");
    if to_stdout && context.output.json {
        return Err(ClientError::Usage(
            "--to - writes the disk to stdout, so it cannot be combined with --json".to_owned(),
        ));
    }
    let (settings, connection, namespace) = context.connect_within(restore.reading.retry_for).await?;
    let backup = get_backup(&connection, &namespace, &restore.backup, &restore.vm).await?;
    let tasks = choose(&backup, restore)?;
    let names = tasks.iter().map(|task| task.disk.disk.clone()).collect();
    let disks = (names, restore.disk.as_deref());
    let thawing = (&restore.thawing, restore.reading.retry_for);
    if thaw::make_ready(context, &connection, &backup, disks, thawing).await? == Thawed::Started {
        return Ok(ExitCode::SUCCESS);
    }
    let display = Display::start(context.output, tasks.iter().map(|task| task.disk.size_bytes).sum());
    let options = restore.reading.options(context.cipher()?);
    let reader = Reader::new(settings, connection, display.tally(), options)?;
    let begun = Instant::now();
    let skip = restore.keep_going && restore.bad_ranges == BadRanges::Skip;
    let options =
        FileOptions { force: restore.force, sync: !restore.no_sync, mode: restore.mode, in_place: skip };
    let target = |task: &Task| -> Result<Arc<dyn Target>, ClientError> {
        match &task.place {
            None => Ok(Arc::new(PipeTarget::new(std::io::stdout()))),
            Some(path) => open(path, task.disk.size_bytes, options).map(Arc::from),
        }
    };
    let outcomes = read_all(context, &reader, tasks, target).await?;
    drop(display);
    if !restore.keep_going && outcomes.iter().any(Outcome::ended_by_damage) {
        context.output.note(
            "the restore ended at the first damaged data; with --keep-going it writes everything else, and a map of what \
             is missing",
        );
    }
    // A disk that is named is asked for alone.
    let lacking = if restore.disk.is_none() { backup.missing_disks.as_slice() } else { &[] };
    let words = Words { done: "Restored", proof: "all data verified", lacking, to_stdout };
    finish(context.output, &words, &backup, &reader, outcomes, begun)
}

fn usage(text: String) -> ClientError {
    ClientError::Usage(text)
}

/// The restore point has no disk of this name.
pub(super) fn no_disk(backup: &Backup, name: &str) -> ClientError {
    let names = disk_names(backup);
    let message = if backup.missing_disks.iter().any(|missing| missing == name) {
        format!(
            "backup {} is partial: it has {names}, but disk {name:?} could not be backed up; restore that disk from an \
             earlier backup, see 'holdfast list --vm {}'",
            backup.id, backup.vm
        )
    } else {
        format!("backup {} has no disk {name:?}; it has {names}", backup.id)
    };
    ClientError::Refused { code: ErrorCode::NotFound, passes: false, message }
}

/// The names of a restore point's disks, for messages.
fn disk_names(backup: &Backup) -> String {
    backup.disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Chooses the disks to restore and their targets.
fn choose(backup: &Backup, restore: &Restore) -> Result<Vec<Task>, ClientError> {
    if let Some(name) = &restore.disk
        && !backup.disks.iter().any(|disk| disk.name == *name)
    {
        return Err(no_disk(backup, name));
    }
    let mut chosen = disks(backup)?;
    chosen.retain(|disk| restore.disk.as_ref().is_none_or(|name| *name == disk.disk));
    let folder = restore.to.is_dir();
    if chosen.len() != 1 && !folder {
        return Err(usage(format!(
            "backup {} has several disks ({}); name one with --disk, or give an existing folder with --to",
            backup.id,
            disk_names(backup)
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
                "disk {:?} cannot be used as a file name; restore it with --disk and --to FILE",
                disk.disk
            )))
        } else {
            Ok(Some(restore.to.join(format!("{}.raw", disk.disk))))
        }
    };
    if restore.bad_map.is_some() && chosen.len() > 1 {
        return Err(usage(
            "--bad-map names one file, and several disks are restored: leave it out".to_owned(),
        ));
    }
    let tasks = chosen.into_iter().map(|disk| {
        let place = place(&disk)?;
        let salvage = salvage(restore, &disk, place.as_deref())?;
        Ok(Task { disk, place, salvage })
    });
    let tasks = tasks.collect::<Result<Vec<_>, ClientError>>()?;
    for path in tasks.iter().filter_map(|task| task.place.as_ref()) {
        if !restore.force && path.exists() {
            return Err(ClientError::Exists(path.clone()));
        }
    }
    Ok(tasks)
}

/// Returns how damage to `disk` is handled, and where its map goes.
fn salvage(restore: &Restore, disk: &DiskOfBackup, place: Option<&Path>) -> Result<Salvage, ClientError> {
    if !restore.keep_going {
        return Ok(Salvage::default());
    }
    let on_damage = match restore.bad_ranges {
        BadRanges::Zero => OnDamage::Zero,
        BadRanges::Skip => OnDamage::Skip,
    };
    let is_file = |path: &Path| path.metadata().map_or(true, |found| found.is_file());
    let map = match (&restore.bad_map, place.filter(|path| is_file(path))) {
        (Some(map), _) => map.clone(),
        (None, Some(path)) => {
            let mut name = path.as_os_str().to_owned();
            name.push(MAP_SUFFIX);
            name.into()
        }
        (None, None) => format!("{}{MAP_SUFFIX}", disk.disk.replace('/', "-").trim_start_matches('.')).into(),
    };
    check_free(&map, restore.force)?;
    Ok(Salvage { on_damage, map: Some(map) })
}
