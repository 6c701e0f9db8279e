//! Thaw: brings back from the archive what a restore point needs, and waits until it can be read.
//!
//! Requests to thaw are in the record of what lies in the bucket, so a later attempt, or another task, asks only for
//! objects that are still cold. A cancelled one takes nothing back: what was asked for comes, and is paid for.
//!
//! It ends, whatever the bucket does: one that never thaws what it was asked for, says that it does and never has it, or
//! fails for a day ends the task, with what it waited for.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::Engine;
use holdfast_engine::catalog::{BackupRecord, TaskKind};
use holdfast_engine::ids::BackupId;
use holdfast_proto::ErrorCode;
use holdfast_tiers::prices::Thaw;
use holdfast_tiers::{Archive, Thawing, UNDER_WAY_MS};
use holdfast_volume::VolumeError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::control::Control;
use super::work::{Order, Share, Work, WorkError, read_options};
use crate::archive::{Archives, Part, disks};
use crate::error::ServiceError;
use crate::repository::record_error;

/// Thaws that work at once: one that waits for two days must not hold another up that takes minutes.
const AT_ONCE: usize = 24;

/// Thaws that have not ended, of the [`UNFINISHED_TASKS_MAX`](holdfast_engine::catalog::UNFINISHED_TASKS_MAX) of all kinds:
/// anyone who may restore starts them, and reclaim must always have a place.
const UNFINISHED_MAX: usize = 48;

/// Shares of one restore point and one tenant: then there is always a place for another tenant, also among those that
/// [work at once](AT_ONCE). More of a restore point are of other disks, speeds or days.
const SHARES: [Share; 2] = [
    Share { option: "backup", unfinished_max: 4, what: "restore point" },
    Share { option: "namespace", unfinished_max: 16, what: "namespace" },
];

/// Requests made side by side, of a batch that is between two looks at whether to go on.
const THREADS: usize = 8;
const BATCH: usize = 64;

/// Interval between looks whether something came, at first and at most. A look costs a request.
const LOOK_FIRST: Duration = Duration::from_secs(1);
const LOOK_LONGEST: Duration = Duration::from_secs(60);

/// Requests of an attempt for an object that the bucket does not thaw.
const ASKS_MAX: u32 = 3;

/// Time for which requests may fail, none in between being answered.
const FAILING_LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Passes over objects whose copy ended while the rest was waited for.
const PASSES_MAX: u32 = 3;

const DAY_MS: u64 = 24 * 3_600_000;

/// Options of a thaw task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    pub(crate) backup: String,
    /// Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) disks: Vec<String>,
    pub(crate) speed: String,
    /// Days for which it can be read; 0: as the settings say.
    #[serde(default)]
    pub(crate) days: u32,
    /// The id of the restore point's, whatever is asked for.
    #[serde(default)]
    pub(crate) namespace: String,
}

impl Options {
    /// # Errors
    /// `Invalid`.
    pub(crate) fn read(text: &str) -> Result<Self, ServiceError> {
        read_options(text)
    }

    /// # Errors
    /// `Invalid`.
    pub(crate) fn backup(&self) -> Result<BackupId, ServiceError> {
        self.backup
            .parse()
            .map_err(|_| ServiceError::invalid(format!("{:?} is no id of a backup", self.backup)))
    }

    fn speed(&self) -> Result<Thaw, ServiceError> {
        Thaw::named(&self.speed).ok_or_else(|| {
            ServiceError::invalid(format!("{:?} is no speed: bulk, standard or expedited", self.speed))
        })
    }
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Figures {
    objects: u64,
    total_bytes: u64,
    /// Objects that this attempt asked for.
    asked_objects: u64,
    asked_bytes: u64,
    readable_objects: u64,
    /// Readable objects that are kept here for a while.
    kept_objects: u64,
    kept_bytes: u64,
}

/// The work of a thaw task.
#[derive(Debug)]
pub(crate) struct ThawWork {
    pub(crate) engine: Arc<Engine>,
    pub(crate) archives: Arc<Archives>,
}

impl Work for ThawWork {
    fn kind(&self) -> TaskKind {
        TaskKind::Thaw
    }

    fn at_once(&self) -> usize {
        AT_ONCE
    }

    fn unfinished_max(&self) -> usize {
        UNFINISHED_MAX
    }

