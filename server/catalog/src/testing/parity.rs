//! Groups of containers that parity protects.

use holdfast_types::clock::Clock as _;
use holdfast_types::ids::ContainerId;

use super::cases;
use super::fixture::Fixture;
use crate::{CatalogError, ParityGroup, ParityTotals};

cases![a_group_protects_until_a_container_goes, a_container_is_in_one_group];

fn group(number: u64, members: &[ContainerId]) -> ParityGroup {
    let number = ContainerId::new(number).unwrap();
    ParityGroup { number, members: members.to_vec(), stored_bytes: 7, created_ms: 3 }
}

fn a_group_protects_until_a_container_goes(f: &Fixture) {
    let made = f.committed("web", "nightly");
    let ids: Vec<ContainerId> = made.containers.iter().map(|container| container.id).collect();
    let later = f.clock.now_ms() + 1_000_000_000;
    let free = |after| -> Vec<ContainerId> {
        f.without_parity(after, later, 10).unwrap().into_iter().map(|one| one.id).collect()
    };
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    assert_eq!(free(None), sorted);
    assert_eq!(free(Some(sorted[0])), sorted[1..]);
    assert_eq!(f.without_parity(None, 0, 10).unwrap(), [], "all are younger");
    f.add_parity_group(&group(900, &ids)).unwrap();
    assert_eq!(free(None), []);
    let number = ContainerId::new(900).unwrap();
    assert_eq!(f.parity_group_of(ids[0]).unwrap(), Some(number));
    assert!(f.has_parity_group(number).unwrap() && f.broken_parity_groups(9).unwrap().is_empty());
    let totals = ParityTotals { groups: 1, stored_bytes: 7, containers: ids.len() as u64 };
    assert_eq!(f.parity_totals().unwrap(), totals);
    f.condemn_containers(&ids[..1]).unwrap();
    assert_eq!(f.broken_parity_groups(9).unwrap(), [number]);
    f.remove_condemned(&ids[..1]).unwrap();
    assert_eq!(f.broken_parity_groups(9).unwrap(), [number]);
    f.remove_parity_group(number).unwrap();
    f.remove_parity_group(number).unwrap();
    assert!(!f.has_parity_group(number).unwrap());
    assert_eq!(f.parity_group_of(ids[1]).unwrap(), None);
    assert_eq!(free(None).len(), ids.len() - 1, "the others are free for another group");
    assert_eq!(f.parity_totals().unwrap(), ParityTotals::default());
}

fn a_container_is_in_one_group(f: &Fixture) {
    let made = f.committed("web", "nightly");
    let ids: Vec<ContainerId> = made.containers.iter().map(|container| container.id).collect();
    f.add_parity_group(&group(900, &ids[..1])).unwrap();
    let taken = f.add_parity_group(&group(900, &ids[1..]));
    assert!(matches!(taken, Err(CatalogError::Exists { .. })), "{taken:?}");
    for members in [vec![ids[0]], vec![ids[1], ContainerId::new(1 << 30).unwrap()]] {
        let refused = f.add_parity_group(&group(901, &members));
        assert!(matches!(refused, Err(CatalogError::Invalid { .. })), "{refused:?}");
        assert!(!f.has_parity_group(ContainerId::new(901).unwrap()).unwrap(), "nothing of it");
    }
}
