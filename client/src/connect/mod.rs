//! How the agent reaches a server: address, trust, token, and the negotiated protocol.
//!
//! Start with [`Connection::open`]. Every client it gives carries the token and the protocol version.

mod address;
pub mod connections;
mod credentials;
pub mod layers;
pub mod profile;
mod request;
mod retry;
mod settings;
mod tls;

use std::time::Duration;

use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::v1::backup_client::BackupClient;
use holdfast_proto::v1::catalog_client::CatalogClient;
use holdfast_proto::v1::manage_client::ManageClient;
use holdfast_proto::v1::restore_client::RestoreClient;
use holdfast_proto::version::{PROTOCOL_MAX, PROTOCOL_MIN};
use holdfast_proto::{chunker, v1};
use hyper_util::rt::TokioIo;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

pub use crate::cert_fingerprint::{CertFingerprint, NotACertFingerprint};
pub use crate::error::ConnectError;
pub use address::{DEFAULT_PORT, NotAnAddress, ServerAddress};
pub use credentials::{AuthedChannel, Credentials};
pub use request::RequestId;
pub(crate) use retry::open_again;
pub use retry::open_retrying;
pub use settings::{Settings, Token};
pub use tls::Trust;

use crate::error::ClientError;

/// Frames of 64 KiB: four TLS records each, and a quarter of the bookkeeping of the default, 16 KiB.
const FRAME_BYTES: u32 = 64 << 10;
/// What a peer may send on one stream before it is read: 8 MiB keep 1 Gbit/s busy at 64 ms.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// The same for a whole connection.
const CONNECTION_WINDOW_BYTES: u32 = 16 << 20;
/// A connection on which a ping is not answered for this long is lost.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Silence after which a ping is sent.
const PING_INTERVAL: Duration = Duration::from_secs(20);

/// A server that answered `Hello`. Two TCP connections: bulk data never delays a lease's renewal. There may be more for
/// data, see [`Connection::another`].
#[derive(Debug, Clone)]
pub struct Connection {
    control: AuthedChannel,
    bulk: AuthedChannel,
    hello: v1::HelloResponse,
    /// For more connections.
    dialer: tls::Dialer,
    credentials: Credentials,
}

/// One more TCP connection to the same server, for data. See [`connections`] for how many there should be.
#[derive(Debug, Clone)]
pub struct DataConnection(AuthedChannel);

impl DataConnection {
    /// For the data of a disk that is backed up.
    pub fn backup(&self) -> BackupClient<AuthedChannel> {
        limited_backup(self.0.clone())
    }

    /// For reading disks back.
    pub fn restore(&self) -> RestoreClient<AuthedChannel> {
        limited_restore(self.0.clone())
    }
}

impl Connection {
    /// Connects, checks the certificate, negotiates the protocol and compares chunker parameters.
    ///
    /// # Errors
    /// [`ClientError::Connect`] when the server is not reached or not trusted, [`ClientError::Refused`] for
    /// a bad token, [`ClientError::Chunker`] when data would be cut differently.
    pub async fn open(settings: &Settings) -> Result<Self, ClientError> {
        let dialer = tls::Dialer::new(settings.server.clone(), settings.trust.clone())?;
        let control = channel(&dialer).await?;
        let hello = Self::greet(&control, settings).await?;
        let credentials = Credentials::new(settings, Some(hello.protocol))?;
        let bulk = channel(&dialer).await?;
        tracing::info!(
            server = %settings.server,
            server_version = hello.server_version,
            repository = hello.repository_id,
            "connected"
        );
        Ok(Self {
            control: InterceptedService::new(control, credentials.clone()),
            bulk: InterceptedService::new(bulk, credentials.clone()),
            hello,
            dialer,
            credentials,
        })
    }

