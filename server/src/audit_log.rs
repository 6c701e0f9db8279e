//! Entries of the audit log that peers can cause as often as they like: counted in memory, written together.
//!
//! Nothing is left out. What repeats within a window of the catalog's becomes one entry with a count, its first and its
//! last time; who did it is always said, as exactly as bounded memory allows (`origins`).
//!
//! | | written |
//! |---|---|
//! | a call without a valid token | within [`FLUSH_INTERVAL`], and at shutdown: never by the call itself, whose thread others need to show right tokens (H6) |
//! | a restore | at once; further reads of the same disk by the same token are counted, and written as above |
//! | what an administrator does, a take-over | at once, by its own transaction: never here |
//!
//! A crash loses the counts of at most [`FLUSH_INTERVAL`].

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::catalog::{
    AUDIT_REPEATS_MAX, AUDIT_WINDOW_MS, AuditEntry, AuditRepeat, Catalog, CatalogError,
};
use holdfast_engine::clock::Clock;
use parking_lot::Mutex;

/// Longest time until counts are written.
pub(crate) const FLUSH_INTERVAL: Duration = Duration::from_secs(5);

/// Different events that are remembered in a window, each under 2 KiB: with more, they are written and forgotten, and
/// the catalog counts on. Calls without a valid token do not write: theirs are then of [`MANY_TOKENS`].
const KEYS_MAX: usize = AUDIT_REPEATS_MAX;

/// Actor of refused calls, once there are too many to list each.
const MANY_TOKENS: &str = "many tokens";

/// Events with the same action, actor and key are counted together.
type Same = (String, String, String);

/// Counts entries in memory until they are written.
#[derive(Debug)]
pub(crate) struct AuditLog {
    catalog: Arc<Catalog>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held while counts are written: in the order they were taken.
    writing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    /// Events of this window; a count of 0 is written already.
    events: HashMap<Same, AuditRepeat>,
    origins: Origins,
    window_began_ms: i64,
}

impl State {
    /// Counts an event. Returns true if it is the first of its kind in this window.
    fn count(&mut self, repeat: AuditRepeat) -> bool {
        let AuditRepeat { entry, key, count, first_ms, last_ms } = repeat;
        let same = (entry.action.clone(), entry.who.clone(), key.clone());
        if self.events.is_empty() {
            self.window_began_ms = last_ms;
        }
        match self.events.get_mut(&same) {
            Some(known) => {
                if known.count == 0 {
                    known.first_ms = first_ms;
                }
                known.count = known.count.saturating_add(count);
                known.first_ms = known.first_ms.min(first_ms);
                known.last_ms = known.last_ms.max(last_ms);
                known.entry = entry;
                false
            }
            None => {
                self.events.insert(same, AuditRepeat { entry, key, count, first_ms, last_ms });
                true
            }
        }
    }

    /// Takes the counts to be written. Begins a new window when the old one is over, or full.
    fn take(&mut self, now_ms: i64) -> Vec<AuditRepeat> {
        let mut taken = Vec::new();
        for event in self.events.values_mut().filter(|event| event.count > 0) {
            taken.push(event.clone());
            event.count = 0;
        }
        let age_ms = now_ms.saturating_sub(self.window_began_ms);
        if !(0..AUDIT_WINDOW_MS).contains(&age_ms) || self.events.len() >= KEYS_MAX {
            self.events.clear();
            self.origins = Origins::default();
        }
        taken
    }
}

impl AuditLog {
    pub(crate) fn new(catalog: Arc<Catalog>, clock: Arc<dyn Clock>) -> Self {
        Self { catalog, clock, state: Mutex::default(), writing: Mutex::new(()) }
    }

    /// Counts a call from `peer` without a valid token. `about` is the token it named, if that exists, or a word: no
    /// text of the peer's choice.
    pub(crate) fn refused(&self, peer: Option<IpAddr>, about: &str) {
        let mut state = self.state.lock();
        let (who, detail) = state.origins.name(peer);
        let action = "login.refuse".to_owned();
        let known = (action.clone(), who.clone(), about.to_owned());
        // Once full: at most one more key for each address that is told apart.
        let is_room = state.events.len() < KEYS_MAX || state.events.contains_key(&known);
        let about = if is_room { about } else { MANY_TOKENS };
        let entry = AuditEntry { who, action, object: about.to_owned(), detail };
        state.count(AuditRepeat::once(entry, about.to_owned(), self.clock.now_ms()));
    }

    /// Notes an event that may repeat: at once when it is the first of its kind in this window. Returns true if it was.
    /// Blocks.
    pub(crate) fn note(&self, entry: AuditEntry, key: String) -> bool {
        let (first, full) = {
            let mut state = self.state.lock();
            let first = state.count(AuditRepeat::once(entry, key, self.clock.now_ms()));
            (first, state.events.len() >= KEYS_MAX)
        };
        if first || full {
            self.flush_or_log();
        }
        first
    }

