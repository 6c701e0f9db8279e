//! The Catalog service.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_engine::FalseChunk;
use holdfast_engine::catalog::token::Action;
use holdfast_engine::catalog::{
    AgentsProof, BackupFilter, BackupRecord, NamespaceRecord, PageRequest, RetentionLock, Verification,
};
use holdfast_engine::ids::BackupId;
use holdfast_proto::limits::{
    FALSE_CHUNKS_MAX, FALSE_DIGESTS_MAX, VERIFICATION_DETAIL_MAX_BYTES, check_name, is_deceptive,
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
use crate::retention::choice::{self, LATEST};
use crate::retention::plan::in_force;

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
    #[tracing::instrument(level = "info", skip_all)]
    async fn list_backups(
        &self,
        request: Request<v1::ListBackupsRequest>,
    ) -> Result<Response<v1::ListBackupsResponse>, Status> {
        unary(&self.app, request, list_backups).await
    }

    #[tracing::instrument(level = "info", skip_all)]
    async fn get_backup(
        &self,
        request: Request<v1::GetBackupRequest>,
    ) -> Result<Response<v1::BackupInfo>, Status> {
        unary(&self.app, request, get_backup).await
    }

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

fn list_backups(
    app: &App,
    caller: &Caller,
    message: v1::ListBackupsRequest,
) -> Result<v1::ListBackupsResponse, ServiceError> {
    let filter = BackupFilter {
        namespaces: caller.namespaces(app.catalog(), &message.namespace, Action::Catalog)?,
        vm: name("VM", message.vm)?,
        job: name("job", message.job)?,
        ..BackupFilter::default()
    };
    let page = PageRequest { size: message.page_size, token: &message.page_token };
    let page = app.catalog().list_backups(&filter, page)?;
    Ok(v1::ListBackupsResponse {
        backups: described(app, &page.items)?,
        next_page_token: page.next.unwrap_or_default(),
    })
}

fn get_backup(
    app: &App,
    caller: &Caller,
    message: v1::GetBackupRequest,
) -> Result<v1::BackupInfo, ServiceError> {
    let namespace = caller.namespace(app.catalog(), &message.namespace, Action::Catalog)?;
    let absent = |what: String| {
        let name = &namespace.name;
        ServiceError::new(
            ErrorCode::NotFound,
            format!("there is no {what} in namespace {name:?}; 'holdfast list' lists the backups"),
        )
    };
    let backup = if message.backup == LATEST {
        let vm = name("VM", message.vm)?
            .ok_or_else(|| ServiceError::invalid("the latest backup of which VM? name it"))?;
        app.catalog()
            .latest_backup(namespace.id, &vm)?
            .ok_or_else(|| absent(format!("backup of VM {vm:?}")))?
    } else {
        let vm = name("VM", message.vm)?;
        choice::find(app.catalog(), namespace.id, &message.backup)?
            .filter(|backup| vm.as_ref().is_none_or(|vm| *vm == backup.vm))
            .ok_or_else(|| match &vm {
                Some(vm) => absent(format!("backup {} of VM {vm:?}", message.backup)),
                None => absent(format!("backup {}", message.backup)),
            })?
    };
    described(app, &[backup])?
        .pop()
        .ok_or_else(|| ServiceError::defect("no description of a backup".to_owned()))
}

/// With what is known to be damaged of them, when they last proved sound, what keeps them from being deleted, and their
/// shares as far as they were counted.
fn described(app: &App, backups: &[BackupRecord]) -> Result<Vec<v1::BackupInfo>, ServiceError> {
    let ids: Vec<BackupId> = backups.iter().map(|backup| backup.id).collect();
    let lost: HashMap<BackupId, u64> = app.catalog().lost_bytes(&ids)?.into_iter().collect();
    let proofs = app.catalog().proofs(&ids)?;
    let lock_time_ms = app.catalog().lock_time()?;
    let shares = app.catalog().backup_shares(&ids)?;
    let shares: HashMap<BackupId, _> = shares.into_iter().map(|share| (share.backup, share)).collect();
    let places = app.catalog().backup_places(&ids)?;
    let places: HashMap<BackupId, _> = places.into_iter().map(|found| (found.backup, found)).collect();
    let agents = app.catalog().agents_proofs(&ids)?;
    let agents: HashMap<BackupId, AgentsProof> =
        agents.into_iter().map(|found| (found.backup, found)).collect();
    let of_point = |id| agents.get(id).and_then(|found: &AgentsProof| found.point_ms).unwrap_or(0);
    let of_vm = |id| agents.get(id).and_then(|found: &AgentsProof| found.vm_ms).unwrap_or(0);
    let described = backups.iter().zip(proofs).map(|(backup, proven_ms)| v1::BackupInfo {
        damaged_bytes: lost.get(&backup.id).copied().unwrap_or(0),
        last_proven_ms: proven_ms.unwrap_or(0),
        end_to_end: agents.get(&backup.id).is_some_and(|found| found.end_to_end),
        agent_verified_ms: of_point(&backup.id),
        vm_agent_verified_ms: of_vm(&backup.id),
        protection: protection(&backup.lock, lock_time_ms),
        exclusive_bytes: shares.get(&backup.id).and_then(|share| share.exclusive_bytes),
        attributed_bytes: shares.get(&backup.id).map(|share| share.attributed_bytes),
        attributed_ms: shares.get(&backup.id).map(|share| share.at_ms),
        places: places.get(&backup.id).map(|found| v1::Places {
            at_ms: found.at_ms,
            here_bytes: found.here_bytes,
            bucket_bytes: found.bucket_bytes,
            archive_bytes: found.archive_bytes,
        }),
        ..backup.info()
    });
    Ok(described.collect())
}

/// The lock and the hold of a restore point; `None`: it has neither.
fn protection(lock: &RetentionLock, lock_time_ms: Option<i64>) -> Option<v1::Protection> {
    let (locked_until_ms, held) = in_force(lock, lock_time_ms);
    if locked_until_ms.is_none() && !held {
        return None;
    }
    let hold = lock.hold.clone();
    let (hold_reason, hold_who) = hold.map(|hold| (hold.reason, hold.who)).unwrap_or_default();
    Some(v1::Protection { locked_until_ms, hold_reason, hold_who })
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

/// A name to filter by; empty means any.
fn name(what: &str, name: String) -> Result<Option<String>, ServiceError> {
    if name.is_empty() {
        return Ok(None);
    }
    check_name(what, &name).map_err(ServiceError::invalid)?;
    Ok(Some(name))
}
