//! [`Reports`] on SQLite: checks what is asked, and asks on one snapshot.

use holdfast_proto::v1::DetailRow;

use super::SqliteCatalog;
use super::details::sorted::{self, Window};
use super::details::{days, history, totals};
use crate::catalog::{
    DayTotals, DetailEntry, DetailFilter, DetailTotals, Reports, Result, SortOrder, TotalsBy, TotalsOrder,
    laws,
};
use crate::ids::SessionId;

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
}