    fn flush_or_log(&self) {
        if let Err(error) = self.flush() {
            tracing::error!(%error, "cannot write the audit log; trying again in a few seconds");
        }
    }

    /// Writes what was counted, in one transaction. Counts that cannot be written are kept for the next time. Blocks.
    ///
    /// # Errors
    /// The catalog's.
    pub(crate) fn flush(&self) -> Result<(), CatalogError> {
        self.flush_by(|part| self.catalog.audit_repeats(part))
    }

    fn flush_by(
        &self,
        write: impl Fn(&[AuditRepeat]) -> Result<(), CatalogError>,
    ) -> Result<(), CatalogError> {
        let _turn = self.writing.lock();
        let taken = self.state.lock().take(self.clock.now_ms());
        let mut parts = taken.chunks(AUDIT_REPEATS_MAX);
        while let Some(part) = parts.next() {
            if let Err(error) = write(part) {
                let mut state = self.state.lock();
                for event in part.iter().chain(parts.flatten()) {
                    // The entry in memory may be newer by now.
                    let same = (event.entry.action.clone(), event.entry.who.clone(), event.key.clone());
                    let entry = state.events.get(&same).map(|known| known.entry.clone());
                    let entry = entry.unwrap_or_else(|| event.entry.clone());
                    state.count(AuditRepeat { entry, ..event.clone() });
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Addresses named one by one.
const ADDRESSES_MAX: usize = 256;

/// Addresses kept of one network.
const ADDRESSES_PER_NETWORK_MAX: usize = 16;

/// Networks that stand for their addresses.
const NETWORKS_MAX: usize = 64;

/// Addresses told apart within one network: all of an IPv4 one.
const DISTINCT_PER_NETWORK_MAX: usize = 1024;

/// Addresses told apart in all other networks together: 1 MiB.
const DISTINCT_MAX: usize = 1 << 16;

/// The addresses of one IPv4 /24 or IPv6 /64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Network {
    V4([u8; 3]),
    V6([u16; 4]),
}

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Self::V4([a, b, c])
            }
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4([a, b, c]) => write!(f, "{}/24", Ipv4Addr::new(a, b, c, 0)),
            Self::V6([a, b, c, d]) => write!(f, "{}/64", Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)),
        }
    }
}

/// The addresses of one window: names for where calls without a valid token come from, as exact as bounded memory allows.
///
/// The first addresses of a network are named one by one, then the network stands for the others, and when there are
/// many networks, one name stands for what is left, with how many addresses that were. So an attacker with a network of
/// their own uses up that network's names only.
#[derive(Debug, Default)]
struct Origins {
    named: HashSet<IpAddr>,
    named_of: HashMap<Network, usize>,
    networks: HashMap<Network, HashSet<IpAddr>>,
    others: HashSet<IpAddr>,
}

impl Origins {
    /// Returns the address's name in the audit log, and a remark.
    fn name(&mut self, peer: Option<IpAddr>) -> (String, String) {
        let Some(peer) = peer.map(|peer| peer.to_canonical()) else {
            return ("an unknown address".to_owned(), "a call without a valid token".to_owned());
        };
        let network = Network::of(peer);
        if self.is_named(peer, network) {
            return (peer.to_string(), "a call without a valid token".to_owned());
        }
        let room = self.networks.len() < NETWORKS_MAX;
        if room || self.networks.contains_key(&network) {
            let addresses = self.networks.entry(network).or_default();
            let count = add(addresses, peer, DISTINCT_PER_NETWORK_MAX);
            return (network.to_string(), told(&count, peer));
        }
        let count = add(&mut self.others, peer, DISTINCT_MAX);
        ("many addresses".to_owned(), told(&count, peer))
    }

    fn is_named(&mut self, peer: IpAddr, network: Network) -> bool {
        if self.named.contains(&peer) {
            return true;
        }
        let of_network = self.named_of.get(&network).copied().unwrap_or(0);
        if self.named.len() >= ADDRESSES_MAX || of_network >= ADDRESSES_PER_NETWORK_MAX {
            return false;
        }
        self.named_of.insert(network, of_network + 1);
        self.named.insert(peer)
    }
}

/// Adds an address; how many there are, in words.
fn add(addresses: &mut HashSet<IpAddr>, peer: IpAddr, max: usize) -> String {
    if addresses.len() < max || addresses.contains(&peer) {
        addresses.insert(peer);
        return addresses.len().to_string();
    }
    format!("at least {}", addresses.len())
}

fn told(count: &str, latest: IpAddr) -> String {
    format!("calls without a valid token from {count} further addresses; the latest from {latest}")
}
