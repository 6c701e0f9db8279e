//! Reclaim: frees the space of data that nothing refers to.
//!
//! A round looks at containers in windows, so that its memory is bounded however much is stored: [`roots`] says what
//! counts, the [`mark`] walks it and says which chunks of a window's containers are [live](live), and what is left of
//! sparse containers is copied forward before they are deleted. [`control`] lets people watch, slow down, pause and
//! stop all of it.
//!
//! Invariants:
//! - Nothing here is kept over a restart: a mark is made anew, and a container that went is gone.
//! - A mark never says that something is dead which a root refers to; where it cannot tell, it says so
//!   (incomplete), and nothing of that namespace is removed.

pub(crate) mod attribution;
pub(crate) mod control;
pub(crate) mod live;
pub(crate) mod mark;
mod owners;
mod pipeline;
pub(crate) mod places;
mod plan;
pub(crate) mod repack;
mod report;
pub(crate) mod roots;
mod round;
mod sweep;
#[cfg(test)]
mod tests;
mod tiering;
mod trail;

pub use attribution::{Attribution, BackupShare};
pub use control::{Control, Phase};
pub(crate) use owners::mix;
#[cfg(test)]
pub(crate) use report::RoundStep;
pub(crate) use report::freed_by_deleting;
pub use report::{Freed, Freezing, FreezingRule, Incomplete, Moving, ReclaimOptions, ReclaimReport, Squeeze};
pub(crate) use round::{Rounds, run};
#[cfg(test)]
pub(crate) use round::{check_ready, run_watched};
