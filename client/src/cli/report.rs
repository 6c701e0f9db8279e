//! `holdfast report`.

use std::collections::BTreeSet;
use std::process::ExitCode;

use holdfast_proto::api::{AgentsProved, DaysRow, DetailRow, Finding, Items, Namespace, TotalsRow, UsedNow};
use holdfast_proto::details::{
    self, Delimiter, Table, Totals, days_table, escape_line, sort_worst_first, totals_table,
};
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
        ("existing", if report.existing { "true" } else { "false" }),
    ];
    let api = connection.api();
    if let Some((group, delimiter)) = group.zip(delimiter(format)).filter(|_| !context.output.json) {
        context.output.text(&added(&api, &parameters, group).await?.table(delimiter))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Reported { mut rows, accepted_changes } = crate::repository::report(&connection, &parameters).await?;
    // Tables that programs read have rows alone.
    let for_people = context.output.json || format == Format::Table;
    let agents = if for_people { proved_by_agents(&api, &namespace).await? } else { Vec::new() };
    let findings = match report.worst {
        Some(count) if for_people && count > 0 => findings(&api, &parameters, count).await?,
        _ => Vec::new(),
    };
    let sums = match group.or(for_people.then_some(Group::Repository)) {
        Some(group) => added(&api, &parameters, group).await?,
        None => Added::Groups(Vec::new()),
    };
    if let Some(count) = report.worst {
        sort_worst_first(&mut rows);
        rows.truncate(usize::try_from(count).unwrap_or(usize::MAX));
    }
    let told = Told { rows, findings, sums, accepted_changes, agents };
    if context.output.json {
        context.output.summary(|| told.summary(), String::new)?;
        return Ok(ExitCode::SUCCESS);
    }
    context.output.text(&told.text(format, group))?;
    if format == Format::Table {
        told.notes().iter().for_each(|text| context.output.note(text));
    }
    Ok(ExitCode::SUCCESS)
}

/// Contents of a report.
struct Told {
    rows: Vec<DetailRow>,
    findings: Vec<Finding>,
    sums: Added,
    accepted_changes: BTreeSet<String>,
    agents: Vec<(String, AgentsProved)>,
}

impl Told {
    fn summary(&self) -> Value {
        json!({
            "rows": details::json(&self.rows),
            "findings": self.findings,
            "totals": self.sums.json(),
            "accepted_changes": self.accepted_changes,
            "proved_only_by_agents": self.agents.iter().map(agents_json).collect::<Vec<_>>(),
        })
    }

    fn text(&self, format: Format, group: Option<Group>) -> String {
        let Self { rows, findings, sums, .. } = self;
        match format {
            Format::Tsv => details::tsv(rows),
            Format::Csv => details::csv(rows),
            Format::Json if group.is_some() => pretty(&sums.json()),
            Format::Json => pretty(&details::json(rows)),
            Format::Table if rows.is_empty() => "No runs match.".to_owned(),
            Format::Table => {
                let totals = draw(&sums.shown(group.unwrap_or(Group::Repository)));
                format!("{}{}\n\nTotals\n{totals}", findings_text(findings), draw(&Table::of_rows(rows)))
            }
        }
    }

    /// Notes below a table.
    fn notes(&self) -> Vec<String> {
        let agents = self.agents.iter().map(agents_text);
        self.sums
            .used_text()
            .into_iter()
            .chain(agents)
            .chain(accepted_texts(&self.rows, &self.accepted_changes))
            .collect()
    }
}

const fn delimiter(format: Format) -> Option<Delimiter> {
    match format {
        Format::Tsv => Some(Delimiter::Tab),
        Format::Csv => Some(Delimiter::Comma),
        Format::Table | Format::Json => None,
    }
}

/// Rows added up, as the server does it.
enum Added {
    Groups(Vec<TotalsRow>),
    Days(Vec<DaysRow>),
}

/// Groups asked for at once: a page of the API.
const GROUPS_PER_PAGE: &str = "1000";

/// Groups taken at most: a server whose pages never end must not fill memory.
const GROUPS_MAX: usize = 1_000_000;

/// Runs that a server lists.
const RUNS_MAX: usize = 20_000;

