//! One disk over several connections, by agents that keep to the rules and by agents that do not.

use holdfast_proto::limits::{LANE_MESSAGE_MAX_BYTES, LANES_MAX};
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::lane_request::Kind as LaneKind;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::*;

/// A disk's stream.
struct Control {
    messages: mpsc::Sender<v1::IngestRequest>,
    answers: Streaming<v1::IngestResponse>,
    opened: v1::StreamOpened,
}

impl Control {
    async fn open(client: &Client, session: &str) -> Self {
        let (messages, line) = mpsc::channel(16);
        messages.send(ingest::open(session, 0)).await.unwrap();
        let request = client.request(ReceiverStream::new(line));
        let mut answers = client.backup().ingest(request).await.unwrap().into_inner();
        let Some(ingest::Answer::Opened(opened)) = answers.message().await.unwrap().unwrap().kind else {
            panic!("not opened")
        };
        Self { messages, answers, opened }
    }

    async fn send(&self, order: u64, message: v1::IngestRequest) {
        self.messages.send(v1::IngestRequest { order, ..message }).await.unwrap();
    }

    /// The answers up to the end, or why it failed.
    async fn end(mut self) -> Result<Vec<ingest::Answer>, Status> {
        let mut answers = Vec::new();
        while let Some(answer) = self.answers.message().await? {
            answers.extend(answer.kind);
        }
        Ok(answers)
    }

    async fn refused(self) -> (ErrorCode, String) {
        let status = self.end().await.unwrap_err();
        (code::<()>(Err(status.clone())), status.message().to_owned())
    }
}

struct LaneEnd {
    messages: mpsc::Sender<v1::LaneRequest>,
    answers: Streaming<v1::LaneResponse>,
}

async fn lane_beginning_with(client: &Client, first: v1::LaneRequest) -> Result<LaneEnd, Status> {
    let (messages, line) = mpsc::channel(16);
    messages.send(first).await.unwrap();
    let request = client.request(ReceiverStream::new(line));
    let mut answers = client.backup().send_lane(request).await?.into_inner();
    assert!(answers.message().await?.is_some(), "a lane is confirmed");
    Ok(LaneEnd { messages, answers })
}

async fn lane(client: &Client, session: &str, disk: u32, stream: u64) -> Result<LaneEnd, Status> {
    let open = v1::OpenLane { session_id: session.into(), disk, stream };
    lane_beginning_with(client, v1::LaneRequest { order: 0, kind: Some(LaneKind::Open(open)) }).await
}

/// Extent `first` reads as zeros.
fn zero(first: u64) -> v1::Extents {
    v1::Extents { zero: vec![v1::ExtentRange { first, count: 1 }], ..v1::Extents::default() }
}

impl LaneEnd {
    async fn send(&self, order: u64, extent: u64) {
        let kind = Some(LaneKind::Extents(zero(extent)));
        self.messages.send(v1::LaneRequest { order, kind }).await.unwrap();
    }

    /// Resolves when the server ends it.
    async fn end(mut self) -> Result<(), Status> {
        let answer = self.answers.message().await?;
        assert!(answer.is_none(), "{answer:?}");
        Ok(())
    }
}

