//! [`Reports`] on SQLite: checks what is asked, and asks on one snapshot of the reports' pool.

use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId, SessionId};

use super::super::connection::open_reader;
use super::super::details::sorted::{self, AllSorted, Window};
use super::super::details::{self, days, history, protected, totals};
use super::super::{BUSY_TIMEOUT, SqliteCatalog, overviews};
use crate::{
    BackupCost, ContainerTotals, DayTotals, DetailEntry, DetailFilter, DetailRow, DetailTotals, DiskOverview,
    DiskQuery, JobOverview, NamespaceOverview, Page, PageRequest, ProtectedDay, Reports, RepositoryOverview,
    Result, SortOrder, SortedRows, TotalsBy, TotalsOrder, VmOverview, VmQuery, validate,
};

impl Reports for SqliteCatalog {
    fn details(&self, filter: &DetailFilter, page: PageRequest<'_>) -> Result<Page<DetailRow>> {
        validate::detail_filter(filter)?;
        self.report(|c| details::list(c, filter, page))
    }

    fn details_sorted(
        &self,
        filter: &DetailFilter,
        order: SortOrder,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<DetailEntry>, u64)> {
        validate::detail_filter(filter)?;
        validate::report_page(limit)?;
        self.report(|c| sorted::page(c, filter, order, Window::new(offset, limit)))
    }

    fn all_sorted(&self, filter: &DetailFilter, order: SortOrder) -> Result<Box<dyn SortedRows>> {
        validate::detail_filter(filter)?;
        Ok(Box::new(AllSorted::new(open_reader(&self.path, BUSY_TIMEOUT)?, filter, order)?))
    }

    fn detail(&self, session: SessionId, position: u32) -> Result<Option<DetailEntry>> {
        self.report(|c| history::one(c, session, position))
    }

    fn detail_history(&self, entry: &DetailEntry, limit: u32) -> Result<Vec<DetailRow>> {
        validate::history(limit)?;
        self.report(|c| history::before(c, entry, limit))
    }

    fn detail_histories(&self, entries: &[DetailEntry], limit: u32) -> Result<Vec<Vec<DetailRow>>> {
        validate::history(limit)?;
        validate::report_page(u32::try_from(entries.len()).unwrap_or(u32::MAX))?;
        self.report(|c| entries.iter().map(|entry| history::before(c, entry, limit)).collect())
    }

    fn detail_totals(
        &self,
        filter: &DetailFilter,
        by: TotalsBy,
        order: TotalsOrder,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<DetailTotals>, u64)> {
        validate::detail_filter(filter)?;
        validate::report_page(limit)?;
        self.report(|c| totals::page(c, filter, by, order, Window::new(offset, limit)))
    }

    fn detail_days(&self, filter: &DetailFilter, by: TotalsBy) -> Result<Vec<DayTotals>> {
        validate::detail_filter(filter)?;
        validate::day_groups(by)?;
        self.report(|c| days(c, filter, by))
    }

    fn protected_days(&self, filter: &DetailFilter, by: TotalsBy) -> Result<Vec<ProtectedDay>> {
        validate::detail_filter(filter)?;
        validate::day_groups(by)?;
        self.report(|c| protected::days(c, filter, by))
    }

    fn vm_overviews(
        &self,
        namespaces: Option<&[NamespaceId]>,
        query: &VmQuery,
    ) -> Result<(Vec<VmOverview>, u64)> {
        validate::scope(namespaces)?;
        validate::search(query.search.as_deref())?;
        validate::report_page(query.limit)?;
        self.report(|c| overviews::vms(c, namespaces, query))
    }

    fn disk_overviews(
        &self,
        namespaces: Option<&[NamespaceId]>,
        query: &DiskQuery,
    ) -> Result<(Vec<DiskOverview>, u64)> {
        validate::scope(namespaces)?;
        validate::report_page(query.limit)?;
        self.report(|c| overviews::disks(c, namespaces, query))
    }

    fn repository_overview(
        &self,
        namespaces: Option<&[NamespaceId]>,
        since_ms: &[Option<i64>],
    ) -> Result<RepositoryOverview> {
        validate::scope(namespaces)?;
        self.report(|c| overviews::repository(c, namespaces, since_ms))
    }

    fn job_overviews(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<JobOverview>> {
        validate::scope(namespaces)?;
        self.report(|c| overviews::jobs(c, namespaces))
    }

    fn namespace_overviews(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<NamespaceOverview>> {
        validate::scope(namespaces)?;
        self.report(|c| overviews::namespaces(c, namespaces))
    }

    fn backup_costs(&self, backups: &[BackupId]) -> Result<Vec<BackupCost>> {
        validate::at_once("backups", backups.len())?;
        self.report(|c| overviews::backup_costs(c, backups))
    }

    fn container_totals(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<ContainerTotals>> {
        validate::scope(namespaces)?;
        self.report(|c| overviews::container_totals(c, namespaces))
    }

    fn sample_containers(&self, class: ContainerClass, max: u32) -> Result<(Vec<ContainerId>, u64)> {
        self.report(|c| overviews::sample_containers(c, class, max))
    }

    fn container_days(&self) -> Result<Vec<(i32, u64)>> {
        self.report(overviews::container_days)
    }
}
