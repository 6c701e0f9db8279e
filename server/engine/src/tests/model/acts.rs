//! Actions of people, processes and disks, one step at a time.

use std::sync::Arc;

use holdfast_types::ids::BackupId;
use holdfast_volume::testing::{Fault, ManualTimer, OpKind};
use parking_lot::Mutex;

use super::agent::{Agent, vm_name};
use super::world::{EXTENTS, Restart, World};
use crate::error::EngineError;
use crate::jobs::NoProgress;
use crate::jobs::{Budget, Step, StepLimits, StopFlag};
use crate::reclaim::{Control, ReclaimOptions, RoundStep, Squeeze, check_ready, run_watched};

/// Free space while it is short: less than a session needs at once, or little more.
const TIGHT_BYTES: [u64; 3] = [0, 30_000, 400_000];

impl World {
    /// One step of the sequence.
    pub(super) fn act(&mut self) {
        match self.random.below(100) {
            0..54 => self.some_agent(),
            54..61 => self.delete(),
            61..64 => self.keep(),
            64..73 => self.reclaim(),
            73..77 => self.scrub(),
            77..80 => self.protect(),
            80..83 => self.snapshot(),
            83 => self.pass_time(),
            84 if self.random.one_in(2) => self.set_clock(),
            84 => self.rename_job(),
            85..87 => self.forget(),
            87 => self.lose_a_row(),
            88..90 => self.run_short(),
            90..92 => self.look_after_damage(),
            92..95 => self.restart_somehow(),
            95..97 if self.hazards.damage => self.spoil(),
            97 if self.hazards.damage => self.spoil_what_healed(),
            98 if self.hazards.damage => self.bring_back(),
            99 if self.hazards.damage && !self.random.one_in(3) => self.spoil_parity(),
            _ => self.verify(),
        }
        self.after();
    }

    /// Restarts after a step in which the power failed, and checks.
    pub(super) fn after(&mut self) {
        if self.has_crashed() {
            let how = if self.random.one_in(4) { Restart::Recovery } else { Restart::Kill };
            self.restart(how);
        }
        self.check();
    }

    /// Runs actions that may happen between any two steps of long work.
    fn beside(&mut self) {
        for _ in 0..self.random.below(4) {
            match self.random.below(20) {
                0..2 => self.delete(),
                2 => self.keep(),
                3 => self.snapshot(),
                4 => self.forget(),
                5 if self.hazards.damage => self.spoil(),
                6 => self.scrub(),
                7 => self.rename_job(),
                8 => self.set_clock(),
                9 if self.hazards.damage => self.spoil_what_healed(),
                _ => self.some_agent(),
            }
            if self.has_crashed() {
                return;
            }
            self.check();
        }
    }

    fn some_agent(&mut self) {
        let vm = self.random.below(EXTENTS.len());
        match (&mut self.agents[vm], self.random.below(40)) {
            (None, _) => self.begin(vm),
            (Some(agent), 0) => {
                agent.disconnect();
                self.told(format!("{}: connection lost", vm_name(vm)));
            }
            (Some(_), 1) => self.give_up(vm, "on purpose"),
            (Some(_), 2..4) => self.open(vm),
            (Some(agent), _) if !agent.is_connected() => self.open(vm),
            (Some(_), _) => {
                // Most messages follow each other.
                for _ in 0..1 + self.random.below(4) {
                    if self.agents[vm].is_some() {
                        self.message(vm);
                    }
                }
            }
        }
    }

    fn begin(&mut self, vm: usize) {
        let mut disk = self.disks[vm].clone();
        match self.random.below(8) {
            // As another VM, or an earlier restore point: what was given up comes back.
            0 => {
                let extents = disk.0.len();
                let others: Vec<_> =
                    self.points.iter().filter(|point| point.disk.0.len() == extents).collect();
                if !others.is_empty() {
                    disk = self.random.pick(&others).disk.clone();
                }
            }
            1 => {}
            _ => disk.change(&mut self.random),
        }
        self.disks[vm].clone_from(&disk);
        let together = 1 + self.random.below(6);
        self.told(format!("{}: begins {:?}", vm_name(vm), disk.0));
        // Several of a night are one run.
        let run = if self.random.one_in(3) { String::new() } else { self.run.clone() };
        match Agent::start(&self.engine(), vm, &disk, (together, &run)) {
            Ok(agent) => {
                self.run.clone_from(&agent.run);
                self.agents[vm] = Some(agent);
            }
            Err(error) => self.excuse("a backup begins", &error),
        }
    }

    fn open(&mut self, vm: usize) {
        let engine = self.engine();
        let Some(agent) = &mut self.agents[vm] else { return };
        let opened = agent.open(&engine);
        self.told(format!("{}: connects again", vm_name(vm)));
        if let Err(error) = opened {
            self.excuse("a stream is opened", &error);
            self.give_up(vm, "its stream cannot be opened");
        }
    }

