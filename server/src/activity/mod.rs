//! Current activity over both protocols: its limits, its watchers, and how it is ended from outside.
//!
//! | file | open it for |
//! |---|---|
//! | `streams` | how many streams may be open, which of them wait, and how they are ended |
//! | `watch` | who watches activity, and what they are told |
//! | `turns` | whose turn it is when more streams are wanted than there may be |
//!
//! Nothing here is durable: a crash ends all activity, and the engine's sessions outlive a stream but not the
//! process.

pub mod streams;
mod turns;
pub(crate) mod watch;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdfast_engine::clock::Clock;
use holdfast_engine::ids::{SessionId, TokenId};
use holdfast_engine::{Engine, Tenant};
use holdfast_proto::limits::{EXTENT_BYTES, MOVES_BYTES, READ_FOR_SENT};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::activity::streams::{StreamLimits, Streams};
use crate::activity::watch::Watchers;
use crate::config::Settings;
use crate::error::ServiceError;
use crate::limits::TURN_PATIENCE;
use crate::memory::Budget;
use crate::net::Door;

/// All activity of a server.
#[derive(Debug)]
pub struct Activity {
    /// Backups in progress.
    pub sessions: Arc<SessionLimit>,
    /// Streams of the data path.
    pub streams: Arc<Streams>,
    /// Clients that watch, and what they are told.
    pub(crate) watchers: Arc<Watchers>,
    /// Connections, of each listener.
    doors: Mutex<Vec<Arc<Door>>>,
}

impl Activity {
    /// No activity yet, within the limits of settings and memory.
    pub fn new(engine: &Arc<Engine>, clock: &Arc<dyn Clock>, settings: &Settings, budget: &Budget) -> Self {
        let streams = Streams::new(StreamLimits::of_budget(budget));
        Self {
            sessions: SessionLimit::new(settings.max_sessions),
            watchers: Watchers::new(Arc::clone(engine), Arc::clone(clock), Arc::clone(&streams)),
            streams,
            doors: Mutex::default(),
        }
    }

    /// Includes the connections of a listener from now on.
    pub(crate) fn add_door(&self, door: Arc<Door>) {
        self.doors.lock().push(door);
    }

    /// The tokens of open streams and connections.
    pub(crate) fn tokens(&self) -> HashSet<TokenId> {
        let mut tokens = self.streams.tokens();
        tokens.extend(self.doors.lock().iter().flat_map(|door| door.tokens()));
        tokens
    }

    /// Ends the streams of a token, and closes its connections.
    pub(crate) fn end_token(&self, token: TokenId) {
        self.streams.end_token(token);
        for door in self.doors.lock().iter() {
            door.end_token(token);
        }
    }

    /// Ends everything under way, and lets nothing more begin.
    pub fn close(&self) {
        self.streams.close();
        self.watchers.close();
    }

    /// Counts of changes so far.
    pub(crate) fn changes(&self) -> Changes {
        self.watchers.changes.now()
    }

    /// Tells watchers of a change.
    pub(crate) fn note(&self, change: Change) {
        self.watchers.changes.note(change);
    }
}

#[derive(Debug)]
struct State {
    /// Start of the span, in the past or future, in which fewer than [`MOVES_BYTES`] were moved.
    since: Instant,
    moved_bytes: u64,
    /// Start of the server's work for it, while that goes on.
    works_since: Option<Instant>,
}

/// Progress of one stream since it last moved: tells streams that move from streams that could and do not, which hold their
/// slots for nothing.
///
/// A stream waits for its peer or for this server. Only the first is its own doing, so time in which this server works for
/// it does not count. It moves while it brings or takes [`MOVES_BYTES`] in [`TURN_PATIENCE`], 17 KiB/s: less than the slowest
/// line that agents are for, and more than an agent that sends a query now and then to keep its slot.
#[derive(Debug)]
struct Motion(Mutex<State>);

impl Motion {
    /// It has moved until now.
    fn new() -> Self {
        Self(Mutex::new(State { since: Instant::now(), moved_bytes: 0, works_since: None }))
    }

    /// It has its slot from now on.
    fn begins(&self) {
        let mut state = self.0.lock();
        (state.since, state.moved_bytes) = (Instant::now(), 0);
    }

    fn moved(&self, bytes: u64) {
        let mut state = self.0.lock();
        state.moved_bytes = state.moved_bytes.saturating_add(bytes);
        if state.moved_bytes >= MOVES_BYTES {
            (state.since, state.moved_bytes) = (Instant::now(), 0);
        }
    }

