//! Addresses of this server as agents use them: those of the setting `advertise`, or else what the listener's own address
//! stands for.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use holdfast_proto::address::ServerAddress;
use holdfast_proto::join::ADDRESSES_MAX;

use super::Settings;

/// This machine's IPv4 routes, with its own addresses among them.
const IPV4_ROUTES: &str = "/proc/net/fib_trie";
/// This machine's IPv6 addresses.
const IPV6_ADDRESSES: &str = "/proc/net/if_inet6";

impl Settings {
    /// Addresses at which agents may reach the server that listens on `grpc`, to be tried in this order. "Any address"
    /// stands for those of this machine's interfaces and its name.
    pub fn advertised(&self, grpc: SocketAddr) -> Vec<ServerAddress> {
        let mut addresses: Vec<ServerAddress> = if !self.advertise.is_empty() {
            self.advertise.clone()
        } else if grpc.ip().is_unspecified() {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let own = own_addresses().into_iter().filter(|ip| grpc.is_ipv6() || ip.is_ipv4());
            let hosts = own.map(|ip| ip.to_string()).chain(std::iter::once(name));
            hosts.filter_map(|host| ServerAddress::new(&host, grpc.port()).ok()).collect()
        } else {
            vec![grpc.into()]
        };
        addresses.truncate(ADDRESSES_MAX);
        addresses
    }
}

/// This machine's addresses that others can reach: none of its loopback, and none that is valid on one link only.
fn own_addresses() -> Vec<IpAddr> {
    // Without /proc the host name remains.
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let mut own: Vec<IpAddr> = ipv4(&read(IPV4_ROUTES)).map(IpAddr::from).collect();
    own.extend(ipv6(&read(IPV6_ADDRESSES)).map(IpAddr::from));
    let mut seen = std::collections::HashSet::new();
    own.retain(|ip| seen.insert(*ip));
    own
}

/// The leaves of the trie that are addresses of this machine.
fn ipv4(trie: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut leaf = None;
    let own = trie.lines().filter_map(move |line| {
        if let Some(address) = line.trim_start().strip_prefix("|-- ") {
            leaf = address.parse().ok();
        }
        leaf.filter(|_| line.contains("/32 host LOCAL"))
    });
    own.filter(|ip: &Ipv4Addr| !ip.is_loopback() && !ip.is_link_local())
}

/// Lines of 32 digits, interface number, length of the prefix, scope, flags and name.
fn ipv6(table: &str) -> impl Iterator<Item = Ipv6Addr> {
    const GLOBAL: &str = "00";
    /// Temporary (RFC 8981) and deprecated ones, and those that another machine has, too.
    const PASSING: u8 = 0x01 | 0x20 | 0x08 | 0x40;
    table.lines().filter_map(|line| {
        let [digits, _, _, scope, flags, ..] = *line.split_whitespace().collect::<Vec<_>>() else {
            return None;
        };
        let passes = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & PASSING != 0);
        let address = u128::from_str_radix(digits, 16).ok()?;
        (scope == GLOBAL && !passes).then(|| Ipv6Addr::from(address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, resolve};

    const TRIE: &str = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     |-- 169.254.3.4
        /32 host LOCAL
     +-- 192.0.2.0/24 2 0 2
        |-- 192.0.2.2
           /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
";

    const TABLE: &str = "\
20010db8000000000000000000000002 04 40 00 82     eth0
20010db800000000000000000000abcd 04 40 00 01     eth0
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc00fffe000001 04 40 20 80     eth0
";

    #[test]
    fn addresses_that_others_reach_are_found() {
        assert_eq!(ipv4(TRIE).collect::<Vec<_>>(), [Ipv4Addr::new(192, 0, 2, 2)]);
        assert_eq!(ipv6(TABLE).map(|ip| ip.to_string()).collect::<Vec<_>>(), ["2001:db8::2"]);
        assert!(own_addresses().iter().all(|ip| !ip.is_loopback() && !ip.is_unspecified()));
    }

    #[test]
    fn what_is_set_is_advertised_and_nothing_else() {
        let listened = |words: &[&str], grpc: &str| {
            let advertise = words.iter().map(|word| word.parse().unwrap()).collect::<Vec<ServerAddress>>();
            let given = Given::default().with("advertise", Some(advertise)).unwrap();
            let settings = resolve(&given, None, &|_| None).unwrap().settings;
            let advertised = settings.advertised(grpc.parse().unwrap());
            advertised.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(
            listened(&["a.example", "[2001:db8::1]:9"], "0.0.0.0:1"),
            ["a.example:7440", "[2001:db8::1]:9"]
        );
        assert_eq!(listened(&[], "192.0.2.9:7450"), ["192.0.2.9:7450"]);
        let any = listened(&[], "[::]:7450");
        assert!(!any.is_empty() && any.iter().all(|address| address.ends_with(":7450")), "{any:?}");
    }
}
