//! Merges the messages of one disk, from its stream and from its lanes, and hands them on to the engine in their order.
//!
//! Room: a message holds its room until the engine is done with it. The stream has a queue of [`INGEST_QUEUE_BYTES`].
//! When the first lane opens, all but [`CONTROL_QUEUE_BYTES`] of it are taken away for good, and each lane has room for
//! one message of [`LANE_MESSAGE_MAX_BYTES`](holdfast_proto::limits::LANE_MESSAGE_MAX_BYTES) of its own: together no
//! more than before. A lane is not read from while it has no room, so its connection stops it.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc as blocking};

use holdfast_proto::ErrorCode;
use holdfast_proto::v1::ingest_request::Kind;
use parking_lot::Mutex;
use tokio::sync::{OnceCell, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::error::ServiceError;
use crate::grpc::bounds::{CONTROL_QUEUE_BYTES, INGEST_QUEUE_BYTES, INGEST_QUEUE_MESSAGES};
use crate::limits::{INGEST_IDLE, ORDER_PATIENCE};

/// One message for the engine.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) wire_bytes: u64,
    /// Its room in the queue, held until the engine is done with the message.
    pub(super) room: OwnedSemaphorePermit,
}

/// An item on its way from the connection to the engine.
#[derive(Debug)]
pub(super) enum Item {
    /// With what to drop when the engine is done with a message that has an order.
    Message(Message, Option<InHand>),
    /// The line failed, or sent something that is not a message.
    Failed(ServiceError),
}

