//! Streams that wait for their turn.

use holdfast_engine::ids::{SessionId, TokenId};
use holdfast_proto::v1::read_disk_response::Kind as Read;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::*;
use crate::activity::streams::StreamKind;

/// A disk under way: what it was sent, and what it answers.
struct Line {
    messages: mpsc::Sender<v1::IngestRequest>,
    answers: Streaming<v1::IngestResponse>,
}

impl Line {
    /// Opens the disk of a backup of `vm`, and is ready to wait.
    async fn of(client: &Client, vm: &str) -> Self {
        let session = client.start("", vm).await.unwrap().session_id;
        Self::of_session(client, &session).await
    }

    async fn of_session(client: &Client, session: &str) -> Self {
        let (messages, line) = mpsc::channel(4);
        messages.send(ingest::open_in_turn(session, 0)).await.unwrap();
        let answers =
            client.backup().ingest(client.request(ReceiverStream::new(line))).await.unwrap().into_inner();
        Self { messages, answers }
    }

    async fn next(&mut self) -> ingest::Answer {
        self.answers.message().await.unwrap().unwrap().kind.unwrap()
    }

    /// The next answer says that so many are ahead.
    async fn is_told(&mut self, ahead: u32) {
        let queued = ingest::Answer::Queued(v1::Queued { ahead });
        loop {
            match self.next().await {
                // Told again.
                ingest::Answer::Queued(told) if told.ahead > ahead => {}
                answer => return assert_eq!(answer, queued),
            }
        }
    }

    async fn has_its_turn(&mut self) {
        loop {
            match self.next().await {
                ingest::Answer::Queued(_) => {}
                ingest::Answer::Opened(_) => return,
                other => panic!("{other:?}"),
            }
        }
    }

    async fn finish(&mut self) {
        self.messages.send(ingest::zeros()).await.unwrap();
        self.messages.send(ingest::finish()).await.unwrap();
        while self.answers.message().await.unwrap().is_some() {}
    }

    async fn fails_with(&mut self, code: ErrorCode) {
        let error = loop {
            match self.answers.message().await {
                Ok(Some(v1::IngestResponse { kind: Some(ingest::Answer::Queued(_)) })) => {}
                Ok(other) => panic!("{other:?}"),
                Err(error) => break error,
            }
        };
        assert_eq!(ErrorCode::of_status(&error), Some(code), "{error:?}");
    }
}

