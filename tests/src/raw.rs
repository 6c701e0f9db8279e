//! An agent that sends whatever a test wants: the generated gRPC clients over the agent's own TLS.

use holdfast::connect::{Connection, Settings, Token, Trust};
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::{self, ingest_response};
use holdfast_proto::{ErrorCode, Fingerprint};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::Server;

/// Connects to a server with its admin token.
///
/// # Panics
/// When that fails.
pub async fn connect(server: &Server) -> Connection {
    connect_as(server, &server.admin_token()).await
}

/// Connects to a server with any token.
///
/// # Panics
/// When that fails.
pub async fn connect_as(server: &Server, token: &str) -> Connection {
    // Fails only if one is installed already, which is then the same.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
    let settings = Settings::new(
        server.grpc().parse().expect("an address"),
        Trust::Pinned(server.fingerprint().parse().expect("a fingerprint")),
        Token::new(token).expect("a token"),
    );
    Connection::open(&settings).await.expect("the server answers")
}

/// A request for a session of one VM with one disk.
pub fn start_request(vm: &str, size_bytes: u64) -> v1::StartRequest {
    v1::StartRequest {
        namespace: String::new(),
        vm: vm.to_owned(),
        job: "hostile".to_owned(),
        disks: vec![v1::DiskSpec { name: "disk".to_owned(), size_bytes }],
        run_id: String::new(),
        take_over: false,
        client_host: "test".to_owned(),
        missing_disks: Vec::new(),
        accept_change: true,
        key_id: String::new(),
        client_version: String::new(),
        level: 0,
    }
}

/// A session for one disk.
#[derive(Debug)]
pub struct Session {
    connection: Connection,
    /// Id of the session.
    pub id: String,
}

impl Session {
    /// Starts a session.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn start(connection: &Connection, vm: &str, size_bytes: u64) -> Self {
        Self::try_start(connection, vm, size_bytes).await.expect("a session")
    }

    /// Tries to start a session.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn try_start(
        connection: &Connection,
        vm: &str,
        size_bytes: u64,
    ) -> Result<Self, tonic::Status> {
        Self::start_as(connection, start_request(vm, size_bytes)).await
    }

    /// Starts a session with this request.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn start_as(connection: &Connection, request: v1::StartRequest) -> Result<Self, tonic::Status> {
        let answer = connection.backup().start(request).await?;
        Ok(Self { connection: connection.clone(), id: answer.into_inner().session_id })
    }

    /// The same session over another connection, perhaps of another token.
    pub fn over(&self, connection: &Connection) -> Self {
        Self { connection: connection.clone(), id: self.id.clone() }
    }

    /// Opens its disk's stream, sends `kinds` and returns all answers up to the end or the error.
    ///
    /// # Panics
    /// When the call itself fails.
    pub async fn send(&self, kinds: Vec<Kind>) -> (Vec<ingest_response::Kind>, Option<tonic::Status>) {
        let mut all =
            vec![Kind::Open(v1::OpenStream { session_id: self.id.clone(), ..v1::OpenStream::default() })];
        all.extend(kinds);
        self.send_exactly(all).await
    }

    /// Sends `kinds` without adding anything.
    ///
    /// # Panics
    /// When the call itself fails.
    pub async fn send_exactly(
        &self,
        kinds: Vec<Kind>,
    ) -> (Vec<ingest_response::Kind>, Option<tonic::Status>) {
        let (sender, receiver) = mpsc::channel(kinds.len().max(1));
        for kind in kinds {
            sender.send(v1::IngestRequest { order: 0, kind: Some(kind) }).await.expect("room for all");
        }
        drop(sender);
        let call = self.connection.ingest().ingest(ReceiverStream::new(receiver)).await;
        match call {
            Ok(answers) => collect(answers.into_inner()).await,
            Err(status) => (Vec::new(), Some(status)),
        }
    }

    /// Commits the session.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn commit(&self) -> Result<v1::CommitResponse, tonic::Status> {
        let request = v1::CommitRequest { session_id: self.id.clone() };
        self.connection.backup().commit(request).await.map(tonic::Response::into_inner)
    }

    /// Aborts the session.
    ///
    /// # Panics
    /// When the server refuses.
    pub async fn abort(&self) {
        self.try_abort().await.expect("giving up always works");
    }

    /// Tries to abort the session.
    ///
    /// # Errors
    /// The server's refusal.
    pub async fn try_abort(&self) -> Result<(), tonic::Status> {
        let request = v1::AbortRequest { session_id: self.id.clone(), reason: "tests".to_owned() };
        self.connection.backup().abort(request).await.map(drop)
    }
}

async fn collect(
    mut answers: Streaming<v1::IngestResponse>,
) -> (Vec<ingest_response::Kind>, Option<tonic::Status>) {
    let mut all = Vec::new();
    loop {
        match answers.message().await {
            Ok(Some(answer)) => all.extend(answer.kind),
            Ok(None) => return (all, None),
            Err(status) => return (all, Some(status)),
        }
    }
}

/// A valid region of one chunk, and the chunk's fingerprint.
pub fn region_of(chunk: &[u8]) -> (v1::Region, Fingerprint) {
    let name = Fingerprint::of(chunk);
    let bytes = u32::try_from(chunk.len()).expect("a chunk is small");
    let region = v1::Region {
        codec: 0,
        plain_bytes: bytes,
        fingerprints: name.as_bytes().to_vec().into(),
        lengths: vec![bytes],
        payload: chunk.to_vec().into(),
    };
    (region, name)
}

/// An extent that consists of one chunk.
pub fn extent_of(index: u64, chunk: Fingerprint, bytes: u32) -> Kind {
    let chunked = v1::ChunkedExtent {
        index,
        digest: chunk.as_bytes().to_vec().into(),
        fingerprints: chunk.as_bytes().to_vec().into(),
        lengths: vec![bytes],
    };
    Kind::Extents(v1::Extents { unchanged: Vec::new(), zero: Vec::new(), chunked: vec![chunked] })
}

/// The message that ends a disk.
pub fn finish() -> Kind {
    Kind::Finish(v1::FinishStream { read_bytes: 0, ..v1::FinishStream::default() })
}

/// Asserts a refusal with `code` whose message contains `word`.
///
/// # Panics
/// When it is another, or none.
pub fn assert_refused(status: Option<tonic::Status>, code: ErrorCode, word: &str) {
    let status = status.unwrap_or_else(|| panic!("should have been refused for {word:?}"));
    assert_eq!(ErrorCode::of_status(&status), Some(code), "{status}");
    assert!(status.message().contains(word), "should say {word:?}: {}", status.message());
}
