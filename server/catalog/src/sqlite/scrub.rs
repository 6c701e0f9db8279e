//! Times at which containers and restore points were proved sound.

use holdfast_types::ids::{BackupId, VmId};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, params};

use super::containers::number;
use super::convert::{OrCatalogError, bad_value, count, id, int};
use crate::{BackupInOrder, ProofSummary, Result, ScrubPhase, ScrubState, Scrubbed, WithinBackup};

pub(crate) fn state(connection: &Connection) -> Result<ScrubState> {
    connection.query_row("SELECT * FROM scrub", [], read).or_error("read")
}

fn read(row: &Row<'_>) -> rusqlite::Result<ScrubState> {
    let phase: String = row.get("phase")?;
    let phase = match phase.as_str() {
        "idle" => ScrubPhase::Idle,
        "containers" => ScrubPhase::Containers,
        "restore_points" => ScrubPhase::RestorePoints,
        other => return Err(bad_value("phase", format!("{other:?} is no phase"))),
    };
    let vm: Option<[u8; 16]> = row.get("vm_id")?;
    let after = match vm {
        Some(vm) => Some((VmId::from_bytes(vm), count(row, "ordinal")?)),
        None => None,
    };
    let backup: Option<[u8; 16]> = row.get("backup_id")?;
    let within = match backup {
        Some(backup) => Some(WithinBackup {
            backup: BackupId::from_bytes(backup),
            disk: row.get("disk")?,
            extent: count(row, "extent")?,
            sound: row.get("sound")?,
        }),
        None => None,
    };
    Ok(ScrubState {
        pass: count(row, "pass")?,
        phase,
        began_ms: row.get("began_ms")?,
        ended_ms: row.get("ended_ms")?,
        container: count(row, "container")?,
        end: count(row, "up_to")?,
        after,
        within,
        done: count(row, "done")?,
    })
}

const fn phase_word(phase: ScrubPhase) -> &'static str {
    match phase {
        ScrubPhase::Idle => "idle",
        ScrubPhase::Containers => "containers",
        ScrubPhase::RestorePoints => "restore_points",
    }
}

pub(crate) fn note(tx: &Transaction<'_>, done: &Scrubbed) -> Result<()> {
    let Scrubbed { containers, backups, state } = done;
    let mut statement =
        tx.prepare_cached("UPDATE containers SET proven_ms = ? WHERE id = ?").or_error("write")?;
    for (container, at_ms) in containers {
        statement.execute(params![at_ms, number(*container)?]).or_error("write")?;
    }
    let mut statement =
        tx.prepare_cached("UPDATE backups SET proven_ms = ? WHERE id = ?").or_error("write")?;
    for (backup, at_ms) in backups {
        statement.execute(params![at_ms, backup.to_bytes()]).or_error("write")?;
    }
    let ordinal = state.after.map(|(_, ordinal)| int("commit number", ordinal)).transpose()?;
    let extent = state.within.map(|within| int("extent", within.extent)).transpose()?;
    tx.execute(
        "UPDATE scrub SET pass = ?, phase = ?, began_ms = ?, ended_ms = ?, container = ?, up_to = ?, vm_id = ?, \
         ordinal = ?, backup_id = ?, disk = ?, extent = ?, sound = ?, done = ?",
        params![
            int("passes", state.pass)?,
            phase_word(state.phase),
            state.began_ms,
            state.ended_ms,
            int("container number", state.container)?,
            int("container number", state.end)?,
            state.after.map(|(vm, _)| vm.to_bytes()),
            ordinal,
            state.within.map(|within| within.backup.to_bytes()),
            state.within.map(|within| within.disk),
            extent,
            state.within.map(|within| within.sound),
            int("done", state.done)?,
        ],
    )
    .or_error("write")?;
    Ok(())
}

pub(crate) fn in_order(connection: &Connection, after: Option<(VmId, u64)>) -> Result<Option<BackupInOrder>> {
    // Below every key: no VM's identifier is shorter than 16 bytes.
    let (vm, ordinal) = match after {
        Some((vm, ordinal)) => (vm.to_bytes().to_vec(), int("commit number", ordinal)?),
        None => (Vec::new(), 0),
    };
    let next = connection
        .prepare_cached(NEXT)
        .and_then(|mut s| {
            s.query_row(params![vm, ordinal], |row| {
                let (backup, vm) = (id(row, "id")?, id(row, "vm_id")?);
                Ok((BackupId::from_bytes(backup), VmId::from_bytes(vm), count(row, "ordinal")?))
            })
            .optional()
        })
        .or_error("read")?;
    let Some((backup, vm, number)) = next else { return Ok(None) };
    let before = connection
        .prepare_cached(
            "SELECT id, proven_ms FROM backups WHERE vm_id = ? AND ordinal < ? ORDER BY ordinal DESC LIMIT 1",
        )
        .and_then(|mut s| {
            s.query_row(params![vm.to_bytes(), i64::try_from(number).unwrap_or(i64::MAX)], |row| {
                Ok((BackupId::from_bytes(id(row, "id")?), row.get("proven_ms")?))
            })
            .optional()
        })
        .or_error("read")?;
    Ok(Some(BackupInOrder { backup, vm, number, before }))
}

/// By the index that keeps commit numbers of a VM apart.
pub(crate) const NEXT: &str = "SELECT id, vm_id, ordinal FROM backups WHERE (vm_id, ordinal) > (?, ?) \
     ORDER BY vm_id, ordinal LIMIT 1";

pub(crate) fn proofs(connection: &Connection, backups: &[BackupId]) -> Result<Vec<Option<i64>>> {
    let mut statement =
        connection.prepare_cached("SELECT proven_ms FROM backups WHERE id = ?").or_error("read")?;
    let mut found = Vec::with_capacity(backups.len());
    for backup in backups {
        let proven: Option<Option<i64>> =
            statement.query_row([backup.to_bytes()], |row| row.get(0)).optional().or_error("read")?;
        found.push(proven.flatten());
    }
    Ok(found)
}

pub(crate) fn summary(connection: &Connection) -> Result<ProofSummary> {
    let of = |sql: &str| {
        connection
            .query_row(sql, [], |row| {
                let (all, proven) = (count(row, "whole")?, count(row, "proven")?);
                Ok((all, all.saturating_sub(proven), row.get("oldest")?))
            })
            .or_error("read")
    };
    let (containers, containers_unproven, oldest_container_ms) = of(
        "SELECT count(*) AS whole, count(proven_ms) AS proven, min(coalesce(proven_ms, created_ms)) AS oldest \
         FROM containers WHERE state <> 'condemned'",
    )?;
    let (backups, backups_unproven, oldest_backup_ms) = of(
        "SELECT count(*) AS whole, count(proven_ms) AS proven, min(coalesce(proven_ms, finished_ms)) AS oldest \
         FROM backups",
    )?;
    Ok(ProofSummary {
        containers,
        containers_unproven,
        oldest_container_ms,
        backups,
        backups_unproven,
        oldest_backup_ms,
    })
}
