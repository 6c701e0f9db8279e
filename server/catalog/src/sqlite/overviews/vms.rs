//! VMs and their disks.
//!
//! VMs are read with their restore points and sorted in memory: there are thousands, not millions. What their
//! runs cost is kept; what only a page shows is read for the page.

use std::collections::HashMap;

use holdfast_proto::details::Totals;
use holdfast_types::ids::{BackupId, NamespaceId, VmId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::super::convert::{OrCatalogError, count, id};
use super::super::details::filter::like_pattern;
use super::super::details::kept;
use super::super::details::sorted::{Number, compare_keys};
use super::super::select::{Conditions, Window, unindexed};
use super::super::{backups, verifications};
use super::{RECENT_MS, not_ahead};
use crate::{DiskOverview, DiskQuery, LatestBackup, Result, VmOverview, VmQuery, VmSort};

/// The restore point committed last of VM `v`, as `l`; null without one.
pub(super) const LATEST: &str = "LEFT JOIN backups l ON l.id = \
     (SELECT b.id FROM backups b WHERE b.vm_id = v.id ORDER BY b.ordinal DESC LIMIT 1)";

/// When the last complete restore point of VM `v` was finished; null without one. One of a clock that was
/// [ahead](not_ahead) does not count.
fn complete_ms(now_ms: i64) -> String {
    let until_ms = not_ahead(now_ms);
    format!(
        "(SELECT b.finished_ms FROM backups b WHERE b.vm_id = v.id AND b.missing_disks = '' AND b.finished_ms < {until_ms} \
         ORDER BY b.ordinal DESC LIMIT 1)"
    )
}

/// A page of the VMs that match, and how many do.
pub(crate) fn vms(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    query: &VmQuery,
) -> Result<(Vec<VmOverview>, u64)> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok((Vec::new(), 0));
    }
    let mut found = read_vms(connection, namespaces, query)?;
    add_costs(connection, namespaces, &mut found)?;
    let by_recent = query.sort == VmSort::NewBytes30d;
    let since_ms = query.now_ms.saturating_sub(RECENT_MS);
    if by_recent {
        add_recent(connection, namespaces, since_ms, &mut found)?;
    }
    let total = found.len() as u64;
    let mut page = Window::new(query.offset, query.limit).of(found, |a, b| {
        let names = |vm: &VmOverview| (vm.namespace_name.clone(), vm.vm.clone());
        compare_keys(key(query.sort, a).as_ref(), key(query.sort, b).as_ref(), query.descending)
            .then_with(|| names(a).cmp(&names(b)))
    });
    if !by_recent {
        add_recent(connection, namespaces, since_ms, &mut page)?;
    }
    for vm in &mut page {
        complete(connection, vm, query.now_ms)?;
    }
    Ok((page, total))
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Text(&'a str),
    Count(u64),
    Time(i64),
    Number(Number),
}

fn key(sort: VmSort, vm: &VmOverview) -> Option<Key<'_>> {
    match sort {
        VmSort::Vm => Some(Key::Text(&vm.vm)),
        VmSort::Namespace => Some(Key::Text(&vm.namespace_name)),
        VmSort::Backups => Some(Key::Count(vm.backups)),
        VmSort::Latest => vm.latest.as_ref().map(|latest| Key::Time(latest.finished_ms)),
        VmSort::ProtectedBytes => Some(Key::Count(vm.protected_bytes)),
        VmSort::StoredBytes => Some(Key::Count(vm.stored_bytes)),
        VmSort::NewBytes30d => Some(Key::Count(vm.new_bytes_30d)),
        VmSort::TotalFactor => vm.total_factor.map(|factor| Key::Number(Number(factor))),
    }
}

