//! Restore points, what keeps them, and the VMs and runs they belong to.

use holdfast_proto::Fingerprint;
use holdfast_types::ids::{BackupId, JobId, NamespaceId, RunId, SessionId, VmId};
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Params, Row, params};
use ulid::{ULID_LEN, Ulid};

use super::convert::{OrCatalogError, count, id};
use super::select::{Conditions, indexed, named, time_and_id, time_and_id_key, unindexed};
use crate::limits::BACKUPS_PER_PAGE;
use crate::page::{self, List};
use crate::{
    BACKUPS_PER_PAGE_MAX, BackupFilter, BackupRecord, CatalogError, DiskRecord, LegalHold, Page, PageRequest,
    Result, RetentionLock, RootRecord, RunRecord, VmRecord,
};

pub(crate) const SELECT: &str = "SELECT b.*, n.name AS namespace, j.name AS job, v.name AS vm FROM backups b \
     JOIN namespaces n ON n.id = b.namespace_id JOIN jobs j ON j.id = b.job_id \
     JOIN vms v ON v.id = b.vm_id";

pub(crate) const ORDER: &str = "ORDER BY b.started_ms DESC, b.id DESC";

pub(crate) fn by_id(connection: &Connection, id: BackupId) -> Result<Option<BackupRecord>> {
    one(connection, "WHERE b.id = ?", [id.to_bytes()])
}

/// Reads each, to see that it can be read.
pub(crate) fn read_each(connection: &Connection) -> Result<()> {
    connection
        .prepare(SELECT)
        .and_then(|mut s| s.query_map([], read)?.try_for_each(|row| row.map(drop)))
        .or_error("read")
}

pub(crate) fn by_session(connection: &Connection, session: SessionId) -> Result<Option<BackupRecord>> {
    one(connection, "WHERE b.session_id = ?", [session.to_bytes()])
}

pub(crate) fn latest(
    connection: &Connection,
    namespace: NamespaceId,
    vm: &str,
) -> Result<Option<BackupRecord>> {
    let vms = named(connection, "vms", vm, Some(&[namespace]))?;
    let Some(vm) = vms.first() else { return Ok(None) };
    one(connection, "WHERE b.vm_id = ? ORDER BY b.ordinal DESC LIMIT 1", [vm])
}

pub(crate) const BEFORE: &str = "WHERE b.vm_id = (SELECT vm_id FROM backups WHERE id = ?1) \
     AND b.ordinal < (SELECT ordinal FROM backups WHERE id = ?1) ORDER BY b.ordinal DESC LIMIT ?2";

pub(crate) fn before(connection: &Connection, id: BackupId, limit: u32) -> Result<Vec<BackupRecord>> {
    let found: Vec<BackupRecord> = connection
        .prepare_cached(&format!("{SELECT} {BEFORE}"))
        .and_then(|mut s| s.query_map(params![id.to_bytes(), limit], read)?.collect())
        .or_error("read")?;
    found.into_iter().map(|backup| with_disks(connection, backup)).collect()
}

pub(crate) fn find(
    connection: &Connection,
    namespace: NamespaceId,
    id_prefix: &str,
    limit: u32,
) -> Result<Vec<BackupRecord>> {
    let (low, high) = prefix_range(id_prefix).ok_or_else(|| {
        CatalogError::invalid(format!("{id_prefix:?} is not the beginning of a backup's ID"))
    })?;
    let namespace_id = unindexed("b.namespace_id");
    let sql = format!("{SELECT} WHERE b.id BETWEEN ? AND ? AND {namespace_id} = ? ORDER BY b.id LIMIT ?");
    let found: Vec<BackupRecord> = connection
        .prepare_cached(&sql)
        .and_then(|mut s| {
            let values = params![low.to_bytes(), high.to_bytes(), namespace.to_bytes(), limit];
            s.query_map(values, read)?.collect()
        })
        .or_error("read")?;
    found.into_iter().map(|backup| with_disks(connection, backup)).collect()
}

