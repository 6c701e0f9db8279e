//! The audit of the bucket: what lies there against what is known of it.
//!
//! A later attempt goes on behind the last page of the listing that was looked at. What was found is put right, or noted,
//! as it is found.

use std::sync::Arc;

use holdfast_engine::Engine;
use holdfast_engine::catalog::TaskKind;
use holdfast_engine::clock::Clock;
use serde::{Deserialize, Serialize};

use super::Tasks;
use super::control::{Control, Stopped};
use super::work::{DefaultSchedule, Order, Work, WorkError, normal_options};
use crate::error::ServiceError;
use crate::jobs::StartAudit;
use crate::repository::{AuditPlace, AuditSteering, Tiers, audit};

/// Sundays at 10:00, after the verification of Saturday, when little is written: a listing costs a request for each 1,000
/// objects, and what was lost is sent again by the backups of the night.
const SCHEDULE: DefaultSchedule = DefaultSchedule { expression: "0 10 * * SUN", enabled: true };

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {}

/// The work of an audit task.
#[derive(Debug)]
pub(crate) struct AuditWork {
    pub(crate) engine: Arc<Engine>,
    pub(crate) tiers: Arc<Tiers>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Work for AuditWork {
    fn kind(&self) -> TaskKind {
        TaskKind::Audit
    }

    fn default_schedule(&self) -> Option<DefaultSchedule> {
        Some(SCHEDULE)
    }

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        normal_options::<Options>(options)
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        let place: AuditPlace = serde_json::from_str(&order.place).unwrap_or_default();
        let report = audit(&self.engine, &self.tiers, place, self.clock.now_ms(), &mut Steering(control))?;
        report.map(drop).ok_or_else(|| Stopped.into())
    }
}

impl StartAudit for Tasks {
    fn start_audit(&self, who: &str) -> Result<(), ServiceError> {
        self.start(TaskKind::Audit, "{}", who).map(drop)
    }
}

struct Steering<'a>(&'a Control);

impl AuditSteering for Steering<'_> {
    fn go_on(&mut self, bytes: u64) -> bool {
        self.0.charge(bytes).is_ok()
    }

    fn progress(&mut self, done: u64, total: u64) {
        self.0.set_progress(done, total, "objects");
    }

    fn say(&mut self, line: String) {
        self.0.log(line);
    }

    fn at(&mut self, place: &AuditPlace) {
        self.0.set_figures(&place.figures);
        match serde_json::to_string(place) {
            Ok(place) => self.0.set_place(place),
            Err(error) => tracing::error!(%error, "the place of an audit has no JSON form"),
        }
    }
}
