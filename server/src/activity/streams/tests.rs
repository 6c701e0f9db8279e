use std::pin::pin;

use holdfast_proto::limits::MOVES_BYTES;

use super::*;

fn token(number: u8) -> TokenId {
    TokenId::from_bytes([number; 16])
}

fn namespace(number: u8) -> NamespaceId {
    NamespaceId::from_bytes([number; 16])
}

fn subject(number: u8) -> Subject {
    Subject::Session(SessionId::from_bytes([number; 16]))
}

fn streams() -> Arc<Streams> {
    Streams::new(StreamLimits { ingest: 1, restore: 2 })
}

/// A stream of token and namespace `number` that has entered.
fn enter(streams: &Arc<Streams>, kind: StreamKind, number: u8) -> StreamGuard {
    let guard = streams.open(kind, token(number)).unwrap();
    guard.enter(namespace(number), subject(number), true).unwrap();
    guard
}

/// Waits, and collects the places it is told.
async fn wait(guard: &StreamGuard, places: &Mutex<Vec<usize>>) -> Result<(), ServiceError> {
    guard
        .wait(|ahead| {
            places.lock().push(ahead);
            Ok(())
        })
        .await
}

/// Polls once.
async fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    std::future::poll_fn(|cx| std::task::Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending()))
        .await
}

#[test]
fn slots_are_counted_by_kind_and_one_that_may_not_wait_is_refused() {
    let streams = streams();
    let first = enter(&streams, StreamKind::Ingest, 1);
    assert!(first.has_slot());
    let second = streams.open(StreamKind::Ingest, token(1)).unwrap();
    let refused = second.enter(namespace(1), subject(2), false).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Limit);
    assert!(refused.message.contains("allows 1 disks being backed up at once"), "{refused}");
    assert!(enter(&streams, StreamKind::Restore, 1).has_slot(), "other kinds are counted apart");
    drop(first);
    second.enter(namespace(1), subject(2), false).unwrap();
    assert_eq!(streams.counts(), [("ingest", 1), ("digests", 0), ("restore", 0)]);
    assert_eq!(streams.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn one_that_waits_is_told_its_place_and_gets_its_turn() {
    let streams = streams();
    let first = enter(&streams, StreamKind::Ingest, 1);
    let (second, third) = (enter(&streams, StreamKind::Ingest, 1), enter(&streams, StreamKind::Ingest, 1));
    let (of_second, of_third) = (Mutex::default(), Mutex::default());
    let mut waits = (pin!(wait(&second, &of_second)), pin!(wait(&third, &of_third)));
    assert!(is_pending(&mut waits.0).await && is_pending(&mut waits.1).await);
    let waiting: Vec<usize> = streams.waiting().into_iter().map(|waiting| waiting.ahead).collect();
    assert_eq!((waiting, streams.queues()[0].1), (vec![0, 1], 2));
    // Told again while nothing changes.
    tokio::time::advance(TURN_TOLD_EVERY).await;
    assert!(is_pending(&mut waits.1).await);
    drop(first);
    waits.0.await.unwrap();
    assert!(is_pending(&mut waits.1).await);
    assert_eq!((&*of_second.lock(), &*of_third.lock()), (&vec![0], &vec![1, 1, 0]));
    let waited = streams.queues()[0].2;
    assert_eq!(waited, Waited { streams: 1, time: TURN_TOLD_EVERY });
}

#[tokio::test(start_paused = true)]
async fn those_who_go_away_lose_their_place() {
    let streams = streams();
    let first = enter(&streams, StreamKind::Ingest, 1);
    let (gone, last) = (enter(&streams, StreamKind::Ingest, 1), enter(&streams, StreamKind::Ingest, 1));
    drop(gone);
    assert_eq!(streams.waiting().len(), 1);
    drop(first);
    last.wait(|_| Ok(())).await.unwrap();
    assert_eq!(streams.count(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_ends_its_own_streams_and_shutdown_ends_all() {
    let streams = streams();
    let has = enter(&streams, StreamKind::Ingest, 1);
    let (waits, other) = (enter(&streams, StreamKind::Ingest, 1), enter(&streams, StreamKind::Ingest, 2));
    let outside = streams.open(StreamKind::Restore, token(2)).unwrap();
    assert_eq!(streams.tokens().len(), 2);
    streams.end_token(token(1));
    assert_eq!(has.check().unwrap_err().code, ErrorCode::Unauthenticated);
    assert_eq!(waits.wait(|_| Ok(())).await.unwrap_err().code, ErrorCode::Unauthenticated);
    other.check().unwrap();
    streams.close();
    assert_eq!(other.wait(|_| Ok(())).await.unwrap_err().code, ErrorCode::Unavailable);
    outside.stopped().wait().await;
    assert_eq!(streams.open(StreamKind::Digests, token(3)).unwrap_err().code, ErrorCode::Unavailable);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_with_all_slots_gives_way_to_one_that_has_waited() {
    let streams = streams();
    let (old, new) = (enter(&streams, StreamKind::Restore, 1), enter(&streams, StreamKind::Restore, 1));
    let _more = enter(&streams, StreamKind::Restore, 1);
    let newcomer = enter(&streams, StreamKind::Restore, 2);
    let begun = Instant::now();
    let ended = tokio::spawn(async move {
        new.stopped().wait().await;
        new.check().unwrap_err()
    });
    newcomer.wait(|_| Ok(())).await.unwrap();
    let error = ended.await.unwrap();
    assert_eq!(error.code, ErrorCode::Unavailable, "an agent opens it again: {error}");
    assert!(begun.elapsed() >= TURN_PATIENCE);
    old.check().unwrap();
    assert_eq!(streams.queues()[2].1, 1, "the greedy one's third stream waits on");
}

/// With one slot, no token ever holds two more than another: a query every 5 s would keep it for ever.
#[tokio::test(start_paused = true)]
async fn a_stream_that_could_move_and_does_not_gives_way() {
    let streams = streams();
    let holder = Arc::new(enter(&streams, StreamKind::Ingest, 1));
    let newcomer = enter(&streams, StreamKind::Ingest, 2);
    let moves = Duration::from_secs(600);
    let begun = Instant::now();
    let held = Arc::clone(&holder);
    let ended = tokio::spawn(async move {
        while begun.elapsed() < moves {
            tokio::time::sleep(Duration::from_secs(5)).await;
            held.moved(MOVES_BYTES / 10);
            held.check().unwrap();
        }
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            held.moved(32);
            if let Err(error) = held.check() {
                return error;
            }
        }
    });
    drop(holder);
    newcomer.wait(|_| Ok(())).await.unwrap();
    assert_eq!(ended.await.unwrap().code, ErrorCode::Unavailable, "an agent opens it again");
    assert!(begun.elapsed() >= moves + TURN_PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_telling_fails() {
    let streams = streams();
    let _first = enter(&streams, StreamKind::Ingest, 1);
    let second = enter(&streams, StreamKind::Ingest, 1);
    let gone = || ServiceError::new(ErrorCode::SessionGone, "expired");
    assert_eq!(second.wait(|_| Err(gone())).await.unwrap_err().code, ErrorCode::SessionGone);
}
