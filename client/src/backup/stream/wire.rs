//! The way into the transport of one ingest stream.

use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use tokio::sync::mpsc;

/// To the transport.
pub(super) type Wire = mpsc::Sender<v1::IngestRequest>;

/// Hands a message to the transport. When the transport is gone, waits for ever: [`receive`](super::transport::receive)
/// gets the reason and ends the stream with it.
pub(super) async fn hand_over(wire: &Wire, kind: Kind) {
    hand_over_numbered(wire, 0, kind).await;
}

/// The same for a message with its number among the ordered ones.
pub(super) async fn hand_over_numbered(wire: &Wire, order: u64, kind: Kind) {
    if wire.send(v1::IngestRequest { order, kind: Some(kind) }).await.is_err() {
        std::future::pending::<()>().await;
    }
}
