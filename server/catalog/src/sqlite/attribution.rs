//! Attribution of live bytes.

use std::collections::BTreeMap;

use holdfast_types::ids::{BackupId, NamespaceId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::convert::{OrCatalogError, count, day_of, id, int};
use super::details::sorted::SortRoom;
use super::select::Conditions;
use crate::{
    ATTRIBUTED_GROUPS_MAX, AttributedBy, AttributedDay, AttributedGroup, AttributionRecord, AttributionState,
    BackupShareRecord, CountedShare, Result,
};

/// Number of days that are kept one by one; of older ones the last of each of so many weeks, for a year.
const DAILY: usize = 60;
const WEEKS: u32 = 44;

pub(crate) fn record(tx: &Transaction<'_>, found: &AttributionRecord) -> Result<()> {
    tx.execute_batch("DELETE FROM attributed_backups; DELETE FROM attribution;").or_error("write")?;
    tx.execute(
        "INSERT INTO attribution (only_row, at_ms, live_bytes, complete) VALUES (1, ?, ?, ?)",
        params![found.at_ms, int("the sum of live bytes", found.live_bytes)?, found.is_complete],
    )
    .or_error("write")?;
    let mut sums = Sums::default();
    let mut find =
        tx.prepare_cached("SELECT namespace_id, vm_id, job_id FROM backups WHERE id = ?").or_error("read")?;
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO attributed_backups (backup_id, exclusive_bytes, attributed_bytes) VALUES (?, ?, ?)",
        )
        .or_error("write")?;
    for BackupShareRecord { backup, exclusive_bytes, attributed_bytes } in &found.backups {
        let read = |row: &Row<'_>| Ok([row.get(0)?, row.get(1)?, row.get(2)?]);
        // One that has gone since is left out.
        let Some(of) = find.query_row([backup.to_bytes()], read).optional().or_error("read")? else {
            continue;
        };
        let (exclusive, attributed) =
            (int("exclusive bytes", *exclusive_bytes)?, int("attributed bytes", *attributed_bytes)?);
        insert.execute(params![backup.to_bytes(), exclusive, attributed]).or_error("write")?;
        sums.add(of, *attributed_bytes);
    }
    for (vm, bytes) in &found.vms {
        sums.is_only_in((AttributedBy::Vm, vm.to_bytes()), *bytes);
    }
    for (namespace, job, bytes) in &found.jobs {
        if let Some(job) = job_id(tx, *namespace, job)? {
            sums.is_only_in((AttributedBy::Job, job), *bytes);
        }
    }
    sums.write(tx, day_of(found.at_ms))
}

fn job_id(connection: &Connection, namespace: NamespaceId, name: &str) -> Result<Option<[u8; 16]>> {
    connection
        .prepare_cached("SELECT id FROM jobs WHERE namespace_id = ? AND name = ?")
        .and_then(|mut s| s.query_row(params![namespace.to_bytes(), name], |row| row.get(0)).optional())
        .or_error("read")
}

/// Restore points, and bytes that are exclusive and attributed, by subject.
#[derive(Default)]
struct Sums(BTreeMap<(AttributedBy, [u8; 16]), (u64, u64, u64)>);

impl Sums {
    /// A restore point's share is that of its namespace, VM and job.
    fn add(&mut self, [namespace, vm, job]: [[u8; 16]; 3], bytes: u64) {
        for subject in
            [(AttributedBy::Namespace, namespace), (AttributedBy::Vm, vm), (AttributedBy::Job, job)]
        {
            let (points, exclusive, attributed) = self.0.entry(subject).or_default();
            *points += 1;
            *attributed += bytes;
            // Namespaces share nothing.
            *exclusive += if subject.0 == AttributedBy::Namespace { bytes } else { 0 };
        }
    }

    fn is_only_in(&mut self, subject: (AttributedBy, [u8; 16]), bytes: u64) {
        if let Some((_, exclusive, _)) = self.0.get_mut(&subject) {
            *exclusive = bytes;
        }
    }

    /// Writes the sums as those of `day`, in place of what was found on it before.
    fn write(self, tx: &Transaction<'_>, day: i32) -> Result<()> {
        tx.execute("DELETE FROM attributed_days WHERE day = ?", [day]).or_error("write")?;
        let mut insert = tx
            .prepare_cached(
                "INSERT INTO attributed_days \
                 (subject, subject_id, day, restore_points, exclusive_bytes, attributed_bytes) \
                 VALUES (?, ?, ?, ?, ?, ?)",
            )
            .or_error("write")?;
        for ((by, id), (points, exclusive, attributed)) in self.0 {
            let (points, exclusive, attributed) = (
                int("restore points", points)?,
                int("exclusive bytes", exclusive)?,
                int("attributed bytes", attributed)?,
            );
            insert.execute(params![by.text(), id, day, points, exclusive, attributed]).or_error("write")?;
        }
        thin(tx, day)
    }
}

/// Leaves the last day of each week of what is no longer kept daily, and `today`. Days that were recorded are counted, not
/// those that passed: no clock that is wrong takes more along than a day a round.
fn thin(tx: &Transaction<'_>, today: i32) -> Result<()> {
    let days: Vec<i32> = tx
        .prepare_cached("SELECT DISTINCT day FROM attributed_days ORDER BY day DESC")
        .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
        .or_error("read")?;
    let (mut later, mut weeks) = (None, 0);
    for day in days.into_iter().skip(DAILY) {
        let week = Some(day.div_euclid(7));
        weeks += u32::from(week != later);
        if day != today && (week == later || weeks > WEEKS) {
            tx.execute("DELETE FROM attributed_days WHERE day = ?", [day]).or_error("write")?;
        }
        later = week;
    }
    Ok(())
}

