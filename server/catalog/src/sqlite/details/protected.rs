//! Bytes protected at the end of each day: the latest restore point of each VM, for charts.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Row};

use super::super::convert::{OrCatalogError, bad_value};
use super::super::select::Names;
use super::filter;
use super::sorted::SortRoom;
use super::sums::Group;
use crate::sqlite::convert::day_of;
use crate::{DetailFilter, ProtectedDay, Result, RowStatus, TotalsBy};

/// A restore point.
struct Made {
    finished_ms: i64,
    namespace: [u8; 16],
    job: [u8; 16],
    vm: [u8; 16],
    bytes: u64,
}

impl Made {
    fn group(&self, by: TotalsBy) -> Group {
        match by {
            TotalsBy::Vm => Group::Of(self.vm),
            TotalsBy::Job => Group::Of(self.job),
            TotalsBy::Namespace => Group::Of(self.namespace),
            TotalsBy::Run | TotalsBy::Disk | TotalsBy::Repository => Group::All,
        }
    }
}

/// Implements [`Catalog::protected_days`](crate::Catalog::protected_days).
pub(crate) fn days(
    connection: &Connection,
    asked: &DetailFilter,
    by: TotalsBy,
    room: &SortRoom,
) -> Result<Vec<ProtectedDay>> {
    let names = Names::load(connection)?;
    let mut known: HashMap<(Group, [u8; 16]), u64> = HashMap::new();
    let mut sums: HashMap<Group, u64> = HashMap::new();
    // Later entries of a day replace earlier ones.
    let mut days: BTreeMap<(i32, &str, &str), u64> = BTreeMap::new();
    let first_day = asked.finished_since_ms.or(asked.since_ms).map_or(i32::MIN, day_of);
    room.expect(filter::rows_max(connection)?.unsigned_abs())?;
    each_restore_point(connection, asked, |made| {
        let group = made.group(by);
        let sum = sums.entry(group.clone()).or_default();
        let before = known.insert((group, made.vm), made.bytes).unwrap_or(0);
        *sum = sum.saturating_sub(before).saturating_add(made.bytes);
        let namespace = if by == TotalsBy::Repository { "" } else { names.namespace(made.namespace)? };
        let name = match by {
            TotalsBy::Vm => names.vm(made.vm)?,
            TotalsBy::Job => names.job(made.job)?,
            _ => "",
        };
        days.insert((day_of(made.finished_ms).max(first_day), namespace, name), *sum);
        Ok(())
    })?;
    let tell = |((day, namespace, name), protected_bytes): ((i32, &str, &str), u64)| ProtectedDay {
        day,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        protected_bytes,
    };
    Ok(days.into_iter().map(tell).collect())
}

/// Gives every restore point ever made that matches, whenever it was, in order of its end.
fn each_restore_point(
    connection: &Connection,
    asked: &DetailFilter,
    mut take: impl FnMut(Made) -> Result<()>,
) -> Result<()> {
    let ever = DetailFilter {
        since_ms: None,
        finished_since_ms: None,
        statuses: Some(vec![RowStatus::Done]),
        ..asked.clone()
    };
    let Some(conditions) = filter::of_all(connection, &ever)? else { return Ok(()) };
    // Sorted by SQLite, on the disk if need be. The disks of a session cannot claim more than a sum holds.
    let select = "SELECT made.finished_ms, first.namespace_id, first.job_id, first.vm_id, made.bytes FROM (\
         SELECT d.session_id, max(d.finished_ms) AS finished_ms, sum(d.bytes) AS bytes, min(d.number) AS number \
         FROM details d";
    let end = "GROUP BY d.session_id) made JOIN details first ON first.number = made.number \
         ORDER BY made.finished_ms, made.session_id";
    let read = |row: &Row<'_>| -> rusqlite::Result<Made> {
        let bytes: i64 = row.get(4)?;
        Ok(Made {
            finished_ms: row.get(0)?,
            namespace: row.get(1)?,
            job: row.get(2)?,
            vm: row.get(3)?,
            bytes: u64::try_from(bytes).map_err(|cause| bad_value("bytes", cause))?,
        })
    };
    conditions.each(connection, (select, end), |row| take(read(row).or_error("read")?))
}
