//! Everything that is not chunk data: namespaces, VMs, jobs, runs, backups and their recipe roots,
//! compression details, containers, tokens and the audit log.
//!
//! [`Catalog`] is the interface; [`SqliteCatalog`] is it on SQLite. Any implementation passes the suite in
//! `conformance.rs`.
//!
//! Invariants:
//! - **One commit, one transaction.** A backup exists with its run, disks, details, containers and audit
//!   entry, or not at all ([`Catalog::commit_backup`]). A crash leaves nothing half-written.
//! - **The numbers add up.** `bytes = unchanged + dup + new` for every row; for every backup, `post_lc` sums
//!   to the data-container bytes and `meta_bytes` to the recipe-container bytes it wrote. What breaks this is refused.
//! - **What was answered is what is reported.** A row of details reads back as it was committed.
//! - **A container number is handed out once**, and never one below a container that exists.
//! - Names given by others are checked and texts clipped before they are kept; every list is paged.
//!
//! Order against container files: a container is sealed and durable before the catalog names it, and the
//! catalog condemns it before it is unlinked. So containers the catalog does not name are orphans of a
//! crash or an abort, to be adopted with [`Catalog::add_containers`].

#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod error;
mod laws;
mod mint;
mod page;
mod records;
mod reports;
mod sqlite;
pub mod token;
mod walk;
mod web;

use std::fmt;
use std::ops::Range;

use holdfast_proto::v1;

pub use error::{CatalogError, Cause};
use holdfast_types::ids::{BackupId, ContainerId, NamespaceId, RunId, SessionId, TokenId};
pub use mint::mint_ulid;
pub use page::{Page, PageRequest};
pub use records::{
    Attempt, AuditEntry, AuditRecord, BackupCommit, BackupFilter, BackupRecord, ContainerRecord,
    ContainerState, DamageRecord, DetailFilter, DiskRecord, FailedRun, NamespaceRecord, RepositoryRecord,
    RootRecord, RunRecord, VmRecord,
};
pub use reports::{
    BackupCost, ContainerTotals, DAY_GROUPS_MAX, DayTotals, DetailEntry, DetailSort, DetailTotals,
    DiskOverview, DiskQuery, HISTORY_MAX, JobOverview, LastRun, LatestBackup, NamespaceOverview, NotAColumn,
    ProtectedDay, REPORT_PAGE_MAX, Reports, SEARCH_MAX_BYTES, SortOrder, TREND_POINTS, TotalsBy, TotalsOrder,
    TotalsSort, VmOverview, VmQuery, VmSort,
};
pub use sqlite::SqliteCatalog;
pub use token::{TokenRecord, TokenSpec};
pub use walk::CatalogWalk;
pub use web::{VERIFICATIONS_PER_BACKUP_MAX, Verification, WEB_SESSIONS_PER_TOKEN_MAX, WebSession};

/// The namespace every repository has from the beginning.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Version of the repository as a whole: which files there are and how they belong together. Raised when an
/// older build must not touch a repository although each file's own version is known to it.
pub const REPOSITORY_FORMAT: u32 = 1;

/// Namespaces one filter may name.
pub const NAMESPACES_PER_FILTER_MAX: usize = 1000;

/// Restore points in one page at most, and when the caller leaves it open.
pub const BACKUPS_PER_PAGE_MAX: u32 = 1000;
const BACKUPS_PER_PAGE: u32 = 100;

/// Rows of compression details in one page at most, and when the caller leaves it open.
pub const DETAILS_PER_PAGE_MAX: u32 = 10_000;
const DETAILS_PER_PAGE: u32 = 1000;

/// How often a token's last use is written down at most.
pub const TOKEN_TOUCH_INTERVAL_MS: i64 = 60_000;

/// What a function of the catalog gives.
pub type Result<T> = std::result::Result<T, CatalogError>;

/// The catalog of one repository. Thread-safe; several processes may have it open. Any function can fail
/// with [`CatalogError::Busy`], [`CatalogError::Io`] or [`CatalogError::Corrupt`], and any that writes with
/// [`CatalogError::Full`]; what else one can fail with is said with it. What failed changed nothing.
///
/// Questions for tables and charts are in [`Reports`], which every catalog is.
pub trait Catalog: Reports + Send + Sync + fmt::Debug {
    /// The repository's own record.
    fn repository(&self) -> Result<RepositoryRecord>;