fn waiting(fixture: &Fixture) -> usize {
    fixture.server.app().activity.streams.waiting().len()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    while !holds() {
        tokio::task::yield_now().await;
    }
    tracing::debug!(what, "holds");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_waits_until_another_ends_and_is_told_its_place() {
    let fixture = Fixture::start_with(|settings| settings.max_streams = 1).await;
    let admin = fixture.admin().await;
    let mut one = Line::of(&admin, "one").await;
    one.has_its_turn().await;
    let mut two = Line::of(&admin, "two").await;
    two.is_told(0).await;
    let mut three = Line::of(&admin, "three").await;
    three.is_told(1).await;
    // Another tenant is the next, although the first one's came before.
    let other = fixture.client(&fixture.token(Role::Backup, &["other"])).await;
    let mut four = Line::of(&other, "four").await;
    four.is_told(0).await;
    let shown = fixture.server.app().activity.watchers.snapshot();
    let places: Vec<_> =
        shown.backups.iter().map(|watched| (watched.session.vm.as_str(), watched.ahead)).collect();
    assert_eq!(places, [("one", None), ("two", Some(1)), ("three", Some(2)), ("four", Some(0))]);
    one.finish().await;
    four.has_its_turn().await;
    four.finish().await;
    two.has_its_turn().await;
    three.is_told(0).await;
    two.finish().await;
    three.has_its_turn().await;
    three.finish().await;
    let waited = fixture.server.app().activity.streams.queues();
    assert_eq!(
        waited.map(|(kind, waiting, waited)| (kind, waiting, waited.streams)),
        [("ingest", 0, 3), ("digests", 0, 0), ("restore", 0, 0)]
    );
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_leaves_the_queue_with_its_agent_its_session_its_token_and_the_server() {
    let fixture = Fixture::start_with(|settings| settings.max_streams = 1).await;
    let admin = fixture.admin().await;
    let mut one = Line::of(&admin, "one").await;
    one.has_its_turn().await;
    let gone = Line::of(&admin, "gone").await;
    until("it waits", || waiting(&fixture) == 1).await;
    drop(gone);
    until("it left", || waiting(&fixture) == 0).await;
    // A token that ends.
    let token = fixture.token(Role::Backup, &["other"]);
    let other = fixture.client(&token).await;
    let mut revoked = Line::of(&other, "revoked").await;
    revoked.is_told(0).await;
    let tokens = fixture.catalog().list_tokens().unwrap();
    let id = tokens.into_iter().find(|token| token.role == Role::Backup).unwrap().id;
    fixture.server.app().activity.streams.end_token(id);
    revoked.fails_with(ErrorCode::Unauthenticated).await;
    // The server.
    let mut last = Line::of(&admin, "last").await;
    last.is_told(0).await;
    let stopped = tokio::spawn(fixture.server.stop());
    last.fails_with(ErrorCode::Unavailable).await;
    stopped.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_ends_with_its_session() {
    let fixture = Fixture::start_with(|settings| settings.max_streams = 1).await;
    let admin = fixture.admin().await;
    let mut one = Line::of(&admin, "one").await;
    one.has_its_turn().await;
    let session = admin.start("", "two").await.unwrap().session_id;
    let mut two = Line::of_session(&admin, &session).await;
    two.is_told(0).await;
    admin.abort(&session).await.unwrap();
    // Noticed when it is told its place the next time.
    two.fails_with(ErrorCode::SessionGone).await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_waits_unless_it_would_rather_be_refused() {
    let fixture = Fixture::start_with(|settings| settings.max_restores = 1).await;
    let admin = fixture.admin().await;
    let backup_id = admin.back_up("", "vm").await.unwrap().backup_id;
    // Holds the only slot, as a restore would.
    let streams = &fixture.server.app().activity.streams;
    let slot = streams.open(StreamKind::Restore, TokenId::from_bytes([9; 16])).unwrap();
    let about = crate::activity::streams::Subject::Session(SessionId::from_bytes([9; 16]));
    slot.enter(fixture.catalog().ensure_namespace("other").unwrap().id, about, false).unwrap();
    let request = |takes_queued, may_refuse| v1::ReadDiskRequest {
        backup_id: backup_id.clone(),
        disk: "root".into(),
        takes_queued,
        may_refuse,
        ..v1::ReadDiskRequest::default()
    };
    for (takes_queued, may_refuse) in [(false, false), (true, true)] {
        let refused = admin.restore().read_disk(admin.request(request(takes_queued, may_refuse))).await;
        assert_eq!(code(refused), ErrorCode::Limit);
    }
    let mut read = admin.restore().read_disk(admin.request(request(true, false))).await.unwrap().into_inner();
    let first = read.message().await.unwrap().unwrap().kind;
    assert_eq!(first, Some(Read::Queued(v1::Queued { ahead: 0 })));
    let shown = fixture.server.app().activity.watchers.snapshot();
    let waiting: Vec<_> =
        shown.waiting_restores.iter().map(|restore| (restore.vm.as_str(), restore.ahead)).collect();
    assert_eq!(waiting, [("vm", 0)]);
    // One that goes away leaves the queue.
    drop(admin.restore().read_disk(admin.request(request(true, false))).await.unwrap());
    until("it left", || fixture.server.app().activity.streams.waiting().len() == 1).await;
    drop(slot);
    let rest: Vec<v1::ReadDiskResponse> = (&mut read).map(Result::unwrap).collect().await;
    let kinds: Vec<_> = rest.into_iter().filter_map(|message| message.kind).collect();
    assert!(matches!(kinds.iter().find(|kind| !matches!(kind, Read::Queued(_))), Some(Read::Header(_))));
    assert!(matches!(kinds.last(), Some(Read::WindowEnd(_))));
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_of_a_disk_is_small() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let mut open = ingest::open(&"0".repeat(5000), 0);
    assert_eq!(code(admin.ingest(tokio_stream::iter([open])).await), ErrorCode::Limit);
    open = ingest::open(&"0".repeat(3000), 0);
    assert_eq!(code(admin.ingest(tokio_stream::iter([open])).await), ErrorCode::Invalid);
    fixture.server.stop().await.unwrap();
}
