//! `holdfast backup`.

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::sync::Arc;

use holdfast_proto::api::DetailRow;
use holdfast_proto::details::{self, Table, bytes};
use serde_json::{Value, json};

use super::Context;
use super::args::Backup;
use super::display::Display;
use super::output::{draw, seconds};
use crate::backup::{BackupOptions, BackupSummary, UploadLimit, run as back_up};
use crate::error::{ClientError, EXIT_PARTLY};
use crate::source::{DiskArgument, open_each};
use crate::stages::peak_memory_bytes;

pub(super) async fn run(context: &Context, backup: &Backup) -> Result<ExitCode, ClientError> {
    let (arguments, opening) = (DiskArgument::parse_all(&backup.disks)?, backup.opening.into());
    let (disks, unopened) = open_each(arguments.iter().map(|disk| (disk, opening)))?;
    for failed in &unopened {
        context
            .output
            .note(&format!("holdfast: disk {}: {}; backing up the others", failed.disk, failed.error));
    }
    let layers = context.layers()?;
    let settings = context.settings(&layers)?;
    let options = BackupOptions {
        namespace: layers.namespace(),
        vm: backup.vm.clone(),
        job: backup.job.clone(),
        run_id: backup.run.clone(),
        reread: backup.reread,
        take_over: backup.take_over,
        accept_change: backup.accept_change,
        level: backup.level,
        threads: backup.threads,
        upload_limit: Arc::new(UploadLimit::steady(backup.limit_upload.and_then(NonZeroU64::new))),
        connections: backup.connections,
        cipher: context.cipher()?,
        retry_for: backup.retry_for,
    };
    let display = Display::start(context.output, disks.iter().map(|disk| disk.size_bytes()).sum());
    let (tally, cancel) = (display.tally(), context.cancel.clone());
    let summary = back_up(&settings, &disks, unopened, &options, tally, cancel).await;
    drop(display);
    let summary = summary?;
    context.output.summary(|| summary_json(&options.vm, &summary), || summary_text(&options.vm, &summary))?;
    Ok(if summary.failed_disks.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PARTLY) })
}

fn summary_json(vm: &str, summary: &BackupSummary) -> Value {
    let failed = summary.failed_disks.iter();
    json!({
        "ok": summary.failed_disks.is_empty(),
        "backup": summary.backup_id,
        "run": summary.run_id,
        "vm": vm,
        "failed_disks": failed.map(|f| json!({ "disk": f.disk, "error": f.error })).collect::<Vec<_>>(),
        "written_while_read": summary.written_disks,
        "seconds": summary.seconds,
        "sent_bytes": summary.sent_bytes,
        "reread_extents": summary.reread_extents,
        "details": details::json(&summary.details),
        "stages": summary.stages,
        "peak_memory_bytes": peak_memory_bytes(),
    })
}

fn summary_text(vm: &str, summary: &BackupSummary) -> String {
    let mut text =
        format!("{}\n\n{}", draw(&Table::of_rows(&summary.details)), closing_sentence(vm, summary));
    if summary.reread_extents > 0 {
        text += &format!(
            "\nAs a check, {} extents were read again without relying on earlier backups.",
            summary.reread_extents
        );
    }
    for disk in &summary.written_disks {
        text += &format!(
            "\nWarning: disk {disk} may have been written to while it was read (its times changed), so its copy may mix several moments; back up a \
             snapshot, or stop what writes to it."
        );
    }
    if !summary.failed_disks.is_empty() {
        text += &format!("\nPartial: {} lacks", summary.backup_id);
        for failed in &summary.failed_disks {
            text += &format!("\n  disk {}: {}", failed.disk, failed.error);
        }
    }
    text
}

fn closing_sentence(vm: &str, summary: &BackupSummary) -> String {
    let sum = |field: fn(&DetailRow) -> u64| summary.details.iter().map(field).sum::<u64>();
    let (data, new, stored) = (sum(|row| row.bytes), sum(|row| row.new_bytes), sum(|row| row.post_lc));
    format!(
        "Backed up {vm} as {} in {}: {} of data, {} of it new, stored in {}.",
        summary.backup_id,
        seconds(summary.seconds),
        bytes(data),
        bytes(new),
        bytes(stored)
    )
}
