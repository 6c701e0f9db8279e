//! Sixty days of a repository against what an administrator would count by hand: nightly backups, retries, retention,
//! renames, a VM that moves to another job, one that goes for good, reclaim, and a night on which the clock was ahead.
//!
//! The model knows runs, restore points and blocks; it adds nothing up the way the server does. What it cannot know, how
//! many bytes a block takes once it is stored, is bounded by what noise takes at least and at most.
//!
//! `HOLDFAST_LIVES=200` lives that many lives instead of a few; `HOLDFAST_LIVES=7..9` those of these seeds.

mod agent;
mod check;
mod model;

use std::fs;
use std::ops::Range;
use std::path::Path;

use holdfast_engine::catalog::ScheduleRecord;
use holdfast_engine::clock::ManualClock;
use holdfast_engine::ids::{BackupId, NamespaceId};
use holdfast_engine::{Budget, Engine, Job as _, ReclaimControl, ReclaimOptions};

use super::*;
use crate::jobs::SpaceHistory;
use agent::{Disk, back_up};
use model::{Model, Point, Run, Vm};

const DAY_MS: i64 = 86_400_000;
const DAYS: i64 = 60;
/// Restore points of a VM that are kept, besides those that are held.
const KEPT: usize = 4;
/// By how many days the clock is ahead on the night on which it is.
const AHEAD_DAYS: i64 = 3;
const BLOCKS: usize = 20;

/// A sequence of numbers without a pattern, the same for the same seed.
struct Dice(u64);

impl Dice {
    /// Below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// Once in so many times.
    fn one_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }
}

struct Life {
    fixture: Fixture,
    token: String,
    clock: Arc<ManualClock>,
    namespace: NamespaceId,
    dice: Dice,
    model: Model,
    /// Days since 1970-01-01 of the first day.
    first_day: i64,
    ahead_on: i64,
    blocks: u64,
}