/// The lowest and the highest ULID that begin with `prefix`.
fn prefix_range(prefix: &str) -> Option<(Ulid, Ulid)> {
    if prefix.is_empty() || prefix.len() > ULID_LEN || !prefix.is_ascii() {
        return None;
    }
    let padded = |with: char| -> Option<Ulid> {
        let mut text = prefix.to_ascii_uppercase();
        text.extend(std::iter::repeat_n(with, ULID_LEN - prefix.len()));
        // The decoder drops bits that do not fit; what does not read back the same is no ULID.
        Ulid::from_string(&text).ok().filter(|id| id.to_string() == text)
    };
    Some((padded('0')?, padded('Z')?))
}

pub(crate) fn list(
    connection: &Connection,
    filter: &BackupFilter,
    page: PageRequest<'_>,
) -> Result<Page<BackupRecord>> {
    // The filter that a page token belongs to; see the filter's times.
    let whole = BackupFilter { since_ms: None, until_ms: None, ..filter.clone() };
    let after = page::decode(List::Backups, &whole, page.token)?;
    let Some(mut conditions) = conditions(connection, filter)? else {
        return Ok(Page { items: Vec::new(), next: None });
    };
    if let Some(key) = after {
        let (started_ms, id) =
            time_and_id(&key).ok_or_else(|| CatalogError::invalid("the page token is too short"))?;
        let values = [Value::Integer(started_ms), Value::Blob(id.to_vec())];
        conditions.push("(b.started_ms, b.id) < (?, ?)", values);
    }
    let limit = page.size_within(BACKUPS_PER_PAGE, BACKUPS_PER_PAGE_MAX);
    let (items, more) = conditions.page(
        connection,
        (SELECT, ORDER),
        limit,
        |row| with_disks(connection, read(row).or_error("read")?),
        weight,
    )?;
    let next = items.last().filter(|_| more).map(|last| {
        page::encode(List::Backups, &whole, &time_and_id_key(last.started_ms, last.id.to_bytes()))
    });
    Ok(Page { items, next })
}

/// `None`: nothing can match.
pub(crate) fn conditions(connection: &Connection, filter: &BackupFilter) -> Result<Option<Conditions>> {
    let BackupFilter { namespaces, vm, job, since_ms, until_ms } = filter;
    if namespaces.as_ref().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let mut conditions = Conditions::default();
    // The narrowest of the filters given leads; the index of another would lose the order, or read more.
    let mut leads = true;
    for (table, column, name) in [("vms", "vm_id", vm), ("jobs", "job_id", job)] {
        let Some(name) = name else { continue };
        let ids = named(connection, table, name, namespaces.as_deref())?;
        if ids.is_empty() {
            return Ok(None);
        }
        conditions.one_of(&indexed(&format!("b.{column}"), leads), &ids);
        leads = false;
    }
    conditions.in_namespaces(&indexed("b.namespace_id", leads), namespaces.as_deref());
    if let Some(since_ms) = since_ms {
        conditions.push("b.started_ms >= ?", [Value::Integer(*since_ms)]);
    }
    if let Some(until_ms) = until_ms {
        conditions.push("b.started_ms < ?", [Value::Integer(*until_ms)]);
    }
    Ok(Some(conditions))
}

