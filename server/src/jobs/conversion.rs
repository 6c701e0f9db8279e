//! Encrypts what was written before the repository was encrypted, or with data keys that are old. A crash leaves nothing
//! that has to be kept: what was done shows on the volume.

use std::sync::Arc;
use std::time::Duration;

use holdfast_engine::{Budget, Engine, Job, JobError, JobProgress, Load, RewriteRoom, Step};
use holdfast_sealing::{Cause, Conversion, Converting, Room, Surroundings};
use holdfast_volume::{Blob, BlobName, Owner, VolumeError};

use crate::repository::Tiers;
/// Interval between looks whether keys were changed, and whether what is still being written with old ones is done.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Pause between passes, when something could not be converted: it may be repaired by then, or deleted.
const AGAIN: Duration = Duration::from_secs(900);

/// Pause after each blob while backups or restores need the disk: 16 MB/s at most.
const BESIDE_OTHERS: Duration = Duration::from_secs(2);

/// Pause before the next question whether the bucket has no old forms any more.
const ELSEWHERE: Duration = Duration::from_secs(2);

/// One charge is a piece of a blob: 1 MiB read and written, or compared. A stop waits for that, and for the seal of a blob.
#[derive(Debug)]
pub(crate) struct EncryptRest {
    pub(crate) engine: Arc<Engine>,
    pub(crate) conversion: Arc<Conversion>,
    pub(crate) load: Arc<dyn Load>,
    pub(crate) tiers: Option<Arc<Tiers>>,
}

impl Job for EncryptRest {
    fn name(&self) -> &'static str {
        "encrypt-rest"
    }

    fn step(&self, budget: &Budget) -> Result<Step, JobError> {
        if self.engine.read_only_reason().is_some() {
            return Ok(Step::Idle(AGAIN));
        }
        let is_busy = self.load.is_busy();
        let around = Around { engine: &self.engine, budget, is_busy, tiers: self.tiers.as_deref() };
        let before = self.conversion.figures();
        Ok(match self.conversion.step(&around)? {
            Converting::More if is_busy => Step::Idle(BESIDE_OTHERS),
            Converting::More => Step::More,
            Converting::Left(blobs) => {
                let why = self.conversion.figures().why.unwrap_or_default();
                tracing::warn!(blobs, why, "not everything could be encrypted; it is tried again");
                Step::Idle(AGAIN)
            }
            Converting::Elsewhere(blobs) => {
                if before.elsewhere == 0 {
                    let bucket = self.tiers.as_ref().map_or("the bucket", |tiers| &tiers.location);
                    tracing::info!(
                        blobs,
                        bucket,
                        "everything here is encrypted with the keys of today; what was replaced still lies in the bucket, and \
                         goes from there once the copies have caught up"
                    );
                }
                Step::Idle(ELSEWHERE)
            }
            Converting::Waits => Step::Idle(LOOK_AGAIN),
            Converting::Done => {
                if !before.done {
                    tracing::info!(
                        "everything on the volume is encrypted with the keys of today, and nothing else is believed"
                    );
                }
                // Keys may be changed while the server runs.
                Step::Idle(LOOK_AGAIN)
            }
        })
    }

    fn progress(&self) -> Option<JobProgress> {
        let figures = self.conversion.figures();
        Some(JobProgress { done: figures.looked_at, total: figures.total, unit: "blobs" })
    }
}

/// (W10) What is written counts as written.
struct Promised(RewriteRoom);

impl Room for Promised {
    fn wrote(&mut self, bytes: u64) {
        self.0.wrote(bytes);
    }

    fn sealed(self: Box<Self>, bytes: u64) {
        self.0.sealed(bytes);
    }
}

struct Around<'a> {
    engine: &'a Engine,
    budget: &'a Budget,
    is_busy: bool,
    tiers: Option<&'a Tiers>,
}

impl Surroundings for Around<'_> {
    fn owner(&self, name: &BlobName, blob: &Arc<dyn Blob>) -> Result<Owner, Cause> {
        Ok(self.engine.owner_of(name, blob)?)
    }

    fn room(&self, bytes: u64) -> Result<Box<dyn Room>, Cause> {
        Ok(Box::new(Promised(self.engine.room_to_rewrite(bytes)?)))
    }

    fn write_failed(&self, error: &VolumeError) {
        self.engine.note_write_failure(error);
    }

    fn removed_so_far(&self) -> Result<u64, Cause> {
        let Some(tiers) = self.tiers else { return Ok(0) };
        Ok(u64::try_from(tiers.copies.record().last_removal()?)?)
    }

    fn lie_elsewhere(&self, mark: u64) -> Result<u64, Cause> {
        let Some(tiers) = self.tiers else { return Ok(0) };
        Ok(tiers.copies.record().removals_up_to(i64::try_from(mark)?)?)
    }

    fn lies_elsewhere(&self, below: &BlobName) -> Result<bool, Cause> {
        let Some(tiers) = self.tiers else { return Ok(false) };
        Ok(tiers.copies.record().is_to_go(below)?)
    }

    fn charge(&self, blobs: u64, bytes: u64) {
        self.budget.charge(blobs, bytes);
    }

    fn is_spent(&self) -> bool {
        self.budget.is_spent() || (self.is_busy && self.budget.bytes() > 0)
    }

    fn must_stop(&self) -> bool {
        self.budget.must_stop()
    }
}
