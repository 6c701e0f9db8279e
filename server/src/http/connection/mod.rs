//! Serves HTTP/1.1 and HTTP/2 over encrypted connections, with deadlines for clients that stop sending or reading.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | connections |
//! | `chunked_body` | answers in small chunks, so that none lies in a buffer whole |
//! | `stall_monitor` | which answers wait for their reader, and since when |
//! | `write_deadline` | a socket whose writes time out |

mod chunked_body;
mod stall_monitor;
mod write_deadline;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::extract::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tower::Service;

use super::bounds::{BUFFER_BYTES, HEADER_TIMEOUT, READ_DEADLINE, STREAMS_PER_CONNECTION_MAX};
use crate::net::Connection;
pub(super) use chunked_body::ChunkedBody;
pub(super) use stall_monitor::StallMonitor;
use write_deadline::WriteDeadline;

/// Serves `incoming` until it ends, then until the requests under way are done.
pub(crate) async fn serve(router: Router, mut incoming: ReceiverStream<io::Result<Connection>>) {
    let builder = Arc::new(builder());
    let graceful = GracefulShutdown::new();
    let stopping = watch::Sender::new(false);
    while let Some(connection) = incoming.next().await {
        let Ok(connection) = connection else { continue };
        let monitor = Arc::new(StallMonitor::default());
        let peer = connection.peer();
        let service = OnConnection { router: router.clone(), peer, monitor: Arc::clone(&monitor) };
        let watcher = graceful.watcher();
        let builder = Arc::clone(&builder);
        let stopping = stopping.subscribe();
        tokio::spawn(async move {
            let stream = TokioIo::new(WriteDeadline::new(connection, READ_DEADLINE));
            let served = watcher
                .watch(builder.serve_connection(stream, TowerToHyperService::new(service)).into_owned());
            tokio::select! {
                served = served => if let Err(error) = served {
                    tracing::debug!(%error, "an HTTPS connection failed");
                },
                // Dropping the connection frees what it holds.
                () = monitor.until_stalled(&stopping) => tracing::debug!(?peer, "disconnected a client that does not read"),
            }
        });
    }
    stopping.send_replace(true);
    graceful.shutdown().await;
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(BUFFER_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(HEADER_TIMEOUT)
        .keep_alive_timeout(HEADER_TIMEOUT)
        .max_send_buf_size(BUFFER_BYTES)
        .max_concurrent_streams(STREAMS_PER_CONNECTION_MAX);
    builder
}

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) Option<SocketAddr>);

/// Gives every request of a connection the address it came from and the connection's monitor.
#[derive(Clone)]
struct OnConnection {
    router: Router,
    peer: Option<SocketAddr>,
    monitor: Arc<StallMonitor>,
}

impl<B> Service<Request<B>> for OnConnection
where
    Router: Service<Request<B>>,
{
    type Response = <Router as Service<Request<B>>>::Response;
    type Error = <Router as Service<Request<B>>>::Error;
    type Future = <Router as Service<Request<B>>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.router.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        request.extensions_mut().insert(Peer(self.peer));
        request.extensions_mut().insert(Arc::clone(&self.monitor));
        self.router.call(request)
    }
}