    fn shares(&self) -> &'static [Share] {
        &SHARES
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        let mut options = Options::read(options)?;
        let found = self.found(options.backup()?)?;
        let meant = disks(&found.disks, &options.disks)?;
        // All by their names are all.
        let names = if meant.len() < found.disks.len() { meant } else { Vec::new() };
        options.namespace = found.namespace.to_string();
        options.disks = names.into_iter().map(str::to_owned).collect();
        options.speed = options.speed()?.text().to_ascii_lowercase();
        options.days = self.archives.days(options.days)?;
        self.archives.archive()?;
        serde_json::to_string(&options).map_err(ServiceError::defect)
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        let options = Options::read(&order.options)?;
        let (backup, archive) = (options.backup()?, self.archives.archive()?);
        // Before it finds anything kept here, which must not go then.
        let begun_ms = archive.now_ms();
        let parts = self.parts(&options, backup, control)?;
        let mut figures = Figures {
            objects: parts.len() as u64,
            total_bytes: parts.iter().map(|part| part.len).sum(),
            ..Figures::default()
        };
        let wanted = Wanted { days: options.days, speed: options.speed()? };
        let failing = Duration::ZERO;
        Attempt { archive, control, figures: &mut figures, wanted, begun_ms, failing }.run(&parts)?;
        let Figures { objects, total_bytes, .. } = figures;
        control.log(format!(
            "{objects} objects of {total_bytes} bytes can be read: what this asked for in the bucket for {} days",
            options.days
        ));
        Ok(())
    }
}

impl ThawWork {
    fn found(&self, backup: BackupId) -> Result<BackupRecord, ServiceError> {
        self.engine.catalog().backup(backup)?.ok_or_else(|| {
            ServiceError::new(ErrorCode::NotFound, format!("there is no restore point {backup}, or no more"))
        })
    }

    fn parts(&self, options: &Options, backup: BackupId, control: &Control) -> Result<Vec<Part>, WorkError> {
        let found = self.found(backup)?;
        let disks = disks(&found.disks, &options.disks)?;
        between_pauses(control, |go_on| self.archives.parts(found.namespace, backup, &disks, go_on))
    }
}

/// Returns the result of `look`. A pause ends `look`, so that others may look meanwhile; it is begun again after the
/// pause.
fn between_pauses<T>(
    control: &Control,
    look: impl Fn(&mut dyn FnMut() -> bool) -> Result<Option<T>, ServiceError>,
) -> Result<T, WorkError> {
    loop {
        control.check()?;
        if let Some(found) = look(&mut || control.goes_on(0))? {
            return Ok(found);
        }
    }
}

/// Days and speed of the requests.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    days: u32,
    speed: Thaw,
}

/// One attempt.
struct Attempt<'a> {
    archive: &'a Archive,
    control: &'a Control,
    figures: &'a mut Figures,
    wanted: Wanted,
    /// Time at which it began.
    begun_ms: i64,
    /// Time that it has waited since a request was answered last.
    failing: Duration,
}

