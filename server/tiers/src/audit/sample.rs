//! Reads a share of the objects that only the bucket has, each audit: length, tag and checksum may match although the
//! object can no longer be read.
//!
//! (T21) Every object has a moment of the year, derived from its name. An audit reads the objects whose moments came
//! since the audit before, so a year of audits reads all of them, however often they run. Archived objects are not
//! read.
//!
//! After a crash or a stop, the next audit starts from the moment up to which the last complete audit had read.

use crc_fast::{CrcAlgorithm, checksum};
use holdfast_volume::{BlobChecksum, BlobName, VolumeError};

use super::Audit;
use crate::compare::has_sum;
use crate::error::CopyError;
use crate::record::{Known, Record, RecordError};
use crate::shared::Shared;

const YEAR_MS: i64 = 365 * 24 * 3_600_000;

/// Keys in the record: the moment up to which the last audit has read, and up to which the one in progress reads.
const SAMPLED: &str = "sampled_ms";
const SAMPLING: &str = "sampling_ms";

/// The interval of moments that an audit reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    from_ms: i64,
    up_to_ms: i64,
}

impl Sample {
    /// Begins the sample of an audit, or resumes it. The first audit reads nothing: it begins the year.
    pub(super) fn begin(record: &Record, goes_on: bool, now_ms: i64) -> Result<Self, RecordError> {
        let moment = |key| Ok::<_, RecordError>(record.said(key)?.and_then(|text| text.parse().ok()));
        let up_to_ms = match moment(SAMPLING)?.filter(|_| goes_on) {
            Some(up_to_ms) => up_to_ms,
            None => {
                record.say(&[(SAMPLING, now_ms.to_string())])?;
                now_ms
            }
        };
        let from_ms = match moment(SAMPLED)? {
            Some(from_ms) => from_ms,
            None => {
                record.say(&[(SAMPLED, up_to_ms.to_string())])?;
                up_to_ms
            }
        };
        Ok(Self { from_ms, up_to_ms })
    }

    pub(super) fn end(self, record: &Record) -> Result<(), RecordError> {
        record.say(&[(SAMPLED, self.up_to_ms.to_string())])
    }

    /// (T21) Returns true if the moment of an object is in the interval.
    fn has(self, name: &BlobName) -> bool {
        let year = YEAR_MS.unsigned_abs();
        let moment = checksum(CrcAlgorithm::Crc64Nvme, name.as_str().as_bytes()) % year;
        let begin = self.from_ms.rem_euclid(YEAR_MS).unsigned_abs();
        let ahead_ms = (moment + year - begin) % year;
        i64::try_from(ahead_ms).unwrap_or(i64::MAX) < self.up_to_ms.saturating_sub(self.from_ms)
    }
}

impl Audit<'_> {
    /// Reads an object that passed all other checks, if only the bucket has it and its moment has come. Returns
    /// `false` if its content is not what was sent.
    pub(super) fn reads_well(&mut self, known: &Known, is_archived: bool) -> Result<bool, CopyError> {
        let Shared { local, .. } = self.shared;
        if is_archived || !self.sample.has(&known.name) {
            return Ok(true);
        }
        match local.open(&known.name) {
            // The scrub reads the local blob.
            Ok(_) => return Ok(true),
            Err(VolumeError::NotFound { .. }) => {}
            Err(error) => return Err(CopyError::Local(error)),
        }
        let is_sound = match known.sum {
            Some(sum) => self.reads_as(known, sum)?,
            None => {
                let is_sound = self.watch.is_sound(&known.name);
                self.was_read(known, is_sound)
            }
        };
        Ok(is_sound != Some(false))
    }

    /// Counts an object that was read.
    fn was_read(&mut self, known: &Known, is_sound: Option<bool>) -> Option<bool> {
        self.audited.read += u64::from(is_sound.is_some());
        self.audited.read_bytes += is_sound.map_or(0, |_| known.len);
        is_sound
    }

    /// Reads an object and compares its checksum with `sum`; `None`: it cannot be read now.
    pub(super) fn reads_as(&mut self, known: &Known, sum: BlobChecksum) -> Result<Option<bool>, CopyError> {
        // (R9) A single answer of the bucket may be corrupted in transit.
        for _ in 0..2 {
            self.watch.go_on(known.len);
            let there = self.shared.remote.reads.open(&known.name);
            match there.and_then(|there| Ok(there.len() == known.len && has_sum(&*there, sum)?)) {
                Ok(true) => return Ok(self.was_read(known, Some(true))),
                Ok(false) => {}
                Err(error) if error.proves_damage() => {}
                // Removed since the listing, or archived.
                Err(VolumeError::NotFound { .. } | VolumeError::NotReadableNow { .. }) => return Ok(None),
                // The bucket answers, but cannot give this object: the audit continues with the others.
                Err(error) if self.shared.remote.store.stat(&known.name).is_ok() => {
                    tracing::warn!(name = %known.name, %error, "an object of the bucket cannot be read now");
                    return Ok(None);
                }
                Err(error) => return Err(CopyError::Remote(error)),
            }
        }
        Ok(self.was_read(known, Some(false)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (T21)
    #[test]
    fn a_year_of_audits_reads_every_object_once() {
        let names: Vec<_> = (0..500).map(|n| BlobName::new(format!("containers/{n}")).unwrap()).collect();
        let begin = 1_700_000_000_000;
        for audits in [1, 7, 52, 1000] {
            let at = |number: i64| begin + YEAR_MS / audits * number + YEAR_MS % audits * (number / audits);
            let samples: Vec<_> =
                (0..audits).map(|n| Sample { from_ms: at(n), up_to_ms: at(n + 1) }).collect();
            for name in &names {
                assert_eq!(samples.iter().filter(|sample| sample.has(name)).count(), 1, "{audits}: {name}");
            }
        }
        let all = Sample { from_ms: begin, up_to_ms: begin + 3 * YEAR_MS };
        assert!(names.iter().all(|name| all.has(name)));
        let back = Sample { from_ms: begin, up_to_ms: begin - 1 };
        assert!(!names.iter().any(|name| back.has(name)), "the clock was set back");
    }
}
