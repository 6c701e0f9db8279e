//! A catalog that lost rows: what only it lost is entered again, and what can need anything is not deleted meanwhile.

use std::sync::Arc;

use holdfast_catalog::Catalog;
use holdfast_types::ids::{BackupId, SessionId};
use holdfast_volume::MemoryVolume;

use super::agent::{backup, request, restore, send_disk, start};
use super::{Bench, noise};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::health::{Health, Obstacle};
use crate::jobs::Budget;
use crate::reclaim::{Control, ReclaimOptions, ReclaimReport};

const SIZE: usize = 9 << 20;

struct Scene {
    bench: Bench,
    volume: MemoryVolume,
    engine: Engine,
    catalog: Arc<Catalog>,
    /// Two VMs of one restore point each.
    points: Vec<(BackupId, Vec<u8>)>,
}

fn open(bench: &Bench, volume: &MemoryVolume) -> (Engine, Arc<Catalog>) {
    let health = Arc::<Health>::default();
    let catalog = Arc::new(bench.catalog(&health).unwrap());
    let shared: Arc<Catalog> = Arc::<Catalog>::clone(&catalog);
    let parts = bench.parts_with(Arc::new(volume.clone()), shared, health);
    (Engine::assemble(parts).unwrap(), catalog)
}

impl Scene {
    fn new() -> Self {
        let (bench, volume) = (Bench::new(), MemoryVolume::new());
        let (engine, catalog) = open(&bench, &volume);
        let one = |n: u64| {
            let disk = noise(n, SIZE);
            (
                backup(&engine, &format!("vm-{n}"), &[("root", &disk)]).unwrap().backup_id.parse().unwrap(),
                disk,
            )
        };
        let points = (0..2).map(one).collect();
        Self { bench, volume, engine, catalog, points }
    }

    fn reopen(self, clean: bool) -> Self {
        self.reopen_after(clean, |_| {})
    }

    fn reopen_after(self, clean: bool, change: impl FnOnce(&rusqlite::Connection)) -> Self {
        let Self { bench, volume, engine, catalog, points } = self;
        if clean {
            engine.shutdown().unwrap();
        }
        drop((engine, catalog));
        change(&database(&bench));
        let (engine, catalog) = open(&bench, &volume);
        Self { bench, volume, engine, catalog, points }
    }

    fn reclaim(&self) -> Result<ReclaimReport, EngineError> {
        self.engine.reclaim(&ReclaimOptions::default(), &Arc::new(Control::default()))
    }

    fn all_restore(&self) {
        for (id, disk) in &self.points {
            assert!(restore(&self.engine, &id.to_string(), "root").unwrap() == *disk, "{id}");
        }
        assert_eq!(self.engine.catalog().all_backup_ids().count(), self.points.len());
        // (W18) The background does so.
        self.catalog.correct_sums(Box::new(|| true)).unwrap();
        let report = self.engine.check(crate::CheckOptions { read_data: true }, &crate::NoProgress).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
    }
}

fn database(bench: &Bench) -> rusqlite::Connection {
    rusqlite::Connection::open(bench.folder.path().join("catalog.db")).unwrap()
}

/// As a flipped bit does it: `disks` stays, or goes, too.
fn lose_row(raw: &rusqlite::Connection, id: BackupId, disks: bool) {
    raw.pragma_update(None, "foreign_keys", disks).unwrap();
    assert_eq!(raw.execute("DELETE FROM backups WHERE id = ?", [id.to_bytes()]).unwrap(), 1);
}

/// (G9) The process trusts its catalog, and the row goes all the same.
#[test]
fn a_restore_point_whose_row_is_lost_is_needed_all_the_same() {
    let scene = Scene::new();
    scene.reclaim().unwrap();
    lose_row(&database(&scene.bench), scene.points[0].0, true);
    let refused = scene.reclaim().unwrap_err();
    assert!(matches!(refused, EngineError::Damaged(_)), "{refused}");
    assert!(refused.to_string().contains(&scene.points[0].0.to_string()), "{refused}");
    // The background work, or the next round, enters it again.
    scene.engine.catalog_check_job().step(&Budget::unlimited()).unwrap();
    assert_eq!(scene.reclaim().unwrap().containers_deleted, 0);
    scene.all_restore();
}

/// (G9) Its row may be known, and all its disks gone: then it names nothing.
#[test]
fn a_restore_point_whose_disks_are_lost_is_needed_all_the_same() {
    let scene = Scene::new();
    scene.reclaim().unwrap();
    let raw = database(&scene.bench);
    raw.execute("DELETE FROM disks WHERE backup_id = ?", [scene.points[0].0.to_bytes()]).unwrap();
    assert!(matches!(scene.reclaim(), Err(EngineError::Damaged(_))));
    assert_eq!(scene.reclaim().unwrap().containers_deleted, 0, "healed by the next round");
    scene.all_restore();
}

