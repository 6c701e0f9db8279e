//! The repository, jobs, namespaces and backups with what they cost.

use std::collections::{HashMap, HashSet};

use holdfast_proto::details::Totals;
use holdfast_types::ids::{BackupId, NamespaceId, RunId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::convert::{OrCatalogError, count, id};
use super::super::details::filter;
use super::super::details::sums::{self, Reading, kept};
use super::super::namespaces as table;
use super::super::select::Conditions;
use super::vms::LATEST;
use crate::wire::add_to;
use crate::{
    BackupCost, DetailFilter, JobOverview, LastRun, NamespaceOverview, RepositoryOverview, Result,
    WindowTotals,
};

/// What is protected is one pass over VMs; what was written ever is kept, and the rows of later windows are read once.
pub(in crate::sqlite) fn repository(
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
    *sum = sum.saturating_add(count(row, column).or_error("read")?);
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
            since_ms: Some(*first_ms),
            ..DetailFilter::default()
        };
        let Some(conditions) = filter::of_all(connection, &filter)? else { return Ok(Vec::new()) };
        sums::each(connection, conditions, false, Reading::AsTheyLie, |summand| {
            for (since_ms, runs, totals) in &mut windows {
                if since_ms.is_some_and(|since_ms| summand.row.started_ms >= since_ms) {
                    runs.insert(summand.refs.run);
                    add_to(totals, &summand.row);
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

/// Every job there is a row of, by namespace and name.
pub(in crate::sqlite) fn jobs(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
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
    let select = "SELECT j.id, j.namespace_id, n.name AS namespace, j.name, j.runs, (SELECT r.id FROM runs r \
         WHERE r.job_id = j.id ORDER BY r.started_ms DESC, r.id DESC LIMIT 1) AS last_run \
         FROM jobs j JOIN namespaces n ON n.id = j.namespace_id";
    let mut jobs = Vec::new();
    scope().each(connection, (select, "ORDER BY n.name, j.name"), |row| {
        let Some((vms, sums)) = sums.remove(&id(row, "id").or_error("read")?) else { return Ok(()) };
        let run: Option<[u8; 16]> = row.get("last_run").or_error("read")?;
        jobs.push(JobOverview {
            namespace: NamespaceId::from_bytes(id(row, "namespace_id").or_error("read")?),
            namespace_name: row.get("namespace").or_error("read")?,
            job: row.get("name").or_error("read")?,
            runs: count(row, "runs").or_error("read")?,
            vms,
            last_run: run.map_or(Ok(None), |run| last_run(connection, run))?,
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
