//! Reads a sorted run: filters and fences are in memory, so that an absent key costs nothing but memory accesses
//! and a present one exactly one page (two when its copies lie across a page's end).

use std::collections::BTreeSet;
use std::sync::Arc;

use holdfast_types::ids::RepositoryId;
use holdfast_volume::{Blob, BlobName, BlobWriter, Volume, VolumeError};
use zerocopy::IntoBytes;

use super::IndexKey;
use super::error::{IndexError, check_repository, twice};
use super::filter::{FilterBuilder, FilterSet};
use crate::format::index_manifest::SortedRunRecord;
use crate::format::sorted_run::{
    Entry, FENCE_BYTES, FOOTER_BYTES, PAGE_BYTES, PAGE_ENTRIES, SORTED_RUN_PAGES_MAX, ShardRange,
    SortedRunFooter, SortedRunHeader, check_section, decode_page, encode_page,
};
use crate::format::{Defect, FormatError, check_equal, check_limit, crc32c};

/// Steps interpolation walks before it gives up and bisects. Keys are uniform, so the guess is off by
/// √entries / 2 entries: 3 pages of a sorted run of 1.5 million.
const WALK_MAX: usize = 8;

const SORTED_RUN: &str = "sorted run";

/// The folder all files of the index are in.
pub(super) const FOLDER: &str = "index";

/// The blob of a sorted run.
#[expect(clippy::expect_used, reason = "the text is made of hexadecimal digits only")]
pub(super) fn sorted_run_name(run: u64) -> BlobName {
    BlobName::new(format!("{FOLDER}/run-{run:016x}")).expect("a valid name")
}

/// An open sorted run: an immutable file of entries in key order.
#[derive(Debug)]
pub(super) struct SortedRun {
    pub(super) record: SortedRunRecord,
    name: BlobName,
    blob: Arc<dyn Blob>,
    /// Prefix of each page's first key, ascending.
    fences: Box<[u64]>,
    filters: FilterSet,
    /// Smallest prefix of the run's shards.
    base: u64,
    /// Pages by key prefix, times 2⁶⁴.
    scale: u64,
}

impl SortedRun {
    /// Opens the run that a manifest names and loads its filters and fences.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `Unsupported`, `OtherRepository`, or the volume's.
    pub(super) fn open(
        volume: &dyn Volume,
        record: SortedRunRecord,
        repository: RepositoryId,
    ) -> Result<Self, IndexError> {
        let name = sorted_run_name(record.run);
        let blob = match twice(|| volume.open(&name)) {
            Err(VolumeError::NotFound { name }) => return Err(IndexError::Missing { blob: name }),
            other => other.map_err(|error| IndexError::reading(&name, error))?,
        };
        let footer = read_ends(blob.as_ref(), &record, repository, &name)?;
        let section =
            |at, len| read_section(blob.as_ref(), at, len).map_err(|error| IndexError::reading(&name, error));
        let filters = section(footer.filters_at(), footer.filter_bytes)?;
        let fences = section(footer.fences_at(), u64::from(footer.pages) * FENCE_BYTES)?;
        let (filters, fences) = decode_sections(&footer, record.shards, &filters, &fences)
            .map_err(|source| IndexError::in_blob(&name, source))?;
        let (base, end) = record.shards.prefixes();
        let scale = (u128::from(footer.pages) << 64) / (u128::from(end - base) + 1);
        let scale = u64::try_from(scale).unwrap_or(u64::MAX);
        Ok(Self { record, name, blob, fences, filters, base, scale })
    }

    /// Returns true if the filters let a key with this prefix pass.
    pub(super) fn may_contain(&self, prefix: u64) -> bool {
        self.filters.contains(prefix)
    }

