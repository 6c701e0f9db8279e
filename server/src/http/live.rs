//! Live activity: one look at the engine a second, for everybody who watches.
//!
//! Invariants:
//! * Nothing runs when nobody watches: the first watcher starts the one producer, the last one's leaving ends it
//!   (H4).
//! * Watchers are bounded, by token and in all. Each is told the latest state, never a backlog, so a slow one
//!   costs no memory.
//! * A watcher ends when its token or login does (within [`crate::server::HOUSEKEEPING_INTERVAL`]) and when the
//!   server stops.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::LiveSession;
use holdfast_engine::ids::{SessionId, TokenId};
use holdfast_proto::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::app::App;
use crate::error::ServiceError;

/// How often the engine is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Watchers of one token: a few people with a few tabs each.
pub(crate) const WATCHERS_PER_TOKEN_MAX: usize = 16;

/// Watchers in all.
const WATCHERS_MAX: usize = 128;

/// Rates are taken over at least so long.
const RATE_INTERVAL_MS: i64 = 900;

/// Weight of the newest rate in the shown one.
const RATE_WEIGHT: f64 = 0.3;

/// A backup in the making and how fast it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Watched {
    pub(crate) session: LiveSession,
    pub(crate) bytes_done: u64,
    pub(crate) bytes_per_second: f64,
}

/// Everything under way.
pub(crate) type Snapshot = Arc<Vec<Watched>>;

/// How often each kind of thing changed since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    pub(crate) details: u64,
    pub(crate) backups: u64,
    pub(crate) tokens: u64,
}

/// A change somebody should look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// A restore point was made, or checked.
    Backup,
    /// A run ended without one.
    Run,
    Tokens,
}

/// Whom a watcher belongs to: a token, and a login when there is one.
pub(crate) type Owner = (TokenId, Option<[u8; 32]>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    watchers: HashMap<u64, (Owner, watch::Sender<bool>)>,
    producing: bool,
    rates: HashMap<SessionId, Rate>,
}

#[derive(Debug, Clone, Copy)]
struct Rate {
    at_ms: i64,
    bytes: u64,
    per_second: f64,
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Live {
    state: Mutex<State>,
    snapshots: watch::Sender<Snapshot>,
    changes: watch::Sender<Changes>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            snapshots: watch::Sender::new(Arc::default()),
            changes: watch::Sender::new(Changes::default()),
        }
    }
}

/// One watcher; leaves the table when dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    app: Arc<App>,
    number: u64,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    pub(crate) changes: watch::Receiver<Changes>,
    /// Becomes true when it must end.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.app.live.state.lock().watchers.remove(&self.number);
    }
}

impl Live {
    /// Tells watchers of a change.
    pub(crate) fn note(&self, change: Change) {
        self.changes.send_modify(|changes| match change {
            Change::Backup => {
                changes.details = changes.details.wrapping_add(1);
                changes.backups = changes.backups.wrapping_add(1);
            }
            Change::Run => changes.details = changes.details.wrapping_add(1),
            Change::Tokens => changes.tokens = changes.tokens.wrapping_add(1),
        });
    }

    /// How often things changed so far.
    pub(crate) fn changes(&self) -> Changes {
        *self.changes.borrow()
    }

    /// Everything under way now.
    pub(crate) fn snapshot(&self, app: &App) -> Snapshot {
        let now_ms = app.clock.now_ms();
        let sessions = app.engine.live_sessions();
        let rates = &mut self.state.lock().rates;
        let under_way: HashSet<SessionId> = sessions.iter().map(|session| session.session).collect();
        rates.retain(|session, _| under_way.contains(session));
        let watched = sessions.into_iter().map(|session| {
            let bytes_done = session.disks.iter().map(|disk| disk.done_bytes).sum();
            let rate = rates.get(&session.session).copied();
            let rate = next_rate(rate, session.started_ms, now_ms, bytes_done);
            rates.insert(session.session, rate);
            Watched { session, bytes_done, bytes_per_second: rate.per_second }
        });
        Arc::new(watched.collect())
    }

