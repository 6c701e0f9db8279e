//! Locks between processes.

use holdfast_types::clock::Clock;
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS};
use crate::{CatalogError, LEASE_MAX_MS, LEASE_NAME_MAX_BYTES, LeaseRecord};

cases![
    a_lease_has_one_holder_until_it_ends,
    a_released_lease_is_free_at_once,
    a_lost_lease_is_not_renewed,
    contradictory_leases_are_refused,
    of_many_that_acquire_at_once_one_does,
];

const ONE: Ulid = Ulid(1);
const TWO: Ulid = Ulid(2);

fn lease(owner: Ulid, until_ms: i64) -> LeaseRecord {
    LeaseRecord { name: "vm/web".into(), owner, until_ms: START_MS + until_ms }
}

fn a_lease_has_one_holder_until_it_ends(f: &Fixture) {
    assert_eq!(f.lease("vm/web").unwrap(), None);
    assert_eq!(f.acquire_lease(&lease(ONE, 1000)).unwrap(), None);
    assert_eq!(f.acquire_lease(&lease(TWO, 9000)).unwrap(), Some(lease(ONE, 1000)), "another holds it");
    assert_eq!(f.lease("vm/web").unwrap(), Some(lease(ONE, 1000)), "and it was not changed");
    assert_eq!(f.acquire_lease(&lease(ONE, 2000)).unwrap(), None, "its own holder may ask again");
    let other = LeaseRecord { name: "vm/db".into(), ..lease(TWO, 2000) };
    assert_eq!(f.acquire_lease(&other).unwrap(), None, "another name is another lease");
    f.clock.advance_ms(1999);
    assert_eq!(f.acquire_lease(&lease(TWO, 9000)).unwrap(), Some(lease(ONE, 2000)));
    f.clock.advance_ms(1);
    assert_eq!(f.lease("vm/web").unwrap(), None, "it has ended");
    assert_eq!(f.acquire_lease(&lease(TWO, 9000)).unwrap(), None);
    assert_eq!(f.lease("vm/web").unwrap(), Some(lease(TWO, 9000)));
}

fn a_released_lease_is_free_at_once(f: &Fixture) {
    f.acquire_lease(&lease(ONE, 1000)).unwrap();
    f.release_lease("vm/web", TWO).unwrap();
    assert_eq!(f.lease("vm/web").unwrap(), Some(lease(ONE, 1000)), "only its holder can give it up");
    f.release_lease("vm/web", ONE).unwrap();
    f.release_lease("vm/web", ONE).unwrap();
    f.release_lease("never/taken", ONE).unwrap();
    assert_eq!(f.acquire_lease(&lease(TWO, 1000)).unwrap(), None);
}

fn a_lost_lease_is_not_renewed(f: &Fixture) {
    let lost = |lease| {
        let error = f.renew_lease(&lease).unwrap_err();
        assert!(matches!(error, CatalogError::NotFound { what: "lease", .. }), "{error}");
        assert!(error.to_string().contains("vm/web"), "{error}");
    };
    lost(lease(ONE, 1000));
    f.acquire_lease(&lease(ONE, 1000)).unwrap();
    lost(lease(TWO, 2000));
    f.renew_lease(&lease(ONE, 3000)).unwrap();
    assert_eq!(f.lease("vm/web").unwrap(), Some(lease(ONE, 3000)));
    f.clock.advance_ms(3000);
    // No one has it, but another could have had it meanwhile.
    lost(lease(ONE, 5000));
    f.acquire_lease(&lease(TWO, 5000)).unwrap();
    lost(lease(ONE, 6000));
}

fn contradictory_leases_are_refused(f: &Fixture) {
    let now_ms = f.clock.now_ms();
    let good = lease(ONE, LEASE_MAX_MS);
    for bad in [
        LeaseRecord { name: String::new(), ..good.clone() },
        LeaseRecord { name: "x".repeat(LEASE_NAME_MAX_BYTES + 1), ..good.clone() },
        LeaseRecord { until_ms: now_ms, ..good.clone() },
        LeaseRecord { until_ms: now_ms + LEASE_MAX_MS + 1, ..good.clone() },
        LeaseRecord { until_ms: i64::MAX, ..good.clone() },
    ] {
        assert!(matches!(f.acquire_lease(&bad), Err(CatalogError::Invalid { .. })), "{bad:?}");
        assert!(matches!(f.renew_lease(&bad), Err(CatalogError::Invalid { .. })), "{bad:?}");
    }
    f.acquire_lease(&good).unwrap();
}

fn of_many_that_acquire_at_once_one_does(f: &Fixture) {
    let holders: Vec<bool> = std::thread::scope(|scope| {
        let asking: Vec<_> = (1..=8)
            .map(|owner| scope.spawn(move || f.acquire_lease(&lease(Ulid(owner), 1000)).unwrap().is_none()))
            .collect();
        asking.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(holders.iter().filter(|held| **held).count(), 1, "{holders:?}");
}
