//! Which process holds what, for as long as it says so.

use std::fmt;

use ulid::Ulid;

use crate::Result;
use crate::rows::LeaseRecord;

/// Bytes of a lease's name at most: a namespace's id and a VM's name, or the name of a job, with room to spare.
pub const LEASE_NAME_MAX_BYTES: usize = 512;

/// How far ahead a lease may end: a mistaken time must not block anything for longer.
pub const LEASE_MAX_MS: i64 = 24 * 3_600_000;

/// Locks between processes: a session's VM, a background job that must run once. A lease ends by itself, so a
/// process that died blocks nothing for longer than its last lease.
///
/// Across processes: each call is one transaction, and at most one owner holds a name at a time. "Now" is the
/// catalog's clock: where several processes have clocks of their own, a holder must stop what it does well before
/// its lease ends (by more than the clocks may differ), or an implementation takes the time from its database. A
/// lease only says who may act. What is written under it still needs a transaction that would refuse a second
/// writer, such as [`Backups::commit_backup`](crate::Backups::commit_backup).
pub trait Leases: Send + Sync + fmt::Debug {
    /// Takes `lease`, or moves its end when its owner holds it already. `None`: its owner holds it now. A record:
    /// another does, as told there, and nothing was changed. `Invalid`: an empty or too long name
    /// ([`LEASE_NAME_MAX_BYTES`]), or an end that is past or more than [`LEASE_MAX_MS`] ahead.
    fn acquire_lease(&self, lease: &LeaseRecord) -> Result<Option<LeaseRecord>>;
    /// Moves the end of a lease that its owner still holds. `NotFound`: it has ended, or another owner holds it; what
    /// it protected may have been done by another since. `Invalid` as above.
    fn renew_lease(&self, lease: &LeaseRecord) -> Result<()>;
    /// Gives a lease up. Does nothing when `owner` does not hold it, so repeating it is harmless.
    fn release_lease(&self, name: &str, owner: Ulid) -> Result<()>;
    /// The lease called `name`, if the lease has not ended.
    fn lease(&self, name: &str) -> Result<Option<LeaseRecord>>;
}