/// Asserts that the session is in order: the rest of the disk can be sent, without lanes, and committed.
async fn assert_goes_on(client: &Client, session: &str) {
    let control = Control::open(client, session).await;
    let accepted = &control.opened.accepted;
    let is_missing = |extent: &u64| {
        !accepted.iter().any(|range| range.first <= *extent && *extent < range.first + range.count)
    };
    for extent in (0..2).filter(is_missing) {
        let kind = Some(Kind::Extents(zero(extent)));
        control.send(0, v1::IngestRequest { order: 0, kind }).await;
    }
    control.send(0, ingest::finish()).await;
    control.end().await.unwrap();
    client.commit(session).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_several_lanes_come_to_the_engine_in_their_order() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    assert_eq!((control.opened.lanes_max, control.opened.stream > 0), (LANES_MAX, true));
    let others = [fixture.admin().await, fixture.admin().await];
    let one = lane(&others[0], &session, 0, control.opened.stream).await.unwrap();
    let two = lane(&others[1], &session, 0, control.opened.stream).await.unwrap();
    // The last first: the engine takes extents in any order, but nothing after Finish.
    control.send(3, ingest::finish()).await;
    two.send(2, 0).await;
    one.send(1, 1).await;
    let answers = control.end().await.unwrap();
    assert!(matches!(answers.last(), Some(ingest::Answer::Finished(_))), "{answers:?}");
    one.end().await.unwrap();
    two.end().await.unwrap();
    admin.commit(&session).await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_is_opened_only_for_an_open_stream_of_ones_own() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let other_session = admin.start("", "other").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    let stream = control.opened.stream;
    let refusal = async |client: &Client, session: &str, disk, stream| {
        code(lane(client, session, disk, stream).await.map(drop))
    };
    for (session, disk, stream) in
        [(&session, 0, stream + 1), (&session, 0, 0), (&session, 1, stream), (&other_session, 0, stream)]
    {
        assert_eq!(refusal(&admin, session, disk, stream).await, ErrorCode::Invalid);
    }
    assert_eq!(refusal(&admin, "nonsense", 0, stream).await, ErrorCode::Invalid);
    // Another token of the same owner; a token that may not back up; one of another namespace; none.
    let another = fixture.client(&fixture.token(Role::Admin, &[])).await;
    assert!(lane(&another, &session, 0, stream).await.is_err());
    let reader = fixture.client(&fixture.token(Role::Restore, &[])).await;
    assert_eq!(refusal(&reader, &session, 0, stream).await, ErrorCode::Forbidden);
    let foreign = fixture.client(&fixture.token(Role::Backup, &["theirs"])).await;
    assert_eq!(refusal(&foreign, &session, 0, stream).await, ErrorCode::SessionGone);
    assert_eq!(refusal(&fixture.client("").await, &session, 0, stream).await, ErrorCode::Unauthenticated);
    // Not with a message that is no OpenLane.
    let message = v1::LaneRequest { order: 1, kind: Some(LaneKind::Extents(zero(0))) };
    assert_eq!(code(lane_beginning_with(&admin, message).await.map(drop)), ErrorCode::Invalid);
    // All that were offered, and no more.
    let mut lanes = Vec::new();
    for _ in 0..control.opened.lanes_max {
        lanes.push(lane(&admin, &session, 0, stream).await.unwrap());
    }
    assert_eq!(refusal(&admin, &session, 0, stream).await, ErrorCode::Limit);
    // None of that reached the stream.
    control.send(1, ingest::zeros()).await;
    control.send(2, ingest::finish()).await;
    control.end().await.unwrap();
    for lane in lanes {
        lane.end().await.unwrap();
    }
    admin.commit(&session).await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_breaks_the_order_ends_the_stream_and_leaves_the_session() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    for (vm, orders, why) in
        [("a", &[1u64, 1][..], "number 1"), ("b", &[1, 2, 0], "has no number"), ("c", &[1 << 40], "ahead")]
    {
        let session = admin.start("", vm).await.unwrap().session_id;
        let control = Control::open(&admin, &session).await;
        let lane = lane(&admin, &session, 0, control.opened.stream).await.unwrap();
        for order in orders {
            lane.send(*order, order % 2).await;
        }
        let (code, message) = control.refused().await;
        assert_eq!((code, message.contains(why)), (ErrorCode::Invalid, true), "{message}");
        assert_goes_on(&admin, &session).await;
    }
    let session = admin.start("", "vm").await.unwrap().session_id;
    // A lane, and a stream that has lanes, is not read any further while its message waits for one before: only a stream
    // without lanes can show this.
    let control = Control::open(&admin, &session).await;
    control.send(3, ingest::finish()).await;
    control.send(2, ingest::zeros()).await;
    let (code, message) = control.refused().await;
    assert_eq!((code, message.contains("ascend")), (ErrorCode::Invalid, true), "{message}");
    // A query has no place in the order.
    let control = Control::open(&admin, &session).await;
    control.send(1, ingest::query()).await;
    let (code, message) = control.refused().await;
    assert_eq!((code, message.contains("a query has number 1")), (ErrorCode::Invalid, true), "{message}");
    // Numbers on a lane and none on the stream itself.
    let control = Control::open(&admin, &session).await;
    let numbered = lane(&admin, &session, 0, control.opened.stream).await.unwrap();
    numbered.send(2, 0).await;
    control.send(0, ingest::query()).await;
    control.send(0, ingest::zeros()).await;
    let (code, message) = control.refused().await;
    assert_eq!(code, ErrorCode::Invalid, "{message}");
    // A message that is too long for a lane.
    let session = admin.start("", "large").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    let large = lane(&admin, &session, 0, control.opened.stream).await.unwrap();
    let payload = vec![0; LANE_MESSAGE_MAX_BYTES].into();
    let kind = Some(LaneKind::Region(v1::Region { payload, ..v1::Region::default() }));
    large.messages.send(v1::LaneRequest { order: 1, kind }).await.unwrap();
    let (code, message) = control.refused().await;
    assert_eq!((code, message.contains("a lane")), (ErrorCode::Invalid, true), "{message}");
    assert_goes_on(&admin, &session).await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lane_that_ends_early_is_a_lost_connection() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    let lane = lane(&admin, &session, 0, control.opened.stream).await.unwrap();
    lane.send(1, 0).await;
    drop(lane.messages);
    let (code, message) = control.refused().await;
    assert_eq!(
        (code, message.contains("open the stream again")),
        (ErrorCode::Unavailable, true),
        "{message}"
    );
    // Extents before it, in order, were accepted.
    let control = Control::open(&admin, &session).await;
    assert_eq!(control.opened.accepted, [v1::ExtentRange { first: 0, count: 1 }]);
    drop(control);
    assert_goes_on(&admin, &session).await;
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lanes_of_a_stream_that_was_opened_again_bring_nothing() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let old = Control::open(&admin, &session).await;
    let old_lane = lane(&admin, &session, 0, old.opened.stream).await.unwrap();
    let new = Control::open(&admin, &session).await;
    assert_ne!(new.opened.stream, old.opened.stream);
    // Cannot be sent when the server has ended the lane already.
    let kind = Some(LaneKind::Extents(zero(0)));
    drop(old_lane.messages.send(v1::LaneRequest { order: 1, kind }).await);
    assert_eq!(old.refused().await.0, ErrorCode::SessionGone);
    old_lane.end().await.unwrap();
    let new_lane = lane(&admin, &session, 0, new.opened.stream).await.unwrap();
    new_lane.send(1, 0).await;
    new_lane.send(2, 1).await;
    new.send(3, ingest::finish()).await;
    new.end().await.unwrap();
    admin.commit(&session).await.unwrap();
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_message_keeps_all_behind_it_from_the_engine() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    let lane = lane(&admin, &session, 0, control.opened.stream).await.unwrap();
    lane.send(1, 0).await;
    lane.send(3, 1).await;
    control.send(4, ingest::finish()).await;
    let Control { messages, mut answers, .. } = control;
    drop(messages);
    let mut kinds = Vec::new();
    while !kinds.iter().any(|kind| matches!(kind, ingest::Answer::Ack(ack) if ack.extents_accepted == 1)) {
        kinds.extend(answers.message().await.unwrap().unwrap().kind);
    }
    drop((answers, lane));
    assert_goes_on(&admin, &session).await;
    fixture.server.stop().await.unwrap();
}