/// The VMs that match, without what their runs cost and what only a page shows.
fn read_vms(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    query: &VmQuery,
) -> Result<Vec<VmOverview>> {
    let mut conditions = Conditions::default();
    conditions.push("v.removed_ms IS NULL", []);
    conditions.in_namespaces("v.namespace_id", namespaces);
    if let Some(vm) = &query.vm {
        conditions.push("v.name = ?", [Value::Text(vm.clone())]);
    }
    if let Some(search) = query.search.as_deref().filter(|text| !text.is_empty()) {
        let pattern = Value::Text(like_pattern(search));
        let like = "(v.name LIKE ? ESCAPE '\\' OR n.name LIKE ? ESCAPE '\\')";
        conditions.push(like, [pattern.clone(), pattern]);
    }
    // A partial restore point protects only some of the VM, so it keeps none from being stale.
    let complete_ms = complete_ms(query.now_ms);
    let stale = format!("coalesce({complete_ms} < ?, true)");
    let before = [Value::Integer(query.stale_before_ms)];
    match query.stale {
        Some(true) => conditions.push(&stale, before),
        Some(false) => conditions.push(&format!("NOT {stale}"), before),
        None => {}
    }
    let select = format!(
        "SELECT v.id, v.namespace_id, n.name AS namespace, v.name AS vm, v.owner, v.agent_verified_ms, \
         n.key_id IS NOT NULL AS end_to_end, l.id AS latest, l.job_id, \
         l.started_ms, l.finished_ms, l.missing_disks, j.name AS job, {complete_ms} AS complete_ms, \
         (SELECT count(*) FROM backups b WHERE b.vm_id = v.id) AS backups, \
         (SELECT min(b.started_ms) FROM backups b WHERE b.vm_id = v.id) AS first_ms, \
         (SELECT count(*) FROM disks k WHERE k.backup_id = l.id) AS disks, \
         (SELECT coalesce(sum(k.size_bytes), 0) FROM disks k WHERE k.backup_id = l.id) AS virtual_bytes, \
         (SELECT coalesce(sum(k.data_bytes), 0) FROM disks k WHERE k.backup_id = l.id) AS protected_bytes \
         FROM vms v JOIN namespaces n ON n.id = v.namespace_id {LATEST} LEFT JOIN jobs j ON j.id = l.job_id"
    );
    let mut found = Vec::new();
    conditions.each(connection, (&select, ""), |row| {
        found.push(read_vm(row, query.stale_before_ms).or_error("read")?);
        Ok(())
    })?;
    Ok(found)
}

fn read_vm(row: &Row<'_>, stale_before_ms: i64) -> rusqlite::Result<VmOverview> {
    let latest = match row.get::<_, Option<[u8; 16]>>("latest")? {
        Some(id) => Some(LatestBackup {
            id: BackupId::from_bytes(id),
            started_ms: row.get("started_ms")?,
            finished_ms: row.get("finished_ms")?,
            job: row.get("job")?,
            missing_disks: backups::missing_disks(row)?,
        }),
        None => None,
    };
    let complete_ms: Option<i64> = row.get("complete_ms")?;
    Ok(VmOverview {
        id: VmId::from_bytes(id(row, "id")?),
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        namespace_name: row.get("namespace")?,
        vm: row.get("vm")?,
        owner: row.get("owner")?,
        backups: count(row, "backups")?,
        disks: count(row, "disks")?,
        first_ms: row.get("first_ms")?,
        stale: complete_ms.is_none_or(|finished_ms| finished_ms < stale_before_ms),
        latest,
        virtual_bytes: count(row, "virtual_bytes")?,
        protected_bytes: count(row, "protected_bytes")?,
        stored_bytes: 0,
        new_bytes_30d: 0,
        total_factor: None,
        last_status: String::new(),
        last_error: String::new(),
        verification: None,
        end_to_end: row.get("end_to_end")?,
        agent_verified_ms: row.get("agent_verified_ms")?,
    })
}

/// VMs of which something is found by index rather than by reading that of all.
const BY_INDEX_MAX: usize = 1000;

/// The conditions of what belongs to these VMs.
fn of(vms: &[VmOverview], column: &str, namespaces: (&str, Option<&[NamespaceId]>)) -> Conditions {
    let mut conditions = Conditions::default();
    if vms.len() <= BY_INDEX_MAX {
        let marks = vec!["?"; vms.len()].join(", ");
        let ids = vms.iter().map(|vm| Value::Blob(vm.id.to_bytes().to_vec()));
        conditions.push(&format!("{column} IN ({marks})"), ids);
    } else {
        conditions.in_namespaces(namespaces.0, namespaces.1);
    }
    conditions
}

/// Adds the cost of their runs over all time.
fn add_costs(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    vms: &mut [VmOverview],
) -> Result<()> {
    let mut costs: HashMap<[u8; 16], Totals> = HashMap::new();
    kept::each(connection, of(vms, "s.vm_id", ("j.namespace_id", namespaces)), |kept| {
        kept::add(costs.entry(kept.vm).or_default(), &kept.sums);
        Ok(())
    })?;
    for vm in vms {
        let Some(cost) = costs.get(&vm.id.to_bytes()) else { continue };
        vm.stored_bytes = cost.post_lc.saturating_add(cost.meta_bytes);
        vm.total_factor = cost.factors().total;
    }
    Ok(())
}

/// New bytes of their recent runs.
fn add_recent(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    since_ms: i64,
    vms: &mut [VmOverview],
) -> Result<()> {
    let mut recent: HashMap<[u8; 16], u64> = HashMap::new();
    let mut conditions = of(vms, "d.vm_id", (&unindexed("d.namespace_id"), namespaces));
    conditions.push("d.started_ms >= ?", [Value::Integer(since_ms)]);
    conditions.each(connection, ("SELECT d.vm_id, d.new_bytes FROM details d", ""), |row| {
        let sum = recent.entry(id(row, "vm_id").or_error("read")?).or_default();
        *sum = sum.saturating_add(count(row, "new_bytes").or_error("read")?);
        Ok(())
    })?;
    for vm in vms {
        vm.new_bytes_30d = recent.get(&vm.id.to_bytes()).copied().unwrap_or(0);
    }
    Ok(())
}

