//! Scrub: reads everything there is and compares it with its checksums and digests, when a person asks for it.
//!
//! It is a pass like those that the server makes by itself, begun anew, and at the speed of a task. There is one pass at a
//! time: while an attempt works on it the background job leaves it alone, and after a cancellation, or during a long pause,
//! goes on with it. A later attempt goes on where the pass is then.

use std::sync::Arc;

use holdfast_engine::catalog::{DamageTotals, ScrubPhase, TaskKind};
use holdfast_engine::{Budget, Engine, ScrubFindings, ScrubStatus, ScrubWatch, Step};
use serde::{Deserialize, Serialize};

use super::control::{Control, Stopped};
use super::work::{DefaultSchedule, Order, Work, WorkError, normal_options};
use crate::error::ServiceError;
use crate::insight::{agents_sentence, lost_text};

/// Off: the background job reads everything within `scrub_days`. For those who switched that off, or want it to be at a
/// time of their own.
const SCHEDULE: DefaultSchedule = DefaultSchedule { expression: "0 8 1 * *", enabled: false };

/// Findings told in the log; what is known to be damaged is in the catalog all the same.
const NEWS_LINES: u32 = 300;

/// Disks named in the log that lack something. `GET /damage` has all of them.
const LOST_LINES: u32 = 300;

/// Work between two looks at the control while lost data is named: a thousand extents that are not read, or a hundred
/// that are.
const NAMING_ITEMS: u64 = 1024;
const NAMING_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Figures {
    containers: u64,
    container_bytes: u64,
    damaged_containers: u64,
    restore_points: u64,
    unsound_restore_points: u64,
    false_digests: u64,
    unclear: u64,
    /// Groups whose parity is damaged or missing.
    #[serde(default)]
    damaged_parity: u64,
    /// Containers that lie in the bucket alone, and were not read.
    #[serde(default)]
    far_containers: u64,
    #[serde(default)]
    far_restore_points: u64,
    /// Bytes that all restore points lack, once the pass has ended.
    lost_bytes: u64,
}

impl Figures {
    const fn with(self, found: ScrubFindings) -> Self {
        Self {
            containers: self.containers + found.containers,
            container_bytes: self.container_bytes + found.container_bytes,
            damaged_containers: self.damaged_containers + found.damaged_containers,
            restore_points: self.restore_points + found.restore_points,
            unsound_restore_points: self.unsound_restore_points + found.unsound_restore_points,
            false_digests: self.false_digests + found.false_digests,
            unclear: self.unclear + found.unclear,
            damaged_parity: self.damaged_parity + found.damaged_parity,
            far_containers: self.far_containers + found.far_containers,
            far_restore_points: self.far_restore_points + found.far_restore_points,
            lost_bytes: self.lost_bytes,
        }
    }
}

/// Progress between attempts.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Place {
    pass: u64,
    /// Figures of the attempts so far.
    figures: Figures,
    lines: u32,
}

/// The work of a scrub task.
#[derive(Debug)]
pub(crate) struct ScrubWork {
    pub(crate) engine: Arc<Engine>,
}

impl Work for ScrubWork {
    fn kind(&self) -> TaskKind {
        TaskKind::Scrub
    }

    fn default_schedule(&self) -> Option<DefaultSchedule> {
        Some(SCHEDULE)
    }

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        normal_options::<Options>(options)
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        let place: Option<Place> = serde_json::from_str(&order.place).ok();
        let begun = place.map(|place| place.pass);
        let mut watch = Watch {
            control,
            before: place.map_or_else(Figures::default, |place| place.figures),
            figures: place.map_or_else(Figures::default, |place| place.figures),
            lines: place.map_or(0, |place| place.lines),
            looked: false,
        };
        let ended = self.engine.scrub_pass(begun, &mut watch)?;
        let (figures, looked) = (watch.figures, watch.looked);
        if !ended {
            return Err(Stopped.into());
        }
        if begun.is_some() && !looked {
            control.log("nothing was left of the pass: the server went on with it meanwhile");
        }
        self.end(figures, control)
    }
}

impl ScrubWork {
    /// Says what it came to, and what cannot be restored.
    fn end(&self, figures: Figures, control: &Control) -> Result<(), WorkError> {
        if let Err(error) = self.name_damage(control)? {
            control.log(format!("what restore points lack could not be found out: {error}"));
        }
        let catalog = self.engine.catalog();
        for disk in catalog.damaged_disks(None, None, LOST_LINES)? {
            control.log(format!("DAMAGED: {}", lost_text(&disk)));
        }
        let lost = catalog.damage_totals(None)?;
        control.set_figures(&Figures { lost_bytes: lost.bytes, ..figures });
        for found in catalog.agents_proof_summaries()? {
            control.log(agents_sentence(&found));
        }
        control.log(verdict(&figures, lost));
        Ok(())
    }

