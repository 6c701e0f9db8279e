//! Container numbers, records and damage.

use holdfast_types::ids::{ContainerClass, ContainerId, NamespaceId, RunId};
use ulid::Ulid;

use super::cases;
use super::fixture::{Fixture, START_MS};
use crate::{CatalogError, ContainerRecord, ContainerState, DamageChanges, DamageRecord, RowStatus};

cases![
    numbers_are_handed_out_once,
    numbers_stay_above_adopted_containers,
    adoption_is_idempotent,
    adoption_knows_its_limits,
    damage_is_kept_until_cleared,
    damage_is_told_by_what_changed,
    reports_go_with_their_container,
    healed_damage_stays_known,
    settled_containers_never_go_back,
    sealed_containers_count_for_nothing_until_they_are_taken,
    only_condemned_containers_are_forgotten,
    containers_are_replaced_in_one_step,
    containers_are_compressed_anew_once_at_a_level,
    walks_see_everything,
    samples_are_evenly_spaced,
    what_a_failed_attempt_stored_is_told_while_it_is_there,
];

fn numbers_are_handed_out_once(f: &Fixture) {
    let first = f.reserve_container_numbers(5).unwrap();
    assert_eq!(first, 1..6, "0 is never used");
    assert_eq!(f.reserve_container_numbers(0).unwrap(), 6..6);
    assert_eq!(f.reserve_container_numbers(1).unwrap(), 6..7);
    let threads: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..10).flat_map(|_| f.reserve_container_numbers(3).unwrap()).collect::<Vec<_>>()
                })
            })
            .collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    let distinct: std::collections::BTreeSet<_> = threads.iter().copied().collect();
    assert_eq!((threads.len(), distinct), (120, (7..127).collect()));
}

fn orphan(f: &Fixture, number: u64) -> ContainerRecord {
    ContainerRecord {
        id: ContainerId::new(number).unwrap(),
        class: ContainerClass::Data,
        namespace: f.default.id,
        stored_bytes: 1000,
        plain_bytes: 2000,
        chunk_count: 3,
        created_ms: START_MS - 7,
        run: None,
        state: ContainerState::Live,
    }
}

fn containers_are_compressed_anew_once_at_a_level(f: &Fixture) {
    let recipe = ContainerRecord { class: ContainerClass::Recipe, ..orphan(f, 2) };
    let young = ContainerRecord { created_ms: START_MS, ..orphan(f, 3) };
    f.add_containers(&[orphan(f, 1), recipe, young, orphan(f, 4), orphan(f, 5)]).unwrap();
    let numbers = |level, after: Option<u64>, limit| -> Vec<u64> {
        let after = after.and_then(ContainerId::new);
        let found = f.squeezable_containers(level, START_MS, after, limit).unwrap();
        found.iter().map(|container| container.id.get()).collect()
    };
    assert_eq!(numbers(9, None, 10), [1, 4, 5]);
    assert_eq!(numbers(9, Some(1), 1), [4]);
    let id = |number| ContainerId::new(number).unwrap();
    f.note_squeezed(&[id(1), id(99)], 15).unwrap();
    f.note_squeezed(&[id(1), id(4)], 9).unwrap();
    assert_eq!((numbers(9, None, 10), numbers(10, None, 10)), (vec![5], vec![4, 5]));
    assert_eq!(numbers(16, None, 10), [1, 4, 5], "a higher level is worth another look");
    f.condemn_containers(&[id(1)]).unwrap();
    f.remove_condemned(&[id(1)]).unwrap();
    assert_eq!(numbers(16, None, 10), [4, 5]);
}

fn only_condemned_containers_are_forgotten(f: &Fixture) {
    let containers = [orphan(f, 1), orphan(f, 2)];
    let [one, two] = [containers[0].id, containers[1].id];
    f.add_containers(&containers).unwrap();
    f.mark_region_damaged(one, 3, "bad checksum").unwrap();
    f.condemn_containers(&[one, ContainerId::new(9).unwrap()]).unwrap();
    assert_eq!(f.condemned_containers().unwrap().iter().map(|c| c.id).collect::<Vec<_>>(), [one]);
    assert!(matches!(f.remove_condemned(&[one, two]), Err(CatalogError::Invalid { .. })));
    assert!(f.container(one).unwrap().is_some(), "all or none");
    f.remove_condemned(&[one]).unwrap();
    f.remove_condemned(&[one]).unwrap();
    assert_eq!((f.container(one).unwrap(), f.damaged().unwrap()), (None, Vec::new()));
    assert_eq!(f.container(two).unwrap().unwrap().state, ContainerState::Live);
    assert_eq!(f.reserve_container_numbers(1).unwrap(), 3..4, "no number is used again");
}

