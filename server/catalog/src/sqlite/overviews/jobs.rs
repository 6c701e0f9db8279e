//! The repository, jobs, namespaces and backups with what they cost.

use std::collections::{BTreeSet, HashMap, HashSet};

use holdfast_proto::details::Totals;
use holdfast_types::ids::{BackupId, NamespaceId, RunId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::convert::{OrCatalogError, count, id, kept_sum};
use super::super::details::filter;
use super::super::details::kept;
use super::super::details::sums::{self, Reading};
use super::super::namespaces as table;
use super::super::select::Conditions;
use super::not_ahead;
use super::vms::LATEST;
use crate::{
    BackupCost, DetailFilter, FAILED_ROWS_PER_VM_MAX, JobOverview, LastRun, NamespaceOverview,
    RepositoryOverview, Result, WindowTotals,
};

/// One pass over VMs gives protected bytes; sums of all time are kept, and the rows of later windows are read once.
pub(crate) fn repository(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    since_ms: &[Option<i64>],
) -> Result<RepositoryOverview> {
    let mut overview = RepositoryOverview::default();
    let mut ever = WindowTotals::default();
    if namespaces.is_some_and(<[_]>::is_empty) {
        overview.windows.resize(since_ms.len(), ever);
        return Ok(overview);
    }
    let scope = |column: &str| {
        let mut conditions = Conditions::default();
        conditions.in_namespaces(column, namespaces);
        conditions
    };
    let sizes = format!(
        "SELECT (SELECT coalesce(sum(k.size_bytes), 0) FROM disks k WHERE k.backup_id = l.id) AS size \
         FROM vms v {LATEST}"
    );
    let mut with_latest = scope("v.namespace_id");
    with_latest.push("l.id IS NOT NULL", []);
    with_latest.each(connection, (&sizes, ""), |row| {
        overview.vms += 1;
        add(&mut overview.virtual_bytes, row, "size")
    })?;
    let usage = "SELECT u.restore_points, u.protected_bytes FROM namespace_usage u";
    scope("u.namespace_id").each(connection, (usage, ""), |row| {
        add(&mut overview.backups, row, "restore_points")?;
        add(&mut overview.protected_bytes, row, "protected_bytes")
    })?;
    scope("j.namespace_id")
        .each(connection, ("SELECT j.runs FROM jobs j", ""), |row| add(&mut ever.runs, row, "runs"))?;
    kept::each(connection, scope("j.namespace_id"), |kept| {
        kept::add(&mut ever.sums, &kept.sums);
        Ok(())
    })?;
    overview.windows = windows(connection, namespaces, since_ms, &ever)?;
    Ok(overview)
}

fn add(sum: &mut u64, row: &Row<'_>, column: &str) -> Result<()> {
    *sum = sum.saturating_add(kept_sum(row, column).or_error("read")?);
    Ok(())
}

fn windows(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    since_ms: &[Option<i64>],
    ever: &WindowTotals,
) -> Result<Vec<WindowTotals>> {
    let mut windows: Vec<(Option<i64>, HashSet<[u8; 16]>, Totals)> =
        since_ms.iter().map(|since| (*since, HashSet::new(), Totals::default())).collect();
    if let Some(first_ms) = since_ms.iter().flatten().min() {
        let filter = DetailFilter {
            namespaces: namespaces.map(<[_]>::to_vec),
            finished_since_ms: Some(*first_ms),
            ..DetailFilter::default()
        };
        let Some(conditions) = filter::of_all(connection, &filter)? else { return Ok(Vec::new()) };
        sums::each(connection, conditions, false, Reading::AsTheyLie, |summand| {
            for (since_ms, runs, totals) in &mut windows {
                if since_ms.is_some_and(|since_ms| summand.row.finished_ms >= since_ms) {
                    runs.insert(summand.refs.run);
                    totals.add(&summand.row);
                }
            }
            Ok(())
        })?;
    }
    let tell = |(since_ms, runs, totals): (Option<i64>, HashSet<_>, _)| match since_ms {
        Some(_) => WindowTotals { runs: runs.len() as u64, sums: kept::only(&totals) },
        None => ever.clone(),
    };
    Ok(windows.into_iter().map(tell).collect())
}

/// Every job there is a run or a sum of, by namespace and name.
pub(crate) fn jobs(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    now_ms: i64,
) -> Result<Vec<JobOverview>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let scope = || {
        let mut conditions = Conditions::default();
        conditions.in_namespaces("j.namespace_id", namespaces);
        conditions
    };
    let mut sums: HashMap<[u8; 16], (u64, Totals)> = HashMap::new();
    kept::each(connection, scope(), |kept| {
        let (vms, totals) = sums.entry(kept.job).or_default();
        *vms += 1;
        kept::add(totals, &kept.sums);
        Ok(())
    })?;
    let until_ms = not_ahead(now_ms);
    let select = format!(
        "SELECT j.id, j.namespace_id, n.name AS namespace, j.name, j.runs, (SELECT r.id FROM runs r \
         WHERE r.job_id = j.id AND r.started_ms < {until_ms} ORDER BY r.started_ms DESC, r.id DESC LIMIT 1) AS last_run \
         FROM jobs j JOIN namespaces n ON n.id = j.namespace_id"
    );
    let failing = failing_vms(connection, namespaces, now_ms)?;
    let mut jobs = Vec::new();
    scope().each(connection, (&select, "ORDER BY n.name, j.name"), |row| {
        let job = id(row, "id").or_error("read")?;
        let run: Option<[u8; 16]> = row.get("last_run").or_error("read")?;
        let of_job = sums.remove(&job);
        if of_job.is_none() && run.is_none() {
            return Ok(());
        }
        // (W18) Sums that were lost, or not made yet, hide no job.
        let (vms, sums) = of_job.unwrap_or_default();
        jobs.push(JobOverview {
            namespace: NamespaceId::from_bytes(id(row, "namespace_id").or_error("read")?),
            namespace_name: row.get("namespace").or_error("read")?,
            job: row.get("name").or_error("read")?,
            runs: kept_sum(row, "runs").or_error("read")?,
            vms,
            last_run: run.map_or(Ok(None), |run| last_run(connection, run))?,
            failing_vms: failing.get(&job).copied().unwrap_or(0),
            sums,
        });
        Ok(())
    })?;
    Ok(jobs)
}