    /// Records in the catalog what the damage known now costs. The inner error: it cannot be told at the moment.
    fn name_damage(&self, control: &Control) -> Result<Result<(), String>, Stopped> {
        let job = self.engine.damage_report_job();
        loop {
            let budget = Budget::of(NAMING_ITEMS, NAMING_BYTES);
            match job.step(&budget) {
                Ok(Step::More) => control.charge(budget.bytes())?,
                Ok(Step::Idle(_) | Step::Finished) => return Ok(Ok(())),
                Err(error) => return Ok(Err(error.to_string())),
            }
        }
    }
}

/// The last line of the log.
fn verdict(figures: &Figures, lost: DamageTotals) -> String {
    let Figures { containers, container_bytes, restore_points, damaged_containers, .. } = *figures;
    let mut read = format!(
        "{containers} containers of {container_bytes} bytes and {restore_points} restore points read"
    );
    if figures.far_containers > 0 {
        read += &format!(
            " ({} containers and data of {} of the restore points lie in the bucket alone and were not)",
            figures.far_containers, figures.far_restore_points
        );
    }
    let DamageTotals { restore_points: lacking, bytes, .. } = lost;
    let unclear = match figures.unclear {
        0 => String::new(),
        unclear => format!("; {unclear} of them cannot be judged now, so scrub again later"),
    };
    if lacking > 0 {
        let tell =
            format!("{lacking} restore points lack {bytes} bytes: back up their VMs, which brings back");
        return format!(
            "{read}{unclear}, {damaged_containers} containers damaged; {tell} what their sources still have"
        );
    }
    if figures.unsound_restore_points > 0 {
        let unsound = figures.unsound_restore_points;
        return format!("{read}{unclear}, {unsound} restore points not as they were when they were made");
    }
    if damaged_containers > 0 {
        return format!(
            "{read}{unclear}, {damaged_containers} containers damaged, and every restore point whole"
        );
    }
    if figures.damaged_parity > 0 {
        let groups = figures.damaged_parity;
        return format!(
            "{read}{unclear}, everything sound but the parity of {groups} groups, which is made anew while parity is on"
        );
    }
    if figures.unclear > 0 {
        return format!("{read}{unclear}; all others are sound");
    }
    format!("{read}, all sound")
}

/// Steers a pass as the task is steered, and tells of it.
struct Watch<'a> {
    control: &'a Control,
    /// Figures of earlier attempts.
    before: Figures,
    figures: Figures,
    lines: u32,
    /// True if there was anything left of the pass.
    looked: bool,
}

impl ScrubWatch for Watch<'_> {
    fn charge(&mut self, bytes: u64) -> bool {
        self.control.charge(bytes).is_ok()
    }

    fn told(&mut self, status: &ScrubStatus, found: ScrubFindings, news: Vec<String>) {
        self.looked = true;
        for line in news {
            if self.lines < NEWS_LINES {
                self.control.log(line);
            } else if self.lines == NEWS_LINES {
                self.control.log("and more; GET /api/v1/storage lists all damage");
            }
            self.lines = self.lines.saturating_add(1);
        }
        self.figures = self.before.with(found);
        self.control.set_figures(&self.figures);
        let unit = match status.phase {
            ScrubPhase::Idle => return,
            ScrubPhase::Containers => "containers",
            ScrubPhase::RestorePoints => "restore points",
        };
        self.control.set_progress(status.done.min(status.total), status.total, unit);
        let place = Place { pass: status.pass, figures: self.figures, lines: self.lines };
        match serde_json::to_string(&place) {
            Ok(place) => self.control.set_place(place),
            Err(error) => tracing::error!(%error, "the place of a scrub has no JSON form"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_earlier_attempts_found_counts() {
        let before = Figures { containers: 2, damaged_containers: 1, ..Figures::default() };
        let found = ScrubFindings { containers: 3, restore_points: 1, ..ScrubFindings::default() };
        let sum = before.with(found);
        assert_eq!((sum.containers, sum.damaged_containers, sum.restore_points), (5, 1, 1));
    }

    #[test]
    fn the_verdict_says_the_worst() {
        let nothing = DamageTotals::default();
        let lost = DamageTotals { restore_points: 2, disks: 3, bytes: 4096 };
        let say = |damaged_containers, unsound_restore_points, unclear, lost| {
            let figures =
                Figures { damaged_containers, unsound_restore_points, unclear, ..Figures::default() };
            verdict(&figures, lost)
        };
        assert!(say(0, 0, 0, nothing).ends_with("read, all sound"));
        assert!(say(1, 0, 0, nothing).ends_with("every restore point whole"));
        assert!(say(0, 1, 0, nothing).contains("1 restore points not as they were"));
        assert!(say(1, 1, 2, lost).contains("2 restore points lack 4096 bytes"));
        let text = say(0, 0, 2, nothing);
        assert!(text.contains("2 of them cannot be judged now") && text.ends_with("all others are sound"));
    }
}
