//! Decisions about restore points, for the API and for policies that run by schedule: which restore points a call
//! means, what rules keep of them, and the policies themselves. What rules mean is in `holdfast-retention`; what is
//! deleted in which order, and what a lock holds against, in the engine.
//!
//! | file | open it for |
//! |---|---|
//! | `choice` | restore points that a caller names |
//! | `plan` | what rules keep of a VM's restore points |
//! | `policies` | policies: checks, and which of them decides about a restore point |
//! | `run` | rules carried out VM by VM, or only shown |
//!
//! A crash between two VMs leaves some of them decided about and others not: the next run decides again, and what was
//! kept is kept again.

pub(crate) mod choice;
pub(crate) mod plan;
pub(crate) mod policies;
pub(crate) mod run;

#[cfg(test)]
mod tests;

/// Longest reason of a deletion or a hold, in bytes; it is for the audit log.
pub(crate) const REASON_MAX_BYTES: usize = holdfast_proto::limits::REASON_MAX_BYTES;