pub(crate) fn vms(
    connection: &Connection,
    namespaces: Option<&[NamespaceId]>,
    page: PageRequest<'_>,
) -> Result<Page<VmRecord>> {
    let after = page::decode(List::Vms, &namespaces, page.token)?;
    if namespaces.is_some_and(<[_]>::is_empty) {
        return Ok(Page { items: Vec::new(), next: None });
    }
    let mut conditions = Conditions::default();
    conditions.push("v.removed_ms IS NULL", []);
    conditions.in_namespaces("v.namespace_id", namespaces);
    if let Some(key) = after {
        let (name, namespace) =
            vm_key(&key).ok_or_else(|| CatalogError::invalid("the page token is too short"))?;
        let values = [Value::Text(name.to_owned()), Value::Blob(namespace.to_vec())];
        conditions.push("(v.name, v.namespace_id) > (?, ?)", values);
    }
    let select = "SELECT v.id, v.namespace_id, n.name AS namespace, v.name, v.owner, \
         (SELECT count(*) FROM backups b WHERE b.vm_id = v.id) AS backups, \
         (SELECT b.id FROM backups b WHERE b.vm_id = v.id ORDER BY b.ordinal DESC LIMIT 1) AS latest \
         FROM vms v JOIN namespaces n ON n.id = v.namespace_id";
    let limit = page.size_within(BACKUPS_PER_PAGE, BACKUPS_PER_PAGE_MAX);
    let (items, more) = conditions.page(
        connection,
        (select, "ORDER BY v.name, v.namespace_id"),
        limit,
        |row| read_vm(row).or_error("read"),
        |vm| 128 + vm.name.len() + vm.namespace_name.len(),
    )?;
    let next = items.last().filter(|_| more).map(|last| {
        let key = [&last.namespace.to_bytes(), last.name.as_bytes()].concat();
        page::encode(List::Vms, &namespaces, &key)
    });
    Ok(Page { items, next })
}

fn vm_key(key: &[u8]) -> Option<(&str, [u8; 16])> {
    let (namespace, name) = key.split_first_chunk()?;
    Some((std::str::from_utf8(name).ok()?, *namespace))
}

fn read_vm(row: &Row<'_>) -> rusqlite::Result<VmRecord> {
    let latest: Option<[u8; 16]> = row.get("latest")?;
    Ok(VmRecord {
        id: VmId::from_bytes(id(row, "id")?),
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        namespace_name: row.get("namespace")?,
        name: row.get("name")?,
        backups: count(row, "backups")?,
        latest: latest.map(BackupId::from_bytes),
        owner: row.get("owner")?,
    })
}

pub(crate) fn roots(
    connection: &Connection,
    after: Option<(BackupId, u32)>,
    limit: u32,
) -> Result<Vec<RootRecord>> {
    // Below every key: no backup's identifier is shorter than 16 bytes.
    let (backup, position) =
        after.map_or_else(|| (Vec::new(), 0), |(id, position)| (id.to_bytes().to_vec(), position));
    let read = |row: &Row<'_>| {
        Ok(RootRecord {
            backup: BackupId::from_bytes(id(row, "backup_id")?),
            position: row.get("position")?,
            disk: row.get("name")?,
            size_bytes: count(row, "size_bytes")?,
            root: Fingerprint::from_bytes(row.get("root")?),
        })
    };
    connection
        .prepare_cached(
            "SELECT * FROM disks WHERE (backup_id, position) > (?, ?) ORDER BY backup_id, position LIMIT ?",
        )
        .and_then(|mut s| s.query_map(params![backup, position, limit], read)?.collect())
        .or_error("read")
}

pub(crate) fn run(connection: &Connection, run: RunId) -> Result<Option<RunRecord>> {
    let read = |row: &Row<'_>| {
        Ok(RunRecord {
            id: RunId::from_bytes(id(row, "id")?),
            namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
            job_id: JobId::from_bytes(id(row, "job_id")?),
            job: row.get("job")?,
            owner: row.get("owner")?,
            started_ms: row.get("started_ms")?,
            finished_ms: row.get("finished_ms")?,
        })
    };
    connection
        .prepare_cached("SELECT r.*, j.name AS job FROM runs r JOIN jobs j ON j.id = r.job_id WHERE r.id = ?")
        .and_then(|mut s| s.query_row([run.to_bytes()], read).optional())
        .or_error("read")
}

