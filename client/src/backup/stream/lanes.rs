//! Lanes: further connections over which one disk's regions and extents go, for long lines.
//!
//! All ordered messages have numbers, and wait in one short queue. Each lane takes the next of them when its connection
//! has room, so a lane that recovers from a loss does not hold up the others; the server puts the messages back in
//! order. Queries, answers and the finish stay on the stream itself, where no data is in their way, and so do messages
//! that are too long for a lane.
//!
//! With `auto` they are opened once there is something to send that is worth it ([`ALONE_BYTES`]); until then messages
//! go over the stream itself, with their numbers.
//!
//! Nothing is given to a lane before the server has confirmed it. Lanes that cannot be opened are done without. One
//! that breaks later ends the stream as a lost connection does, because what it had taken may be lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use holdfast_proto::limits::LANE_MESSAGE_MAX_BYTES;
use holdfast_proto::v1;
use holdfast_proto::v1::ingest_request::Kind;
use holdfast_proto::v1::lane_request::Kind as LaneKind;
use prost::Message as _;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio_stream::wrappers::ReceiverStream;

use crate::backup::Pipeline;
use crate::connect::Connection;
use crate::connect::connections::{Connections, Growth, Interval};
use crate::error::ClientError;

/// Messages that no lane has taken. Each lane has one more, and up to 1 MiB in its connection.
const QUEUE_MESSAGES: usize = 2;

/// Bytes that go over the stream itself before `auto` opens lanes: most backups of most days send hardly more.
const ALONE_BYTES: usize = 512 << 10;

/// Time that the stream itself has to say why it ended, once a lane broke.
const REASON_GRACE: Duration = Duration::from_secs(5);

/// Messages for the lanes; each takes from the front.
type Queue = Arc<Mutex<mpsc::Receiver<v1::LaneRequest>>>;

/// Bytes the lanes took and time they held data up, to find out whether more are worth it.
#[derive(Debug, Default)]
struct Meter {
    taken_bytes: AtomicU64,
    held_up_nanos: AtomicU64,
}

impl Meter {
    fn read(&self) -> (u64, Duration) {
        let nanos = self.held_up_nanos.load(Ordering::Relaxed);
        (self.taken_bytes.load(Ordering::Relaxed), Duration::from_nanos(nanos))
    }
}

/// Outlet of ordered messages: over lanes, or over the stream itself when there are none.
pub(super) struct Outlet {
    wire: Wire,
    lanes: Option<ToLanes>,
}

struct ToLanes {
    queue: mpsc::Sender<v1::LaneRequest>,
    /// Notified when lanes are needed.
    needed: Arc<Notify>,
    /// True if there are lanes; `None` until that is known.
    ready: watch::Receiver<Option<bool>>,
    /// Cached value of `ready`, once it was asked.
    open: Option<bool>,
    /// Bytes that may still go over the stream itself before lanes are needed.
    alone_bytes: usize,
    /// The last number given.
    order: u64,
    meter: Arc<Meter>,
}

impl Outlet {
    /// Creates an outlet without lanes.
    pub(super) const fn plain(wire: Wire) -> Self {
        Self { wire, lanes: None }
    }

    /// Hands the next ordered message to the transport.
    pub(super) async fn send(&mut self, kind: Kind) {
        let Some(lanes) = &mut self.lanes else { return hand_over(&self.wire, kind).await };
        lanes.order += 1;
        let kind = if lanes.are_open(&kind).await { for_lane(kind) } else { Err(kind) };
        match kind {
            Ok(kind) => lanes.put(kind).await,
            Err(kind) => hand_over_numbered(&self.wire, lanes.order, kind).await,
        }
    }
}

impl ToLanes {
    /// Returns true if this message may go over a lane. Waits for lanes once they are needed.
    async fn are_open(&mut self, kind: &Kind) -> bool {
        if let Some(open) = self.open {
            return open;
        }
        if let Some(rest) = self.alone_bytes.checked_sub(kind.encoded_len()) {
            self.alone_bytes = rest;
            return false;
        }
        self.needed.notify_one();
        let ready = self.ready.wait_for(Option::is_some).await.map(|ready| *ready == Some(true));
        *self.open.insert(ready.unwrap_or(false))
    }

