//! State of one connection: whether a caller has shown a valid token on it, its requests in progress, and whether it
//! must end. Every request carries it.

#[cfg(test)]
mod door_tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use holdfast_engine::ids::TokenId;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::limits::{IDLE_DEADLINE, LAST_READ_DEADLINE, STRANGER_BYTES};
use crate::net::Origin;
use crate::net::door::{Closing, Door, TooMany};

/// Patience of a listener with its peers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// A connection must have shown a valid token by then; `None`: it need not.
    pub(crate) stranger: Option<Duration>,
    /// Longest time for a stranger to be idle.
    pub(crate) stranger_idle: Duration,
    /// Longest wait of an answer for its reader.
    pub(crate) read: Duration,
}

/// Requests in progress on a connection, and its idle times.
#[derive(Debug)]
struct UnderWay {
    requests: usize,
    /// Time since which there is none.
    idle_since: Instant,
    /// Time since which it is a stranger.
    stranger_since: Instant,
    /// Time at which it was told to end.
    told: Option<Instant>,
}

/// State of one connection.
#[derive(Debug)]
pub(crate) struct Link {
    peer: SocketAddr,
    number: u64,
    door: Arc<Door>,
    close: watch::Sender<Closing>,
    authenticated: AtomicBool,
    received_bytes: AtomicU64,
    /// Waits until more may be read.
    reader: Mutex<Option<Waker>>,
    under_way: Mutex<UnderWay>,
    pub(super) monitor: StallMonitor,
}

/// Verdict on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    GoesOn,
    /// End it when the requests under way are done; begin none.
    End,
    /// Drop it, because of that.
    Drop(&'static str),
}

impl Link {
    fn new(peer: SocketAddr, number: u64, door: Arc<Door>, close: watch::Sender<Closing>) -> Self {
        let now = Instant::now();
        Self {
            peer,
            number,
            door,
            close,
            authenticated: AtomicBool::new(false),
            received_bytes: AtomicU64::new(0),
            reader: Mutex::default(),
            under_way: Mutex::new(UnderWay { requests: 0, idle_since: now, stranger_since: now, told: None }),
            monitor: StallMonitor::default(),
        }
    }

