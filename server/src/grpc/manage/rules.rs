//! Rules over VMs: forget, and policies carried out.

use holdfast_engine::catalog::token::Action;
use holdfast_proto::limits::{DECISIONS_PER_MESSAGE, FORGET_VMS_MAX, check_name};
use holdfast_proto::v1::{self, forget_response::Kind};
use holdfast_retention::zone;

use super::stream::Answer;
use super::wire;
use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::retention::plan::Decided;
use crate::retention::run::{Subject, Work, run, run_shown};
use crate::retention::{choice, freed, policies};

/// Restore points, and VMs, that a summary names at most.
const NAMED_MAX: usize = 1000;

type Forgotten = Answer<v1::ForgetResponse>;

/// Rules that the caller makes up: to delete by them is deleting by hand.
pub(super) fn forget(
    app: &App,
    caller: &Caller,
    message: v1::ForgetRequest,
    answer: &Forgotten,
) -> Result<(), ServiceError> {
    let action = if message.dry_run { Action::Operate } else { Action::Retain };
    let namespace = caller.namespace(app.catalog(), &message.namespace, action)?;
    choice::check_reason(&message.reason, false)?;
    if message.vms.is_empty() || message.vms.len() > FORGET_VMS_MAX {
        let count = message.vms.len();
        return Err(ServiceError::invalid(format!("name 1 to {FORGET_VMS_MAX} VMs, not {count}")));
    }
    for vm in &message.vms {
        check_name("VM", vm).map_err(ServiceError::invalid)?;
        caller.check_vm(vm)?;
    }
    if !message.job.is_empty() {
        check_name("job", &message.job).map_err(ServiceError::invalid)?;
    }
    let rules = wire::rules(message.rules);
    rules.validate().map_err(|error| ServiceError::invalid(error.to_string()))?;
    let zone = zone(&message.time_zone).map_err(|error| ServiceError::invalid(error.to_string()))?;
    let mut vms = message.vms;
    vms.sort_unstable();
    vms.dedup();
    let reason = if message.reason.is_empty() {
        format!("forget: {rules}")
    } else {
        format!("{}: {rules}", message.reason)
    };
    let work = Work {
        namespace: namespace.id,
        subject: Subject::Vms { vms, job: Some(message.job).filter(|job| !job.is_empty()) },
        rules,
        zone,
        dry_run: message.dry_run,
        who: caller.token.name.clone(),
        reason,
    };
    carry_out(app, work, "", message.without_bytes, answer)
}

#[expect(clippy::needless_pass_by_value, reason = "every call is handled alike")]
pub(super) fn run_policy(
    app: &App,
    caller: &Caller,
    message: v1::RunPolicyRequest,
    answer: &Forgotten,
) -> Result<(), ServiceError> {
    let namespace = caller.namespace(app.catalog(), &message.namespace, Action::Operate)?;
    let policy = policies::of_name(app.catalog(), namespace.id, &message.name)?;
    policies::check_scope(caller, &policy)?;
    let work = Work::of_policy(app.catalog(), &policy, &caller.token.name, message.dry_run)?;
    carry_out(app, work, &message.plan, message.without_bytes, answer)
}

fn carry_out(
    app: &App,
    mut work: Work,
    plan: &str,
    without_bytes: bool,
    answer: &Forgotten,
) -> Result<(), ServiceError> {
    let mut tell = |decided: &[Decided]| {
        decided.chunks(DECISIONS_PER_MESSAGE).all(|some| {
            let decisions = some.iter().map(wire::decision).collect();
            answer.send(v1::ForgetResponse { kind: Some(Kind::Decisions(v1::Decisions { decisions })) })
        })
    };
    let stop = || answer.is_over();
    let outcome = if plan.is_empty() || work.dry_run {
        run(&app.engine, &work, &stop, &mut tell)?
    } else {
        run_shown(&app.engine, &mut work, plan, &stop, &mut tell)?
    };
    if outcome.deleted > 0 && !work.dry_run {
        app.activity.note(Change::Backup);
    }
    let freed_bytes = if work.dry_run && !without_bytes && !answer.is_over() {
        freed::by_deleting(&app.engine, &outcome.doomed, &|| answer.is_over())?
    } else {
        None
    };
    let summary = v1::ForgetSummary {
        plan: if work.dry_run { work.plan(&outcome.doomed) } else { String::new() },
        kept: outcome.kept,
        deleted: outcome.deleted,
        freed_bytes,
        vms: outcome.vms,
        refused: outcome.refused.len() as u64,
        refused_backups: outcome.refused.iter().take(NAMED_MAX).map(ToString::to_string).collect(),
        skipped_vms: outcome.skipped.into_iter().take(NAMED_MAX).collect(),
    };
    answer.send(v1::ForgetResponse { kind: Some(Kind::Summary(summary)) });
    Ok(())
}
