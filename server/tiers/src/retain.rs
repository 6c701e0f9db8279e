//! Puts objects that locked restore points need under retention in the bucket (Object Lock), a bounded batch a call.
//!
//! (T17) An object is retained for the longest lock of the restore points that need it, rounded up to whole days: only
//! ever extended, and never more than ten years from now. An object that several share is extended once.
//!
//! (T18) A restore point counts as kept when everything it needs is retained that long: its containers, the ends
//! beside archived ones, its point, the mark of the repository, and the newest table of keys.
//!
//! The wanted retention of an object is recorded before it is requested, and its actual retention after the
//! bucket confirmed it. A crash in between leaves an object with unrecorded retention: it is looked up, and not
//! requested again.

use holdfast_volume::{BlobName, LockMode, RemoteLook, Retained, VolumeError};
use parking_lot::Mutex;

use crate::compare::is_comparable;
use crate::copies::Copies;
use crate::error::CopyError;
use crate::evict::ends_name;
use crate::record::{Behind, PromisedPoint};
use crate::shared::Shared;
use crate::volume::TieredVolume;
use crate::waiting::Kind;

const DAY_MS: i64 = 24 * 3600 * 1000;

/// Ten years and a few days. Retention in compliance mode can never be shortened, and a clock that was wrong when
/// something was locked must not cost a century of storage. Longer locks are extended as time goes by.
const AHEAD_DAYS_MAX: i64 = 3_655;

/// Retention capped at [`AHEAD_DAYS_MAX`] is extended once it has fallen this many days behind.
const MARGIN_DAYS: i64 = 30;

/// A hold has no end. Its objects are retained for this long at a time, and extended halfway, so also this long
/// after release.
const HOLD_DAYS: i64 = 30;

/// Objects each thread extends in one call.
const OBJECTS_PER_THREAD: usize = 32;

/// After objects moved, restore points are checked again after an hour, as reclaim moves objects for longer than that.
const MOVED_AFTER_MS: i64 = 3_600_000;

/// And in any case after a week.
const AGAIN_AFTER_MS: i64 = 7 * DAY_MS;

/// Retention that the objects of a restore point need, in milliseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Objects retained until then count as kept.
    at_least_ms: i64,
    /// Retention to request for others.
    ask_ms: i64,
}

/// Rounds up to the end of a day.
const fn end_of_day(at_ms: i64) -> i64 {
    at_ms.saturating_sub(1).div_euclid(DAY_MS).saturating_add(1).saturating_mul(DAY_MS)
}

impl Keep {
    /// (T17) Computes the retention for a lock and a hold. `None`: neither is in force at `now_ms`.
    pub fn of(locked_until_ms: Option<i64>, is_held: bool, now_ms: i64) -> Option<Self> {
        let days = |days: i64| end_of_day(now_ms.saturating_add(days.saturating_mul(DAY_MS)));
        let locked = locked_until_ms.filter(|until_ms| *until_ms > now_ms).map(|until_ms| {
            let until_ms = end_of_day(until_ms);
            Self {
                at_least_ms: until_ms.min(days(AHEAD_DAYS_MAX - MARGIN_DAYS)),
                ask_ms: until_ms.min(days(AHEAD_DAYS_MAX)),
            }
        });
        let held = is_held.then(|| Self { at_least_ms: days(HOLD_DAYS / 2), ask_ms: days(HOLD_DAYS) });
        match (locked, held) {
            (Some(locked), Some(held)) => Some(Self {
                at_least_ms: locked.at_least_ms.max(held.at_least_ms),
                ask_ms: locked.ask_ms.max(held.ask_ms),
            }),
            (locked, held) => locked.or(held),
        }
    }
}

/// Result of one call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct Extended {
    /// Objects whose retention was extended, or found to be long enough.
    pub objects: u64,
    /// `true` if there is more to do now.
    pub more: bool,
}

/// Position in a walk over objects that are behind.
#[derive(Debug, Default)]
pub struct Extending {
    after: String,
    /// The first failure: it is reported after all other objects.
    failed: Option<CopyError>,
}

impl TieredVolume {
    /// Enables retention for objects that locked restore points need.
    #[must_use]
    pub fn retaining(self, mode: LockMode) -> Self {
        // Set once, right after construction.
        let _ = self.shared.retention.set(mode);
        self
    }
}

impl Copies {
    /// Retention mode; `None`: retention is disabled.
    pub fn retention(&self) -> Option<LockMode> {
        self.shared.retention.get().copied()
    }

