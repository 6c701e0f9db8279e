//! `holdfast agent list`.

use std::process::ExitCode;

use holdfast_proto::api::{Agent, Items};
use serde_json::json;

use super::super::Context;
use super::super::output::{draw_cells, timestamp};
use crate::error::ClientError;

const HEADER: [&str; 8] = ["host", "token", "state", "VMs", "next run", "last seen", "version", "problem"];

pub(super) async fn run(context: &Context) -> Result<ExitCode, ClientError> {
    let (_, connection, _) = context.connect().await?;
    let agents: Items<Agent> = connection.api().get(&["agents"], &()).await?;
    context.output.summary(
        || json!({ "agents": agents.items }),
        || {
            let rows: Vec<_> = agents.items.iter().map(row).collect();
            draw_cells(&HEADER, rows.iter().map(|row| row.iter().map(String::as_str)))
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn row(agent: &Agent) -> [String; 8] {
    let report = &agent.report;
    let state = match (agent.late, report.problem.is_empty()) {
        (true, _) => "LATE",
        (false, false) => "problem",
        (false, true) => "on time",
    };
    [
        report.host.clone(),
        agent.token.clone(),
        state.to_owned(),
        report.vms.to_string(),
        report.next_run.map_or_else(|| "none".to_owned(), |next| timestamp(next.unix_ms)),
        timestamp(agent.seen),
        report.version.clone(),
        report.problem.clone(),
    ]
}