fn containers_are_replaced_in_one_step(f: &Fixture) {
    let [one, two, copy, other] = [1, 2, 3, 4].map(|number| orphan(f, number));
    f.add_containers(&[one.clone(), two.clone()]).unwrap();
    let foreign = ContainerRecord { namespace: NamespaceId(Ulid(1)), ..other };
    assert!(f.replace_containers(&[copy.clone(), foreign], &[one.id]).is_err());
    assert_eq!(f.condemned_containers().unwrap(), [], "all or nothing");
    assert_eq!(f.container(copy.id).unwrap(), None, "all or nothing");
    let unknown = ContainerId::new(9).unwrap();
    f.replace_containers(std::slice::from_ref(&copy), &[one.id, unknown]).unwrap();
    assert_eq!(f.container(copy.id).unwrap(), Some(copy));
    assert_eq!(f.container(two.id).unwrap(), Some(two));
    assert_eq!(f.condemned_containers().unwrap().iter().map(|c| c.id).collect::<Vec<_>>(), [one.id]);
    assert_eq!(f.reserve_container_numbers(1).unwrap(), 4..5, "above the copy's");
    f.replace_containers(&[], &[]).unwrap();
}

fn numbers_stay_above_adopted_containers(f: &Fixture) {
    f.add_containers(&[orphan(f, 1000), orphan(f, 20)]).unwrap();
    assert_eq!(f.reserve_container_numbers(1).unwrap(), 1001..1002);
    let last = (1 << ContainerId::BITS) - 1;
    f.add_containers(&[orphan(f, last - 1)]).unwrap();
    assert_eq!(f.reserve_container_numbers(1).unwrap(), last..last + 1);
    assert!(matches!(f.reserve_container_numbers(1), Err(CatalogError::Invalid { .. })));
    assert_eq!(f.reserve_container_numbers(0).unwrap(), last + 1..last + 1);
}

fn adoption_is_idempotent(f: &Fixture) {
    f.add_containers(&[]).unwrap();
    let containers = [orphan(f, 1), orphan(f, 2)];
    f.add_containers(&containers).unwrap();
    f.mark_container_damaged(containers[0].id, "bad directory").unwrap();
    f.add_containers(&containers).unwrap();
    assert_eq!(f.container(containers[0].id).unwrap().unwrap().state, ContainerState::Damaged, "still known");
    assert_eq!(f.container(containers[1].id).unwrap(), Some(containers[1].clone()));
    assert_eq!(f.container(ContainerId::new(3).unwrap()).unwrap(), None);

    // Adopted first, then claimed by the commit that wrote it.
    let commit = f.commit("web", "nightly");
    let unclaimed: Vec<_> =
        commit.containers.iter().map(|c| ContainerRecord { run: None, created_ms: 3, ..c.clone() }).collect();
    f.add_containers(&unclaimed).unwrap();
    f.commit_backup(&commit).unwrap();
    for (container, unclaimed) in commit.containers.iter().zip(&unclaimed) {
        let found = f.container(container.id).unwrap().unwrap();
        assert_eq!(found, ContainerRecord { run: Some(commit.attempt.run), ..unclaimed.clone() });
    }
}

fn adoption_knows_its_limits(f: &Fixture) {
    let known = orphan(f, 5);
    f.add_containers(std::slice::from_ref(&known)).unwrap();
    let other = ContainerRecord { stored_bytes: 1001, ..known.clone() };
    let error = f.add_containers(&[orphan(f, 6), other]).unwrap_err();
    assert!(error.to_string().contains("1000") && error.to_string().contains("1001"), "{error}");
    assert_eq!(f.container(ContainerId::new(6).unwrap()).unwrap(), None, "all or nothing");

    let foreign = ContainerRecord { namespace: NamespaceId(Ulid(1)), ..orphan(f, 7) };
    assert!(matches!(f.add_containers(&[foreign]), Err(CatalogError::NotFound { what: "namespace", .. })));
    let of_lost_run = ContainerRecord { run: Some(RunId(Ulid(1))), ..orphan(f, 8) };
    f.add_containers(&[of_lost_run]).unwrap();
    assert_eq!(f.container(ContainerId::new(8).unwrap()).unwrap().unwrap().run, None);
    let huge = ContainerRecord { plain_bytes: u64::MAX, ..orphan(f, 9) };
    assert!(matches!(f.add_containers(&[huge]), Err(CatalogError::Invalid { .. })));
}

