//! Connection of the agent to a server: address, trust, token, and the negotiated protocol.
//!
//! Start with [`Connection::open`]. Every client it gives carries the token and the protocol version.

mod api;
pub mod connections;
pub mod join;
pub mod layers;
pub mod profile;
mod tls;

use std::fmt;
use std::time::{Duration, Instant};

pub use holdfast_proto::address::{DEFAULT_PORT, NotAnAddress, ServerAddress};
pub use holdfast_proto::cert_fingerprint::{CertFingerprint, NotACertFingerprint};
use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use holdfast_proto::request::REQUEST_METADATA;
use holdfast_proto::v1::backup_client::BackupClient;
use holdfast_proto::v1::restore_client::RestoreClient;
use holdfast_proto::version::{PROTOCOL_MAX, PROTOCOL_METADATA, PROTOCOL_MIN};
use holdfast_proto::{chunker, v1};
use hyper_util::rt::TokioIo;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};

use crate::backoff::Backoff;
pub use crate::connect::api::{Api, Lines};
pub use crate::connect::tls::Trust;
use crate::error::ClientError;
pub use crate::error::ConnectError;
use crate::progress::Notice;

/// Frames of 64 KiB: four TLS records each, and a quarter of the bookkeeping of the default, 16 KiB.
const FRAME_BYTES: u32 = 64 << 10;
/// Bytes a peer may send on one stream before they are read: 8 MiB keep 1 Gbit/s busy at 64 ms.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
/// Bytes a peer may send on a whole connection before they are read.
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
    /// Opens more connections.
    dialer: tls::Dialer,
    credentials: Credentials,
}

/// One more TCP connection to the same server, for data. See [`connections`] for how many there should be.
#[derive(Debug, Clone)]
pub struct DataConnection(AuthedChannel);

impl DataConnection {
    /// Returns a client for the data of a disk that is backed up.
    pub fn backup(&self) -> BackupClient<AuthedChannel> {
        limited_backup(self.0.clone())
    }

    /// Returns a client for reading disks back.
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

    /// Returns the server's description of itself and of the token.
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

    /// Returns a client for calls that carry little data.
    pub fn backup(&self) -> BackupClient<AuthedChannel> {
        limited_backup(self.control.clone())
    }

    /// Returns a client for ingest streams.
    pub fn ingest(&self) -> BackupClient<AuthedChannel> {
        limited_backup(self.bulk.clone())
    }

    /// Returns a client for reading disks back.
    pub fn restore(&self) -> RestoreClient<AuthedChannel> {
        limited_restore(self.bulk.clone())
    }

