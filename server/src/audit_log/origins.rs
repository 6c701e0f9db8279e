//! Names for where calls without a valid token come from: as exact as bounded memory allows.
//!
//! The first addresses of a network are named one by one, then the network stands for the others, and when there are
//! many networks, one name stands for what is left, with how many addresses that were. So an attacker with a network of
//! their own uses up that network's names only.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses named one by one.
const ADDRESSES_MAX: usize = 256;

/// Of one network.
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

/// The addresses of one window.
#[derive(Debug, Default)]
pub(super) struct Origins {
    named: HashSet<IpAddr>,
    named_of: HashMap<Network, usize>,
    networks: HashMap<Network, HashSet<IpAddr>>,
    others: HashSet<IpAddr>,
}

impl Origins {
    /// What the address is called in the audit log, and what else there is to say.
    pub(super) fn name(&mut self, peer: Option<IpAddr>) -> (String, String) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(addresses: impl IntoIterator<Item = IpAddr>) -> (HashSet<String>, String) {
        let mut origins = Origins::default();
        let mut last = String::new();
        let named = addresses.into_iter().map(|address| {
            let (who, detail) = origins.name(Some(address));
            last = detail;
            who
        });
        (named.collect(), last)
    }

    fn v4(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(number))
    }

    #[test]
    fn few_addresses_are_named_and_many_of_a_network_share_its_name() {
        let (named, _) = names((0..10).map(|n| v4(n << 16)));
        assert_eq!(named.len(), 10);
        let base = u32::from(Ipv4Addr::new(192, 0, 2, 0));
        let (named, detail) = names((0..256).map(|n| v4(base + n)));
        assert_eq!(named.len(), ADDRESSES_PER_NETWORK_MAX + 1);
        assert!(named.contains("192.0.2.0/24") && named.contains("192.0.2.3"), "{named:?}");
        assert!(detail.contains("from 240 further addresses; the latest from 192.0.2.255"), "{detail}");
    }

    #[test]
    fn a_network_of_ipv6_has_one_name_however_many_addresses() {
        let at = |n: u64| IpAddr::V6(Ipv6Addr::from(0x2001_0db8_0000_0001_u128 << 64 | u128::from(n)));
        let (named, detail) = names((0..100_000).map(at));
        assert_eq!(named.len(), ADDRESSES_PER_NETWORK_MAX + 1);
        assert!(named.contains("2001:db8:0:1::/64"), "{named:?}");
        assert!(detail.contains("at least 1024"), "{detail}");
        // An IPv4 address is the same however it is written.
        let mapped = IpAddr::V6(Ipv4Addr::new(192, 0, 2, 1).to_ipv6_mapped());
        assert_eq!(names([mapped]).0, HashSet::from(["192.0.2.1".to_owned()]));
    }

    #[test]
    fn very_many_networks_share_one_name_with_their_number() {
        let (named, detail) = names((0..50_000).map(|n| v4(n << 8)));
        assert_eq!(named.len(), ADDRESSES_MAX + NETWORKS_MAX + 1);
        assert!(named.contains("many addresses"));
        let others = 50_000 - ADDRESSES_MAX - NETWORKS_MAX;
        assert!(detail.contains(&format!("from {others} further addresses")), "{detail}");
    }
}