fn damage_is_kept_until_cleared(f: &Fixture) {
    let ids = [1, 2].map(|number| ContainerId::new(number).unwrap());
    f.add_containers(&[orphan(f, 1), orphan(f, 2)]).unwrap();
    let state = |id| f.container(id).unwrap().unwrap().state;
    f.mark_region_damaged(ids[1], 4095, "checksum").unwrap();
    f.mark_region_damaged(ids[1], 3, &"ä".repeat(1500)).unwrap();
    assert_eq!(state(ids[1]), ContainerState::Live);
    f.mark_container_damaged(ids[0], "truncated").unwrap();
    f.clock.advance_ms(10);
    f.mark_container_damaged(ids[0], "something else").unwrap();
    assert_eq!(state(ids[0]), ContainerState::Damaged);
    let damage = |container, region, reason: &str| DamageRecord {
        container,
        region,
        reason: reason.into(),
        found_ms: START_MS,
        healed: false,
    };
    let expected = [
        damage(ids[0], None, "truncated"),
        damage(ids[1], Some(3), &"ä".repeat(1000)),
        damage(ids[1], Some(4095), "checksum"),
    ];
    assert_eq!(f.damaged().unwrap(), expected);
    // Damage that is not named stays as it is.
    f.clear_damage(ids[0], &[Some(0)]).unwrap();
    assert_eq!((state(ids[0]), f.damaged().unwrap()), (ContainerState::Damaged, expected.to_vec()));
    f.clear_damage(ids[0], &[None]).unwrap();
    assert_eq!(state(ids[0]), ContainerState::Live);
    assert_eq!(f.damaged().unwrap(), expected[1..]);
    f.clear_damage(ids[1], &[None, Some(4095)]).unwrap();
    assert_eq!(f.damaged().unwrap(), expected[1..2]);
    f.clear_damage(ids[1], &[Some(3)]).unwrap();
    f.clear_damage(ids[1], &[Some(3)]).unwrap();
    assert_eq!(f.damaged().unwrap(), []);

    let unknown = ContainerId::new(77).unwrap();
    assert!(matches!(f.mark_container_damaged(unknown, "x"), Err(CatalogError::NotFound { .. })));
    assert!(matches!(f.mark_region_damaged(unknown, 0, "x"), Err(CatalogError::NotFound { .. })));
    assert!(matches!(f.clear_damage(unknown, &[None]), Err(CatalogError::NotFound { .. })));
    assert!(matches!(f.mark_region_damaged(ids[0], 4096, "x"), Err(CatalogError::Invalid { .. })));
}

fn reports_go_with_their_container(f: &Fixture) {
    let ids = [1, 2].map(|number| ContainerId::new(number).unwrap());
    f.add_containers(&[orphan(f, 1), orphan(f, 2)]).unwrap();
    for (id, region) in [(ids[1], 4095), (ids[1], 3), (ids[0], 0), (ids[1], 3)] {
        f.note_report(id, region).unwrap();
    }
    let all = [(ids[0], 0), (ids[1], 3), (ids[1], 4095)];
    assert_eq!(f.reported_regions().unwrap(), all);
    assert_eq!(f.damaged().unwrap(), [], "a report is no damage");
    f.forget_report(ids[1], 3).unwrap();
    f.forget_report(ids[1], 3).unwrap();
    f.condemn_containers(&ids[..1]).unwrap();
    f.remove_condemned(&ids[..1]).unwrap();
    assert_eq!(f.reported_regions().unwrap(), [(ids[1], 4095)]);
    let unknown = ContainerId::new(77).unwrap();
    assert!(matches!(f.note_report(unknown, 0), Err(CatalogError::NotFound { .. })));
}

