//! Logins whose token has not arrived yet. Everyone may begin one, so they have places of their own, few for each
//! address; a newcomer always finds one, and the oldest of the address with too many is refused.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::limits::{LOGINS_MAX, LOGINS_PER_ORIGIN_MAX};
use crate::net::{Origin, Places, to_drop};

#[derive(Debug, Default)]
struct State {
    next: u64,
    places: Places,
    refuse: HashMap<u64, oneshot::Sender<()>>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Logins(Mutex<State>);

impl Logins {
    /// A login begins.
    pub(super) fn begin(self: &Arc<Self>, origin: Origin) -> Beginning {
        let mut state = self.0.lock();
        if let Some(number) = to_drop(&state.places, origin, LOGINS_PER_ORIGIN_MAX, LOGINS_MAX) {
            state.places.remove(&number);
            // It may have been completed just now.
            let _ = state.refuse.remove(&number).map(|refuse| refuse.send(()));
        }
        let number = state.next;
        state.next = number.wrapping_add(1);
        let (refuse, refused) = oneshot::channel();
        state.places.insert(number, origin);
        state.refuse.insert(number, refuse);
        Beginning { logins: Arc::clone(self), number, refused }
    }
}

/// A login whose token has not arrived yet.
#[derive(Debug)]
pub(super) struct Beginning {
    logins: Arc<Logins>,
    number: u64,
    refused: oneshot::Receiver<()>,
}

impl Beginning {
    /// Resolves when its place was given to another.
    pub(super) async fn refused(&mut self) {
        if (&mut self.refused).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Beginning {
    fn drop(&mut self) {
        let mut state = self.logins.0.lock();
        state.places.remove(&self.number);
        state.refuse.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[tokio::test]
    async fn a_newcomer_finds_a_place_and_the_oldest_of_many_loses_its_own() {
        let logins = Arc::new(Logins::default());
        let origin = |last: u8| Origin::from(IpAddr::from([10, 0, 0, last]));
        let mut other = logins.begin(origin(2));
        let mut mine: Vec<_> = (0..=LOGINS_PER_ORIGIN_MAX).map(|_| logins.begin(origin(1))).collect();
        mine[0].refused().await;
        assert!(mine[1..].iter_mut().all(|login| login.refused.try_recv().is_err()));
        let many: Vec<_> = (3..100).map(|last| logins.begin(origin(last))).collect();
        assert!(logins.0.lock().places.len() <= LOGINS_MAX);
        other.refused().await;
        drop((other, mine, many));
        assert!(logins.0.lock().places.is_empty() && logins.0.lock().refuse.is_empty());
    }
}
