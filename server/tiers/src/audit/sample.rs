//! Reading what lies in the bucket alone, a part each audit: what has its length, tag and checksum may still not be readable.
//!
//! (T21) Every object has its moment of the year, by its name. An audit reads those whose moment came since the audit before,
//! so a year of audits reads all of them, however often they run. What lies in an archive is not read.
//!
//! A crash or a stop leaves the moment up to which the last audit to end had read: the next one reads what is left.

use crc_fast::{CrcAlgorithm, checksum};
use holdfast_volume::{BlobChecksum, BlobName, VolumeError};

use super::Audit;
use crate::compare::has_sum;
use crate::error::CopyError;
use crate::record::{Known, Record, RecordError};
use crate::shared::Shared;

const YEAR_MS: i64 = 365 * 24 * 3_600_000;

/// Under these keys the record says up to which moment the last audit has read, and the one under way does.
const SAMPLED: &str = "sampled_ms";
const SAMPLING: &str = "sampling_ms";

/// The moments that an audit reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    from_ms: i64,
    up_to_ms: i64,
}

impl Sample {
    /// Begins the sample of an audit, or goes on with it. The first audit reads nothing: it begins the year.
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

    /// (T21) Returns true if the moment of an object is among these.
    fn has(self, name: &BlobName) -> bool {
        let year = YEAR_MS.unsigned_abs();
        let moment = checksum(CrcAlgorithm::Crc64Nvme, name.as_str().as_bytes()) % year;
        let begin = self.from_ms.rem_euclid(YEAR_MS).unsigned_abs();
        let ahead_ms = (moment + year - begin) % year;
        i64::try_from(ahead_ms).unwrap_or(i64::MAX) < self.up_to_ms.saturating_sub(self.from_ms)
    }
}

impl Audit<'_> {
    /// Reads an object that is as it should be by all that the bucket tells of it, if it lies there alone and its moment has
    /// come. `false`: it does not read as what was sent.
    pub(super) fn reads_well(&mut self, known: &Known, is_archived: bool) -> Result<bool, CopyError> {
        let Shared { local, .. } = self.shared;
        if is_archived || !self.sample.has(&known.name) {
            return Ok(true);
        }
        match local.open(&known.name) {
            // The scrub reads it here.
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

    /// Counts an object that could be read.
    fn was_read(&mut self, known: &Known, is_sound: Option<bool>) -> Option<bool> {
        self.audited.read += u64::from(is_sound.is_some());
        self.audited.read_bytes += is_sound.map_or(0, |_| known.len);
        is_sound
    }

    /// Reads an object: whether it has this checksum; `None`: it cannot be read now.
    pub(super) fn reads_as(&mut self, known: &Known, sum: BlobChecksum) -> Result<Option<bool>, CopyError> {
        // (R9) One answer of the bucket may arrive altered.
        for _ in 0..2 {
            self.watch.go_on(known.len);
            let there = self.shared.remote.reads.open(&known.name);
            match there.and_then(|there| Ok(there.len() == known.len && has_sum(&*there, sum)?)) {
                Ok(true) => return Ok(self.was_read(known, Some(true))),
                Ok(false) => {}
                Err(error) if error.proves_damage() => {}
                // Removed since the listing, or in an archive.
                Err(VolumeError::NotFound { .. } | VolumeError::NotReadableNow { .. }) => return Ok(None),
                // The bucket answers, but for this one: the others are looked at all the same.
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
