//! The work of a kind of task.

use std::fmt;
use std::num::NonZeroU64;

use holdfast_engine::EngineError;
use holdfast_engine::catalog::{CatalogError, TaskKind, UNFINISHED_TASKS_MAX};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::Settings;
use crate::error::ServiceError;
use crate::jobs::Throttle;
use crate::tasks::control::{Control, Stopped};

/// Reads the options of a task.
///
/// # Errors
/// `Invalid`, saying what is.
pub(super) fn read_options<T: DeserializeOwned>(text: &str) -> Result<T, ServiceError> {
    serde_json::from_str(text).map_err(|error| ServiceError::invalid(format!("options: {error}")))
}

/// Returns options of type `T` in the one form that equal options have, for kinds that check no more.
///
/// # Errors
/// `Invalid`, saying what is.
pub(super) fn normal_options<T: DeserializeOwned + Serialize>(text: &str) -> Result<String, ServiceError> {
    serde_json::to_string(&read_options::<T>(text)?).map_err(ServiceError::defect)
}

/// Input of one attempt.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    /// Options as [`Work::check`] returned them.
    pub(crate) options: String,
    /// Place that the attempt before got to; empty: this is the first, or it got nowhere.
    pub(crate) place: String,
    /// Caller who started the task.
    pub(crate) who: String,
}

/// Why an attempt ended before its work was done.
#[derive(Debug)]
pub(crate) enum WorkError {
    /// It was told to stop.
    Stopped,
    Failed(ServiceError),
}

impl From<Stopped> for WorkError {
    fn from(_: Stopped) -> Self {
        Self::Stopped
    }
}

impl From<ServiceError> for WorkError {
    fn from(error: ServiceError) -> Self {
        Self::Failed(error)
    }
}

impl From<EngineError> for WorkError {
    fn from(error: EngineError) -> Self {
        Self::Failed(error.into())
    }
}

impl From<CatalogError> for WorkError {
    fn from(error: CatalogError) -> Self {
        Self::Failed(error.into())
    }
}

/// A schedule that a kind has beside its own, such as that of one retention policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnSchedule {
    /// Unique among all schedules: the kind's word, `/` and an id.
    pub(crate) name: String,
    pub(crate) expression: String,
    pub(crate) time_zone: String,
    pub(crate) options: String,
}

/// A kind's default schedule: what the server does when no one has set another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultSchedule {
    pub(crate) expression: &'static str,
    pub(crate) enabled: bool,
}

/// Limit of the tasks of a kind that have not ended and have the same value of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Key of an option, as [`Work::check`] returns them. Tasks without it are not counted.
    pub(crate) option: &'static str,
    pub(crate) unfinished_max: usize,
    /// Noun for the option's value in messages.
    pub(crate) what: &'static str,
}

/// A kind of task. One attempt of a kind works at a time, unless it says otherwise.
pub(crate) trait Work: Send + Sync + fmt::Debug {
    fn kind(&self) -> TaskKind;

    /// Attempts that may work at the same time.
    fn at_once(&self) -> usize {
        1
    }

    /// Limit of its tasks that have not ended: less than [`UNFINISHED_TASKS_MAX`] where people start them who must not
    /// keep others from starting theirs.
    fn unfinished_max(&self) -> usize {
        UNFINISHED_TASKS_MAX as usize
    }

    /// Lower limits for tasks that have an option in common: one tenant must not take the places of the others.
    fn shares(&self) -> &'static [Share] {
        &[]
    }

    /// Returns true if what is asked for while a task is under way that does exactly that is this task.
    fn is_shared(&self) -> bool {
        false
    }

    /// The schedule of its kind; `None`: it has none, only [`Work::own_schedules`].
    fn default_schedule(&self) -> Option<DefaultSchedule> {
        None
    }

    /// Schedules that it keeps itself.
    ///
    /// # Errors
    /// When they cannot be looked up now.
    fn own_schedules(&self) -> Result<Vec<OwnSchedule>, ServiceError> {
        Ok(Vec::new())
    }

    /// Reads options, given as JSON; returns them in the one form that equal options have.
    ///
    /// # Errors
    /// `Invalid`, saying what is.
    fn check(&self, options: &str) -> Result<String, ServiceError>;

    /// Does the work, to its end. What was done stays done when it fails, is stopped or the process is killed: a later
    /// attempt with the same order goes on, or begins again without harm.
    ///
    /// # Errors
    /// [`WorkError::Stopped`] when the control said so.
    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError>;
}

/// Limits of each task that runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    idle: Throttle,
    busy: Throttle,
}

impl Limits {
    /// Creates limits without bounds, but with that share while something else is in progress.
    pub(crate) const fn new(bytes_per_sec: Option<NonZeroU64>, share_pct: u32, busy_pct: u32) -> Self {
        let (idle, busy) = (Throttle::share(share_pct), Throttle::share(busy_pct));
        match bytes_per_sec {
            Some(rate) => Self { idle: idle.with_bytes_per_sec(rate), busy: busy.with_bytes_per_sec(rate) },
            None => Self { idle, busy },
        }
    }

    /// Limits from the settings.
    pub(crate) const fn of(settings: &Settings) -> Self {
        let rate = NonZeroU64::new(settings.task_rate.0);
        Self::new(rate, settings.task_share, settings.task_share_busy)
    }

    /// Returns the throttle in force. `busy`: a backup or restore is in progress.
    pub(super) const fn now(&self, busy: bool) -> Throttle {
        if busy { self.busy } else { self.idle }
    }
}