    /// The first location of a key, newest container first, that `accept` accepts; without asking the filters. (I5) Takes the
    /// memory of a page, however many there are.
    ///
    /// # Errors
    /// A damaged page, or the volume's.
    pub(super) fn find(
        &self,
        key: &IndexKey,
        accept: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<u64>, IndexError> {
        let mut buffer = [0; PAGE_BYTES];
        let mut page = self.page_of(key.prefix());
        loop {
            let entries = self.read_page(page, &mut buffer)?;
            let wanted = (key.prefix(), key.suffix());
            let rank = |entry: &Entry| {
                let (prefix, suffix, _) = entry.order();
                (prefix, suffix)
            };
            let from = entries.partition_point(|entry| rank(entry) < wanted);
            let tail = entries.get(from..).unwrap_or_default();
            let mut locations =
                tail.iter().take_while(|entry| rank(entry) == wanted).map(|entry| entry.location.get());
            if let Some(found) = locations.find(|&location| accept(location)) {
                return Ok(Some(found));
            }
            let ended = tail.last().is_some_and(|last| rank(last) > wanted);
            match self.fences.get(page + 1) {
                Some(&next) if !ended && next <= wanted.0 => page += 1,
                _ => return Ok(None),
            }
        }
    }

    /// The first page that can hold a key with this prefix.
    fn page_of(&self, prefix: u64) -> usize {
        let offset = u128::from(prefix.saturating_sub(self.base));
        let guess = usize::try_from((offset * u128::from(self.scale)) >> 64).unwrap_or(usize::MAX);
        let mut page = guess.min(self.fences.len() - 1);
        let below = |at: usize| self.fences.get(at).is_some_and(|&fence| fence < prefix);
        for _ in 0..WALK_MAX {
            if below(page + 1) {
                page += 1;
            } else if page > 0 && !below(page) {
                page -= 1;
            } else {
                return page;
            }
        }
        self.fences.partition_point(|&fence| fence < prefix).saturating_sub(1)
    }

    /// The first page that can hold a key of these shards.
    pub(super) fn first_page_of(&self, shards: ShardRange) -> usize {
        self.page_of(shards.prefixes().0)
    }

    /// Pages of entries.
    pub(super) fn pages(&self) -> usize {
        self.fences.len()
    }

    /// Reads and verifies one page.
    pub(super) fn read_page<'b>(
        &self,
        page: usize,
        buffer: &'b mut [u8; PAGE_BYTES],
    ) -> Result<&'b [Entry], IndexError> {
        let number = u32::try_from(page).unwrap_or(u32::MAX);
        self.read_bytes(number, buffer)?;
        self.decode(number, buffer)
    }

    /// Reads a page; one that the disk fails to give back twice is bad.
    fn read_bytes(&self, page: u32, bytes: &mut [u8]) -> Result<(), IndexError> {
        let read = twice(|| self.blob.read_at(SortedRunFooter::page_at(page), bytes));
        read.map_err(|source| match source {
            VolumeError::Io { .. } => {
                let (blob, run) = (self.name.clone(), self.record.run);
                IndexError::UnreadablePage { blob, run, page, source }
            }
            other => other.into(),
        })
    }

    /// Reads `bytes` (whole pages) from `page` on, not verified yet.
    pub(super) fn read_raw(&self, page: usize, bytes: &mut [u8]) -> Result<(), IndexError> {
        let number = u32::try_from(page).unwrap_or(u32::MAX);
        match self.blob.read_at(SortedRunFooter::page_at(number), bytes) {
            // One by one, to know which it is.
            Err(VolumeError::Io { .. }) => {
                let mut pages = (number..).zip(bytes.chunks_mut(PAGE_BYTES));
                pages.try_for_each(|(page, bytes)| self.read_bytes(page, bytes))
            }
            done => Ok(done?),
        }
    }

    /// Verifies a page read by [`SortedRun::read_raw`].
    pub(super) fn decode<'b>(
        &self,
        page: u32,
        bytes: &'b [u8; PAGE_BYTES],
    ) -> Result<&'b [Entry], IndexError> {
        decode_page(bytes, self.record.run, page).map_err(|source| IndexError::DamagedPage {
            blob: self.name.clone(),
            run: self.record.run,
            page,
            source,
        })
    }

    /// Returns true if one of these pages may hold entries of a key.
    pub(super) fn held_in(&self, key: &IndexKey, pages: &BTreeSet<u32>) -> bool {
        let prefix = key.prefix();
        let (first, last) = self.record.shards.prefixes();
        if !(first..=last).contains(&prefix) || !self.may_contain(prefix) {
            return false;
        }
        let start = self.page_of(prefix);
        let more = self.fences.get(start + 1..).unwrap_or_default();
        let count = more.iter().take_while(|&&fence| fence <= prefix).count();
        (start..=start + count).any(|page| u32::try_from(page).is_ok_and(|page| pages.contains(&page)))
    }

    /// Reads every page: each must be intact, in order, begin with its fence and pass the filters. Says
    /// how many entries there are.
    ///
    /// # Errors
    /// The first damage, or the volume's.
    pub(super) fn verify(&self, buffer: &mut [u8; PAGE_BYTES]) -> Result<u64, IndexError> {
        let mut count = 0;
        let mut previous = None;
        for (page, fence) in self.fences.iter().enumerate() {
            let entries = self.read_page(page, buffer)?;
            let fenced = entries.first().is_some_and(|entry| entry.prefix() == *fence);
            let passed = entries.iter().all(|entry| self.may_contain(entry.prefix()));
            let ordered = entries.iter().all(|entry| {
                let rank = Some(entry.order());
                std::mem::replace(&mut previous, rank) < rank
            });
            if !fenced || !passed || !ordered {
                let page = u32::try_from(page).unwrap_or(u32::MAX);
                let defect = Defect::Mismatch { field: "first key", found: 0, expected: *fence };
                let source = FormatError::corrupt("index page", defect);
                let (blob, run) = (self.name.clone(), self.record.run);
                return Err(IndexError::DamagedPage { blob, run, page, source });
            }
            count += entries.len() as u64;
        }
        Ok(count)
    }

    /// Memory of the filters and of the fences, in bytes.
    pub(super) fn ram_bytes(&self) -> (u64, u64) {
        (self.filters.ram_bytes(), (self.fences.len() * 8) as u64)
    }
}

