//! `holdfast restore`.

use std::path::{Path, PathBuf};
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
use crate::restore::target::{
    ExportTarget, FileOptions, PipeTarget, Target, check_possible, make_folder, open,
};
use crate::restore::{DiskOfBackup, MAP_SUFFIX, OnDamage, Reader, Salvage, check_free};
use crate::source::Format;

pub(super) async fn run(context: &Context, restore: &Restore) -> Result<ExitCode, ClientError> {
    let to_stdout = restore.to == Path::new("-");
    if to_stdout && context.output.json {
        return Err(ClientError::Usage(
            "--to - writes the disk to stdout, so it cannot be combined with --json".to_owned(),
        ));
    }
    let (settings, connection, namespace) = context.connect_within(restore.reading.retry_for).await?;
    let backup = get_backup(&connection, &namespace, &restore.backup, &restore.vm).await?;
    let destination = Destination::of(restore)?;
    let tasks = choose(&backup, restore, destination)?;
    make_ready(restore, destination, &tasks)?;
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
    let (format, in_place) = match destination {
        Destination::Folder(format) | Destination::Path(format) => (format, skips(restore)),
        Destination::Stdout => (Format::Raw, false),
    };
    let options =
        FileOptions { force: restore.force, sync: !restore.no_sync, mode: restore.mode, format, in_place };
    let target = move |task: &Task| -> Result<Arc<dyn Target>, ClientError> {
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

/// Finds out what would be in the way, before anything is thawed or read; makes the folder to restore to.
fn make_ready(restore: &Restore, destination: Destination, tasks: &[Task]) -> Result<(), ClientError> {
    let (Destination::Folder(format) | Destination::Path(format)) = destination else { return Ok(()) };
    for (task, path) in tasks.iter().filter_map(|task| Some((task, task.place.as_ref()?))) {
        check_possible(path, format, task.disk.size_bytes)?;
    }
    if matches!(destination, Destination::Folder(_)) {
        make_folder(&restore.to, !restore.no_sync)?;
    }
    Ok(())
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

/// Where disks go, and the format of the files that are made there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Stdout,
    /// A file for each disk.
    Folder(Format),
    /// A file, a block device or an export.
    Path(Format),
}

impl Destination {
    /// A folder is one that exists, or a path that ends in `/`. A path gets the format that is asked for, or that its name says.
    fn of(restore: &Restore) -> Result<Self, ClientError> {
        let to = &restore.to;
        let raw_only = |what: &str| match restore.format {
            None | Some(Format::Raw) => Ok(Format::Raw),
            Some(format) => Err(usage(format!(
                "{what} gets the bytes of the disk; --format {} is for files: name one with --to",
                format.word()
            ))),
        };
        if to == Path::new("-") {
            return raw_only("standard output").map(|_| Self::Stdout);
        }
        let destination = if ExportTarget::is_address(to) {
            Self::Path(raw_only("an export")?)
        } else if to.is_dir() || to.as_os_str().as_encoded_bytes().ends_with(b"/") {
            Self::Folder(restore.format.unwrap_or(Format::Raw))
        } else if to.metadata().is_ok_and(|found| !found.is_file()) {
            Self::Path(raw_only("a device")?)
        } else {
            Self::Path(restore.format.or_else(|| Format::of_name(to)).unwrap_or(Format::Raw))
        };
        match destination {
            Self::Folder(format) | Self::Path(format) if format != Format::Raw && skips(restore) => {
                Err(usage(
                    "--bad-ranges skip leaves what is there before, and an image is made anew: leave it out, or \
                     restore to a raw file, a device or an export"
                        .to_owned(),
                ))
            }
            destination => Ok(destination),
        }
    }

    /// The path that a disk is written to; `None` for standard output.
    fn place(self, to: &Path, disk: &str) -> Result<Option<PathBuf>, ClientError> {
        match self {
            Self::Stdout => Ok(None),
            Self::Path(_) => Ok(Some(to.to_owned())),
            Self::Folder(_) if disk.contains('/') || disk.starts_with('.') => Err(usage(format!(
                "disk {disk:?} cannot be used as a file name; restore it with --disk and --to FILE"
            ))),
            Self::Folder(format) => Ok(Some(to.join(format!("{disk}.{}", format.ending())))),
        }
    }
}

/// Ranges that cannot be read stay as they are.
fn skips(restore: &Restore) -> bool {
    restore.keep_going && restore.bad_ranges == BadRanges::Skip
}

/// The names of a restore point's disks, for messages.
fn disk_names(backup: &Backup) -> String {
    backup.disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Chooses the disks to restore and their targets.
fn choose(backup: &Backup, restore: &Restore, destination: Destination) -> Result<Vec<Task>, ClientError> {
    if let Some(name) = &restore.disk
        && !backup.disks.iter().any(|disk| disk.name == *name)
    {
        return Err(no_disk(backup, name));
    }
    let mut chosen = disks(backup)?;
    chosen.retain(|disk| restore.disk.as_ref().is_none_or(|name| *name == disk.disk));
    if chosen.len() != 1 && !matches!(destination, Destination::Folder(_)) {
        return Err(usage(format!(
            "backup {} has several disks ({}); name one with --disk, or a folder with --to FOLDER/",
            backup.id,
            disk_names(backup)
        )));
    }
    if restore.bad_map.is_some() && chosen.len() > 1 {
        return Err(usage(
            "--bad-map names one file, and several disks are restored: leave it out".to_owned(),
        ));
    }
    let tasks = chosen.into_iter().map(|disk| {
        let place = destination.place(&restore.to, &disk.disk)?;
        let salvage = salvage(restore, &disk, place.as_deref())?;
        Ok(Task { disk, place, salvage })
    });
    let tasks = tasks.collect::<Result<Vec<_>, ClientError>>()?;
    for path in tasks.iter().filter_map(|task| task.place.as_ref()) {
        if !restore.force && (ExportTarget::is_address(path) || path.exists()) {
            return Err(ClientError::Exists(path.clone()));
        }
        let is_in_folder = matches!(destination, Destination::Folder(_));
        if is_in_folder && path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(usage(format!(
                "{} is no file, and a folder gets files: name a device with --disk and --to, or remove what is there",
                path.display()
            )));
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
    let is_file = |path: &Path| {
        !ExportTarget::is_address(path) && path.metadata().map_or(true, |found| found.is_file())
    };
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
