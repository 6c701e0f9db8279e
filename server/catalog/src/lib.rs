//! Everything that is not chunk data: namespaces, VMs, jobs, runs, backups and their recipe roots,
//! compression details, containers, tokens and the audit log.
//!
//! [`Catalog`] is the interface, put together from one trait for each kind of caller: [`Backups`],
//! [`Points`], [`Trust`], [`Containers`], [`Scrubs`], [`Parities`], [`Attributions`], [`Places`], [`Access`], [`Quotas`],
//! [`Leases`], [`Audit`], [`Reports`], [`Retention`], [`Tasks`], [`Upkeep`]. [`SqliteCatalog`] implements it on
//! SQLite; every implementation passes the suite in `testing/`. What is kept is in `rows/`, as types of this
//! crate; only `wire.rs` turns them into messages of the protocol.
//!
//! Invariants:
//! - **One commit, one transaction.** A backup exists with its run, disks, details, containers and audit
//!   entry, or not at all ([`Backups::commit_backup`]). A crash leaves nothing half-written.
//! - **The numbers add up.** `bytes = unchanged + dup + new` for every row; for every backup, `post_lc` sums
//!   to the data-container bytes and `meta_bytes` to the recipe-container bytes it wrote. What breaks this is refused.
//! - **What was answered is what is reported.** A row of details reads back as it was committed.
//! - **A container number is handed out once**, and never one below a container that exists.
//! - **What a peer can make it write is bounded**: entries of the audit log that repeat within
//!   [`AUDIT_WINDOW_MS`] are counted in one row, rows of failed attempts beyond [`FAILED_ROWS_PER_VM_MAX`] are added up.
//! - Names given by others are checked and texts clipped before they are kept; every list is paged.
//!
//! Another database is a folder beside `sqlite/` (connections, schema, a file for each trait) and a test that runs
//! the suite on it. Rules are checked in `validate.rs`, page tokens are made in `page.rs`: both are for every
//! implementation.
//!
//! Order against container files: a container is sealed and durable before the catalog names it, and the
//! catalog condemns it before it is unlinked. So containers the catalog does not name are orphans of a
//! crash or an abort, to be adopted with [`Containers::add_containers`].

mod access;
mod attribution;
mod audit;
mod backups;
mod containers;
mod error;
mod latch;
mod leases;
mod new_id;
mod page;
mod parity;
mod places;
mod points;
mod quotas;
mod reports;
mod retention;
mod rows;
mod scrub;
mod sqlite;
mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod token;
mod trust;
mod upkeep;
mod validate;
mod walk;
mod wire;

