//! `holdfast backup`.

use std::process::ExitCode;

use holdfast_proto::details::{self, Table, bytes};
use serde_json::json;

use super::Context;
use super::args::Backup;
use super::display::Display;
use super::output::{draw, seconds};
use crate::backup::{BackupOptions, BackupSummary, run as back_up};
use crate::error::ClientError;
use crate::source::{DiskArgument, open_all};
use crate::stages::peak_memory_bytes;

pub(super) async fn run(context: &Context, backup: &Backup) -> Result<ExitCode, ClientError> {
    let disks = open_all(&DiskArgument::parse_all(&backup.disks)?)?;
    let layers = context.layers()?;
    let settings = context.settings(&layers)?;
    let options = BackupOptions {
        namespace: layers.namespace(),
        vm: backup.vm.clone(),
        job: backup.job.clone(),
        run_id: backup.run.clone(),
        take_over: backup.take_over,
        level: backup.level,
        threads: backup.threads,
        limit_upload: backup.limit_upload,
        retry_for: backup.retry_for,
    };
    let display = Display::start(context.output, disks.iter().map(|disk| disk.size_bytes()).sum());
    let summary = back_up(&settings, &disks, &options, display.tally(), context.cancel.clone()).await;
    drop(display);
    let summary = summary?;
    context.output.summary(
        || {
            json!({
                "backup": summary.backup_id,
                "run": summary.run_id,
                "vm": options.vm,
                "seconds": summary.seconds,
                "sent_bytes": summary.sent_bytes,
                "details": details::json(&summary.details),
                "stages": summary.stages,
                "peak_memory_bytes": peak_memory_bytes(),
            })
        },
        || {
            format!(
                "{}\n\n{}",
                draw(&Table::of_rows(&summary.details)),
                closing_sentence(&options.vm, &summary)
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn closing_sentence(vm: &str, summary: &BackupSummary) -> String {
    let sum =
        |field: fn(&holdfast_proto::v1::DetailRow) -> u64| summary.details.iter().map(field).sum::<u64>();
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