pub(crate) fn state(connection: &Connection) -> Result<Option<AttributionState>> {
    let read = |row: &Row<'_>| {
        Ok(AttributionState {
            at_ms: row.get("at_ms")?,
            live_bytes: count(row, "live_bytes")?,
            is_complete: row.get("complete")?,
        })
    };
    connection.query_row("SELECT * FROM attribution", [], read).optional().or_error("read")
}

pub(crate) fn shares(connection: &Connection, backups: &[BackupId]) -> Result<Vec<CountedShare>> {
    // A round knows every backup there is: the VM's newest tells whether another came.
    let mut find = connection
        .prepare_cached(
            "SELECT s.*, a.at_ms, EXISTS (SELECT 1 FROM attributed_backups k WHERE k.backup_id = \
             (SELECT n.id FROM backups n WHERE n.vm_id = b.vm_id ORDER BY n.ordinal DESC LIMIT 1)) AS is_current \
             FROM attributed_backups s JOIN backups b ON b.id = s.backup_id JOIN attribution a \
             WHERE s.backup_id = ?",
        )
        .or_error("read")?;
    let read = |row: &Row<'_>| {
        let exclusive_bytes = count(row, "exclusive_bytes")?;
        Ok(CountedShare {
            backup: BackupId::from_bytes(id(row, "backup_id")?),
            at_ms: row.get("at_ms")?,
            exclusive_bytes: row.get::<_, bool>("is_current")?.then_some(exclusive_bytes),
            attributed_bytes: count(row, "attributed_bytes")?,
        })
    };
    let found = backups.iter().map(|id| find.query_row([id.to_bytes()], read).optional().or_error("read"));
    found.filter_map(Result::transpose).collect()
}

/// As the last round found them.
pub(crate) fn groups(
    connection: &Connection,
    by: AttributedBy,
    namespaces: Option<&[NamespaceId]>,
    limit: u32,
    room: &SortRoom,
) -> Result<Vec<AttributedGroup>> {
    let Some(found) = state(connection)? else { return Ok(Vec::new()) };
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let day = day_of(found.at_ms);
    // (W17) No index has them in the order of bytes.
    let rows = connection
        .prepare_cached("SELECT count(*) AS rows FROM attributed_days WHERE day = ? AND subject = ?")
        .and_then(|mut s| s.query_row(params![day, by.text()], |row| count(row, "rows")))
        .or_error("read")?;
    room.expect(rows)?;
    let mut conditions = Conditions::default();
    conditions.push("d.day = ?", [Value::from(day)]);
    conditions.push("d.subject = ?", [Value::from(by.text().to_owned())]);
    conditions.in_namespaces("n.id", namespaces);
    let (name, joins) = match by {
        AttributedBy::Namespace => ("n.name", "JOIN namespaces n ON n.id = d.subject_id"),
        AttributedBy::Vm => {
            ("v.name", "JOIN vms v ON v.id = d.subject_id JOIN namespaces n ON n.id = v.namespace_id")
        }
        AttributedBy::Job => {
            ("j.name", "JOIN jobs j ON j.id = d.subject_id JOIN namespaces n ON n.id = j.namespace_id")
        }
    };
    let select = format!(
        "SELECT n.id AS namespace_id, n.name AS namespace, {name} AS name, d.restore_points AS backups, \
         d.exclusive_bytes, d.attributed_bytes FROM attributed_days d {joins}"
    );
    let limit = limit.min(ATTRIBUTED_GROUPS_MAX);
    let order = format!("ORDER BY d.attributed_bytes DESC, namespace, name LIMIT {limit}");
    let mut found = Vec::new();
    conditions.each(connection, (&select, &order), |row| {
        found.push(read_group(row).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

/// Reads the sums of the namespace, or of the VM or job of that name in it, up to the day `last`.
pub(crate) fn days(
    connection: &Connection,
    by: AttributedBy,
    namespace: NamespaceId,
    name: &str,
    last: i32,
) -> Result<Vec<AttributedDay>> {
    let subject = match by {
        AttributedBy::Namespace => Some(namespace.to_bytes()),
        AttributedBy::Job => job_id(connection, namespace, name)?,
        AttributedBy::Vm => connection
            .prepare_cached("SELECT id FROM vms WHERE namespace_id = ? AND name = ?")
            .and_then(|mut s| s.query_row(params![namespace.to_bytes(), name], |row| row.get(0)).optional())
            .or_error("read")?,
    };
    let Some(subject) = subject else { return Ok(Vec::new()) };
    let read = |row: &Row<'_>| {
        Ok(AttributedDay {
            day: row.get("day")?,
            backups: count(row, "restore_points")?,
            exclusive_bytes: count(row, "exclusive_bytes")?,
            attributed_bytes: count(row, "attributed_bytes")?,
        })
    };
    connection
        .prepare_cached(
            "SELECT * FROM attributed_days WHERE subject = ? AND subject_id = ? AND day <= ? ORDER BY day",
        )
        .and_then(|mut s| s.query_map(params![by.text(), subject, last], read)?.collect())
        .or_error("read")
}

fn read_group(row: &Row<'_>) -> rusqlite::Result<AttributedGroup> {
    Ok(AttributedGroup {
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        namespace_name: row.get("namespace")?,
        name: row.get("name")?,
        backups: count(row, "backups")?,
        exclusive_bytes: count(row, "exclusive_bytes")?,
        attributed_bytes: count(row, "attributed_bytes")?,
    })
}
