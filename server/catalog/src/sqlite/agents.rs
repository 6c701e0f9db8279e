//! Agents that run as a service.

use holdfast_proto::api::{Agent, AgentReport, Time};
use holdfast_types::ids::{NamespaceId, TokenId};
use rusqlite::{Connection, Row, Transaction, params};

use super::convert::{OrCatalogError, id};
use super::tokens;
use crate::token::TokenRecord;
use crate::{AGENTS_PER_TOKEN_MAX, CatalogError, Result, validate};

pub(crate) fn report(tx: &Transaction<'_>, now_ms: i64, token: TokenId, report: &AgentReport) -> Result<()> {
    let (record, _) = tokens::by_id(tx, token)?.ok_or_else(|| CatalogError::not_found("token", token))?;
    let AgentReport { host, version, next_run, vms, problem } = report;
    replace(tx, &record, host)?;
    tx.prepare_cached(
        "INSERT INTO agents (token_id, host, version, seen_ms, next_run_ms, vms, problem) VALUES (?, ?, ?, ?, ?, ?, ?) \
         ON CONFLICT (token_id, host) DO UPDATE SET version = excluded.version, seen_ms = excluded.seen_ms, \
         next_run_ms = excluded.next_run_ms, vms = excluded.vms, problem = excluded.problem",
    )
    .and_then(|mut s| {
        let next_run_ms = next_run.map(|next| next.unix_ms);
        let (version, problem) = (validate::clip(version), validate::clip(problem));
        s.execute(params![token.to_bytes(), host, version, now_ms, next_run_ms, vms, problem])
    })
    .or_error("write")?;
    tx.prepare_cached(
        "DELETE FROM agents WHERE token_id = ?1 AND host IN (SELECT host FROM agents WHERE token_id = ?1 \
         ORDER BY seen_ms DESC, host LIMIT ?2 OFFSET ?3)",
    )
    .and_then(|mut s| s.execute(params![token.to_bytes(), i64::MAX, AGENTS_PER_TOKEN_MAX]))
    .or_error("write")?;
    Ok(())
}

/// Forgets what this machine reported with tokens that this one came in the place of: those of the same owner that are revoked, or
/// are for the very same namespaces and VMs. Another token may be that of another machine of this name.
fn replace(tx: &Transaction<'_>, token: &TokenRecord, host: &str) -> Result<()> {
    let others: Vec<TokenId> = tx
        .prepare_cached(
            "SELECT a.token_id FROM agents a JOIN tokens t ON t.id = a.token_id WHERE a.host = ? AND t.owner = ? AND t.id <> ?",
        )
        .and_then(|mut s| {
            let read = |row: &Row<'_>| Ok(TokenId::from_bytes(id(row, "token_id")?));
            s.query_map(params![host, token.owner, token.id.to_bytes()], read)?.collect()
        })
        .or_error("read")?;
    for other in others {
        let Some((before, _)) = tokens::by_id(tx, other)? else { continue };
        let is_same = before.namespaces == token.namespaces && before.vm_patterns == token.vm_patterns;
        if is_same || before.revoked_ms.is_some() {
            tx.prepare_cached("DELETE FROM agents WHERE token_id = ? AND host = ?")
                .and_then(|mut s| s.execute(params![other.to_bytes(), host]))
                .or_error("write")?;
        }
    }
    Ok(())
}

pub(crate) fn list(
    connection: &Connection,
    now_ms: i64,
    namespaces: Option<&[NamespaceId]>,
) -> Result<Vec<Agent>> {
    let rows: Vec<(TokenId, Agent)> = connection
        .prepare_cached(
            "SELECT a.*, t.name FROM agents a JOIN tokens t ON t.id = a.token_id WHERE t.revoked_ms IS NULL \
             ORDER BY t.name, a.host",
        )
        .and_then(|mut s| s.query_map([], read)?.collect())
        .or_error("read")?;
    let mut found = Vec::new();
    for (token, agent) in rows {
        if is_within(connection, token, namespaces)? {
            found.push(agent.at(now_ms));
        }
    }
    Ok(found)
}

/// Returns true if the token is valid for nothing but these namespaces.
fn is_within(connection: &Connection, token: TokenId, namespaces: Option<&[NamespaceId]>) -> Result<bool> {
    let Some(namespaces) = namespaces else { return Ok(true) };
    let Some((record, _)) = tokens::by_id(connection, token)? else { return Ok(false) };
    Ok(!record.namespaces.is_empty() && record.namespaces.iter().all(|id| namespaces.contains(id)))
}

fn read(row: &Row<'_>) -> rusqlite::Result<(TokenId, Agent)> {
    let next_run_ms: Option<i64> = row.get("next_run_ms")?;
    let report = AgentReport {
        host: row.get("host")?,
        version: row.get("version")?,
        next_run: next_run_ms.map(Time::new),
        vms: row.get("vms")?,
        problem: row.get("problem")?,
    };
    let agent = Agent { token: row.get("name")?, seen: row.get("seen_ms")?, late: false, report };
    Ok((TokenId::from_bytes(id(row, "token_id")?), agent))
}