async fn added(api: &Api, parameters: &[(&str, &str)], group: Group) -> Result<Added, ClientError> {
    let (by, sort) = match group {
        Group::Day => {
            let found: Items<DaysRow> = api.get(&["details", "days"], &parameters).await?;
            return Ok(Added::Days(found.items));
        }
        Group::Run => ("run", "-started"),
        Group::Vm => ("vm", "vm"),
        Group::Job => ("job", "job"),
        Group::Namespace => ("namespace", "namespace"),
        Group::Repository => ("repository", "rows"),
    };
    let mut groups: Vec<TotalsRow> = Vec::new();
    loop {
        let offset = groups.len().to_string();
        let page = [("by", by), ("sort", sort), ("limit", GROUPS_PER_PAGE), ("offset", offset.as_str())];
        let question: Vec<_> = parameters.iter().copied().chain(page).collect();
        let found: Items<TotalsRow> = api.get(&["details", "totals"], &question).await?;
        let is_last = found.items.is_empty();
        groups.extend(found.items);
        if group == Group::Run && groups.len() >= RUNS_MAX {
            let message = format!("a server lists {RUNS_MAX} runs at most; use --since and --until");
            return Err(ClientError::Usage(message));
        }
        if is_last || groups.len() as u64 >= found.total || groups.len() >= GROUPS_MAX {
            if group == Group::Run {
                groups.reverse();
            }
            return Ok(Added::Groups(groups));
        }
    }
}

impl Added {
    /// A table for programs.
    fn table(&self, delimiter: Delimiter) -> String {
        match self {
            Self::Groups(groups) => totals_table(groups, delimiter),
            Self::Days(days) => days_table(days, delimiter),
        }
    }

    /// A table for people.
    fn shown(&self, group: Group) -> Table {
        let rows: Vec<(String, &Totals, Option<UsedNow>)> = match self {
            Self::Groups(groups) => {
                groups.iter().map(|row| (name(row), &row.sums.totals, row.used)).collect()
            }
            Self::Days(days) => days
                .iter()
                .map(|row| (format!("{} {}", row.span.word(), row.day), &row.sums.totals, None))
                .collect(),
        };
        Table::of_totals(&rows, group_name(group))
    }

    fn json(&self) -> Value {
        match self {
            Self::Days(days) => json!(days),
            Self::Groups(groups) => groups
                .iter()
                .map(|group| {
                    let mut value = json!(group);
                    if let Some(object) = value.as_object_mut() {
                        let totals = &group.sums.totals;
                        object.insert("name".to_owned(), name(group).into());
                        object.insert("disks".to_owned(), totals.rows.into());
                        object.insert("seconds".to_owned(), json!(totals.seconds()));
                    }
                    value
                })
                .collect(),
        }
    }

    /// The note on what the column "used now" leaves out.
    fn used_text(&self) -> Option<String> {
        let Self::Groups(groups) = self else { return None };
        let used = groups.iter().find_map(|group| group.used)?;
        let (at, why) = (timestamp(used.at.unix_ms), "; at least, because it could not follow every recipe");
        let why = if used.is_complete { "" } else { why };
        Some(format!(
            "holdfast: used now does not include what was written or deleted since the last reclaim on {at}{why}"
        ))
    }
}

/// A run's id, or a name with its namespace.
fn name(row: &TotalsRow) -> String {
    match (&row.run, &row.vm, &row.job) {
        (run, ..) if !run.is_empty() => run.clone(),
        (_, vm, _) if !vm.is_empty() => format!("{}/{vm}", row.namespace),
        (.., job) if !job.is_empty() => format!("{}/{job}", row.namespace),
        _ => row.namespace.clone(),
    }
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

const fn group_name(group: Group) -> &'static str {
    match group {
        Group::Run => "run",
        Group::Vm => "vm",
        Group::Job => "job",
        Group::Namespace => "namespace",
        Group::Repository => "repository",
        Group::Day => "day",
    }
}

/// Still JSON when it reaches the terminal: what is escaped for any text there is escaped here as JSON has it.
fn pretty(value: &Value) -> String {
    details::escape_json(&format!("{value:#}")).into_owned()
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
