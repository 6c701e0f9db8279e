//! VMs and jobs that get another name, and VMs that are removed.

use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, NamespaceId, VmId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};
use ulid::Ulid;

use super::convert::{OrCatalogError, id};
use super::details::kept;
use super::select::named;
use super::{audit, commit_numbers, namespaces, point_states, policies, usage};
use crate::{AuditEntry, CatalogError, Named, NamedVm, Rename, Result};

pub(crate) fn vm(connection: &Connection, namespace: NamespaceId, vm: &str) -> Result<Option<NamedVm>> {
    connection
        .prepare_cached("SELECT * FROM vms WHERE name = ? AND namespace_id = ? AND removed_ms IS NULL")
        .and_then(|mut s| s.query_row(params![vm, namespace.to_bytes()], read_vm).optional())
        .or_error("read")
}

/// Removed or not.
fn vm_by_id(connection: &Connection, vm: VmId) -> Result<NamedVm> {
    connection
        .prepare_cached("SELECT * FROM vms WHERE id = ?")
        .and_then(|mut s| s.query_row([vm.to_bytes()], read_vm).optional())
        .or_error("read")?
        .ok_or_else(|| CatalogError::not_found("VM", vm))
}

fn read_vm(row: &Row<'_>) -> rusqlite::Result<NamedVm> {
    Ok(NamedVm {
        id: VmId::from_bytes(id(row, "id")?),
        namespace: NamespaceId::from_bytes(id(row, "namespace_id")?),
        name: row.get("name")?,
    })
}

pub(crate) fn backups_of(
    connection: &Connection,
    vm: VmId,
    after: Option<BackupId>,
    limit: u32,
) -> Result<Vec<BackupId>> {
    let after = after.map_or_else(Vec::new, |id| id.to_bytes().to_vec());
    connection
        .prepare_cached("SELECT id FROM backups WHERE vm_id = ? AND id > ? ORDER BY id LIMIT ?")
        .and_then(|mut s| {
            let read = |row: &Row<'_>| Ok(BackupId::from_bytes(id(row, "id")?));
            s.query_map(params![vm.to_bytes(), after, limit], read)?.collect()
        })
        .or_error("read")
}

pub(crate) fn remove_vm(tx: &Transaction<'_>, clock: &dyn Clock, vm: VmId, who: &str) -> Result<()> {
    let found = vm_by_id(tx, vm)?;
    if let [backup] = backups_of(tx, vm, None, 1)?.as_slice() {
        return Err(CatalogError::invalid(format!(
            "VM {:?} has restore points, such as {backup}; delete them first, or with --delete-restore-points",
            found.name
        )));
    }
    tx.execute(
        "UPDATE vms SET removed_ms = coalesce(removed_ms, ?), owner = NULL WHERE id = ?",
        params![clock.now_ms(), vm.to_bytes()],
    )
    .or_error("write")?;
    tell(tx, clock, who, "vm.remove", vm.to_string(), &found, "removed")
}

pub(crate) fn rename_vm(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    vm: VmId,
    name: &str,
    who: &str,
) -> Result<()> {
    let found = vm_by_id(tx, vm)?;
    if found.name == name {
        return Ok(());
    }
    write_vm_name(tx, &found, name)?;
    tell(tx, clock, who, "vm.rename", vm.to_string(), &found, &format!("renamed to {name:?}"))
}

/// Its restore points become stale.
fn write_vm_name(tx: &Transaction<'_>, found: &NamedVm, name: &str) -> Result<()> {
    let id = found.id.to_bytes();
    if let Some(&other) = named(tx, "vms", name, Some(&[found.namespace]))?.first() {
        let is_removed = vm(tx, found.namespace, name)?.is_none();
        if !is_removed || !backups_of(tx, VmId::from_bytes(other), None, 1)?.is_empty() {
            return Err(CatalogError::exists("VM", format!("{name:?}")));
        }
        join(tx, found.namespace, Named::Vm, other, id)?;
    }
    tx.execute("UPDATE vms SET name = ? WHERE id = ?", params![name, id]).or_error("write")?;
    policies::rename(tx, &[rename(found.namespace, Named::Vm, &found.name, name)])?;
    // (L5) In the same transaction.
    point_states::mark_all_stale(tx, "vm_id", id)
}

fn rename(namespace: NamespaceId, kind: Named, from: &str, to: &str) -> Rename {
    Rename { namespace, kind, from: from.to_owned(), to: to.to_owned() }
}

/// Gives what refers to `from` to `to`, and drops `from`.
fn join(
    tx: &Transaction<'_>,
    namespace: NamespaceId,
    kind: Named,
    from: [u8; 16],
    to: [u8; 16],
) -> Result<()> {
    let (table, column) = (table(kind), column(kind));
    let users: &[&str] =
        if kind == Named::Vm { &["backups", "details"] } else { &["backups", "details", "runs"] };
    kept::follow(tx, &format!("d.{column} IN (?, ?)"), &[from, to], || {
        for user in users {
            tx.execute(&format!("UPDATE {user} SET {column} = ? WHERE {column} = ?"), params![to, from])
                .or_error("write")?;
        }
        Ok(())
    })?;
    if kind == Named::Job {
        tx.execute(
            "UPDATE jobs SET runs = runs + (SELECT f.runs FROM jobs f WHERE f.id = ?) WHERE id = ?",
            [from, to],
        )
        .or_error("write")?;
    }
    tx.execute(&format!("DELETE FROM {table} WHERE id = ?"), [from]).or_error("write")?;
    usage::change(tx, namespace, table, -1)
}

