//! Serves one connection: handshake, HTTP/1.1 or HTTP/2, and every deadline a peer can miss.

use std::convert::Infallible;
use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service;

use crate::limits::{
    CHECK_INTERVAL, ERROR_RESETS_MAX, HANDSHAKE_DEADLINE, HEADER_DEADLINE, HEADER_LIST_BYTES,
    PENDING_RESETS_MAX, PING_DEADLINE, WRITE_DEADLINE,
};
use crate::net::chunked_body::{ChunkedBody, Held};
use crate::net::door::Closing;
use crate::net::link::{Link, Patience, Place, Verdict};
use crate::net::{Open, Traffic, Window, Windows};

/// Limits below the requests, by which the two protocols differ.
#[derive(Debug, Clone)]
pub(crate) struct Protocol {
    /// Only HTTP/2, or HTTP/1.1 as well.
    pub(crate) http1: bool,
    /// Flow-control window of one stream.
    pub(crate) stream_window_bytes: u32,
    /// Flow-control window of a connection, for all its streams together; also the memory that unread messages may
    /// occupy.
    pub(crate) connection_window_bytes: u32,
    /// Makes both windows smaller where a connection's share of these is; `None`: they are small.
    pub(crate) windows: Option<Arc<Windows>>,
    /// The largest HTTP/2 frame.
    pub(crate) frame_bytes: u32,
    /// Requests of one HTTP/2 connection at once.
    pub(crate) streams_max: u32,
    /// Bytes of answers that a connection buffers (HTTP/1: of requests, too).
    pub(crate) buffer_bytes: usize,
    /// Bytes of an answer handed to a connection at a time.
    pub(crate) chunk_bytes: usize,
    /// Deadlines for its peer.
    pub(crate) patience: Patience,
}

impl Protocol {
    /// Everything that HTTP/2 lets a peer cost has a figure here. h2 itself ends a connection that sends more
    /// CONTINUATION frames than the largest header list needs.
    fn builder(&self, window: Option<&Window>) -> Builder<TokioExecutor> {
        let window_bytes = window.map_or(u32::MAX, Window::bytes);
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_DEADLINE)
            .max_buf_size(self.buffer_bytes);
        builder
            .http2()
            .timer(TokioTimer::new())
            .adaptive_window(false)
            .initial_stream_window_size(self.stream_window_bytes.min(window_bytes))
            .initial_connection_window_size(self.connection_window_bytes.min(window_bytes))
            .max_frame_size(self.frame_bytes)
            .max_concurrent_streams(self.streams_max)
            .max_header_list_size(HEADER_LIST_BYTES)
            .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
            .max_local_error_reset_streams(ERROR_RESETS_MAX)
            .keep_alive_interval(PING_DEADLINE)
            .keep_alive_timeout(PING_DEADLINE)
            .max_send_buf_size(self.buffer_bytes);
        if self.http1 { builder } else { builder.http2_only() }
    }
}

/// State that all connections of a listener share.
#[derive(Clone)]
pub(super) struct Serving<S> {
    protocol: Arc<Protocol>,
    acceptor: TlsAcceptor,
    traffic: Arc<Traffic>,
    stop: watch::Receiver<bool>,
    service: S,
}

/// An answer's body that a service may produce.
pub(crate) trait AnswerBody:
    Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{
}

impl<B> AnswerBody for B where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static
{
}

impl<S, B> Serving<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: AnswerBody,
{
    pub(super) fn new(
        protocol: Protocol,
        acceptor: TlsAcceptor,
        traffic: Arc<Traffic>,
        stop: watch::Receiver<bool>,
        service: S,
    ) -> Self {
        Self { protocol: Arc::new(protocol), acceptor, traffic, stop, service }
    }

    /// Serves a connection to its end.
    pub(super) async fn run(mut self, tcp: TcpStream, place: Place, is_known: bool) {
        let peer = place.link.peer();
        if let Some(stream) = self.shake_hands(tcp, &place.link).await
            && let Err(reason) = self.serve(stream, &place.link, is_known).await
        {
            tracing::debug!(%peer, reason, "disconnected");
        }
    }

