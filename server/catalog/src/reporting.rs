//! Reports: compression details, what they add up to, and overviews, asked of the catalog.

use holdfast_proto::api::TotalsRow;

use crate::reports::{
    BackupCost, ContainerTotals, DayTotals, DetailEntry, DiskOverview, DiskQuery, FindingRow, JobOverview,
    NamespaceOverview, ProtectedDay, RepositoryOverview, RunSums, SortOrder, SortedRows, TotalsBy,
    TotalsOrder, VmOverview, VmQuery,
};
use crate::sqlite::connection::open_reader;
use crate::sqlite::details::sorted::{self, AllSorted};
use crate::sqlite::details::{self, days, findings, history, protected, totals};
use crate::sqlite::select::Window;
use crate::sqlite::{self, BUSY_TIMEOUT, Catalog};
use crate::{DetailFilter, DetailRow, GoOn, Page, PageRequest, Result, SpaceDay, validate};
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId, SessionId};

/// `Invalid`, everywhere: more than [`NAMESPACES_PER_FILTER_MAX`](crate::NAMESPACES_PER_FILTER_MAX) namespaces, a limit above
/// [`REPORT_PAGE_MAX`](crate::REPORT_PAGE_MAX), a search text above [`SEARCH_MAX_BYTES`](crate::SEARCH_MAX_BYTES).
///
/// Across processes: each answer is of one moment, whatever is written meanwhile. Answers may take seconds, so
/// connections of their own serve them: access checks and what a commit reads never wait for them.
impl Catalog {
    /// Compression details, oldest first: by start, run, session and disk. `Invalid`: the page token is
    /// not of this list.
    pub fn details(&self, filter: &DetailFilter, page: PageRequest<'_>) -> Result<Page<DetailRow>> {
        validate::detail_filter(filter)?;
        self.report(|c| details::list(c, filter, page))
    }

    /// A page of the rows that match, sorted, and how many match in all.
    pub fn details_sorted(
        &self,
        filter: &DetailFilter,
        order: SortOrder,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<DetailEntry>, u64)> {
        validate::detail_filter(filter)?;
        validate::report_page(limit)?;
        self.report_sorted(|c, room| sorted::page(c, filter, order, Window::new(offset, limit), room))
    }

    /// All rows that match, for one who takes them a page at a time, however slowly. Which they are and their order are
    /// of one moment. Sorting them ends, with an error, when `go_on` says no.
    pub fn all_sorted(
        &self,
        filter: &DetailFilter,
        order: SortOrder,
        go_on: GoOn,
    ) -> Result<Box<dyn SortedRows>> {
        validate::detail_filter(filter)?;
        self.report_apart(|room| {
            let connection = open_reader(&self.path, BUSY_TIMEOUT)?;
            let sorted = AllSorted::new(connection, filter, order, room, go_on)?;
            Ok(Box::new(sorted) as Box<dyn SortedRows>)
        })
    }

    /// One row, if it is there.
    pub fn detail(&self, session: SessionId, position: u32) -> Result<Option<DetailEntry>> {
        self.report(|c| history::one(c, session, position))
    }

    /// Up to `limit` earlier rows of the same disk of the same VM, oldest first, without what has become of their restore points. `Invalid`: `limit` is above
    /// [`crate::HISTORY_MAX`].
    pub fn detail_history(&self, entry: &DetailEntry, limit: u32) -> Result<Vec<DetailRow>> {
        validate::history(limit)?;
        self.report(|c| history::before(c, entry, limit))
    }

    /// [`Catalog::detail_history`] of each of these rows, on one snapshot.
    pub fn detail_histories(&self, entries: &[DetailEntry], limit: u32) -> Result<Vec<Vec<DetailRow>>> {
        validate::history(limit)?;
        validate::report_page(u32::try_from(entries.len()).unwrap_or(u32::MAX))?;
        self.report(|c| entries.iter().map(|entry| history::before(c, entry, limit)).collect())
    }

    /// Up to `limit` runs of the VM that a session backed up, oldest first and that one last; none when it made no restore
    /// point. `Invalid`: `limit` is above [`crate::HISTORY_MAX`].
    pub fn runs_up_to(&self, session: SessionId, limit: u32) -> Result<Vec<RunSums>> {
        validate::history(limit)?;
        // A commit is answered after it, which must not wait for reports.
        self.look_up(|c| findings::runs(c, session, limit))
    }

    /// Keeps what was found of a session, as text of the caller's, in place of what was found of it before.
    pub fn record_finding(&self, session: SessionId, found: &str) -> Result<()> {
        self.write(|tx| findings::record(tx, session, found))
    }

    /// Returns the finding recorded for each of these rows.
    pub fn findings_of(&self, entries: &[DetailEntry]) -> Result<Vec<Option<String>>> {
        self.report(|c| {
            entries.iter().map(|entry| findings::of_row(c, entry.session, entry.position)).collect()
        })
    }

    /// Returns the findings of the rows that match, the latest [`crate::FINDINGS_LISTED_MAX`], latest first.
    pub fn findings(&self, filter: &DetailFilter) -> Result<Vec<FindingRow>> {
        validate::detail_filter(filter)?;
        self.report(|c| findings::list(c, filter))
    }

