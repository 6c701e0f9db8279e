//! Groups of containers that parity protects.

use holdfast_types::clock::Clock as _;
use holdfast_types::ids::ContainerId;

use super::cases;
use super::fixture::Fixture;
use crate::{CatalogError, ParityGroup, ParityTotals};

cases![a_group_protects_until_a_container_goes, a_container_is_in_one_group, a_damaged_group_is_replaced];

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
    f.add_parity_group(&group(900, &ids), None).unwrap();
    assert_eq!(free(None), []);
    let number = ContainerId::new(900).unwrap();
    assert_eq!(f.parity_group_of(ids[0]).unwrap(), Some(number));
    assert!(f.has_parity_group(number).unwrap() && f.broken_parity_groups(9).unwrap().is_empty());
    let totals = ParityTotals { groups: 1, stored_bytes: 7, containers: ids.len() as u64, damaged: 0 };
    assert_eq!(f.parity_totals().unwrap(), totals);
    f.condemn_containers(&ids[..1]).unwrap();
    assert_eq!(f.broken_parity_groups(9).unwrap(), [number]);
    assert_eq!(f.parity_groups(None, 9).unwrap(), [], "it protects no more");
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
    f.add_parity_group(&group(900, &ids[..1]), None).unwrap();
    let taken = f.add_parity_group(&group(900, &ids[1..]), None);
    assert!(matches!(taken, Err(CatalogError::Exists { .. })), "{taken:?}");
    for members in [vec![ids[0]], vec![ids[1], ContainerId::new(1 << 30).unwrap()]] {
        let refused = f.add_parity_group(&group(901, &members), None);
        assert!(matches!(refused, Err(CatalogError::Invalid { .. })), "{refused:?}");
        assert!(!f.has_parity_group(ContainerId::new(901).unwrap()).unwrap(), "nothing of it");
    }
}

fn a_damaged_group_is_replaced(f: &Fixture) {
    let made = f.committed("web", "nightly");
    let mut ids: Vec<ContainerId> = made.containers.iter().map(|container| container.id).collect();
    ids.sort_unstable();
    f.add_parity_group(&group(900, &ids), None).unwrap();
    let [old, new] = [900, 901].map(|number| ContainerId::new(number).unwrap());
    assert_eq!(f.parity_groups(None, 9).unwrap(), [(old, false)]);
    f.mark_parity_group(old, true).unwrap();
    f.mark_parity_group(new, true).unwrap();
    assert_eq!(f.parity_groups(None, 9).unwrap(), [(old, true)]);
    assert_eq!(f.parity_groups(Some(old), 9).unwrap(), []);
    assert_eq!((f.damaged_parity_groups(9).unwrap(), f.parity_totals().unwrap().damaged), (vec![old], 1));
    let members =
        || -> Vec<ContainerId> { f.parity_members(old).unwrap().into_iter().map(|one| one.id).collect() };
    assert_eq!(members(), ids);
    let lacking = group(901, &[ids[0], ContainerId::new(1 << 30).unwrap()]);
    assert!(f.add_parity_group(&lacking, Some(old)).is_err());
    assert_eq!(members(), ids, "one that cannot be made takes no one's place");
    f.add_parity_group(&group(901, &ids), Some(old)).unwrap();
    assert_eq!(f.parity_groups(None, 9).unwrap(), [(new, false)]);
    assert_eq!((f.parity_group_of(ids[0]).unwrap(), members()), (Some(new), vec![]));
    f.mark_parity_group(new, true).unwrap();
    f.mark_parity_group(new, false).unwrap();
    assert_eq!(f.damaged_parity_groups(9).unwrap(), []);
}
