//! Agents that back up by the clock, and whether their next runs have come.

use std::time::Duration;

use holdfast_engine::catalog::Catalog;
use holdfast_proto::api::Agent;

use super::super::exposition::Samples;
use super::super::names as n;
use crate::error::ServiceError;

/// Agents, as of one moment.
#[derive(Debug)]
pub(super) struct AgentFigures(Vec<Agent>);

impl AgentFigures {
    /// Asks the catalog.
    ///
    /// # Errors
    /// The catalog's.
    pub(super) fn gather(catalog: &Catalog) -> Result<Self, ServiceError> {
        Ok(Self(catalog.agents(None)?))
    }

    /// Adds all of them.
    pub(super) fn add(&self, now_ms: i64, samples: &mut Samples) {
        let late =
            self.0.iter().filter(|agent| agent.overdue_ms(now_ms) > holdfast_proto::api::LATE_MS).count();
        let troubled = self.0.iter().filter(|agent| !agent.report.problem.is_empty()).count();
        samples.whole(&n::AGENTS, &["known"], self.0.len() as u64);
        samples.whole(&n::AGENTS, &["late"], late as u64);
        samples.whole(&n::AGENTS, &["troubled"], troubled as u64);
        if let Some(overdue_ms) = self.0.iter().map(|agent| agent.overdue_ms(now_ms)).max() {
            let overdue = Duration::from_millis(u64::try_from(overdue_ms).unwrap_or(0));
            samples.float(&n::AGENT_OVERDUE, &[], overdue.as_secs_f64());
        }
    }
}
