//! Order of turns when more streams are wanted than there may be: one rule that both divides the slots and orders those
//! who wait.
//!
//! * A stream gets a slot at once while one is free. So a tenant that is alone has all of them.
//! * Otherwise it waits, if it may. The next slot goes to the namespace that holds fewest (if several do, to the one
//!   whose last turn was longest ago), within it to the token by the same rule, within it to the one that came first. So
//!   a tenant with one stream gets the next slot, however many another has waiting.
//! * Slots that are held for hours must not keep a newcomer out: when the next in line has waited for
//!   [`TURN_PATIENCE`], and another namespace (or, within its own, another token) holds at least two more slots than its
//!   own, the newest stream of that one is ended. It is opened again, waits in its turn, and goes on where it was. A
//!   difference of one is fair and moves nothing, so this comes to rest.
//! * Where no one holds more than is fair, as with a single slot, a stream of another that could move and does not
//!   ([`motion`](crate::activity)) is ended in the same way.
//! * The number of those who wait is bounded, in all and for each token.
//!
//! Invariant: while a stream waits, no slot is free.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use holdfast_engine::Tenant;
use holdfast_engine::ids::{NamespaceId, TokenId};

use crate::limits::{TURN_PATIENCE, WAITING_MAX, WAITING_PER_TOKEN_MAX};

/// A stream, by its number in the table of streams.
pub(super) type Number = u64;

/// Why a stream can neither have a slot nor wait for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No slot is free, and it would not wait.
    NoSlot,
    /// The queue is full.
    QueueFull,
    /// The token's share of the queue is used up.
    TokenQueueFull,
}

/// Outcome of a stream's entry: a slot, or a place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entered {
    Admitted,
    Waits,
}

#[derive(Debug)]
struct Held {
    tenant: Tenant,
    /// Number of its turn.
    turn: u64,
    /// Set once it was told to end for another's turn.
    is_ending: bool,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    number: Number,
    tenant: Tenant,
    /// Number of its arrival.
    arrival: u64,
    since: Duration,
}

/// Orders the streams that wait for a slot. Time is passed in: since any moment, always the same.
#[derive(Debug)]
pub(super) struct Turns {
    limit: usize,
    held: HashMap<Number, Held>,
    /// In order of arrival.
    waiting: VecDeque<Waiting>,
    arrivals: u64,
    turns: u64,
    /// Last turns of those that hold or want slots.
    namespaces_served: HashMap<NamespaceId, u64>,
    tenants_served: HashMap<Tenant, u64>,
}

/// The least goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    held: usize,
    served: u64,
    /// Arrival number of the first stream in its line: unique.
    arrival: u64,
}

