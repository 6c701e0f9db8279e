//! Jobs, namespaces and backups with what they cost.

use holdfast_types::ids::{BackupId, NamespaceId, RunId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::convert::{OrCatalogError, count};
use super::super::details::totals::{self, JobSums};
use super::super::namespaces as table;
use super::super::select::{Conditions, Names};
use crate::{BackupCost, DetailFilter, JobOverview, LastRun, NamespaceOverview, Result};

/// Every job there is a row of, by namespace and name.
pub(in crate::sqlite) fn jobs(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<JobOverview>> {
    let filter = DetailFilter { namespaces: namespaces.map(<[_]>::to_vec), ..DetailFilter::default() };
    let names = Names::load(connection)?;
    let mut jobs = Vec::new();
    for job in totals::jobs(connection, &filter)? {
        let JobSums { namespace, job, runs, vms, last_run: run, sums } = job;
        jobs.push(JobOverview {
            namespace: NamespaceId::from_bytes(namespace),
            namespace_name: names.namespace(namespace)?.to_owned(),
            job: names.job(job)?.to_owned(),
            runs,
            vms,
            last_run: run.map_or(Ok(None), |run| last_run(connection, run))?,
            sums,
        });
    }
    jobs.sort_unstable_by(|a, b| (&a.namespace_name, &a.job).cmp(&(&b.namespace_name, &b.job)));
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

/// By name.
pub(in crate::sqlite) fn namespaces(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<NamespaceOverview>> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Vec::new());
    }
    let mut conditions = Conditions::default();
    conditions.in_namespaces("n.id", namespaces);
    let select = "SELECT n.*, (SELECT count(*) FROM vms v WHERE v.namespace_id = n.id AND v.removed_ms IS NULL) AS vms, \
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

/// Of each backup, in their order.
pub(in crate::sqlite) fn backup_costs(
    connection: &Connection,
    backups: &[BackupId],
) -> Result<Vec<BackupCost>> {
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