    /// The namespace of this name, created when there is none. `Invalid`: not a name.
    fn ensure_namespace(&self, name: &str) -> Result<NamespaceRecord>;
    /// The namespace `id`, if there is one.
    fn namespace(&self, id: NamespaceId) -> Result<Option<NamespaceRecord>>;
    /// The namespace called `name`, if there is one.
    fn namespace_by_name(&self, name: &str) -> Result<Option<NamespaceRecord>>;
    /// All namespaces, by name.
    fn namespaces(&self) -> Result<Vec<NamespaceRecord>>;

    /// Hands out `count` container numbers, durably: never again, whatever happens. `Invalid`: there are
    /// not so many left.
    fn reserve_container_numbers(&self, count: u32) -> Result<Range<u64>>;
    /// Makes containers known that no backup brought: orphans found at start or left by an abort. One
    /// that is known already is left as it is; a run that is not recorded is dropped from the record.
    /// `Invalid`: known already as something else. `NotFound`: no such namespace.
    fn add_containers(&self, containers: &[ContainerRecord]) -> Result<()>;
    /// The container `id`, if known.
    fn container(&self, id: ContainerId) -> Result<Option<ContainerRecord>>;
    /// Up to `limit` containers after `after`, by number; see [`CatalogWalk::all_containers`].
    fn containers(&self, after: Option<ContainerId>, limit: u32) -> Result<Vec<ContainerRecord>>;
    /// Marks a container unusable. The first reason given is kept. `NotFound`: no such container.
    fn mark_container_damaged(&self, id: ContainerId, reason: &str) -> Result<()>;
    /// Marks one region unusable; the container stays live. As [`Catalog::mark_container_damaged`].
    fn mark_region_damaged(&self, id: ContainerId, region: u16, reason: &str) -> Result<()>;
    /// All damage known, by container and region.
    fn damaged(&self) -> Result<Vec<DamageRecord>>;
    /// Forgets all damage of a container, after a repair or a check that found none. `NotFound`: no such
    /// container.
    fn clear_damage(&self, id: ContainerId) -> Result<()>;

    /// Makes a backup exist, in one transaction, with all that belongs to it. Repeating it with the same
    /// backup and session does nothing. `NotFound`: no such namespace. `Exists`: the backup is another
    /// session's, or the session has ended otherwise. `Invalid`: the commit contradicts itself, the laws
    /// above, or the run it joins.
    fn commit_backup(&self, commit: &BackupCommit) -> Result<()>;
    /// Records an attempt no backup came of, in one transaction. Repeating it does nothing. `NotFound`,
    /// `Invalid` as above; `Exists`: the session has made a backup.
    fn record_failed_run(&self, failed: &FailedRun) -> Result<()>;
    /// The run `id`, if recorded.
    fn run(&self, id: RunId) -> Result<Option<RunRecord>>;

