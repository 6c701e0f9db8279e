//! Reclaim: frees what no restore point needs any more, then says whose the rest is.
//!
//! An attempt that was interrupted has kept what it freed; the next one marks anew and goes on with what is left.

use std::sync::Arc;

use holdfast_engine::catalog::{TaskKind, TaskProgress};
use holdfast_engine::clock::Clock;
use holdfast_engine::{
    Engine, EngineError, Freezing, Incomplete, Moving, ReclaimControl, ReclaimOptions, ReclaimPhase,
    ReclaimReport, Squeeze,
};
use holdfast_proto::api::ReclaimOptions as Options;
use serde::Serialize;

use super::control::{Control, Steered, Stopped};
use super::work::{DefaultSchedule, Order, Work, WorkError, read_options};
use crate::error::ServiceError;
use crate::jobs::Throttle;
use crate::repository::{KeptBack, Tiers};
use crate::retention::plan::too_many;
use crate::retention::policies::archive_rules;
use crate::retention::run::{Leaving, leaving_within};

/// Daily at 10:00, after the night's backups: what policies deleted is freed before the next night needs the room.
const SCHEDULE: DefaultSchedule = DefaultSchedule { expression: "0 10 * * *", enabled: true };

/// The level that pays: on samples of the benchmark's disks 3 % smaller than level 12, and level 19 saves little beyond
/// it (docs/BENCHMARKS.md).
const SQUEEZE_LEVEL: i32 = 15;

/// Younger containers are mostly deleted or copied forward soon.
const SQUEEZE_MIN_AGE_DAYS: u32 = 7;

/// A hundred years: nothing is older.
const SQUEEZE_AGE_DAYS_MAX: u32 = 36_500;

/// zstd's levels that are worth anything here.
const LEVELS: std::ops::RangeInclusive<i32> = 1..=19;

/// Log lines about what could not be followed, at most.
const INCOMPLETE_LINES: usize = 20;

fn for_engine(options: &Options) -> ReclaimOptions {
    let defaults = ReclaimOptions::default();
    let squeeze = options.squeeze.then(|| Squeeze {
        level: options.squeeze_level.unwrap_or(SQUEEZE_LEVEL),
        min_age_days: options.squeeze_min_age_days.unwrap_or(SQUEEZE_MIN_AGE_DAYS),
    });
    ReclaimOptions {
        live_share_pct: options.live_share_pct.unwrap_or(defaults.live_share_pct),
        // Who says how sparse a container must be means just that.
        copied_per_freed: if options.live_share_pct.is_some() { 0 } else { defaults.copied_per_freed },
        squeeze,
        dry_run: options.dry_run,
        ..defaults
    }
}

/// Figures of a reclaim task.
#[derive(Debug, Serialize)]
struct Figures {
    freed_bytes: u64,
    cleanable_bytes: u64,
    dead_bytes: u64,
    deleted_bytes: u64,
    copied_bytes: u64,
    containers: u64,
    containers_deleted: u64,
    containers_written: u64,
    containers_held: u64,
    small_merged: u64,
    squeezed_bytes_before: u64,
    squeezed_bytes_after: u64,
    moved_containers: u64,
    moved_bytes: u64,
    /// 1 if something failed before all was moved.
    moving_failed: u64,
    frozen_containers: u64,
    frozen_bytes: u64,
    /// Containers not moved to the archive: what needs them will be deleted before that has paid off.
    kept_back_containers: u64,
    kept_back_bytes: u64,
    freezing_failed: u64,
    references: u64,
    marked_ms: u64,
    /// Recipes that could not be followed.
    incomplete: u64,
    dry_run: bool,
}

impl Figures {
    fn of(report: &ReclaimReport, dry_run: bool) -> Self {
        Self {
            freed_bytes: report.freed_bytes,
            cleanable_bytes: report.cleanable_bytes,
            dead_bytes: report.dead_bytes,
            deleted_bytes: report.deleted_bytes,
            copied_bytes: report.copied_bytes,
            containers: report.containers,
            containers_deleted: report.containers_deleted,
            containers_written: report.containers_written,
            containers_held: report.containers_held,
            small_merged: report.small_merged,
            squeezed_bytes_before: report.squeezed_bytes_before,
            squeezed_bytes_after: report.squeezed_bytes_after,
            moved_containers: report.moved_containers,
            moved_bytes: report.moved_bytes,
            moving_failed: u64::from(report.moving_failed.is_some()),
            frozen_containers: report.frozen_containers,
            frozen_bytes: report.frozen_bytes,
            kept_back_containers: report.kept_back_containers,
            kept_back_bytes: report.kept_back_bytes,
            freezing_failed: u64::from(report.freezing_failed.is_some()),
            references: report.references,
            marked_ms: report.marked_ms,
            incomplete: report.incomplete.len() as u64,
            dry_run,
        }
    }
}