/// (G9) A restore point that is deleted, or being committed, is not lost.
#[test]
fn what_is_deleted_and_what_is_not_committed_yet_is_not_lost() {
    let scene = Scene::new();
    let disk = noise(7, SIZE);
    let session: SessionId =
        start(&scene.engine, request("new", &[("root", &disk)])).unwrap().session_id.parse().unwrap();
    let stream = scene.engine.open_stream(session, 0).unwrap();
    send_disk(&scene.engine, session, &stream, 0, &disk).unwrap();
    drop(stream);
    scene.catalog.answer_busy(true);
    scene.engine.commit(session).unwrap_err();
    scene.catalog.answer_busy(false);
    // Its point is sealed, and there is no row yet; of the other there is a point, and its deletion has begun.
    scene.engine.catalog().begin_deletion(&[scene.points[1].0], "op", "x").unwrap();
    let (core, sessions) = scene.engine.parts();
    let (options, control) = (ReclaimOptions::default(), Control::default());
    let done = crate::reclaim::run_watched(core, sessions, &options, &control, &|_| {}).unwrap();
    assert_eq!(done.containers_deleted, 2);
    scene.engine.catalog_check_job().step(&Budget::unlimited()).unwrap();
    let id = scene.engine.commit(session).unwrap().backup_id;
    assert!(restore(&scene.engine, &id, "root").unwrap() == disk);
    assert_eq!(scene.engine.catalog().all_backup_ids().count(), 2);
}

/// (S9) A clean stop says that points and rows agree; a look at the catalog says that they do not.
#[test]
fn a_start_enters_again_what_its_catalog_lost() {
    for disks in [false, true] {
        let scene = Scene::new();
        let id = scene.points[0].0;
        let scene = scene.reopen_after(true, |raw| {
            lose_row(raw, id, disks);
            // Changes nothing else.
            raw.execute_batch("DELETE FROM details WHERE false").unwrap();
        });
        let opened = *scene.engine.opened();
        if disks {
            // The database has no trace of it: the first round finds it.
            assert!(opened.clean && opened.entered_points == 0);
            assert!(matches!(scene.reclaim(), Err(EngineError::Damaged(_))));
        } else {
            assert_eq!((opened.clean, opened.entered_points), (false, 1), "{opened:?}");
        }
        assert_eq!(scene.reclaim().unwrap().containers_deleted, 0);
        scene.all_restore();
        scene.reopen(true).all_restore();
    }
}

/// (S9) Rows lost that no point records: nothing is deleted, freed or added, stored data can be read, and errors name
/// the remedy.
#[test]
fn a_catalog_that_cannot_be_healed_takes_no_changes() {
    for background in [false, true] {
        let scene = Scene::new();
        let lose = |raw: &rusqlite::Connection| {
            raw.pragma_update(None, "foreign_keys", false).unwrap();
            raw.execute("DELETE FROM vms WHERE name = 'vm-1'", []).unwrap();
        };
        let scene = if background {
            lose(&database(&scene.bench));
            scene.bench.clock.advance_ms(24 * 3_600_000);
            scene.engine.catalog_check_job().step(&Budget::unlimited()).unwrap_err();
            scene
        } else {
            scene.reopen_after(true, lose)
        };
        let (kept, disk) = &scene.points[0];
        assert!(restore(&scene.engine, &kept.to_string(), "root").unwrap() == *disk);
        scene.reclaim().unwrap_err();
        scene.engine.delete_backups(&[*kept], "op", "x").unwrap_err();
        assert!(start(&scene.engine, request("vm-0", &[("root", disk)])).is_err());
        let reasons = scene.engine.not_ready();
        let told = |reason: &crate::NotReady| {
            reason.obstacle == Obstacle::Stopped && reason.reason.contains("holdfast-server recover --from")
        };
        assert!(reasons.iter().any(told), "{reasons:?}");
        assert!(crate::list_snapshots(&scene.volume).unwrap().len() <= 1, "none is made of it");
    }
}

/// (W18) Wrong sums are made anew by the look of a day.
#[test]
fn sums_are_corrected_by_the_daily_look() {
    let scene = Scene::new();
    let sound = || assert_eq!(scene.catalog.integrity_check().unwrap(), Vec::<String>::new());
    let job = scene.engine.catalog_check_job();
    let step_on_wrong = || {
        database(&scene.bench).execute_batch("UPDATE detail_sums SET bytes = bytes + 1").unwrap();
        assert_eq!(scene.catalog.integrity_check().unwrap().len(), 2);
        job.step(&Budget::unlimited()).unwrap();
    };
    // A process that ends within a day has looked once, too.
    step_on_wrong();
    sound();
    step_on_wrong();
    assert_eq!(scene.catalog.integrity_check().unwrap().len(), 2, "it is not due");
    scene.bench.clock.advance_ms(24 * 3_600_000);
    step_on_wrong();
    sound();
    scene.all_restore();
}