    /// `None` when it fails, takes too long, or has become pointless.
    async fn shake_hands(&mut self, tcp: TcpStream, link: &Link) -> Option<TlsStream<TcpStream>> {
        let peer = link.peer();
        let mut closing = link.watch_closing();
        let handshake = tokio::time::timeout(HANDSHAKE_DEADLINE, self.acceptor.accept(tcp));
        let shaken = tokio::select! {
            _ = self.stop.wait_for(|stop| *stop) => return None,
            _ = closing.wait_for(|closing| *closing == Closing::Now) => return None,
            shaken = handshake => shaken,
        };
        match shaken {
            Ok(Ok(stream)) => return Some(stream),
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
        None
    }

    /// Fails with the reason when the connection was cut off.
    async fn serve(
        &mut self,
        stream: TlsStream<TcpStream>,
        link: &Arc<Link>,
        is_known: bool,
    ) -> Result<(), &'static str> {
        let connection = Connection::new(stream, Arc::clone(link), Arc::clone(&self.traffic));
        let stream = TokioIo::new(WriteDeadline::new(connection, WRITE_DEADLINE));
        let service = OnConnection {
            service: self.service.clone(),
            link: Arc::clone(link),
            chunk_bytes: self.protocol.chunk_bytes,
        };
        let window = self.protocol.windows.as_ref().map(|windows| windows.take(is_known));
        let builder = self.protocol.builder(window.as_ref());
        let mut served = pin!(builder.serve_connection(stream, TowerToHyperService::new(service)));
        let mut watch = Watch {
            link,
            patience: self.protocol.patience,
            closing: link.watch_closing(),
            stop: self.stop.clone(),
            checks: tokio::time::interval(CHECK_INTERVAL),
            stopping: false,
        };
        loop {
            tokio::select! {
                served = served.as_mut() => {
                    if let Err(error) = served {
                        tracing::debug!(peer = %link.peer(), %error, "a connection failed");
                    }
                    return Ok(());
                }
                verdict = watch.next() => match verdict {
                    Verdict::GoesOn => {}
                    Verdict::End => served.as_mut().graceful_shutdown(),
                    // Dropping the connection frees what it holds.
                    Verdict::Drop(reason) => return Err(reason),
                },
            }
        }
    }
}

/// Looks at a connection's deadlines from time to time, and at once when it is told to end.
struct Watch<'a> {
    link: &'a Link,
    patience: Patience,
    closing: watch::Receiver<Closing>,
    stop: watch::Receiver<bool>,
    checks: tokio::time::Interval,
    stopping: bool,
}

impl Watch<'_> {
    async fn next(&mut self) -> Verdict {
        tokio::select! {
            _ = self.checks.tick() => {}
            // The other end lives as long as the link.
            _ = self.closing.changed() => {}
            // A sender that is gone means that the server is gone.
            _ = self.stop.wait_for(|stop| *stop), if !self.stopping => self.stopping = true,
        }
        self.link.verdict(&self.patience, self.stopping)
    }
}

/// Gives every request of a connection its [`Link`], and its answer out in chunks.
#[derive(Clone)]
struct OnConnection<S> {
    service: S,
    link: Arc<Link>,
    chunk_bytes: usize,
}

impl<S, B> Service<Request<Incoming>> for OnConnection<S>
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>,
    S::Future: Send + 'static,
    B: AnswerBody,
{
    type Response = Response<ChunkedBody<B>>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.link));
        let (open, chunk_bytes) = (self.link.begin(), self.chunk_bytes);
        let answer = self.service.call(request);
        Box::pin(async move {
            let mut answer = answer.await?;
            let held = answer.extensions_mut().remove::<Held>();
            let chunk_bytes = held.as_ref().and_then(|held| held.chunk_bytes).unwrap_or(chunk_bytes);
            Ok(answer.map(|body| ChunkedBody::new(body, chunk_bytes, open, held)))
        })
    }
}

/// One encrypted connection, which is read from as far as its peer may be heard.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TlsStream<TcpStream>,
    link: Arc<Link>,
    traffic: Open,
}

impl Connection {
    pub(super) fn new(stream: TlsStream<TcpStream>, link: Arc<Link>, traffic: Arc<Traffic>) -> Self {
        Self { stream, link, traffic: Open::new(traffic) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.link.poll_may_read(cx));
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        self.link.received(bytes);
        self.traffic.received(bytes);
        polled
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.traffic.sent(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.traffic.sent(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection that fails when its peer takes nothing for too long. TCP alone would wait forever.
#[derive(Debug)]
pub(super) struct WriteDeadline<S> {
    stream: S,
    patience: Duration,
    /// Set while a write waits.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteDeadline<S> {
    /// `stream`, each of whose writes must make progress within `patience`.
    pub(super) const fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, waiting: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.waiting = None;
            return polled;
        }
        let until = Instant::now() + self.patience;
        let sleep = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.watch(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.watch(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, polled)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn a_write_to_a_peer_that_takes_nothing_times_out() {
        let (near, mut far) = duplex(8);
        let mut near = WriteDeadline::new(near, PATIENCE);
        let begun = Instant::now();
        let error = near.write_all(&[0; 9]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() >= PATIENCE);
        // Bytes written before can still be read.
        let mut taken = [1; 8];
        far.read_exact(&mut taken).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_peer_that_makes_progress_is_waited_for() {
        let (near, mut far) = duplex(1);
        let mut near = WriteDeadline::new(near, PATIENCE);
        let reader = tokio::spawn(async move {
            let mut byte = [0; 1];
            for _ in 0..5 {
                tokio::time::sleep(PATIENCE - Duration::from_secs(1)).await;
                far.read_exact(&mut byte).await.unwrap();
            }
        });
        near.write_all(&[0; 5]).await.unwrap();
        reader.await.unwrap();
    }
}
