//! Bounds on the cost of one client over HTTPS: requests at once, time for each, bytes of an answer in memory, items of
//! a page.
//!
//! The arithmetic, for [`CONNECTIONS_MAX`] connections:
//! * At most [`REQUESTS_MAX`] answers exist at once. The largest, a page of [`DETAILS_PAGE`] rows, is some 4 MiB:
//!   64 × 4 MiB = 256 MiB, if every client asks for the largest page there is.
//! * A download holds [`DOWNLOAD_PAGES`] pages of [`DOWNLOAD_PAGE_ROWS`] rows, some 300 KiB of text each, and one
//!   that is being made: [`DOWNLOADS_MAX`] × 3 × 300 KiB = 7 MiB. A table of a million rows costs no more.
//! * An answer goes to its connection in chunks of [`CHUNK_BYTES`], so a client that stops reading holds one chunk a
//!   stream elsewhere, 256 × [`STREAMS_PER_CONNECTION_MAX`] × 16 KiB = 256 MiB for all of them together, and after
//!   [`READ_DEADLINE`](crate::limits::READ_DEADLINE) its connection is closed.
//! * Event streams are bounded where they are counted (`activity/watch.rs`).

use std::time::Duration;

use holdfast_engine::catalog::REPORT_PAGE_MAX;

/// Connections of browsers and monitoring, whatever `max_connections` allows agents.
pub(crate) const CONNECTIONS_MAX: u32 = 256;

/// Largest body of a request: the largest legitimate one names [`FALSE_DIGESTS_MAX`](holdfast_proto::limits::FALSE_DIGESTS_MAX)
/// extents of disks with the longest names.
pub(crate) const BODY_MAX_BYTES: usize = 128 << 10;

/// Requests answered at once, downloads included; event streams and health checks do not count.
pub(super) const REQUESTS_MAX: usize = 64;

/// Longest time until an answer begins, with the request's body and the wait for a slot.
pub(super) const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Requests of one HTTP/2 connection at once. A browser shows one page.
pub(super) const STREAMS_PER_CONNECTION_MAX: u32 = 64;

/// Bytes of answers that HTTP/1 buffers: a few chunks.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// Bytes of an answer handed to a connection at a time.
pub(super) const CHUNK_BYTES: usize = 16 << 10;

/// Downloads at once, half of them of one token: each holds a thread.
pub(crate) const DOWNLOADS_MAX: usize = 8;

/// Pages of a download between the thread that makes them and the connection.
pub(super) const DOWNLOAD_PAGES: usize = 2;

/// Lines of an answer that wait for the connection.
pub(super) const LINES_WAITING: usize = 2;

/// Rows of compression details in a line: some 300 KiB, and a few MiB with the longest errors.
pub(super) const BATCH_ROWS: u32 = 500;

/// Rows of a download's page.
pub(super) const DOWNLOAD_PAGE_ROWS: u32 = 1000;

/// Groups in a table of totals, which is made whole: some 4 MiB of text.
pub(super) const TABLE_GROUPS_MAX: u64 = 20_000;

/// Items of a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageSize {
    /// Items unless the caller says otherwise.
    pub(super) default: u32,
    pub(super) max: u32,
}

/// Page size of most lists.
pub(super) const PAGE: PageSize = PageSize { default: 100, max: 1000 };

/// Rows of compression details.
pub(super) const DETAILS_PAGE: PageSize = PageSize { default: 200, max: REPORT_PAGE_MAX };

/// Groups of a series.
pub(super) const SERIES_GROUPS: PageSize = PageSize { default: 10, max: 50 };

/// Days of a series unless the caller says otherwise.
pub(super) const SERIES_DAYS: i64 = 90;

/// Days of a series at most: a year and a month.
pub(super) const SERIES_DAYS_MAX: i64 = 400;

/// Days of the repository's history that come with its capacity.
pub(super) const HISTORY_DAYS_MAX: usize = 400;

/// Longest text to search for.
pub(super) const SEARCH_MAX_BYTES: usize = 200;

/// Containers sampled for statistics: some 20 MB of directories.
pub(super) const SAMPLED_CONTAINERS_MAX: usize = 64;

/// Age up to which findings about containers are cached.
pub(super) const STORAGE_CACHE_AGE: Duration = Duration::from_secs(60);

/// Restore points that an explanation compares extents with.
pub(super) const EXTENT_HISTORY: usize = 8;
