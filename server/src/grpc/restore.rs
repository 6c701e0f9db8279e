//! The Restore service.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_engine::catalog::{AuditEntry, BackupRecord};
use holdfast_engine::ids::BackupId;
use holdfast_proto::limits::{PASSED_OVER_MAX, READ_RANGE_MAX_BYTES, check_name};
use holdfast_proto::region::sealed::Commitment;
use holdfast_proto::v1::restore_server::Restore;
use holdfast_proto::{ErrorCode, v1};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::activity::streams::{StreamKind, Subject};
use crate::app::App;
use crate::auth::{Caller, peer_text};
use crate::error::ServiceError;
use crate::grpc::call::{Stage, caller, parse_id, queued, shown};
use crate::grpc::outgoing;
use crate::reading::may_read;

/// The service's calls.
#[derive(Debug)]
pub(super) struct RestoreService {
    app: Arc<App>,
}

impl RestoreService {
    pub(super) fn new(app: Arc<App>) -> Self {
        Self { app }
    }
}

#[tonic::async_trait]
impl Restore for RestoreService {
    type ReadDiskStream = ReceiverStream<Result<v1::ReadDiskResponse, Status>>;
    type ReadRangeStream = ReceiverStream<Result<v1::ReadRangeResponse, Status>>;

    #[tracing::instrument(level = "info", skip_all, fields(backup = shown::<BackupId>(&request.get_ref().backup_id)))]
    async fn read_disk(
        &self,
        request: Request<v1::ReadDiskRequest>,
    ) -> Result<Response<Self::ReadDiskStream>, Status> {
        let caller = caller(&request, Stage::Negotiated)?;
        let guard = self.app.activity.streams.open(StreamKind::Restore, caller.token.id);
        let guard = guard.map_err(ServiceError::into_status)?;
        let message = request.into_inner();
        let token = caller.token.id;
        let (guard, backup, message, passed_over) = self
            .app
            .blocking(move |app| {
                let backup = readable_backup(app, &caller, &message.backup_id, &message.disk)?;
                let may_wait = message.takes_queued && !message.may_refuse;
                let passed_over = passed_over(&message.passed_over)?;
                guard.enter(backup.namespace, subject(&backup, &message.disk), may_wait)?;
                Ok((guard, backup, message, passed_over))
            })
            .await
            .map_err(ServiceError::into_status)?;
        let open = move |app: &Arc<App>| {
            let (first, count) = (message.first_extent, message.extent_count);
            let (namespace, id, disk) = (backup.namespace, backup.id, &message.disk);
            let reader = if message.report_damage {
                app.engine.read_disk_past_damage(namespace, id, disk, first, count)?
            } else {
                app.engine.read_disk(namespace, id, disk, first, count)?
            };
            let metrics = Arc::clone(app);
            let count = move |message: &v1::ReadDiskResponse| metrics.metrics.restored(disk_bytes(message));
            let reader = if message.from_volume { reader.from_volume() } else { reader };
            let items = reader.passing_over(passed_over).on_behalf_of(token);
            Ok(items.map(move |item| item.inspect(&count).map_err(ServiceError::from)))
        };
        if guard.has_slot() {
            let items = self.app.blocking(open).await.map_err(ServiceError::into_status)?;
            return Ok(Response::new(outgoing::stream(guard, items)));
        }
        let queued = |ahead| {
            let kind = v1::read_disk_response::Kind::Queued(queued(ahead));
            v1::ReadDiskResponse { kind: Some(kind) }
        };
        Ok(Response::new(outgoing::stream_in_turn(Arc::clone(&self.app), guard, queued, open)))
    }

    #[tracing::instrument(level = "info", skip_all, fields(backup = shown::<BackupId>(&request.get_ref().backup_id)))]
    async fn read_range(
        &self,
        request: Request<v1::ReadRangeRequest>,
    ) -> Result<Response<Self::ReadRangeStream>, Status> {
        let caller = caller(&request, Stage::Negotiated)?;
        let guard = self.app.activity.streams.open(StreamKind::Restore, caller.token.id);
        let guard = guard.map_err(ServiceError::into_status)?;
        let message = request.into_inner();
        let (guard, backup, message) = self
            .app
            .blocking(move |app| {
                let backup = readable_backup(app, &caller, &message.backup_id, &message.disk)?;
                if message.length > READ_RANGE_MAX_BYTES {
                    return Err(ServiceError::new(
                        ErrorCode::Limit,
                        format!("one call may read {READ_RANGE_MAX_BYTES} bytes, not {}", message.length),
                    ));
                }
                guard.enter(backup.namespace, subject(&backup, &message.disk), true)?;
                Ok((guard, backup, message))
            })
            .await
            .map_err(ServiceError::into_status)?;
        // Its answer cannot tell of a wait, which is one before its headers.
        guard.wait(|_| Ok(())).await.map_err(ServiceError::into_status)?;
        let reader = self.app.blocking(move |app| {
            let (offset, length) = (message.offset, message.length);
            Ok(app.engine.read_range(backup.namespace, backup.id, &message.disk, offset, length)?)
        });
        let reader = reader.await.map_err(ServiceError::into_status)?;
        let app = Arc::clone(&self.app);
        let count = move |message: &v1::ReadRangeResponse| app.metrics.restored(range_bytes(message));
        let items = reader.map(move |item| item.inspect(&count).map_err(ServiceError::from));
        Ok(Response::new(outgoing::stream(guard, items)))
    }
}