    /// Runs `work` of this server's.
    fn working<T>(&self, work: impl FnOnce() -> T) -> T {
        self.begin_work();
        let done = work();
        self.end_work();
        done
    }

    fn begin_work(&self) {
        self.0.lock().works_since = Some(Instant::now());
    }

    fn end_work(&self) {
        let mut state = self.0.lock();
        if let Some(begun) = state.works_since.take() {
            state.since += begun.elapsed();
        }
    }

    /// Returns true if the peer alone keeps the stream from moving, and has done so for [`TURN_PATIENCE`].
    fn is_idle(&self) -> bool {
        let state = self.0.lock();
        let idle = Instant::now().saturating_duration_since(state.since);
        state.works_since.is_none() && idle >= TURN_PATIENCE
    }
}

/// Progress, in bytes, of a message that reports `extents` and took `sent_bytes`.
pub(crate) const fn worth(extents: u64, sent_bytes: u64) -> u64 {
    let read_bytes = extents.saturating_mul(EXTENT_BYTES as u64);
    sent_bytes.saturating_add(read_bytes / READ_FOR_SENT)
}

/// The shortest time over which a rate is taken.
const INTERVAL_MS: i64 = 900;

/// Weight of the newest rate in the moving mean.
const WEIGHT: f64 = 0.3;

/// A backup's position at the last look, and its speed until then: the mean since its start at first, then a moving
/// mean.
#[derive(Debug, Clone, Copy)]
struct Rate {
    at_ms: i64,
    bytes: u64,
    per_second: f64,
}

impl Rate {
    /// The rate now, when `bytes` are done. `last` is the one before; `None` at the first look.
    fn next(last: Option<Self>, started_ms: i64, now_ms: i64, bytes: u64) -> Self {
        let since = |from_ms: i64, from: u64| {
            let span_ms = now_ms.saturating_sub(from_ms).max(1);
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let rate = bytes.saturating_sub(from) as f64 * 1000.0 / span_ms as f64;
            rate
        };
        match last {
            None => Self { at_ms: now_ms, bytes, per_second: since(started_ms, 0) },
            Some(last) if now_ms.saturating_sub(last.at_ms) < INTERVAL_MS => last,
            Some(last) => {
                let per_second = last.per_second * (1.0 - WEIGHT) + since(last.at_ms, last.bytes) * WEIGHT;
                Self { at_ms: now_ms, bytes, per_second }
            }
        }
    }
}

/// One slot in so many is kept for others.
const KEPT: usize = 4;

/// Returns true if a tenant that holds `own` of a `limit`, of which `in_use` are taken, may have one more. A share of the
/// limit is kept for others, so that a tenant who takes all it can get leaves something to those who come later.
///
/// Three quarters of a limit are given out first come, first served. Of the last quarter a tenant gets one more only
/// while it holds fewer than are free: one that holds none always gets the last, and each that comes gets at most half of
/// what is left. A limit under four is too small to divide.
const fn admits(limit: usize, in_use: usize, own: usize) -> bool {
    let free = limit.saturating_sub(in_use);
    free > 0 && (free > limit / KEPT || own < free)
}

/// Why not, in words.
fn refusal(limit: usize, in_use: usize, own: usize, what: &str, whose: &str) -> String {
    let kept = limit / KEPT;
    if in_use >= limit {
        return format!("this server allows {limit} {what} at once; try again when one of them is done");
    }
    format!(
        "{whose} has {own} of the {limit} {what} that this server allows at once, and the last {kept} are kept for others; \
         try again when one of yours is done"
    )
}

/// Counts of changes since the start, by kind: lists that are shown, or kept, are asked for again after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) details: u64,
    pub(crate) backups: u64,
    pub(crate) tokens: u64,
    pub(crate) tasks: u64,
    pub(crate) policies: u64,
}

/// A change worth telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A restore point was made, or verified.
    Backup,
    /// A run ended without one.
    Run,
    Tokens,
    /// A task or schedule, or how far a task is.
    Tasks,
    /// A retention policy.
    Policies,
}

/// Counts changes, and wakes those who wait for one.
#[derive(Debug, Default)]
pub(crate) struct ChangeCounts(tokio::sync::watch::Sender<Changes>);

impl ChangeCounts {
    /// Counts a change.
    fn note(&self, change: Change) {
        self.0.send_modify(|changes| match change {
            Change::Backup => {
                changes.details = changes.details.wrapping_add(1);
                changes.backups = changes.backups.wrapping_add(1);
            }
            Change::Run => changes.details = changes.details.wrapping_add(1),
            Change::Tokens => changes.tokens = changes.tokens.wrapping_add(1),
            Change::Tasks => changes.tasks = changes.tasks.wrapping_add(1),
            Change::Policies => changes.policies = changes.policies.wrapping_add(1),
        });
    }

