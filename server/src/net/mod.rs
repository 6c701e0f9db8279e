//! Encrypted connections in, for gRPC and HTTPS alike.
//!
//! Every queue here is bounded: connections by a semaphore taken before `accept`, so that further ones wait in the
//! kernel's backlog; handshakes by a deadline, so that a silent peer cannot hold a slot.

mod connection;
mod traffic;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;

pub(crate) use connection::Connection;
pub(crate) use traffic::Traffic;

/// A handshake is two round trips; an agent never takes this long.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after `accept` failed: out of file descriptors, most likely.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Listens on an address, encrypted.
#[derive(Debug)]
pub(crate) struct Listener {
    tcp: TcpListener,
    tls: Arc<ServerConfig>,
    connections: Arc<Semaphore>,
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
        let connections = max_connections as usize;
        Ok(Self {
            tcp: TcpListener::bind(address).await?,
            tls,
            connections: Arc::new(Semaphore::new(connections)),
            traffic: Arc::default(),
        })
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

    /// Connections whose handshake is done, until `stop` says so.
    pub(crate) fn incoming(self, stop: watch::Receiver<bool>) -> ReceiverStream<io::Result<Connection>> {
        let (done, incoming) = mpsc::channel(1);
        tokio::spawn(self.accept_all(stop, done));
        ReceiverStream::new(incoming)
    }

    async fn accept_all(self, mut stop: watch::Receiver<bool>, done: mpsc::Sender<io::Result<Connection>>) {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.tls));
        let handshakes = Handshakes { acceptor, traffic: self.traffic(), done };
        loop {
            let accepted = tokio::select! {
                // A sender that is gone means that the server is gone.
                _ = stop.wait_for(|stop| *stop) => return,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer, slot)) => {
                    tokio::spawn(handshakes.clone().shake_hands(stream, peer, slot));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
        let slot = Arc::clone(&self.connections).acquire_owned().await.map_err(io::Error::other)?;
        let (stream, peer) = self.tcp.accept().await?;
        stream.set_nodelay(true)?;
        Ok((stream, peer, slot))
    }
}

/// Performs handshakes and passes the connections on.
#[derive(Clone)]
struct Handshakes {
    acceptor: TlsAcceptor,
    traffic: Arc<Traffic>,
    done: mpsc::Sender<io::Result<Connection>>,
}

impl Handshakes {
    async fn shake_hands(self, stream: TcpStream, peer: SocketAddr, slot: OwnedSemaphorePermit) {
        match tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                // The receiver is gone when the server is stopping.
                let _ = self.done.send(Ok(Connection::new(stream, slot, self.traffic))).await;
            }
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }
}
