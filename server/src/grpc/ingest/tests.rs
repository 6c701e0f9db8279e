use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use holdfast_engine::ids::TokenId;
use holdfast_proto::ErrorCode;
use holdfast_proto::limits::MESSAGE_MAX_BYTES;
use parking_lot::Mutex;
use tokio_stream::StreamExt as _;

use super::*;
use crate::activity::streams::{StreamKind, StreamLimits, Streams};
use crate::grpc::bounds::{CONTROL_QUEUE_BYTES, INGEST_QUEUE_BYTES, INGEST_QUEUE_MESSAGES};
use crate::limits::ORDER_PATIENCE;

/// Handler of a test's disk for one message.
type Handle = Box<dyn Fn(&Kind) -> Result<Option<v1::IngestResponse>, ServiceError> + Send>;

struct TestDisk {
    handle: Handle,
    idle: Mutex<Option<v1::IngestResponse>>,
    /// Waits for others before `idle` has anything to say.
    waits: AtomicUsize,
}

impl TestDisk {
    fn new(
        handle: impl Fn(&Kind) -> Result<Option<v1::IngestResponse>, ServiceError> + Send + 'static,
    ) -> Self {
        Self { handle: Box::new(handle), idle: Mutex::new(None), waits: AtomicUsize::new(0) }
    }
}

impl Disk for TestDisk {
    fn opened(&self) -> Result<v1::StreamOpened, ServiceError> {
        Ok(v1::StreamOpened::default())
    }

    fn handle(&self, kind: Kind, _: u64) -> Result<Option<v1::IngestResponse>, ServiceError> {
        (self.handle)(&kind)
    }

    fn idle(&self) -> Result<Option<v1::IngestResponse>, ServiceError> {
        if self.waits.load(Ordering::SeqCst) > 0 { Ok(None) } else { Ok(self.idle.lock().take()) }
    }

    fn wait_for_others(&self, _: Duration) -> bool {
        let one_less = |waits: usize| waits.checked_sub(1);
        self.waits.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
    }
}

/// Arrivals of a stream without lanes.
fn arrivals() -> Arrivals {
    let (intake, items) = Intake::new();
    Arrivals { intake, items, offer: Offer::default() }
}

fn streams() -> Arc<Streams> {
    Streams::new(StreamLimits { ingest: 4, restore: 4 })
}

fn guard(streams: &Arc<Streams>) -> StreamGuard {
    streams.open(StreamKind::Ingest, TokenId::from_bytes([1; 16])).unwrap()
}

fn region(bytes: usize) -> Result<v1::IngestRequest, Status> {
    let region = v1::Region { payload: Bytes::from(vec![1; bytes]), ..v1::Region::default() };
    Ok(v1::IngestRequest { order: 0, kind: Some(Kind::Region(region)) })
}

fn finish() -> Result<v1::IngestRequest, Status> {
    Ok(v1::IngestRequest { order: 0, kind: Some(Kind::Finish(v1::FinishStream::default())) })
}

fn answer(kind: ingest_response::Kind) -> v1::IngestResponse {
    v1::IngestResponse { kind: Some(kind) }
}

