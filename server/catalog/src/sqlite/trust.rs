//! Trust in clients: owners of VMs, and digests that proved false.

use holdfast_proto::Fingerprint;
use holdfast_types::clock::Clock;
use holdfast_types::ids::{NamespaceId, VmId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::audit;
use super::convert::{OrCatalogError, id};
use crate::{AuditEntry, CatalogError, FalseDigest, Result, VmOwner};

pub(crate) fn vm_owner(connection: &Connection, namespace: NamespaceId, vm: &str) -> Result<Option<VmOwner>> {
    let read = |row: &Row<'_>| Ok(VmOwner { id: VmId::from_bytes(id(row, "id")?), owner: row.get("owner")? });
    connection
        .prepare_cached("SELECT id, owner FROM vms WHERE name = ? AND namespace_id = ?")
        .and_then(|mut s| s.query_row(params![vm, namespace.to_bytes()], read).optional())
        .or_error("read")
}

/// Makes the VM `owner`'s unless it is someone else's.
pub(crate) fn claim_vm(tx: &Transaction<'_>, vm: [u8; 16], name: &str, owner: &str) -> Result<()> {
    let had: Option<String> = tx
        .prepare_cached("SELECT owner FROM vms WHERE id = ?")
        .and_then(|mut s| s.query_row([vm], |row| row.get(0)))
        .or_error("read")?;
    match had {
        Some(had) if had == owner => Ok(()),
        Some(_) => Err(CatalogError::NotOwner { vm: name.to_owned() }),
        None => write_owner(tx, vm, owner),
    }
}

pub(crate) fn set_vm_owner(
    tx: &Transaction<'_>,
    clock: &dyn Clock,
    vm: VmId,
    owner: &str,
    who: &str,
) -> Result<Option<String>> {
    let found: Option<(String, Option<String>, String)> = tx
        .query_row(
            "SELECT v.name, v.owner, n.name FROM vms v JOIN namespaces n ON n.id = v.namespace_id WHERE v.id = ?",
            [vm.to_bytes()],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .optional()
        .or_error("read")?;
    let (name, had, namespace) = found.ok_or_else(|| CatalogError::not_found("VM", vm))?;
    write_owner(tx, vm.to_bytes(), owner)?;
    let before = had.as_ref().map_or_else(|| "no owner".to_owned(), |had| format!("owner {had:?}"));
    let entry = AuditEntry {
        who: who.to_owned(),
        action: "vm.owner".to_owned(),
        object: vm.to_string(),
        detail: format!("VM {name:?} in namespace {namespace:?}: from {before} to owner {owner:?}"),
    };
    audit::add(tx, clock, &entry)?;
    Ok(had)
}

/// Returns true if an operator set the VM's owner at `since_ms` or later, as far as the audit log says.
pub(crate) fn owner_set_since(tx: &Transaction<'_>, vm: [u8; 16], since_ms: i64) -> Result<bool> {
    // An entry's id is never lower than its time, so this reads the end of the log only.
    let mut first = [0; 16];
    let since = u64::try_from(since_ms).unwrap_or(0);
    if let (Some(head), Some(time)) = (first.get_mut(..6), since.to_be_bytes().get(2..)) {
        head.copy_from_slice(time);
    }
    tx.prepare_cached(
        "SELECT 1 FROM audit WHERE id >= ? AND at_ms >= ? AND action = 'vm.owner' AND object = ? LIMIT 1",
    )
    .and_then(|mut s| s.exists(params![first, since_ms, VmId::from_bytes(vm).to_string()]))
    .or_error("read")
}

pub(crate) fn write_owner(tx: &Transaction<'_>, vm: [u8; 16], owner: &str) -> Result<()> {
    tx.prepare_cached("UPDATE vms SET owner = ? WHERE id = ?")
        .and_then(|mut s| s.execute(params![owner, vm]))
        .or_error("write")?;
    Ok(())
}

pub(crate) fn add_false_digests(tx: &Transaction<'_>, found: &[FalseDigest]) -> Result<()> {
    let mut insert = tx
        .prepare_cached(
            "INSERT INTO false_digests (namespace_id, node, digest, found_ms) VALUES (?, ?, ?, ?) \
             ON CONFLICT DO NOTHING",
        )
        .or_error("write")?;
    for FalseDigest { namespace, node, digest, found_ms } in found {
        insert
            .execute(params![namespace.to_bytes(), node.as_bytes(), digest.as_bytes(), found_ms])
            .or_error("write")?;
    }
    Ok(())
}

pub(crate) fn are_false(
    connection: &Connection,
    namespace: NamespaceId,
    claims: &[(Fingerprint, Fingerprint)],
) -> Result<Vec<bool>> {
    let mut find = connection
        .prepare_cached("SELECT 1 FROM false_digests WHERE namespace_id = ? AND node = ? AND digest = ?")
        .or_error("read")?;
    let namespace = namespace.to_bytes();
    let is_false = |(node, digest): &(Fingerprint, Fingerprint)| {
        find.exists(params![namespace, node.as_bytes(), digest.as_bytes()]).or_error("read")
    };
    claims.iter().map(is_false).collect()
}
