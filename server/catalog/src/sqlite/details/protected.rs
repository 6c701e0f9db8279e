//! Bytes protected at the end of each day, for charts: of each VM the latest restore point that was there.
//!
//! Restore points are read VM by VM. Of those of a VM only the ones that may still come to count are kept: each older one is
//! deleted later than the next, so there are a handful, whatever the history.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, Row};

use super::super::convert::{OrCatalogError, bad_value};
use super::super::select::Names;
use super::filter;
use super::sorted::SortRoom;
use super::sums::Group;
use crate::sqlite::convert::day_of;
use crate::{DetailFilter, ProtectedDay, Result, RowStatus, TotalsBy};

/// A restore point that is there or was.
struct Made {
    finished_ms: i64,
    namespace: [u8; 16],
    job: [u8; 16],
    vm: [u8; 16],
    bytes: u64,
    gone: Gone,
}

/// When a restore point was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gone {
    At(i64),
    /// No one knows. It counts until the next one was made; the last of a VM, for a day.
    Unknown,
    Never,
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

    /// When it ceases to count, if no other comes before; never before it was made.
    fn gone_ms(&self) -> i64 {
        match self.gone {
            Gone::At(deleted_ms) => deleted_ms.max(self.finished_ms),
            Gone::Unknown => self.finished_ms.saturating_add(DAY_MS),
            Gone::Never => i64::MAX,
        }
    }
}

const DAY_MS: i64 = 86_400_000;

/// Restore points of a VM in a group, oldest first; the last one counts. Each is gone later than the next.
#[derive(Default)]
struct Stack(Vec<(u64, i64, Gone)>);

impl Stack {
    fn counts(&self) -> u64 {
        self.0.last().map_or(0, |(bytes, ..)| *bytes)
    }

    /// Takes those away that are gone by `until_ms`; tells `change` of each time and difference.
    fn expire(&mut self, until_ms: i64, mut change: impl FnMut(i64, i128)) {
        while let Some((bytes, gone_ms, _)) = self.0.pop_if(|(_, gone_ms, _)| *gone_ms <= until_ms) {
            change(gone_ms, i128::from(self.counts()) - i128::from(bytes));
        }
    }

    fn push(&mut self, made: &Made, mut change: impl FnMut(i64, i128)) {
        if let Some((_, gone_ms, Gone::Unknown)) = self.0.last_mut() {
            *gone_ms = (*gone_ms).max(made.finished_ms);
        }
        self.expire(made.finished_ms.saturating_sub(1), &mut change);
        let (before, gone_ms) = (self.counts(), made.gone_ms());
        while self.0.pop_if(|(_, other_ms, gone)| *other_ms <= gone_ms || *gone == Gone::Unknown).is_some() {}
        self.0.push((made.bytes, gone_ms, made.gone));
        change(made.finished_ms, i128::from(made.bytes) - i128::from(before));
    }
}

/// Differences by day and group, and an object of each group.
#[derive(Default)]
struct Changes {
    days: BTreeMap<(i32, Group), i128>,
    groups: HashMap<Group, [[u8; 16]; 3]>,
    vm: Option<[u8; 16]>,
    /// Restore points of that VM, by group.
    stacks: BTreeMap<Group, Stack>,
}

impl Changes {
    fn add(&mut self, made: &Made, by: TotalsBy) {
        if self.vm.replace(made.vm) != Some(made.vm) {
            self.end_vm();
        }
        let group = made.group(by);
        self.groups.entry(group.clone()).or_insert([made.namespace, made.job, made.vm]);
        let Self { days, stacks, .. } = self;
        stacks.entry(group.clone()).or_default().push(made, note(days, &group));
    }

    fn end_vm(&mut self) {
        for (group, mut stack) in std::mem::take(&mut self.stacks) {
            stack.expire(i64::MAX - 1, note(&mut self.days, &group));
        }
    }
}

fn note(days: &mut BTreeMap<(i32, Group), i128>, group: &Group) -> impl FnMut(i64, i128) {
    move |at_ms, by| *days.entry((day_of(at_ms), group.clone())).or_default() += by
}

/// Implements [`Catalog::protected_days`](crate::Catalog::protected_days).
pub(crate) fn days(
    connection: &Connection,
    asked: &DetailFilter,
    by: TotalsBy,
    room: &SortRoom,
) -> Result<Vec<ProtectedDay>> {
    let names = Names::load(connection)?;
    room.expect(filter::rows_max(connection)?.unsigned_abs())?;
    let mut changes = Changes::default();
    each_restore_point(connection, asked, |made| {
        changes.add(&made, by);
        Ok(())
    })?;
    changes.end_vm();
    let first_day = asked.finished_since_ms.or(asked.since_ms).map_or(i32::MIN, day_of);
    let until_ms = asked.finished_until_ms.or(asked.until_ms);
    let last_day = until_ms.map_or(i32::MAX, |until_ms| day_of(until_ms.saturating_sub(1)));
    let mut sums: HashMap<Group, i128> = HashMap::new();
    // Later entries of a day replace earlier ones: what was before the first day.
    let mut days: BTreeMap<(i32, &str, &str), u64> = BTreeMap::new();
    for ((day, group), difference) in changes.days {
        if day > last_day {
            break;
        }
        let [namespace, job, vm] = changes.groups.get(&group).copied().unwrap_or_default();
        let sum = sums.entry(group).or_default();
        *sum += difference;
        let namespace = if by == TotalsBy::Repository { "" } else { names.namespace(namespace)? };
        let name = match by {
            TotalsBy::Vm => names.vm(vm)?,
            TotalsBy::Job => names.job(job)?,
            _ => "",
        };
        days.insert((day.max(first_day), namespace, name), u64::try_from(*sum).unwrap_or(u64::MAX));
    }
    let tell = |((day, namespace, name), protected_bytes): ((i32, &str, &str), u64)| ProtectedDay {
        day,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        protected_bytes,
    };
    Ok(days.into_iter().map(tell).collect())
}

/// Gives every restore point ever made that matches, whenever it was: VM by VM, in order of its end.
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
    let select = "SELECT made.finished_ms, first.namespace_id, first.job_id, first.vm_id, made.bytes, \
         b.id IS NOT NULL, x.deleted_ms FROM (\
         SELECT d.session_id, max(d.finished_ms) AS finished_ms, sum(d.bytes) AS bytes, min(d.number) AS number \
         FROM details d";
    let end = "GROUP BY d.session_id) made JOIN details first ON first.number = made.number \
         LEFT JOIN backups b ON b.id = first.backup_id LEFT JOIN deleted_backups x ON x.id = first.backup_id \
         ORDER BY first.vm_id, made.finished_ms, made.session_id";
    let read = |row: &Row<'_>| -> rusqlite::Result<Made> {
        let bytes: i64 = row.get(4)?;
        let (is_there, deleted_ms): (bool, Option<i64>) = (row.get(5)?, row.get(6)?);
        Ok(Made {
            finished_ms: row.get(0)?,
            namespace: row.get(1)?,
            job: row.get(2)?,
            vm: row.get(3)?,
            bytes: u64::try_from(bytes).map_err(|cause| bad_value("bytes", cause))?,
            gone: if is_there { Gone::Never } else { deleted_ms.map_or(Gone::Unknown, Gone::At) },
        })
    };
    conditions.each(connection, (select, end), |row| take(read(row).or_error("read")?))
}