    /// Returns a client for administration, and questions about what is in the repository.
    pub fn api(&self) -> Api {
        Api::new(self.control.clone())
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

/// Puts the token, the request id and the protocol version on every call.
#[derive(Debug, Clone)]
pub struct Credentials {
    /// `None` before there is a token.
    bearer: Option<MetadataValue<Ascii>>,
    request: Option<MetadataValue<Ascii>>,
    protocol: Option<MetadataValue<Ascii>>,
}

impl Credentials {
    /// The token and request id of `settings`; the protocol version once it is negotiated.
    fn new(settings: &Settings, protocol: Option<u32>) -> Result<Self, ClientError> {
        let mut bearer: MetadataValue<Ascii> = format!("Bearer {}", settings.token.reveal())
            .parse()
            .map_err(|_| ClientError::Usage("the token has characters that no token can have".to_owned()))?;
        bearer.set_sensitive(true);
        // An id that cannot be sent is not worth failing for.
        let request = settings.request.as_str().parse().ok();
        Ok(Self { bearer: Some(bearer), request, protocol: protocol.map(MetadataValue::from) })
    }

    /// Creates the credentials of an agent that has no token yet.
    const fn none() -> Self {
        Self { bearer: None, request: None, protocol: None }
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: tonic::Request<()>) -> Result<tonic::Request<()>, tonic::Status> {
        if let Some(bearer) = &self.bearer {
            request.metadata_mut().insert("authorization", bearer.clone());
        }
        if let Some(id) = &self.request {
            request.metadata_mut().insert(REQUEST_METADATA, id.clone());
        }
        if let Some(protocol) = &self.protocol {
            request.metadata_mut().insert(PROTOCOL_METADATA, protocol.clone());
        }
        Ok(request)
    }
}

/// A channel whose calls carry credentials.
pub type AuthedChannel = InterceptedService<Channel, Credentials>;

/// A name for one command's calls, see [`holdfast_proto::request`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(String);

impl RequestId {
    /// A new, unique id.
    pub fn random() -> Self {
        let mut bytes = [0; 16];
        // Without randomness no TLS connection can be made either, so the id does not matter then.
        let _ = aws_lc_rs::rand::fill(&mut bytes);
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Returns the id as it is sent to the server.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// [`Connection::open`], again and again for as long as `retry_for`; each wait is told to `notice` before. It may take as long
/// as any outage: a nightly job must not fail because the server, the line or the name service comes back a minute later.
///
/// # Errors
/// The errors of [`Connection::open`]; what may pass only once `retry_for` has passed.
pub async fn open_retrying(
    settings: &Settings,
    retry_for: Duration,
    notice: impl Fn(&Notice),
) -> Result<Connection, ClientError> {
    let (mut backoff, epoch) = (Backoff::new(retry_for), Instant::now());
    match Connection::open(settings).await {
        Err(error) if may_pass(&error) => open_again(settings, error, (&mut backoff, epoch), notice).await,
        outcome => outcome,
    }
}

/// As [`open_retrying`], after `error` has ended a connection or an attempt; for as long as `backoff` allows, whose time
/// began at `epoch`.
///
/// # Errors
/// As [`open_retrying`].
pub(crate) async fn open_again(
    settings: &Settings,
    mut error: ClientError,
    (backoff, epoch): (&mut Backoff, Instant),
    notice: impl Fn(&Notice),
) -> Result<Connection, ClientError> {
    loop {
        let reason = error.to_string();
        tracing::info!(reason, "no connection");
        let Some(delay) = backoff.next_delay(epoch.elapsed()) else { return Err(error) };
        notice(&if error.is_limit() {
            Notice::Waiting { reason, delay }
        } else {
            Notice::Reconnecting { reason, delay }
        });
        tokio::time::sleep(delay).await;
        error = match Connection::open(settings).await {
            Err(error) if may_pass(&error) => error,
            outcome => return outcome,
        };
    }
}

/// Makes a call that changes nothing again and again, for as long as its error may pass and the outage is shorter than
/// `retry_for`.
pub(crate) async fn retrying<T>(
    retry_for: Duration,
    mut call: impl AsyncFnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let (mut backoff, epoch) = (Backoff::new(retry_for), Instant::now());
    loop {
        match call().await {
            Err(error) if may_pass(&error) => match backoff.next_delay(epoch.elapsed()) {
                Some(delay) => tokio::time::sleep(delay).await,
                None => return Err(error),
            },
            outcome => return outcome,
        }
    }
}

/// A lost connection, and a limit: after an outage all agents come back at once, and a server that is at its limit takes
/// more a moment later.
fn may_pass(error: &ClientError) -> bool {
    error.is_connection_loss() || error.is_limit()
}

/// Settings needed to reach a server.
#[derive(Debug, Clone)]
pub struct Settings {
    pub server: ServerAddress,
    pub trust: Trust,
    pub token: Token,
    /// Request id, sent to the server with every call, for its log.
    pub request: RequestId,
}

impl Settings {
    /// Creates settings with a new request id.
    pub fn new(server: ServerAddress, trust: Trust, token: Token) -> Self {
        Self { server, trust, token, request: RequestId::random() }
    }
}

/// A bearer token. Its `Debug` form shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Creates a token from text, without the white space around it.
    ///
    /// # Errors
    /// [`ClientError::Usage`] when it is empty or has other characters than visible ASCII.
    pub fn new(text: &str) -> Result<Self, ClientError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClientError::Usage(
                "the token is empty or has characters that no token can have".to_owned(),
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The token itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_what_servers_take_and_differ() {
        let (one, two) = (RequestId::random(), RequestId::random());
        assert!(holdfast_proto::request::is_request_id(one.as_str()), "{one}");
        assert_ne!(one, two);
    }
}