    /// The backup `id`, if there is one.
    fn backup(&self, id: BackupId) -> Result<Option<BackupRecord>>;
    /// The backup that `session` made, if it did.
    fn backup_by_session(&self, session: SessionId) -> Result<Option<BackupRecord>>;
    /// The backup of this VM committed last.
    fn latest_backup(&self, namespace: NamespaceId, vm: &str) -> Result<Option<BackupRecord>>;
    /// Up to `limit` backups of the same VM that were committed before this one, newest first; none when it
    /// is not there.
    fn backups_before(&self, id: BackupId, limit: u32) -> Result<Vec<BackupRecord>>;
    /// Backups whose ULID begins with `id_prefix` (upper or lower case), oldest first, at most `limit`.
    /// `Invalid`: not the beginning of a ULID.
    fn find_backups(&self, namespace: NamespaceId, id_prefix: &str, limit: u32) -> Result<Vec<BackupRecord>>;
    /// Backups, newest first. `Invalid`: the page token is not of this list.
    fn list_backups(&self, filter: &BackupFilter, page: PageRequest<'_>) -> Result<Page<BackupRecord>>;
    /// VMs by name, those of one name by the age of their namespaces, with their number of backups. `namespaces` and `Invalid` as in [`BackupFilter`] and
    /// [`Catalog::list_backups`].
    fn list_vms(&self, namespaces: Option<&[NamespaceId]>, page: PageRequest<'_>) -> Result<Page<VmRecord>>;
    /// Up to `limit` recipe roots after the given disk, by backup and position; see
    /// [`CatalogWalk::all_roots`].
    fn roots(&self, after: Option<(BackupId, u32)>, limit: u32) -> Result<Vec<RootRecord>>;

    /// Compression details, oldest first: by start, run, session and disk. `Invalid`: the page token is
    /// not of this list.
    fn details(&self, filter: &DetailFilter, page: PageRequest<'_>) -> Result<Page<v1::DetailRow>>;

    /// Keeps a token minted by [`token::mint`]. `Exists`: the name is taken. `NotFound`: a namespace of its
    /// scope is not there. `Invalid`: see [`TokenSpec`].
    fn create_token(&self, spec: &TokenSpec, secret_hash: &[u8; 32]) -> Result<TokenRecord>;
    /// The token `id` and the hash of its secret, if there is one; also when revoked or expired.
    fn token(&self, id: TokenId) -> Result<Option<(TokenRecord, [u8; 32])>>;
    /// All tokens, oldest first, revoked ones included.
    fn list_tokens(&self) -> Result<Vec<TokenRecord>>;
    /// Ends a token, for good, and every login with it. Repeating it does nothing. `NotFound`: no such
    /// token.
    fn revoke_token(&self, id: TokenId) -> Result<()>;
    /// Notes that a token was used, at most once in [`TOKEN_TOUCH_INTERVAL_MS`]. `NotFound`: no such token.
    fn touch_token(&self, id: TokenId) -> Result<()>;

    /// Keeps a login. At [`WEB_SESSIONS_PER_TOKEN_MAX`] of one token the oldest gives way. `Exists`: the
    /// cookie has one already. `NotFound`: no such token. `Invalid`: no or too long a CSRF secret, or it has
    /// ended before it began.
    fn create_web_session(&self, session: &WebSession) -> Result<()>;
    /// The login of a cookie, unless it has ended. Whether its token may still be used is for the caller to
    /// ask.
    fn web_session(&self, id_hash: &[u8; 32]) -> Result<Option<WebSession>>;
    /// Moves a login's end. `NotFound`: there is none, it has ended, or would have before it began.
    fn extend_web_session(&self, id_hash: &[u8; 32], expires_ms: i64) -> Result<()>;
    /// Ends a login. Repeating it does nothing.
    fn delete_web_session(&self, id_hash: &[u8; 32]) -> Result<()>;
    /// Drops logins that have ended by `now_ms`; says how many.
    fn prune_web_sessions(&self, now_ms: i64) -> Result<u64>;

    /// Notes what verifying a restore point found, in the audit log, too. The latest
    /// [`VERIFICATIONS_PER_BACKUP_MAX`] are kept. `NotFound`: no such backup.
    fn record_verification(&self, verification: &Verification) -> Result<()>;
    /// The verification recorded last of each of these backups that has one, in their order. `Invalid`: more
    /// than [`BACKUPS_PER_PAGE_MAX`].
    fn verifications(&self, backups: &[BackupId]) -> Result<Vec<Verification>>;

    /// Adds to the audit log.
    fn audit(&self, entry: &AuditEntry) -> Result<()>;
    /// The audit log, newest first. `Invalid`: the page token is not of this list.
    fn list_audit(&self, page: PageRequest<'_>) -> Result<Page<AuditRecord>>;

    /// Checks the database and its references; says what is wrong, at most
    /// [`INTEGRITY_PROBLEMS_MAX`] problems. Empty: sound. Reads everything.
    fn integrity_check(&self) -> Result<Vec<String>>;
    /// Bytes the database takes up, its log aside.
    fn size_bytes(&self) -> Result<u64>;
    /// Folds the log into the database; also done when the catalog is dropped. Readers and writers go on.
    fn checkpoint(&self) -> Result<()>;
}

/// Problems [`Catalog::integrity_check`] names at most.
pub const INTEGRITY_PROBLEMS_MAX: u32 = 100;
