//! `holdfast forget`, and what `holdfast policy run` has in common with it.

use std::process::ExitCode;

use holdfast_proto::api::{self, Decision, DeletePoints, PolicyRun, RunPart};
use holdfast_proto::limits::SELECTION_MAX;
use serde_json::{Value, json};

use super::Context;
use super::args::Forget;
use super::delete::{counted, delete_points, frees};
use super::output::{draw_cells, timestamp};
use crate::cli::ask;
use crate::connect::{Api, Lines};
use crate::error::{ClientError, EXIT_PARTLY};

/// Most decisions that are held in memory to be shown.
const DECISIONS_MAX: usize = 1_000_000;

pub(super) async fn run(context: &Context, forget: &Forget) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let asks = ask::is_asked(context.output, forget.yes) && !forget.dry_run;
    let wanted = api::Forget {
        namespace: namespace.clone(),
        vms: forget.vm.clone(),
        job: Some(forget.job.clone()),
        rules: forget.rules.wanted(),
        time_zone: forget.time_zone.clone(),
        dry_run: forget.dry_run || asks,
        reason: forget.reason.clone(),
    };
    let api = connection.api();
    let decided = read(api.post_lines(&["restore-points", "forget"], &wanted).await?).await?;
    if !asks {
        return show(context, &decided);
    }
    context.output.note(&text(&decided));
    if decided.deleted == 0 {
        return Ok(exit_code(&decided));
    }
    ask::confirm(&format!("Delete {} for good?", counted(decided.deleted)))?;
    let reason = if forget.reason.is_empty() { "forget" } else { &forget.reason };
    let done = delete_decided(&api, &namespace, decided, reason).await?;
    let deleted = counted(done.deleted);
    context.output.text(&format!("Deleted {deleted}. 'holdfast reclaim' frees the space.{}", left(&done)))?;
    Ok(exit_code(&done))
}

/// Partly done when something is left that was to be deleted, or to be decided about.
pub(super) fn exit_code(run: &PolicyRun) -> ExitCode {
    let is_whole = run.refused == 0 && run.skipped_vms.is_empty();
    if is_whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PARTLY) }
}

/// Lists restore points and VMs that were left, by name.
fn left(run: &PolicyRun) -> String {
    let mut text = String::new();
    if run.refused > 0 {
        let (count, names) = (counted(run.refused), run.refused_points.join(" "));
        text += &format!("\nLocked or held meanwhile, and not deleted: {count}: {names}");
    }
    for vm in &run.skipped_vms {
        text += &format!("\nVM {vm} was skipped: it has too many restore points; delete some by hand first.");
    }
    text
}

/// Deletes exactly what was shown, whatever rules would say by now.
async fn delete_decided(
    api: &Api,
    namespace: &str,
    decided: PolicyRun,
    reason: &str,
) -> Result<PolicyRun, ClientError> {
    let doomed: Vec<&Decision> = decided.decisions.iter().filter(|one| !one.keep).collect();
    let mut done = PolicyRun { skipped_vms: decided.skipped_vms, ..PolicyRun::default() };
    for batch in doomed.chunks(SELECTION_MAX) {
        let ids = batch.iter().map(|decision| decision.id.clone()).collect();
        let (namespace, reason) = (Some(namespace.to_owned()), reason.to_owned());
        let wanted = DeletePoints { ids, namespace, vm: String::new(), reason, others: true };
        let answer = delete_points(api, &wanted).await?;
        done.deleted += answer.deleted;
        done.refused += answer.refused.len() as u64;
        done.refused_points.extend(answer.refused);
    }
    Ok(done)
}

/// Reads all of an answer.
pub(super) async fn read(mut answer: Lines<RunPart>) -> Result<PolicyRun, ClientError> {
    let mut decisions = Vec::new();
    while let Some(part) = answer.next().await? {
        match part {
            RunPart::Decisions(some) => decisions.extend(some),
            RunPart::Run(run) => {
                // It may have been cut short.
                let left = || format!("{} deleted before that", counted(run.deleted));
                answer.next().await.map_err(|error| error.leaving(left()))?;
                return Ok(PolicyRun { decisions, ..run });
            }
        }
        if decisions.len() > DECISIONS_MAX {
            return Err(ClientError::Protocol("decisions that do not end".to_owned()));
        }
    }
    Err(ClientError::Protocol("decisions without an end".to_owned()))
}

/// Shows a run as the result of a command.
pub(super) fn show(context: &Context, run: &PolicyRun) -> Result<ExitCode, ClientError> {
    context.output.summary(|| json(run), || text(run))?;
    Ok(exit_code(run))
}

/// Every restore point with the rules that keep it, and what comes of the others.
pub(super) fn text(run: &PolicyRun) -> String {
    let rows: Vec<[String; 5]> = run
        .decisions
        .iter()
        .map(|one| {
            let reasons =
                if one.keep { format!("keep: {}", one.reasons.join(", ")) } else { "delete".to_owned() };
            [one.id.clone(), one.vm.clone(), one.job.clone(), timestamp(one.started.unix_ms), reasons]
        })
        .collect();
    let header = ["backup", "vm", "job", "started (UTC)", "decision"];
    let table = draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)));
    let (kept, deleted) = (counted(run.kept), counted(run.deleted));
    let end = match (run.dry_run, run.deleted) {
        (_, 0) if run.decisions.is_empty() => {
            return format!("There is no restore point to decide about.{}", left(run));
        }
        (_, 0) => format!("Nothing is to be deleted: {kept} kept."),
        (true, _) => format!("{kept} kept. Deleting {deleted} {}.", frees(run.freed_bytes)),
        (false, _) => format!("{kept} kept. Deleted {deleted}; 'holdfast reclaim' frees the space."),
    };
    format!("{table}\n{end}{}", left(run))
}

fn json(run: &PolicyRun) -> Value {
    let decision = |one: &Decision| {
        json!({
            "backup": one.id,
            "vm": one.vm,
            "job": one.job,
            "started": one.started,
            "keep": one.keep,
            "reasons": one.reasons,
        })
    };
    json!({
        "dry_run": run.dry_run,
        "decisions": run.decisions.iter().map(decision).collect::<Vec<_>>(),
        "kept": run.kept,
        "deleted": run.deleted,
        "refused": run.refused,
        "refused_backups": run.refused_points,
        "skipped_vms": run.skipped_vms,
        "freed_bytes": run.freed_bytes,
    })
}
