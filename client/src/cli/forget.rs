//! `holdfast forget`, and what `holdfast policy run` has in common with it.

use std::process::ExitCode;

use holdfast_proto::limits::SELECTION_MAX;
use holdfast_proto::v1::{self, forget_response::Kind};
use serde_json::{Value, json};
use tonic::Streaming;

use super::Context;
use super::args::Forget;
use super::delete::{counted, frees, time};
use super::output::{draw_cells, timestamp};
use crate::cli::ask;
use crate::connect::Connection;
use crate::error::{ClientError, EXIT_PARTLY};

/// Decisions that are held in memory to be shown at most.
const DECISIONS_MAX: usize = 1_000_000;

/// What became, or would become, of restore points.
#[derive(Debug, Default)]
pub(super) struct Decided {
    decisions: Vec<v1::Decision>,
    pub(super) summary: v1::ForgetSummary,
}

pub(super) async fn run(context: &Context, forget: &Forget) -> Result<ExitCode, ClientError> {
    let (_, connection, namespace) = context.connect().await?;
    let asks = ask::is_asked(context.output, forget.yes) && !forget.dry_run;
    let request = v1::ForgetRequest {
        namespace: namespace.clone(),
        vms: forget.vm.clone(),
        job: forget.job.clone(),
        rules: Some(forget.rules.message()),
        time_zone: forget.time_zone.clone(),
        dry_run: forget.dry_run || asks,
        without_bytes: false,
        reason: forget.reason.clone(),
    };
    let decided = read(connection.manage().forget(request).await?.into_inner()).await?;
    if !asks {
        return decided.show(context, forget.dry_run);
    }
    context.output.note(&decided.text(true));
    if decided.summary.deleted == 0 {
        return Ok(exit_code(&decided.summary));
    }
    ask::confirm(&format!("Delete {} for good?", counted(decided.summary.deleted)))?;
    let reason = if forget.reason.is_empty() { "forget" } else { &forget.reason };
    let summary = delete_decided(&connection, &namespace, &decided, reason).await?;
    let deleted = counted(summary.deleted);
    context
        .output
        .text(&format!("Deleted {deleted}. 'holdfast reclaim' frees the space.{}", left(&summary)))?;
    Ok(exit_code(&summary))
}

/// Partly done when something is left that was to be deleted, or to be decided about.
pub(super) fn exit_code(summary: &v1::ForgetSummary) -> ExitCode {
    let is_whole = summary.refused == 0 && summary.skipped_vms.is_empty();
    if is_whole { ExitCode::SUCCESS } else { ExitCode::from(EXIT_PARTLY) }
}

/// What was left, by name.
fn left(summary: &v1::ForgetSummary) -> String {
    let mut text = String::new();
    if summary.refused > 0 {
        let (count, names) = (counted(summary.refused), summary.refused_backups.join(" "));
        text += &format!("\nLocked or held meanwhile, and not deleted: {count}: {names}");
    }
    for vm in &summary.skipped_vms {
        text += &format!("\nVM {vm} was skipped: it has too many restore points; delete some by hand first.");
    }
    text
}

/// Deletes exactly what was shown, whatever rules would say by now.
async fn delete_decided(
    connection: &Connection,
    namespace: &str,
    decided: &Decided,
    reason: &str,
) -> Result<v1::ForgetSummary, ClientError> {
    let doomed: Vec<&v1::Decision> = decided.decisions.iter().filter(|one| one.reasons.is_empty()).collect();
    let mut summary =
        v1::ForgetSummary { skipped_vms: decided.summary.skipped_vms.clone(), ..Default::default() };
    for batch in doomed.chunks(SELECTION_MAX) {
        let backups = batch.iter().map(|decision| decision.backup.clone()).collect();
        let selection = v1::Selection { namespace: namespace.to_owned(), backups, vm: String::new() };
        let request =
            v1::DeleteRequest { selection: Some(selection), reason: reason.to_owned(), others: true };
        let answer = connection.manage().delete(request).await?.into_inner();
        summary.deleted += answer.deleted;
        summary.refused += answer.refused.len() as u64;
        summary.refused_backups.extend(answer.refused);
    }
    Ok(summary)
}

/// All of an answer.
pub(super) async fn read(mut answer: Streaming<v1::ForgetResponse>) -> Result<Decided, ClientError> {
    let mut decided = Decided::default();
    while let Some(message) = answer.message().await? {
        match message.kind {
            Some(Kind::Decisions(some)) => decided.decisions.extend(some.decisions),
            Some(Kind::Summary(summary)) => {
                decided.summary = summary;
                return Ok(decided);
            }
            None => {}
        }
        if decided.decisions.len() > DECISIONS_MAX {
            return Err(ClientError::Protocol("decisions that do not end".to_owned()));
        }
    }
    Err(ClientError::Protocol("decisions without an end".to_owned()))
}

impl Decided {
    /// How many there are to be deleted.
    pub(super) const fn doomed(&self) -> u64 {
        self.summary.deleted
    }

    /// As the result of a command.
    pub(super) fn show(&self, context: &Context, dry_run: bool) -> Result<ExitCode, ClientError> {
        context.output.summary(|| self.json(dry_run), || self.text(dry_run))?;
        Ok(exit_code(&self.summary))
    }

    /// Every restore point with the rules that keep it, and what comes of the others.
    pub(super) fn text(&self, dry_run: bool) -> String {
        let rows: Vec<[String; 5]> = self
            .decisions
            .iter()
            .map(|one| {
                let reasons = if one.reasons.is_empty() {
                    "delete".to_owned()
                } else {
                    format!("keep: {}", one.reasons.join(", "))
                };
                [one.backup.clone(), one.vm.clone(), one.job.clone(), timestamp(one.started_ms), reasons]
            })
            .collect();
        let header = ["backup", "vm", "job", "started (UTC)", "decision"];
        let table = draw_cells(&header, rows.iter().map(|row| row.iter().map(String::as_str)));
        let v1::ForgetSummary { kept, deleted, freed_bytes, .. } = self.summary;
        let end = match (dry_run, deleted) {
            (_, 0) if self.decisions.is_empty() => {
                return format!("There is no restore point to decide about.{}", left(&self.summary));
            }
            (_, 0) => format!("Nothing is to be deleted: {} kept.", counted(kept)),
            (true, _) => {
                format!("{} kept. Deleting {} {}.", counted(kept), counted(deleted), frees(freed_bytes))
            }
            (false, _) => {
                format!(
                    "{} kept. Deleted {}; 'holdfast reclaim' frees the space.",
                    counted(kept),
                    counted(deleted)
                )
            }
        };
        format!("{table}\n{end}{}", left(&self.summary))
    }

    fn json(&self, dry_run: bool) -> Value {
        let decision = |one: &v1::Decision| {
            json!({
                "backup": one.backup,
                "vm": one.vm,
                "job": one.job,
                "started": time(one.started_ms),
                "keep": !one.reasons.is_empty(),
                "reasons": one.reasons,
            })
        };
        json!({
            "dry_run": dry_run,
            "decisions": self.decisions.iter().map(decision).collect::<Vec<_>>(),
            "kept": self.summary.kept,
            "deleted": self.summary.deleted,
            "refused": self.summary.refused,
            "refused_backups": self.summary.refused_backups,
            "skipped_vms": self.summary.skipped_vms,
            "freed_bytes": self.summary.freed_bytes,
        })
    }
}