/// How the session begun last ended, but for those of a clock that was ahead, and what verifying the latest restore point found.
fn complete(connection: &Connection, vm: &mut VmOverview, now_ms: i64) -> Result<()> {
    let last: Option<([u8; 16], String)> = connection
        .prepare_cached(
            "SELECT session_id, status FROM details WHERE vm_id = ? AND started_ms < ? \
             ORDER BY started_ms DESC, run_id DESC, session_id DESC, position DESC LIMIT 1",
        )
        .and_then(|mut s| {
            s.query_row(params![vm.id.to_bytes(), not_ahead(now_ms)], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()
        })
        .or_error("read")?;
    if let Some((session, status)) = last {
        vm.last_status = status;
        vm.last_error = connection
            .prepare_cached(
                "SELECT error FROM details WHERE session_id = ? AND error <> '' ORDER BY position LIMIT 1",
            )
            .and_then(|mut s| s.query_row([session], |row| row.get(0)).optional())
            .or_error("read")?
            .unwrap_or_default();
    }
    if let Some(latest) = &vm.latest {
        vm.verification = verifications::newest(connection, &[latest.id])?.pop();
    }
    Ok(())
}

/// A page of the disks of latest restore points, and how many there are.
pub(crate) fn disks(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    query: &DiskQuery,
) -> Result<(Vec<DiskOverview>, u64)> {
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok((Vec::new(), 0));
    }
    let conditions = || {
        let mut conditions = Conditions::default();
        conditions.in_namespaces("v.namespace_id", namespaces);
        if let Some(vm) = &query.vm {
            conditions.push("v.name = ?", [Value::Text(vm.clone())]);
        }
        conditions
    };
    let from = format!(
        "FROM vms v JOIN namespaces n ON n.id = v.namespace_id {LATEST} JOIN disks k ON k.backup_id = l.id"
    );
    let mut total = 0;
    conditions().each(connection, (&format!("SELECT count(*) AS count {from}"), ""), |row| {
        total = count(row, "count").or_error("read")?;
        Ok(())
    })?;
    let select = format!(
        "SELECT v.id AS vm_id, v.namespace_id, n.name AS namespace, v.name AS vm, l.id AS backup, \
         k.name AS disk, k.size_bytes, k.data_bytes {from}"
    );
    // An offset past the end of an integer is past the end of any list.
    let offset = i64::try_from(query.offset).unwrap_or(i64::MAX);
    let part = format!("ORDER BY n.name, v.name, k.position LIMIT {} OFFSET {offset}", query.limit);
    let mut page = Vec::new();
    conditions().each(connection, (&select, &part), |row| {
        page.push(read_disk(row).or_error("read")?);
        Ok(())
    })?;
    let since_ms = query.now_ms.saturating_sub(RECENT_MS);
    for (vm, disk) in &mut page {
        add_cost(connection, *vm, disk, since_ms).or_error("read")?;
    }
    Ok((page.into_iter().map(|(_, disk)| disk).collect(), total))
}

fn read_disk(row: &Row<'_>) -> rusqlite::Result<([u8; 16], DiskOverview)> {
    let disk = DiskOverview {
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        namespace_name: row.get("namespace")?,
        vm: row.get("vm")?,
        disk: row.get("disk")?,
        size_bytes: count(row, "size_bytes")?,
        data_bytes: count(row, "data_bytes")?,
        latest_backup: BackupId::from_bytes(id(row, "backup")?),
        stored_bytes: 0,
        new_bytes_30d: 0,
    };
    Ok((id(row, "vm_id")?, disk))
}

pub(crate) const DISK_COST: &str = "SELECT coalesce(sum(d.post_lc + d.meta_bytes), 0) AS stored, \
     coalesce(sum(CASE WHEN d.started_ms >= ? THEN d.new_bytes ELSE 0 END), 0) AS recent FROM details d \
     WHERE d.vm_id = ? AND d.disk = ?";

fn add_cost(
    connection: &Connection,
    vm: [u8; 16],
    disk: &mut DiskOverview,
    since_ms: i64,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(DISK_COST)?;
    (disk.stored_bytes, disk.new_bytes_30d) = statement
        .query_row(params![since_ms, vm, disk.disk], |row| {
            Ok((count(row, "stored")?, count(row, "recent")?))
        })?;
    Ok(())
}
