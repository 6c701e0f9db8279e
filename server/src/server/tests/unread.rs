//! Readers that never read: what their answers may take of the server's memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::task::JoinSet;
use tonic::Code;

use super::*;
use crate::grpc::calls::{AnswerKind, CALLS};

/// Memory that an unread call may hold: one chunk on its way to the connection.
const SHORT_BYTES: usize = 16 << 10;

type Sent = hyper::Request<Full<Bytes>>;

/// A server with little memory, and restore points whose list is many pages long.
pub(super) async fn with_long_lists() -> Fixture {
    let fixture = Fixture::start_with(|settings| settings.memory = Some(ByteSize(640 << 20))).await;
    let admin = fixture.admin().await;
    fixture.catalog().ensure_namespace("mine").unwrap();
    for number in 0..30 {
        let missing_disks = (0..255).map(|disk| format!("{disk:0200}")).collect();
        let message = v1::StartRequest {
            namespace: "mine".into(),
            vm: format!("vm {number}"),
            job: "nightly".into(),
            disks: vec![v1::DiskSpec { name: "root".into(), size_bytes: DISK_BYTES }],
            missing_disks,
            client_host: "test".into(),
            ..v1::StartRequest::default()
        };
        let session = admin.backup().start(admin.request(message)).await.unwrap().into_inner().session_id;
        let messages = [ingest::open(&session, 0), ingest::zeros(), ingest::finish()];
        admin.ingest(tokio_stream::iter(messages)).await.unwrap();
        admin.commit(&session).await.unwrap();
    }
    fixture
}

/// Requests on one connection whose answers are not read.
pub(super) struct Unread {
    answered: Arc<AtomicUsize>,
    _connection: SendRequest<Full<Bytes>>,
    _waiting: JoinSet<()>,
}

impl Unread {
    /// Sends `requests`, and waits until one of them is answered.
    pub(super) async fn send(
        fixture: &Fixture,
        address: SocketAddr,
        requests: impl IntoIterator<Item = Sent>,
    ) -> Self {
        let mut sender = connect(fixture, address).await;
        let (answered, mut waiting) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        for request in requests {
            sender.ready().await.unwrap();
            let (answer, answered) = (sender.send_request(request), Arc::clone(&answered));
            waiting.spawn(async move {
                let answer = answer.await;
                answered.fetch_add(1, Ordering::SeqCst);
                // For as long as this is there.
                std::future::pending::<()>().await;
                drop(answer);
            });
        }
        while answered.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Self { answered, _connection: sender, _waiting: waiting }
    }

    /// Answers that have begun.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::SeqCst)
    }
}

async fn connect(fixture: &Fixture, address: SocketAddr) -> SendRequest<Full<Bytes>> {
    let stream = TokioIo::new(fixture.tls(address).await);
    // A client that wants to cost the server memory lets it send as little as possible.
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(1 << 10).initial_connection_window_size(64 << 10);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// A call with an empty message, which asks for the first page of everything.
fn call(name: &str, token: &str) -> Sent {
    message(name, token, &[0; 5])
}

fn message(name: &str, token: &str, body: &'static [u8]) -> Sent {
    hyper::Request::post(format!("https://localhost/holdfast.v1.{name}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("authorization", format!("Bearer {token}"))
        .header(PROTOCOL_METADATA, PROTOCOL_MAX.to_string())
        .body(Full::new(Bytes::from_static(body)))
        .unwrap()
}

/// All of an answer, and its status.
async fn read(fixture: &Fixture, request: Sent) -> (Bytes, Code) {
    let mut sender = connect(fixture, fixture.server.grpc_address).await;
    let answer = sender.send_request(request).await.unwrap();
    let in_head = Status::from_header_map(answer.headers());
    let body = answer.into_body().collect().await.unwrap();
    let status = in_head.or_else(|| body.trailers().and_then(Status::from_header_map)).unwrap();
    (body.to_bytes(), status.code())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_by_a_reader_that_never_reads() {
    let fixture = with_long_lists().await;
    let (admin, other) = (fixture.admin_token(), fixture.token(Role::Admin, &[]));
    // Streams are bounded by the slots that they have or wait for.
    for asked in CALLS.iter().filter(|call| call.answer != AnswerKind::Stream) {
        let requests = (0..20).map(|_| call(asked.name, &admin));
        let unread = Unread::send(&fixture, fixture.server.grpc_address, requests).await;
        let (whole, _) = read(&fixture, call(asked.name, &other)).await;
        assert!(whole.len() <= SHORT_BYTES, "{asked:?}: {} bytes", whole.len());
        drop(unread);
    }
    fixture.server.stop().await.unwrap();
}

/// A message that cannot be decoded is the fault of its sender, not of the server.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_decoded_is_an_invalid_call() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin_token();
    for asked in CALLS {
        // Field 0 does not exist; a message of which only a part came; none at all.
        for body in [&[0, 0, 0, 0, 1, 0][..], &[0, 0, 0, 0, 9, 8][..], &[][..]] {
            let (_, status) = read(&fixture, message(asked.name, &admin, body)).await;
            assert_eq!(status, Code::InvalidArgument, "{asked:?}: {body:?}");
        }
    }
    fixture.server.stop().await.unwrap();
}
