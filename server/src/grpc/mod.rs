//! The agents' protocol, as a thin shell: every call is authenticated, its arguments checked, the engine asked on a
//! thread that may block, and the answer or the error translated. Nothing is decided here.
//!
//! | file | open it for |
//! |---|---|
//! | `backup`, `restore`, `catalog` | the three services, one call a function |
//! | `call` | what every call has in common: caller, protocol version, identifiers |
//! | `ingest/` | a disk coming in |
//! | `digests`, `outgoing` | streams going out |
//! | `bounds` | what one agent may cost, with the arithmetic |
//! | `count` | metrics and the log span of a call |
//! | `status` | errors |

mod backup;
mod bounds;
mod call;
mod catalog;
mod count;
mod digests;
mod ingest;
mod outgoing;
mod restore;
mod status;

use std::io;
use std::sync::Arc;

use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::v1::backup_server::BackupServer;
use holdfast_proto::v1::catalog_server::CatalogServer;
use holdfast_proto::v1::restore_server::RestoreServer;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;

use crate::app::App;
use crate::net::Connection;
use bounds::{
    CALLS_PER_CONNECTION_MAX, CONNECTION_WINDOW_BYTES, FRAME_BYTES, KEEPALIVE, STREAM_WINDOW_BYTES,
};
use count::CountCalls;

/// Serves `incoming` until `stop`, then until the calls under way are done.
///
/// # Errors
/// When the connections cannot be served.
pub(crate) async fn serve(
    app: Arc<App>,
    incoming: ReceiverStream<io::Result<Connection>>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let window = app.budget.window_bytes.min(CONNECTION_WINDOW_BYTES);
    let count_calls = CountCalls::new(app.metrics.counters());
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
        .initial_stream_window_size(Some(window.min(STREAM_WINDOW_BYTES)))
        .initial_connection_window_size(Some(window))
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
