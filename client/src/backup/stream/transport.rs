//! Between the pipeline and one ingest stream: messages out in order, answers in.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::Kind as Answer;
use tokio::sync::mpsc;

use super::lanes::Outlet;
use crate::backup::compress::Compressing;
use crate::backup::pipeline::Pipeline;
use crate::error::ClientError;
use crate::progress::Step;
use crate::stages::Stage;

/// Something to be sent in order.
pub(super) enum Item {
    Region(Compressing),
    Message(Kind),
}

/// To the transport.
pub(super) type Wire = mpsc::Sender<v1::IngestRequest>;

/// Hands a message to the transport. When the transport is gone, waits for ever: [`receive`] gets the reason
/// and ends the stream with it.
pub(super) async fn hand_over(wire: &Wire, kind: Kind) {
    hand_over_numbered(wire, 0, kind).await;
}

/// The same for a message with its number among the ordered ones.
pub(super) async fn hand_over_numbered(wire: &Wire, order: u64, kind: Kind) {
    if wire.send(v1::IngestRequest { order, kind: Some(kind) }).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Sends items in their order: waits for each region to be compressed, and keeps the upload limit.
pub(super) async fn send(
    pipeline: &Pipeline,
    mut items: mpsc::Receiver<Item>,
    mut outlet: Outlet,
) -> Result<(), ClientError> {
    while let Some(item) = items.recv().await {
        let (kind, bytes) = match item {
            Item::Message(kind) => (kind, 0),
            Item::Region(compressing) => {
                let panicked = ClientError::Internal("a compressing thread panicked");
                let region = compressing.await.map_err(|_| panicked)??;
                let bytes = region.payload.len() as u64;
                pipeline.upload_limit.wait(bytes).await;
                (Kind::Region(region), bytes)
            }
        };
        let begun = Instant::now();
        outlet.send(kind).await;
        pipeline.stages.waited(Stage::SendWait, begun.elapsed(), bytes);
        pipeline.sent_bytes.fetch_add(bytes, Ordering::Relaxed);
        pipeline.progress.advance(Step { wire_bytes: bytes, ..Step::default() });
    }
    Ok(())
}

/// Takes what the server says, up to its confirmation that the disk is finished. Answers to queries go to
/// `needs`; `accepted` is raised to the number of extents the server has.
pub(super) async fn receive(
    mut inbound: tonic::Streaming<v1::IngestResponse>,
    needs: mpsc::Sender<v1::Need>,
    accepted: &AtomicU64,
) -> Result<(), ClientError> {
    while let Some(response) = inbound.message().await? {
        match response.kind {
            Some(Answer::Need(need)) => {
                if needs.send(need).await.is_err() {
                    return Err(ClientError::Protocol("it answered after the last query".to_owned()));
                }
            }
            Some(Answer::Ack(ack)) => {
                accepted.fetch_max(ack.extents_accepted, Ordering::Relaxed);
            }
            Some(Answer::Finished(_)) => return Ok(()),
            Some(Answer::Opened(_)) => {
                return Err(ClientError::Protocol("it opened an ingest stream twice".to_owned()));
            }
            None => {
                return Err(ClientError::Protocol("an ingest answer of an unknown kind".to_owned()));
            }
        }
    }
    Err(ClientError::Lost("the server ended an ingest stream before it was finished".to_owned()))
}