fn last_run(connection: &Connection, run: [u8; 16]) -> Result<Option<LastRun>> {
    let read = |row: &Row<'_>| {
        Ok(LastRun {
            id: RunId::from_bytes(run),
            started_ms: row.get("started_ms")?,
            finished_ms: row.get("finished_ms")?,
            disks: count(row, "disks")?,
            failed: count(row, "failed")?,
        })
    };
    connection
        .prepare_cached(
            "SELECT r.started_ms, r.finished_ms, \
             (SELECT count(*) FROM details d WHERE d.run_id = r.id) AS disks, \
             (SELECT count(*) FROM details d WHERE d.run_id = r.id AND d.status <> 'done') AS failed \
             FROM runs r WHERE r.id = ?",
        )
        .and_then(|mut s| s.query_row([run], read).optional())
        .or_error("read")
}

/// Rows of a VM looked at, at most, the latest: as many as are kept of attempts that failed, four of 256 disks or more
/// of fewer. A VM that was not whole in any of them fails in the jobs of these.
const FAILING_ROWS: u32 = FAILED_ROWS_PER_VM_MAX;

/// Jobs with VMs that failed in them since they were last backed up as a whole, by any job, and how many VMs these are. A
/// VM that was removed does not count, nor does a row of a clock that was [ahead](not_ahead). Reads up to [`FAILING_ROWS`]
/// rows of each VM.
fn failing_vms(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    now_ms: i64,
) -> Result<HashMap<[u8; 16], u64>> {
    let mut vms: Vec<[u8; 16]> = Vec::new();
    let mut conditions = Conditions::default();
    conditions.in_namespaces("v.namespace_id", namespaces);
    conditions.push("v.removed_ms IS NULL", []);
    conditions.each(connection, ("SELECT v.id FROM vms v", ""), |row| {
        vms.push(row.get(0).or_error("read")?);
        Ok(())
    })?;
    let mut rows = connection
        .prepare_cached(
            "SELECT d.job_id, d.status = 'done', (SELECT b.missing_disks = '' FROM backups b WHERE b.id = d.backup_id) \
             FROM details d WHERE d.vm_id = ? AND d.started_ms < ? \
             ORDER BY d.started_ms DESC, d.run_id DESC, d.session_id DESC LIMIT ?",
        )
        .or_error("read")?;
    let until_ms = not_ahead(now_ms);
    let mut failing = HashMap::new();
    for vm in vms {
        let mut jobs = BTreeSet::<[u8; 16]>::new();
        let mut found = rows.query(params![vm, until_ms, FAILING_ROWS]).or_error("read")?;
        while let Some(row) = found.next().or_error("read")? {
            let (is_done, is_whole): (bool, Option<bool>) =
                (row.get(1).or_error("read")?, row.get(2).or_error("read")?);
            match (is_done, is_whole) {
                (true, Some(true)) => break,
                // A restore point that was deleted since no longer says whether a disk was missing.
                (true, None) => {}
                _ => drop(jobs.insert(row.get(0).or_error("read")?)),
            }
        }
        jobs.into_iter().for_each(|job| *failing.entry(job).or_default() += 1);
    }
    Ok(failing)
}

