//! Questions about what is in a repository, and reporting the result of a verification.

use std::collections::BTreeSet;

use holdfast_proto::api::{Backup, DetailBatch, DetailRow, Keyset};
use holdfast_proto::limits::{FALSE_CHUNKS_MAX, FALSE_DIGESTS_MAX, VERIFICATION_DETAIL_MAX_BYTES};
use holdfast_proto::{ErrorCode, v1};
use serde::Serialize;

use crate::connect::Connection;
use crate::error::ClientError;
use crate::restore::FalseChunk;

/// Backups of one answer: the server's limit.
const PAGE: &str = "1000";

/// Pages of one question at most: a server whose pages never end must not fill memory.
const PAGES_MAX: usize = 10_000;

/// All restore points of a namespace, newest first; `vm` and `job` empty for all.
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

/// All compression details that match the parameters of `GET /details`.
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

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Everything was read and matched.
    pub ok: bool,
    /// What is damaged; empty when nothing is.
    pub detail: String,
    /// Bytes that matched, without zeros.
    pub bytes: u64,
    /// Disk and number of extents that do not hash to what the backup recorded; the server looks itself.
    pub false_digests: Vec<(String, u64)>,
}

/// Tells the server the result of a verification; returns how many of the false digests it confirmed. A server too
/// old to record it is not an error.
///
/// # Errors
/// Any error of a call.
pub async fn record_verification(
    connection: &Connection,
    backup: &Backup,
    found: &Found,
) -> Result<u32, ClientError> {
    let mut detail = found.detail.clone();
    detail.truncate(detail.floor_char_boundary(VERIFICATION_DETAIL_MAX_BYTES));
    let lies = found.false_digests.iter().take(FALSE_DIGESTS_MAX);
    let false_digests = lies.map(|(disk, extent)| v1::FalseDigest { disk: disk.clone(), extent: *extent });
    let request = v1::RecordVerificationRequest {
        namespace: backup.namespace.clone(),
        backup: backup.id.clone(),
        ok: found.ok,
        detail,
        bytes: found.bytes,
        false_digests: false_digests.collect(),
    };
    match connection.catalog().record_verification(request).await {
        Ok(answer) => Ok(answer.into_inner().confirmed),
        Err(status) if is_unknown_call(&status) => {
            tracing::info!("this server is too old to record verifications");
            Ok(0)
        }
        Err(status) => Err(status.into()),
    }
}

/// Tells the server of chunks that are not what their fingerprints say, by disk, so that it has them sent again. Returns how
/// many regions count as damaged by that and did not before.
///
/// # Errors
/// Any error of a call; what was told before it counts.
pub async fn report_chunks(
    connection: &Connection,
    backup: &Backup,
    found: &[(String, FalseChunk)],
) -> Result<u64, ClientError> {
    let mut regions = 0;
    for part in found.chunks(FALSE_CHUNKS_MAX) {
        let chunk = |(disk, chunk): &(String, FalseChunk)| v1::FalseChunk {
            disk: disk.clone(),
            extent: chunk.extent,
            fingerprint: chunk.fingerprint.as_bytes().to_vec().into(),
            commitment: chunk.commitment.to_vec().into(),
        };
        let request = v1::ReportChunksRequest {
            namespace: backup.namespace.clone(),
            backup: backup.id.clone(),
            chunks: part.iter().map(chunk).collect(),
        };
        match connection.catalog().report_chunks(request).await {
            Ok(answer) => regions += u64::from(answer.into_inner().regions),
            Err(status) if is_unknown_call(&status) => {
                tracing::info!("this server is too old to be told of chunks");
                return Ok(regions);
            }
            Err(status) => return Err(status.into()),
        }
    }
    Ok(regions)
}

/// Whether the server does not know the call. One that knows it and refuses says so with a Holdfast code, which
/// may have the same gRPC status.
fn is_unknown_call(status: &tonic::Status) -> bool {
    status.code() == tonic::Code::Unimplemented && ErrorCode::of_status(status).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_call_the_server_never_heard_of_is_unknown() {
        assert!(is_unknown_call(&tonic::Status::unimplemented("")));
        assert!(!is_unknown_call(&ErrorCode::Unsupported.status("written by a newer version")));
        assert!(!is_unknown_call(&tonic::Status::unavailable("")));
    }
}
