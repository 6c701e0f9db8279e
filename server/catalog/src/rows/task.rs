//! Long work that people or schedules start and watch.

use std::str::FromStr;

use holdfast_types::ids::TaskId;

use crate::CatalogError;

/// Kinds of tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskKind {
    /// Frees what nothing refers to.
    Reclaim,
    /// Proves that what is stored is sound.
    Scrub,
    /// Reads restore points back.
    Verify,
    /// Deletes the restore points that a retention policy does not keep.
    Policy,
    /// Brings back from an archive what a restore needs.
    Thaw,
    /// Compares the bucket with what is known of it.
    Audit,
}

impl TaskKind {
    /// Every kind.
    pub const ALL: [Self; 6] =
        [Self::Reclaim, Self::Scrub, Self::Verify, Self::Policy, Self::Thaw, Self::Audit];

    /// The word that is shown and kept.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Reclaim => "reclaim",
            Self::Scrub => "scrub",
            Self::Verify => "verify",
            Self::Policy => "policy",
            Self::Thaw => "thaw",
            Self::Audit => "audit",
        }
    }
}

impl FromStr for TaskKind {
    type Err = CatalogError;

    fn from_str(text: &str) -> Result<Self, CatalogError> {
        Self::ALL.into_iter().find(|kind| kind.word() == text).ok_or_else(|| {
            CatalogError::invalid(format!(
                "{text:?} is no kind of task: reclaim, scrub, verify, policy, thaw or audit"
            ))
        })
    }
}

/// How far a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskStatus {
    /// Waits for another of its kind.
    Queued,
    Running,
    /// Until it is resumed; a restart of the server does not change that.
    Paused,
    /// The server stopped while it ran; it begins again with the next start.
    Interrupted,
    Done,
    Failed,
    Cancelled,
}

impl TaskStatus {
    /// Every status.
    pub const ALL: [Self; 7] = [
        Self::Queued,
        Self::Running,
        Self::Paused,
        Self::Interrupted,
        Self::Done,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The word that is shown and kept.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Interrupted => "interrupted",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether nothing more will be done.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }
}

/// How much of a task is done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskProgress {
    pub done: u64,
    /// 0: not known.
    pub total: u64,
    /// What is counted, in the plural: `containers`. Empty: nothing is.
    pub unit: String,
}

/// A task and how it went, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRecord {
    pub id: TaskId,
    pub kind: TaskKind,
    pub status: TaskStatus,
    /// A token's name, or who else started it.
    pub who: String,
    /// Whether its schedule started it.
    pub scheduled: bool,
    /// Written and read by its kind; at most [`TASK_TEXT_MAX_BYTES`](crate::TASK_TEXT_MAX_BYTES), as are `place` and
    /// `figures`.
    pub options: String,
    pub created_ms: i64,
    /// When its first attempt began.
    pub started_ms: Option<i64>,
    /// Set exactly when its status [has ended](TaskStatus::has_ended).
    pub finished_ms: Option<i64>,
    /// When it goes on by itself; `None`: it is not paused.
    pub paused_until_ms: Option<i64>,
    /// How often it was begun.
    pub attempts: u32,
    pub progress: TaskProgress,
    /// Where a later attempt goes on; empty: from the beginning.
    pub place: String,
    /// What it came to; written by its kind. Empty: nothing yet.
    pub figures: String,
    /// Why it failed; clipped as every text written by others.
    pub error: String,
}

/// What a task tells while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskLine {
    /// From 1 on; 0 for a line that is to be added.
    pub number: u64,
    pub at_ms: i64,
    /// Clipped as every text written by others.
    pub text: String,
}

/// When tasks of a kind are started by the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRecord {
    pub kind: TaskKind,
    /// A calendar expression; the catalog does not interpret it. At most
    /// [`SCHEDULE_TEXT_MAX_BYTES`](crate::SCHEDULE_TEXT_MAX_BYTES), as is the time zone.
    pub expression: String,
    /// A name such as `Europe/Berlin`.
    pub time_zone: String,
    /// Of the tasks it starts.
    pub options: String,
    pub enabled: bool,
    /// Who set it.
    pub who: String,
    pub updated_ms: i64,
}

/// Up to when everything that was due by a schedule has been started, or left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleMark {
    /// A kind's word, or what a kind calls one of several schedules.
    pub name: String,
    pub at_ms: i64,
}