/// By name.
pub(crate) fn namespaces(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<NamespaceOverview>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let mut conditions = Conditions::default();
    conditions.in_namespaces("n.id", namespaces);
    let select = "SELECT n.*, (SELECT count(*) FROM vms v WHERE v.namespace_id = n.id \
         AND EXISTS (SELECT 1 FROM backups b WHERE b.vm_id = v.id)) AS vms, \
         (SELECT count(*) FROM backups b WHERE b.namespace_id = n.id) AS backups, \
         (SELECT coalesce(sum(c.stored_bytes), 0) FROM containers c WHERE c.namespace_id = n.id) AS stored_bytes \
         FROM namespaces n";
    let read = |row: &Row<'_>| {
        Ok(NamespaceOverview {
            namespace: table::read(row)?,
            vms: count(row, "vms")?,
            backups: count(row, "backups")?,
            stored_bytes: count(row, "stored_bytes")?,
        })
    };
    let mut found = Vec::new();
    conditions.each(connection, (select, "ORDER BY n.name"), |row| {
        found.push(read(row).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

/// Returns the finish of the latest restore point of a namespace finished before `until_ms`.
pub(crate) fn newest_ms(
    connection: &Connection,
    namespace: NamespaceId,
    until_ms: i64,
) -> Result<Option<i64>> {
    connection
        .prepare_cached("SELECT max(finished_ms) FROM backups WHERE namespace_id = ? AND finished_ms < ?")
        .and_then(|mut s| s.query_row(params![namespace.to_bytes(), until_ms], |row| row.get(0)))
        .or_error("read")
}

/// The backups among these that accepted a change.
pub(crate) fn accepted_changes(connection: &Connection, backups: &[BackupId]) -> Result<Vec<BackupId>> {
    let mut statement =
        connection.prepare_cached("SELECT accepted_change FROM backups WHERE id = ?").or_error("read")?;
    let mut accepted = Vec::new();
    for backup in backups {
        let found = statement.query_row([backup.to_bytes()], |row| row.get::<_, bool>(0)).optional();
        accepted.extend(found.or_error("read")?.filter(|is_accepted| *is_accepted).map(|_| *backup));
    }
    Ok(accepted)
}

/// Returns the cost of each backup, in their order.
pub(crate) fn backup_costs(connection: &Connection, backups: &[BackupId]) -> Result<Vec<BackupCost>> {
    let mut statement = connection
        .prepare_cached(
            "SELECT coalesce(sum(d.new_bytes), 0) AS new_bytes, coalesce(sum(d.post_lc), 0) AS post_lc, \
             coalesce(sum(d.meta_bytes), 0) AS meta_bytes FROM details d \
             WHERE d.session_id = (SELECT b.session_id FROM backups b WHERE b.id = ?)",
        )
        .or_error("read")?;
    let read = |row: &Row<'_>| {
        Ok(BackupCost {
            new_bytes: count(row, "new_bytes")?,
            post_lc: count(row, "post_lc")?,
            meta_bytes: count(row, "meta_bytes")?,
        })
    };
    let costs = backups.iter().map(|backup| statement.query_row(params![backup.to_bytes()], read));
    costs.collect::<rusqlite::Result<_>>().or_error("read")
}