    /// Begins to watch.
    ///
    /// # Errors
    /// `Limit` when too many do.
    pub(crate) fn watch(app: &Arc<App>, owner: Owner) -> Result<Watcher, ServiceError> {
        let first = app.live.snapshot(app);
        let live = &app.live;
        let mut state = live.state.lock();
        let of_token = state.watchers.values().filter(|((token, _), _)| *token == owner.0).count();
        if of_token >= WATCHERS_PER_TOKEN_MAX || state.watchers.len() >= WATCHERS_MAX {
            return Err(ServiceError::new(
                ErrorCode::Limit,
                format!(
                    "{WATCHERS_PER_TOKEN_MAX} event streams of one token and {WATCHERS_MAX} in all are allowed at \
                     once; close other windows, or ask for /api/v1/activity now and then"
                ),
            ));
        }
        let (sender, stop) = watch::channel(false);
        let number = state.next;
        state.next = number.wrapping_add(1);
        state.watchers.insert(number, (owner, sender));
        publish(live, first);
        let (snapshots, changes) = (live.snapshots.subscribe(), live.changes.subscribe());
        if !std::mem::replace(&mut state.producing, true) {
            tokio::spawn(produce(Arc::clone(app)));
        }
        drop(state);
        Ok(Watcher { app: Arc::clone(app), number, snapshots, changes, stop })
    }

    /// Whom watchers belong to.
    pub(crate) fn owners(&self) -> HashSet<Owner> {
        self.state.lock().watchers.values().map(|(owner, _)| *owner).collect()
    }

    /// Ends the watchers of an owner.
    pub(crate) fn end(&self, owner: &Owner) {
        for (_, stop) in self.state.lock().watchers.values().filter(|(whose, _)| whose == owner) {
            stop.send_replace(true);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_producing(&self) -> bool {
        self.state.lock().producing
    }
}

/// Looks at the engine until nobody watches or the server stops.
async fn produce(app: Arc<App>) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut stopping = app.stopping();
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
        {
            // Under the lock that watchers enter by: none can come in between and be left without producer.
            let mut state = app.live.state.lock();
            if state.watchers.is_empty() || *stopping.borrow() {
                state.producing = false;
                return;
            }
        }
        let snapshot = app.live.snapshot(&app);
        publish(&app.live, snapshot);
    }
}

/// Wakes watchers only when there is something new.
fn publish(live: &Live, snapshot: Snapshot) {
    live.snapshots.send_if_modified(|last| {
        let differs = *last != snapshot;
        *last = snapshot;
        differs
    });
}

/// The rate now: since the start at first, then a moving mean.
fn next_rate(last: Option<Rate>, started_ms: i64, now_ms: i64, bytes: u64) -> Rate {
    let since = |from_ms: i64, from: u64| {
        let span_ms = now_ms.saturating_sub(from_ms).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = bytes.saturating_sub(from) as f64 * 1000.0 / span_ms as f64;
        rate
    };
    match last {
        None => Rate { at_ms: now_ms, bytes, per_second: since(started_ms, 0) },
        Some(last) if now_ms.saturating_sub(last.at_ms) < RATE_INTERVAL_MS => last,
        Some(last) => {
            let per_second =
                last.per_second * (1.0 - RATE_WEIGHT) + since(last.at_ms, last.bytes) * RATE_WEIGHT;
            Rate { at_ms: now_ms, bytes, per_second }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_begin_with_the_mean_and_follow_what_happens() {
        let first = next_rate(None, 0, 10_000, 5000);
        assert!((first.per_second - 500.0).abs() < 1e-9);
        assert_eq!(next_rate(Some(first), 0, 10_100, 9000).bytes, 5000, "too soon to tell");
        let mut rate = first;
        for second in 1..=30 {
            rate = next_rate(Some(rate), 0, 10_000 + second * 1000, 5000 + second.unsigned_abs() * 2000);
        }
        assert!((rate.per_second - 2000.0).abs() < 10.0, "{rate:?}");
        let stalled =
            (1..=30).fold(rate, |rate, second| next_rate(Some(rate), 0, 40_000 + second * 1000, 65_000));
        assert!(stalled.per_second < 1.0, "{stalled:?}");
    }
}