/// The work of a reclaim task.
#[derive(Debug)]
pub(crate) struct ReclaimWork {
    pub(crate) engine: Arc<Engine>,
    /// `None`: everything lies here.
    pub(crate) tiers: Option<Arc<Tiers>>,
    /// Selection of containers that each round moves to the bucket alone; `None`: none.
    pub(crate) moving: Option<Moving>,
    /// Selection of containers that each round moves to the archive, if there are tiers; `None`: none.
    pub(crate) archiving: Option<Archiving>,
}

/// Selection of containers to move to the archive.
#[derive(Debug)]
pub(crate) struct Archiving {
    pub(crate) min_age_days: u32,
    pub(crate) class: String,
    /// Minimum days for which the class is paid for.
    pub(crate) minimum_days: u32,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Archiving {
    /// Options of a round. Looks up what policies will delete soon.
    fn freezing(&self, engine: &Engine, control: &Control) -> Result<Freezing, WorkError> {
        let mut go_on = || control.check().is_ok();
        let leaving = if self.minimum_days == 0 {
            Leaving::default()
        } else {
            leaving_within(engine, self.minimum_days, &mut go_on)?.ok_or(Stopped)?
        };
        for vm in leaving.skipped.iter().take(INCOMPLETE_LINES) {
            control.log(too_many(vm));
        }
        // As policies are now.
        let policies = engine.catalog().policies(None).map_err(EngineError::from).map_err(ended)?;
        let (rules, leaving) = (archive_rules(policies), Arc::new(leaving.points));
        Ok(Freezing { min_age_days: self.min_age_days, rules, leaving })
    }

    /// Says what was kept back, in the task's log and for `tier status`.
    fn tell(&self, tiers: &Tiers, report: &ReclaimReport, control: &Control) {
        let (containers, bytes) = (report.kept_back_containers, report.kept_back_bytes);
        let Self { class, minimum_days: days, .. } = self;
        if containers > 0 {
            control.log(format!(
                "{containers} containers of {bytes} bytes stay out of the archive: policies will delete what needs them within \
                 the {days} days for which {class} is paid at least"
            ));
        }
        let kept_back = KeptBack {
            at_ms: self.clock.now_ms(),
            containers,
            bytes,
            class: class.clone(),
            minimum_days: *days,
        };
        if let Err(error) = tiers.note_kept_back(&kept_back) {
            tracing::warn!(%error, "cannot note what was kept out of the archive");
        }
    }
}

impl Work for ReclaimWork {
    fn kind(&self) -> TaskKind {
        TaskKind::Reclaim
    }

    fn default_schedule(&self) -> Option<DefaultSchedule> {
        Some(SCHEDULE)
    }

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        let options: Options = read_options(options)?;
        if let Some(share) = options.live_share_pct.filter(|share| *share > 100) {
            return Err(ServiceError::invalid(format!("live_share_pct is {share}; it is 0 to 100")));
        }
        if let Some(level) = options.squeeze_level.filter(|level| !LEVELS.contains(level)) {
            let (first, last) = (LEVELS.start(), LEVELS.end());
            return Err(ServiceError::invalid(format!("squeeze_level is {level}; it is {first} to {last}")));
        }
        if options.squeeze_min_age_days.is_some_and(|days| days > SQUEEZE_AGE_DAYS_MAX) {
            return Err(ServiceError::invalid(format!(
                "squeeze_min_age_days is more than {SQUEEZE_AGE_DAYS_MAX}"
            )));
        }
        if !options.squeeze && (options.squeeze_level.is_some() || options.squeeze_min_age_days.is_some()) {
            return Err(ServiceError::invalid(
                "squeeze_level and squeeze_min_age_days need squeeze, which is not asked for",
            ));
        }
        serde_json::to_string(&options).map_err(ServiceError::defect)
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        let options: Options = read_options(&order.options)?;
        let round = Arc::new(ReclaimControl::default());
        control.steer(Arc::new(Round(Arc::clone(&round))));
        let archiving = self.archiving.as_ref().filter(|_| !options.dry_run);
        let freezing = archiving.map(|archiving| archiving.freezing(&self.engine, control)).transpose()?;
        let asked = ReclaimOptions { moving: self.moving, freezing, ..for_engine(&options) };
        let report = self.engine.reclaim(&asked, &round).map_err(ended)?;
        control.set_figures(&Figures::of(&report, options.dry_run));
        for one in report.incomplete.iter().take(INCOMPLETE_LINES) {
            control.log(line(one));
        }
        let (freed, deleted) = (report.freed_bytes, report.containers_deleted);
        if options.dry_run {
            let cleanable = report.cleanable_bytes;
            control.log(format!("{cleanable} bytes can be freed now"));
            return Ok(());
        }
        control.log(format!("{freed} bytes freed, {deleted} containers deleted"));
        if report.moved_containers > 0 {
            let (containers, bytes) = (report.moved_containers, report.moved_bytes);
            control.log(format!(
                "{containers} containers lie in the bucket alone now: {bytes} bytes of room here"
            ));
        }
        if let Some(why) = &report.moving_failed {
            control.log(format!("no more was moved to the bucket: {why}"));
        }
        if report.frozen_containers > 0 {
            let (containers, bytes) = (report.frozen_containers, report.frozen_bytes);
            control.log(format!("{containers} containers of {bytes} bytes lie in the archive now"));
        }
        if let (Some(archiving), Some(tiers)) = (archiving, &self.tiers) {
            archiving.tell(tiers, &report, control);
        }
        if let Some(why) = &report.freezing_failed {
            control.log(format!("no more was moved to the archive: {why}"));
        }
        // Freed space stays freed: whose the rest is, and where it lies, the next round says.
        let attributed = self.engine.attribute(&round).map(drop);
        told(attributed, "whose the live bytes are", control)?;
        let placed = self.note_places(&round, control);
        told(placed, "where restore points lie", control)
    }
}

