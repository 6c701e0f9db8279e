//! Encrypted connections in, for gRPC and HTTPS alike: who gets a slot, and what a peer may cost and for how long.
//!
//! A connection passes through: `door` (a slot, or none) → `serve` (handshake; HTTP with limits on frames, headers,
//! windows and streams; deadlines) → its `Connection` (bytes, no more of a stranger's than it may send) → a service, which
//! is given each request with the `link` of its connection and tells it who has shown a valid token.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the listener; what counts as one address; windows; counts of bytes |
//! | `door` | connection slots: who gets in, who is dropped when they are short |
//! | `link` | what is known of one connection, and when it must end |
//! | `serve` | one connection from handshake to end: its bytes, and a socket whose writes time out |
//! | `chunked_body` | answers in small chunks; which of them wait for their reader, and since when |
//!
//! Invariants:
//! * Accepting never waits for a slot: a newcomer gets one at once or is refused, so nothing waits in the kernel's backlog
//!   behind silent peers.
//! * Every wait for a peer has a deadline, in [`limits`](crate::limits).

mod chunked_body;
mod door;
mod link;
mod serve;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use std::{fmt, io};

use hyper::body::Incoming;
use hyper::{Request, Response};
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::Service;

pub(crate) use crate::net::chunked_body::Held;
pub(crate) use crate::net::door::{Door, Places, TooMany, to_drop};
#[cfg(not(test))]
use crate::net::link::Place;
#[cfg(test)]
pub(crate) use crate::net::link::Place;
pub(crate) use crate::net::link::{Link, Patience};
use crate::net::serve::Serving;
pub(crate) use crate::net::serve::{AnswerBody, Protocol};

/// Pause after `accept` failed: out of file descriptors, most likely.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Listens on an address, encrypted.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Arc<ServerConfig>,
    door: Arc<Door>,
    traffic: Arc<Traffic>,
}

impl Listener {
    /// Binds `address`.
    ///
    /// # Errors
    /// When the address is in use or not this machine's.
    pub(crate) async fn bind(
        address: SocketAddr,
        tls: Arc<ServerConfig>,
        max_connections: u32,
    ) -> io::Result<Self> {
        let door = Door::new(max_connections);
        Ok(Self { tcp: TcpListener::bind(address).await?, tls, door, traffic: Arc::default() })
    }

    /// The address, with the port that was picked.
    ///
    /// # Errors
    /// When the operating system cannot say.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Traffic of its connections.
    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.traffic)
    }

    /// Its connection slots.
    pub(crate) fn door(&self) -> Arc<Door> {
        Arc::clone(&self.door)
    }

    /// Serves connections until `stop`, then until all of them have ended. Dropping the future cuts them off.
    pub(crate) async fn serve<S, B>(self, protocol: Protocol, mut stop: watch::Receiver<bool>, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send + 'static,
        B: AnswerBody,
    {
        let Self { tcp, tls, door, traffic } = self;
        let serving = Serving::new(protocol, TlsAcceptor::from(tls), traffic, stop.clone(), service);
        let mut open = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                // A sender that is gone means that the server is gone.
                _ = stop.wait_for(|stop| *stop) => break,
                Some(_) = open.join_next() => continue,
                accepted = accept(&tcp) => accepted,
            };
            match accepted {
                Ok((stream, peer)) => match Place::take(&door, peer) {
                    Some(place) => {
                        let is_known = door.is_known(peer);
                        drop(open.spawn(serving.clone().run(stream, place, is_known)));
                    }
                    None => tracing::debug!(%peer, "refused: every slot is held by a caller with a token"),
                },
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
        drop(tcp);
        while open.join_next().await.is_some() {}
    }
}

async fn accept(tcp: &TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    let (stream, peer) = tcp.accept().await?;
    // Fails when the peer is gone already, which the handshake finds out.
    drop(stream.set_nodelay(true));
    Ok((stream, peer))
}

/// Addresses as they are counted: an IPv4 address, or a /64 network of IPv6, all of which one machine may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin(IpAddr);

impl From<IpAddr> for Origin {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = v6.to_bits() >> 64 << 64;
                Self(IpAddr::V6(Ipv6Addr::from_bits(network)))
            }
            v4 => Self(v4),
        }
    }
}

impl From<SocketAddr> for Origin {
    fn from(peer: SocketAddr) -> Self {
        peer.ip().into()
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            IpAddr::V4(v4) => v4.fmt(f),
            IpAddr::V6(v6) => write!(f, "{v6}/64"),
        }
    }
}

