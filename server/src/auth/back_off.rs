//! Slows down addresses that show wrong tokens.
//!
//! Only failures are slowed down. A token of 256 random bits cannot be guessed, so what a flood of wrong ones costs is
//! threads, log and disk; and behind one address there may be a whole site. Hence:
//! * A right token gets through from an address that is backed off: its look-up takes a turn like any other. Tokens that
//!   were shown from that address before have turns of their own, which others cannot take.
//! * All others of that address have [`LOOKUPS_BACKED_OFF_MAX`] turns at once; what finds none is refused without a
//!   look-up. A wrong token is told to wait, longer each time.
//! * Turns are limited while the address is not backed off, too, so that no address fills the queue of look-ups.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::ids::TokenId;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::{
    BACK_OFF_MAX, FAILURES_FREE, FORGIVE_EVERY, GOOD_TOKENS_MAX, KNOWN_FOR, LOOKUPS_BACKED_OFF_MAX,
    LOOKUPS_PER_ORIGIN_MAX, ORIGINS_MAX,
};
use crate::net::Origin;

/// One address.
#[derive(Debug)]
struct Address {
    /// Failures that are not forgiven yet.
    failures: u32,
    /// Up to when they have been forgiven.
    forgiven: Instant,
    /// End of its back-off.
    until: Instant,
    /// Look-ups under way: with tokens that were shown from it before, and others.
    turns: [usize; 2],
}

#[derive(Debug, Default)]
struct State {
    addresses: HashMap<Origin, Address>,
    good: HashMap<(Origin, TokenId), Instant>,
}

/// Limits the look-ups of addresses that show wrong tokens.
#[derive(Debug, Default)]
pub(crate) struct BackOff(Mutex<State>);

impl BackOff {
    /// A turn to look up what a caller from `origin` shows.
    ///
    /// # Errors
    /// How long to wait when all turns of that address are taken.
    pub(crate) fn turn(self: &Arc<Self>, origin: Origin, token: Option<TokenId>) -> Result<Turn, Duration> {
        let (now, mut state) = (Instant::now(), self.0.lock());
        let is_good = token.and_then(|token| state.good.get(&(origin, token)));
        let good = is_good.is_some_and(|at| now.duration_since(*at) < KNOWN_FOR);
        let address = state.address(origin, now);
        let backed_off = now < address.until;
        let max = if backed_off && !good { LOOKUPS_BACKED_OFF_MAX } else { LOOKUPS_PER_ORIGIN_MAX };
        let [of_good, of_others] = &mut address.turns;
        let taken = if good { of_good } else { of_others };
        if *taken >= max {
            return Err(address.until.saturating_duration_since(now).max(Duration::from_secs(1)));
        }
        *taken += 1;
        Ok(Turn { back_off: Arc::clone(self), origin, good })
    }

    /// A wrong token came from `origin`: how long it should wait; `None` when it may go on.
    pub(crate) fn failed(&self, origin: Origin) -> Option<Duration> {
        let (now, mut state) = (Instant::now(), self.0.lock());
        let address = state.address(origin, now);
        address.forgive(now);
        address.failures = address.failures.saturating_add(1);
        let beyond = address.failures.checked_sub(FAILURES_FREE + 1)?;
        let wait = Duration::from_secs(1).saturating_mul(1_u32.checked_shl(beyond).unwrap_or(u32::MAX));
        let wait = wait.min(BACK_OFF_MAX);
        address.until = now + wait;
        // No more than what is forgiven while it waits: afterwards it begins near the limit, not far beyond it.
        address.failures = address.failures.min(FAILURES_FREE + 7);
        Some(wait)
    }

    /// Forgives every address.
    #[cfg(test)]
    pub(crate) fn forgive_all(&self) {
        self.0.lock().addresses.clear();
    }

    /// A right token came from `origin`.
    pub(crate) fn succeeded(&self, origin: Origin, token: TokenId) {
        let mut state = self.0.lock();
        let key = (origin, token);
        if state.good.len() >= GOOD_TOKENS_MAX && !state.good.contains_key(&key) {
            let oldest = state.good.iter().min_by_key(|(_, at)| **at).map(|(key, _)| *key);
            oldest.and_then(|oldest| state.good.remove(&oldest));
        }
        state.good.insert(key, Instant::now());
    }
}