/// As long as there is one of a stream, its engine has ordered messages to handle.
#[derive(Debug)]
pub(super) struct InHand(#[expect(dead_code, reason = "only how many there are matters")] Arc<()>);

/// Takes the messages of one disk from all of its connections.
#[derive(Debug)]
pub(super) struct Intake {
    state: Mutex<State>,
    /// Free room of the stream itself, in bytes.
    room: Arc<Semaphore>,
    /// The stream's own room in all, in bytes.
    capacity: watch::Sender<u32>,
    /// Filled once the lanes' part was taken away.
    shared: OnceCell<()>,
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct State {
    merge: Merge<Message>,
    /// Queue to the engine. `None` once nothing more goes there.
    queue: Option<blocking::Sender<Item>>,
    /// One more of it is with each ordered message that the engine has or that waits for it.
    in_hand: Arc<()>,
    /// The stream's own numbers.
    own: Source,
    /// True if the stream itself brings no more.
    own_ended: bool,
    /// Time of the last message, on any connection.
    last: Instant,
    /// Time of the last message that has an order.
    last_ordered: Instant,
}

impl Intake {
    /// An intake, and what comes out of it.
    pub(super) fn new() -> (Arc<Self>, blocking::Receiver<Item>) {
        let (queue, items) = blocking::channel();
        let state = State {
            merge: Merge::default(),
            queue: Some(queue),
            in_hand: Arc::default(),
            own: Source::default(),
            own_ended: false,
            last: Instant::now(),
            last_ordered: Instant::now(),
        };
        let intake = Self {
            state: Mutex::new(state),
            room: Arc::new(Semaphore::new(INGEST_QUEUE_BYTES as usize)),
            capacity: watch::Sender::new(INGEST_QUEUE_BYTES),
            shared: OnceCell::new(),
            ended: watch::Sender::new(false),
        };
        (Arc::new(intake), items)
    }

    /// Waits until there is room for a message of the stream itself, of `bytes`.
    pub(super) async fn room(&self, bytes: usize) -> Result<OwnedSemaphorePermit, ServiceError> {
        let mut capacity = self.capacity.subscribe();
        loop {
            let cost = cost(bytes, *capacity.borrow_and_update());
            tokio::select! {
                biased;
                room = Arc::clone(&self.room).acquire_many_owned(cost) => {
                    return room.map_err(|_| ServiceError::defect("the queue of a disk's messages was closed"));
                }
                // There is less of it now.
                _ = capacity.changed() => {}
            }
        }
    }

    /// Takes the lanes' part away from the stream's own room, for the first lane: waits until it is free.
    pub(super) async fn share_room(&self) {
        let share = async {
            self.capacity.send_replace(CONTROL_QUEUE_BYTES);
            if let Ok(room) = self.room.acquire_many(INGEST_QUEUE_BYTES - CONTROL_QUEUE_BYTES).await {
                room.forget();
            }
        };
        self.shared.get_or_init(|| share).await;
    }

    /// Takes a message of the stream itself. False: the engine takes no more.
    pub(super) fn own(&self, order: u64, message: Message) -> Result<bool, ServiceError> {
        let mut state = self.state.lock();
        state.last = Instant::now();
        if is_ordered(&message.kind) {
            let State { merge, own, .. } = &mut *state;
            merge.put(own, order, message)?;
            state.last_ordered = state.last;
            return Ok(state.forward());
        }
        if order > 0 {
            return Err(ServiceError::invalid(format!(
                "a query has number {order}; only ordered messages have one"
            )));
        }
        Ok(state.send(Item::Message(message, None)))
    }

    /// Takes a message of a lane. False: the engine takes no more.
    pub(super) fn of_lane(
        &self,
        source: &mut Source,
        order: u64,
        message: Message,
    ) -> Result<bool, ServiceError> {
        if order == 0 {
            return Err(ServiceError::invalid("a message of a lane has no number"));
        }
        let mut state = self.state.lock();
        state.last = Instant::now();
        state.merge.put(source, order, message)?;
        state.last_ordered = state.last;
        Ok(state.forward())
    }

    /// Ends it with `error`, after all that came before in order.
    pub(super) fn fail(&self, error: ServiceError) {
        let mut state = self.state.lock();
        state.send(Item::Failed(error));
        state.queue = None;
    }

    /// The stream itself brings no more. False: nothing else is waited for either.
    pub(super) fn own_ended(&self) -> bool {
        let mut state = self.state.lock();
        state.own_ended = true;
        state.forward();
        state.queue.is_some()
    }

    /// Returns true if lanes make sense: not once messages came without numbers.
    pub(super) fn may_have_lanes(&self) -> bool {
        let state = self.state.lock();
        state.queue.is_some() && state.merge.may_have_lanes()
    }

    /// Resolves, with what to say, when no message came over any connection for too long.
    pub(super) async fn idle(&self) -> ServiceError {
        self.silent(|state| Some(state.last + INGEST_IDLE)).await
    }

    /// As `idle`, while the stream's own next message waits for room: it is the engine that is behind then, unless it
    /// waits for a message that does not come.
    pub(super) async fn stuck(&self) -> ServiceError {
        self.silent(|_| None).await
    }

    /// Waits for the moment that `due` tells, or for the one at which a missing message is waited for no longer.
    async fn silent(&self, due: impl Fn(&State) -> Option<Instant>) -> ServiceError {
        loop {
            let now = Instant::now();
            let (missing, due) = {
                let mut state = self.state.lock();
                (state.missing(now), due(&state))
            };
            if let Some((order, due)) = missing
                && now >= due
            {
                return missing_too_long(order);
            }
            if due.is_some_and(|due| now >= due) {
                return idle_too_long();
            }
            // Lanes may bring a message that is out of order at any time.
            let look_again = missing.map_or(now + ORDER_PATIENCE, |(_, due)| due);
            tokio::time::sleep_until(due.map_or(look_again, |due| due.min(look_again))).await;
        }
    }

    /// The stream is over, and all of its lanes with it.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Resolves when the stream is over.
    pub(super) async fn ended(&self) {
        // The sender lives as long as this does.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }
}

/// The stream is needed for others. Its session lives on, and the agent may open it again.
fn idle_too_long() -> ServiceError {
    let secs = INGEST_IDLE.as_secs();
    let text = format!(
        "no message of the disk came for {secs} s; open its stream again when there is something to send"
    );
    ServiceError::new(ErrorCode::Unavailable, text)
}

/// Error for a message that is known to be missing.
fn missing_too_long(order: u64) -> ServiceError {
    let secs = ORDER_PATIENCE.as_secs();
    let text = format!(
        "message {order} is missing: later ones came, and for {secs} s nothing in order; a connection lost it, or the \
         numbers on one do not ascend; open the disk's stream again"
    );
    ServiceError::new(ErrorCode::Unavailable, text)
}

impl State {
    /// Hands on what is in order. False: the engine takes no more.
    fn forward(&mut self) -> bool {
        while let Some(message) = self.merge.take() {
            let in_hand = InHand(Arc::clone(&self.in_hand));
            if !self.send(Item::Message(message, Some(in_hand))) {
                return false;
            }
        }
        if self.own_ended && self.merge.gap().is_none() {
            self.queue = None;
        }
        self.queue.is_some()
    }

    /// The number that is missing, and until when it is waited for. Not while the engine has what came before it: the
    /// connection that brings it may not be read from before that is done.
    fn missing(&mut self, now: Instant) -> Option<(u64, Instant)> {
        let order = self.merge.gap()?;
        if Arc::strong_count(&self.in_hand) > 1 {
            self.last_ordered = now;
        }
        Some((order, self.last_ordered + ORDER_PATIENCE))
    }

    fn send(&mut self, item: Item) -> bool {
        let sent = self.queue.as_ref().is_some_and(|queue| queue.send(item).is_ok());
        if !sent {
            // The engine's side is gone when it failed or finished.
            self.queue = None;
        }
        sent
    }
}

impl From<OrderError> for ServiceError {
    fn from(error: OrderError) -> Self {
        Self::invalid(error.to_string())
    }
}

const fn is_ordered(kind: &Kind) -> bool {
    matches!(kind, Kind::Region(_) | Kind::Extents(_) | Kind::Finish(_))
}

/// Room that a message takes of a queue of `capacity`: its bytes, but at least its share by number, and at most all of
/// it. The largest message and its header are a little more than the queue.
fn cost(bytes: usize, capacity: u32) -> u32 {
    const COST_MIN: u32 = INGEST_QUEUE_BYTES / INGEST_QUEUE_MESSAGES;
    match u32::try_from(bytes) {
        Ok(bytes) => bytes.clamp(COST_MIN, capacity.max(COST_MIN)),
        Err(_) => capacity,
    }
}

/// Numbers farther ahead than this are nonsense. The agent has some MiB under way on each of 16 connections, and a
/// message of a sparse disk may be of 16 bytes.
const AHEAD_MAX: u64 = 1 << 24;

/// Why a message's number cannot be right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum OrderError {
    #[error("an ordered message has number {order}, but message {order} came before")]
    Repeated { order: u64 },
    #[error("number {order} follows number {last} on the same connection; they must ascend")]
    Descending { order: u64, last: u64 },
    #[error(
        "an ordered message has number {order} while {next} is the next; that is more than {AHEAD_MAX} ahead"
    )]
    TooFarAhead { order: u64, next: u64 },
    #[error("ordered messages have numbers on some connections of this stream and none on others")]
    Mixed,
}

