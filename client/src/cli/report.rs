//! `holdfast report`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use holdfast_proto::api::{AgentsProved, DetailRow, Finding, Items, Namespace};
use holdfast_proto::details::{self, GroupBy, Table, Totals, escape_line, sort_worst_first, totals};
use holdfast_proto::when;
use serde_json::{Value, json};

use super::Context;
use super::args::{Format, Group, Report};
use super::output::{draw, timestamp};
use crate::connect::{Api, Connection};
use crate::error::ClientError;
use crate::repository::Reported;

/// Findings shown at most: a page of the API.
const FINDINGS_MAX: u64 = 1000;

pub(super) async fn run(context: &Context, report: Report) -> Result<ExitCode, ClientError> {
    let (format, group) = (report.format, report.totals);
    if group.is_some() && matches!(format, Format::Tsv | Format::Csv) && !context.output.json {
        return Err(ClientError::Usage(
            "totals have other columns than rows, so --totals cannot be combined with --format tsv or csv; \
             use --format table or json"
                .to_owned(),
        ));
    }
    let layers = context.layers()?;
    let connection = Connection::open(&layers.settings()?).await?;
    let namespace = layers.namespace();
    let parameters = [
        ("namespace", namespace.as_str()),
        ("job", &report.job),
        ("vm", &report.vm),
        ("run", &report.run),
        ("since", &when::timestamp(report.since.unwrap_or(0))),
        ("until", &when::timestamp(report.until.unwrap_or(0))),
    ];
    let Reported { mut rows, accepted_changes } = crate::repository::report(&connection, &parameters).await?;
    // Tables that programs read have rows alone.
    let for_people = context.output.json || format == Format::Table;
    let agents = if for_people { proved_by_agents(&connection.api(), &namespace).await? } else { Vec::new() };
    let findings = match report.worst {
        Some(count) if for_people && count > 0 => findings(&connection.api(), &parameters, count).await?,
        _ => Vec::new(),
    };
    let by = group_by(group.unwrap_or(Group::Repository));
    let groups = totals(&rows, by);
    if let Some(count) = report.worst {
        sort_worst_first(&mut rows);
        rows.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    }
    if context.output.json {
        context.output.summary(
            || {
                json!({
                    "rows": details::json(&rows),
                    "findings": findings,
                    "totals": totals_json(&groups),
                    "accepted_changes": accepted_changes,
                    "proved_only_by_agents": agents.iter().map(agents_json).collect::<Vec<_>>(),
                })
            },
            String::new,
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = match format {
        Format::Tsv => details::tsv(&rows),
        Format::Csv => details::csv(&rows),
        Format::Json if group.is_some() => pretty(&totals_json(&groups)),
        Format::Json => pretty(&details::json(&rows)),
        Format::Table if rows.is_empty() => "No runs match.".to_owned(),
        Format::Table => {
            let totals = draw(&Table::of_totals(&groups, group_name(by)));
            format!("{}{}\n\nTotals\n{totals}", findings_text(&findings), draw(&Table::of_rows(&rows)))
        }
    };
    context.output.text(&text)?;
    if format == Format::Table {
        agents.iter().for_each(|found| context.output.note(&agents_text(found)));
        accepted_texts(&rows, &accepted_changes).iter().for_each(|text| context.output.note(text));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs out of line with the history of their VM or job that a report is of, the worst ones.
async fn findings(api: &Api, parameters: &[(&str, &str)], count: u64) -> Result<Vec<Finding>, ClientError> {
    let limit = count.clamp(1, FINDINGS_MAX).to_string();
    let question: Vec<_> = parameters.iter().copied().chain([("limit", limit.as_str())]).collect();
    let found: Items<Finding> = api.get(&["findings"], &question).await?;
    Ok(found.items)
}

/// A line for each finding and one for what it comes from, before the table.
fn findings_text(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|found| {
        let [text, cause] = [&found.text, &found.cause].map(|text| escape_line(text));
        format!("{text}\n  {cause}\n")
    });
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("{lines}\n") }
}

/// A line for each restore point among the rows that has less than the one before.
fn accepted_texts(rows: &[DetailRow], accepted: &BTreeSet<String>) -> BTreeSet<String> {
    let shown = rows.iter().filter(|row| accepted.contains(&row.backup));
    shown
        .map(|row| {
            let (backup, vm) = (escape_line(&row.backup), escape_line(&row.vm));
            format!("holdfast: restore point {backup} of VM {vm} has less than the one before, as accepted")
        })
        .collect()
}

/// Namespaces whose content only agents prove, with what they proved: of this name, or all where it is empty.
async fn proved_by_agents(api: &Api, namespace: &str) -> Result<Vec<(String, AgentsProved)>, ClientError> {
    let found: Items<Namespace> = api.get(&["namespaces"], &()).await?;
    let asked = found.items.into_iter().filter(|found| namespace.is_empty() || found.name == namespace);
    Ok(asked.filter_map(|found| Some((found.name, found.agents?))).collect())
}

fn agents_text((namespace, found): &(String, AgentsProved)) -> String {
    let AgentsProved { vms, never_verified, oldest, .. } = found;
    let proved = match (oldest.map(|at| timestamp(at.unix_ms)), never_verified) {
        (None, _) => "none has verified any of it yet".to_owned(),
        (Some(oldest), 0) => format!("they verified all of its {vms} VMs, the first of them {oldest}"),
        (Some(oldest), never) => {
            let verified = vms.saturating_sub(*never);
            format!("they verified {verified} of its {vms} VMs, the first of them {oldest}")
        }
    };
    let namespace = escape_line(namespace);
    format!(
        "holdfast: namespace {namespace} is end-to-end encrypted: its content is proved only by agents, and {proved}"
    )
}

fn agents_json((namespace, found): &(String, AgentsProved)) -> Value {
    json!({
        "namespace": namespace,
        "vms": found.vms,
        "never_verified": found.never_verified,
        "oldest_verification_ms": found.oldest.map(|at| at.unix_ms),
    })
}

const fn group_by(group: Group) -> GroupBy {
    match group {
        Group::Run => GroupBy::Run,
        Group::Vm => GroupBy::Vm,
        Group::Job => GroupBy::Job,
        Group::Repository => GroupBy::Repository,
    }
}

const fn group_name(by: GroupBy) -> &'static str {
    match by {
        GroupBy::Run => "run",
        GroupBy::Vm => "vm",
        GroupBy::Job => "job",
        GroupBy::Repository => "repository",
    }
}

/// Still JSON when it reaches the terminal: what is escaped for any text there is escaped here as JSON has it.
fn pretty(value: &Value) -> String {
    details::escape_json(&format!("{value:#}")).into_owned()
}

fn totals_json(groups: &[Totals]) -> Value {
    groups
        .iter()
        .map(|group| {
            let factors = group.factors();
            json!({
                "name": group.name,
                "disks": group.rows,
                "failed": group.failed,
                "seconds": group.seconds(),
                "virtual_bytes": group.virtual_bytes,
                "bytes": group.bytes,
                "read_bytes": group.read_bytes,
                "unchanged_bytes": group.unchanged_bytes,
                "dup_bytes": group.dup_bytes,
                "new_bytes": group.new_bytes,
                "post_lc": group.post_lc,
                "meta_bytes": group.meta_bytes,
                "wire_bytes": group.wire_bytes,
                "global_factor": factors.global,
                "local_factor": factors.local,
                "bytes/post_lc": factors.total,
                "reduction_pct": factors.reduction_pct,
                "chunks": group.chunks,
                "new_chunks": group.new_chunks,
                "done_bytes": group.done_bytes,
                "done_post_lc": group.done_post_lc,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_json_report_is_harmless_and_still_json() {
        let value = json!([{ "vm": "a\u{202e}\u{9b}\n" }]);
        let text = pretty(&value);
        assert_eq!(details::escape_text(&text), text, "nothing is left to escape as text");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}