/// Misuses the lanes of a stream of its own, in one of five ways.
async fn misbehave(client: Client, vm: String, how: usize) {
    let session = client.start("", &vm).await.unwrap().session_id;
    let control = Control::open(&client, &session).await;
    let mut lanes = Vec::new();
    // All that it gets: others have some.
    while let Ok(lane) = lane(&client, &session, 0, control.opened.stream).await {
        lanes.push(lane);
    }
    assert!(lanes.len() <= LANES_MAX as usize, "{}", lanes.len());
    let garbage = v1::Region {
        codec: 1,
        plain_bytes: u32::MAX,
        fingerprints: vec![7; 31].into(),
        lengths: vec![u32::MAX; 3],
        payload: vec![7; 400_000].into(),
    };
    for (number, lane) in (1..).zip(&lanes) {
        let (order, kind) = match how {
            0 => (1, LaneKind::Extents(zero(0))),
            1 => (number, LaneKind::Region(garbage.clone())),
            2 => (1 << 40, LaneKind::Extents(zero(0))),
            3 => (number, LaneKind::Open(v1::OpenLane::default())),
            // The first never comes.
            _ => (number + 1, LaneKind::Region(garbage.clone())),
        };
        // The server may have ended it.
        drop(lane.messages.send(v1::LaneRequest { order, kind: Some(kind) }).await);
    }
    if how < 4 {
        // Streams that got no lanes finish twice what is not complete.
        for _ in 0..2 {
            drop(control.messages.send(v1::IngestRequest { order: 1, ..ingest::finish() }).await);
        }
        let (code, message) = control.refused().await;
        assert_eq!(code, ErrorCode::Invalid, "way {how}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifteen_hostile_peers_at_once_leave_nothing_and_harm_no_one() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "honest").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    let honest = lane(&admin, &session, 0, control.opened.stream).await.unwrap();
    let mut peers = tokio::task::JoinSet::new();
    // With the honest one as many disks as the server takes at once: more would wait for their turn.
    for number in 0..15 {
        peers.spawn(misbehave(fixture.admin().await, format!("hostile-{number}"), number % 5));
    }
    while let Some(ended) = peers.join_next().await {
        ended.unwrap();
    }
    honest.send(1, 1).await;
    honest.send(2, 0).await;
    control.send(3, ingest::finish()).await;
    control.end().await.unwrap();
    honest.end().await.unwrap();
    admin.commit(&session).await.unwrap();
    // Also those whose peer only went away.
    while fixture.server.app().activity.streams.count() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let session = admin.start("", "after").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    assert_eq!(control.opened.lanes_max, LANES_MAX, "every place was given back");
    drop(control);
    fixture.server.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn finish_again_and_what_comes_behind_it_change_nothing() {
    let fixture = Fixture::start().await;
    let admin = fixture.admin().await;
    let session = admin.start("", "vm").await.unwrap().session_id;
    let control = Control::open(&admin, &session).await;
    let late = lane(&admin, &session, 0, control.opened.stream).await.unwrap();
    control.send(1, ingest::zeros()).await;
    control.send(2, ingest::finish()).await;
    // The stream may be over by then.
    for message in [ingest::finish(), ingest::zeros(), ingest::query()] {
        drop(control.messages.send(v1::IngestRequest { order: 3, ..message }).await);
    }
    let kind = Some(LaneKind::Extents(zero(0)));
    drop(late.messages.send(v1::LaneRequest { order: 4, kind }).await);
    let answers = control.end().await.unwrap();
    assert!(matches!(answers.last(), Some(ingest::Answer::Finished(_))), "{answers:?}");
    let first = admin.commit(&session).await.unwrap();
    assert_eq!(admin.commit(&session).await.unwrap(), first);
    fixture.server.stop().await.unwrap();
}
