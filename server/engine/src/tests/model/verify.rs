//! Restores and compares everything; and the end of a life, when everything is deleted and nothing else is lost with
//! it.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_types::ids::BackupId;
use holdfast_volume::list_all;

use super::agent::vm_name;
use super::truth::{Lacks, Point};
use super::world::{Restart, World};
use crate::check::CheckOptions;
use crate::container::list_containers;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Step};
use crate::parity_job::ParityScheme;
use crate::reclaim::{Control, ReclaimOptions};
use crate::tests::agent::{restore, restore_past_damage};

/// Rounds at the end, after which nothing may be left: what one finds in use by another container goes with the next.
const LAST_ROUNDS: usize = 3;

impl World {
    /// Restores everything.
    pub(super) fn verify(&mut self) {
        if self.has_crashed() || self.is_over {
            return;
        }
        self.told("everything is restored");
        self.check();
        // (R4) Places known to be damaged are looked at again once a minute at most.
        if self.hazards.damage {
            self.bench.clock.advance_ms(61_000);
        }
        let failing: BTreeSet<BackupId> =
            self.points.iter().filter(|point| !self.restores(point)).map(|point| point.id).collect();
        if self.hazards.damage && self.random.one_in(2) {
            self.damage_is_named(&failing);
        }
    }

    /// Returns true if a restore point is whole. It must be when everything it needs is on the volume; if it is not,
    /// the report of its damage must be right, and name no more than was lost.
    fn restores(&self, point: &Point) -> bool {
        let (engine, id) = (self.engine(), point.id.to_string());
        let what = || format!("{id} of {}", vm_name(point.vm));
        let lacks = point.needs.as_ref().map(|needs| Lacks::of(needs, &self.sound));
        if lacks.as_ref().is_some_and(Lacks::is_whole) {
            match restore(&engine, &id, "root") {
                Ok(image) => assert!(image == point.disk.image(), "{} is not what was sent", what()),
                Err(error) => panic!("{} cannot be restored, and nothing of it is lost: {error}", what()),
            }
            return true;
        }
        let has_node = lacks.as_ref().is_none_or(Lacks::has_node);
        let (image, bad) = match restore_past_damage(&engine, &id, "root") {
            Ok(read) => read,
            Err(error) => {
                assert!(has_node, "{} cannot be restored at all: {error}", what());
                return false;
            }
        };
        let mut wanted = point.disk.image();
        for range in &bad {
            wanted[range.offset..range.offset + range.len].fill(0);
        }
        assert!(image == wanted, "{}: what is not said to be lost is not what was sent", what());
        if !has_node {
            let lost = point.disk.ranges_of(&lacks.unwrap_or_default().chunks());
            for range in &bad {
                let is_lost = lost.contains(&(range.offset, range.offset + range.len));
                assert!(is_lost, "{}: {range:?} is said to be lost and is not", what());
            }
        }
        bad.is_empty()
    }

    /// (V3) Once all was read, the restore points that lack something are named, and no others.
    fn damage_is_named(&mut self, failing: &BTreeSet<BackupId>) {
        let engine = self.engine();
        // The first may only end a pass that was under way when something rotted.
        for _ in 0..2 {
            if let Err(error) = engine.scrub(&Budget::unlimited(), &NoProgress) {
                self.excuse("a scrub", &error);
                return;
            }
        }
        let named = match engine.name_damage(1000) {
            Ok(named) => named.into_iter().map(|disk| disk.backup).collect::<BTreeSet<_>>(),
            Err(error) => return self.excuse("naming damage", &error),
        };
        if let Some(id) = failing.difference(&named).next() {
            let point = self.points.iter().find(|point| point.id == *id);
            let lacks =
                point.and_then(|point| point.needs.as_ref()).map(|needs| Lacks::of(needs, &self.sound));
            let store = &engine.parts().0.store;
            let known = |id| (id, store.known_damage(id), store.is_healed(id));
            let known: Vec<_> = store.damaged_containers().into_iter().map(known).collect();
            panic!(
                "{id} cannot be restored whole, and is not named: it lacks {lacks:?}; known: {known:?}; spoilt: {}",
                self.census.tell_hurt()
            );
        }
        for id in named.difference(failing) {
            let point = self.points.iter().find(|point| point.id == *id);
            // Parity may have made again what was lost only while it was read.
            let lacks =
                point.and_then(|point| point.needs.as_ref()).map(|needs| Lacks::of(needs, &self.sound));
            assert!(!lacks.is_some_and(|lacks| lacks.is_whole()), "{id} is named, and nothing of it is lost");
        }
    }