impl State {
    fn address(&mut self, origin: Origin, now: Instant) -> &mut Address {
        if self.addresses.len() >= ORIGINS_MAX && !self.addresses.contains_key(&origin) {
            let unused = self.addresses.iter().filter(|(_, address)| address.turns == [0, 0]);
            let oldest = unused.min_by_key(|(_, address)| address.until).map(|(origin, _)| *origin);
            oldest.and_then(|oldest| self.addresses.remove(&oldest));
        }
        self.addresses.entry(origin).or_insert(Address {
            failures: 0,
            forgiven: now,
            until: now,
            turns: [0, 0],
        })
    }
}

impl Address {
    fn forgive(&mut self, now: Instant) {
        let since = now.duration_since(self.forgiven);
        let count = u32::try_from(since.as_secs() / FORGIVE_EVERY.as_secs()).unwrap_or(u32::MAX);
        self.failures = self.failures.saturating_sub(count);
        self.forgiven += FORGIVE_EVERY.saturating_mul(count);
        if self.failures == 0 {
            self.forgiven = now;
        }
    }
}

/// A look-up under way.
#[derive(Debug)]
pub(crate) struct Turn {
    back_off: Arc<BackOff>,
    origin: Origin,
    good: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.back_off.0.lock();
        if let Some(address) = state.addresses.get_mut(&self.origin) {
            let [of_good, of_others] = &mut address.turns;
            let taken = if self.good { of_good } else { of_others };
            *taken = taken.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    fn origin(text: &str) -> Origin {
        text.parse::<IpAddr>().unwrap().into()
    }

    fn token(number: u8) -> Option<TokenId> {
        Some(TokenId::from_bytes([number; 16]))
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_is_told_to_wait_longer_each_time_and_is_forgiven() {
        let (back_off, here) = (BackOff::default(), origin("10.0.0.1"));
        for _ in 0..FAILURES_FREE {
            assert_eq!(back_off.failed(here), None);
        }
        let waits: Vec<_> = (0..9).map(|_| back_off.failed(here).unwrap().as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(back_off.failed(origin("10.0.0.2")), None, "others are not affected");
        tokio::time::advance(FORGIVE_EVERY * (FAILURES_FREE + 10)).await;
        assert_eq!(back_off.failed(here), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_right_token_gets_through_from_an_address_that_is_backed_off() {
        let (back_off, here) = (Arc::new(BackOff::default()), origin("10.0.0.1"));
        back_off.succeeded(here, token(1).unwrap());
        let mut turns: Vec<_> =
            (0..LOOKUPS_PER_ORIGIN_MAX).map(|_| back_off.turn(here, None).unwrap()).collect();
        assert!(back_off.turn(here, token(9)).is_err(), "no address fills the queue");
        turns.truncate(0);
        for _ in 0..=FAILURES_FREE {
            back_off.failed(here);
        }
        for _ in 0..LOOKUPS_BACKED_OFF_MAX {
            turns.push(back_off.turn(here, None).unwrap());
        }
        assert_eq!(back_off.turn(here, token(2)).unwrap_err(), Duration::from_secs(1));
        turns.push(back_off.turn(here, token(1)).expect("shown from here before"));
        turns.push(back_off.turn(origin("10.0.0.2"), token(2)).expect("from elsewhere"));
        drop(turns);
        back_off.turn(here, token(2)).expect("a turn is free");
    }

    #[tokio::test(start_paused = true)]
    async fn addresses_and_tokens_that_are_remembered_are_bounded() {
        let back_off = Arc::new(BackOff::default());
        for n in 0..u32::try_from(ORIGINS_MAX + 100).unwrap() {
            let from = Origin::from(IpAddr::from(n.to_be_bytes()));
            back_off.failed(from);
            back_off.succeeded(from, token(1).unwrap());
        }
        let state = back_off.0.lock();
        assert_eq!((state.addresses.len(), state.good.len()), (ORIGINS_MAX, GOOD_TOKENS_MAX));
    }
}
