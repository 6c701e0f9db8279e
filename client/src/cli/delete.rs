//! `holdfast delete`.

use std::process::ExitCode;

use holdfast_proto::api::{ChosenPoint, DeletePoints, DeletedPoints, Freed, FreedQuestion, Hold, Time};
use holdfast_proto::details::bytes;
use serde_json::{Value, json};

use super::Context;
use super::args::Delete;
use super::output::{draw_cells, timestamp};
use crate::cli::ask;
use crate::connect::Api;
use crate::error::ClientError;
use crate::repository::known_names;

pub(super) async fn run(context: &Context, delete: &Delete) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let ids = known_names(&connection, &namespace, &delete.backups, &delete.vm).await?;
    let (api, namespace) = (connection.api(), Some(namespace));
    let asks = ask::is_asked(context.output, delete.yes);
    let asked = FreedQuestion {
        ids,
        namespace: namespace.clone(),
        vm: delete.vm.clone(),
        without_bytes: !delete.dry_run && !asks,
    };
    let found: Freed = api.post_lines(&["restore-points", "freed"], &asked).await?.only().await?;
    if delete.dry_run {
        context.output.summary(|| dry_run_json(&found), || dry_run_text(&found))?;
        return Ok(ExitCode::SUCCESS);
    }
    if asks {
        context.output.note(&dry_run_text(&found));
        ask::confirm("Delete them for good?")?;
    }
    // Those that were shown, whatever came since.
    let wanted = DeletePoints {
        ids: found.points.into_iter().map(|point| point.id).collect(),
        namespace,
        vm: delete.vm.clone(),
        reason: delete.reason.clone(),
        others: false,
    };
    let deleted = delete_points(&api, &wanted).await?.deleted;
    context.output.summary(
        || json!({ "dry_run": false, "deleted": wanted.ids }),
        || format!("Deleted {}. 'holdfast reclaim' frees the space.", counted(deleted)),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes them, however long that takes.
pub(super) async fn delete_points(api: &Api, wanted: &DeletePoints) -> Result<DeletedPoints, ClientError> {
    api.post_lines(&["restore-points", "delete"], wanted).await?.only().await
}

/// `1 restore point`, `7 restore points`.
pub(super) fn counted(count: u64) -> String {
    if count == 1 { "1 restore point".to_owned() } else { format!("{count} restore points") }
}

/// Describes the space that is freed, if it is known.
pub(super) fn frees(freed_bytes: Option<u64>) -> String {
    match freed_bytes {
        Some(freed) => format!("frees {} ({freed} bytes)", bytes(freed)),
        None => "frees space that this server cannot count".to_owned(),
    }
}

/// `until 2027-12-31 00:00:00, held: why`; empty when nothing keeps it.
pub(super) fn protection(locked_until: Option<Time>, hold: Option<&Hold>) -> String {
    let until = locked_until.map(|until| format!("until {}", timestamp(until.unix_ms)));
    let held = hold.map(|hold| format!("held: {}", hold.reason));
    until.into_iter().chain(held).collect::<Vec<_>>().join(", ")
}

/// Lock and hold for programs; null when nothing keeps it.
pub(super) fn protection_json(locked_until: Option<Time>, hold: Option<&Hold>) -> Value {
    if locked_until.is_none() && hold.is_none() {
        return Value::Null;
    }
    let hold = hold.map(|hold| json!({ "reason": hold.reason, "who": hold.by }));
    json!({ "locked_until": locked_until, "hold": hold })
}

fn dry_run_text(found: &Freed) -> String {
    let rows: Vec<[String; 5]> = found
        .points
        .iter()
        .map(|point| {
            let ChosenPoint { id, vm, job, started, locked_until, hold, .. } = point;
            let kept = protection(*locked_until, hold.as_ref());
            [id.clone(), vm.clone(), job.clone(), timestamp(started.unix_ms), kept]
        })
        .collect();
    let header = ["backup", "vm", "job", "started (UTC)", "locked"];
    let table = draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)));
    let count = counted(found.points.len() as u64);
    let locked = found.points.iter().filter(|point| point.locked_until.is_some() || point.hold.is_some());
    let locked = locked.count() as u64;
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

fn dry_run_json(found: &Freed) -> Value {
    let point = |point: &ChosenPoint| {
        json!({
            "backup": point.id,
            "vm": point.vm,
            "job": point.job,
            "started": point.started,
            "protection": protection_json(point.locked_until, point.hold.as_ref()),
        })
    };
    json!({
        "dry_run": true,
        "backups": found.points.iter().map(point).collect::<Vec<_>>(),
        "freed_bytes": found.freed_bytes,
    })
}