    /// Checks that the bucket supports retention.
    ///
    /// # Errors
    /// [`CopyError::NoObjectLock`]; when the bucket cannot be asked.
    pub fn check_retention(&self) -> Result<(), CopyError> {
        match self.shared.remote.store.can_retain() {
            Ok(true) => Ok(()),
            Ok(false) => Err(CopyError::NoObjectLock),
            Err(error) => Err(CopyError::Remote(error)),
        }
    }

    /// Begins a pass over all locked restore points.
    ///
    /// # Errors
    /// The record's.
    pub fn begin_locked_points(&self) -> Result<(), CopyError> {
        let now_ms = self.shared.clock.now_ms();
        Ok(self.shared.record.begin_pass(now_ms, MOVED_AFTER_MS, AGAIN_AFTER_MS)?)
    }

    /// Returns true if a locked restore point is due to be checked: not everything it needs is known to be
    /// retained that long, or it `may_lack` blobs here although none is recorded as missing.
    ///
    /// # Errors
    /// The record's.
    pub fn is_point_due(&self, backup: &str, keep: Keep, may_lack: bool) -> Result<bool, CopyError> {
        let now_ms = self.shared.clock.now_ms();
        Ok(self.shared.record.is_point_due(backup, keep.at_least_ms, may_lack, now_ms)?)
    }

    /// Records the objects that a locked restore point needs, each blob by all names that it may have in the bucket,
    /// and by none if it is lost; its point comes last. Sends no request to the bucket.
    ///
    /// # Errors
    /// The record's.
    pub fn promise(&self, backup: &str, keep: Keep, needed: &[Vec<BlobName>]) -> Result<(), CopyError> {
        let Shared { record, clock, .. } = &*self.shared;
        let (mut names, mut missing) = (Vec::new(), 0);
        // (T18) Objects with a recorded loss count as missing until they are back (T14).
        let is_lost =
            |name: &BlobName| Ok::<_, CopyError>(record.flaw(name)?.is_some_and(|flaw| flaw.is_loss()));
        // The mark, which every restore point needs, comes first, so that the restore point's own point is the last
        // name.
        let mark = Kind::Mark.folder().filter(|mark| matches!(record.visible(mark), Ok(Some(_))));
        missing += u64::from(mark.is_none());
        names.extend(mark);
        if let Some(keys) = Kind::Keys.folder() {
            names.extend(record.newest_in(&keys)?);
        }
        for name in &names {
            missing += u64::from(is_lost(name)?);
        }
        for forms in needed {
            let before = names.len();
            for name in forms {
                if record.visible(name)?.is_none() {
                    continue;
                }
                // Without its ends no recovery knows the contents of an archived container.
                if let Some(ends) = ends_name(name).filter(|_| matches!(record.cold(name), Ok(Some(_)))) {
                    missing += u64::from(is_lost(&ends)?);
                    names.push(ends);
                }
                missing += u64::from(is_lost(name)?);
                names.push(name.clone());
            }
            missing += u64::from(names.len() == before);
        }
        let blob = names.last().map_or("", |name| name.as_str()).to_owned();
        let point = PromisedPoint { backup, blob: &blob, until_ms: keep.ask_ms, missing };
        Ok(record.promise(&point, &names, clock.now_ms())?)
    }

