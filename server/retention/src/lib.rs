//! Retention: which restore points a policy keeps and which rule keeps each, and what a policy would keep over the years.
//! Pure: time, time zone and restore points are passed in, nothing is read or written, so
//! a dry run, a policy and the simulator of the web UI cannot differ.
//!
//! | module | open it for |
//! |---|---|
//! | `decide` | which restore points are kept, and why |
//! | `period` | the hour, day, week, month or year that a moment falls in |
//! | `simulate` | restore points that would exist on each day |
//! | `forecast` | existing restore points that will be gone after some time |
//!
//! Guarantees of [`decide()`]:
//! * A restore point is deleted only when no rule keeps it, and never when it is the newest of those given, the newest
//!   whole one, locked or held.
//! * Without rules everything is kept.
//! * A rule with a greater number keeps at least what it kept with a smaller one.
//! * Deciding again about the kept restore points deletes nothing more.

mod decide;
mod forecast;
mod period;
mod simulate;

pub use decide::{Decision, Reason, RestorePoint, decide};
pub use forecast::{FORECAST_DAYS_MAX, leaving};
pub use period::Period;
pub use simulate::{
    SIMULATED_DAYS_MAX, SIMULATED_ENTRIES_MAX, SIMULATED_RUNS_MAX, SimulateError, SimulatedDay,
    SimulatedPoint, simulate,
};

/// A time zone; [`zone`](holdfast_proto::schedule::zone) finds it by name.
pub use jiff::tz::TimeZone;