/// (R3) Which regions a client does not want chunks out of.
fn passed_over(regions: &[Bytes]) -> Result<BTreeSet<Commitment>, ServiceError> {
    let count = regions.len();
    if count > PASSED_OVER_MAX {
        return Err(ServiceError::invalid(format!(
            "{count} regions are to be passed over; the limit is {PASSED_OVER_MAX}"
        )));
    }
    let regions = regions.iter().map(|region| Commitment::try_from(&**region));
    regions.collect::<Result<_, _>>().map_err(|_| {
        ServiceError::invalid("a region that is to be passed over is not named by 32 bytes".to_owned())
    })
}

fn subject(backup: &BackupRecord, disk: &str) -> Subject {
    let (namespace_name, vm) = (backup.namespace_name.clone(), backup.vm.clone());
    Subject::Backup { backup: backup.id, namespace_name, vm, disk: disk.to_owned() }
}

/// Plain bytes of the regions in a message.
fn disk_bytes(message: &v1::ReadDiskResponse) -> u64 {
    use v1::read_disk_response::Kind;
    match &message.kind {
        Some(Kind::Regions(batch)) => batch.regions.iter().map(|region| u64::from(region.plain_bytes)).sum(),
        Some(Kind::Header(_) | Kind::Window(_) | Kind::WindowEnd(_) | Kind::Damaged(_) | Kind::Queued(_))
        | None => 0,
    }
}

/// Bytes of data in a message; zeros do not count.
fn range_bytes(message: &v1::ReadRangeResponse) -> u64 {
    match &message.kind {
        Some(v1::read_range_response::Kind::Data(data)) => data.len() as u64,
        Some(v1::read_range_response::Kind::ZeroBytes(_)) | None => 0,
    }
}

/// The backup, when the caller may read it; noted in the audit log. Blocks.
fn readable_backup(app: &App, caller: &Caller, id: &str, disk: &str) -> Result<BackupRecord, ServiceError> {
    check_name("disk", disk).map_err(ServiceError::invalid)?;
    let backup = may_read(app, caller, parse_id("backup", id)?)?;
    note(app, caller, &backup, disk);
    Ok(backup)
}

/// A catalog that cannot be written to must not prevent a restore. The thousand calls of one restore are one entry.
fn note(app: &App, caller: &Caller, backup: &BackupRecord, disk: &str) {
    let from = peer_text(caller.peer);
    let entry = AuditEntry {
        who: caller.token.name.clone(),
        action: "backup.read".to_owned(),
        object: backup.id.to_string(),
        detail: format!(
            "disk {disk:?} of VM {:?} in namespace {:?}, from {from}",
            backup.vm, backup.namespace_name
        ),
    };
    if app.auth.audit_log().note(entry, format!("{} {disk}", backup.id)) {
        tracing::info!(backup = %backup.id, vm = backup.vm, disk, token = caller.token.name, from, "reading a disk back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_counts_and_the_rest_does_not() {
        use v1::read_disk_response::Kind;
        let message = |kind| v1::ReadDiskResponse { kind: Some(kind) };
        let region = |plain_bytes| v1::RegionData { plain_bytes, ..v1::RegionData::default() };
        let regions = v1::Regions { regions: vec![region(1000), region(24)] };
        assert_eq!(disk_bytes(&message(Kind::Regions(regions))), 1024);
        assert_eq!(disk_bytes(&message(Kind::WindowEnd(v1::WindowEnd {}))), 0);
        let range = |kind| v1::ReadRangeResponse { kind: Some(kind), ..v1::ReadRangeResponse::default() };
        assert_eq!(range_bytes(&range(v1::read_range_response::Kind::Data(vec![7; 9].into()))), 9);
        assert_eq!(range_bytes(&range(v1::read_range_response::Kind::ZeroBytes(9))), 0);
    }
}
