//! Retention policies, carried out by their schedules.
//!
//! Each policy has a schedule of its own. An attempt decides VM by VM and deletes as it goes; a later one decides anew,
//! and what was deleted stays deleted.

use std::sync::Arc;

use holdfast_engine::Engine;
use holdfast_engine::catalog::{RetentionPolicy, TaskKind, UNFINISHED_TASKS_MAX};
use holdfast_engine::clock::utc_text;
use holdfast_engine::ids::PolicyId;
use holdfast_proto::ErrorCode;
use serde::{Deserialize, Serialize};

use super::control::Control;
use super::work::{Order, OwnSchedule, Work, WorkError, read_options};
use crate::activity::{Activity, Change};
use crate::error::ServiceError;
use crate::retention::plan::too_many;
use crate::retention::run::{Work as Run, run};

/// Restore points, and VMs, that the log names at most.
const NAMED_LINES: usize = 20;

/// Options of a policy task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// A policy's id.
    policy: String,
}

#[derive(Debug, Serialize)]
struct Figures {
    vms: u64,
    kept: u64,
    deleted: u64,
    refused: u64,
    /// VMs with too many restore points.
    skipped: u64,
}

/// The work of a policy task.
#[derive(Debug)]
pub(crate) struct PolicyWork {
    pub(crate) engine: Arc<Engine>,
    pub(crate) activity: Arc<Activity>,
}

impl Work for PolicyWork {
    fn kind(&self) -> TaskKind {
        TaskKind::Policy
    }

    /// A thousand that are due at midnight leave places to what people start.
    fn unfinished_max(&self) -> usize {
        UNFINISHED_TASKS_MAX as usize / 2
    }

    fn default_schedule(&self) -> Option<super::work::DefaultSchedule> {
        None
    }

    fn own_schedules(&self) -> Result<Vec<OwnSchedule>, ServiceError> {
        let policies = self.engine.catalog().policies(None)?;
        let runs = policies.into_iter().filter(|policy| policy.is_at_work() && !policy.schedule.is_empty());
        runs.map(own_schedule).collect()
    }

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        let options: Options = read_options(options)?;
        self.policy(&options)?;
        serde_json::to_string(&options).map_err(ServiceError::defect)
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        let policy = self.policy(&read_options::<Options>(&order.options)?)?;
        let catalog = &**self.engine.catalog();
        let work = Run::of_policy(catalog, &policy, &order.who, false)?;
        control.log(format!("policy {:?}", policy.name));
        let jumped_ms = self.engine.clock_jumped_ms();
        if jumped_ms > 0 {
            control.log(format!(
                "the clock has jumped ahead by more than an hour since the server was started: what was made since {} is \
                 kept; once the clock is right, restart the server",
                utc_text(self.engine.deciding_time_ms())
            ));
        }
        let stop = || control.check().is_err();
        let outcome = run(&self.engine, &work, &stop, &mut |_| true)?;
        // VMs that were not looked at are for the attempt that goes on.
        control.check()?;
        let figures = Figures {
            vms: outcome.vms,
            kept: outcome.kept,
            deleted: outcome.deleted,
            refused: outcome.refused.len() as u64,
            skipped: outcome.skipped.len() as u64,
        };
        control.set_figures(&figures);
        let Figures { vms, kept, deleted, refused, skipped } = figures;
        control
            .log(format!("{vms} VMs: {deleted} restore points deleted, {kept} kept, {refused} locked since"));
        for id in outcome.refused.iter().take(NAMED_LINES) {
            control.log(format!("{id} was locked or held since, and stays"));
        }
        for vm in outcome.skipped.iter().take(NAMED_LINES) {
            control.log(too_many(vm));
        }
        if deleted > 0 {
            self.activity.note(Change::Backup);
        }
        if skipped > 0 {
            // Said once all others were done: no one reads the log of what went well.
            let why = format!("{skipped} VMs with too many restore points were skipped; the log names them");
            return Err(ServiceError::new(ErrorCode::Limit, why).into());
        }
        Ok(())
    }
}

impl PolicyWork {
    fn policy(&self, options: &Options) -> Result<RetentionPolicy, ServiceError> {
        let absent =
            || ServiceError::new(ErrorCode::NotFound, format!("there is no policy {}", options.policy));
        let id: PolicyId = options.policy.parse().map_err(|_| absent())?;
        let policies = self.engine.catalog().policies(None)?;
        policies.into_iter().find(|policy| policy.id == id).ok_or_else(absent)
    }
}

fn own_schedule(policy: RetentionPolicy) -> Result<OwnSchedule, ServiceError> {
    let id = policy.id.to_string();
    let options = serde_json::to_string(&Options { policy: id.clone() }).map_err(ServiceError::defect)?;
    Ok(OwnSchedule {
        name: format!("{}/{id}", TaskKind::Policy.word()),
        expression: policy.schedule,
        time_zone: policy.time_zone,
        options,
    })
}