    /// Extends the next objects whose retention is too short. When none are left, the restore points that were checked
    /// count as kept.
    ///
    /// # Errors
    /// [`CopyError::Leased`]; the first object's failure, after all others were extended. The next call starts over.
    pub fn extend_some(
        &self,
        extending: &mut Extending,
        must_stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Extended, CopyError> {
        let Shared { record, clock, .. } = &*self.shared;
        let Some(mode) = self.retention() else { return Ok(Extended::default()) };
        let behind = record.behind(&extending.after, clock.now_ms(), self.threads() * OBJECTS_PER_THREAD)?;
        let Some(last) = behind.last() else {
            let Extending { failed, .. } = std::mem::take(extending);
            record.settle_points(clock.now_ms())?;
            return failed.map_or(Ok(Extended::default()), Err);
        };
        last.name.as_str().clone_into(&mut extending.after);
        // (T8) Only the server that writes to the bucket extends its objects.
        self.lease()?.check(&self.shared)?;
        let left = Mutex::new(behind);
        let (done, failed) = (Mutex::new(0), Mutex::new(None));
        std::thread::scope(|scope| {
            for _ in 0..self.threads() {
                scope.spawn(|| {
                    while !must_stop() {
                        let Some(next) = left.lock().pop() else { return };
                        match extend(&self.shared, &next, mode) {
                            Ok(()) => *done.lock() += 1,
                            Err(error) => {
                                failed.lock().get_or_insert(error);
                            }
                        }
                    }
                });
            }
        });
        if let Some(error) = failed.into_inner() {
            // A failure that concerns all objects, such as an unreachable bucket, ends the walk.
            if error.is_passing() && done.into_inner() == 0 {
                *extending = Extending::default();
                return Err(error);
            }
            extending.failed.get_or_insert(error);
            return Ok(Extended { objects: 0, more: true });
        }
        Ok(Extended { objects: done.into_inner(), more: true })
    }
}

/// (T17) Extends the retention of an object to what is wanted.
pub(crate) fn extend(shared: &Shared, behind: &Behind, mode: LockMode) -> Result<(), CopyError> {
    let Shared { remote, record, clock, .. } = shared;
    let name = &behind.name;
    let look = remote.store.look(name).map_err(CopyError::Remote)?;
    check_is_ours(shared, name, &look)?;
    let in_force = look.retained.filter(|retained| retained.until_ms > clock.now_ms());
    // (T17) Retention is never shortened.
    if let Some(found) = in_force.filter(|found| found.until_ms >= behind.wanted_ms) {
        return Ok(record.note_retained(name, found.until_ms)?);
    }
    let version = look.version.ok_or_else(|| {
        CopyError::Remote(VolumeError::BadAnswer {
            action: "retain",
            name: name.to_string(),
            found: "no version, which every object has where Object Lock is on".to_owned(),
        })
    })?;
    // An object keeps its retention mode when it is extended.
    let mode = in_force.map_or(mode, |found| found.mode);
    let wanted = Retained { mode, until_ms: behind.wanted_ms };
    remote.store.retain(name, &version, wanted).map_err(CopyError::Remote)?;
    Ok(record.note_retained(name, behind.wanted_ms)?)
}

/// Fails if the object is not what was sent.
fn check_is_ours(shared: &Shared, name: &BlobName, look: &RemoteLook) -> Result<(), CopyError> {
    let Some(len) = shared.record.recorded(name)? else { return Ok(()) };
    let sent = shared.record.sum(name)?;
    let is_other = |(there, sent)| is_comparable(there, sent) && there != sent;
    if look.len == len && !look.checksum.zip(sent).is_some_and(is_other) {
        return Ok(());
    }
    Err(CopyError::Other { name: name.clone(), here: len, there: look.len })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000_000;

    fn keep(locked: Option<i64>, is_held: bool) -> (i64, i64) {
        let Keep { at_least_ms, ask_ms } = Keep::of(locked, is_held, NOW).unwrap();
        (at_least_ms, ask_ms)
    }

    /// (T17)
    #[test]
    fn ends_are_rounded_up_to_whole_days() {
        let day = NOW.div_euclid(DAY_MS) * DAY_MS;
        for (until_ms, end) in [
            (NOW + 1, day + DAY_MS),
            (day + DAY_MS - 1, day + DAY_MS),
            (day + DAY_MS, day + DAY_MS),
            (day + DAY_MS + 1, day + 2 * DAY_MS),
            (day + 30 * DAY_MS + 5, day + 31 * DAY_MS),
        ] {
            assert_eq!(keep(Some(until_ms), false), (end, end), "{until_ms}");
        }
        assert_eq!(Keep::of(None, false, NOW), None);
        assert_eq!(Keep::of(Some(NOW), false, NOW), None, "it has ended");
        assert!(end_of_day(i64::MIN) < 0 && end_of_day(i64::MAX) > 0, "and no panic");
    }

    /// (T17)
    #[test]
    fn nothing_is_asked_for_a_century() {
        let (at_least, ask) = keep(Some(i64::MAX), false);
        assert!(ask <= NOW + (AHEAD_DAYS_MAX + 1) * DAY_MS);
        assert!(ask - at_least == MARGIN_DAYS * DAY_MS, "and not a little more each day");
        let far = NOW + (AHEAD_DAYS_MAX - 40) * DAY_MS;
        assert_eq!(keep(Some(far), false), (end_of_day(far), end_of_day(far)));
    }

    #[test]
    fn a_hold_lasts_a_month_at_a_time() {
        let (at_least, ask) = keep(None, true);
        assert_eq!((at_least, ask), (end_of_day(NOW + 15 * DAY_MS), end_of_day(NOW + 30 * DAY_MS)));
        let locked = NOW + 20 * DAY_MS;
        assert_eq!(keep(Some(locked), true), (end_of_day(locked), ask), "the longer of both");
        assert_eq!(keep(Some(NOW - 1), true), (at_least, ask));
    }
}
