//! Watching activity: one look at the engine a second, however many clients watch.
//!
//! Invariants:
//! * Without watchers nothing runs: the first one starts the one task that looks, the last one to leave ends it (H4).
//! * Watchers are bounded, by token and in all. Each is told the latest state, never a backlog, so a slow one
//!   costs no memory.
//! * A watcher ends when its token or login does (within one round of the background job `ended-access`) and when
//!   the server stops.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::clock::Clock;
use holdfast_engine::ids::{BackupId, NamespaceId, SessionId};
use holdfast_engine::{Engine, LiveSession};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::streams::{StreamKind, Streams, Subject, Waiting};
use crate::activity::{ChangeCounts, Changes, Rate};
use crate::auth::Credential;
use crate::error::ServiceError;

/// Interval between looks at the engine.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Watchers of one token: a few people with a few tabs each.
pub(crate) const WATCHERS_PER_TOKEN_MAX: usize = 16;

/// Watchers in all.
const WATCHERS_MAX: usize = 128;

/// A backup in progress and how fast it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Watched {
    pub(crate) session: LiveSession,
    pub(crate) bytes_done: u64,
    pub(crate) bytes_per_second: f64,
    /// Streams that get their turn before its disk's, while that waits.
    pub(crate) ahead: Option<usize>,
}

/// A restore that waits for its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingRestore {
    pub(crate) namespace: NamespaceId,
    pub(crate) namespace_name: String,
    pub(crate) vm: String,
    pub(crate) disk: String,
    pub(crate) backup: BackupId,
    /// Streams that get their turn before it.
    pub(crate) ahead: usize,
}

/// All that is going on.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Activities {
    pub(crate) backups: Vec<Watched>,
    pub(crate) waiting_restores: Vec<WaitingRestore>,
}

/// State shown to watchers.
pub(crate) type Snapshot = Arc<Activities>;

#[derive(Debug, Default)]
struct State {
    next: u64,
    watchers: HashMap<u64, (Credential, watch::Sender<bool>)>,
    looking: bool,
    rates: HashMap<SessionId, Rate>,
}

/// Clients that watch activity.
#[derive(Debug)]
pub(crate) struct Watchers {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    streams: Arc<Streams>,
    state: Mutex<State>,
    /// Becomes true, under the lock of `state`, when the server stops.
    closed: watch::Sender<bool>,
    snapshots: watch::Sender<Snapshot>,
    pub(crate) changes: ChangeCounts,
}

/// One watcher; leaves the table when dropped.
#[derive(Debug)]
pub(crate) struct Watcher {
    watchers: Arc<Watchers>,
    number: u64,
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    pub(crate) changes: watch::Receiver<Changes>,
    /// Becomes true when it must end.
    pub(crate) stop: watch::Receiver<bool>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watchers.state.lock().watchers.remove(&self.number);
    }
}

