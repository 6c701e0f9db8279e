//! The streams of the data path that are open: how many there may be, which of them wait for their turn (see
//! `turns`), and how to end them from outside.
//!
//! A stream is in the table from its call on, without a slot; it *enters* once it is known for which namespace, and then
//! holds a slot or waits for one. It ends between two messages when the server shuts down, its token is revoked or its
//! slot is due to another tenant; nothing else here affects it. Forgetting one is impossible: its [`StreamGuard`] leaves the
//! table, the slot and the queue when dropped. One that waits holds no thread.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::Tenant;
use holdfast_engine::ids::{BackupId, NamespaceId, SessionId, TokenId};
use holdfast_proto::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::turns::{Entered, Refusal, Turns};
use crate::activity::Motion;
use crate::auth::REFUSED;
use crate::error::ServiceError;
use crate::limits::{TURN_PATIENCE, TURN_TOLD_EVERY, WAITING_MAX, WAITING_PER_TOKEN_MAX};
use crate::memory::Budget;

/// Delay that a stream which gave way is told to wait before it is opened again.
const GIVEN_WAY_WAIT: Duration = Duration::from_secs(1);

/// Kinds of streams, by the data they carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// A disk coming in.
    Ingest,
    /// A parent's digests going out.
    Digests,
    /// A disk or a part of one going out.
    Restore,
}

impl StreamKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Ingest, Self::Digests, Self::Restore];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Digests => "digests",
            Self::Restore => "restore",
        }
    }

    const fn plural(self) -> &'static str {
        match self {
            Self::Ingest => "disks being backed up",
            Self::Digests => "digest downloads",
            Self::Restore => "disks being restored",
        }
    }
}

/// Why a stream must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    ShuttingDown,
    TokenEnded,
    /// The stream's slot is due to another tenant.
    GivesWay,
}

impl From<Stop> for ServiceError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::ShuttingDown => Self::shutting_down(),
            Stop::TokenEnded => Self::new(ErrorCode::Unauthenticated, REFUSED),
            Stop::GivesWay => Self::new(
                ErrorCode::Unavailable,
                format!(
                    "another tenant has waited {} s for its turn, and this one has more streams open or moves nothing; open \
                     the stream again to go on with it in turn",
                    TURN_PATIENCE.as_secs()
                ),
            )
            // Tells the agent that the server is there: no outage.
            .retry_after(GIVEN_WAY_WAIT),
        }
    }
}

/// Limits of open streams, by kind.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    pub ingest: u32,
    pub restore: u32,
}

impl StreamLimits {
    /// The settings' limits, or fewer where memory does not suffice for them.
    pub const fn of_budget(budget: &Budget) -> Self {
        Self { ingest: budget.ingest_streams, restore: budget.restore_streams }
    }

    const fn of(self, kind: StreamKind) -> u32 {
        match kind {
            // One precedes every ingest stream.
            StreamKind::Ingest | StreamKind::Digests => self.ingest,
            StreamKind::Restore => self.restore,
        }
    }

    /// Threads that all streams together can occupy.
    pub const fn threads(self) -> u32 {
        self.ingest.saturating_mul(2).saturating_add(self.restore)
    }
}

/// Subject of a stream, as the queue shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A disk of a backup in progress.
    Session(SessionId),
    /// A disk that is read back.
    Backup { backup: BackupId, namespace_name: String, vm: String, disk: String },
}

/// A stream that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub kind: StreamKind,
    pub namespace: NamespaceId,
    pub subject: Subject,
    /// Streams that get their turn before it, as of now.
    pub ahead: usize,
}

/// Streams that waited since the start, and their time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Waited {
    /// Streams that waited and got their turn.
    pub streams: u64,
    /// Time that these waited.
    pub time: Duration,
}

/// Position of a stream on its way to a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Its subject is not known yet.
    Outside,
    Waits {
        ahead: usize,
    },
    HasSlot,
}

#[derive(Debug, Clone, Copy)]
struct State {
    place: Place,
    stop: Option<Stop>,
}

#[derive(Debug)]
struct Open {
    kind: StreamKind,
    token: TokenId,
    /// Set once it has entered.
    about: Option<(NamespaceId, Subject)>,
    state: watch::Sender<State>,
    motion: Arc<Motion>,
}

impl Open {
    fn stop(&self, stop: Stop) {
        self.state.send_modify(|state| state.stop = Some(stop));
    }
}

/// The queue of one kind.
#[derive(Debug)]
struct Queue {
    turns: Turns,
    waited: Waited,
}

#[derive(Debug)]
struct Table {
    next: u64,
    open: HashMap<u64, Open>,
    closed: bool,
    queues: [Queue; 3],
}

