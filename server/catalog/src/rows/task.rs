//! Long work that people or schedules start and watch.

use holdfast_proto::api::{TaskKind, TaskProgress, TaskStatus};
use holdfast_types::ids::TaskId;

/// A task and how it went, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRecord {
    pub id: TaskId,
    pub kind: TaskKind,
    pub status: TaskStatus,
    /// A token's name, or who else started it.
    pub who: String,
    /// Set if its schedule started it.
    pub scheduled: bool,
    /// Written and read by its kind; at most [`TASK_TEXT_MAX_BYTES`](crate::TASK_TEXT_MAX_BYTES), as are `place` and
    /// `figures`.
    pub options: String,
    pub created_ms: i64,
    /// Start of its first attempt.
    pub started_ms: Option<i64>,
    /// Set exactly when its status [has ended](TaskStatus::has_ended).
    pub finished_ms: Option<i64>,
    /// Time at which it goes on by itself; `None`: it is not paused.
    pub paused_until_ms: Option<i64>,
    /// Number of attempts begun.
    pub attempts: u32,
    pub progress: TaskProgress,
    /// Where a later attempt goes on; empty: from the beginning.
    pub place: String,
    /// Figures of its result; written by its kind. Empty: none yet.
    pub figures: String,
    /// Why it failed; clipped as every text written by others.
    pub error: String,
}

/// A line of a task's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskLine {
    /// Number of the line, from 1 on; 0 for a line that is to be added.
    pub number: u64,
    pub at_ms: i64,
    /// Clipped as every text written by others.
    pub text: String,
}

/// Schedule of tasks of a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRecord {
    pub kind: TaskKind,
    /// A calendar expression; the catalog does not interpret it. At most
    /// [`SCHEDULE_TEXT_MAX_BYTES`](crate::SCHEDULE_TEXT_MAX_BYTES), as is the time zone.
    pub expression: String,
    /// A name such as `Europe/Berlin`.
    pub time_zone: String,
    /// Options of the tasks it starts.
    pub options: String,
    pub enabled: bool,
    /// Actor that set it.
    pub who: String,
    pub updated_ms: i64,
}

/// Time up to which everything that was due by a schedule has been started, or left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleMark {
    /// A kind's word, or what a kind calls one of several schedules.
    pub name: String,
    pub at_ms: i64,
}
