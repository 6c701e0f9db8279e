//! Agents that run as a service.

use serde::{Deserialize, Serialize};

use super::Time;
use super::time::unix_ms;

/// Time after an agent's next run, and after its last report, at which it is late: twice the time between two reports, so that
/// one that is lost does not count.
pub const LATE_MS: i64 = 2 * 3_600_000;

/// An agent that backs up by the clock, as it last reported
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Agent {
    /// Name of the token it uses
    pub token: String,
    /// When it last reported
    #[serde(with = "unix_ms")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub seen: i64,
    /// Its next run has passed by more than two hours, and it has not reported for as long
    pub late: bool,
    pub report: AgentReport,
}

/// An agent's report of itself
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
// Agents and servers of other versions may say more, or less.
#[serde(default)]
pub struct AgentReport {
    /// Name of its machine
    pub host: String,
    /// Its version
    pub version: String,
    /// When a backup is due next; null: it has none to do by the clock
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub next_run: Option<Time>,
    /// VMs that it backs up
    pub vms: u32,
    /// What is wrong with it, such as settings that it cannot understand; empty: nothing
    pub problem: String,
}

impl Agent {
    /// Milliseconds at `now_ms` since its next run came, or since it reported, if it did so later: a run that waits for the one
    /// before it is not overdue while its agent says so. 0 before its next run.
    pub fn overdue_ms(&self, now_ms: i64) -> i64 {
        self.report.next_run.map_or(0, |next| now_ms.saturating_sub(next.unix_ms.max(self.seen)).max(0))
    }

    /// The same agent, late or not at `now_ms`.
    #[must_use]
    pub fn at(self, now_ms: i64) -> Self {
        Self { late: self.overdue_ms(now_ms) > LATE_MS, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_late_two_hours_after_its_next_run_and_its_report() {
        let report = AgentReport { next_run: Some(Time::new(1000)), ..AgentReport::default() };
        let agent = Agent { report, ..Agent::default() };
        assert!(!agent.clone().at(1000 + LATE_MS).late);
        assert!(agent.clone().at(1001 + LATE_MS).late);
        assert_eq!((agent.overdue_ms(0), agent.overdue_ms(1500)), (0, 500));
        let heard_of = Agent { seen: 5000, ..agent };
        assert_eq!(
            (heard_of.overdue_ms(1500), heard_of.overdue_ms(5500)),
            (0, 500),
            "its run waits for another"
        );
        assert!(!heard_of.clone().at(5000 + LATE_MS).late);
        assert!(heard_of.at(5001 + LATE_MS).late);
        assert!(!Agent::default().at(i64::MAX).late, "it has nothing to do");
    }
}
