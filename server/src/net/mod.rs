//! Encrypted connections in, for gRPC and HTTPS alike: who gets a slot, and what a peer may cost and for how long.
//!
//! A connection passes through: `door` (a slot, or none) → `serve` (handshake; HTTP with limits on frames, headers,
//! windows and streams; deadlines) → `connection` (bytes, no more of a stranger's than it may send) → a service, which
//! is given each request with the `link` of its connection and tells it who has shown a valid token.
//!
//! | file | open it for |
//! |---|---|
//! | `mod.rs` | the listener |
//! | `door`, `crowd` | connection slots: who gets in, who is dropped when they are short |
//! | `origin` | what counts as one address |
//! | `link` | what is known of one connection, and when it must end |
//! | `serve` | one connection from handshake to end |
//! | `connection`, `write_deadline` | its bytes; a socket whose writes time out |
//! | `chunked_body`, `stall_monitor` | answers in small chunks; which of them wait for their reader, and since when |
//! | `windows` | how much each connection may have sent unread |
//! | `traffic` | counts bytes |
//!
//! Invariants:
//! * Accepting never waits for a slot: a newcomer gets one at once or is refused, so nothing waits in the kernel's backlog
//!   behind silent peers.
//! * Every wait for a peer has a deadline, in [`limits`](crate::limits).

mod chunked_body;
mod connection;
mod crowd;
mod door;
mod link;
mod origin;
mod serve;
mod stall_monitor;
mod traffic;
mod windows;
mod write_deadline;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::{Request, Response};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tower::Service;

pub(crate) use chunked_body::Held;
pub(crate) use crowd::{Places, to_drop};
pub(crate) use door::{Door, TooMany};
pub(crate) use link::{Link, Patience};
pub(crate) use origin::Origin;
pub(crate) use serve::{AnswerBody, Protocol};
pub(crate) use traffic::Traffic;
pub(crate) use windows::{WINDOW_MAX_BYTES, WINDOW_MIN_BYTES, Windows};

#[cfg(not(test))]
use link::Place;
#[cfg(test)]
pub(crate) use link::Place;
use serve::Serving;

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

    /// What goes over its connections.
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