    fn give_up(&mut self, vm: usize, why: &str) {
        let Some(agent) = self.agents[vm].take() else { return };
        self.told(format!("{}: gives up: {why}", vm_name(vm)));
        if let Err(error) = self.engine().abort(agent.session, "model") {
            self.excuse("a session is ended", &error);
        }
    }

    fn message(&mut self, vm: usize) {
        let engine = self.engine();
        let Some(agent) = &mut self.agents[vm] else { return };
        if !agent.is_connected() {
            return;
        }
        let (is_commit, waits) = (agent.is_sent(), agent.waits());
        let done = agent.step(&engine);
        match done {
            Ok(None) => {
                if !waits {
                    self.told(format!("{}: a message", vm_name(vm)));
                }
            }
            Ok(Some(done)) => {
                let disk = self.agents[vm].take().expect("just seen").disk;
                let id: BackupId = done.backup_id.parse().unwrap();
                self.told(format!("{}: committed {id}", vm_name(vm)));
                let known = self.known_damage();
                self.committed(vm, disk, id);
                self.counts_on_nothing_lost(&known);
            }
            Err(error) => {
                self.told(format!("{}: failed: {error}", vm_name(vm)));
                self.excuse("a message", &error);
                if is_commit && let Some(agent) = &self.agents[vm] {
                    self.unanswered.push((vm, agent.disk.clone()));
                }
                self.give_up(vm, "it failed");
            }
        }
    }

    fn delete(&mut self) {
        if self.points.is_empty() {
            return;
        }
        let count = if self.random.one_in(4) { 3 } else { 1 };
        let mut ids: Vec<BackupId> = (0..count).map(|_| self.random.pick(&self.points).id).collect();
        ids.sort_unstable();
        ids.dedup();
        self.delete_these(&ids);
    }

    /// Keeps the last one or two of a VM, and what cannot be deleted.
    fn forget(&mut self) {
        let vm = self.random.below(EXTENTS.len());
        let keep = 1 + self.random.below(2);
        let of_vm: Vec<_> = self.points.iter().filter(|point| point.vm == vm).collect();
        let old = &of_vm[..of_vm.len().saturating_sub(keep)];
        let ids: Vec<BackupId> = old.iter().filter(|point| !point.may_stay()).map(|point| point.id).collect();
        if !ids.is_empty() {
            self.delete_these(&ids);
        }
    }

    pub(super) fn delete_these(&mut self, ids: &[BackupId]) {
        self.told(format!("delete {ids:?}"));
        let monotonic_ms = self.monotonic_ms();
        let chosen = || self.points.iter().filter(|point| ids.contains(&point.id));
        let must_stay = chosen().any(|point| point.must_stay(monotonic_ms));
        let may_stay = chosen().any(|point| point.may_stay());
        match self.engine().delete_backups(ids, "model", "not needed") {
            Ok(_) => {
                assert!(!must_stay, "(L2) deleted although one of {ids:?} was locked or held");
                let gone: Vec<_> = self.points.extract_if(.., |point| ids.contains(&point.id)).collect();
                gone.iter().for_each(|point| self.note_deleted(point));
                // As the server does within a minute: see `has_ghosts`.
                if gone.iter().any(|point| point.was_kept) {
                    self.snapshot();
                }
            }
            Err(EngineError::Locked(error)) => assert!(may_stay, "nothing is locked: {error}"),
            Err(error) => {
                self.excuse("deleting", &error);
                assert!(!must_stay, "(L2) begun although one of {ids:?} was locked or held");
                let begun = self.points.iter_mut().filter(|point| ids.contains(&point.id));
                begun.for_each(|point| point.doubtful = true);
            }
        }
    }

    /// Locks, holds or releases something.
    fn keep(&mut self) {
        if self.points.is_empty() {
            return;
        }
        let place = self.random.below(self.points.len());
        let (id, engine) = (self.points[place].id, self.engine());
        let (now_ms, monotonic_ms) = (self.lock_clock_ms(), self.monotonic_ms());
        let what = self.random.below(4);
        let until_ms = now_ms + i64::try_from(1 + self.random.below(200)).unwrap() * 3_600_000;
        self.told(format!("{} {id}", ["lock", "hold", "release", "release"][what]));
        let done = match what {
            0 => engine.lock_backups(&[id], until_ms, "model"),
            1 => engine.hold_backups(&[id], "evidence", "model"),
            _ => engine.release_holds(&[id], "over", "model"),
        };
        let point = &mut self.points[place];
        point.was_kept |= what < 2;
        match (&done, what) {
            (Ok(_), 0) if point.lock.until_ms < Some(until_ms) => {
                point.lock.until_ms = Some(until_ms);
                (point.lock.at_ms, point.lock.at_monotonic_ms) = (now_ms, monotonic_ms);
            }
            (Ok(_), 0) => {}
            (Ok(_), _) => point.held = Some(what == 1),
            (Err(_), 0) => point.lock.asked = true,
            // Held or not: what was so before is so in any case when it was to stay so.
            (Err(_), _) => point.held = point.held.filter(|held| *held == (what == 1)),
        }
        if let Err(error) = done {
            self.excuse("a lock", &error);
        }
    }