/// The last number that came over one connection.
#[derive(Debug, Default)]
pub(super) struct Source(u64);

/// Messages of one disk that come over several connections, put back into the one order they were given.
///
/// Every ordered message has a number, from 1 without a gap. On each connection the numbers ascend, and each connection
/// has a queue of its own, so the next message in order is always at the head of some connection's queue or on its way:
/// no full queue can keep it out, and nothing waits in a circle. What this holds is bounded by those queues, because a
/// message keeps its room there until the engine is done with it.
///
/// An agent without lanes numbers nothing: all its numbers are 0, and its messages pass as they come.
#[derive(Debug)]
pub(super) struct Merge<T> {
    /// The number of the next message in order.
    next: u64,
    /// Messages that came before the next in order.
    held: BTreeMap<u64, T>,
    /// True if messages have numbers, once one has come.
    numbered: Option<bool>,
}

impl<T> Default for Merge<T> {
    fn default() -> Self {
        Self { next: 1, held: BTreeMap::new(), numbered: None }
    }
}

impl<T> Merge<T> {
    /// Takes message number `order` of `source`; [`Merge::take`] then gives what is in order. Nothing is changed by a
    /// message that is refused.
    ///
    /// # Errors
    /// When the number cannot be right.
    pub(super) fn put(&mut self, source: &mut Source, order: u64, message: T) -> Result<(), OrderError> {
        if self.numbered.is_some_and(|numbered| numbered != (order > 0)) {
            return Err(OrderError::Mixed);
        }
        if order == 0 {
            self.numbered = Some(false);
            // Behind all before it.
            self.held.insert(self.next.saturating_add(self.held.len() as u64), message);
            return Ok(());
        }
        if order < self.next || self.held.contains_key(&order) {
            return Err(OrderError::Repeated { order });
        }
        if order <= source.0 {
            return Err(OrderError::Descending { order, last: source.0 });
        }
        if order - self.next > AHEAD_MAX {
            return Err(OrderError::TooFarAhead { order, next: self.next });
        }
        (source.0, self.numbered) = (order, Some(true));
        self.held.insert(order, message);
        Ok(())
    }

    /// The next message in order, if it has come.
    pub(super) fn take(&mut self) -> Option<T> {
        let message = self.held.remove(&self.next)?;
        self.next = self.next.saturating_add(1);
        Some(message)
    }

    /// The number that is waited for, when others came before it.
    pub(super) fn gap(&self) -> Option<u64> {
        (!self.held.is_empty()).then_some(self.next)
    }

