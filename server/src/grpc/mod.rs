//! The protocol, as a thin shell: every call is authenticated, its arguments checked, the engine asked on a
//! thread that may block, and the answer or the error translated. Nothing is decided here.

mod backup;
mod call;
mod catalog;
mod ingest;
mod outgoing;
mod restore;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::v1::backup_server::BackupServer;
use holdfast_proto::v1::catalog_server::CatalogServer;
use holdfast_proto::v1::restore_server::RestoreServer;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use crate::app::App;
use crate::net::Connection;

/// Large frames cost fewer system calls and locks.
const FRAME_BYTES: u32 = 64 << 10;
/// What one stream may have in flight: 80 ms of a 100 MB/s line.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// What all streams of a connection may have in flight; also what they may occupy in memory unread.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// Finds agents that vanished without a word.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Calls of one connection at once.
const CALLS_PER_CONNECTION_MAX: u32 = 128;

/// Serves `incoming` until `stop`, then until the calls under way are done.
///
/// # Errors
/// When the connections cannot be served.
pub(crate) async fn serve(
    app: Arc<App>,
    incoming: ReceiverStream<io::Result<Connection>>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let count_calls = app.metrics.count_calls();
    let backup = BackupServer::new(backup::BackupService::new(Arc::clone(&app)))
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES);
    let restore = RestoreServer::new(restore::RestoreService::new(Arc::clone(&app)))
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES);
    let catalog = CatalogServer::new(catalog::CatalogService::new(app))
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES);
    Server::builder()
        .max_frame_size(Some(FRAME_BYTES))
        .initial_stream_window_size(Some(STREAM_WINDOW_BYTES))
        .initial_connection_window_size(Some(CONNECTION_WINDOW_BYTES))
        .http2_adaptive_window(Some(false))
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(Some(CALLS_PER_CONNECTION_MAX))
        .layer(count_calls)
        .add_service(backup)
        .add_service(restore)
        .add_service(catalog)
        .serve_with_incoming_shutdown(incoming, async move {
            let _ = stop.wait_for(|stop| *stop).await;
        })
        .await
}
