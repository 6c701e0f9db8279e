//! Binary-fuse filters over the key prefixes of a sorted run: one for every quarter million keys, so that building
//! takes bounded memory however large the run, and stays within the processor's cache.
//!
//! 8 bits a slot: 0.4 % of absent keys pass. 1.13 to 1.2 bytes a key.

use xorf::{BinaryFuse8, Descriptor, Filter};
use zerocopy::IntoBytes;

use crate::format::sorted_run::{FILTER_RECORD_BYTES, FilterRecord};
use crate::format::{Defect, FormatError, check_limit};

const FILTERS: &str = "index filters";

/// Keys of one filter. Larger filters are a little smaller per key (1.16 bytes at 2¹⁸, 1.13 at 2²⁰), but
/// building takes 36 bytes a key: 9 MiB at 2¹⁸.
const FILTER_KEYS: usize = 1 << 18;

/// The filters of one sorted run.
#[derive(Debug, Default)]
pub(super) struct FilterSet {
    /// Prefix of each filter's first key, ascending.
    firsts: Vec<u64>,
    filters: Vec<BinaryFuse8>,
}

impl FilterSet {
    /// Returns true if a key with this prefix may be in the sorted run.
    pub(super) fn contains(&self, prefix: u64) -> bool {
        let after = match self.firsts.as_slice() {
            [_] => 1,
            firsts => firsts.partition_point(|&first| first <= prefix),
        };
        after.checked_sub(1).and_then(|at| self.filters.get(at)).is_some_and(|f| f.contains(&prefix))
    }

    /// Memory it takes.
    pub(super) fn ram_bytes(&self) -> u64 {
        let tables: usize = self.filters.iter().map(|f| f.fingerprints.len()).sum();
        (tables + self.filters.capacity() * size_of::<BinaryFuse8>() + self.firsts.capacity() * 8) as u64
    }

    /// Number of filters.
    pub(super) fn count(&self) -> usize {
        self.filters.len()
    }

    /// The filter section: records, then tables.
    pub(super) fn encode(&self, key_counts: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for ((filter, &first), &keys) in self.filters.iter().zip(&self.firsts).zip(key_counts) {
            let record = FilterRecord {
                first: first.into(),
                seed: filter.descriptor.seed.into(),
                segment_length: filter.descriptor.segment_length.into(),
                segment_count_length: filter.descriptor.segment_count_length.into(),
                table_bytes: u32::try_from(filter.fingerprints.len()).unwrap_or(u32::MAX).into(),
                keys: keys.into(),
            };
            bytes.extend_from_slice(record.as_bytes());
        }
        for filter in &self.filters {
            bytes.extend_from_slice(&filter.fingerprints);
        }
        bytes
    }

    /// Reads a filter section whose checksum was verified. No filter it yields looks beyond its table.
    ///
    /// # Errors
    /// [`FormatError::Corrupt`].
    pub(super) fn decode(section: &[u8], count: u32) -> Result<Self, FormatError> {
        let len = section.len() as u64;
        let records_bytes = u64::from(count) * FILTER_RECORD_BYTES as u64;
        let (records, mut tables) = usize::try_from(records_bytes)
            .ok()
            .and_then(|at| section.split_at_checked(at))
            .ok_or_else(|| too_short(len, records_bytes))?;
        let mut set = Self::default();
        for record in records.as_chunks::<FILTER_RECORD_BYTES>().0 {
            let record: FilterRecord = zerocopy::transmute!(*record);
            let table_bytes = record.table_bytes.get();
            let (table, rest) = usize::try_from(table_bytes)
                .ok()
                .and_then(|at| tables.split_at_checked(at))
                .ok_or_else(|| too_short(tables.len() as u64, table_bytes.into()))?;
            tables = rest;
            let first = record.first.get();
            if let Some(&previous) = set.firsts.last() {
                check_limit(FILTERS, "first key of a filter", previous, first.saturating_sub(1))?;
            }
            set.firsts.push(first);
            set.filters.push(restore(&record, table)?);
        }
        check_limit(FILTERS, "length after the last table", tables.len() as u64, 0)?;
        Ok(set)
    }
}

fn too_short(len: u64, needed: u64) -> FormatError {
    FormatError::corrupt(FILTERS, Defect::TooShort { len, needed })
}

/// Refuses a descriptor that would let a lookup leave the table.
fn restore(record: &FilterRecord, table: &[u8]) -> Result<BinaryFuse8, FormatError> {
    let segment_length = record.segment_length.get();
    let segment_count_length = record.segment_count_length.get();
    let wanted = u64::from(segment_count_length) + 2 * u64::from(segment_length);
    let sound = segment_length.is_power_of_two()
        && segment_count_length > 0
        && segment_count_length.is_multiple_of(segment_length)
        && wanted == table.len() as u64;
    if !sound {
        let defect = Defect::Mismatch { field: "segments", found: wanted, expected: table.len() as u64 };
        return Err(FormatError::corrupt(FILTERS, defect));
    }
    Ok(BinaryFuse8 {
        descriptor: Descriptor {
            seed: record.seed.get(),
            segment_length,
            segment_length_mask: segment_length - 1,
            segment_count_length,
        },
        fingerprints: table.into(),
    })
}

/// Builds the filters of a run from ascending key prefixes.
#[derive(Debug)]
pub(super) struct FilterBuilder {
    /// Different prefixes not yet in a filter, ascending.
    pending: Vec<u64>,
    per_filter: usize,
    set: FilterSet,
    key_counts: Vec<u32>,
}

impl FilterBuilder {
    /// Creates a builder for a run of at most `entries` entries: splits them into filters of about equal size.
    pub(super) fn new(entries: u64) -> Self {
        let entries = usize::try_from(entries).unwrap_or(usize::MAX);
        let per_filter = entries.div_ceil(entries.div_ceil(FILTER_KEYS).max(1)).max(1);
        let pending = Vec::with_capacity(per_filter);
        Self { pending, per_filter, set: FilterSet::default(), key_counts: Vec::new() }
    }

    /// Adds the next prefix; equal ones may follow each other.
    pub(super) fn push(&mut self, prefix: u64) {
        if self.pending.last() == Some(&prefix) {
            return;
        }
        if self.pending.len() >= self.per_filter {
            self.close();
        }
        self.pending.push(prefix);
    }

    fn close(&mut self) {
        build(&self.pending, &mut self.set, &mut self.key_counts);
        self.pending.clear();
    }

    /// The filters, and how many keys each has.
    pub(super) fn finish(mut self) -> (FilterSet, Vec<u32>) {
        self.close();
        (self.set, self.key_counts)
    }
}

/// Construction is randomised and fails for a given set with vanishing probability after a thousand seeds;
/// two halves are two other sets.
fn build(keys: &[u64], set: &mut FilterSet, key_counts: &mut Vec<u32>) {
    let Some(&first) = keys.first() else { return };
    match BinaryFuse8::try_from(keys) {
        Ok(filter) => {
            set.firsts.push(first);
            set.filters.push(filter);
            key_counts.push(u32::try_from(keys.len()).unwrap_or(u32::MAX));
        }
        Err(_) => {
            let (left, right) = keys.split_at(keys.len() / 2);
            build(left, set, key_counts);
            build(right, set, key_counts);
        }
    }
}

#[cfg(test)]
mod tests;
