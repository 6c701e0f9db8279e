//! `holdfast delete`.

use std::process::ExitCode;

use holdfast_proto::details::bytes;
use holdfast_proto::v1;
use serde_json::{Value, json};

use super::Context;
use super::args::Delete;
use super::output::{draw_cells, timestamp};
use crate::cli::ask;
use crate::connect::Connection;
use crate::error::ClientError;

pub(super) async fn run(context: &Context, delete: &Delete) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let selection = v1::Selection { namespace, backups: delete.backups.clone(), vm: delete.vm.clone() };
    let asks = ask::is_asked(context.output, delete.yes);
    let found = freed(&connection, selection.clone(), !delete.dry_run && !asks).await?;
    if delete.dry_run {
        context.output.summary(|| dry_run_json(&found), || dry_run_text(&found))?;
        return Ok(ExitCode::SUCCESS);
    }
    if asks {
        context.output.note(&dry_run_text(&found));
        ask::confirm("Delete them for good?")?;
    }
    // Those that were shown, whatever came since.
    let backups: Vec<String> = found.points.iter().map(|point| point.id.clone()).collect();
    let request = v1::DeleteRequest {
        selection: Some(v1::Selection { backups: backups.clone(), ..selection }),
        reason: delete.reason.clone(),
        others: false,
    };
    let deleted = connection.manage().delete(request).await?.into_inner().deleted;
    context.output.summary(
        || json!({ "dry_run": false, "deleted": backups }),
        || format!("Deleted {}. 'holdfast reclaim' frees the space.", counted(deleted)),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// What deleting would free.
pub(super) async fn freed(
    connection: &Connection,
    selection: v1::Selection,
    without_bytes: bool,
) -> Result<v1::FreedResponse, ClientError> {
    let request = v1::FreedRequest { selection: Some(selection), without_bytes };
    Ok(connection.manage().freed(request).await?.into_inner())
}

/// `1 restore point`, `7 restore points`.
pub(super) fn counted(count: u64) -> String {
    if count == 1 { "1 restore point".to_owned() } else { format!("{count} restore points") }
}

/// What is known of the space that comes back.
pub(super) fn frees(freed_bytes: Option<u64>) -> String {
    match freed_bytes {
        Some(freed) => format!("frees {} ({freed} bytes)", bytes(freed)),
        None => "frees space that this server cannot count".to_owned(),
    }
}

/// `until 2027-12-31 00:00:00, held: why`; empty when nothing keeps it.
pub(super) fn protection(protection: Option<&v1::Protection>) -> String {
    let Some(found) = protection else { return String::new() };
    let until = found.locked_until_ms.map(|until_ms| format!("until {}", timestamp(until_ms)));
    let held = (!found.hold_reason.is_empty()).then(|| format!("held: {}", found.hold_reason));
    until.into_iter().chain(held).collect::<Vec<_>>().join(", ")
}

/// The same for programs; null when nothing keeps it.
pub(super) fn protection_json(protection: Option<&v1::Protection>) -> Value {
    let Some(found) = protection else { return Value::Null };
    let until = found.locked_until_ms.and_then(time);
    let hold = (!found.hold_reason.is_empty())
        .then(|| json!({ "reason": found.hold_reason, "who": found.hold_who }));
    json!({ "locked_until": until, "hold": hold })
}

/// RFC 3339.
pub(super) fn time(ms: i64) -> Option<String> {
    jiff::Timestamp::from_millisecond(ms).map(|at| format!("{at:.3}")).ok()
}

fn dry_run_text(found: &v1::FreedResponse) -> String {
    let rows: Vec<[String; 5]> = found
        .points
        .iter()
        .map(|point| {
            let v1::SelectedPoint { id, vm, job, started_ms, protection: kept } = point;
            [id.clone(), vm.clone(), job.clone(), timestamp(*started_ms), protection(kept.as_ref())]
        })
        .collect();
    let header = ["backup", "vm", "job", "started (UTC)", "locked"];
    let table = draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)));
    let count = counted(found.points.len() as u64);
    let locked = found.points.iter().filter(|point| point.protection.is_some()).count() as u64;
    if locked > 0 {
        return match (locked, found.points.len()) {
            (1, 1) => format!("{table}\nIt cannot be deleted: it is locked or held."),
            (locked, _) => {
                let which = counted(locked);
                format!("{table}\nNone of the {count} would be deleted: {which} locked or held.")
            }
        };
    }
    format!("{table}\nDeleting {count} {}.", frees(found.freed_bytes))
}

fn dry_run_json(found: &v1::FreedResponse) -> Value {
    let point = |point: &v1::SelectedPoint| {
        json!({
            "backup": point.id,
            "vm": point.vm,
            "job": point.job,
            "started": time(point.started_ms),
            "protection": protection_json(point.protection.as_ref()),
        })
    };
    json!({
        "dry_run": true,
        "backups": found.points.iter().map(point).collect::<Vec<_>>(),
        "freed_bytes": found.freed_bytes,
    })
}
