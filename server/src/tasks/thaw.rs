//! Thaw: brings back from the archive what a restore point needs, and waits until it can be read.
//!
//! What was asked for is in the record of what lies in the bucket, so a later attempt, or another task, asks only for what is
//! still cold. A cancelled one takes nothing back: what was asked for comes, and is paid for.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::Engine;
use holdfast_engine::catalog::TaskKind;
use holdfast_engine::ids::BackupId;
use holdfast_proto::ErrorCode;
use holdfast_tiers::prices::Thaw;
use holdfast_tiers::{Archive, Thawing};
use holdfast_volume::VolumeError;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::control::{Control, Stopped};
use super::work::{Order, Work, WorkError};
use crate::archive::{Archives, Part, speed};
use crate::error::ServiceError;

/// Thaws that work at once: one that waits for two days must not hold another up that takes minutes.
const AT_ONCE: usize = 16;

/// Requests made side by side, of a batch that is between two looks at whether to go on.
const THREADS: usize = 8;
const BATCH: usize = 64;

/// Between two looks whether something came, at first and at most. A look costs a request.
const LOOK_FIRST: Duration = Duration::from_secs(1);
const LOOK_LONGEST: Duration = Duration::from_secs(60);

/// What to thaw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    pub(crate) backup: String,
    /// Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) disks: Vec<String>,
    pub(crate) speed: String,
    /// For which it can be read; 0: as the settings say.
    #[serde(default)]
    pub(crate) days: u32,
}

impl Options {
    /// # Errors
    /// `Invalid`.
    pub(crate) fn read(text: &str) -> Result<Self, ServiceError> {
        serde_json::from_str(text).map_err(|error| ServiceError::invalid(format!("options: {error}")))
    }

    /// # Errors
    /// `Invalid`.
    pub(crate) fn backup(&self) -> Result<BackupId, ServiceError> {
        self.backup
            .parse()
            .map_err(|_| ServiceError::invalid(format!("{:?} is no id of a backup", self.backup)))
    }

    fn speed(&self) -> Result<Thaw, ServiceError> {
        speed(&self.speed).ok_or_else(|| {
            ServiceError::invalid(format!("{:?} is no speed: bulk, standard or expedited", self.speed))
        })
    }
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Figures {
    objects: u64,
    total_bytes: u64,
    /// What this attempt asked for.
    asked_objects: u64,
    asked_bytes: u64,
    readable_objects: u64,
}

/// See the module's text.
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

    fn check(&self, options: &str) -> Result<String, ServiceError> {
        let mut options = Options::read(options)?;
        options.backup()?;
        options.speed = options.speed()?.text().to_ascii_lowercase();
        options.days = self.archives.days(options.days)?;
        self.archives.archive()?;
        serde_json::to_string(&options).map_err(ServiceError::defect)
    }

    fn run(&self, order: &Order, control: &Control) -> Result<(), WorkError> {
        let options = Options::read(&order.options)?;
        let (backup, archive) = (options.backup()?, self.archives.archive()?);
        let Some(parts) = self.parts(&options, backup, control)? else { return Err(Stopped.into()) };
        let mut figures = Figures {
            objects: parts.len() as u64,
            total_bytes: parts.iter().map(|part| part.len).sum(),
            ..Figures::default()
        };
        let mut thawing = Attempt { archive, control, figures: &mut figures };
        let speed = options.speed()?;
        thawing.ask_all(&parts, options.days, speed)?;
        thawing.wait_for_all(&parts, options.days, speed)?;
        let Figures { objects, total_bytes, .. } = figures;
        control
            .log(format!("{objects} objects of {total_bytes} bytes can be read for {} days", options.days));
        Ok(())
    }
}