impl Table {
    const fn queue(&mut self, kind: StreamKind) -> &mut Queue {
        let [ingest, digests, restore] = &mut self.queues;
        match kind {
            StreamKind::Ingest => ingest,
            StreamKind::Digests => digests,
            StreamKind::Restore => restore,
        }
    }

    /// Tells those who wait their place.
    fn tell_places(&mut self, kind: StreamKind) {
        let line: Vec<u64> = self.queue(kind).turns.line().collect();
        for (ahead, number) in line.iter().enumerate() {
            self.set_place(*number, Place::Waits { ahead });
        }
    }

    fn set_place(&self, number: u64, place: Place) {
        if let Some(open) = self.open.get(&number) {
            if place == Place::HasSlot {
                open.motion.begins();
            }
            open.state.send_if_modified(|state| std::mem::replace(&mut state.place, place) != place);
        }
    }

    /// Takes a stream out, and gives its slot to the next.
    fn remove(&mut self, number: u64, now: Duration) {
        let Some(open) = self.open.remove(&number) else { return };
        let queue = self.queue(open.kind);
        let admitted = queue.turns.leave(number);
        for (_, since) in &admitted {
            queue.waited.streams += 1;
            queue.waited.time += now.saturating_sub(*since);
        }
        for (number, _) in &admitted {
            self.set_place(*number, Place::HasSlot);
        }
        self.tell_places(open.kind);
    }
}

/// All open streams.
#[derive(Debug)]
pub struct Streams {
    begun: Instant,
    table: Mutex<Table>,
}

impl Streams {
    /// No streams yet.
    pub fn new(limits: StreamLimits) -> Arc<Self> {
        let queues = StreamKind::ALL
            .map(|kind| Queue { turns: Turns::new(limits.of(kind)), waited: Waited::default() });
        let table = Table { next: 0, open: HashMap::new(), closed: false, queues };
        Arc::new(Self { begun: Instant::now(), table: Mutex::new(table) })
    }