impl ReclaimWork {
    /// Notes where restore points lie, where not all of them lie here.
    fn note_places(&self, round: &ReclaimControl, control: &Control) -> Result<(), EngineError> {
        let Some(tiers) = &self.tiers else { return Ok(()) };
        match tiers.has_data_alone() {
            Ok(true) => self.engine.note_places(round),
            Ok(false) => self.engine.forget_places(),
            Err(error) => {
                control.log(format!("what lies in the bucket alone cannot be looked up: {error}"));
                Ok(())
            }
        }
    }
}

/// Logs a failed look-up, which fails nothing.
fn told(found: Result<(), EngineError>, what: &str, control: &Control) -> Result<(), WorkError> {
    match found {
        Ok(()) => Ok(()),
        Err(EngineError::Stopped) => Err(WorkError::Stopped),
        Err(error) => {
            control.log(format!("{what} could not be found out: {error}"));
            Ok(())
        }
    }
}

fn ended(error: EngineError) -> WorkError {
    match error {
        EngineError::Stopped => WorkError::Stopped,
        other => other.into(),
    }
}

fn line(incomplete: &Incomplete) -> String {
    let Incomplete { backup, vm, disk, reason, .. } = incomplete;
    match backup {
        Some(backup) => format!(
            "nothing of its namespace was freed: VM {vm:?}, restore point {backup}, disk {disk:?}: {reason}"
        ),
        None => format!("nothing more of a namespace was freed: {reason}"),
    }
}

/// A round, as tasks steer it.
#[derive(Debug)]
struct Round(Arc<ReclaimControl>);

impl Steered for Round {
    fn pause(&self, paused: bool) {
        self.0.set_paused(paused);
    }

    fn stop(&self) {
        self.0.stop();
    }

    fn set_throttle(&self, throttle: Throttle) {
        self.0.set_share_pct(throttle.share_percent());
        self.0.set_bytes_per_sec(throttle.bytes_per_sec().map_or(0, std::num::NonZeroU64::get));
    }

    fn progress(&self) -> TaskProgress {
        let progress = self.0.progress();
        let unit = match progress.phase {
            ReclaimPhase::Idle => "",
            ReclaimPhase::Squeezing => "containers tried at a higher level",
            ReclaimPhase::Marking | ReclaimPhase::Attributing => "disks followed",
            ReclaimPhase::Copying => "batches copied",
            ReclaimPhase::Deleting => "containers deleted",
            ReclaimPhase::Moving => "containers looked at for moving",
            ReclaimPhase::Placing => "restore points looked up in the bucket",
        };
        TaskProgress { done: progress.done, total: progress.total, unit: unit.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_bounded_and_have_one_form() {
        let read = read_options::<Options>;
        let engine_options = |text: &str| read(text).map(|options| for_engine(&options));
        assert_eq!(engine_options("{}").unwrap(), ReclaimOptions::default());
        let squeeze = engine_options(r#"{"squeeze":true,"squeeze_min_age_days":0}"#).unwrap().squeeze;
        assert_eq!(squeeze, Some(Squeeze { level: SQUEEZE_LEVEL, min_age_days: 0 }));
        let same = serde_json::to_string(&read(r#"{"dry_run":false,"squeeze":false}"#).unwrap()).unwrap();
        assert_eq!(same, "{}");
        assert!(read(r#"{"unknown":1}"#).is_err() && read("no").is_err());
    }
}