/// The traffic of one listener's connections since it was bound: bytes before encryption.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    open: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

impl Traffic {
    /// Connections open now.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Bytes received so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes.load(Ordering::Relaxed)
    }

    /// Bytes sent so far.
    pub(crate) fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Relaxed)
    }
}

/// One open connection's share of it.
#[derive(Debug)]
struct Open(Arc<Traffic>);

impl Open {
    fn new(traffic: Arc<Traffic>) -> Self {
        traffic.open.fetch_add(1, Ordering::Relaxed);
        Self(traffic)
    }

    fn received(&self, bytes: usize) {
        self.0.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts what a write accepted.
    fn sent(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.0.sent_bytes.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The smallest window of a connection; HTTP/2's own default.
pub(crate) const WINDOW_MIN_BYTES: u64 = 64 << 10;

/// The largest window of a connection: 160 ms of a line of 100 MB/s.
pub(crate) const WINDOW_MAX_BYTES: u64 = 16 << 20;

/// Share of the bytes left that goes to the next connection: one in so many.
const SHARE: u64 = 32;

/// Receive windows: bytes that a connection may have sent and no call has read. One budget, divided as connections come.
///
/// HTTP/2 fixes a connection's window when it begins. A window for each of as many connections as there may be would be
/// too small for a fast line; so every connection has `WINDOW_MIN_BYTES`, and one from an address that has shown a valid
/// token gets a share of what is left on top. The first ones thereby have large windows, and when hundreds are
/// open the next ones have small ones, which hundreds of connections together fill any line with. An agent's first
/// connection is its control connection, which needs no more than the least.
#[derive(Debug)]
pub(crate) struct Windows {
    /// Bytes left beyond the least windows of as many connections as there may be.
    left_bytes: Mutex<u64>,
}

impl Windows {
    /// Divides `bytes` between `connections` at most.
    pub(crate) fn new(bytes: u64, connections: u32) -> Arc<Self> {
        let least = WINDOW_MIN_BYTES.saturating_mul(connections.into());
        Arc::new(Self { left_bytes: Mutex::new(bytes.saturating_sub(least)) })
    }

    /// Takes a window for a connection that begins, from an address that is known or not.
    fn take(self: &Arc<Self>, is_known: bool) -> Window {
        let mut left = self.left_bytes.lock();
        let extra_bytes = if is_known { (*left / SHARE).min(WINDOW_MAX_BYTES - WINDOW_MIN_BYTES) } else { 0 };
        *left -= extra_bytes;
        Window { windows: Arc::clone(self), extra_bytes }
    }
}

/// The window of one connection, given back when it ends.
#[derive(Debug)]
struct Window {
    windows: Arc<Windows>,
    extra_bytes: u64,
}

impl Window {
    fn bytes(&self) -> u32 {
        u32::try_from(WINDOW_MIN_BYTES + self.extra_bytes).unwrap_or(u32::MAX)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        *self.windows.left_bytes.lock() += self.extra_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_64_network_is_one_address() {
        let of = |text: &str| Origin::from(text.parse::<IpAddr>().unwrap());
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"), "the same machine over a socket for both");
        assert_eq!(of("2001:db8:1:2::1").to_string(), "2001:db8:1:2::/64");
    }

    #[test]
    fn windows_shrink_with_their_number_and_never_exceed_the_whole() {
        let total: u64 = 218 << 20;
        let windows = Windows::new(total, 1024);
        let first = windows.take(true);
        assert!(first.bytes() > 4 << 20, "{}", first.bytes());
        assert_eq!(u64::from(windows.take(false).bytes()), WINDOW_MIN_BYTES, "an unknown address");
        let rest: Vec<Window> = (1..1024).map(|_| windows.take(true)).collect();
        let sum: u64 = rest.iter().chain([&first]).map(|window| u64::from(window.bytes())).sum();
        assert!(sum <= total, "{sum}");
        assert!(rest.last().unwrap().bytes() < 128 << 10);
        let bytes = first.bytes();
        drop((first, rest));
        assert_eq!(windows.take(true).bytes(), bytes, "all of it was given back");
    }

    #[test]
    fn no_window_is_larger_than_a_fast_line_needs_nor_smaller_than_the_least() {
        let large = Windows::new(64 << 30, 16).take(true);
        assert_eq!(u64::from(large.bytes()), WINDOW_MAX_BYTES);
        let small = Windows::new(0, 16).take(true);
        assert_eq!(u64::from(small.bytes()), WINDOW_MIN_BYTES);
    }
}
