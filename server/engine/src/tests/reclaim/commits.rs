//! Copies that a commit finds in place of damaged ones: copies that no restore point needs.

use holdfast_catalog::Catalog;
use holdfast_proto::ErrorCode;

use super::*;
use crate::container::{ContainerName, RecentDirectories};
use crate::health::Health;
use crate::jobs::Budget;

/// A session that has only to be committed. It counts on containers of which the data is known to be damaged since; there
/// is another copy of all of it. No restore point needs either.
struct Waiting {
    scene: Scene,
    catalog: Arc<Catalog>,
    session: SessionId,
    disk: Vec<u8>,
    damaged: ContainerName,
}

impl Waiting {
    fn new() -> Self {
        Self::with(None)
    }

    /// `rotten`: the region that is known to be damaged; `None`: all of the container.
    fn with(rotten: Option<u16>) -> Self {
        let (bench, volume, health) = (Bench::new(), MemoryVolume::new(), Arc::<Health>::default());
        let catalog = Arc::new(bench.catalog(&health).unwrap());
        let shared: Arc<Catalog> = Arc::<Catalog>::clone(&catalog);
        let engine = Engine::assemble(bench.parts_with(Arc::new(volume.clone()), shared, health)).unwrap();
        let scene = Scene { bench, volume, engine };
        let disk = noise(1, 9 * MIB);
        let one = scene.backup("one", &disk);
        let session = scene.start("new", &disk);
        scene.send(session, &disk);
        let store = &scene.engine.parts().0.store;
        let own: Vec<_> = scene.engine.catalog().all_containers().map(Result::unwrap).collect();
        own.iter().for_each(|one| assert!(store.leftovers.condemn_unasked(one.id)));
        // Nothing is found for a while, so all of it is stored once more.
        let copy = scene.backup("copy", &disk);
        let left = own.iter().map(|one| crate::store::Leftover {
            id: one.id,
            class: one.class,
            stored_bytes: one.stored_bytes,
        });
        store.leftovers.take_back(&left.collect::<Vec<_>>());
        assert_eq!(scene.containers(), 2 * own.len() as u64);
        scene.delete(&one);
        scene.delete(&copy);
        let data = own.iter().find(|one| one.class == holdfast_types::ids::ContainerClass::Data).unwrap();
        let damaged = ContainerName { id: data.id, class: data.class };
        if rotten.is_some() {
            let mut bytes = scene.volume.get(&damaged.blob()).unwrap().to_vec();
            bytes[3000] ^= 1;
            scene.volume.replace(&damaged.blob(), bytes);
        }
        store.note_damage(data.id, rotten, "test");
        Self { scene, catalog, session, disk, damaged }
    }

    /// Restores without the damaged copy, now and after another round.
    fn restores(&self, backup: &str) {
        let _ = self.scene.volume.remove(&self.damaged.blob());
        for round in 0..2 {
            assert!(self.scene.restores(backup, &self.disk), "round {round}");
            self.scene.reclaim();
        }
    }
}

/// Row: chunks found at the commit. They are held from the look on (D1), and kept until the round has ended (G1).
#[test]
fn a_commit_within_a_round_finds_another_copy_or_is_refused() {
    for step in RoundStep::ALL {
        let waiting = Waiting::new();
        let committed = parking_lot::Mutex::new(None);
        let commit = || waiting.scene.engine.commit(waiting.session);
        waiting.scene.reclaim_with(|at| {
            if at == step {
                committed.lock().get_or_insert_with(commit);
            }
        });
        let is_there =
            matches!(step, RoundStep::Begun | RoundStep::Listed | RoundStep::Rooted | RoundStep::Marked);
        let backup = match committed.into_inner().unwrap_or_else(commit) {
            Ok(done) => {
                assert!(is_there, "{step:?}");
                done.backup_id
            }
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::SessionGone, "{step:?}: {error}");
                assert!(!is_there, "{step:?}: {error}");
                waiting.scene.backup("new", &waiting.disk)
            }
        };
        waiting.restores(&backup);
    }
}

/// Row: chunks found at the commit. A whole round comes between the look and the transaction.
#[test]
fn a_round_between_a_commit_s_look_and_its_transaction_keeps_what_it_found() {
    let waiting = Waiting::new();
    waiting.catalog.answer_busy(true);
    waiting.scene.engine.commit(waiting.session).unwrap_err();
    waiting.catalog.answer_busy(false);
    let report = waiting.scene.reclaim();
    assert!(report.containers_held > 0, "{report:?}");
    let done = waiting.scene.commit(waiting.session);
    waiting.restores(&done.backup_id);
}

/// (R7) The damage has healed, and the copy that healed it went with a round: nothing needed it but the session.
#[test]
fn a_commit_after_a_healing_looks_for_the_copy() {
    let waiting = Waiting::with(Some(0));
    let Waiting { scene, session, disk, .. } = &waiting;
    let is_healed = || scene.engine.catalog().damaged().unwrap()[0].healed;
    scene.engine.damage_job().step(&Budget::unlimited()).unwrap();
    assert!(is_healed());
    scene.reclaim();
    let error = scene.engine.commit(*session).unwrap_err();
    assert_eq!(error.code(), ErrorCode::SessionGone, "{error}");
    // (R8) Nothing makes up for it any more.
    assert!(!is_healed() && !scene.engine.parts().0.store.is_healed(waiting.damaged.id));
    let again = scene.backup("new", disk);
    scene.engine.damage_job().step(&Budget::unlimited()).unwrap();
    assert!(is_healed());
    assert!(scene.restores(&again, disk));
}

/// (R8) As long as nothing reads what is damaged nothing notices; a read that finds no copy does.
#[test]
fn a_read_that_finds_no_copy_opens_healed_damage_again() {
    let waiting = Waiting::with(Some(0));
    let Waiting { scene, damaged, .. } = &waiting;
    let core = scene.engine.parts().0;
    scene.engine.damage_job().step(&Budget::unlimited()).unwrap();
    scene.reclaim();
    assert!(core.store.is_healed(damaged.id));
    let open = core.store.containers.get(damaged.id, damaged.class).unwrap();
    let (name, _, _) = open.directory().iter().next().unwrap();
    let domain = core.store.domain(open.namespace());
    let generation = core.store.damage_generation(domain.namespace);
    let mut recent = RecentDirectories::default();
    let read = || core.store.read_chunk(&domain, damaged.class, &name, &mut RecentDirectories::default());
    // A look-up that only asks whether it is there has no effect: its agent sends the chunk.
    assert!(core.store.find(&domain, damaged.class, &name, &mut recent).unwrap().is_none());
    assert!(core.store.is_healed(damaged.id));
    assert_eq!(read().unwrap(), None);
    assert!(!core.store.is_healed(damaged.id) && core.store.has_open_damage(domain.namespace));
    assert!(!core.catalog.damaged().unwrap()[0].healed, "also after a restart");
    assert!(
        core.store.damage_generation(domain.namespace) > generation,
        "what was sound before is looked at"
    );
}
