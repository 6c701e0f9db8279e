//! Serves HTTP/1.1 and HTTP/2 over encrypted connections, with deadlines for clients that stop sending or
//! reading.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected as _;
use tower::Service;

use super::limits::READ_DEADLINE;
use super::stall::WriteDeadline;
use crate::net::Connection;

/// How long a client may take to send a request's head, and how long an idle connection is kept.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a connection is looked at for answers nobody reads.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long an answer may wait for its reader once the server stops.
const LAST_DEADLINE: Duration = Duration::from_secs(2);

/// What HTTP/1 buffers of answers: a few pieces.
const BUFFER_BYTES: usize = 64 << 10;

/// Requests of one HTTP/2 connection at once. A browser shows one page.
const STREAMS_MAX: u32 = 64;

/// Serves `incoming` until it ends, then until the requests under way are done.
pub(crate) async fn serve(router: Router, mut incoming: ReceiverStream<io::Result<Connection>>) {
    let builder = Arc::new(builder());
    let graceful = GracefulShutdown::new();
    let stopping = watch::Sender::new(false);
    while let Some(connection) = incoming.next().await {
        let Ok(connection) = connection else { continue };
        let readers = Arc::new(Readers::default());
        let peer = connection.connect_info().get_ref().remote_addr();
        let service = OnConnection { router: router.clone(), peer, readers: Arc::clone(&readers) };
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
                // Dropping the connection frees what it pins.
                () = readers.until_stalled(&stopping) => tracing::debug!(?peer, "cut off a client that does not read"),
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
        .max_concurrent_streams(STREAMS_MAX);
    builder
}

/// Where a request came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) Option<SocketAddr>);

/// Tells every request of a connection which one it is.
#[derive(Clone)]
struct OnConnection {
    router: Router,
    peer: Option<SocketAddr>,
    readers: Arc<Readers>,
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
        request.extensions_mut().insert(Arc::clone(&self.readers));
        self.router.call(request)
    }
}

/// The answers of one connection that wait for their reader to take more, and since when.
#[derive(Debug, Default)]
pub(super) struct Readers {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Instant>>,
}

impl Readers {
    /// A number for an answer.
    pub(super) fn enter(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A piece of the answer was handed over.
    pub(super) fn waits(&self, answer: u64) {
        self.waiting.lock().insert(answer, Instant::now());
    }

    /// More of it was asked for, or it is done.
    pub(super) fn reads(&self, answer: u64) {
        self.waiting.lock().remove(&answer);
    }

    /// Whether one has waited for too long.
    pub(super) fn stalled(&self, patience: Duration) -> bool {
        let now = Instant::now();
        self.waiting.lock().values().any(|since| now.duration_since(*since) > patience)
    }

    async fn until_stalled(&self, stopping: &watch::Receiver<bool>) {
        let mut looks = tokio::time::interval(LOOK_INTERVAL);
        loop {
            looks.tick().await;
            let patience = if *stopping.borrow() { LAST_DEADLINE } else { READ_DEADLINE };
            if self.stalled(patience) {
                return;
            }
        }
    }
}
