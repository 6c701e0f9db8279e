//! Floods of calls, and what the audit log has of them.

use holdfast_engine::catalog::{AuditRecord, PageRequest};
use holdfast_engine::clock::ManualClock;

use super::*;

struct Bench {
    log: AuditLog,
    clock: Arc<ManualClock>,
    catalog: Arc<Catalog>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(1_763_700_000_000));
        let path = dir.path().join("catalog.db");
        let catalog = Arc::new(Catalog::create(&path, clock.clone()).unwrap());
        let log = AuditLog::new(catalog.clone(), clock.clone());
        Self { log, clock, catalog, _dir: dir }
    }

    fn entries(&self) -> Vec<AuditRecord> {
        let mut entries = Vec::new();
        let mut token = String::new();
        loop {
            let page = self.catalog.list_audit(PageRequest { size: 1000, token: &token }).unwrap();
            entries.extend(page.items);
            match page.next {
                Some(next) => token = next,
                None => return entries,
            }
        }
    }

    /// `count` calls, spread over as many addresses.
    fn flood(&self, count: u32, addresses: u32) {
        for number in 0..count {
            let address = Ipv4Addr::from(0x0a00_0000 + ((number % addresses) << 8));
            self.log.refused(Some(address.into()), "unknown token");
            self.clock.advance_ms(1);
        }
    }
}

fn counted(entries: &[AuditRecord]) -> u64 {
    entries.iter().map(|record| record.count).sum()
}

/// 11,000 failed logins from 40 addresses leave 40 entries, whose counts add up.
#[test]
fn failed_logins_are_all_counted_and_leave_an_entry_for_each_address() {
    let bench = Bench::new();
    bench.flood(11_000, 40);
    bench.log.flush().unwrap();
    let entries = bench.entries();
    let who: HashSet<&str> = entries.iter().map(|record| record.entry.who.as_str()).collect();
    assert_eq!((entries.len(), who.len(), counted(&entries)), (40, 40, 11_000));
    assert!(entries.iter().all(|record| record.count == 275), "each its own");
    let last = bench.clock.now_ms();
    let first = entries.iter().find(|record| record.entry.who == "10.0.0.0").unwrap();
    assert_eq!((first.at_ms, first.last_ms), (last - 11_000, last - 40));
    // The next window has entries of its own.
    bench.clock.advance_ms(AUDIT_WINDOW_MS);
    bench.flood(80, 40);
    bench.log.flush().unwrap();
    assert_eq!((bench.entries().len(), counted(&bench.entries())), (80, 11_080));
}

/// A flood from very many addresses is told in few entries, and none of it is left out.
#[test]
fn very_many_addresses_leave_few_entries_that_add_up() {
    let bench = Bench::new();
    bench.flood(11_000, 11_000);
    bench.log.flush().unwrap();
    let entries = bench.entries();
    assert!(entries.len() <= 256 + 64 + 1, "{} entries", entries.len());
    assert_eq!(counted(&entries), 11_000);
    let many = entries.iter().find(|record| record.entry.who == "many addresses").unwrap();
    let others = 11_000 - 256 - 64;
    assert_eq!(many.count, others);
    assert!(many.entry.detail.contains(&format!("from {others} further addresses")), "{many:?}");
}

/// The threads that look tokens up never wait for the catalog's writer, whatever is shown to them.
#[test]
fn refusals_only_count_and_stay_bounded() {
    let bench = Bench::new();
    for number in 0..3 * KEYS_MAX {
        let address = Ipv4Addr::from(0x0a00_0000 + ((u32::try_from(number).unwrap() % 40) << 8));
        bench.log.refused(Some(address.into()), &number.to_string());
    }
    assert_eq!(counted(&bench.entries()), 0, "a call writes nothing");
    assert!(bench.log.state.lock().events.len() <= KEYS_MAX + 40);
    bench.log.flush().unwrap();
    assert_eq!(counted(&bench.entries()), 3 * KEYS_MAX as u64);
    assert!(bench.entries().iter().any(|record| record.entry.object == MANY_TOKENS));
}

#[test]
fn reads_of_one_disk_are_one_entry_and_each_disk_is_there_at_once() {
    let bench = Bench::new();
    let entry = |disk: u32| AuditEntry {
        who: "agent".into(),
        action: "backup.read".into(),
        object: "backup".into(),
        detail: format!("disk {disk}"),
    };
    for disk in 0..3 {
        assert!(bench.log.note(entry(disk), disk.to_string()));
        assert_eq!(bench.entries().len(), 1 + disk as usize, "at once");
    }
    for _ in 0..1000 {
        assert!(!bench.log.note(entry(1), "1".into()));
    }
    assert_eq!(counted(&bench.entries()), 3);
    bench.log.flush().unwrap();
    assert_eq!((bench.entries().len(), counted(&bench.entries())), (3, 1003));
    bench.log.flush().unwrap();
    assert_eq!(counted(&bench.entries()), 1003, "what is written is not written again");
}

#[test]
fn memory_is_bounded_and_nothing_is_lost_by_it() {
    let bench = Bench::new();
    let count = KEYS_MAX * 2 + 10;
    for number in 0..count {
        let repeat = AuditEntry {
            who: (number % 100).to_string(),
            action: "login.refuse".into(),
            object: number.to_string(),
            detail: String::new(),
        };
        let mut state = bench.log.state.lock();
        state.count(AuditRepeat::once(repeat, number.to_string(), 1_763_700_000_000));
        let full = state.events.len() >= KEYS_MAX;
        assert!(state.events.len() <= KEYS_MAX);
        drop(state);
        if full {
            bench.log.flush().unwrap();
        }
    }
    bench.log.flush().unwrap();
    assert_eq!(counted(&bench.entries()), count as u64);
}

/// Counts that could not be written are kept, and written the next time.
#[test]
fn counts_survive_a_catalog_that_cannot_be_written_to() {
    let bench = Bench::new();
    bench.log.refused(None, "malformed");
    bench.log.refused(None, "malformed");
    let refused = bench.log.flush_by(|_| Err(CatalogError::Busy));
    assert!(matches!(refused, Err(CatalogError::Busy)));
    bench.clock.advance_ms(AUDIT_WINDOW_MS);
    let refused = bench.log.flush_by(|_| Err(CatalogError::Busy));
    assert!(matches!(refused, Err(CatalogError::Busy)), "nor does a new window lose them");
    bench.log.flush().unwrap();
    assert_eq!(counted(&bench.entries()), 2);
}

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