/// Reads header and footer and checks them against each other and the manifest.
fn read_ends(
    blob: &dyn Blob,
    record: &SortedRunRecord,
    repository: RepositoryId,
    name: &BlobName,
) -> Result<SortedRunFooter, IndexError> {
    let in_blob = |source| IndexError::in_blob(name, source);
    let len = blob.len();
    check_equal(SORTED_RUN, "length", len, record.bytes).map_err(in_blob)?;
    let needed = (PAGE_BYTES + FOOTER_BYTES) as u64;
    if len < needed {
        return Err(in_blob(FormatError::corrupt(SORTED_RUN, Defect::TooShort { len, needed })));
    }
    let mut page = [0; PAGE_BYTES];
    twice(|| blob.read_at(0, &mut page)).map_err(|error| IndexError::reading(name, error))?;
    let header = SortedRunHeader::decode(&page).map_err(in_blob)?;
    check_repository(SORTED_RUN, header.repository, repository).map_err(in_blob)?;
    let mut end = [0; FOOTER_BYTES];
    twice(|| blob.read_at(len - FOOTER_BYTES as u64, &mut end))
        .map_err(|error| IndexError::reading(name, error))?;
    let footer = SortedRunFooter::decode(&end, len).map_err(in_blob)?;
    let expected = record.run;
    let same = check_equal(SORTED_RUN, "number", header.run, expected)
        .and_then(|()| check_equal(SORTED_RUN, "number", footer.run, expected))
        .and_then(|()| check_equal(SORTED_RUN, "entry count", footer.entries, record.entries))
        .and_then(|()| {
            let [found, expected] =
                [header.shards, record.shards].map(|s| u64::from(s.first()) << 16 | u64::from(s.count()));
            check_equal(SORTED_RUN, "shards", found, expected)
        });
    same.map_err(in_blob)?;
    Ok(footer)
}

/// Filters and fences from their sections.
fn decode_sections(
    footer: &SortedRunFooter,
    shards: ShardRange,
    filters: &[u8],
    fences: &[u8],
) -> Result<(FilterSet, Box<[u64]>), FormatError> {
    const FENCES: &str = "index fences";
    check_section("index filters", footer.filter_crc, filters)?;
    let filters = FilterSet::decode(filters, footer.filters)?;
    check_section(FENCES, footer.fence_crc, fences)?;
    let fences: Box<[u64]> = fences.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
    let (base, end) = shards.prefixes();
    let bounds = [&[base], &*fences, &[end]].concat();
    match bounds.array_windows().find(|[a, b]| a > b) {
        Some(&[found, limit]) => {
            Err(FormatError::corrupt(FENCES, Defect::OverLimit { field: "key", found, limit }))
        }
        None => Ok((filters, fences)),
    }
}