impl Life {
    async fn begin(seed: u64) -> Self {
        let first_day = SystemClock.now_ms().div_euclid(DAY_MS) - DAYS - 10;
        let clock = Arc::new(ManualClock::new(first_day * DAY_MS + 20 * 3_600_000));
        let folder = tempfile::tempdir().unwrap();
        let server = start_at(folder.path(), Arc::<ManualClock>::clone(&clock), |_| {}).await.unwrap();
        let fixture = Fixture { folder, server };
        // Nothing happens but what the model does.
        let tasks = &fixture.server.app().tasks;
        for schedule in tasks.schedules().unwrap() {
            let record = ScheduleRecord {
                kind: schedule.kind,
                expression: schedule.expression,
                time_zone: schedule.time_zone,
                options: schedule.options,
                enabled: false,
                who: "test".into(),
                updated_ms: 0,
            };
            tasks.set_schedule(record).unwrap();
        }
        let token = fixture.admin_token();
        let namespace = fixture.catalog().namespace_by_name("default").unwrap().unwrap().id;
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9) + 1);
        let ahead_on = 10 + i64::try_from(dice.roll(20)).unwrap();
        let mut life = Self {
            fixture,
            token,
            clock,
            namespace,
            dice,
            model: Model::default(),
            first_day,
            ahead_on,
            blocks: 0,
        };
        // Half of each disk is one image.
        let image: Disk = (0..BLOCKS / 2).map(|_| life.new_block()).collect();
        for (name, job) in [("web", "nightly"), ("db", "nightly"), ("build", "weekly")] {
            let rest: Disk = (0..BLOCKS / 2).map(|_| life.any_block()).collect();
            let disk = [image.clone(), rest].concat();
            life.model.vms.push(Vm { name: name.into(), job, disk, is_removed: false });
        }
        life
    }

    fn engine(&self) -> &Engine {
        &self.fixture.server.app().engine
    }

    fn new_block(&mut self) -> u64 {
        self.blocks += 1;
        self.blocks
    }

    /// New, zeros, or one that was somewhere before.
    fn any_block(&mut self) -> u64 {
        match self.dice.roll(10) {
            0 => 0,
            1 | 2 => 1 + self.dice.roll(self.blocks),
            _ => self.new_block(),
        }
    }

    fn day(&self) -> i64 {
        self.clock.now_ms().div_euclid(DAY_MS) - self.first_day
    }

    fn back_up_all(&mut self) {
        for vm in 0..self.model.vms.len() {
            if self.model.vms[vm].is_removed || self.dice.one_in(9) {
                continue;
            }
            for _ in 0..self.dice.roll(5) {
                let place = usize::try_from(self.dice.roll(BLOCKS as u64)).unwrap();
                self.model.vms[vm].disk[place] = self.any_block();
            }
            let mut retried = 0;
            while self.dice.one_in(8) {
                retried += self.attempt(vm, 0, true);
            }
            self.attempt(vm, retried, false);
        }
    }

    /// Returns the new bytes of an attempt that failed.
    fn attempt(&mut self, vm: usize, retried: u64, fails: bool) -> u64 {
        self.clock.advance_ms(60_000);
        let is_partial = self.dice.one_in(12);
        let Vm { name, job, disk, .. } = self.model.vms[vm].clone();
        let attempt = back_up(self.engine(), self.namespace, (&name, job), &disk, (fails, is_partial));
        let point = attempt.backup.map(|id| {
            let point = Point { id, vm, job, disk, is_partial, is_held: false, gone: None };
            self.model.points.push(point);
            self.model.points.len() - 1
        });
        let (sent, day) = (attempt.sent, self.day());
        self.model.runs.push(Run { vm, job, sent, retried, point, day });
        sent.new
    }

    fn delete(&mut self, places: &[usize], who: &str, reason: &str) {
        if places.is_empty() {
            return;
        }
        self.clock.advance_ms(1000);
        let ids: Vec<BackupId> = places.iter().map(|place| self.id(*place)).collect();
        self.engine().delete_backups(&ids, who, reason).unwrap();
        for place in places {
            self.model.points[*place].gone = Some((self.clock.now_ms(), format!("{who}: {reason}")));
        }
    }

    fn id(&self, place: usize) -> BackupId {
        self.model.points[place].id.parse().unwrap()
    }

    /// The last few restore points stay, and those that are held.
    fn keep_last(&mut self) {
        for vm in 0..self.model.vms.len() {
            let there = self.model.there(vm);
            let old = there.iter().take(there.len().saturating_sub(KEPT));
            let goes: Vec<usize> = old.copied().filter(|place| !self.model.points[*place].is_held).collect();
            self.delete(&goes, "policy", "keep-last 4");
        }
    }

    fn hold_or_release(&mut self) {
        let vm = usize::try_from(self.dice.roll(3)).unwrap();
        let Some(place) = self.model.there(vm).first().copied() else { return };
        let id = self.id(place);
        let is_held = self.model.points[place].is_held;
        if is_held {
            self.engine().release_holds(&[id], "over", "op").unwrap();
        } else {
            self.engine().hold_backups(&[id], "audit", "op").unwrap();
        }
        self.model.points[place].is_held = !is_held;
    }

    fn rename(&mut self, vm: usize, name: &str) {
        let before = std::mem::replace(&mut self.model.vms[vm].name, name.to_owned());
        self.engine().rename_vm(self.namespace, &before, name, "op").unwrap();
    }

    fn reclaim(&mut self) {
        let control = Arc::new(ReclaimControl::default());
        let options = ReclaimOptions {
            live_share_pct: 60,
            copied_per_freed: 2,
            merge: true,
            squeeze: None,
            moving: None,
            freezing: None,
            dry_run: false,
        };
        self.engine().reclaim(&options, &control).unwrap();
        self.engine().attribute(&control).unwrap();
        self.model.reclaim(self.clock.now_ms());
    }

    /// All of a VM goes; its costs stay on record.
    fn retire(&mut self, vm: usize) {
        let there = self.model.there(vm);
        let held: Vec<BackupId> = there
            .iter()
            .filter(|place| self.model.points[**place].is_held)
            .map(|place| self.id(*place))
            .collect();
        if !held.is_empty() {
            self.engine().release_holds(&held, "over", "op").unwrap();
        }
        there.iter().for_each(|place| self.model.points[*place].is_held = false);
        self.delete(&there, "op", "retired");
        self.engine().remove_vm(self.namespace, &self.model.vms[vm].name, false, "op").unwrap();
        self.model.vms[vm].is_removed = true;
    }

    fn night(&mut self) {
        let day = self.day();
        let is_ahead = day == self.ahead_on;
        if is_ahead {
            self.clock.set_by_ms(AHEAD_DAYS * DAY_MS);
        }
        self.back_up_all();
        if is_ahead {
            self.clock.set_by_ms(-AHEAD_DAYS * DAY_MS);
        }
        self.keep_last();
        match day {
            18 => self.rename(0, "www"),
            25 => self.model.vms[1].job = "weekly",
            45 => self.retire(2),
            _ => {}
        }
        if self.dice.one_in(6) {
            self.hold_or_release();
        }
        if day % 6 == 5 {
            self.reclaim();
        }
        let app = self.fixture.server.app();
        let (engine, clock) = (Arc::clone(&app.engine), Arc::clone(&app.clock));
        SpaceHistory { engine, tiers: None, clock }.step(&Budget::unlimited()).unwrap();
        let files = bytes_in(&self.fixture.folder.path().join("blobs/containers"));
        self.model.evening(day, files);
    }

    async fn live(&mut self) {
        for day in 0..DAYS {
            self.night();
            assert_eq!(self.day(), day, "a night is shorter than the rest of the day");
            if [21, 44, DAYS - 1].contains(&day) {
                self.check().await;
            }
            let tomorrow = (self.first_day + day + 1) * DAY_MS + 20 * 3_600_000;
            self.clock.advance_ms(tomorrow - self.clock.now_ms());
        }
        self.check_metrics().await;
    }
}

/// Bytes of all files in a folder and below.
fn bytes_in(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = entries.map(|entry| {
        let found = entry.metadata().unwrap();
        if found.is_dir() { bytes_in(&entry.path()) } else { found.len() }
    });
    bytes.sum()
}

fn seeds() -> Range<u64> {
    let Ok(text) = std::env::var("HOLDFAST_LIVES") else { return 0..5 };
    match text.split_once("..") {
        Some((first, end)) => first.parse().unwrap()..end.parse().unwrap(),
        None => 0..text.parse().unwrap(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_shown_is_what_one_would_count() {
    for seed in seeds() {
        println!("life {seed}");
        let mut life = Life::begin(seed).await;
        life.live().await;
        life.fixture.server.stop().await.unwrap();
    }
}
