//! Rows added up per UTC day and group, for charts.

use std::collections::HashMap;

use holdfast_proto::details::Totals;
use rusqlite::Connection;

use super::super::select::Names;
use super::filter;
use super::sums::{self, Group, Reading, RowRefs};
use crate::sqlite::convert::day_of;
use crate::{CatalogError, DAY_GROUPS_MAX, DayTotals, DetailFilter, Result, TotalsBy};

/// In order of day, namespace and name.
pub(crate) fn days(connection: &Connection, filter: &DetailFilter, by: TotalsBy) -> Result<Vec<DayTotals>> {
    let Some(conditions) = filter::of_all(connection, filter)? else { return Ok(Vec::new()) };
    let mut sums: HashMap<(i32, Group), (RowRefs, Totals)> = HashMap::new();
    sums::each(connection, conditions, false, Reading::AsTheyLie, |summand| {
        let key = (day_of(summand.row.finished_ms), summand.group(by));
        let (_, totals) = sums.entry(key).or_insert_with(|| (summand.refs, Totals::default()));
        totals.add(&summand.row);
        if sums.len() <= DAY_GROUPS_MAX {
            return Ok(());
        }
        Err(CatalogError::invalid(format!(
            "the series would have more than {DAY_GROUPS_MAX} sums; ask for fewer days, or for one job or VM"
        )))
    })?;
    let names = Names::load(connection)?;
    let mut days = Vec::with_capacity(sums.len());
    for ((day, _), (refs, sums)) in sums {
        let namespace = if by == TotalsBy::Repository { "" } else { names.namespace(refs.namespace)? };
        let name = match by {
            TotalsBy::Vm => names.vm(refs.vm)?,
            TotalsBy::Job => names.job(refs.job)?,
            _ => "",
        };
        days.push(DayTotals { day, namespace: namespace.to_owned(), name: name.to_owned(), sums });
    }
    days.sort_unstable_by(|a, b| (a.day, &a.namespace, &a.name).cmp(&(b.day, &b.namespace, &b.name)));
    Ok(days)
}
