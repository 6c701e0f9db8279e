//! Slots and their holders, seen from the connections.

use std::collections::HashSet;

use super::*;
use crate::limits::STRANGERS_PER_ORIGIN_MAX;

fn peer(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 4000))
}

fn token(number: u8) -> TokenId {
    TokenId::from_bytes([number; 16])
}

fn is_dropped(place: &Place) -> bool {
    place.link.closing() == Closing::Now
}

fn callers(door: &Arc<Door>, from: u8, tokens: impl IntoIterator<Item = u8>) -> Vec<Place> {
    let caller = |number| {
        let place = Place::take(door, peer(from)).expect("a slot");
        place.link.authenticated(token(number)).expect("within the budgets");
        place
    };
    tokens.into_iter().map(caller).collect()
}

#[tokio::test]
async fn silent_connections_never_keep_a_newcomer_out() {
    let door = Door::new(256);
    // From 20 addresses.
    let silent: Vec<_> = (0..20 * STRANGERS_PER_ORIGIN_MAX)
        .map(|n| Place::take(&door, peer(u8::try_from(n % 20).unwrap())).expect("a slot"))
        .collect();
    let held = silent.iter().filter(|place| !is_dropped(place)).count();
    assert_eq!(held, 192, "three quarters of the slots");
    let newcomer = Place::take(&door, peer(200)).expect("a newcomer always gets in");
    assert!(!is_dropped(&newcomer));
    newcomer.link.authenticated(token(1)).unwrap();
}

#[tokio::test]
async fn an_address_with_too_many_strangers_loses_its_oldest() {
    let door = Door::new(1024);
    let other = Place::take(&door, peer(2)).unwrap();
    let mut mine: Vec<_> =
        (0..STRANGERS_PER_ORIGIN_MAX).map(|_| Place::take(&door, peer(1)).unwrap()).collect();
    mine.push(Place::take(&door, peer(1)).unwrap());
    assert!(is_dropped(&mine[0]), "the oldest");
    assert!(mine[1..].iter().all(|place| !is_dropped(place)));
    assert!(!is_dropped(&other));
}

#[tokio::test]
async fn strangers_from_known_addresses_are_dropped_last() {
    let door = Door::new(8);
    drop(callers(&door, 1, [1]));
    let known = Place::take(&door, peer(1)).unwrap();
    let unknown: Vec<_> = (2..20).map(|from| Place::take(&door, peer(from)).unwrap()).collect();
    assert!(!is_dropped(&known), "others are dropped first, although it is the oldest");
    assert_eq!(unknown.iter().filter(|place| !is_dropped(place)).count(), 6);
}

#[tokio::test]
async fn callers_leave_slots_for_strangers_and_tokens_have_their_share() {
    let door = Door::new(16);
    let of_one = callers(&door, 1, [1; 8]);
    let ninth = Place::take(&door, peer(1)).unwrap();
    assert_eq!(ninth.link.authenticated(token(1)), Err(TooMany::OfToken(8)));
    let others = callers(&door, 2, 2..8);
    assert_eq!(of_one.len() + others.len(), 14);
    let last = Place::take(&door, peer(3)).unwrap();
    assert_eq!(last.link.authenticated(token(9)), Err(TooMany::InAll(14)));
    let health = Place::take(&door, peer(4)).expect("a health check finds a slot");
    assert!(!is_dropped(&health));
    assert!(
        of_one.iter().chain(&others).all(|place| !is_dropped(place)),
        "no caller with a token is dropped"
    );
}

#[tokio::test]
async fn connections_of_an_ended_token_are_closed() {
    let door = Door::new(8);
    let mut places = callers(&door, 1, [1, 2]);
    let both = Place::take(&door, peer(1)).unwrap();
    both.link.authenticated(token(1)).unwrap();
    both.link.authenticated(token(2)).unwrap();
    places.push(both);
    door.end_token(token(1));
    let closing: Vec<_> = places.iter().map(|place| place.link.closing()).collect();
    assert_eq!(closing, [Closing::Soon, Closing::Open, Closing::Hurry]);
    assert_eq!(door.tokens(), HashSet::from([token(2)]));
}
