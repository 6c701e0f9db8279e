//! The streams of the data path that are open: how many there may be, and how to end them from outside.
//!
//! A stream ends between two messages when the server shuts down or its token is revoked; nothing else
//! here affects it. Forgetting one is impossible: its [`StreamGuard`] leaves the table when dropped.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use holdfast_engine::ids::{NamespaceId, TokenId};
use holdfast_proto::ErrorCode;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::shares;
use crate::auth::REFUSED;
use crate::error::ServiceError;
use crate::memory::Budget;

/// What a stream does.
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
}

impl From<Stop> for ServiceError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::ShuttingDown => Self::shutting_down(),
            Stop::TokenEnded => Self::new(ErrorCode::Unauthenticated, REFUSED),
        }
    }
}

/// How many streams may be open, by kind.
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

    /// How many threads all streams together can occupy.
    pub const fn threads(self) -> u32 {
        self.ingest.saturating_mul(2).saturating_add(self.restore)
    }
}

#[derive(Debug)]
struct Open {
    kind: StreamKind,
    token: TokenId,
    /// Once it is known what the stream is about.
    namespace: Option<NamespaceId>,
    stop: watch::Sender<Option<Stop>>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Open>,
    closed: bool,
}

/// All open streams.
#[derive(Debug)]
pub struct Streams {
    limits: StreamLimits,
    table: Mutex<Table>,
}

