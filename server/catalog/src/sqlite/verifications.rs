//! Results of verifying restore points.

use holdfast_types::clock::Clock;
use holdfast_types::ids::{BackupId, NamespaceId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::audit;
use super::convert::{OrCatalogError, count, id};
use crate::{
    AgentsProof, AgentsProofs, AuditEntry, CatalogError, Result, VERIFICATIONS_PER_BACKUP_MAX, Verification,
    validate,
};

pub(crate) fn record(tx: &Transaction<'_>, clock: &dyn Clock, verification: &Verification) -> Result<()> {
    let Verification { backup, at_ms, who, by_agent, ok, detail } = verification;
    if super::backups::by_id(tx, *backup)?.is_none() {
        return Err(CatalogError::not_found("backup", backup));
    }
    let id = backup.to_bytes();
    tx.execute(
        "INSERT INTO verifications (backup_id, ordinal, at_ms, who, ok, detail, by_agent) VALUES (?1, \
         (SELECT coalesce(max(ordinal), 0) + 1 FROM verifications WHERE backup_id = ?1), ?2, ?3, ?4, ?5, ?6)",
        params![id, at_ms, validate::clip(who), ok, validate::clip(detail), by_agent],
    )
    .or_error("write")?;
    if *by_agent && *ok {
        note_agents_proof(tx, &id, *at_ms)?;
    }
    tx.execute(
        "DELETE FROM verifications WHERE backup_id = ?1 AND ordinal <= \
         (SELECT max(ordinal) FROM verifications WHERE backup_id = ?1) - ?2",
        params![id, VERIFICATIONS_PER_BACKUP_MAX],
    )
    .or_error("write")?;
    let word = if *ok { "sound" } else { "DAMAGED" };
    let entry = AuditEntry {
        who: who.clone(),
        action: "backup.verify".to_owned(),
        object: backup.to_string(),
        detail: format!("{word}: {detail}"),
    };
    // A report of damage and one of soundness are two things, however often each is repeated.
    audit::add_repeated(tx, clock, entry, format!("{word} {backup}"))
}

fn note_agents_proof(tx: &Transaction<'_>, backup: &[u8; 16], at_ms: i64) -> Result<()> {
    tx.execute("UPDATE backups SET agent_verified_ms = ?2 WHERE id = ?1", params![backup, at_ms])
        .or_error("write")?;
    tx.execute(
        "UPDATE vms SET agent_verified_ms = ?2 WHERE id = (SELECT vm_id FROM backups WHERE id = ?1)",
        params![backup, at_ms],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn agents_proofs(connection: &Connection, backups: &[BackupId]) -> Result<Vec<AgentsProof>> {
    let mut statement = connection
        .prepare_cached(
            "SELECT b.agent_verified_ms AS point_ms, v.agent_verified_ms AS vm_ms, \
             n.key_id IS NOT NULL AS end_to_end FROM backups b JOIN vms v ON v.id = b.vm_id \
             JOIN namespaces n ON n.id = v.namespace_id WHERE b.id = ?",
        )
        .or_error("read")?;
    let mut found = Vec::new();
    for backup in backups {
        let read = |row: &Row<'_>| {
            Ok(AgentsProof {
                backup: *backup,
                end_to_end: row.get("end_to_end")?,
                point_ms: row.get("point_ms")?,
                vm_ms: row.get("vm_ms")?,
            })
        };
        found.extend(statement.query_row([backup.to_bytes()], read).optional().or_error("read")?);
    }
    Ok(found)
}

/// By namespace.
pub(crate) fn agents_proof_summaries(connection: &Connection) -> Result<Vec<AgentsProofs>> {
    connection
        .prepare_cached(
            "SELECT n.id, n.name, count(*) AS vms, count(*) FILTER (WHERE verified_ms IS NULL) AS never, min(verified_ms) AS oldest, \
             min(coalesce(verified_ms, first_ms)) AS since FROM (\
             SELECT v.namespace_id, v.agent_verified_ms AS verified_ms, min(b.finished_ms) AS first_ms \
             FROM vms v JOIN backups b ON b.vm_id = v.id WHERE v.removed_ms IS NULL AND v.namespace_id IN \
             (SELECT id FROM namespaces WHERE key_id IS NOT NULL) GROUP BY v.id) proofs \
             JOIN namespaces n ON n.id = proofs.namespace_id GROUP BY n.id ORDER BY n.name",
        )
        .and_then(|mut s| {
            s.query_map([], |row| {
                Ok(AgentsProofs {
                    namespace: NamespaceId::from_bytes(id(row, "id")?),
                    name: row.get("name")?,
                    vms: count(row, "vms")?,
                    never: count(row, "never")?,
                    oldest_ms: row.get("oldest")?,
                    unproved_since_ms: row.get("since")?,
                })
            })?
            .collect()
        })
        .or_error("read")
}

pub(crate) fn newest(connection: &Connection, backups: &[BackupId]) -> Result<Vec<Verification>> {
    let mut statement = connection
        .prepare_cached("SELECT * FROM verifications WHERE backup_id = ? ORDER BY ordinal DESC LIMIT 1")
        .or_error("read")?;
    let mut found = Vec::new();
    for backup in backups {
        let read = |row: &Row<'_>| {
            Ok(Verification {
                backup: *backup,
                at_ms: row.get("at_ms")?,
                who: row.get("who")?,
                by_agent: row.get("by_agent")?,
                ok: row.get("ok")?,
                detail: row.get("detail")?,
            })
        };
        found.extend(statement.query_row([backup.to_bytes()], read).optional().or_error("read")?);
    }
    Ok(found)
}