    /// A page of the sums over the rows that match, sorted, and how many groups there are. Groups that compare
    /// equal are in order of their names; runs, of their time. Of runs, only the first [`crate::RUNS_LISTED_MAX`] are listed;
    /// `Invalid`: a page beyond.
    pub fn detail_totals(
        &self,
        filter: &DetailFilter,
        by: TotalsBy,
        order: TotalsOrder,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<TotalsRow>, u64)> {
        validate::detail_filter(filter)?;
        validate::report_page(limit)?;
        self.report_sorted(|c, room| totals::page(c, filter, by, order, Window::new(offset, limit), room))
    }

    /// The rows that match, added up per day and group, in order of day, namespace and name. Days and groups
    /// without rows are not there. `Invalid`: by run or disk, or more than [`crate::DAY_GROUPS_MAX`] sums.
    pub fn detail_days(&self, filter: &DetailFilter, by: TotalsBy) -> Result<Vec<DayTotals>> {
        validate::detail_filter(filter)?;
        validate::day_groups(by)?;
        self.report(|c| days(c, filter, by))
    }

    /// Returns protected bytes at the end of each day: the bytes of the restore point each VM had finished last by
    /// then, added up per group, in order of day, namespace and name. Only days on which a group's restore
    /// points changed are there; what was protected before the first day asked for is told as of it. Statuses of the
    /// filter do not matter. `Invalid`: by run or disk.
    pub fn protected_days(&self, filter: &DetailFilter, by: TotalsBy) -> Result<Vec<ProtectedDay>> {
        validate::detail_filter(filter)?;
        validate::day_groups(by)?;
        self.report_sorted(|c, room| protected::days(c, filter, by, room))
    }

    /// A page of the VMs that match, and how many match in all.
    pub fn vm_overviews(
        &self,
        namespaces: Option<&[NamespaceId]>,
        query: &VmQuery,
    ) -> Result<(Vec<VmOverview>, u64)> {
        validate::scope(namespaces)?;
        validate::search(query.search.as_deref())?;
        validate::report_page(query.limit)?;
        self.report(|c| sqlite::overviews::vms(c, namespaces, query))
    }

    /// A page of the disks of the VMs' latest restore points, by namespace, VM and place, and how many there
    /// are.
    pub fn disk_overviews(
        &self,
        namespaces: Option<&[NamespaceId]>,
        query: &DiskQuery,
    ) -> Result<(Vec<DiskOverview>, u64)> {
        validate::scope(namespaces)?;
        validate::report_page(query.limit)?;
        self.report(|c| sqlite::overviews::disks(c, namespaces, query))
    }

    /// Returns protected bytes, and bytes written by rows finished since each of these times (`None`: ever), all of one moment.
    pub fn repository_overview(
        &self,
        namespaces: Option<&[NamespaceId]>,
        since_ms: &[Option<i64>],
    ) -> Result<RepositoryOverview> {
        validate::scope(namespaces)?;
        self.report(|c| sqlite::overviews::repository(c, namespaces, since_ms))
    }

    /// Every job, by namespace and name.
    pub fn job_overviews(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<JobOverview>> {
        validate::scope(namespaces)?;
        self.report(|c| sqlite::overviews::jobs(c, namespaces, self.clock.now_ms()))
    }

    /// The namespaces, by name.
    pub fn namespace_overviews(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<NamespaceOverview>> {
        validate::scope(namespaces)?;
        self.report(|c| sqlite::overviews::namespaces(c, namespaces))
    }

    /// Returns the finish of the latest restore point of a namespace finished before `until_ms`; `None`: it has none.
    pub fn newest_restore_point_ms(&self, namespace: NamespaceId, until_ms: i64) -> Result<Option<i64>> {
        self.report(|c| sqlite::overviews::newest_ms(c, namespace, until_ms))
    }

    /// Returns the bytes that each of these backups added, in their order; zeros for one that is not there. `Invalid`: more than
    /// [`BACKUPS_PER_PAGE_MAX`](super::BACKUPS_PER_PAGE_MAX).
    pub fn backup_costs(&self, backups: &[BackupId]) -> Result<Vec<BackupCost>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| sqlite::overviews::backup_costs(c, backups))
    }

    /// The backups among these with a disk that was smaller than before, or gone, as they were told to accept.
    pub fn accepted_changes(&self, backups: &[BackupId]) -> Result<Vec<BackupId>> {
        self.report(|c| sqlite::overviews::accepted_changes(c, backups))
    }

    /// Containers added up by class and state; kinds without containers are not there.
    pub fn container_totals(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<ContainerTotals>> {
        validate::scope(namespaces)?;
        self.report(|c| sqlite::overviews::container_totals(c, namespaces))
    }

    /// Up to `max` live containers of a class, evenly spaced by number, and how many there are.
    pub fn sample_containers(&self, class: ContainerClass, max: u32) -> Result<(Vec<ContainerId>, u64)> {
        self.report(|c| sqlite::overviews::sample_containers(c, class, max))
    }

    /// Replaces what was known of the day.
    pub fn record_space(&self, found: &SpaceDay) -> Result<()> {
        self.write(|tx| sqlite::space_days::record(tx, found))
    }

    /// Space used on the days from `first` to `last` that have a record, in order.
    pub fn space_days(&self, first: i32, last: i32) -> Result<Vec<SpaceDay>> {
        self.report(|c| sqlite::space_days::between(c, first, last))
    }
}