    /// The peer's address.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The peer's origin, as it counts for budgets.
    pub(crate) fn origin(&self) -> Origin {
        self.peer.into()
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn closing(&self) -> Closing {
        *self.close.borrow()
    }

    pub(super) fn watch_closing(&self) -> watch::Receiver<Closing> {
        self.close.subscribe()
    }

    /// A call showed `token`, which is valid: from now on the connection is read from without limit.
    ///
    /// # Errors
    /// When callers with a token, or this one, hold as many connections as they may; it stays a stranger then.
    pub(crate) fn authenticated(&self, token: TokenId) -> Result<(), TooMany> {
        self.door.authenticated(self.number, token)?;
        if !self.authenticated.swap(true, Ordering::AcqRel)
            && let Some(reader) = self.reader.lock().take()
        {
            reader.wake();
        }
        Ok(())
    }

    pub(super) fn received(&self, bytes: usize) {
        self.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Ready when the connection may be read from: always once a token was shown, before that up to a limit.
    pub(super) fn poll_may_read(&self, cx: &Context<'_>) -> Poll<()> {
        let may_read = || {
            self.authenticated.load(Ordering::Acquire)
                || self.received_bytes.load(Ordering::Relaxed) < STRANGER_BYTES
        };
        if may_read() {
            return Poll::Ready(());
        }
        *self.reader.lock() = Some(cx.waker().clone());
        // A token may have been shown meanwhile.
        if may_read() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// A request begins.
    pub(super) fn begin(self: &Arc<Self>) -> OpenRequest {
        self.under_way.lock().requests += 1;
        OpenRequest(Arc::clone(self))
    }

    /// Decides whether the connection goes on.
    pub(super) fn verdict(&self, patience: &Patience, stopping: bool) -> Verdict {
        let closing = self.closing();
        if closing == Closing::Now {
            return Verdict::Drop("connection slots are short");
        }
        let hurry = stopping || closing != Closing::Open;
        let read = if hurry { LAST_READ_DEADLINE } else { patience.read };
        if self.monitor.is_stalled(read) {
            return Verdict::Drop("it does not read what it asked for");
        }
        let stranger = !self.authenticated.load(Ordering::Acquire);
        let mut under_way = self.under_way.lock();
        let told = under_way.told.map(|at| at.elapsed() >= LAST_READ_DEADLINE);
        if told == Some(true) && (under_way.requests == 0 || closing == Closing::Soon) {
            return Verdict::Drop("it was told to end");
        }
        if stranger && patience.stranger.is_some_and(|by| under_way.stranger_since.elapsed() >= by) {
            return Verdict::Drop("it showed no valid token in time");
        }
        let idle_max = if stranger { patience.stranger_idle } else { IDLE_DEADLINE };
        let idle = under_way.requests == 0 && under_way.idle_since.elapsed() >= idle_max;
        // Half of what is read from a stranger; polite clients open another connection before it is used up.
        let used_up = stranger
            && patience.stranger.is_none()
            && self.received_bytes.load(Ordering::Relaxed) >= STRANGER_BYTES / 2;
        if told.is_none() && (stopping || closing == Closing::Soon || idle || used_up) {
            under_way.told = Some(Instant::now());
            return Verdict::End;
        }
        Verdict::GoesOn
    }
}

/// A connection's slot; dropping it frees it.
#[derive(Debug)]
pub(crate) struct Place {
    door: Arc<Door>,
    pub(crate) link: Arc<Link>,
}

impl Place {
    /// A slot for a connection from `peer`; `None` when every slot is held by a caller with a token.
    pub(crate) fn take(door: &Arc<Door>, peer: SocketAddr) -> Option<Self> {
        let (number, close) = door.enter(peer)?;
        let link = Arc::new(Link::new(peer, number, Arc::clone(door), close));
        Some(Self { door: Arc::clone(door), link })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.leave(self.link.number());
    }
}

/// A request under way, until its answer was handed over.
#[derive(Debug)]
pub(super) struct OpenRequest(Arc<Link>);

impl OpenRequest {
    pub(super) fn link(&self) -> &Arc<Link> {
        &self.0
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way.lock();
        under_way.requests = under_way.requests.saturating_sub(1);
        under_way.idle_since = Instant::now();
    }
}

/// The answers of one connection that wait for their reader to take more, and since when.
#[derive(Debug, Default)]
pub(super) struct StallMonitor {
    next: AtomicU64,
    /// Start of each wait, and its limit where that is less than the connection allows.
    waiting: Mutex<HashMap<u64, (Instant, Option<Duration>)>>,
}

impl StallMonitor {
    /// A number for an answer.
    pub(super) fn enter(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A chunk of the answer was handed over, and its reader has `at_most` to take it.
    pub(super) fn waits(&self, answer: u64, at_most: Option<Duration>) {
        self.waiting.lock().insert(answer, (Instant::now(), at_most));
    }

    /// The answer's reader asked for more, or the answer is done.
    pub(super) fn reads(&self, answer: u64) {
        self.waiting.lock().remove(&answer);
    }

    /// Returns true if an answer has waited for longer than `patience`, or than it may itself.
    pub(super) fn is_stalled(&self, patience: Duration) -> bool {
        let now = Instant::now();
        let is_late = |(since, at_most): &(Instant, Option<Duration>)| {
            now.duration_since(*since) > at_most.unwrap_or(patience).min(patience)
        };
        self.waiting.lock().values().any(is_late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience {
        stranger: Some(Duration::from_secs(20)),
        stranger_idle: Duration::from_secs(30),
        read: Duration::from_secs(30),
    };

    const BROWSERS: Patience = Patience { stranger: None, ..PATIENCE };

    fn token() -> TokenId {
        TokenId::from_bytes([1; 16])
    }

    fn peer() -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], 4000))
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_shows_no_token_is_dropped_in_time() {
        let door = Door::new(8);
        let (silent, caller) = (Place::take(&door, peer()).unwrap(), Place::take(&door, peer()).unwrap());
        caller.link.authenticated(token()).unwrap();
        tokio::time::advance(Duration::from_secs(19)).await;
        assert_eq!(silent.link.verdict(&PATIENCE, false), Verdict::GoesOn);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(matches!(silent.link.verdict(&PATIENCE, false), Verdict::Drop(_)));
        assert_eq!(caller.link.verdict(&PATIENCE, false), Verdict::GoesOn);
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_end_and_busy_ones_do_not() {
        let door = Door::new(8);
        let place = Place::take(&door, peer()).unwrap();
        place.link.authenticated(token()).unwrap();
        let request = place.link.begin();
        tokio::time::advance(IDLE_DEADLINE * 2).await;
        assert_eq!(place.link.verdict(&PATIENCE, false), Verdict::GoesOn);
        drop(request);
        tokio::time::advance(IDLE_DEADLINE).await;
        assert_eq!(place.link.verdict(&PATIENCE, false), Verdict::End);
        assert_eq!(place.link.verdict(&PATIENCE, false), Verdict::GoesOn, "it is told once");
        tokio::time::advance(LAST_READ_DEADLINE).await;
        assert!(matches!(place.link.verdict(&PATIENCE, false), Verdict::Drop(_)));
        let stranger = Place::take(&door, peer()).unwrap();
        tokio::time::advance(BROWSERS.stranger_idle).await;
        assert_eq!(stranger.link.verdict(&BROWSERS, false), Verdict::End);
    }

    #[tokio::test(start_paused = true)]
    async fn what_stalls_ends_soon_after_its_token_and_at_shutdown() {
        let door = Door::new(8);
        for stopping in [false, true] {
            let place = Place::take(&door, peer()).unwrap();
            place.link.authenticated(token()).unwrap();
            let _request = place.link.begin();
            let answer = place.link.monitor.enter();
            place.link.monitor.waits(answer, None);
            tokio::time::advance(PATIENCE.read - Duration::from_secs(1)).await;
            assert_eq!(place.link.verdict(&PATIENCE, false), Verdict::GoesOn);
            if !stopping {
                door.end_token(token());
            }
            assert!(matches!(place.link.verdict(&PATIENCE, stopping), Verdict::Drop(_)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_last_token_whatever_is_under_way() {
        let door = Door::new(8);
        let place = Place::take(&door, peer()).unwrap();
        place.link.authenticated(token()).unwrap();
        let _request = place.link.begin();
        door.end_token(token());
        assert_eq!(place.link.verdict(&PATIENCE, false), Verdict::End);
        tokio::time::advance(LAST_READ_DEADLINE).await;
        assert!(matches!(place.link.verdict(&PATIENCE, false), Verdict::Drop(_)));
    }

    #[tokio::test]
    async fn a_stranger_is_read_from_up_to_the_limit_and_a_caller_without_one() {
        let door = Door::new(8);
        let place = Place::take(&door, peer()).unwrap();
        let cx = Context::from_waker(Waker::noop());
        assert!(place.link.poll_may_read(&cx).is_ready());
        place.link.received(usize::try_from(STRANGER_BYTES / 2).unwrap());
        assert!(place.link.poll_may_read(&cx).is_ready());
        assert_eq!(place.link.verdict(&BROWSERS, false), Verdict::End, "another connection, please");
        place.link.received(usize::try_from(STRANGER_BYTES / 2).unwrap());
        assert!(place.link.poll_may_read(&cx).is_pending());
        place.link.authenticated(token()).unwrap();
        assert!(place.link.poll_may_read(&cx).is_ready());
    }
}
