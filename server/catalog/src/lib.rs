//! Everything that is not chunk data: namespaces, VMs, jobs, runs, backups and their recipe roots,
//! compression details, containers, tokens and the audit log.
//!
//! [`Catalog`] is one struct on SQLite; its methods are in a file for each noun (`access.rs`, `backups.rs`, …), the SQL and the
//! connections in `sqlite/`. The rows are in `rows/`, as types of this crate; only `wire.rs` turns them into messages of
//! the protocol. The suite in `testing/` holds every method to its description.
//!
//! Invariants:
//! - **One commit, one transaction.** A backup exists with its run, disks, details, containers and audit
//!   entry, or not at all ([`Catalog::commit_backup`]). A crash leaves nothing half-written.
//! - **The numbers add up.** `bytes = unchanged + dup + new` for every row; for every backup, `post_lc` sums
//!   to the data-container bytes and `meta_bytes` to the recipe-container bytes it wrote. What breaks this is refused.
//! - **What was answered is what is reported.** A row of details reads back as it was committed.
//! - **A container number is handed out once**, and never one below a container that exists.
//! - **What a peer can make it write is bounded**: entries of the audit log that repeat within
//!   [`AUDIT_WINDOW_MS`] are counted in one row, rows of failed attempts beyond [`FAILED_ROWS_PER_VM_MAX`] are added up.
//! - Names given by others are checked and texts clipped before they are kept; every list is paged.
//!
//! Rules are checked in `validate.rs`, page tokens are made in `page.rs`.
//!
//! Order against container files: a container is sealed and durable before the catalog names it, and the
//! catalog condemns it before it is unlinked. So containers the catalog does not name are orphans of a
//! crash or an abort, to be adopted with [`Catalog::add_containers`].

mod access;
mod agents;
mod attribution;
mod audit;
mod backups;
mod containers;
mod error;
mod latch;
mod limits;
mod new_id;
mod page;
mod parity;
mod places;
mod points;
mod quotas;
mod reporting;
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

pub use error::{CatalogError, Cause};
pub use latch::{Latch, OwnLatch};
pub use limits::{
    AGENTS_PER_TOKEN_MAX, AHEAD_MS, ARCHIVE_DAYS_MAX, ATTRIBUTED_GROUPS_MAX, AUDIT_KEYS_PER_ACTOR_MAX,
    AUDIT_REPEATS_MAX, AUDIT_WINDOW_MS, BACKUPS_PER_PAGE_MAX, COMMIT_NUMBER_MAX, DAY_GROUPS_MAX,
    DEFAULT_NAMESPACE, DETAILS_PER_PAGE_MAX, EXPIRING_PAYLOAD_MAX_BYTES, EXPIRING_PER_TOKEN_MAX,
    FAILED_ROWS_PER_VM_MAX, FINDINGS_LISTED_MAX, HISTORY_MAX, INTEGRITY_PROBLEMS_MAX, JOBS_PER_NAMESPACE_MAX,
    LISTED_RANGES_MAX, LOCK_CLOCK_CATCH_UP, LOCK_DAYS_MAX, POLICIES_PER_NAMESPACE_MAX, REPORT_PAGE_MAX,
    REPOSITORY_FORMAT, RETENTION_IDS_MAX, RUNS_LISTED_MAX, SCHEDULE_MARKS_MAX, SCHEDULE_TEXT_MAX_BYTES,
    SEARCH_MAX_BYTES, TASK_LINES_MAX, TASK_TEXT_MAX_BYTES, TOKEN_TOUCH_INTERVAL_MS, TREND_POINTS,
    UNFINISHED_TASKS_MAX, VERIFICATIONS_PER_BACKUP_MAX, VMS_PER_NAMESPACE_MAX,
};
pub use new_id::new_id;
pub use page::{Page, PageRequest};
pub use reports::{
    Amounts, BackupCost, ContainerTotals, DayTotals, DetailEntry, DetailSort, DiskOverview, DiskQuery,
    FindingRow, JobOverview, LastRun, LatestBackup, NamespaceOverview, NotAColumn, ProtectedDay,
    RepositoryOverview, RunSums, SortOrder, SortedRows, TotalsBy, TotalsOrder, TotalsSort, VmOverview,
    VmQuery, VmSort, WindowTotals,
};
pub use rows::{
    AgentsProof, AgentsProofs, Attempt, AttributedBy, AttributedDay, AttributedGroup, AttributionRecord,
    AttributionState, AuditEntry, AuditRecord, AuditRepeat, BackupCommit, BackupFilter, BackupInOrder,
    BackupPlaces, BackupRecord, BackupShareRecord, ByteRange, ChunkerParams, CommitState, ContainerRecord,
    ContainerState, CountedShare, DamageChanges, DamageRecord, DamageTotals, DamagedDisk, DeletionRecord,
    DetailFilter, DetailRow, DiskRecord, ExpiringRecord, FailedRun, FalseDigest, LegalHold, LockChange,
    LostRanges, Named, NamedVm, NamespaceQuota, NamespaceRecord, ParityGroup, ParityTotals, PointFate,
    PointRecord, PointState, ProofSummary, Quota, Rename, RepositoryRecord, RetentionLock, RetentionPolicy,
    RootRecord, RowStatus, RunRecord, ScheduleMark, ScheduleRecord, ScrubPhase, ScrubState, Scrubbed,
    SpaceDay, StartAccount, TaskKind, TaskLine, TaskProgress, TaskRecord, TaskStatus, Usage, Verification,
    VmOwner, VmRecord, WithinBackup,
};
pub use sqlite::{Catalog, day_of, discard_copies, give_up_room};
pub use token::{TokenRecord, TokenSpec, VM_PATTERNS_MAX};

/// Namespaces one filter may name.
pub const NAMESPACES_PER_FILTER_MAX: usize = 1000;

/// Result of the catalog's functions.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// Returns true when to go on with what takes long.
pub type GoOn = Box<dyn FnMut() -> bool + Send>;
