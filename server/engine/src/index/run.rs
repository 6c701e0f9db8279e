//! Reads a run: filters and fences are in memory, so that an absent key costs nothing but memory accesses
//! and a present one exactly one page (two when its copies lie across a page's end).

use std::sync::Arc;

use super::error::IndexError;
use super::filter::FilterSet;
use super::key::IndexKey;
use crate::format::index_manifest::RunRecord;
use crate::format::index_run::{
    Entry, FOOTER_BYTES, IndexFormatError, PAGE_BYTES, RunFooter, RunHeader, ShardRange, crc32c, decode_page,
};
use crate::ids::RepositoryId;
use crate::volume::{Blob, BlobName, Volume, VolumeError};

/// Steps interpolation walks before it gives up and bisects. Keys are uniform, so the guess is off by
/// √entries / 2 entries: 3 pages of a run of 1.5 million.
const WALK_MAX: usize = 8;

/// The folder all files of the index are in.
pub(super) const FOLDER: &str = "index";

/// The blob of a run.
#[expect(clippy::expect_used, reason = "the text is made of hexadecimal digits only")]
pub(super) fn run_name(run: u64) -> BlobName {
    BlobName::new(format!("{FOLDER}/run-{run:016x}")).expect("a valid name")
}

/// An open run.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) record: RunRecord,
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

impl Run {
    /// Opens the run that a manifest names and loads its filters and fences.
    ///
    /// # Errors
    /// `Missing`, `Damaged`, `Unsupported`, `OtherRepository`, or the volume's.
    pub(super) fn open(
        volume: &dyn Volume,
        record: RunRecord,
        repository: RepositoryId,
    ) -> Result<Self, IndexError> {
        let name = run_name(record.run);
        let blob = match volume.open(&name) {
            Err(VolumeError::NotFound { name }) => return Err(IndexError::Missing { blob: name }),
            other => other?,
        };
        let in_blob = |source| IndexError::in_blob(&name, source);
        let footer = read_ends(blob.as_ref(), &record, repository, &name)?;
        let filters = read_section(blob.as_ref(), footer.filters_at(), footer.filter_bytes)?;
        if crc32c(&filters) != footer.filter_crc {
            return Err(in_blob(IndexFormatError::Checksum { part: "filter section" }));
        }
        let filters = FilterSet::decode(&filters, footer.filters).map_err(in_blob)?;
        let fences = read_section(blob.as_ref(), footer.fences_at(), u64::from(footer.pages) * 8)?;
        if crc32c(&fences) != footer.fence_crc {
            return Err(in_blob(IndexFormatError::Checksum { part: "fence section" }));
        }
        let fences: Box<[u64]> =
            fences.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let (base, end) = record.shards.prefixes();
        let outside = fences.first().is_none_or(|&f| f < base) || fences.last().is_none_or(|&f| f > end);
        if outside || !fences.is_sorted() {
            return Err(in_blob(IndexFormatError::Inconsistent { part: "fence section", why: "order" }));
        }
        let scale = (u128::from(footer.pages) << 64) / (u128::from(end - base) + 1);
        let scale = u64::try_from(scale).unwrap_or(u64::MAX);
        Ok(Self { record, name, blob, fences, filters, base, scale })
    }

    /// Whether the filters let a key with this prefix pass.
    pub(super) fn may_contain(&self, prefix: u64) -> bool {
        self.filters.contains(prefix)
    }

    /// Appends the locations of a key, newest container first, without asking the filters.
    ///
    /// # Errors
    /// A damaged page, or the volume's.
    pub(super) fn locations(&self, key: &IndexKey, found: &mut Vec<u64>) -> Result<(), IndexError> {
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
            found.extend(tail.iter().take_while(|e| rank(e) == wanted).map(|e| e.location.get()));
            let ended = tail.last().is_some_and(|last| rank(last) > wanted);
            match self.fences.get(page + 1) {
                Some(&next) if !ended && next <= wanted.0 => page += 1,
                _ => return Ok(()),
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
        self.blob.read_at(RunFooter::page_at(number), buffer)?;
        self.decode(number, buffer)
    }

    /// Reads `bytes` (whole pages) from `page` on, not verified yet.
    pub(super) fn read_raw(&self, page: usize, bytes: &mut [u8]) -> Result<(), IndexError> {
        let number = u32::try_from(page).unwrap_or(u32::MAX);
        Ok(self.blob.read_at(RunFooter::page_at(number), bytes)?)
    }

    /// Verifies a page read by [`Run::read_raw`].
    pub(super) fn decode<'b>(
        &self,
        page: u32,
        bytes: &'b [u8; PAGE_BYTES],
    ) -> Result<&'b [Entry], IndexError> {
        decode_page(bytes, self.record.run, page).map_err(|source| IndexError::DamagedPage {
            blob: self.name.clone(),
            page,
            source,
        })
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
                let why = "its entries do not fit the rest of the run";
                let source = IndexFormatError::Inconsistent { part: "page", why };
                return Err(IndexError::DamagedPage { blob: self.name.clone(), page, source });
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
    record: &RunRecord,
    repository: RepositoryId,
    name: &BlobName,
) -> Result<RunFooter, IndexError> {
    let in_blob = |source| IndexError::in_blob(name, source);
    if blob.len() < (PAGE_BYTES + FOOTER_BYTES) as u64 {
        return Err(in_blob(IndexFormatError::Length { len: blob.len() }));
    }
    let mut page = Box::new([0; PAGE_BYTES]);
    blob.read_at(0, page.as_mut_slice())?;
    let header = RunHeader::decode(&page).map_err(in_blob)?;
    if header.repository != repository {
        let found = header.repository;
        return Err(in_blob(IndexFormatError::Repository { found, expected: repository }));
    }
    let mut end = [0; FOOTER_BYTES];
    blob.read_at(blob.len() - FOOTER_BYTES as u64, &mut end)?;
    let footer = RunFooter::decode(&end, blob.len()).map_err(in_blob)?;
    let found =
        RunRecord { run: footer.run, entries: footer.entries, bytes: blob.len(), shards: header.shards };
    if header.run != footer.run || found != *record {
        let why = "another run is stored here";
        return Err(in_blob(IndexFormatError::Inconsistent { part: "run", why }));
    }
    Ok(footer)
}

/// Reads a section whose length the footer's check against the blob's length has bounded.
fn read_section(blob: &dyn Blob, offset: u64, len: u64) -> Result<Vec<u8>, IndexError> {
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
    blob.read_at(offset, &mut bytes)?;
    Ok(bytes)
}