pub use access::{
    Access, DEFAULT_NAMESPACE, EXPIRING_PAYLOAD_MAX_BYTES, EXPIRING_PER_TOKEN_MAX, TOKEN_TOUCH_INTERVAL_MS,
};
pub use attribution::{ATTRIBUTED_GROUPS_MAX, Attributions};
pub use audit::{AUDIT_KEYS_PER_ACTOR_MAX, AUDIT_REPEATS_MAX, AUDIT_WINDOW_MS, Audit};
pub use backups::{BACKUPS_PER_PAGE_MAX, Backups, VERIFICATIONS_PER_BACKUP_MAX};
pub use containers::Containers;
pub use error::{CatalogError, Cause};
pub use latch::{Latch, OwnLatch};
pub use leases::{LEASE_MAX_MS, LEASE_NAME_MAX_BYTES, Leases};
pub use new_id::new_id;
pub use page::{Page, PageRequest};
pub use parity::Parities;
pub use places::Places;
pub use points::{COMMIT_NUMBER_MAX, Points};
pub use quotas::{FAILED_ROWS_PER_VM_MAX, JOBS_PER_NAMESPACE_MAX, Quotas, VMS_PER_NAMESPACE_MAX};
pub use reports::{
    BackupCost, ContainerTotals, DAY_GROUPS_MAX, DETAILS_PER_PAGE_MAX, DayTotals, DetailEntry, DetailSort,
    DetailTotals, DiskOverview, DiskQuery, HISTORY_MAX, JobOverview, LastRun, LatestBackup,
    NamespaceOverview, NotAColumn, ProtectedDay, REPORT_PAGE_MAX, Reports, RepositoryOverview,
    SEARCH_MAX_BYTES, SortOrder, SortedRows, TREND_POINTS, TotalsBy, TotalsOrder, TotalsSort, VmOverview,
    VmQuery, VmSort, WindowTotals,
};
pub use retention::{
    ARCHIVE_DAYS_MAX, LOCK_CLOCK_CATCH_UP, LOCK_DAYS_MAX, POLICIES_PER_NAMESPACE_MAX, RETENTION_IDS_MAX,
    Retention,
};
pub use rows::{
    AgentsProof, AgentsProofs, Attempt, AttributedBy, AttributedGroup, AttributionRecord, AttributionState,
    AuditEntry, AuditRecord, AuditRepeat, BackupCommit, BackupFilter, BackupInOrder, BackupPlaces,
    BackupRecord, BackupShareRecord, ByteRange, ChunkerParams, CommitState, ContainerRecord, ContainerState,
    DamageChanges, DamageRecord, DamageTotals, DamagedDisk, DeletionRecord, DetailFilter, DetailRow,
    DiskRecord, ExpiringRecord, FailedRun, FalseDigest, LeaseRecord, LegalHold, LockChange, LostRanges,
    Named, NamedVm, NamespaceQuota, NamespaceRecord, ParityGroup, ParityTotals, PointRecord, PointState,
    ProofSummary, Quota, Rename, RepositoryRecord, RetentionLock, RetentionPolicy, RootRecord, RowStatus,
    RunRecord, ScheduleMark, ScheduleRecord, ScrubPhase, ScrubState, Scrubbed, StartAccount, TaskKind,
    TaskLine, TaskProgress, TaskRecord, TaskStatus, Usage, Verification, VmOwner, VmRecord, WithinBackup,
};
pub use scrub::{LISTED_RANGES_MAX, Scrubs};
pub use sqlite::{SqliteCatalog, discard_copies, give_up_room};
pub use tasks::{
    SCHEDULE_MARKS_MAX, SCHEDULE_TEXT_MAX_BYTES, TASK_LINES_MAX, TASK_TEXT_MAX_BYTES, Tasks,
    UNFINISHED_TASKS_MAX,
};
pub use token::{TokenRecord, TokenSpec, VM_PATTERNS_MAX};
pub use trust::Trust;
pub use upkeep::{GoOn, INTEGRITY_PROBLEMS_MAX, REPOSITORY_FORMAT, Upkeep};
pub use walk::CatalogWalk;

/// Namespaces one filter may name.
pub const NAMESPACES_PER_FILTER_MAX: usize = 1000;

/// What a function of the catalog gives.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// The catalog of one repository. Thread-safe; several processes may have it open, and each part says which of
/// its calls are atomic between them. Any function can fail with [`CatalogError::Busy`], [`CatalogError::Io`] or
/// [`CatalogError::Corrupt`], and any that writes with [`CatalogError::Full`], [`CatalogError::WriteFailed`] and,
/// once its [`Latch`] has a reason, [`CatalogError::ReadOnly`]; what else one can fail with is
/// said with it. What failed changed nothing,
/// except after [`CatalogError::WriteFailed`], when that is unknown.
///
/// Everything that implements the parts is a catalog. A caller that needs one part only can ask for that one.
pub trait Catalog:
    Backups
    + Points
    + Trust
    + Containers
    + Scrubs
    + Parities
    + Attributions
    + Places
    + Access
    + Quotas
    + Leases
    + Audit
    + Reports
    + Retention
    + Tasks
    + Upkeep
{
}

impl<
    C: Backups
        + Points
        + Trust
        + Containers
        + Attributions
        + Places
        + Scrubs
        + Parities
        + Access
        + Quotas
        + Leases
        + Audit
        + Tasks
        + Reports
        + Retention
        + Upkeep
        + ?Sized,
> Catalog for C
{
}
