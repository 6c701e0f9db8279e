//! What is going on at the moment, over whichever protocol it came: how much there may be, who watches it, and how
//! it is ended from outside.
//!
//! | file | open it for |
//! |---|---|
//! | `sessions` | how many backups may be in progress |
//! | `streams` | how many streams may be open, which of them wait, and how they are ended |
//! | `watch` | who watches activity, and what they are told |
//! | `changes` | what has changed since the start, by kind |
//! | `motion` | whether a stream moves, or holds its slot for nothing |
//! | `rate` | how fast a backup is |
//! | `turns` | whose turn it is when more streams are wanted than there may be |
//! | `shares` | what of the number of backups is kept for others |
//!
//! Nothing here is durable: a crash ends all activity, and the engine's sessions outlive a stream but not the
//! process.

pub(crate) mod changes;
mod motion;
mod rate;
pub mod sessions;
mod shares;
pub mod streams;
mod turns;
pub(crate) mod watch;

use std::collections::HashSet;
use std::sync::Arc;

use holdfast_engine::Engine;
use holdfast_engine::clock::Clock;
use holdfast_engine::ids::TokenId;
use parking_lot::Mutex;

use crate::config::Settings;
use crate::memory::Budget;
use crate::net::Door;
pub(crate) use changes::{Change, Changes};
pub(crate) use motion::worth;
use sessions::SessionLimit;
use streams::{StreamLimits, Streams};
use watch::Watchers;

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
    /// None yet, within the limits of settings and memory.
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

    /// How often things changed so far.
    pub(crate) fn changes(&self) -> Changes {
        self.watchers.changes.now()
    }

    /// Tells watchers of a change.
    pub(crate) fn note(&self, change: Change) {
        self.watchers.changes.note(change);
    }
}
