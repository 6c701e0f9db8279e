//! Serves HTTP/1.1 and HTTP/2 over encrypted connections, with deadlines for silent clients.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

use crate::net::Connection;

/// How long a client may take to send a request's head, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Serves `incoming` until it ends, then until the requests under way are done.
pub(crate) async fn serve(router: Router, mut incoming: ReceiverStream<io::Result<Connection>>) {
    let builder = Arc::new(builder());
    let graceful = GracefulShutdown::new();
    while let Some(connection) = incoming.next().await {
        let Ok(connection) = connection else { continue };
        let service = TowerToHyperService::new(router.clone());
        let watcher = graceful.watcher();
        let builder = Arc::clone(&builder);
        tokio::spawn(async move {
            let served = builder.serve_connection(TokioIo::new(connection), service);
            if let Err(error) = watcher.watch(served).await {
                tracing::debug!(%error, "an HTTPS connection failed");
            }
        });
    }
    graceful.shutdown().await;
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEADER_TIMEOUT)
        .keep_alive_timeout(HEADER_TIMEOUT)
        .max_concurrent_streams(64);
    builder
}
