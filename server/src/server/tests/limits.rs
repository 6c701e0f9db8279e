//! How many sessions and streams at once.

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_beyond_the_limit_are_refused_until_one_ends() {
    let fixture = Fixture::start_with(|layer| layer.max_sessions = Some(1)).await;
    let admin = fixture.admin().await;
    let session = admin.start("", "one").await.unwrap().session_id;
    assert_eq!(code(admin.start("", "two").await), ErrorCode::Limit);
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
