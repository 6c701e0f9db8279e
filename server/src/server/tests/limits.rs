//! How many sessions and streams at once.

use holdfast_proto::RETRY_AFTER_METADATA;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_beyond_the_limit_are_refused_until_one_ends() {
    let fixture = Fixture::start_with(|layer| layer.max_sessions = Some(1)).await;
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
    let fixture = Fixture::start_with(|layer| layer.max_streams = Some(1)).await;
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

/// After which a call counts as stuck.
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