    async fn greet(channel: &Channel, settings: &Settings) -> Result<v1::HelloResponse, ClientError> {
        let credentials = Credentials::new(settings, None)?;
        let mut client = BackupClient::with_interceptor(channel.clone(), credentials);
        let request = v1::HelloRequest {
            min_protocol: PROTOCOL_MIN,
            max_protocol: PROTOCOL_MAX,
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let hello = client.hello(request).await?.into_inner();
        if !(PROTOCOL_MIN..=PROTOCOL_MAX).contains(&hello.protocol) {
            return Err(ClientError::Protocol(format!(
                "it chose protocol version {}, and this agent speaks {PROTOCOL_MIN} to {PROTOCOL_MAX}",
                hello.protocol
            )));
        }
        let (ours, theirs) = (chunker::params(), hello.chunker.clone().unwrap_or_default());
        if ours != theirs {
            return Err(ClientError::Chunker { ours: describe(&ours), theirs: describe(&theirs) });
        }
        Ok(hello)
    }

    /// What the server said about itself and the token.
    pub const fn hello(&self) -> &v1::HelloResponse {
        &self.hello
    }

    /// A round trip to the server: what its fastest TCP handshake took so far.
    pub fn rtt(&self) -> Duration {
        self.dialer.rtt().unwrap_or_default()
    }

    /// Makes one more connection, with the same token and the same trust.
    ///
    /// # Errors
    /// [`ClientError::Connect`] when the server is not reached or not trusted. Whether it has room for one more
    /// connection shows in the first call.
    pub async fn another(&self) -> Result<DataConnection, ClientError> {
        let channel = channel(&self.dialer).await?;
        Ok(DataConnection(InterceptedService::new(channel, self.credentials.clone())))
    }

    /// For calls that carry little data.
    pub fn backup(&self) -> BackupClient<AuthedChannel> {
        limited_backup(self.control.clone())
    }

    /// For ingest streams.
    pub fn ingest(&self) -> BackupClient<AuthedChannel> {
        limited_backup(self.bulk.clone())
    }

    /// For reading disks back.
    pub fn restore(&self) -> RestoreClient<AuthedChannel> {
        limited_restore(self.bulk.clone())
    }

    /// For questions about what is in the repository.
    pub fn catalog(&self) -> CatalogClient<AuthedChannel> {
        CatalogClient::new(self.control.clone())
            .max_decoding_message_size(MESSAGE_MAX_BYTES)
            .max_encoding_message_size(MESSAGE_MAX_BYTES)
    }

    /// For deleting, rules, locks and what frees space.
    pub fn manage(&self) -> ManageClient<AuthedChannel> {
        ManageClient::new(self.control.clone())
            .max_decoding_message_size(MESSAGE_MAX_BYTES)
            .max_encoding_message_size(MESSAGE_MAX_BYTES)
    }
}

fn limited_backup(channel: AuthedChannel) -> BackupClient<AuthedChannel> {
    BackupClient::new(channel)
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES)
}

fn limited_restore(channel: AuthedChannel) -> RestoreClient<AuthedChannel> {
    RestoreClient::new(channel)
        .max_decoding_message_size(MESSAGE_MAX_BYTES)
        .max_encoding_message_size(MESSAGE_MAX_BYTES)
}

fn describe(params: &v1::ChunkerParams) -> String {
    format!(
        "{} {}/{}/{} in extents of {} and regions of {} bytes",
        params.algorithm,
        params.min_bytes,
        params.avg_bytes,
        params.max_bytes,
        params.extent_bytes,
        params.region_bytes
    )
}

/// Looks at the certificate a server shows, trusting nothing and sending nothing.
///
/// # Errors
/// [`ConnectError`] when no TLS connection can be made.
pub async fn inspect_certificate(server: &ServerAddress) -> Result<CertFingerprint, ConnectError> {
    let dialer = tls::Dialer::new(server.clone(), Trust::Inspect)?;
    let (_, fingerprint) = dialer.dial().await?;
    Ok(fingerprint)
}

/// One HTTP/2 connection. TLS is made here rather than by tonic, so that a wrong certificate is an error
/// of its own.
async fn channel(dialer: &tls::Dialer) -> Result<Channel, ClientError> {
    let server = dialer.server();
    let no_uri = |e: &dyn std::error::Error| ClientError::Usage(format!("server address {server}: {e}"));
    let origin = format!("https://{server}").parse().map_err(|e| no_uri(&e))?;
    let endpoint = Endpoint::from_shared(format!("http://{server}"))
        .map_err(|e| no_uri(&e))?
        .origin(origin)
        .max_frame_size(FRAME_BYTES)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_adaptive_window(false)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    let dialer = dialer.clone();
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let dialer = dialer.clone();
        async move { dialer.dial().await.map(|(stream, _)| TokioIo::new(stream)) }
    });
    endpoint.connect_with_connector(connector).await.map_err(|error| {
        ConnectError::in_chain(&error)
            .map_or_else(|| ClientError::Lost(error.to_string()), ClientError::Connect)
    })
}
