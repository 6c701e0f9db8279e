//! A round that cannot determine what is dead deletes nothing.

use holdfast_types::ids::ContainerClass;

use super::*;

/// (G5) A recipe that cannot be followed may need anything.
#[test]
fn nothing_goes_of_a_namespace_of_which_a_recipe_cannot_be_read() {
    let scene = Scene::new();
    let (disk, other) = (noise(1, 9 * MIB), noise(2, 9 * MIB));
    let dead = scene.backup("dead", &disk);
    scene.backup("hurt", &other);
    scene.delete(&dead);
    let recipes = scene.engine.catalog().all_containers().map(Result::unwrap);
    let recipe = recipes.filter(|one| one.class == ContainerClass::Recipe).max_by_key(|one| one.id).unwrap();
    let name = crate::container::ContainerName { id: recipe.id, class: recipe.class };
    let Scene { bench, volume, engine } = scene;
    drop(engine);
    // Before the start: what is open can still be read.
    volume.remove(&name.blob()).unwrap();
    let engine = bench.open(Arc::new(volume.clone()));
    let scene = Scene { bench, volume, engine };
    let report = scene.reclaim();
    assert_eq!(report.containers_deleted, 0, "{report:?}");
    assert!(!report.incomplete.is_empty());
}

/// (G6) The copy that the mark took is found damaged before the other goes.
#[test]
fn damage_found_during_a_round_keeps_other_copies() {
    let scene = Scene::new();
    let disk = noise(1, 9 * MIB);
    let kept = scene.backup("kept", &disk);
    let (core, _) = scene.engine.parts();
    let own: Vec<_> = scene.engine.catalog().all_containers().map(Result::unwrap).collect();
    let left = |one: &holdfast_catalog::ContainerRecord| crate::store::Leftover {
        id: one.id,
        class: one.class,
        stored_bytes: one.stored_bytes,
    };
    own.iter().for_each(|one| assert!(core.store.leftovers.condemn_unasked(one.id)));
    let copy = scene.backup("copy", &disk);
    core.store.leftovers.take_back(&own.iter().map(left).collect::<Vec<_>>());
    let newer: Vec<_> = scene.engine.catalog().all_containers().map(Result::unwrap).skip(own.len()).collect();
    assert_eq!(newer.len(), 2, "stored once more");
    let report = scene.reclaim_with(|step| {
        if step == RoundStep::Marked {
            newer.iter().for_each(|one| core.store.note_damage(one.id, None, "test"));
        }
    });
    assert_eq!(report.containers_deleted, 0, "{report:?}");
    newer.iter().for_each(|one| {
        let name = crate::container::ContainerName { id: one.id, class: one.class };
        scene.volume.remove(&name.blob()).unwrap();
    });
    assert!(scene.restores(&kept, &disk) && scene.restores(&copy, &disk));
}

/// Flips a byte in the middle of the newest data container, or takes it away, and lets the engine find that.
fn harm(scene: Scene, is_lost: bool) -> Scene {
    let all = scene.engine.catalog().all_containers().map(Result::unwrap);
    let newest = all.filter(|one| one.class == ContainerClass::Data).max_by_key(|one| one.id).unwrap();
    let name = crate::container::ContainerName { id: newest.id, class: newest.class }.blob();
    let Scene { bench, volume, engine } = scene;
    drop(engine);
    let mut bytes = volume.get(&name).unwrap().to_vec();
    if is_lost {
        volume.remove(&name).unwrap();
    } else {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        volume.replace(&name, bytes);
    }
    let engine = bench.open(Arc::new(volume.clone()));
    engine.scrub(&crate::jobs::Budget::unlimited(), &crate::NoProgress).unwrap();
    assert!(!engine.parts().0.store.open_damage().is_empty());
    Scene { bench, volume, engine }
}

/// (G6) Damage that no restore point needs to be whole goes with its container: nothing else ever closes it.
#[test]
fn what_is_damaged_and_needed_by_no_one_goes() {
    for is_lost in [false, true] {
        let mut scene = Scene::new();
        let kept = scene.backup("kept", &noise(2, 5 * MIB));
        let hurt = scene.backup("hurt", &noise(1, 9 * MIB));
        scene = harm(scene, is_lost);
        assert_eq!(scene.reclaim().containers_deleted, 0, "{is_lost}: it is needed");
        scene.delete(&hurt);
        let report = scene.reclaim();
        assert_eq!(report.containers_deleted, 2, "{is_lost}: {report:?}");
        assert_eq!(report.freed_bytes > 9 << 20, !is_lost, "{report:?}");
        assert!(scene.restores(&kept, &noise(2, 5 * MIB)));
        scene.is_sound();
        let scene = scene.reopened();
        scene.is_sound();
    }
}

/// (G6) While another restore point of the namespace lacks something, nothing with damage goes, however dead it looks.
#[test]
fn what_is_damaged_stays_while_something_is_lacking() {
    let mut scene = Scene::new();
    scene.backup("lacking", &noise(3, 9 * MIB));
    scene = harm(scene, false);
    let hurt = scene.backup("hurt", &noise(1, 9 * MIB));
    scene = harm(scene, false);
    scene.delete(&hurt);
    let report = scene.reclaim();
    assert_eq!(report.containers_deleted, 1, "the recipe: {report:?}");
    // A backup brings what is lacking.
    scene.backup("lacking", &noise(3, 9 * MIB));
    assert_eq!(scene.reclaim().containers_deleted, 1, "the data that no one needs");
}