    /// Deletes everything, and checks that all space comes back.
    pub(super) fn end(&mut self) {
        self.told("the end");
        self.volume.heal();
        for vm in 0..self.agents.len() {
            if let Some(agent) = self.agents[vm].take() {
                self.engine().abort(agent.session, "the end").unwrap();
            }
        }
        self.after();
        self.verify();
        self.after();
        if self.is_over {
            return;
        }
        self.volume.heal();
        if !self.hazards.damage {
            self.is_sound();
        }
        if self.random.one_in(2) {
            self.restart(Restart::Clean);
        }
        self.delete_all();
        self.nothing_is_left();
        // As the server does within a minute of a deletion, also of one just before power failed: see `has_ghosts`.
        self.snapshot();
        let how = if self.random.one_in(2) { Restart::Kill } else { Restart::Clean };
        self.restart(how);
        assert_eq!(self.engine().catalog().all_backup_ids().count(), 0, "came back by a start");
        self.restart(Restart::Recovery);
        assert!(!self.is_over, "came back by a recovery, although a snapshot was made since");
        assert_eq!(self.engine().catalog().all_backup_ids().count(), 0, "came back by a recovery");
    }

    fn is_sound(&self) {
        // (L5) A lock that was not acknowledged, for want of room, is in the row and not in the point until this has run.
        while self.engine().retention_job().step(&Budget::unlimited()).unwrap() == Step::More {}
        let report = self.engine().check(CheckOptions { read_data: true }, &NoProgress).unwrap();
        assert!(report.is_sound(), "{:?}", report.problems);
        let count = self.points.len() as u64;
        assert_eq!((report.backups, report.points), (count, count));
    }

    fn delete_all(&mut self) {
        let engine = self.engine();
        let held: Vec<BackupId> =
            self.points.iter().filter(|point| point.held != Some(false)).map(|point| point.id).collect();
        if !held.is_empty() {
            engine.release_holds(&held, "the end", "model").unwrap();
        }
        self.points.iter_mut().for_each(|point| point.held = Some(false));
        // Locks end: the clock that they are compared with catches up.
        for _ in 0..8 {
            self.bench.clock.advance_ms(30 * Self::day_ms());
            engine.retention_job().step(&Budget::unlimited()).unwrap();
        }
        for id in self.points.iter().map(|point| point.id).collect::<Vec<_>>() {
            self.delete_these(&[id]);
        }
        assert!(self.points.is_empty(), "a lock never ends: {:?}", self.points);
        self.check();
    }

    fn nothing_is_left(&mut self) {
        let engine = self.engine();
        // (S7) Files of which a catalog that was lost had the only rows get theirs: where the index knows them, by the audit,
        // which the server runs in the background, and of which a start in this test runs nothing half the time.
        engine.audit(&NoProgress).unwrap();
        // Damage that was not met yet is found.
        for _ in 0..2 {
            engine.scrub(&Budget::unlimited(), &NoProgress).unwrap();
        }
        self.look_after_damage();
        let options = ReclaimOptions::default();
        let mut reports = Vec::new();
        for _ in 0..LAST_ROUNDS {
            match engine.reclaim(&options, &Arc::new(Control::default())) {
                Ok(report) => reports.push(report),
                Err(error) => panic!("the last round: {error}"),
            }
        }
        let mut left = list_containers(&self.memory).unwrap().containers;
        // A damaged container that cannot be opened, and whose row was lost with a catalog, gets no row again: its
        // contents are unknown, so it is named as damage and never deleted.
        let is_unknown = |id| engine.catalog().container(id).unwrap().is_none();
        let cannot_be_opened =
            |id| self.census.hurt.get(&id).is_some_and(|hurt| hurt.regions.is_none() && !hurt.dropped);
        left.retain(|(name, _)| !(is_unknown(name.id) && cannot_be_opened(name.id)));
        assert!(left.is_empty(), "left of nothing: {left:?}, after {reports:?}");
        assert_eq!(engine.catalog().all_containers().count(), 0, "rows without a use");
        assert_eq!(list_all(&self.memory, &crate::points::folder()).count(), 0, "points of nothing");
        self.bench.clock.advance_ms(2 * Self::day_ms());
        let parity = engine.parity_job(ParityScheme::new(3, 1), Arc::new(super::world::Never));
        while parity.step(&Budget::unlimited()).unwrap() == Step::More {}
        let folder = crate::parity::folder();
        assert_eq!(list_all(&self.memory, &folder).count(), 0, "parity of nothing");
        self.check();
    }
}
