//! Writes a sorted run: entries in order, page by page; then filters, fences and footer. The blob becomes visible,
//! durably, when all of it is written; a crash or an error before that leaves nothing.

use holdfast_volume::{BlobWriter, Volume};
use zerocopy::IntoBytes;

use super::error::IndexError;
use super::filter::FilterBuilder;
use super::sorted_run::sorted_run_name;
use crate::format::check_limit;
use crate::format::crc32c;
use crate::format::index_manifest::SortedRunRecord;
use crate::format::sorted_run::{
    Entry, PAGE_BYTES, PAGE_ENTRIES, SORTED_RUN_PAGES_MAX, SortedRunFooter, SortedRunHeader, encode_page,
};

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