fn one(connection: &Connection, condition: &str, values: impl Params) -> Result<Option<BackupRecord>> {
    connection
        .prepare_cached(&format!("{SELECT} {condition}"))
        .and_then(|mut s| s.query_row(values, read).optional())
        .or_error("read")?
        .map(|backup| with_disks(connection, backup))
        .transpose()
}

/// Names of the disks that a restore point lacks.
pub(crate) fn missing_disks(row: &Row<'_>) -> rusqlite::Result<Vec<String>> {
    let names: String = row.get("missing_disks")?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// The lock and hold that a row of `backups` keeps.
pub(crate) fn lock_of(row: &Row<'_>) -> rusqlite::Result<RetentionLock> {
    let reason: Option<String> = row.get("hold_reason")?;
    let hold = match reason {
        Some(reason) => Some(LegalHold {
            reason,
            who: row.get::<_, Option<String>>("hold_who")?.unwrap_or_default(),
            since_ms: row.get::<_, Option<i64>>("hold_since_ms")?.unwrap_or_default(),
        }),
        None => None,
    };
    Ok(RetentionLock { until_ms: row.get("locked_until_ms")?, hold })
}

/// Reads everything but the disks.
fn read(row: &Row<'_>) -> rusqlite::Result<BackupRecord> {
    Ok(BackupRecord {
        id: BackupId::from_bytes(id(row, "id")?),
        session: SessionId::from_bytes(id(row, "session_id")?),
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        namespace_name: row.get("namespace")?,
        vm_id: VmId::from_bytes(id(row, "vm_id")?),
        vm: row.get("vm")?,
        job: row.get("job")?,
        run: RunId::from_bytes(id(row, "run_id")?),
        ordinal: count(row, "ordinal")?,
        client_host: row.get("client_host")?,
        owner: row.get("owner")?,
        started_ms: row.get("started_ms")?,
        finished_ms: row.get("finished_ms")?,
        disks: Vec::new(),
        missing_disks: missing_disks(row)?,
        accepted_change: row.get("accepted_change")?,
        lock: lock_of(row)?,
    })
}

fn with_disks(connection: &Connection, mut backup: BackupRecord) -> Result<BackupRecord> {
    let read = |row: &Row<'_>| {
        Ok(DiskRecord {
            name: row.get("name")?,
            size_bytes: count(row, "size_bytes")?,
            data_bytes: count(row, "data_bytes")?,
            extent_count: count(row, "extent_count")?,
            root: Fingerprint::from_bytes(row.get("root")?),
        })
    };
    backup.disks = connection
        .prepare_cached("SELECT * FROM disks WHERE backup_id = ? ORDER BY position")
        .and_then(|mut s| s.query_map([backup.id.to_bytes()], read)?.collect())
        .or_error("read")?;
    Ok(backup)
}

/// Bytes of a backup in a message, roughly and rather more.
fn weight(backup: &BackupRecord) -> usize {
    const FIXED: usize = 256;
    const DISK: usize = 128;
    let names = backup.namespace_name.len() + backup.vm.len() + backup.job.len() + backup.client_host.len();
    let missing: usize = backup.missing_disks.iter().map(String::len).sum();
    FIXED + names + missing + backup.disks.iter().map(|disk| DISK + disk.name.len()).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_cover_exactly_their_ids() {
        let id = Ulid(0x0193_4abc_def0_1234_5678_9abc_def0_1234);
        let text = id.to_string();
        for len in 1..=ULID_LEN {
            let (low, high) = prefix_range(&text[..len].to_lowercase()).unwrap();
            assert!(low <= id && id <= high, "{len}");
            assert_eq!(low.to_string()[..len], text[..len]);
            assert_eq!(high.to_string()[..len], text[..len]);
        }
        assert_eq!(prefix_range(&text), Some((id, id)));
        for bad in ["", "8", "U", "0!", "01ä", &format!("{text}0")] {
            assert_eq!(prefix_range(bad), None, "{bad}");
        }
    }
}