    /// When the lanes are gone, waits for ever: [`Lanes::watch`] ends the stream.
    async fn put(&self, kind: LaneKind) {
        let begun = Instant::now();
        let message = v1::LaneRequest { order: self.order, kind: Some(kind) };
        if self.queue.send(message).await.is_err() {
            std::future::pending::<()>().await;
        }
        let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.meter.held_up_nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// The message as a lane carries it; given back when no lane may.
fn for_lane(kind: Kind) -> Result<LaneKind, Kind> {
    // With its number and their tags.
    const FIELDS_BYTES: usize = 32;
    match kind {
        Kind::Region(region) => Ok(LaneKind::Region(region)),
        Kind::Extents(extents) if extents.encoded_len() + FIELDS_BYTES <= LANE_MESSAGE_MAX_BYTES => {
            Ok(LaneKind::Extents(extents))
        }
        other => Err(other),
    }
}

/// The lanes of one stream. Dropping this closes them.
pub(super) struct Lanes<'a> {
    pipeline: &'a Pipeline,
    connection: Connection,
    open: v1::OpenLane,
    queue: Queue,
    meter: Arc<Meter>,
    growth: Growth,
    needed: Arc<Notify>,
    ready: watch::Sender<Option<bool>>,
    /// Tasks of open lanes; each ends with why the lane broke.
    tasks: JoinSet<ClientError>,
}

/// Lanes for a stream that the server opened with these words, and where messages for them go. `None` where one
/// connection is enough or all there may be.
pub(super) fn lanes<'a>(
    pipeline: &'a Pipeline,
    connection: &Connection,
    session_id: &str,
    disk: u32,
    opened: &v1::StreamOpened,
    wire: &Wire,
) -> Option<(Lanes<'a>, Outlet)> {
    let (wanted, rtt, max) = (pipeline.connections, connection.rtt(), opened.lanes_max);
    let auto = wanted == Connections::Auto;
    let found = if auto { pipeline.connections_found.load(Ordering::Relaxed).min(max) } else { 0 };
    let count = wanted.first(rtt, max).max(found);
    tracing::info!(rtt_ms = rtt.as_secs_f64() * 1e3, %wanted, lanes_max = max, connections = count, "line");
    if count < 2 {
        return None;
    }
    let (queue, messages) = mpsc::channel(QUEUE_MESSAGES);
    let (ready, is_ready) = watch::channel(None);
    let meter = Arc::<Meter>::default();
    let needed = Arc::<Notify>::default();
    let outlet = ToLanes {
        queue,
        needed: Arc::clone(&needed),
        ready: is_ready,
        open: None,
        alone_bytes: if auto { ALONE_BYTES } else { 0 },
        order: 0,
        meter: Arc::clone(&meter),
    };
    let open = v1::OpenLane { session_id: session_id.to_owned(), disk, stream: opened.stream };
    let lanes = Lanes {
        pipeline,
        connection: connection.clone(),
        open,
        queue: Arc::new(Mutex::new(messages)),
        meter,
        growth: Growth::new(wanted, rtt, max, count),
        needed,
        ready,
        tasks: JoinSet::new(),
    };
    Some((lanes, Outlet { wire: wire.clone(), lanes: Some(outlet) }))
}

impl Lanes<'_> {
    /// Opens lanes when they are needed, and more while that pays. Ends with the error of a lane that broke; waits for
    /// ever when no lane is open.
    pub(super) async fn watch(mut self) -> ClientError {
        self.needed.notified().await;
        let opened = self.open_more(self.growth.count()).await;
        self.opened(opened);
        self.ready.send_replace(Some(opened > 0));
        let mut before = self.meter.read();
        while self.growth.may_grow() && opened > 0 {
            let begun = Instant::now();
            tokio::select! {
                broke = broken(&mut self.tasks) => return broke,
                () = tokio::time::sleep(self.growth.interval()) => {}
            }
            let now = self.meter.read();
            let interval = Interval {
                length: begun.elapsed(),
                bytes: now.0.saturating_sub(before.0),
                held_up: now.1.saturating_sub(before.1),
            };
            before = now;
            let (have, wanted) = (self.growth.count(), self.growth.after(interval));
            if wanted > have {
                let added = self.open_more(wanted - have).await;
                self.opened(have + added);
            }
        }
        broken(&mut self.tasks).await
    }

    /// Notes how many there are.
    fn opened(&mut self, count: u32) {
        if count < self.growth.count() {
            self.growth.stopped_at(count);
        }
        let count = count.max(1);
        self.pipeline.connections_found.fetch_max(self.growth.worth(), Ordering::Relaxed);
        self.pipeline.progress.connections(count);
        tracing::info!(connections = count, "connections carry the disk");
    }

    /// Opens lanes side by side; returns how many were opened. The first is used at once.
    async fn open_more(&mut self, count: u32) -> u32 {
        let (told, mut opened) = mpsc::channel(1);
        for _ in 0..count {
            let lane = Lane {
                connection: self.connection.clone(),
                open: self.open.clone(),
                queue: Arc::clone(&self.queue),
                meter: Arc::clone(&self.meter),
            };
            self.tasks.spawn(lane.run(told.clone()));
        }
        drop(told);
        let mut successes = 0;
        while let Some(outcome) = opened.recv().await {
            match outcome {
                Ok(()) => {
                    successes += 1;
                    self.ready.send_replace(Some(true));
                }
                Err(error) => tracing::info!(%error, "one connection less: it could not be opened"),
            }
        }
        successes
    }
}