pub(crate) fn rename_job(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    namespace: NamespaceId,
    job: &str,
    name: &str,
    who: &str,
) -> Result<()> {
    let found = named(tx, "jobs", job, Some(&[namespace]))?;
    let Some(&id) = found.first() else { return Err(CatalogError::not_found("job", format!("{job:?}"))) };
    if job == name {
        return Ok(());
    }
    if !named(tx, "jobs", name, Some(&[namespace]))?.is_empty() {
        return Err(CatalogError::exists("job", format!("{name:?}")));
    }
    tx.execute("UPDATE jobs SET name = ? WHERE id = ?", params![name, id]).or_error("write")?;
    policies::rename(tx, &[rename(namespace, Named::Job, job, name)])?;
    // (L5) In the same transaction.
    point_states::mark_all_stale(tx, "job_id", id)?;
    let named = namespaces::by_id(tx, namespace)?.map_or_else(String::new, |record| record.name);
    let entry = AuditEntry {
        who: who.to_owned(),
        action: "job.rename".to_owned(),
        object: Ulid::from_bytes(id).to_string(),
        detail: format!("job {job:?} in namespace {named:?}: renamed to {name:?}"),
    };
    audit::add(tx, clock, &entry)
}

fn tell(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    who: &str,
    action: &str,
    object: String,
    vm: &NamedVm,
    what: &str,
) -> Result<()> {
    let namespace = namespaces::by_id(tx, vm.namespace)?.map_or_else(String::new, |record| record.name);
    let detail = format!("VM {:?} in namespace {namespace:?}: {what}", vm.name);
    audit::add(tx, clock, &AuditEntry { who: who.to_owned(), action: action.to_owned(), object, detail })
}

/// (P10) Gives VMs and jobs the names that newer revisions of their points say: the catalog is an older copy. All leave
/// their names before any takes another, for names may have gone round. Policies follow.
pub(crate) fn follow(tx: &Transaction<'_>, clock: &dyn Clock, renames: &[Rename]) -> Result<()> {
    let mut found = Vec::new();
    for one in renames {
        if let Some(&id) = named(tx, table(one.kind), &one.from, Some(&[one.namespace]))?.first() {
            found.push((id, one));
        }
    }
    for (id, one) in &found {
        // No name has a line break.
        write_name(tx, one.kind, *id, &format!("\n{}", Ulid::from_bytes(*id)))?;
    }
    for (id, one) in &found {
        if let Some(&other) = named(tx, table(one.kind), &one.to, Some(&[one.namespace]))?.first() {
            merge(tx, one, other, *id)?;
        }
        write_name(tx, one.kind, *id, &one.to)?;
        // (L5) Of those whose points say so already it is noted when these are read.
        point_states::mark_all_stale(tx, column(one.kind), *id)?;
        let entry = AuditEntry {
            who: "engine".to_owned(),
            action: if one.kind == Named::Vm { "vm.rename" } else { "job.rename" }.to_owned(),
            object: Ulid::from_bytes(*id).to_string(),
            detail: format!("{:?} renamed to {:?}, as newer restore points say", one.from, one.to),
        };
        audit::add(tx, clock, &entry)?;
    }
    policies::rename(tx, renames)
}

const fn table(kind: Named) -> &'static str {
    if matches!(kind, Named::Vm) { "vms" } else { "jobs" }
}

const fn column(kind: Named) -> &'static str {
    if matches!(kind, Named::Vm) { "vm_id" } else { "job_id" }
}

fn write_name(tx: &Transaction<'_>, kind: Named, id: [u8; 16], name: &str) -> Result<()> {
    tx.execute(&format!("UPDATE {} SET name = ? WHERE id = ?", table(kind)), params![name, id])
        .or_error("write")?;
    Ok(())
}

/// Another has the name still: its restore points were deleted since, or theirs say the same. It is one from now on.
fn merge(tx: &Transaction<'_>, rename: &Rename, from: [u8; 16], to: [u8; 16]) -> Result<()> {
    if rename.kind == Named::Job {
        return join(tx, rename.namespace, Named::Job, from, to);
    }
    // Of two newest restore points one is left. Numbers may change which that is.
    let taken = usage::newest_bytes(tx, from)?.unwrap_or(0);
    // A number that both have is taken once.
    tx.execute(
        "UPDATE backups SET ordinal = ordinal + (SELECT max(ordinal) FROM backups WHERE vm_id IN (?1, ?2)) \
         WHERE vm_id = ?1 AND ordinal IN (SELECT ordinal FROM backups WHERE vm_id = ?2)",
        params![from, to],
    )
    .or_error("write")?;
    usage::of_vm(tx, rename.namespace, to, || join(tx, rename.namespace, Named::Vm, from, to))?;
    usage::change(tx, rename.namespace, "protected_bytes", -taken)?;
    commit_numbers::note_number(tx, commit_numbers::latest_of_vm(tx, to)?)
}