/// Says Finished to Finish and nothing to the rest.
fn agreeable(kind: &Kind) -> Result<Option<v1::IngestResponse>, ServiceError> {
    Ok(matches!(kind, Kind::Finish(_))
        .then(|| answer(ingest_response::Kind::Finished(v1::StreamFinished::default()))))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_behind_stops_the_line() {
    for (bytes, queued_max) in
        [(100, INGEST_QUEUE_MESSAGES as usize), (4 << 20, 2), (MESSAGE_MAX_BYTES - 100, 1)]
    {
        let read = Arc::new(AtomicUsize::new(0));
        let (handled, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counter = Arc::clone(&read);
        let messages = tokio_stream::iter((0..100).map(move |n| {
            counter.fetch_add(1, Ordering::SeqCst);
            if n == 99 { finish() } else { region(bytes) }
        }));
        let disk = {
            let most = Arc::clone(&most);
            TestDisk::new(move |kind| {
                // Gives the line every chance to run ahead.
                for _ in 0..50 {
                    std::thread::yield_now();
                }
                let ahead = read.load(Ordering::SeqCst) - handled.fetch_add(1, Ordering::SeqCst);
                most.fetch_max(ahead, Ordering::SeqCst);
                agreeable(kind)
            })
        };
        let (answers, mut received) = mpsc::channel(INGEST_ANSWERS);
        carry(disk, guard(&streams()), messages, answers, arrivals()).await.unwrap().unwrap();
        // The queued ones (this one among them) and one in the hand of the task that reads.
        assert!(most.load(Ordering::SeqCst) <= queued_max + 1, "{bytes}: {most:?}");
        let mut kinds = Vec::new();
        while let Some(answer) = received.recv().await {
            kinds.extend(answer.unwrap().kind);
        }
        assert_eq!(kinds.len(), 2, "{kinds:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_an_answer_and_not_the_end_of_the_server() {
    let messages = tokio_stream::iter([region(1), finish()]);
    let (answers, _received) = mpsc::channel(INGEST_ANSWERS);
    let streams = streams();
    let disk = TestDisk::new(|_| panic!("on purpose"));
    let panic = carry(disk, guard(&streams), messages, answers, arrivals()).await.unwrap_err();
    assert_eq!(ServiceError::from(panic).code, ErrorCode::Internal);
    assert_eq!(streams.count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_either_side_end_it() {
    let streams = streams();
    let ended = async |disk: TestDisk, messages: Vec<Result<v1::IngestRequest, Status>>| {
        let (answers, _received) = mpsc::channel(INGEST_ANSWERS);
        carry(disk, guard(&streams), tokio_stream::iter(messages), answers, arrivals())
            .await
            .unwrap()
            .unwrap_err()
            .code
    };
    let full = TestDisk::new(|_| Err(ServiceError::new(ErrorCode::Full, "no room")));
    assert_eq!(ended(full, vec![region(1), finish()]).await, ErrorCode::Full);
    let lost = vec![region(1), Err(Status::unknown("h2 protocol error"))];
    assert_eq!(ended(TestDisk::new(agreeable), lost).await, ErrorCode::Unavailable);
    let large = vec![Err(Status::out_of_range("too large")), finish()];
    assert_eq!(ended(TestDisk::new(agreeable), large).await, ErrorCode::Limit);
    assert_eq!(ended(TestDisk::new(agreeable), vec![region(1)]).await, ErrorCode::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_told_while_no_message_comes_and_shutdown_is_heard() {
    let streams = streams();
    let disk = TestDisk::new(agreeable);
    *disk.idle.lock() = Some(answer(ingest_response::Kind::Ack(v1::Ack::default())));
    let (answers, mut received) = mpsc::channel(INGEST_ANSWERS);
    let silent = tokio_stream::pending();
    let carried = tokio::spawn(carry(disk, guard(&streams), silent, answers, arrivals()));
    let opened = received.recv().await.unwrap().unwrap().kind;
    assert!(matches!(opened, Some(ingest_response::Kind::Opened(_))), "{opened:?}");
    let ack = received.recv().await.unwrap().unwrap().kind;
    assert!(matches!(ack, Some(ingest_response::Kind::Ack(_))), "{ack:?}");
    streams.close();
    assert_eq!(carried.await.unwrap().unwrap().unwrap_err().code, ErrorCode::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_to_finish_may_come_later() {
    let disk = TestDisk::new(|_| Ok(None));
    disk.waits.store(3, Ordering::SeqCst);
    *disk.idle.lock() = Some(answer(ingest_response::Kind::Finished(v1::StreamFinished::default())));
    let (answers, mut received) = mpsc::channel(INGEST_ANSWERS);
    // The agent says Finish and nothing more.
    let messages = tokio_stream::iter([finish()]).chain(tokio_stream::pending());
    let carried = carry(disk, guard(&streams()), messages, answers, arrivals());
    tokio::time::timeout(Duration::from_secs(300), carried).await.expect("it ends").unwrap().unwrap();
    let mut kinds = Vec::new();
    while let Some(answer) = received.recv().await {
        kinds.extend(answer.unwrap().kind);
    }
    assert!(
        matches!(kinds[..], [ingest_response::Kind::Opened(_), ingest_response::Kind::Finished(_)]),
        "{kinds:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_went_away_ends_it_quietly() {
    let (answers, received) = mpsc::channel(INGEST_ANSWERS);
    drop(received);
    let messages = tokio_stream::iter([region(1), finish()]);
    carry(TestDisk::new(agreeable), guard(&streams()), messages, answers, arrivals()).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_messages_ends() {
    let (intake, items) = Intake::new();
    let (streams, begun) = (streams(), tokio::time::Instant::now());
    let guard = guard(&streams);
    pump(tokio_stream::pending(), &intake, guard.stopped()).await;
    let Ok(Item::Failed(error)) = items.try_recv() else { panic!("it ended without a reason") };
    assert_eq!((error.code, begun.elapsed()), (ErrorCode::Unavailable, crate::limits::INGEST_IDLE));
}

/// Asserts that a stream ends whose first message never comes, and whose engine is never behind.
async fn ends_for_the_first(
    messages: impl Stream<Item = Result<v1::IngestRequest, Status>> + Unpin,
    intake: &Intake,
    items: &blocking::Receiver<Item>,
) {
    let (streams, begun) = (streams(), tokio::time::Instant::now());
    let guard = guard(&streams);
    let engine = async {
        loop {
            match items.try_recv() {
                Ok(Item::Failed(error)) => return error,
                Ok(Item::Message(..)) => {}
                Err(_) => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    };
    let both = async { tokio::join!(pump(messages, intake, guard.stopped()), engine).1 };
    let error = tokio::time::timeout(Duration::from_secs(86_400), both).await.expect("it ends");
    assert_eq!(error.code, ErrorCode::Unavailable);
    assert!(error.to_string().contains("message 1 is missing"), "{error}");
    assert!(begun.elapsed() <= 2 * ORDER_PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_stream_full_of_messages_that_wait_for_one_before_ends() {
    let (intake, items) = Intake::new();
    let orders = 2..=2 * u64::from(INGEST_QUEUE_MESSAGES);
    let messages = orders.map(|order| region(1).map(|message| v1::IngestRequest { order, ..message }));
    let messages = tokio_stream::iter(messages).chain(tokio_stream::pending());
    ends_for_the_first(messages, &intake, &items).await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_is_behind_is_no_missing_message() {
    let (intake, items) = Intake::new();
    let (mut source, streams) = (intake::Source::default(), streams());
    let guard = guard(&streams);
    for order in [1, 3] {
        let kind = Kind::Region(v1::Region::default());
        let message = intake::Message { kind, wire_bytes: 0, room: intake.room(0).await.unwrap() };
        assert!(intake.of_lane(&mut source, order, message).unwrap());
    }
    // The lane that has number 2 is not read from while the engine has number 1.
    let with_engine = items.try_recv().unwrap();
    let (begun, ended) =
        (tokio::time::Instant::now(), pump(tokio_stream::pending(), &intake, guard.stopped()));
    tokio::pin!(ended);
    let behind = 4 * ORDER_PATIENCE;
    assert!(tokio::time::timeout(behind, &mut ended).await.is_err(), "the engine has something to do");
    drop(with_engine);
    ended.await;
    let Ok(Item::Failed(error)) = items.try_recv() else { panic!("it ended without a reason") };
    assert!(error.to_string().contains("message 2 is missing"), "{error}");
    assert!(begun.elapsed() <= behind + 2 * ORDER_PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_missing_message_ends_the_stream_although_queries_come() {
    let (intake, items) = Intake::new();
    let mut source = intake::Source::default();
    let kind = Kind::Region(v1::Region::default());
    let message = intake::Message { kind, wire_bytes: 0, room: intake.room(0).await.unwrap() };
    assert!(intake.of_lane(&mut source, 5, message).unwrap());
    let (line, queries) = mpsc::channel(1);
    tokio::spawn(async move {
        let query = || Ok(v1::IngestRequest { order: 0, kind: Some(Kind::Query(v1::Query::default())) });
        while line.send(query()).await.is_ok() {
            tokio::time::sleep(ORDER_PATIENCE / 10).await;
        }
    });
    ends_for_the_first(ReceiverStream::new(queries), &intake, &items).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_reads_no_answers_does_not_hold_up_shutdown() {
    let streams = streams();
    let disk = TestDisk::new(|_| Ok(Some(answer(ingest_response::Kind::Ack(v1::Ack::default())))));
    let (answers, received) = mpsc::channel(1);
    let messages = tokio_stream::iter((0..100).map(|_| region(1)));
    let carried = tokio::spawn(carry(disk, guard(&streams), messages, answers, arrivals()));
    while received.is_empty() {
        tokio::task::yield_now().await;
    }
    streams.close();
    assert_eq!(carried.await.unwrap().unwrap().unwrap_err().code, ErrorCode::Unavailable);
    assert_eq!(received.len(), 1, "nothing was read");
}

/// Lets every other task do what it can.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn lanes_take_their_room_from_the_streams_own() {
    let (intake, _items) = Intake::new();
    let all = intake.room(MESSAGE_MAX_BYTES).await.unwrap();
    assert_eq!(all.num_permits(), INGEST_QUEUE_BYTES as usize);
    // Waits for all of it, and then, when lanes take their part, for less.
    let (waits, shares) = (Arc::clone(&intake), Arc::clone(&intake));
    let waiting = tokio::spawn(async move { waits.room(MESSAGE_MAX_BYTES).await.unwrap() });
    settle().await;
    let sharing = tokio::spawn(async move { shares.share_room().await });
    settle().await;
    assert!(!waiting.is_finished() && !sharing.is_finished(), "there is no room yet");
    drop(all);
    sharing.await.unwrap();
    let rest = waiting.await.unwrap();
    assert_eq!(rest.num_permits(), CONTROL_QUEUE_BYTES as usize);
    tokio::select! {
        biased;
        _ = intake.room(1) => panic!("there is more room than is left to the stream"),
        () = settle() => {}
    }
    drop(rest);
    intake.share_room().await;
    drop(intake.room(1).await.unwrap());
}

#[tokio::test]
async fn a_lane_is_read_one_message_at_a_time() {
    let (session, token) = (SessionId::from_bytes([1; 16]), TokenId::from_bytes([1; 16]));
    let ((intake, items), lanes) = (Intake::new(), Lanes::new(256));
    let host = lanes.host(session, 0, token, Arc::clone(&intake));
    let attached = lanes.attach(session, 0, host.offer().stream, token).unwrap();
    let read = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&read);
    let messages = (2..=9).map(move |order| {
        counter.fetch_add(1, Ordering::SeqCst);
        let kind = Some(v1::lane_request::Kind::Region(v1::Region::default()));
        Ok(v1::LaneRequest { order, kind })
    });
    let (answers, _told) = mpsc::channel(2);
    let carried = tokio::spawn(super::lanes::carry(attached, tokio_stream::iter(messages), answers));
    settle().await;
    assert_eq!(read.load(Ordering::SeqCst), 1);
    assert!(items.try_recv().is_err(), "number 1 is missing");
    let kind = Kind::Region(v1::Region::default());
    let first = intake::Message { kind, wire_bytes: 0, room: intake.room(0).await.unwrap() };
    assert!(intake.own(1, first).unwrap());
    let (_first, second) = (items.try_recv().unwrap(), items.try_recv().unwrap());
    settle().await;
    assert_eq!(read.load(Ordering::SeqCst), 1, "the engine has the second in its hands");
    drop(second);
    settle().await;
    assert_eq!(read.load(Ordering::SeqCst), 2);
    drop(host);
    carried.await.unwrap();
}
