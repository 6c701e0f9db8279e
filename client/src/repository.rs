//! Questions about what is in a repository, and reporting the result of a verification.

use std::collections::BTreeSet;

use holdfast_proto::api::{
    Backup, ConfirmedDigests, DetailBatch, DetailRow, FalseChunk, FalseChunks, Keyset, RegionsSentAgain,
    VerificationReport,
};
use holdfast_proto::limits::{FALSE_CHUNKS_MAX, FALSE_DIGESTS_MAX, VERIFICATION_DETAIL_MAX_BYTES};
use serde::Serialize;

use crate::connect::Connection;
use crate::error::ClientError;

/// Backups of one answer: the server's limit.
const PAGE: &str = "1000";

/// Pages of one question at most: a server whose pages never end must not fill memory.
const PAGES_MAX: usize = 10_000;

/// Lists the restore points of a namespace, newest first; `vm` and `job` empty for all.
///
/// # Errors
/// Any error of a call.
pub async fn list_backups(
    connection: &Connection,
    namespace: &str,
    vm: &str,
    job: &str,
) -> Result<Vec<Backup>, ClientError> {
    let (api, mut backups, mut token) = (connection.api(), Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let parameters =
            [("namespace", namespace), ("vm", vm), ("job", job), ("page_size", PAGE), ("page_token", &token)];
        let page: Keyset<Backup> = api.get(&["backups"], &parameters).await?;
        backups.extend(page.items);
        match page.next_page_token {
            Some(next) => token = next,
            None => return Ok(backups),
        }
    }
    Err(ClientError::Protocol("a list of backups that does not end".to_owned()))
}

/// One backup, by id, by an unambiguous prefix of it, or `latest` of a VM.
///
/// # Errors
/// [`ClientError::Refused`] when none or several match.
pub async fn get_backup(
    connection: &Connection,
    namespace: &str,
    backup: &str,
    vm: &str,
) -> Result<Backup, ClientError> {
    if backup.is_empty() {
        return Err(ClientError::Usage("the id of the restore point is empty".to_owned()));
    }
    connection.api().get(&["backups", backup], &[("namespace", namespace), ("vm", vm)]).await
}

/// The answer to a report.
#[derive(Debug, Default)]
pub struct Reported {
    /// Oldest first.
    pub rows: Vec<DetailRow>,
    /// Restore points of these rows that have less than the one before, as their backups were told to accept.
    pub accepted_changes: BTreeSet<String>,
}

/// Returns all compression details that match the parameters of `GET /details`.
///
/// # Errors
/// Any error of a call.
pub async fn report(connection: &Connection, parameters: &impl Serialize) -> Result<Reported, ClientError> {
    let mut lines = connection.api().get_lines(&["details"], parameters).await?;
    let mut reported = Reported::default();
    while let Some(DetailBatch { rows, accepted_changes }) = lines.next().await? {
        reported.rows.extend(rows);
        reported.accepted_changes.extend(accepted_changes);
    }
    Ok(reported)
}

/// Tells the server the result of a verification, as much of it as a report may have; returns how many of the false digests
/// it confirmed.
///
/// # Errors
/// Any error of a call.
pub async fn record_verification(
    connection: &Connection,
    backup: &Backup,
    mut found: VerificationReport,
) -> Result<u32, ClientError> {
    found.detail.truncate(found.detail.floor_char_boundary(VERIFICATION_DETAIL_MAX_BYTES));
    found.false_digests.truncate(FALSE_DIGESTS_MAX);
    let lines = connection.api().post_lines(&["backups", &backup.id, "verifications"], &found).await?;
    let ConfirmedDigests { confirmed } = lines.only().await?;
    Ok(confirmed)
}

/// Tells the server of chunks that are not what their fingerprints say, so that it has them sent again. Returns how many
/// regions count as damaged by that and did not before.
///
/// # Errors
/// Any error of a call; what was told before it counts.
pub async fn report_chunks(
    connection: &Connection,
    backup: &Backup,
    found: &[FalseChunk],
) -> Result<u64, ClientError> {
    let mut told = 0;
    for part in found.chunks(FALSE_CHUNKS_MAX) {
        let part = FalseChunks { chunks: part.to_vec() };
        let path = ["backups", &backup.id, "false-chunks"];
        let RegionsSentAgain { regions } = connection.api().post(&path, &part).await?;
        told += u64::from(regions);
    }
    Ok(told)
}