    /// The counts now.
    pub(crate) fn now(&self) -> Changes {
        *self.0.borrow()
    }

    fn subscribe(&self) -> tokio::sync::watch::Receiver<Changes> {
        self.0.subscribe()
    }
}

#[derive(Debug, Default)]
struct Counted {
    open: HashMap<SessionId, Tenant>,
    starting: Vec<Tenant>,
}

impl Counted {
    /// Counts all, and those for which `is_own` is true.
    fn count(&self, is_own: impl Fn(&Tenant) -> bool) -> (usize, usize) {
        let all = || self.open.values().chain(&self.starting);
        (all().count(), all().filter(|tenant| is_own(tenant)).count())
    }
}

/// Limits the backups in progress. The engine owns the sessions; this only counts those started here.
///
/// A session leaves the count when it is committed or aborted. One whose lease expired leaves it when the next
/// backup finds the limit reached: the engine is then asked which of the counted ones still exist.
#[derive(Debug)]
pub struct SessionLimit {
    max: usize,
    counted: Mutex<Counted>,
}

impl SessionLimit {
    /// Allows `max`.
    pub fn new(max: u32) -> Arc<Self> {
        Arc::new(Self { max: max as usize, counted: Mutex::default() })
    }

    /// Reserves a slot for a backup that `tenant` is about to start. When the limit seems to be reached, `is_open` says
    /// which sessions still exist.
    ///
    /// # Errors
    /// `Limit` when there are as many as there may be, or the token or the namespace has its share (see `shares`).
    pub fn reserve(
        self: &Arc<Self>,
        tenant: Tenant,
        is_open: impl Fn(SessionId) -> bool,
    ) -> Result<SessionSlot, ServiceError> {
        let mut counted = self.counted.lock();
        if self.refusal(&counted, tenant).is_some() {
            counted.open.retain(|id, _| is_open(*id));
        }
        if let Some(text) = self.refusal(&counted, tenant) {
            return Err(ServiceError::at_capacity(text));
        }
        counted.starting.push(tenant);
        Ok(SessionSlot { limit: Arc::clone(self), tenant })
    }

    fn refusal(&self, counted: &Counted, tenant: Tenant) -> Option<String> {
        let of_token = counted.count(|other| other.token == tenant.token);
        let of_namespace = counted.count(|other| other.namespace == tenant.namespace);
        let tenants = [(of_token, "this token"), (of_namespace, "this namespace")];
        let ((in_use, own), whose) =
            tenants.into_iter().find(|((in_use, own), _)| !admits(self.max, *in_use, *own))?;
        Some(refusal(self.max, in_use, own, "backups", whose))
    }

    /// The session has ended.
    pub fn ended(&self, id: SessionId) {
        self.counted.lock().open.remove(&id);
    }
}

/// The slot of a backup about to start; dropping it frees the slot.
#[derive(Debug)]
pub struct SessionSlot {
    limit: Arc<SessionLimit>,
    tenant: Tenant,
}

impl SessionSlot {
    /// The backup has started.
    pub fn taken_by(self, id: SessionId) {
        self.limit.counted.lock().open.insert(id, self.tenant);
    }
}

