//! [`Reports`] on SQLite: checks what is asked, and asks on one snapshot.

use holdfast_proto::v1::DetailRow;
use holdfast_types::ids::{BackupId, ContainerClass, ContainerId, NamespaceId, SessionId};

use super::SqliteCatalog;
use super::details::sorted::{self, Window};
use super::details::{days, history, protected, totals};
use super::overviews;
use crate::{
    BackupCost, ContainerTotals, DayTotals, DetailEntry, DetailFilter, DetailTotals, DiskOverview, DiskQuery,
    JobOverview, NamespaceOverview, ProtectedDay, Reports, Result, SortOrder, TotalsBy, TotalsOrder,
    VmOverview, VmQuery, laws,
};

impl Reports for SqliteCatalog {
    fn details_sorted(
        &self,
        filter: &DetailFilter,
        order: SortOrder,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<DetailEntry>, u64)> {
        laws::detail_filter(filter)?;
        laws::report_page(limit)?;
        self.read(|c| sorted::page(c, filter, order, Window::new(offset, limit)))
    }

    fn detail(&self, session: SessionId, position: u32) -> Result<Option<DetailEntry>> {
        self.read(|c| history::one(c, session, position))
    }

    fn detail_history(&self, entry: &DetailEntry, limit: u32) -> Result<Vec<DetailRow>> {
        laws::history(limit)?;
        self.read(|c| history::before(c, entry, limit))
    }

    fn detail_histories(&self, entries: &[DetailEntry], limit: u32) -> Result<Vec<Vec<DetailRow>>> {
        laws::history(limit)?;
        laws::report_page(u32::try_from(entries.len()).unwrap_or(u32::MAX))?;
        self.read(|c| entries.iter().map(|entry| history::before(c, entry, limit)).collect())
    }

    fn detail_totals(
        &self,
        filter: &DetailFilter,
        by: TotalsBy,
        order: TotalsOrder,
        offset: u64,
        limit: u32,
    ) -> Result<(Vec<DetailTotals>, u64)> {
        laws::detail_filter(filter)?;
        laws::report_page(limit)?;
        self.read(|c| totals::page(c, filter, by, order, Window::new(offset, limit)))
    }

    fn detail_days(&self, filter: &DetailFilter, by: TotalsBy) -> Result<Vec<DayTotals>> {
        laws::detail_filter(filter)?;
        laws::day_groups(by)?;
        self.read(|c| days(c, filter, by))
    }
    fn protected_days(&self, filter: &DetailFilter, by: TotalsBy) -> Result<Vec<ProtectedDay>> {
        laws::detail_filter(filter)?;
        laws::day_groups(by)?;
        self.read(|c| protected::days(c, filter, by))
    }

    fn vm_overviews(
        &self,
        namespaces: Option<&[NamespaceId]>,
        query: &VmQuery,
    ) -> Result<(Vec<VmOverview>, u64)> {
        laws::scope(namespaces)?;
        laws::search(query.search.as_deref())?;
        laws::report_page(query.limit)?;
        self.read(|c| overviews::vms(c, namespaces, query))
    }

    fn disk_overviews(
        &self,
        namespaces: Option<&[NamespaceId]>,
        query: &DiskQuery,
    ) -> Result<(Vec<DiskOverview>, u64)> {
        laws::scope(namespaces)?;
        laws::report_page(query.limit)?;
        self.read(|c| overviews::disks(c, namespaces, query))
    }

    fn job_overviews(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<JobOverview>> {
        laws::scope(namespaces)?;
        self.read(|c| overviews::jobs(c, namespaces))
    }

    fn namespace_overviews(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<NamespaceOverview>> {
        laws::scope(namespaces)?;
        self.read(|c| overviews::namespaces(c, namespaces))
    }

    fn backup_costs(&self, backups: &[BackupId]) -> Result<Vec<BackupCost>> {
        laws::at_once("backups", backups.len())?;
        self.read(|c| overviews::backup_costs(c, backups))
    }

    fn container_totals(&self, namespaces: Option<&[NamespaceId]>) -> Result<Vec<ContainerTotals>> {
        laws::scope(namespaces)?;
        self.read(|c| overviews::container_totals(c, namespaces))
    }

    fn sample_containers(&self, class: ContainerClass, max: u32) -> Result<(Vec<ContainerId>, u64)> {
        self.read(|c| overviews::sample_containers(c, class, max))
    }

    fn container_days(&self) -> Result<Vec<(i32, u64)>> {
        self.read(overviews::container_days)
    }
}
