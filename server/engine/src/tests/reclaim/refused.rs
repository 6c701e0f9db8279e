//! When nothing can be told of what is dead, nothing goes.

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
    own.iter().for_each(|one| core.store.leftovers.condemn_unasked(one.id));
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
