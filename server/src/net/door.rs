//! The connection slots of one listener: who gets in, and who is dropped when they are short.
//!
//! A connection begins as a *stranger* and stays one until a call on it showed a valid token. Invariants (H8):
//! * Strangers never keep callers with a token out: they hold at most a share of the slots, and any of them is dropped
//!   for a newcomer, those of unknown addresses first, the oldest of the address with most of them (see [`to_drop`]).
//! * Callers with a token never keep strangers out, health checks among them: some slots are not for them.
//! * No token holds more than its share.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_engine::ids::TokenId;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::limits::{
    KNOWN_FOR, ORIGINS_MAX, RESERVED_FOR_KNOWN, RESERVED_FOR_STRANGERS, STRANGERS_PER_ORIGIN_MAX, TOKEN_SHARE,
};
use crate::net::Origin;

/// Urgency with which a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Closing {
    Open,
    /// One of its tokens has ended: answers that are not read are waited for only shortly.
    Hurry,
    /// All of its tokens have ended: what is under way is told, then it is closed.
    Soon,
    Now,
}

/// One connection. A stranger has no tokens.
#[derive(Debug)]
struct Entry {
    origin: Origin,
    tokens: HashSet<TokenId>,
    close: watch::Sender<Closing>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Entry>,
    known: HashMap<Origin, Instant>,
}

/// The connection slots of one listener.
#[derive(Debug)]
pub(crate) struct Door {
    max: usize,
    state: Mutex<State>,
}

/// Why a connection may not count as one of a token's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// This token's connections, which may be so many.
    OfToken(usize),
    /// The connections of callers with a token, which may be so many in all.
    InAll(usize),
}

impl Door {
    /// Creates a door with `max` slots.
    pub(crate) fn new(max: u32) -> Arc<Self> {
        Arc::new(Self { max: max as usize, state: Mutex::default() })
    }

    /// Slots that strangers from unknown addresses may hold.
    const fn for_strangers(&self) -> usize {
        self.max - self.max / RESERVED_FOR_KNOWN
    }

    /// Slots that callers with a token may hold.
    const fn for_callers(&self) -> usize {
        self.max - self.max / RESERVED_FOR_STRANGERS
    }

    /// Connections of one token.
    const fn per_token(&self) -> usize {
        if self.max < TOKEN_SHARE { 1 } else { self.max / TOKEN_SHARE }
    }

    /// Lets a connection in, dropping a stranger when slots are short. `None` when there is none to drop: every slot is
    /// held by a caller with a token.
    pub(super) fn enter(&self, peer: SocketAddr) -> Option<(u64, watch::Sender<Closing>)> {
        let origin = Origin::from(peer);
        let mut state = self.state.lock();
        let known = state.is_known(origin);
        if let Some(number) = state.stranger_to_drop(origin, known, self) {
            state.drop_stranger(number);
        }
        if state.open.len() >= self.max {
            return None;
        }
        let number = state.next;
        state.next = number.wrapping_add(1);
        let close = watch::Sender::new(Closing::Open);
        state.open.insert(number, Entry { origin, tokens: HashSet::new(), close: close.clone() });
        Some((number, close))
    }

    /// Returns true if a caller from the address of `peer` has shown a valid token.
    pub(super) fn is_known(&self, peer: SocketAddr) -> bool {
        self.state.lock().is_known(peer.into())
    }

    /// A call on connection `number` showed `token`, which is valid.
    pub(super) fn authenticated(&self, number: u64, token: TokenId) -> Result<(), TooMany> {
        let mut state = self.state.lock();
        let held = state.open.values().filter(|entry| entry.tokens.contains(&token)).count();
        let callers = state.open.values().filter(|entry| !entry.tokens.is_empty()).count();
        let Some(entry) = state.open.get_mut(&number) else { return Ok(()) };
        let origin = entry.origin;
        if !entry.tokens.contains(&token) {
            if held >= self.per_token() {
                return Err(TooMany::OfToken(self.per_token()));
            }
            if entry.tokens.is_empty() && callers >= self.for_callers() {
                return Err(TooMany::InAll(self.for_callers()));
            }
            entry.tokens.insert(token);
        }
        state.remember(origin);
        Ok(())
    }

    /// The tokens of open connections.
    pub(crate) fn tokens(&self) -> HashSet<TokenId> {
        self.state.lock().open.values().flat_map(|entry| entry.tokens.iter().copied()).collect()
    }