impl ThawWork {
    fn parts(
        &self,
        options: &Options,
        backup: BackupId,
        control: &Control,
    ) -> Result<Option<Vec<Part>>, ServiceError> {
        let found = self.engine.catalog().backup(backup)?.ok_or_else(|| {
            ServiceError::new(ErrorCode::NotFound, format!("restore point {backup} was deleted"))
        })?;
        let disks = self.archives.disks(backup, options.disks.clone())?;
        let mut go_on = || control.charge(0).is_ok();
        self.archives.parts(found.namespace, backup, &disks, &mut go_on)
    }
}

/// One attempt.
struct Attempt<'a> {
    archive: &'a Archive,
    control: &'a Control,
    figures: &'a mut Figures,
}

impl Attempt<'_> {
    fn told(&self, done: u64) {
        self.control.set_progress(done, self.figures.objects, "objects thawed");
        self.control.set_figures(self.figures);
    }

    fn ask_all(&mut self, parts: &[Part], days: u32, speed: Thaw) -> Result<(), WorkError> {
        let cold: Vec<&Part> = parts.iter().filter(|part| part.thawing == Thawing::Cold).collect();
        for batch in cold.chunks(BATCH) {
            self.told(0);
            let mut left: Vec<&Part> = batch.to_vec();
            let mut wait = LOOK_FIRST;
            while !left.is_empty() {
                self.control.check()?;
                let (asked, failed, error) = ask_batch(self.archive, left, days, speed);
                self.figures.asked_objects += asked.len() as u64;
                self.figures.asked_bytes += asked.iter().map(|part| part.len).sum::<u64>();
                left = failed;
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

    /// Asks for the first that did not come, and goes on when it has.
    fn wait_for_all(&mut self, parts: &[Part], days: u32, speed: Thaw) -> Result<(), WorkError> {
        let mut wait = LOOK_FIRST;
        for (done, part) in (0_u64..).zip(parts) {
            self.figures.readable_objects = done;
            self.told(done);
            loop {
                self.control.check()?;
                match self.archive.look(&part.name) {
                    Ok(Thawing::Readable) => break,
                    Ok(Thawing::UnderWay) => {
                        self.control.rest(wait)?;
                        wait = (wait * 2).min(LOOK_LONGEST);
                    }
                    // It was thawed, and its days were over before anyone looked.
                    Ok(Thawing::Cold) => match self.archive.ask(&part.name, days, speed) {
                        Ok(_) => {
                            self.figures.asked_objects += 1;
                            self.figures.asked_bytes += part.len;
                        }
                        Err(error) => wait = self.later(&gone(error), wait)?,
                    },
                    Err(error) => wait = self.later(&gone(error), wait)?,
                }
            }
            wait = LOOK_FIRST;
        }
        self.figures.readable_objects = self.figures.objects;
        self.told(self.figures.objects);
        Ok(())
    }

    /// Whether it is worth trying again, and the wait after the next failure.
    fn later(&self, error: &VolumeError, wait: Duration) -> Result<Duration, WorkError> {
        if !error.is_retryable() {
            return Err(WorkError::Failed(failed(error)));
        }
        self.control.log(format!("tried again: {error}"));
        self.control.rest(wait)?;
        Ok((wait * 2).min(LOOK_LONGEST))
    }
}

/// Those that were asked for, those that were not, and why.
fn ask_batch<'a>(
    archive: &Archive,
    parts: Vec<&'a Part>,
    days: u32,
    speed: Thaw,
) -> (Vec<&'a Part>, Vec<&'a Part>, Option<VolumeError>) {
    let left = Mutex::new(parts);
    let asked = Mutex::new(Vec::new());
    let failed: Mutex<Option<VolumeError>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while failed.lock().is_none() {
                    let Some(part) = left.lock().pop() else { return };
                    match archive.ask(&part.name, days, speed) {
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
    (asked.into_inner(), left.into_inner(), failed.into_inner())
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

fn failed(error: &VolumeError) -> ServiceError {
    ServiceError::new(ErrorCode::Internal, error.to_string())
}