    /// Returns true if no message has come without a number.
    pub(super) fn may_have_lanes(&self) -> bool {
        self.numbered != Some(false)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drain(merge: &mut Merge<u64>) -> Vec<u64> {
        std::iter::from_fn(|| merge.take()).collect()
    }

    #[test]
    fn messages_without_numbers_pass_as_they_come() {
        let (mut merge, mut source) = (Merge::default(), Source::default());
        for message in 0..5 {
            merge.put(&mut source, 0, message).unwrap();
            assert_eq!(drain(&mut merge), [message]);
        }
        merge.put(&mut source, 0, 5).unwrap();
        merge.put(&mut source, 0, 6).unwrap();
        assert_eq!(drain(&mut merge), [5, 6]);
        assert_eq!(merge.put(&mut source, 8, 0), Err(OrderError::Mixed));
        assert!(!merge.may_have_lanes());
    }

    #[test]
    fn numbers_that_cannot_be_right_are_refused_and_change_nothing() {
        let (mut merge, mut one, mut two) = (Merge::default(), Source::default(), Source::default());
        assert_eq!(
            merge.put(&mut one, 2 + AHEAD_MAX, 0),
            Err(OrderError::TooFarAhead { order: 2 + AHEAD_MAX, next: 1 })
        );
        merge.put(&mut one, 5, 5).unwrap();
        assert_eq!(merge.gap(), Some(1));
        assert_eq!(merge.put(&mut one, 4, 4), Err(OrderError::Descending { order: 4, last: 5 }));
        assert_eq!(merge.put(&mut two, 5, 5), Err(OrderError::Repeated { order: 5 }));
        assert_eq!(merge.put(&mut two, 0, 5), Err(OrderError::Mixed));
        for order in 1..5 {
            merge.put(&mut two, order, order).unwrap();
        }
        assert_eq!(drain(&mut merge), [1, 2, 3, 4, 5]);
        assert_eq!(merge.put(&mut two, 3, 3), Err(OrderError::Repeated { order: 3 }));
        assert_eq!(merge.gap(), None);
        assert!(merge.may_have_lanes());
    }

    /// Lanes with a queue of `room` messages each, fed and read at random: the order is restored, never more is held
    /// than there is room, and as long as messages are left some lane can go on.
    fn run(assigned: &[usize], lanes: usize, room: usize, choices: &[usize]) -> Result<(), TestCaseError> {
        let mut lines: Vec<std::collections::VecDeque<u64>> = vec![Default::default(); lanes];
        for (order, lane) in (1..).zip(assigned) {
            lines[lane % lanes].push_back(order);
        }
        let mut sources: Vec<Source> = (0..lanes).map(|_| Source::default()).collect();
        let mut held_of = vec![0usize; lanes];
        let (mut merge, mut passed, mut choices) = (Merge::default(), Vec::new(), choices.iter().cycle());
        while passed.len() < assigned.len() {
            let able: Vec<usize> =
                (0..lanes).filter(|lane| held_of[*lane] < room && !lines[*lane].is_empty()).collect();
            prop_assert!(!able.is_empty(), "deadlock after {} messages", passed.len());
            let lane = able[choices.next().unwrap() % able.len()];
            let order = lines[lane].pop_front().unwrap();
            merge.put(&mut sources[lane], order, (lane, order)).unwrap();
            held_of[lane] += 1;
            while let Some((lane, order)) = merge.take() {
                held_of[lane] -= 1;
                passed.push(order);
            }
            prop_assert!(merge.held.len() <= lanes * room);
        }
        prop_assert!(passed.iter().copied().eq(1..=assigned.len() as u64), "{passed:?}");
        prop_assert_eq!(merge.gap(), None);
        Ok(())
    }

    proptest! {
        #[test]
        fn any_interleaving_comes_out_in_order_within_its_room(
            assigned in proptest::collection::vec(0usize..16, 0..200),
            lanes in 1usize..17,
            room in 1usize..4,
            choices in proptest::collection::vec(0usize..1000, 1..50),
        ) {
            run(&assigned, lanes, room, &choices)?;
        }

        /// Numbers made up by a hostile agent never come out in another order, and never twice.
        #[test]
        fn whatever_is_sent_what_passes_is_in_order(
            sent in proptest::collection::vec((0usize..4, 0u64..40), 0..200),
        ) {
            let mut sources: Vec<Source> = (0..4).map(|_| Source::default()).collect();
            let (mut merge, mut passed) = (Merge::default(), Vec::new());
            for (lane, order) in sent.into_iter().filter(|(_, order)| *order > 0) {
                if merge.put(&mut sources[lane], order, order).is_ok() {
                    passed.extend(std::iter::from_fn(|| merge.take()));
                }
            }
            prop_assert!(passed.iter().copied().eq(1..=passed.len() as u64), "{passed:?}");
        }
    }
}