    /// (P9) Agents go on with the name that they were told.
    fn rename_job(&mut self) {
        let engine = self.engine();
        let jobs = engine.catalog().job_overviews(None).unwrap();
        if jobs.is_empty() {
            return;
        }
        let job = self.random.pick(&jobs).job.clone();
        self.renamed += 1;
        let name = format!("job-{}", self.renamed);
        self.told(format!("job {job} is {name} now"));
        if let Err(error) = engine.rename_job(super::super::namespace(&engine), &job, &name, "model") {
            self.excuse("a rename", &error);
        }
    }

    /// (L7) One night's clock is days ahead, and then right again.
    fn set_clock(&mut self) {
        let by_ms = if self.ahead_ms == 0 { 5 * Self::day_ms() } else { -self.ahead_ms };
        self.told(format!("the clock is set by {by_ms} ms"));
        self.bench.clock.set_by_ms(by_ms);
        self.ahead_ms += by_ms;
    }

    fn reclaim(&mut self) {
        self.volume.heal();
        let squeeze = self.random.one_in(3).then_some(Squeeze { level: 12, min_age_days: 0 });
        let options = ReclaimOptions {
            live_share_pct: *self.random.pick(&[0, 50, 85, 85, 100]),
            copied_per_freed: *self.random.pick(&[0, 3, 200]),
            merge: !self.random.one_in(3),
            squeeze,
            moving: None,
            freezing: None,
            dry_run: self.random.one_in(10),
        };
        self.told(format!("reclaim: {options:?}"));
        let engine = self.engine();
        let (core, sessions) = engine.parts();
        if let Err(error) = check_ready(core) {
            self.excuse("a round", &error);
            return;
        }
        let control = Control::default();
        let is_damaged = self.hazards.damage;
        self.in_round = true;
        let world = Mutex::new(&mut *self);
        let done = run_watched(core, sessions, &options, &control, &|step| {
            world.lock().within_round(step, &control);
        });
        self.in_round = false;
        match done {
            Ok(report) => {
                let freed = (report.containers_deleted, report.containers_written);
                self.told(format!("reclaimed: {} dead bytes, {freed:?} containers", report.dead_bytes));
                let explained = is_damaged || self.has_crashed();
                assert!(report.incomplete.is_empty() || explained, "{:?}", report.incomplete);
                assert!(!options.dry_run || freed == (0, 0), "{report:?}");
            }
            Err(error) => {
                self.told(format!("reclaim ended: {error}"));
                self.excuse("a round", &error);
            }
        }
    }

    /// Between two steps of a round others go on; it may be stopped there, and power may fail there or soon after.
    fn within_round(&mut self, step: RoundStep, control: &Control) {
        self.told(format!("round: {step:?}"));
        if self.has_crashed() {
            return;
        }
        // A caller that needs room waits for the deletion in progress here.
        let waits = matches!(step, RoundStep::Condemned | RoundStep::Deleted) && self.volume.is_limited();
        match self.random.below(24) {
            0 => control.stop(),
            1 | 2 if self.hazards.crashes => {
                let after = self.random.below(12) as u64;
                self.told(format!("power fails after {after} more"));
                self.crash_after(after);
            }
            3..14 if !waits => self.beside(),
            _ => {}
        }
    }

    fn scrub(&mut self) {
        let items = if self.random.one_in(2) { u64::MAX } else { 1 + self.random.below(6) as u64 };
        let limits = StepLimits { items, bytes: u64::MAX, time: std::time::Duration::from_secs(9) };
        let budget = Budget::new(limits, Arc::new(ManualTimer::default()), StopFlag::default());
        self.told("scrub");
        match self.engine().scrub(&budget, &NoProgress) {
            Ok(found) if !self.hazards.damage && !self.has_crashed() => {
                assert_eq!((found.damaged_containers, found.unsound_restore_points), (0, 0), "{found:?}");
                assert_eq!(found.false_digests, 0, "{found:?}");
            }
            Ok(_) => {}
            Err(error) => self.excuse("a scrub", &error),
        }
    }

