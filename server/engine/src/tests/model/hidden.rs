//! Blobs that cannot be read for a while, across restarts: a point, and containers, as with an older table of keys.

use holdfast_types::ids::BackupId;
use holdfast_volume::testing::{Fault, list};

use super::world::{Restart, World};
use crate::container::list_containers;
use crate::error::EngineError;
use crate::jobs::Budget;
use crate::reclaim::{Control, ReclaimOptions, run};

/// Blobs are hidden once in so many restarts.
const SELDOM: usize = 3;

impl World {
    /// Chooses blobs that the next process cannot read.
    pub(super) fn hide(&mut self) {
        self.hidden.clear();
        if !self.random.one_in(SELDOM) {
            return;
        }
        let points = list(&self.memory, "points");
        if !points.is_empty() {
            let fault = *self.random.pick(&[Fault::Io, Fault::NotReadableNow, Fault::Unavailable]);
            self.hidden.push((self.random.pick(&points).name.clone(), fault));
        }
        let files = list_containers(&self.memory).unwrap().containers;
        if !files.is_empty() && self.random.one_in(2) {
            // The newest, as a table of keys that is older than they are leaves them.
            let mut newest: Vec<_> = files.iter().map(|(name, _)| *name).collect();
            newest.sort_by_key(|name| name.id);
            let count = 1 + self.random.below(3);
            let names = newest.iter().rev().take(count).map(|name| (name.blob(), Fault::NotReadableNow));
            self.hidden.extend(names);
        }
        self.told(format!("hidden: {:?}", self.hidden));
    }

    /// The process began without it. Nothing that is needed goes, whatever is tried and however often it begins; then all
    /// comes back.
    pub(super) fn live_with_hidden(&mut self, how: Restart) {
        for again in 0..1 + self.random.below(3) {
            self.try_to_lose();
            if again == 0 || self.random.one_in(2) {
                let engine = self.engine.take().expect("started");
                let unread = engine.opened().unreadable_points;
                self.told("stopped and started with it hidden");
                engine.shutdown().unwrap();
                drop(engine);
                self.start();
                assert_eq!(
                    self.engine().opened().unreadable_points,
                    unread,
                    "(P6) forgotten by a clean stop"
                );
            }
        }
        self.told("all can be read");
        self.hidden.clear();
        self.volume.give();
        let engine = self.engine();
        engine.write_points().unwrap();
        let (core, _) = engine.parts();
        assert!(core.unrecorded.is_all_read(), "{:?}", core.unrecorded.unread());
        if matches!(how, Restart::Recovery | Restart::OlderCatalog) {
            // It kept rows that it could not judge.
            engine.shutdown().unwrap();
            self.engine = None;
            drop(engine);
            self.drop_lost_rows();
            self.start();
        }
    }

    fn try_to_lose(&mut self) {
        let engine = self.engine();
        let (core, sessions) = engine.parts();
        let has_unread = !engine.unread_points().is_empty();
        let options = ReclaimOptions { live_share_pct: 100, ..ReclaimOptions::default() };
        let done = run(core, sessions, &options, &Control::default());
        assert!(!has_unread || matches!(done, Err(EngineError::NotReclaimable(_))), "(P6) {done:?}");
        let unread: Vec<BackupId> = engine.unread_points().into_iter().collect();
        for id in engine.catalog().all_backup_ids().map(Result::unwrap).filter(|id| unread.contains(id)) {
            let error = engine.delete_backups(&[id], "model", "not needed").unwrap_err();
            assert!(matches!(error, EngineError::UnreadPoint(_)), "(P7) {error}");
        }
        engine.retention_job().step(&Budget::unlimited()).unwrap();
        engine.write_points().unwrap();
        self.sound = self.census.sound(&self.memory, self.repository).unwrap();
        for point in &self.points {
            for name in point.needs.iter().flatten() {
                let there = self.sound.contains(name) || self.census.excused.contains(name);
                assert!(there || point.doubtful, "{name:?} of {} went while something was hidden", point.id);
            }
        }
    }
}