fn healed_damage_stays_known(f: &Fixture) {
    let ids = [1, 2].map(|number| ContainerId::new(number).unwrap());
    f.add_containers(&[orphan(f, 1), orphan(f, 2)]).unwrap();
    let healed = || f.damaged().unwrap().iter().map(|one| one.healed).collect::<Vec<_>>();
    f.mark_region_damaged(ids[0], 7, "checksum").unwrap();
    f.mark_container_damaged(ids[1], "truncated").unwrap();
    assert_eq!(healed(), [false, false]);
    let before = f.damage_changed_since(0).unwrap().last;
    f.heal_damage(ids[0]).unwrap();
    f.heal_damage(ids[0]).unwrap();
    assert_eq!(healed(), [true, false]);
    assert_eq!(f.damage_changed_since(before).unwrap().containers, [ids[0]], "another process learns it");
    f.mark_region_damaged(ids[0], 8, "checksum").unwrap();
    assert_eq!(healed(), [true, false, false], "what is found later is open");
    let last = f.damage_changed_since(0).unwrap().last;
    f.reopen_damage(ids[0]).unwrap();
    f.reopen_damage(ids[0]).unwrap();
    assert_eq!(healed(), [false, false, false], "the other copies are gone");
    assert_eq!(f.damage_changed_since(last).unwrap().last, last + 1, "another process learns it, once");
    let unknown = ContainerId::new(4000).unwrap();
    assert!(matches!(f.heal_damage(unknown), Err(CatalogError::NotFound { .. })));
    assert!(matches!(f.reopen_damage(unknown), Err(CatalogError::NotFound { .. })));
}

fn sealed_containers_count_for_nothing_until_they_are_taken(f: &Fixture) {
    f.note_sealed_containers(&[orphan(f, 1), orphan(f, 2)]).unwrap();
    f.note_sealed_containers(&[orphan(f, 2)]).unwrap();
    assert_eq!(f.sealed_containers().unwrap(), 2);
    assert_eq!(f.container(orphan(f, 1).id).unwrap(), None);
    f.add_containers(&[orphan(f, 1)]).unwrap();
    assert_eq!(f.sealed_containers().unwrap(), 1, "taken");
    f.note_sealed_containers(&[orphan(f, 1)]).unwrap();
    assert_eq!(f.sealed_containers().unwrap(), 1, "known already");
    assert_eq!(f.adopt_sealed_containers().unwrap(), 1);
    assert_eq!(f.container(orphan(f, 2).id).unwrap(), Some(orphan(f, 2)));
    assert_eq!((f.adopt_sealed_containers().unwrap(), f.sealed_containers().unwrap()), (0, 0));
    assert_eq!(f.reserve_container_numbers(1).unwrap(), 3..4);
}

fn settled_containers_never_go_back(f: &Fixture) {
    assert_eq!(f.settled_containers().unwrap(), 0);
    f.settle_containers(70).unwrap();
    f.settle_containers(7).unwrap();
    assert_eq!(f.settled_containers().unwrap(), 70);
}

fn damage_is_told_by_what_changed(f: &Fixture) {
    let ids = [1, 2, 3].map(|number| ContainerId::new(number).unwrap());
    f.add_containers(&[orphan(f, 1), orphan(f, 2), orphan(f, 3)]).unwrap();
    let since = |change| f.damage_changed_since(change).unwrap();
    assert_eq!(since(0), DamageChanges { containers: vec![], damage: vec![], last: 0 });
    f.mark_region_damaged(ids[1], 7, "checksum").unwrap();
    f.mark_container_damaged(ids[0], "truncated").unwrap();
    let all = since(0);
    assert_eq!((&all.containers, &all.damage), (&ids[..2].to_vec(), &f.damaged().unwrap()));

    // Damage known already is no change.
    f.mark_region_damaged(ids[1], 7, "again").unwrap();
    f.clear_damage(ids[2], &[None]).unwrap();
    assert_eq!(since(all.last), DamageChanges { containers: vec![], damage: vec![], last: all.last });

    // Whatever the clock does, and wherever it was found before.
    f.clock.advance_ms(-5000);
    f.mark_region_damaged(ids[1], 3, "checksum").unwrap();
    let more = since(all.last);
    assert_eq!(more.containers, [ids[1]]);
    assert_eq!(more.damage.iter().map(|d| d.region).collect::<Vec<_>>(), [Some(3), Some(7)]);
    f.clear_damage(ids[0], &[None]).unwrap();
    let cleared = since(more.last);
    assert_eq!((cleared.containers, cleared.damage), (vec![ids[0]], vec![]), "sound again");
    assert!(cleared.last > more.last && more.last > all.last);
    f.mark_container_damaged(ids[0], "truncated again").unwrap();
    assert_eq!(since(cleared.last).damage[0].reason, "truncated again");
    assert_eq!(since(u64::MAX).containers, []);
}

