//! The Restore service.

use std::sync::Arc;

use holdfast_engine::ids::BackupId;
use holdfast_proto::limits::READ_RANGE_MAX_BYTES;
use holdfast_proto::v1::restore_server::Restore;
use holdfast_proto::{ErrorCode, v1};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::activity::streams::StreamKind;
use crate::app::App;
use crate::error::ServiceError;
use crate::grpc::call::{Stage, caller, queued, shown};
use crate::grpc::calls::Call;
use crate::grpc::readable::{disk_bytes, passed_over, readable_backup, subject};
use crate::grpc::{outgoing, parts};

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
    type ReadPartsStream = ReceiverStream<Result<v1::ReadDiskResponse, Status>>;
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

    #[tracing::instrument(level = "info", skip_all)]
    async fn read_parts(
        &self,
        request: Request<Streaming<v1::ReadPartsRequest>>,
    ) -> Result<Response<Self::ReadPartsStream>, Status> {
        let caller = caller(&request, Stage::Negotiated)?;
        let call = request.extensions().get::<Call>().copied();
        let guard = self.app.activity.streams.open(StreamKind::Restore, caller.token.id);
        let guard = guard.map_err(ServiceError::into_status)?;
        Ok(Response::new(parts::stream(Arc::clone(&self.app), (caller, call), guard, request.into_inner())))
    }
}

/// Bytes of data in a message; zeros do not count.
fn range_bytes(message: &v1::ReadRangeResponse) -> u64 {
    match &message.kind {
        Some(v1::read_range_response::Kind::Data(data)) => data.len() as u64,
        Some(v1::read_range_response::Kind::ZeroBytes(_)) | None => 0,
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
