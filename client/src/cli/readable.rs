//! Opening the disks of a restore point to read here and there: what `export`, `boot` and `files` have in common.

use std::sync::Arc;

use holdfast_nbd::Disk;
use holdfast_proto::ErrorCode;
use holdfast_proto::api::Backup;

use super::Context;
use super::disk_args::Readable;
use super::output::Output;
use super::reading::disks;
use super::restore::no_disk;
use super::thaw::{self, Thawed};
use crate::error::ClientError;
use crate::progress::{Notice, Progress, Step};
use crate::reader::{Reader, ReaderOptions};
use crate::repository::get_backup;

/// Disks that can be read for as long as this is kept.
pub(super) struct Opened {
    pub(super) backup: Backup,
    /// By name, in the order of the restore point.
    pub(super) disks: Vec<(String, Arc<dyn Disk>)>,
}

/// Opens the chosen disks of a restore point, or all of them. `None`: a thaw was started, and is not waited for.
pub(super) async fn open(context: &Context, readable: &Readable) -> Result<Option<Opened>, ClientError> {
    let Readable { retry_for, threads, .. } = *readable;
    let (settings, connection, namespace) = context.connect_within(retry_for).await?;
    let backup = get_backup(&connection, &namespace, &readable.backup, &readable.vm).await?;
    if readable.disk.is_none() && !backup.missing_disks.is_empty() {
        let (vm, missing) = (&backup.vm, backup.missing_disks.join(", "));
        context
            .output
            .note(&format!("holdfast: this restore point of {vm} is partial: it has no disk {missing}"));
    }
    let mut chosen = disks(&backup)?;
    if let Some(name) = &readable.disk {
        chosen.retain(|disk| disk.disk == *name);
        if chosen.is_empty() {
            return Err(no_disk(&backup, name));
        }
    }
    let names = chosen.iter().map(|disk| disk.disk.clone()).collect();
    let thawing = (&readable.thawing, retry_for);
    let thawed = thaw::make_ready(context, &connection, &backup, (names, readable.disk.as_deref()), thawing);
    if thawed.await? == Thawed::Started {
        return Ok(None);
    }
    let cache_bytes = usize::try_from(readable.cache).unwrap_or(usize::MAX);
    let (cipher, cancel) = (context.cipher()?, context.cancel.clone());
    let options = ReaderOptions { cache_bytes, threads, retry_for, cipher, cancel };
    let reader = Reader::new(settings, connection, Arc::new(Notes(context.output)), options)?;
    let open = |disk: crate::restore::DiskOfBackup| {
        (disk.disk.clone(), Arc::new(reader.disk(disk)) as Arc<dyn Disk>)
    };
    let disks = chosen.into_iter().map(open).collect();
    Ok(Some(Opened { backup, disks }))
}

/// Says what happens to reads that wait.
struct Notes(Output);

impl Progress for Notes {
    fn disk(&self, _: &str, _: u64) {}

    fn advance(&self, _: Step) {}

    fn waits(&self, ahead: Option<u32>) {
        if let Some(ahead) = ahead {
            self.0.note(&format!("holdfast: waiting for its turn at the server, behind {ahead} others"));
        }
    }

    fn notice(&self, notice: &Notice) {
        self.0.note(&format!("holdfast: {notice}"));
    }
}

/// A program of the system is not installed.
pub(super) fn missing(program: &str, package: &str) -> ClientError {
    ClientError::Refused {
        code: ErrorCode::Unsupported,
        message: format!("this needs the program {program}: install the package {package}"),
        passes: false,
    }
}
