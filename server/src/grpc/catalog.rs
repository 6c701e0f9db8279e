//! The Catalog service.

use std::sync::Arc;

use holdfast_engine::FalseChunk;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{BackupRecord, NamespaceRecord, Verification};
use holdfast_engine::ids::BackupId;
use holdfast_proto::limits::{
    FALSE_CHUNKS_MAX, FALSE_DIGESTS_MAX, VERIFICATION_DETAIL_MAX_BYTES, is_deceptive,
};
use holdfast_proto::v1::{self, catalog_server::Catalog};
use holdfast_proto::{ErrorCode, Fingerprint};
use tonic::{Request, Response, Status};

use super::call::{parse_id, shown, unary};
use crate::activity::Change;
use crate::app::App;
use crate::auth::Caller;
use crate::error::ServiceError;
use crate::reading;

/// The service's calls.
#[derive(Debug)]
pub(super) struct CatalogService {
    app: Arc<App>,
}

impl CatalogService {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

#[tonic::async_trait]
impl Catalog for CatalogService {
    #[tracing::instrument(level = "info", skip_all, fields(backup = shown::<BackupId>(&request.get_ref().backup)))]
    async fn record_verification(
        &self,
        request: Request<v1::RecordVerificationRequest>,
    ) -> Result<Response<v1::RecordVerificationResponse>, Status> {
        unary(&self.app, request, |app, caller, message| record_verification(app, caller, &message)).await
    }

    #[tracing::instrument(level = "info", skip_all, fields(backup = shown::<BackupId>(&request.get_ref().backup)))]
    async fn report_chunks(
        &self,
        request: Request<v1::ReportChunksRequest>,
    ) -> Result<Response<v1::ReportChunksResponse>, Status> {
        unary(&self.app, request, |app, caller, message| report_chunks(app, caller, &message)).await
    }
}

/// Records what a client says it found. Any caller that may read a backup back may report it: damage that only its
/// owner sees must reach the operator. Digests it says are false are read and judged here.
fn record_verification(
    app: &App,
    caller: &Caller,
    message: &v1::RecordVerificationRequest,
) -> Result<v1::RecordVerificationResponse, ServiceError> {
    let namespace = caller.namespace(app.catalog(), &message.namespace, Action::ReadBack)?;
    if message.detail.len() > VERIFICATION_DETAIL_MAX_BYTES {
        return Err(ServiceError::invalid(format!(
            "the detail is longer than {VERIFICATION_DETAIL_MAX_BYTES} bytes"
        )));
    }
    let found = reported_on(app, caller, &namespace, &message.backup)?;
    let backup = found.id;
    let lies = message.false_digests.len();
    if lies > FALSE_DIGESTS_MAX {
        return Err(ServiceError::invalid(format!(
            "{lies} extents with a false digest in one report; the limit is {FALSE_DIGESTS_MAX}"
        )));
    }
    let read = format!("{} bytes read and found sound", message.bytes);
    let said = message.detail.replace(is_deceptive, " ");
    let detail = if said.is_empty() { read } else { format!("{said}; {read}") };
    let (ok, vm) = (message.ok, found.vm);
    app.catalog().record_verification(&Verification {
        backup,
        at_ms: app.clock.now_ms(),
        who: caller.token.name.clone(),
        by_agent: true,
        ok,
        detail: detail.clone(),
    })?;
    app.metrics.verified(ok);
    app.activity.note(Change::Backup);
    if ok {
        tracing::info!(vm, token = caller.token.name, detail, "a client verified a backup");
    } else {
        tracing::error!(vm, token = caller.token.name, detail, "a client found a backup damaged");
    }
    // After the report itself is kept: reading what it names may fail.
    let reported: Vec<(String, u64)> =
        message.false_digests.iter().map(|lie| (lie.disk.clone(), lie.extent)).collect();
    let who = &caller.token.name;
    let confirmed = app.engine.confirm_false_digests(namespace.id, backup, &reported, who)?;
    Ok(v1::RecordVerificationResponse { confirmed })
}

/// The restore point that a report is about.
fn reported_on(
    app: &App,
    caller: &Caller,
    namespace: &NamespaceRecord,
    backup: &str,
) -> Result<BackupRecord, ServiceError> {
    let backup: BackupId = parse_id("backup", backup)?;
    let found = app.catalog().backup(backup)?.filter(|backup| backup.namespace == namespace.id);
    let Some(found) = found else {
        return Err(ServiceError::new(ErrorCode::NotFound, format!("there is no backup {backup}")));
    };
    // (A11) A report counts only from those who may have what it is about.
    caller.check_contents(app.catalog(), &found).inspect_err(|_| {
        reading::note_refusal(app, caller, "backup.verify-refused", namespace, &found.vm);
    })?;
    Ok(found)
}

/// (N6) Has chunks sent again of which a client says that they are not what they should be. Only who may back the VM up may
/// say so: it asks of others what its own backups could ask.
fn report_chunks(
    app: &App,
    caller: &Caller,
    message: &v1::ReportChunksRequest,
) -> Result<v1::ReportChunksResponse, ServiceError> {
    let namespace = caller.namespace(app.catalog(), &message.namespace, Action::Backup)?;
    let found = reported_on(app, caller, &namespace, &message.backup)?;
    let count = message.chunks.len();
    if count > FALSE_CHUNKS_MAX {
        return Err(ServiceError::invalid(format!(
            "{count} chunks in one report; the limit is {FALSE_CHUNKS_MAX}"
        )));
    }
    let wrong = || ServiceError::invalid("a chunk's fingerprint or commitment is not 32 bytes long");
    let chunk = |chunk: &v1::FalseChunk| {
        let bytes = |field: &[u8]| <[u8; 32]>::try_from(field).map_err(|_| wrong());
        Ok(FalseChunk {
            disk: chunk.disk.clone(),
            extent: chunk.extent,
            fingerprint: Fingerprint::from_bytes(bytes(&chunk.fingerprint)?),
            commitment: bytes(&chunk.commitment)?,
        })
    };
    let chunks = message.chunks.iter().map(chunk).collect::<Result<Vec<_>, ServiceError>>()?;
    let who = &caller.token.name;
    let regions = app.engine.note_false_chunks(namespace.id, found.id, &chunks, who)?;
    if regions > 0 {
        tracing::error!(
            vm = found.vm,
            token = who,
            regions,
            "a client says that chunks are not what they should be"
        );
        app.activity.note(Change::Backup);
    }
    Ok(v1::ReportChunksResponse { regions })
}