impl Drop for SessionSlot {
    fn drop(&mut self) {
        let mut counted = self.limit.counted.lock();
        let place = counted.starting.iter().position(|tenant| *tenant == self.tenant);
        debug_assert!(place.is_some(), "a slot was freed twice");
        if let Some(place) = place {
            counted.starting.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_engine::ids::NamespaceId;
    use holdfast_proto::ErrorCode;
    use tokio::time::{Duration, advance};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_its_peer_does_not_do_counts() {
        let motion = Motion::new();
        advance(TURN_PATIENCE - Duration::from_secs(1)).await;
        motion.begin_work();
        advance(TURN_PATIENCE * 5).await;
        assert!(!motion.is_idle(), "this server works for it");
        motion.end_work();
        assert!(!motion.is_idle(), "its peer had no time yet");
        advance(Duration::from_secs(1)).await;
        assert!(motion.is_idle());
        motion.moved(MOVES_BYTES - 1);
        assert!(motion.is_idle(), "it trickles");
        motion.moved(1);
        assert!(!motion.is_idle());
        motion.moved(worth(16, 0));
        advance(TURN_PATIENCE - Duration::from_secs(1)).await;
        assert!(!motion.is_idle(), "64 MiB of its disk were told of");
    }

    #[test]
    fn rates_begin_with_the_mean_and_follow_what_happens() {
        let first = Rate::next(None, 0, 10_000, 5000);
        assert!((first.per_second - 500.0).abs() < 1e-9);
        assert_eq!(Rate::next(Some(first), 0, 10_100, 9000).bytes, 5000, "too soon to tell");
        let mut rate = first;
        for second in 1..=30 {
            rate = Rate::next(Some(rate), 0, 10_000 + second * 1000, 5000 + second.unsigned_abs() * 2000);
        }
        assert!((rate.per_second - 2000.0).abs() < 10.0, "{rate:?}");
        let stalled =
            (1..=30).fold(rate, |rate, second| Rate::next(Some(rate), 0, 40_000 + second * 1000, 65_000));
        assert!(stalled.per_second < 1.0, "{stalled:?}");
    }

    /// Slots that each of these tenants gets, when one after the other takes all it can get.
    fn taken(limit: usize, tenants: usize) -> Vec<usize> {
        let mut in_use = 0;
        let take_all = |_| {
            let mut own = 0;
            while admits(limit, in_use, own) {
                (in_use, own) = (in_use + 1, own + 1);
            }
            own
        };
        (0..tenants).map(take_all).collect()
    }

    #[test]
    fn later_tenants_find_something() {
        assert_eq!(taken(16, 5), [12, 2, 1, 1, 0]);
        assert_eq!(taken(64, 6), [48, 8, 4, 2, 1, 1]);
        assert_eq!(taken(4, 3), [3, 1, 0]);
        assert_eq!(taken(3, 2), [3, 0]);
        assert_eq!(taken(1, 2), [1, 0]);
        assert_eq!(taken(0, 1), [0]);
    }

    #[test]
    fn the_reason_is_the_right_one() {
        assert!(refusal(16, 16, 3, "disks", "a").contains("allows 16 disks at once"));
        let kept = refusal(16, 12, 12, "disks", "token \"a\"");
        assert!(kept.contains("token \"a\" has 12 of the 16 disks") && kept.contains("last 4"), "{kept}");
    }

    #[test]
    fn a_restore_point_changes_details_too() {
        let counts = ChangeCounts::default();
        let waiting = counts.subscribe();
        assert!(!waiting.has_changed().unwrap());
        counts.note(Change::Backup);
        counts.note(Change::Run);
        counts.note(Change::Tokens);
        counts.note(Change::Tasks);
        counts.note(Change::Policies);
        assert!(waiting.has_changed().unwrap());
        assert_eq!(counts.now(), Changes { details: 2, backups: 1, tokens: 1, tasks: 1, policies: 1 });
    }

    fn tenant(number: u8) -> Tenant {
        Tenant { namespace: NamespaceId::from_bytes([number; 16]), token: TokenId::from_bytes([number; 16]) }
    }

    fn id(number: u8) -> SessionId {
        SessionId::from_bytes([number; 16])
    }

    #[test]
    fn slots_are_freed_when_sessions_end_fail_to_start_or_expire() {
        let limit = SessionLimit::new(2);
        let open = |_| true;
        limit.reserve(tenant(1), open).unwrap().taken_by(id(1));
        let starting = limit.reserve(tenant(1), open).unwrap();
        assert_eq!(limit.reserve(tenant(1), open).unwrap_err().code, ErrorCode::Limit);
        drop(starting);
        limit.reserve(tenant(1), open).unwrap().taken_by(id(2));
        assert!(limit.reserve(tenant(1), open).is_err());
        limit.ended(id(1));
        limit.reserve(tenant(1), open).unwrap().taken_by(id(3));
        assert!(limit.reserve(tenant(1), open).is_err());
        // Session 2 expired unnoticed.
        limit.reserve(tenant(1), |session| session != id(2)).unwrap();
    }

    #[test]
    fn one_tenant_leaves_room_for_another() {
        let limit = SessionLimit::new(8);
        let open = |_| true;
        for number in 0..6 {
            limit.reserve(tenant(1), open).unwrap().taken_by(id(number));
        }
        let refused = limit.reserve(tenant(1), open).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Limit);
        assert!(refused.message.contains("this token has 6 of the 8 backups"), "{refused}");
        let same_namespace = Tenant { token: tenant(2).token, ..tenant(1) };
        let refused = limit.reserve(same_namespace, open).unwrap_err();
        assert!(refused.message.contains("this namespace has 6 of the 8 backups"), "{refused}");
        limit.reserve(tenant(2), open).unwrap().taken_by(id(6));
        limit.reserve(tenant(3), open).unwrap().taken_by(id(7));
        assert!(limit.reserve(tenant(4), open).is_err());
    }
}
