//! Limits of what is kept and of what one call answers.

/// The namespace every repository has from the beginning.
pub const DEFAULT_NAMESPACE: &str = "default";

/// Shortest time between two records of a token's last use.
pub const TOKEN_TOUCH_INTERVAL_MS: i64 = 60_000;

/// Expiring records one token may have at a time; the oldest gives way to a new one. A person has a few
/// browsers; a script that logs in over and over must not fill the catalog.
pub const EXPIRING_PER_TOKEN_MAX: u32 = 64;

/// Longest payload of an expiring record: two secrets of 32 bytes in hexadecimal.
pub const EXPIRING_PAYLOAD_MAX_BYTES: usize = 128;

/// Groups in one answer at most.
pub const ATTRIBUTED_GROUPS_MAX: u32 = 1000;

/// Time that repeated events go on being counted in one entry, from its first: ten minutes.
pub const AUDIT_WINDOW_MS: i64 = 10 * 60_000;

/// Entries one actor can cause with repeated events of one action within [`AUDIT_WINDOW_MS`]: further keys are counted
/// together. A cluster's token backs up hundreds of VMs an hour, each an entry of its own.
pub const AUDIT_KEYS_PER_ACTOR_MAX: usize = 256;

/// Repeats written in one transaction at most.
pub const AUDIT_REPEATS_MAX: usize = 4096;

/// Restore points in one page at most, and when the caller leaves it open.
pub const BACKUPS_PER_PAGE_MAX: u32 = 1000;

pub(crate) const BACKUPS_PER_PAGE: u32 = 100;

/// Verifications kept of one restore point.
pub const VERIFICATIONS_PER_BACKUP_MAX: u32 = 16;

/// The highest commit number: a thousand commits a second for 8,900 years.
pub const COMMIT_NUMBER_MAX: u64 = 1 << 48;

/// VMs of one namespace at most, those of failed attempts included: names are chosen by agents, and each is a row that
/// stays.
pub const VMS_PER_NAMESPACE_MAX: u64 = 10_000;

/// Jobs of one namespace at most; see [`VMS_PER_NAMESPACE_MAX`].
pub const JOBS_PER_NAMESPACE_MAX: u64 = 1_000;

/// Rows of details kept of a VM's attempts that made no restore point: four attempts of 256 disks, or a thousand of one.
/// With more, the oldest half is added up, into one row for each job.
pub const FAILED_ROWS_PER_VM_MAX: u32 = 1024;

/// Restore points that one call deletes, locks, holds or releases at most: each is a few rows of one transaction, which
/// takes about a second then.
pub const RETENTION_IDS_MAX: usize = 10_000;

/// Bytes kept of who deleted a restore point, and why; the audit log has all of it. A million take 300 MB.
pub(crate) const DELETED_BY_MAX_BYTES: usize = 256;

/// Days from now for which anything may be locked: a hundred years. No one can shorten a lock, so a year with a digit
/// too many must not pass.
pub const LOCK_DAYS_MAX: u32 = 36_525;

/// Most days for which a policy may keep data from an archive: a hundred years, which is never.
pub const ARCHIVE_DAYS_MAX: u32 = 36_500;

/// Machines of which the agent of one token is known at most. Each has a token of its own, unless one was handed around.
pub const AGENTS_PER_TOKEN_MAX: u32 = 256;

/// Policies of one namespace at most: every commit looks through them.
pub const POLICIES_PER_NAMESPACE_MAX: u32 = 1000;

/// Factor by which the lock clock runs faster than the monotonic clock while it is behind the time of day.
pub const LOCK_CLOCK_CATCH_UP: i64 = 2;

/// Ranges of one disk kept at most; of more than these only the sums are.
pub const LISTED_RANGES_MAX: usize = 64;

/// Bytes of a task's options, place and figures, each: a list of a thousand ids, and more figures than are read.
pub const TASK_TEXT_MAX_BYTES: usize = 64 << 10;

/// Bytes of a schedule's expression, time zone and name, each.
pub const SCHEDULE_TEXT_MAX_BYTES: usize = 256;

/// Tasks that have not ended, in all: of each kind one works, and a person who starts more than this waits for none.
pub const UNFINISHED_TASKS_MAX: u32 = 64;

/// Lines kept of a task, the newest: at 256 bytes each 256 KiB.
pub const TASK_LINES_MAX: u32 = 1000;

/// Names that [`crate::Catalog::schedule_marks`] may have: one a kind and one a retention policy.
pub const SCHEDULE_MARKS_MAX: u32 = 10_000;

/// Version of the repository as a whole: which files there are and how they belong together. Raised when an
/// older build must not touch a repository although each file's own version is known to it.
pub const REPOSITORY_FORMAT: u32 = 1;

/// Problems [`crate::Catalog::integrity_check`] names at most.
pub const INTEGRITY_PROBLEMS_MAX: u32 = 100;

/// Rows of compression details in one page of [`crate::Catalog::details`] at most, and when the caller leaves it open.
pub const DETAILS_PER_PAGE_MAX: u32 = 10_000;

pub(crate) const DETAILS_PER_PAGE: u32 = 1000;

/// Rows or groups in one page at most.
pub const REPORT_PAGE_MAX: u32 = 2000;

/// Runs that [`crate::Catalog::detail_totals`] lists at most: some 20 MB. Who wants others filters.
pub const RUNS_LISTED_MAX: usize = 20_000;

/// Points of a trend, and earlier rows or runs of a history, at most.
pub const HISTORY_MAX: u32 = 128;

/// Findings listed at most, the latest: some 8 MB.
pub const FINDINGS_LISTED_MAX: u32 = 10_000;

/// A time so much later than now was told by a clock that was ahead, and does not count as the latest. Clocks that are right
/// differ by less.
pub const AHEAD_MS: i64 = 10 * 60_000;

/// Points of the trend of a group of rows.
pub const TREND_POINTS: u32 = 12;

/// Bytes a search text may have: a name's length.
pub const SEARCH_MAX_BYTES: usize = holdfast_proto::limits::NAME_MAX_BYTES;

/// Sums one series may have: 400 days of 250 groups.
pub const DAY_GROUPS_MAX: usize = 100_000;