impl Watchers {
    /// No watchers yet.
    pub(super) fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>, streams: Arc<Streams>) -> Arc<Self> {
        Arc::new(Self {
            engine,
            clock,
            streams,
            state: Mutex::default(),
            closed: watch::Sender::new(false),
            snapshots: watch::Sender::new(Arc::default()),
            changes: ChangeCounts::default(),
        })
    }

    /// All that is going on now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now_ms = self.clock.now_ms();
        let sessions = self.engine.live_sessions();
        let (places, waiting_restores) = places(self.streams.waiting());
        let rates = &mut self.state.lock().rates;
        let in_progress: HashSet<SessionId> = sessions.iter().map(|session| session.session).collect();
        rates.retain(|session, _| in_progress.contains(session));
        let watched = sessions.into_iter().map(|session| {
            let bytes_done = session.disks.iter().map(|disk| disk.done_bytes).sum();
            let last = rates.get(&session.session).copied();
            let rate = Rate::next(last, session.started_ms, now_ms, bytes_done);
            rates.insert(session.session, rate);
            let ahead = places.get(&session.session).copied();
            Watched { session, bytes_done, bytes_per_second: rate.per_second, ahead }
        });
        Arc::new(Activities { backups: watched.collect(), waiting_restores })
    }

    /// Begins to watch.
    ///
    /// # Errors
    /// `Limit` when there are as many watchers as there may be, `Unavailable` when the server is shutting down.
    pub(crate) fn watch(self: &Arc<Self>, credential: Credential) -> Result<Watcher, ServiceError> {
        let first = self.snapshot();
        let mut state = self.state.lock();
        if *self.closed.borrow() {
            return Err(ServiceError::shutting_down());
        }
        let of_token = state.watchers.values().filter(|(of, _)| of.token == credential.token).count();
        if of_token >= WATCHERS_PER_TOKEN_MAX || state.watchers.len() >= WATCHERS_MAX {
            return Err(ServiceError::at_capacity(format!(
                "this server allows {WATCHERS_PER_TOKEN_MAX} event streams per token and {WATCHERS_MAX} in \
                     all; close other windows, or poll /api/v1/activity instead"
            )));
        }
        let (sender, stop) = watch::channel(false);
        let number = state.next;
        state.next = number.wrapping_add(1);
        state.watchers.insert(number, (credential, sender));
        self.publish(first);
        let (snapshots, changes) = (self.snapshots.subscribe(), self.changes.subscribe());
        if !std::mem::replace(&mut state.looking, true) {
            tokio::spawn(look(Arc::clone(self)));
        }
        drop(state);
        Ok(Watcher { watchers: Arc::clone(self), number, snapshots, changes, stop })
    }

    /// Tokens and logins that watchers depend on.
    pub(crate) fn credentials(&self) -> HashSet<Credential> {
        self.state.lock().watchers.values().map(|(credential, _)| *credential).collect()
    }

    /// Ends the watchers that depend on `credential`.
    pub(crate) fn end(&self, credential: &Credential) {
        for (_, stop) in self.state.lock().watchers.values().filter(|(of, _)| of == credential) {
            stop.send_replace(true);
        }
    }

    /// Ends all watchers, and lets no more begin.
    pub(super) fn close(&self) {
        let state = self.state.lock();
        self.closed.send_replace(true);
        for (_, stop) in state.watchers.values() {
            stop.send_replace(true);
        }
    }

    /// Wakes watchers only when there is something new.
    fn publish(&self, snapshot: Snapshot) {
        self.snapshots.send_if_modified(|last| {
            let differs = *last != snapshot;
            *last = snapshot;
            differs
        });
    }

    #[cfg(test)]
    pub(crate) fn is_looking(&self) -> bool {
        self.state.lock().looking
    }
}

/// The places of backups, and the restores, among the streams that wait.
fn places(waiting: Vec<Waiting>) -> (HashMap<SessionId, usize>, Vec<WaitingRestore>) {
    let (mut backups, mut restores) = (HashMap::new(), Vec::new());
    for Waiting { kind, namespace, subject, ahead } in waiting {
        match subject {
            Subject::Session(session) if kind == StreamKind::Ingest => {
                backups.entry(session).or_insert(ahead);
            }
            Subject::Session(_) => {}
            Subject::Backup { backup, namespace_name, vm, disk } => {
                restores.push(WaitingRestore { namespace, namespace_name, vm, disk, backup, ahead });
            }
        }
    }
    (backups, restores)
}

/// Looks at the engine until there are no watchers or the server stops.
async fn look(watchers: Arc<Watchers>) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut closed = watchers.closed.subscribe();
    loop {
        tokio::select! {
            _ = looks.tick() => {}
            _ = closed.wait_for(|closed| *closed) => {}
        }
        {
            // Under the lock that watchers enter by: none can come in between and be left without this task.
            let mut state = watchers.state.lock();
            if state.watchers.is_empty() || *watchers.closed.borrow() {
                state.looking = false;
                return;
            }
        }
        let snapshot = watchers.snapshot();
        watchers.publish(snapshot);
    }
}
