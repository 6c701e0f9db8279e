//! Transport between the pipeline and one ingest stream: messages out in order, answers in.

use std::sync::atomic::Ordering;
use std::time::Instant;

use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::ingest_response::Kind as Answer;
use tokio::sync::mpsc;

use super::Accepted;
use super::lanes::Outlet;
use crate::backup::Pipeline;
use crate::backup::compress::Compressing;
use crate::error::ClientError;
use crate::progress::Step;
use crate::stages::Stage;

/// An item to send in order.
pub(super) enum Item {
    Region(Compressing),
    Message(Kind),
}

/// Messages from the server that decide how the stream goes on.
pub(super) enum Reply {
    Need(v1::Need),
    Again(v1::Again),
    Finished,
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

/// Takes what the server says, up to its confirmation that the disk is finished, and gives `replies` what has to be
/// acted upon; `accepted` is raised to what the server has.
pub(super) async fn receive(
    mut inbound: tonic::Streaming<v1::IngestResponse>,
    replies: mpsc::Sender<Reply>,
    accepted: &Accepted,
) -> Result<(), ClientError> {
    while let Some(response) = inbound.message().await? {
        match response.kind {
            Some(Answer::Need(need)) => hand_in(&replies, Reply::Need(need)).await,
            Some(Answer::Again(again)) => hand_in(&replies, Reply::Again(again)).await,
            Some(Answer::Ack(ack)) => {
                accepted.raise(ack.extents_accepted, ack.durable_bytes);
            }
            Some(Answer::Finished(_)) => {
                hand_in(&replies, Reply::Finished).await;
                return Ok(());
            }
            Some(Answer::Opened(_) | Answer::Queued(_)) => {
                return Err(ClientError::Protocol("it opened an ingest stream twice".to_owned()));
            }
            None => {
                return Err(ClientError::Protocol("an ingest answer of an unknown kind".to_owned()));
            }
        }
    }
    Err(ClientError::Lost("the server ended an ingest stream before it was finished".to_owned()))
}

/// Waits for ever when the query loop has ended, which it does after the last reply or with an error that ends the
/// stream.
async fn hand_in(replies: &mpsc::Sender<Reply>, reply: Reply) {
    if replies.send(reply).await.is_err() {
        std::future::pending::<()>().await;
    }
}
