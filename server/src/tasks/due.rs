//! What is due. Pure, but for the calendar.

use holdfast_engine::catalog::{ScheduleMark, TaskKind};

use super::calendar;
use crate::error::ServiceError;

/// A mark that is this far ahead is from before the clock was set back. Less than that may be a correction of the clock
/// just after a task was started, which must not start it again.
const AHEAD_MAX_MS: i64 = 3_600_000;

/// What is started by the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Of its mark.
    pub(crate) name: String,
    pub(crate) kind: TaskKind,
    pub(crate) expression: String,
    pub(crate) time_zone: String,
    pub(crate) options: String,
}

/// What to do about a plan now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It is its time, or was while the server did not run: however often, once. The mark to move with it.
    Now(ScheduleMark),
    /// Nothing is known of it before this moment: what is due is what comes from now on.
    Begin(ScheduleMark),
    Later,
}

/// Whether `plan` is due, everything up to `mark` done.
///
/// # Errors
/// `Invalid`: the expression or the time zone cannot be read.
pub(super) fn due(plan: &Plan, mark: Option<&ScheduleMark>, now_ms: i64) -> Result<Due, ServiceError> {
    let moved = ScheduleMark { name: plan.name.clone(), at_ms: now_ms };
    let Some(mark) = mark.filter(|mark| mark.at_ms.saturating_sub(now_ms) <= AHEAD_MAX_MS) else {
        return Ok(Due::Begin(moved));
    };
    let next = calendar::next(&plan.expression, &plan.time_zone, mark.at_ms)?;
    Ok(if next.is_some_and(|next| next <= now_ms) { Due::Now(moved) } else { Due::Later })
}