/// The error of the first lane that broke. The stream itself, when it ended for another reason, says so meanwhile.
async fn broken(tasks: &mut JoinSet<ClientError>) -> ClientError {
    let broke = match tasks.join_next().await {
        None => return std::future::pending().await,
        Some(Ok(error)) => {
            ClientError::Lost(format!("one of the connections that carry the disk broke: {error}"))
        }
        Some(Err(_)) => ClientError::Internal("a lane panicked"),
    };
    tokio::time::sleep(REASON_GRACE).await;
    broke
}

/// Tells whether a lane could be opened.
type Told = mpsc::Sender<Result<(), ClientError>>;

/// Parameters of one lane.
struct Lane {
    connection: Connection,
    open: v1::OpenLane,
    queue: Queue,
    meter: Arc<Meter>,
}

impl Lane {
    /// Opens a lane and carries messages until it breaks. One that cannot be opened says so and then waits for ever:
    /// nothing was given to it.
    async fn run(self, told: Told) -> ClientError {
        match self.open().await {
            Ok((line, answers)) => {
                drop(told.send(Ok(())).await);
                drop(told);
                self.carry(line, answers).await
            }
            Err(error) => {
                drop(told.send(Err(error)).await);
                drop(told);
                std::future::pending().await
            }
        }
    }

    async fn open(
        &self,
    ) -> Result<(mpsc::Sender<v1::LaneRequest>, tonic::Streaming<v1::LaneResponse>), ClientError> {
        let connection = self.connection.another().await?;
        // With one place: a message is taken from the queue only when the connection wants another.
        let (line, messages) = mpsc::channel(1);
        let open = v1::LaneRequest { order: 0, kind: Some(LaneKind::Open(self.open.clone())) };
        // There is room for it.
        drop(line.try_send(open));
        let mut answers = connection.backup().send_lane(ReceiverStream::new(messages)).await?.into_inner();
        match answers.message().await? {
            Some(v1::LaneResponse {}) => Ok((line, answers)),
            None => Err(ClientError::Lost("the server ended a lane at once".to_owned())),
        }
    }

    async fn carry(
        &self,
        line: mpsc::Sender<v1::LaneRequest>,
        mut answers: tonic::Streaming<v1::LaneResponse>,
    ) -> ClientError {
        tokio::select! {
            ended = answers.message() => match ended {
                Err(status) => status.into(),
                Ok(Some(_)) => ClientError::Protocol("it answered twice on a lane".to_owned()),
                // The stream is over, and says itself how it ended.
                Ok(None) => std::future::pending().await,
            },
            () = self.feed(&line) => std::future::pending().await,
        }
    }

    /// Passes messages on until there are no more.
    async fn feed(&self, line: &mpsc::Sender<v1::LaneRequest>) {
        while let Ok(room) = line.reserve().await {
            let Some(message) = self.queue.lock().await.recv().await else { break };
            self.meter.taken_bytes.fetch_add(message.encoded_len() as u64, Ordering::Relaxed);
            room.send(message);
        }
        // The connection is gone, or everything is sent; the lane stays until the stream is over.
        std::future::pending::<()>().await;
    }
}

/// The way into the transport of one ingest stream.
pub(super) type Wire = mpsc::Sender<v1::IngestRequest>;