fn walks_see_everything(f: &Fixture) {
    assert_eq!(f.all_containers().count(), 0);
    assert_eq!(f.all_roots().count(), 0);
    let containers: Vec<_> = (1..=2500).rev().map(|number| orphan(f, number)).collect();
    f.add_containers(&containers).unwrap();
    let seen: Vec<u64> = f.all_containers().map(|c| c.unwrap().id.get()).collect();
    assert_eq!(seen, (1..=2500).collect::<Vec<_>>());
    let three = f.containers(ContainerId::new(1000), 3).unwrap();
    assert_eq!(three.iter().map(|c| c.id.get()).collect::<Vec<_>>(), [1001, 1002, 1003]);

    let commits = [f.committed("web", "nightly"), f.committed("db", "nightly")];
    let roots: Vec<_> = f.all_roots().map(|root| root.unwrap()).collect();
    let expected: Vec<_> = commits
        .iter()
        .flat_map(|c| c.disks.iter().map(|d| (c.backup, d.name.clone(), d.size_bytes, d.root)))
        .collect();
    assert_eq!(
        roots.iter().map(|r| (r.backup, r.disk.clone(), r.size_bytes, r.root)).collect::<Vec<_>>(),
        expected
    );
    assert_eq!(f.roots(Some((commits[0].backup, 0)), 2).unwrap(), roots[1..3]);
}

fn samples_are_evenly_spaced(f: &Fixture) {
    let sample = |max| f.sample_containers(ContainerClass::Data, max).unwrap();
    assert_eq!(sample(5), (vec![], 0));
    for n in 0..10 {
        f.committed(&format!("vm-{n}"), "nightly");
    }
    let all: Vec<_> = f.all_containers().map(|c| c.unwrap()).collect();
    f.mark_container_damaged(all[0].id, "bad").unwrap();
    let live: Vec<_> = all[1..].iter().filter(|c| c.class == ContainerClass::Data).map(|c| c.id).collect();
    let total = live.len() as u64;
    assert_eq!(total, 29);
    for max in [0u32, 1, 2, 7, 28, 29, 30, u32::MAX] {
        let (found, count) = sample(max);
        assert_eq!(count, total);
        assert_eq!(found.len() as u64, total.min(max.into()), "{max}");
        // The first of each of as many equal parts.
        let parts = u64::from(max).min(total);
        let first = |part: u64| live[usize::try_from((part * total).div_ceil(parts)).unwrap()];
        assert_eq!(found, (0..parts).map(first).collect::<Vec<_>>(), "{max}");
    }
    assert_eq!(f.sample_containers(ContainerClass::Recipe, 100).unwrap().1, 10);
}

fn what_a_failed_attempt_stored_is_told_while_it_is_there(f: &Fixture) {
    let commit = f.committed("db", "nightly");
    let run = commit.attempt.run;
    assert_eq!(f.left_of_run(run).unwrap(), 0, "a restore point has it");
    let mut failed = f.failed("web", "nightly", RowStatus::Failed);
    failed.attempt.run = run;
    failed.details[0].run = run.to_string();
    failed.containers[0].run = Some(run);
    f.record_failed_run(&failed).unwrap();
    let mut again = f.failed("web", "nightly", RowStatus::Failed);
    again.attempt.run = run;
    again.details[0].run = run.to_string();
    again.containers[0].run = Some(run);
    f.record_failed_run(&again).unwrap();
    assert_eq!(f.left_of_run(run).unwrap(), 2 * 4096);
    f.condemn_containers(&[failed.containers[0].id]).unwrap();
    assert_eq!(f.left_of_run(run).unwrap(), 4096, "condemned");
    f.condemn_containers(&[again.containers[0].id]).unwrap();
    f.remove_condemned(&[failed.containers[0].id, again.containers[0].id]).unwrap();
    assert_eq!(f.left_of_run(run).unwrap(), 0, "gone");
}