/// Reads a section whose length the footer's check against the blob's length has bounded.
fn read_section(blob: &dyn Blob, offset: u64, len: u64) -> Result<Vec<u8>, VolumeError> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    twice(|| blob.read_at(offset, &mut bytes))?;
    Ok(bytes)
}

/// Pages gathered before they are handed to the volume: 256 KiB a write.
const BATCH_BYTES: usize = 64 * PAGE_BYTES;

/// A sorted run being written.
#[derive(Debug)]
pub(super) struct SortedRunWriter {
    header: SortedRunHeader,
    blob: Box<dyn BlobWriter>,
    page: Vec<Entry>,
    batch: Vec<u8>,
    fences: Vec<u64>,
    filters: FilterBuilder,
    entries: u64,
}

impl SortedRunWriter {
    /// Begins a sorted run of at most `entries_max` entries.
    pub(super) fn create(
        volume: &dyn Volume,
        header: SortedRunHeader,
        entries_max: u64,
    ) -> Result<Self, IndexError> {
        let blob = volume.create(&sorted_run_name(header.run))?;
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        batch.extend_from_slice(&header.encode());
        Ok(Self {
            header,
            blob,
            page: Vec::with_capacity(PAGE_ENTRIES),
            batch,
            fences: Vec::new(),
            filters: FilterBuilder::new(entries_max),
            entries: 0,
        })
    }

    /// Adds an entry that sorts after all before it.
    pub(super) fn push(&mut self, entry: &Entry) -> Result<(), IndexError> {
        if self.page.len() == PAGE_ENTRIES {
            self.end_page()?;
        }
        if self.page.is_empty() {
            self.fences.push(entry.prefix());
        }
        self.filters.push(entry.prefix());
        self.page.push(*entry);
        self.entries += 1;
        Ok(())
    }

    fn end_page(&mut self) -> Result<(), IndexError> {
        let number = u32::try_from(self.fences.len()).unwrap_or(u32::MAX).saturating_sub(1);
        check_limit("sorted run", "page count", u64::from(number) + 1, SORTED_RUN_PAGES_MAX.into())
            .map_err(|source| IndexError::in_blob(&sorted_run_name(self.header.run), source))?;
        self.batch.extend_from_slice(&encode_page(self.header.run, number, &self.page));
        self.page.clear();
        if self.batch.len() >= BATCH_BYTES {
            self.blob.append(&self.batch)?;
            self.batch.clear();
        }
        Ok(())
    }

    /// Makes the run durable and visible; `None`, and nothing is left, when it has no entries.
    pub(super) fn finish(mut self) -> Result<Option<SortedRunRecord>, IndexError> {
        if self.entries == 0 {
            return Ok(None);
        }
        self.end_page()?;
        self.blob.append(&self.batch)?;
        let (filters, key_counts) = self.filters.finish();
        let section = filters.encode(&key_counts);
        self.blob.append(&section)?;
        let fences: Vec<u8> = self.fences.iter().flat_map(|fence| fence.to_le_bytes()).collect();
        self.blob.append(fences.as_bytes())?;
        let footer = SortedRunFooter {
            run: self.header.run,
            entries: self.entries,
            pages: u32::try_from(self.fences.len()).unwrap_or(u32::MAX),
            filters: u32::try_from(filters.count()).unwrap_or(u32::MAX),
            filter_bytes: section.len() as u64,
            filter_crc: crc32c(&section),
            fence_crc: crc32c(&fences),
        };
        self.blob.append(&footer.encode())?;
        let bytes = self.blob.len();
        self.blob.seal()?;
        Ok(Some(SortedRunRecord {
            run: self.header.run,
            entries: self.entries,
            bytes,
            shards: self.header.shards,
        }))
    }
}