    /// A token is no longer valid: connections that showed no other are closed, and what stalls on the rest is ended.
    pub(crate) fn end_token(&self, token: TokenId) {
        for entry in self.state.lock().open.values_mut() {
            if entry.tokens.remove(&token) {
                let last = entry.tokens.is_empty();
                entry.close.send_replace(if last { Closing::Soon } else { Closing::Hurry });
            }
        }
    }

    pub(super) fn leave(&self, number: u64) {
        self.state.lock().open.remove(&number);
    }
}

impl State {
    fn is_known(&self, origin: Origin) -> bool {
        self.known.get(&origin).is_some_and(|at| at.elapsed() < KNOWN_FOR)
    }

    fn remember(&mut self, origin: Origin) {
        if self.known.len() >= ORIGINS_MAX && !self.known.contains_key(&origin) {
            let oldest = self.known.iter().min_by_key(|(_, at)| **at).map(|(origin, _)| *origin);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        self.known.insert(origin, Instant::now());
    }

    /// Strangers, of unknown addresses only or all of them.
    fn strangers(&self, unknown_only: bool) -> Places {
        let strangers = self.open.iter().filter(|(_, entry)| entry.tokens.is_empty());
        let strangers = strangers.filter(|(_, entry)| !unknown_only || !self.is_known(entry.origin));
        strangers.map(|(number, entry)| (*number, entry.origin)).collect()
    }

    fn stranger_to_drop(&self, origin: Origin, known: bool, door: &Door) -> Option<u64> {
        let full = self.open.len() >= door.max;
        let unknown = self.strangers(true);
        if !known {
            let max = if full { unknown.len() } else { door.for_strangers() };
            if let Some(number) = to_drop(&unknown, origin, STRANGERS_PER_ORIGIN_MAX, max) {
                return Some(number);
            }
        } else if full && let Some(number) = to_drop(&unknown, origin, STRANGERS_PER_ORIGIN_MAX, 0) {
            return Some(number);
        }
        let all = self.strangers(false);
        let max = if full { 0 } else { usize::MAX };
        to_drop(&all, origin, STRANGERS_PER_ORIGIN_MAX, max)
    }

    fn drop_stranger(&mut self, number: u64) {
        if let Some(entry) = self.open.remove(&number) {
            tracing::debug!(from = %entry.origin, "connection slots are short; dropped a connection without a token");
            entry.close.send_replace(Closing::Now);
        }
    }
}

/// Holders of places; ordered by age, as numbers are given in order.
pub(crate) type Places = BTreeMap<u64, Origin>;

/// The place to drop before another of `origin` may come in, if any.
///
/// Places are for peers that nothing is known about, and their number is bounded. A newcomer always gets one: when there are
/// too many from its address the oldest of these loses its place, and when there are too many in all, the oldest of the
/// address that holds most. So no address can keep another out, and silence only costs the one who is silent.
pub(crate) fn to_drop(places: &Places, origin: Origin, per_origin_max: usize, max: usize) -> Option<u64> {
    let mut counts: HashMap<Origin, (usize, u64)> = HashMap::new();
    for (number, held_by) in places {
        counts.entry(*held_by).or_insert((0, *number)).0 += 1;
    }
    if let Some((count, oldest)) = counts.get(&origin)
        && *count >= per_origin_max
    {
        return Some(*oldest);
    }
    if places.len() < max {
        return None;
    }
    // Most places first, then the oldest.
    counts
        .values()
        .max_by_key(|(count, oldest)| (*count, std::cmp::Reverse(*oldest)))
        .map(|(_, oldest)| *oldest)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    fn origin(last: u8) -> Origin {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, last)).into()
    }

    fn places(held_by: &[u8]) -> Places {
        (0..).zip(held_by.iter().map(|last| origin(*last))).collect()
    }

    #[test]
    fn an_address_with_too_many_loses_its_own_oldest() {
        let places = places(&[2, 1, 1, 3]);
        assert_eq!(to_drop(&places, origin(1), 2, 99), Some(1));
        assert_eq!(to_drop(&places, origin(2), 2, 99), None);
    }

    #[test]
    fn when_all_are_taken_the_address_with_most_loses_its_oldest() {
        let taken = places(&[2, 1, 1, 3]);
        assert_eq!(
            to_drop(&taken, origin(9), 3, 4),
            Some(1),
            "not the one of address 2, although it is older"
        );
        assert_eq!(
            to_drop(&places(&[4, 5, 6]), origin(9), 3, 3),
            Some(0),
            "the oldest when all hold as many"
        );
        assert_eq!(to_drop(&places(&[]), origin(9), 3, 0), None);
    }
}