    /// Parity is made, and repairs.
    pub(super) fn protect(&mut self) {
        self.told("parity");
        self.bench.clock.advance_ms(*self.random.pick(&[0, 3_700_000, 2 * Self::day_ms()]));
        // As it does all the time, so that the time of a lock counts from when it is placed.
        if let Err(error) = self.engine().retention_job().step(&Budget::unlimited()) {
            assert!(self.has_crashed() || self.was_full, "the lock clock: {error}");
        }
        let job = self.parity();
        for _ in 0..100 {
            match job.step(&Budget::unlimited()) {
                Ok(Step::More) => {}
                Ok(_) => return,
                Err(error) => {
                    assert!(self.has_crashed() || self.hazards.damage || self.was_full, "parity: {error}");
                    return;
                }
            }
        }
        panic!("parity never ends");
    }

    pub(super) fn snapshot(&mut self) {
        self.told("snapshot");
        if let Err(error) = self.engine().snapshot() {
            self.excuse("a snapshot", &error);
        }
        if self.hazards.crashes && self.random.one_in(4) {
            self.keep_catalog();
        }
    }

    /// (G9, S9) The catalog loses a restore point, as by a flipped bit: no round goes on without it, and it comes back.
    fn lose_a_row(&mut self) {
        let free: Vec<BackupId> = self
            .points
            .iter()
            .filter(|point| !point.may_stay() && !point.doubtful)
            .map(|point| point.id)
            .collect();
        if self.in_round || free.is_empty() {
            return;
        }
        let (id, with_disks) = (*self.random.pick(&free), self.random.one_in(2));
        self.told(format!("the catalog loses {id}"));
        let raw = self.raw_catalog();
        raw.pragma_update(None, "foreign_keys", with_disks).unwrap();
        raw.execute("DELETE FROM backups WHERE id = ?", [id.to_bytes()]).unwrap();
        drop(raw);
        let engine = self.engine();
        if self.random.one_in(2) {
            let (core, sessions) = engine.parts();
            let (options, control) = (ReclaimOptions::default(), Control::default());
            let done = run_watched(core, sessions, &options, &control, &|_| {});
            // Where there is no container, nothing is asked for.
            let looked = done.map_or(0, |report| report.containers);
            assert_eq!(looked, 0, "a round went on without {id}");
        }
        core_doubts(&engine);
        if let Err(error) = engine.catalog_check_job().step(&Budget::unlimited()) {
            self.told(format!("it is not entered again: {error}"));
            assert!(self.has_crashed() || self.was_full || self.hazards.damage, "{error}");
            self.restart(Restart::Kill);
        }
    }

    fn pass_time(&mut self) {
        if self.random.one_in(3) {
            self.told("the clock is set forward");
            self.bench.clock.set_by_ms(20 * Self::day_ms());
        }
        self.bench.clock.advance_ms(*self.random.pick(&[5_000, 70_000, 200_000, 40_000_000]));
        let engine = self.engine();
        let ended = engine.expire_sessions();
        self.told(format!("time passes; {ended} sessions expired"));
        if let Err(error) = engine.retention_job().step(&Budget::unlimited()) {
            assert!(self.has_crashed() || self.was_full, "the lock clock: {error}");
        }
    }

    /// Fills the volume, or makes a seal fail for want of room.
    fn run_short(&mut self) {
        if self.in_round {
            return;
        }
        self.was_full = true;
        if self.random.one_in(2) {
            self.told("no room for a seal");
            self.volume.fail_next(OpKind::Seal, 1 + self.random.below(3) as u64, Fault::Full);
            return;
        }
        let bytes = *self.random.pick(&TIGHT_BYTES);
        self.told(format!("room for {bytes} bytes"));
        self.volume.limit_capacity(bytes);
        for _ in 0..self.random.below(12) {
            self.some_agent();
        }
        self.told("room again");
        self.volume.heal();
    }

    pub(super) fn look_after_damage(&mut self) {
        self.told("damage is looked at again");
        self.bench.clock.advance_ms(61_000);
        let engine = self.engine();
        for job in [engine.damage_job(), engine.damage_report_job()] {
            if let Err(error) = job.step(&Budget::unlimited()) {
                assert!(self.has_crashed() || self.hazards.damage, "looking at damage: {error}");
            }
        }
    }

    fn restart_somehow(&mut self) {
        if !self.hazards.crashes || self.random.one_in(3) {
            return self.restart(Restart::Clean);
        }
        match self.random.below(5) {
            0 => self.restart(Restart::Kill),
            1 => self.restart(Restart::Recovery),
            2 => self.restart(Restart::OlderCatalog),
            _ => {
                let after = self.random.below(30) as u64;
                self.told(format!("power fails after {after} more"));
                self.crash_after(after);
            }
        }
    }
}

/// Makes the catalog due for a check, as after a day.
fn core_doubts(engine: &crate::engine::Engine) {
    engine.parts().0.doubt_catalog();
}
