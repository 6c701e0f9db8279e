//! The server and its repository.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use holdfast_proto::limits::{EXTENT_BYTES, REGION_PLAIN_MAX_BYTES};
use holdfast_proto::version::{PROTOCOL_MAX, PROTOCOL_MIN};
use serde::Serialize;
use utoipa::ToSchema;

use super::wire::time;
use crate::app::App;
use crate::error::ServiceError;
use crate::repository::Encryption;

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ServerInfo {
    version: &'static str,
    /// The repository's id
    repository: String,
    started: String,
    uptime_seconds: u64,
    /// Address for agents
    grpc_address: String,
    /// Address for browsers
    http_address: String,
    /// SHA-256 of the certificate, for agents to pin
    fingerprint: String,
    protocol: Protocol,
    /// Why the repository accepts no backups; null: it accepts them
    read_only_reason: Option<String>,
    /// Seconds without a heartbeat from an agent after which its backup is given up
    lease_seconds: u32,
    /// Version of the repository's format
    format_version: u32,
    chunker: Chunker,
    /// Encryption at rest; null: the repository is not encrypted
    encryption: Option<EncryptionInfo>,
    /// Whether copies of the repository are kept in a bucket
    bucket: bool,
}

/// Encryption at rest
#[derive(Debug, Serialize, ToSchema)]
struct EncryptionInfo {
    /// The id of the repository key
    repository_key: String,
    /// What an administrator should do, as long as it was not done
    reminder: Option<&'static str>,
    /// Whether everything is encrypted with the keys of today
    complete: bool,
    /// Whether blobs that are not encrypted are still believed, because some were written before the repository was encrypted
    plain_accepted: bool,
    /// Blobs that the conversion has looked at, and all there were when its pass began
    looked_at: u64,
    total: u64,
    /// Blobs that could not be converted; the log says why
    left: u64,
}

/// Protocol versions that agents may use
#[derive(Debug, Serialize, ToSchema)]
struct Protocol {
    min: u32,
    max: u32,
}

/// How disks are cut into chunks
#[derive(Debug, Serialize, ToSchema)]
struct Chunker {
    min_bytes: u32,
    avg_bytes: u32,
    max_bytes: u32,
    extent_bytes: u32,
    region_bytes: u32,
}

/// The server
#[utoipa::path(get, path = "/server", tag = "server", responses((status = 200, description = "The server", body = ServerInfo)))]
pub(super) async fn server(State(app): State<Arc<App>>) -> Result<Json<ServerInfo>, ServiceError> {
    app.blocking(|app| info(app)).await.map(Json)
}

fn info(app: &App) -> Result<ServerInfo, ServiceError> {
    let repository = app.catalog().repository()?;
    let up_ms = app.clock.now_ms().saturating_sub(app.started_ms);
    Ok(ServerInfo {
        version: env!("CARGO_PKG_VERSION"),
        repository: repository.id.to_string(),
        started: time(app.started_ms),
        // 0 when the clock was set back.
        uptime_seconds: u64::try_from(up_ms / 1000).unwrap_or(0),
        grpc_address: app.addresses.grpc.to_string(),
        http_address: app.addresses.http.to_string(),
        fingerprint: app.addresses.certificate.fingerprint().to_string(),
        protocol: Protocol { min: PROTOCOL_MIN, max: PROTOCOL_MAX },
        read_only_reason: app.engine.read_only_reason().map(str::to_owned),
        lease_seconds: app.lease_secs,
        format_version: repository.format_version,
        encryption: app.encryption.as_deref().map(encryption_info),
        bucket: app.tiers.is_some(),
        chunker: Chunker {
            min_bytes: repository.chunker.min_bytes,
            avg_bytes: repository.chunker.avg_bytes,
            max_bytes: repository.chunker.max_bytes,
            extent_bytes: EXTENT_BYTES,
            region_bytes: REGION_PLAIN_MAX_BYTES,
        },
    })
}

fn encryption_info(encryption: &Encryption) -> EncryptionInfo {
    let figures = encryption.conversion().figures();
    EncryptionInfo {
        repository_key: encryption.repository_key(),
        reminder: encryption.reminder(),
        complete: figures.done,
        plain_accepted: encryption.accepts_plain(),
        looked_at: figures.looked_at,
        total: figures.total,
        left: figures.left,
    }
}