impl Streams {
    /// None yet.
    pub fn new(limits: StreamLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// Enters a stream.
    ///
    /// # Errors
    /// `Limit` when there are as many as there may be, or the token has its share of them (see `shares`), `Unavailable` when the server is shutting down.
    pub fn open(self: &Arc<Self>, kind: StreamKind, token: TokenId) -> Result<StreamGuard, ServiceError> {
        let mut table = self.table.lock();
        if table.closed {
            return Err(Stop::ShuttingDown.into());
        }
        self.check_share(&table, kind, None, "this token", |open| open.token == token)?;
        let (stop, receiver) = watch::channel(None);
        let id = table.next;
        table.next = id.wrapping_add(1);
        table.open.insert(id, Open { kind, token, namespace: None, stop });
        Ok(StreamGuard { streams: Arc::clone(self), id, stop: receiver })
    }

    /// Whether there may be one more stream of a kind, beside `except`, for a tenant whose streams `is_own` tells.
    fn check_share(
        &self,
        table: &Table,
        kind: StreamKind,
        except: Option<u64>,
        whose: &str,
        is_own: impl Fn(&Open) -> bool,
    ) -> Result<(), ServiceError> {
        let limit = self.limits.of(kind) as usize;
        let others = table.open.iter().filter(|(id, _)| Some(**id) != except).map(|(_, open)| open);
        let (mut in_use, mut own) = (0, 0);
        for open in others.filter(|open| open.kind == kind) {
            in_use += 1;
            own += usize::from(is_own(open));
        }
        if shares::admits(limit, in_use, own) {
            return Ok(());
        }
        let text = shares::refusal(limit, in_use, own, kind.plural(), whose);
        Err(ServiceError::at_capacity(text))
    }

    /// Ends every stream, and lets no more begin.
    pub fn close(&self) {
        let mut table = self.table.lock();
        table.closed = true;
        for open in table.open.values() {
            open.stop.send_replace(Some(Stop::ShuttingDown));
        }
    }

    /// The tokens of open streams.
    pub fn tokens(&self) -> HashSet<TokenId> {
        self.table.lock().open.values().map(|open| open.token).collect()
    }

    /// Ends the streams of a token.
    pub fn end_token(&self, token: TokenId) {
        for open in self.table.lock().open.values().filter(|open| open.token == token) {
            open.stop.send_replace(Some(Stop::TokenEnded));
        }
    }

    /// How many streams are open, by the word for their kind.
    pub fn counts(&self) -> [(&'static str, usize); 3] {
        let table = self.table.lock();
        StreamKind::ALL
            .map(|kind| (kind.word(), table.open.values().filter(|open| open.kind == kind).count()))
    }

    /// How many streams are open.
    pub fn count(&self) -> usize {
        self.table.lock().open.len()
    }
}

/// A stream's entry in the table.
#[derive(Debug)]
pub struct StreamGuard {
    streams: Arc<Streams>,
    id: u64,
    stop: watch::Receiver<Option<Stop>>,
}

impl StreamGuard {
    /// Says which namespace the stream is about, before it does anything.
    ///
    /// # Errors
    /// `Limit` when the namespace has its share of the streams there may be.
    pub fn assign(&self, namespace: NamespaceId) -> Result<(), ServiceError> {
        let mut table = self.streams.table.lock();
        let Some(open) = table.open.get_mut(&self.id) else { return Ok(()) };
        let kind = open.kind;
        open.namespace = Some(namespace);
        let is_own = |open: &Open| open.namespace == Some(namespace);
        self.streams.check_share(&table, kind, Some(self.id), "this namespace", is_own)
    }

    /// Fails when the stream must end. Call it between messages.
    ///
    /// # Errors
    /// Why it must end.
    pub fn check(&self) -> Result<(), ServiceError> {
        match *self.stop.borrow() {
            Some(stop) => Err(stop.into()),
            None => Ok(()),
        }
    }

    /// Resolves when the stream must end.
    pub fn stopped(&self) -> Stopped {
        Stopped(self.stop.clone())
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.streams.table.lock().open.remove(&self.id);
    }
}

/// Resolves when a stream must end.
#[derive(Debug)]
pub struct Stopped(watch::Receiver<Option<Stop>>);

impl Stopped {
    /// Waits for the stream to be stopped or to have left the table.
    pub async fn wait(&mut self) {
        let _ = self.0.wait_for(Option::is_some).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u8) -> TokenId {
        TokenId::from_bytes([number; 16])
    }

    #[test]
    fn streams_are_counted_by_kind_until_they_end() {
        let streams = Streams::new(StreamLimits { ingest: 1, restore: 1 });
        let first = streams.open(StreamKind::Ingest, token(1)).unwrap();
        let refused = streams.open(StreamKind::Ingest, token(1)).unwrap_err();
        assert_eq!(refused.code, ErrorCode::Limit);
        let _restore = streams.open(StreamKind::Restore, token(1)).unwrap();
        drop(first);
        streams.open(StreamKind::Ingest, token(1)).unwrap();
        assert_eq!(streams.count(), 1);
    }

    /// One tenant with all the streams it can get leaves some to another with one.
    #[test]
    fn no_token_and_no_namespace_takes_all() {
        let streams = Streams::new(StreamLimits { ingest: 8, restore: 8 });
        let (greedy, modest) = (NamespaceId::from_bytes([1; 16]), NamespaceId::from_bytes([2; 16]));
        let open = |number: u8, namespace: NamespaceId| {
            let guard = streams.open(StreamKind::Restore, token(number))?;
            guard.assign(namespace).map(|()| guard)
        };
        let mut held: Vec<StreamGuard> = Vec::new();
        let refused = loop {
            match open(1, greedy) {
                Ok(guard) => held.push(guard),
                Err(error) => break error,
            }
        };
        assert_eq!((held.len(), refused.code), (6, ErrorCode::Limit));
        assert!(refused.message.contains("this token has 6 of the 8 disks being restored"), "{refused}");
        // Nor do many tokens of a namespace together.
        let refused = open(2, greedy).unwrap_err();
        assert!(refused.message.contains("this namespace has 6 of the 8"), "{refused}");
        assert_eq!(streams.count(), 6, "what was refused is not counted");
        held.push(open(3, modest).unwrap());
        held.push(open(4, NamespaceId::from_bytes([3; 16])).unwrap());
        assert!(open(5, modest).unwrap_err().message.contains("allows 8 disks"));
        // Other kinds are counted apart.
        streams.open(StreamKind::Ingest, token(1)).unwrap();
    }

    #[test]
    fn a_token_ends_its_own_streams_and_shutdown_ends_all() {
        let streams = Streams::new(StreamLimits { ingest: 9, restore: 9 });
        let (one, two) = (
            streams.open(StreamKind::Ingest, token(1)).unwrap(),
            streams.open(StreamKind::Restore, token(2)).unwrap(),
        );
        assert_eq!(streams.tokens().len(), 2);
        streams.end_token(token(1));
        assert_eq!(one.check().unwrap_err().code, ErrorCode::Unauthenticated);
        two.check().unwrap();
        streams.close();
        assert_eq!(two.check().unwrap_err().code, ErrorCode::Unavailable);
        assert_eq!(streams.open(StreamKind::Digests, token(3)).unwrap_err().code, ErrorCode::Unavailable);
    }
}
