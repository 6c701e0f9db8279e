//! Limits of sessions and streams at once.

use std::convert::Infallible;
use std::task::{Context, Poll};

use bytes::Bytes;
use holdfast_proto::RETRY_AFTER_METADATA;
use http_body_util::Full;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::BoxFuture;
use tower::Service;

use super::*;
use crate::app::App;
use crate::grpc::gate::Gate;
use crate::net::{Door, Place};
use crate::shares::Shares;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_beyond_the_limit_are_refused_until_one_ends() {
    let fixture = Fixture::start_with(|settings| settings.max_sessions = 1).await;
    let admin = fixture.admin().await;
    let session = admin.start("", "one").await.unwrap().session_id;
    let refused = admin.start("", "two").await.unwrap_err();
    assert!(refused.metadata().contains_key(RETRY_AFTER_METADATA), "it passes: {refused:?}");
    assert_eq!(code::<()>(Err(refused)), ErrorCode::Limit);
    admin.abort(&session).await.unwrap();
    admin.back_up("", "two").await.unwrap();
    admin.back_up("", "three").await.unwrap();
    // One that ended without the count being told.
    let session = admin.start("", "four").await.unwrap().session_id;
    fixture.server.app().engine.abort(session.parse().unwrap(), "elsewhere").unwrap();
    admin.start("", "five").await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_beyond_the_limit_are_refused_until_one_ends() {
    let fixture = Fixture::start_with(|settings| settings.max_streams = 1).await;
    let admin = fixture.admin().await;
    let (one, two) =
        (admin.start("", "one").await.unwrap().session_id, admin.start("", "two").await.unwrap().session_id);
    let (messages, line) = mpsc::channel(4);
    messages.send(ingest::open(&one, 0)).await.unwrap();
    let mut answers =
        admin.backup().ingest(admin.request(ReceiverStream::new(line))).await.unwrap().into_inner();
    answers.message().await.unwrap().unwrap();
    let whole =
        |session: &str| tokio_stream::iter([ingest::open(session, 0), ingest::zeros(), ingest::finish()]);
    assert_eq!(code(admin.ingest(whole(&two)).await), ErrorCode::Limit);
    messages.send(ingest::zeros()).await.unwrap();
    messages.send(ingest::finish()).await.unwrap();
    while answers.message().await.unwrap().is_some() {}
    while fixture.server.app().activity.streams.count() > 0 {
        tokio::task::yield_now().await;
    }
    admin.ingest(whole(&two)).await.unwrap();
    fixture.server.stop().await.unwrap();
}

/// Threads for blocking work in the test below; a server has about a hundred.
const THREADS: usize = 6;

/// Time after which a call counts as stuck.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

#[test]
fn streams_that_stall_do_not_hold_up_authentication() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .max_blocking_threads(THREADS)
        .build()
        .unwrap();
    runtime.block_on(async {
        let fixture = Fixture::start().await;
        let admin = fixture.admin().await;
        let stranger = Client { token: "hf_nonsense".into(), ..admin.clone() };
        // Each takes a thread and then sends nothing more.
        let mut stalled = Vec::new();
        for n in 0..THREADS {
            let session = admin.start("", &format!("vm {n}")).await.unwrap().session_id;
            let (messages, line) = mpsc::channel(4);
            messages.send(ingest::open(&session, 0)).await.unwrap();
            let mut answers =
                admin.backup().ingest(admin.request(ReceiverStream::new(line))).await.unwrap().into_inner();
            answers.message().await.unwrap().unwrap();
            stalled.push((messages, answers));
        }
        let working = tokio::spawn({
            let admin = admin.clone();
            async move { admin.hello().await }
        });
        let refused = tokio::time::timeout(PATIENCE, stranger.hello()).await.expect("authentication answers");
        assert_eq!(code(refused), ErrorCode::Unauthenticated);
        let unversioned = Client { protocol: String::new(), ..admin.clone() };
        let refused = tokio::time::timeout(PATIENCE, unversioned.keep_alive("x")).await.expect("an answer");
        assert_eq!(code(refused), ErrorCode::Invalid, "the token was looked up");
        assert!(!working.is_finished(), "no thread is left for work, or this shows nothing");
        drop(stalled);
        working.await.unwrap().unwrap();
        fixture.server.stop().await.unwrap();
    });
}

/// The work of a reset call goes on on a thread that everyone shares.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_reset_holds_its_share_until_its_work_ends() {
    let fixture = Fixture::start().await;
    let app = fixture.server.app();
    let (begun, mut begins) = mpsc::unbounded_channel();
    let (go, may_go) = std::sync::mpsc::channel();
    let calls = Calls { app: Arc::clone(app), begun, may_go: Arc::new(Mutex::new(may_go)) };
    let mut gate = Gate::new(Arc::clone(app), calls);
    gate.under_way = Shares::new(usize::MAX, 1);
    let place = Place::take(&Door::new(8), SocketAddr::from(([127, 0, 0, 1], 4000))).unwrap();
    let request = |path: &str| {
        let request = hyper::Request::builder()
            .uri(format!("/holdfast.v1.{path}"))
            .header("authorization", format!("Bearer {}", fixture.admin_token()))
            .extension(Arc::clone(&place.link));
        request.body(Full::<Bytes>::default()).unwrap()
    };
    let unknown = gate.call(request("Backup/Everything")).await.unwrap();
    assert_eq!(Status::from_header_map(unknown.headers()).unwrap().code(), tonic::Code::Unimplemented);

    let call = tokio::spawn(gate.call(request("Backup/Hello")));
    begins.recv().await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let refused = tokio::select! {
        answer = gate.call(request("Backup/Hello")) => answer.unwrap(),
        _ = begins.recv() => panic!("it was let in while the other's work goes on"),
    };
    assert_eq!(Status::from_header_map(refused.headers()).unwrap().code(), tonic::Code::ResourceExhausted);
    go.send(()).unwrap();
    go.send(()).unwrap();
    loop {
        let answer = gate.call(request("Backup/Hello")).await.unwrap();
        if Status::from_header_map(answer.headers()).unwrap().code() == tonic::Code::Ok {
            break;
        }
        tokio::task::yield_now().await;
    }
    fixture.server.stop().await.unwrap();
}

/// Calls that each work until they are let go.
#[derive(Clone)]
struct Calls {
    app: Arc<App>,
    begun: mpsc::UnboundedSender<()>,
    may_go: Arc<Mutex<std::sync::mpsc::Receiver<()>>>,
}

impl<R> Service<R> for Calls {
    type Response = hyper::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        let Self { app, begun, may_go } = self.clone();
        let work = move |_: &Arc<App>| {
            begun.send(()).unwrap();
            may_go.lock().recv().unwrap();
            Ok(())
        };
        Box::pin(async move {
            app.blocking(work).await.unwrap();
            Ok(Status::ok("").into_http())
        })
    }
}