    /// Puts a stream into the table, where it can be ended. It has no slot yet.
    ///
    /// # Errors
    /// `Unavailable` when the server is shutting down.
    pub fn open(self: &Arc<Self>, kind: StreamKind, token: TokenId) -> Result<StreamGuard, ServiceError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(Stop::ShuttingDown.into());
        }
        let (sender, state) = watch::channel(State { place: Place::Outside, stop: None });
        let id = table.next;
        table.next = id.wrapping_add(1);
        let motion = Arc::new(Motion::new());
        table.open.insert(id, Open { kind, token, about: None, state: sender, motion: Arc::clone(&motion) });
        Ok(StreamGuard { streams: Arc::clone(self), id, kind, token, state, motion })
    }

    /// Ends every stream, and lets no more begin.
    pub fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        for open in table.open.values() {
            open.stop(Stop::ShuttingDown);
        }
    }

    /// The tokens of open streams.
    pub fn tokens(&self) -> HashSet<TokenId> {
        self.table.lock().open.values().map(|open| open.token).collect()
    }

    /// Ends the streams of a token.
    pub fn end_token(&self, token: TokenId) {
        for open in self.table.lock().open.values().filter(|open| open.token == token) {
            open.stop(Stop::TokenEnded);
        }
    }

    /// Streams that have a slot, by the word for their kind.
    pub fn counts(&self) -> [(&'static str, usize); 3] {
        let mut table = self.table.lock();
        StreamKind::ALL.map(|kind| (kind.word(), table.queue(kind).turns.held()))
    }

    /// Streams that wait for a slot, and the waits so far, by the word for their kind.
    pub fn queues(&self) -> [(&'static str, usize, Waited); 3] {
        let mut table = self.table.lock();
        StreamKind::ALL.map(|kind| {
            let queue = table.queue(kind);
            (kind.word(), queue.turns.waiting(), queue.waited)
        })
    }

    /// The streams that wait, in the order of their turns, by kind.
    pub fn waiting(&self) -> Vec<Waiting> {
        let mut table = self.table.lock();
        let mut waiting = Vec::new();
        for kind in StreamKind::ALL {
            let line: Vec<u64> = table.queue(kind).turns.line().collect();
            let about = line.iter().map(|number| table.open.get(number).and_then(|open| open.about.clone()));
            waiting.extend(about.enumerate().filter_map(|(ahead, about)| {
                about.map(|(namespace, subject)| Waiting { kind, namespace, subject, ahead })
            }));
        }
        waiting
    }

    /// Open streams, those that wait included.
    pub fn count(&self) -> usize {
        self.table.lock().open.len()
    }

    /// Ends a stream for the one that is next in line, if it has waited long enough and is due a slot.
    fn make_way(&self, kind: StreamKind) {
        let mut table = self.table.lock();
        let idle = table.open.iter().filter(|(_, open)| open.kind == kind && open.motion.is_idle());
        let idle: HashSet<u64> = idle.map(|(number, _)| *number).collect();
        let is_idle = |number| idle.contains(&number);
        let number = table.queue(kind).turns.make_way(self.begun.elapsed(), is_idle);
        if let Some(open) = number.and_then(|number| table.open.get(&number)) {
            tracing::info!(kind = kind.word(), token = %open.token, "a stream ends for a tenant that waits for its turn");
            open.stop(Stop::GivesWay);
        }
    }
}

/// A stream's entry in the table.
#[derive(Debug)]
pub struct StreamGuard {
    streams: Arc<Streams>,
    id: u64,
    kind: StreamKind,
    token: TokenId,
    state: watch::Receiver<State>,
    motion: Arc<Motion>,
}

impl StreamGuard {
    /// Counts bytes that its peer brought or took.
    pub(crate) fn moved(&self, bytes: u64) {
        self.motion.moved(bytes);
    }

    /// Runs `work` of this server's, during which its peer can move nothing.
    pub(crate) fn working<T>(&self, work: impl FnOnce() -> T) -> T {
        self.motion.working(work)
    }

    /// Says what the stream is about. It then has a slot, or waits for one if it `may_wait`: see [`Self::wait`].
    ///
    /// # Errors
    /// `Limit` when there is no slot and it may not wait, or too many wait already.
    pub fn enter(
        &self,
        namespace: NamespaceId,
        subject: Subject,
        may_wait: bool,
    ) -> Result<(), ServiceError> {
        let mut table = self.streams.table.lock();
        let now = self.streams.begun.elapsed();
        let tenant = Tenant { namespace, token: self.token };
        let turns = &mut table.queue(self.kind).turns;
        let limit = turns.limit();
        let entered = turns.enter(self.id, tenant, may_wait, now);
        let entered =
            entered.map_err(|refusal| ServiceError::at_capacity(refusal_text(refusal, self.kind, limit)))?;
        if let Some(open) = table.open.get_mut(&self.id) {
            open.about = Some((namespace, subject));
        }
        match entered {
            Entered::Admitted => table.set_place(self.id, Place::HasSlot),
            Entered::Waits => table.tell_places(self.kind),
        }
        Ok(())
    }

    /// Returns true if the stream has a slot.
    pub fn has_slot(&self) -> bool {
        self.state.borrow().place == Place::HasSlot
    }

    /// Waits for a slot after [`Self::enter`]; returns at once if the stream has it. Tells `ahead` how many get their
    /// turn before, whenever that changes and every `TURN_TOLD_EVERY`.
    ///
    /// # Errors
    /// Why the stream must end, and what `ahead` fails with.
    pub async fn wait(
        &self,
        mut ahead: impl FnMut(usize) -> Result<(), ServiceError>,
    ) -> Result<(), ServiceError> {
        let mut state = self.state.clone();
        let mut ticks = tokio::time::interval(TURN_TOLD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset();
        loop {
            let State { place, stop } = *state.borrow_and_update();
            if let Some(stop) = stop {
                return Err(stop.into());
            }
            match place {
                Place::HasSlot => return Ok(()),
                Place::Waits { ahead: count } => ahead(count)?,
                Place::Outside => return Err(ServiceError::defect("a stream waits that did not enter")),
            }
            tokio::select! {
                // The other end lives as long as the guard.
                _ = state.changed() => {}
                _ = ticks.tick() => self.streams.make_way(self.kind),
            }
        }
    }

    /// Fails when the stream must end. Call it between messages.
    ///
    /// # Errors
    /// Why it must end.
    pub fn check(&self) -> Result<(), ServiceError> {
        match self.state.borrow().stop {
            Some(stop) => Err(stop.into()),
            None => Ok(()),
        }
    }

    /// Resolves when the stream must end.
    pub fn stopped(&self) -> Stopped {
        Stopped(self.state.clone())
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        let now = self.streams.begun.elapsed();
        self.streams.table.lock().remove(self.id, now);
    }
}

fn refusal_text(refusal: Refusal, kind: StreamKind, limit: usize) -> String {
    let what = kind.plural();
    match refusal {
        Refusal::NoSlot => {
            format!("this server allows {limit} {what} at once; try again when one of them is done")
        }
        Refusal::QueueFull => format!(
            "this server allows {limit} {what} at once, and {WAITING_MAX} more already wait for their turn; try again later"
        ),
        Refusal::TokenQueueFull => format!(
            "this server allows {limit} {what} at once, and {WAITING_PER_TOKEN_MAX} more of this token already wait for \
             their turn; try again later"
        ),
    }
}

/// Resolves when a stream must end.
#[derive(Debug)]
pub struct Stopped(watch::Receiver<State>);

impl Stopped {
    /// Waits for the stream to be stopped or to have left the table.
    pub async fn wait(&mut self) {
        let _ = self.0.wait_for(|state| state.stop.is_some()).await;
    }
}

#[cfg(test)]
mod tests;