/// Hands a message to the transport. When the transport is gone, waits for ever: [`receive`](crate::backup::stream::transport::receive)
/// gets the reason and ends the stream with it.
pub(super) async fn hand_over(wire: &Wire, kind: Kind) {
    hand_over_numbered(wire, 0, kind).await;
}

/// As `hand_over`, for a message with its number among the ordered ones.
pub(super) async fn hand_over_numbered(wire: &Wire, order: u64, kind: Kind) {
    if wire.send(v1::IngestRequest { order, kind: Some(kind) }).await.is_err() {
        std::future::pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use holdfast_proto::limits::{EXTENTS_PER_MESSAGE_MAX, REGION_CHUNKS_MAX, REGION_STORED_MAX_BYTES};

    use super::*;

    /// Sends a description, a region, a description and the finish when lanes are open or not. Returns the numbers that
    /// went over the stream itself, and those that went to lanes.
    async fn sent(alone_bytes: usize, open: bool) -> (Vec<u64>, Vec<u64>) {
        let (wire, mut own) = mpsc::channel(8);
        let (queue, mut lanes) = mpsc::channel(8);
        let (ready, is_ready) = watch::channel(None);
        let needed = Arc::<Notify>::default();
        let to_lanes = ToLanes {
            queue,
            needed: Arc::clone(&needed),
            ready: is_ready,
            open: None,
            alone_bytes,
            order: 0,
            meter: Arc::default(),
        };
        let mut outlet = Outlet { wire, lanes: Some(to_lanes) };
        let opening = tokio::spawn(async move {
            needed.notified().await;
            ready.send_replace(Some(open));
        });
        let extents = || Kind::Extents(v1::Extents::default());
        let region = v1::Region { payload: vec![1; 1000].into(), ..v1::Region::default() };
        for kind in [extents(), Kind::Region(region), extents(), Kind::Finish(v1::FinishStream::default())] {
            outlet.send(kind).await;
        }
        opening.abort();
        drop(outlet);
        let (mut over_stream, mut over_lanes) = (Vec::new(), Vec::new());
        while let Some(message) = own.recv().await {
            over_stream.push(message.order);
        }
        while let Some(message) = lanes.recv().await {
            over_lanes.push(message.order);
        }
        (over_stream, over_lanes)
    }

    #[tokio::test]
    async fn what_is_little_goes_alone_and_what_is_much_over_lanes_if_there_are_any() {
        assert_eq!(sent(10_000, true).await, (vec![1, 2, 3, 4], vec![]), "no lanes are asked for");
        assert_eq!(sent(500, true).await, (vec![1, 4], vec![2, 3]));
        assert_eq!(sent(0, true).await, (vec![4], vec![1, 2, 3]));
        assert_eq!(sent(0, false).await, (vec![1, 2, 3, 4], vec![]));
    }

    #[test]
    fn the_largest_region_fits_into_a_lane_and_the_largest_extents_do_not() {
        let region = v1::Region {
            codec: 1,
            plain_bytes: u32::MAX,
            fingerprints: vec![0; 32 * REGION_CHUNKS_MAX].into(),
            lengths: vec![u32::MAX >> 4; REGION_CHUNKS_MAX],
            payload: vec![0; REGION_STORED_MAX_BYTES as usize].into(),
        };
        let Ok(kind) = for_lane(Kind::Region(region)) else { panic!("it does not fit") };
        let message = v1::LaneRequest { order: u64::MAX, kind: Some(kind) };
        assert!(message.encoded_len() <= LANE_MESSAGE_MAX_BYTES, "{}", message.encoded_len());
        let extents = |pieces: usize| v1::Extents {
            chunked: (0..EXTENTS_PER_MESSAGE_MAX as u64)
                .map(|index| v1::ChunkedExtent {
                    index,
                    digest: vec![1; 32].into(),
                    fingerprints: vec![1; 32 * pieces].into(),
                    lengths: vec![65_536; pieces],
                })
                .collect(),
            ..v1::Extents::default()
        };
        assert!(for_lane(Kind::Extents(extents(256))).is_ok());
        assert!(for_lane(Kind::Extents(extents(897))).is_err(), "it goes over the stream itself");
        assert!(for_lane(Kind::Finish(v1::FinishStream::default())).is_err());
    }
}