impl Attempt<'_> {
    fn run(mut self, parts: &[Part]) -> Result<(), WorkError> {
        self.ask_all(parts)?;
        for _ in 0..PASSES_MAX {
            (self.figures.kept_objects, self.figures.kept_bytes) = (0, 0);
            self.wait_for_all(parts)?;
            // The first may have ended while the last was waited for.
            if self.are_readable(parts)? {
                return Ok(());
            }
        }
        let days = self.wanted.days;
        Err(end(format!(
            "some of it ended, after {days} days, before the rest could be read: thaw it for more days, or faster"
        )))
    }

    fn told(&self, done: u64) {
        self.control.set_progress(done, self.figures.objects, "objects thawed");
        self.control.set_figures(self.figures);
    }

    fn ask_all(&mut self, parts: &[Part]) -> Result<(), WorkError> {
        let cold: Vec<&Part> = parts.iter().filter(|part| part.thawing == Thawing::Cold).collect();
        for batch in cold.chunks(BATCH) {
            self.told(0);
            let mut left: Vec<&Part> = batch.to_vec();
            let mut wait = LOOK_FIRST;
            while !left.is_empty() {
                self.control.check()?;
                let Asked { asked, answered, left: failed, error } =
                    ask_batch(self.archive, left, self.wanted);
                self.figures.asked_objects += asked.len() as u64;
                self.figures.asked_bytes += asked.iter().map(|part| part.len).sum::<u64>();
                left = failed;
                if answered {
                    self.failing = Duration::ZERO;
                }
                if let Some(error) = error {
                    wait = self.later(&error, wait)?;
                }
            }
        }
        let asked = self.figures.asked_objects;
        self.control.log(format!(
            "{asked} objects of {} bytes asked for; {} were before",
            self.figures.asked_bytes,
            self.figures.objects - asked
        ));
        Ok(())
    }

    /// Waits until each of them could be read.
    fn wait_for_all(&mut self, parts: &[Part]) -> Result<(), WorkError> {
        for (done, part) in (0_u64..).zip(parts) {
            self.figures.readable_objects = done;
            self.told(done);
            self.wait_for(part)?;
            self.keep(part)?;
        }
        self.figures.readable_objects = self.figures.objects;
        self.told(self.figures.objects);
        Ok(())
    }

    /// Keeps it here, so that a later restore need not pay for it again. Where that fails, this one reads it in the bucket.
    fn keep(&mut self, part: &Part) -> Result<(), WorkError> {
        self.control.check()?;
        match self.archive.keep(&part.name, self.begun_ms) {
            Ok(true) => {
                self.figures.kept_objects += 1;
                self.figures.kept_bytes += part.len;
                self.control.charge(part.len)?;
            }
            Ok(false) => {}
            Err(error) => self.control.log(format!("not kept here: {error}")),
        }
        Ok(())
    }

    fn wait_for(&mut self, part: &Part) -> Result<(), WorkError> {
        let (mut wait, mut asks) = (LOOK_FIRST, 0);
        loop {
            self.control.check()?;
            // It looks, too.
            let answer = if asks < ASKS_MAX {
                self.archive.ask(&part.name, self.wanted.days, self.wanted.speed)
            } else {
                self.archive.look(&part.name)
            };
            match answer.map_err(gone) {
                Ok(Thawing::Readable) => {
                    self.failing = Duration::ZERO;
                    return Ok(());
                }
                // It was thawed, and its days were over before anyone looked; or it was never begun.
                Ok(Thawing::Cold) if asks >= ASKS_MAX => {
                    return Err(self.never(part, &format!("asked for {asks} times")));
                }
                Ok(answer) => {
                    self.failing = Duration::ZERO;
                    if answer == Thawing::Cold {
                        asks += 1;
                        self.figures.asked_objects += 1;
                        self.figures.asked_bytes += part.len;
                    }
                    self.check_age(part)?;
                    self.control.rest(wait)?;
                    wait = (wait * 2).min(LOOK_LONGEST);
                }
                Err(error) => wait = self.later(&error, wait)?,
            }
        }
    }

    /// Fails for a part that was asked for longer ago than any thaw takes: it never comes.
    fn check_age(&self, part: &Part) -> Result<(), WorkError> {
        match self.archive.under_way_ms(&part.name).map_err(record_error)? {
            Some(since_ms) if since_ms >= UNDER_WAY_MS => {
                Err(self.never(part, &format!("asked for {} days ago", since_ms / DAY_MS)))
            }
            _ => Ok(()),
        }
    }

    fn never(&self, part: &Part, what: &str) -> WorkError {
        let Part { name, class, .. } = part;
        let speed = self.wanted.speed.text();
        end(format!(
            "{name} ({class}) was {what} ({speed}), and the bucket does not have it thawed: look there how it is (head-object \
             shows it as Restore), and start the thaw again"
        ))
    }

    fn are_readable(&self, parts: &[Part]) -> Result<bool, ServiceError> {
        for part in parts {
            let known = self.archive.known(&part.name).map_err(record_error)?;
            if known.is_some_and(|(_, thawing)| thawing != Thawing::Readable) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits before another try, and returns the wait after the next failure; fails when another try is not worth it.
    fn later(&mut self, error: &VolumeError, wait: Duration) -> Result<Duration, WorkError> {
        if !error.is_retryable() || self.failing >= FAILING_LONGEST {
            return Err(end(error.to_string()));
        }
        self.control.log(format!("tried again: {error}"));
        self.control.rest(wait)?;
        self.failing += wait;
        Ok((wait * 2).min(LOOK_LONGEST))
    }
}

/// Result of a batch of requests.
struct Asked<'a> {
    asked: Vec<&'a Part>,
    /// Set once any request was answered.
    answered: bool,
    left: Vec<&'a Part>,
    error: Option<VolumeError>,
}

/// Asks for these, until something fails.
fn ask_batch<'a>(archive: &Archive, parts: Vec<&'a Part>, wanted: Wanted) -> Asked<'a> {
    let count = parts.len();
    let left = Mutex::new(parts);
    let asked = Mutex::new(Vec::new());
    let failed: Mutex<Option<VolumeError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while failed.lock().is_none() {
                    let Some(part) = left.lock().pop() else { return };
                    match archive.ask(&part.name, wanted.days, wanted.speed) {
                        Ok(Thawing::Cold) => asked.lock().push(part),
                        Ok(Thawing::UnderWay | Thawing::Readable) => {}
                        Err(error) => {
                            left.lock().push(part);
                            failed.lock().get_or_insert(gone(error));
                        }
                    }
                }
            });
        }
    });
    let left = left.into_inner();
    Asked { asked: asked.into_inner(), answered: left.len() < count, left, error: failed.into_inner() }
}

/// An object that is not there is named, and is worth no further try.
fn gone(error: VolumeError) -> VolumeError {
    match error {
        VolumeError::NotFound { name } => VolumeError::BadAnswer {
            action: "thaw",
            name: name.to_string(),
            found: "no such object: it was deleted from the bucket, not by this server (look for lifecycle rules, and for \
                    older versions of it if the bucket keeps versions)"
                .to_owned(),
        },
        other => other,
    }
}

fn end(why: String) -> WorkError {
    WorkError::Failed(ServiceError::new(ErrorCode::Internal, why))
}

#[cfg(test)]
mod tests;