impl Turns {
    /// Creates a queue with `limit` slots.
    pub(super) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            held: HashMap::new(),
            waiting: VecDeque::new(),
            arrivals: 0,
            turns: 0,
            namespaces_served: HashMap::new(),
            tenants_served: HashMap::new(),
        }
    }

    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// Slots that are taken.
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    /// Streams that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Wants a slot for a stream, which has none and does not wait.
    pub(super) fn enter(
        &mut self,
        number: Number,
        tenant: Tenant,
        may_wait: bool,
        now: Duration,
    ) -> Result<Entered, Refusal> {
        if self.held.len() < self.limit {
            debug_assert!(self.waiting.is_empty(), "a slot was free while streams waited");
            self.admit(number, tenant);
            return Ok(Entered::Admitted);
        }
        if !may_wait {
            return Err(Refusal::NoSlot);
        }
        let of_token = self.waiting.iter().filter(|waiting| waiting.tenant.token == tenant.token).count();
        if of_token >= WAITING_PER_TOKEN_MAX {
            return Err(Refusal::TokenQueueFull);
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(Refusal::QueueFull);
        }
        self.arrivals += 1;
        self.waiting.push_back(Waiting { number, tenant, arrival: self.arrivals, since: now });
        Ok(Entered::Waits)
    }

    /// A stream ended or no longer waits. Returns those that have a slot from now on, and since when each had waited.
    pub(super) fn leave(&mut self, number: Number) -> Vec<(Number, Duration)> {
        if self.held.remove(&number).is_none() {
            self.waiting.retain(|waiting| waiting.number != number);
        }
        let mut admitted = Vec::new();
        while self.held.len() < self.limit
            && let Some(next) = self.order().first().copied()
        {
            self.waiting.retain(|waiting| waiting.number != next.number);
            self.admit(next.number, next.tenant);
            admitted.push((next.number, next.since));
        }
        self.forget();
        admitted
    }

    /// The waiting streams, in the order of their turns as of now.
    pub(super) fn line(&self) -> impl Iterator<Item = Number> {
        self.order().into_iter().map(|waiting| waiting.number)
    }

    /// Returns the stream that must end so that the next in line gets its turn, if one must. `is_idle`: it could move
    /// and does not.
    pub(super) fn make_way(&mut self, now: Duration, is_idle: impl Fn(Number) -> bool) -> Option<Number> {
        if self.held.values().any(|held| held.is_ending) {
            return None;
        }
        let next = self.order().first().copied()?;
        if now.saturating_sub(next.since) < TURN_PATIENCE {
            return None;
        }
        let gives = self.of_most(next.tenant).or_else(|| {
            let others =
                self.held.iter().filter(|(number, held)| held.tenant != next.tenant && is_idle(**number));
            others.max_by_key(|(_, held)| held.turn).map(|(number, _)| *number)
        })?;
        if let Some(held) = self.held.get_mut(&gives) {
            held.is_ending = true;
        }
        Some(gives)
    }

    /// The newest stream of the tenant that holds most, if that is two more than `next` holds.
    fn of_most(&self, next: Tenant) -> Option<Number> {
        let namespaces = self.held_by(|tenant| tenant.namespace);
        let own = namespaces.get(&next.namespace).copied().unwrap_or_default();
        let giving = match most(&namespaces, |_| true) {
            Some((namespace, held)) if held >= own + 2 => namespace,
            _ => next.namespace,
        };
        let tenants = self.held_by(|tenant| tenant);
        let own = tenants.get(&next).copied().unwrap_or_default();
        let (tenant, held) = most(&tenants, |tenant| tenant.namespace == giving)?;
        if giving == next.namespace && held < own + 2 {
            return None;
        }
        let newest = self.held.iter().filter(|(_, held)| held.tenant == tenant);
        newest.max_by_key(|(_, held)| held.turn).map(|(number, _)| *number)
    }

    fn admit(&mut self, number: Number, tenant: Tenant) {
        self.turns += 1;
        self.held.insert(number, Held { tenant, turn: self.turns, is_ending: false });
        self.namespaces_served.insert(tenant.namespace, self.turns);
        self.tenants_served.insert(tenant, self.turns);
    }

    /// Forgets the turns of those that neither hold nor want a slot.
    fn forget(&mut self) {
        let Self { held, waiting, namespaces_served, tenants_served, .. } = self;
        let present = || held.values().map(|held| held.tenant).chain(waiting.iter().map(|w| w.tenant));
        tenants_served.retain(|tenant, _| present().any(|other| other == *tenant));
        namespaces_served.retain(|namespace, _| present().any(|other| other.namespace == *namespace));
    }

    fn held_by<K: Hash + Eq>(&self, of: impl Fn(Tenant) -> K) -> HashMap<K, usize> {
        let mut counts = HashMap::new();
        for held in self.held.values() {
            *counts.entry(of(held.tenant)).or_default() += 1;
        }
        counts
    }

    /// Plays the rule forward: what if slots became free one after the other?
    fn order(&self) -> Vec<Waiting> {
        let mut turn = self.turns;
        let (of_namespaces, of_tenants) =
            (self.held_by(|tenant| tenant.namespace), self.held_by(|tenant| tenant));
        let mut lines: HashMap<NamespaceId, HashMap<TokenId, VecDeque<Waiting>>> = HashMap::new();
        for waiting in &self.waiting {
            let Tenant { namespace, token } = waiting.tenant;
            lines.entry(namespace).or_default().entry(token).or_default().push_back(*waiting);
        }
        let mut namespaces = BTreeMap::new();
        for (namespace, lines) in lines {
            let mut tokens = BTreeMap::new();
            for (token, line) in lines {
                let tenant = Tenant { namespace, token };
                let rank = Rank {
                    held: of_tenants.get(&tenant).copied().unwrap_or_default(),
                    served: self.tenants_served.get(&tenant).copied().unwrap_or_default(),
                    arrival: arrival(&line),
                };
                tokens.insert(rank, line);
            }
            let rank = Rank {
                held: of_namespaces.get(&namespace).copied().unwrap_or_default(),
                served: self.namespaces_served.get(&namespace).copied().unwrap_or_default(),
                arrival: first_arrival(&tokens),
            };
            namespaces.insert(rank, tokens);
        }
        let mut order = Vec::with_capacity(self.waiting.len());
        while let Some((rank, mut tokens)) = namespaces.pop_first() {
            turn += 1;
            let Some((of_token, mut line)) = tokens.pop_first() else { continue };
            order.extend(line.pop_front());
            if !line.is_empty() {
                let rank = Rank { held: of_token.held + 1, served: turn, arrival: arrival(&line) };
                tokens.insert(rank, line);
            }
            if !tokens.is_empty() {
                let rank = Rank { held: rank.held + 1, served: turn, arrival: first_arrival(&tokens) };
                namespaces.insert(rank, tokens);
            }
        }
        order
    }
}

/// The key that holds most, among those that `may_give`; the same one each time if several do.
fn most<K: Copy + Ord>(held: &HashMap<K, usize>, may_give: impl Fn(K) -> bool) -> Option<(K, usize)> {
    let givers = held.iter().filter(|(key, _)| may_give(**key));
    givers.max_by_key(|(key, held)| (**held, **key)).map(|(key, held)| (*key, *held))
}

fn arrival(line: &VecDeque<Waiting>) -> u64 {
    line.front().map_or(u64::MAX, |first| first.arrival)
}

fn first_arrival(tokens: &BTreeMap<Rank, VecDeque<Waiting>>) -> u64 {
    tokens.values().map(arrival).min().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
