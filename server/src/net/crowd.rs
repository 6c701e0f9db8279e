//! A bounded set of places for peers that nothing is known about. A newcomer always gets one: when there are too many
//! from its address the oldest of these loses its place, and when there are too many in all, the oldest of the address
//! that holds most. So no address can keep another out, and silence only costs the one who is silent.

use std::collections::{BTreeMap, HashMap};

use super::origin::Origin;

/// Who holds a place; ordered by age, as numbers are given in order.
pub(crate) type Places = BTreeMap<u64, Origin>;

/// The one to lose its place before another of `origin` may come in, if any.
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
