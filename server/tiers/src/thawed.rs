//! A local cache of thawed containers: what was thawed and paid for once is read here until it expires, so that a
//! second restore in the same week sends no request to the bucket.
//!
//! (T16) They never count as copies: the archive has all they contain, and losing the folder costs requests. Each is
//! written as a whole and verified by the checksum it was once sent with before it is read; each piece is verified
//! whenever it is read; and it is removed before its container. The cache is limited in bytes and days, and used only
//! while the volume has plenty of space; the least recently used copy is evicted first.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 0 | `L` | the container |
//! | `L` | 8 × pieces | CRC-64/NVME of each piece of 256 KiB |
//! | … | 8 | until when it is kept, in milliseconds since the Unix epoch, little-endian as all |
//! | … | 8 | `L` |
//! | … | 8 | CRC-64/NVME of the container's name and everything behind the container |
//!
//! A crash leaves a file that is whole, or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use crc_fast::{CrcAlgorithm, Digest};
use holdfast_types::clock::Clock;
use holdfast_volume::{Blob, BlobChecksum, BlobName, Owner, Volume, VolumeError, list_all};
use parking_lot::Mutex;

use crate::cold::MARGIN_MS;
use crate::record::Known;
use crate::waiting::Kind;

/// Bytes under one checksum. A read of a few chunks reads this much more.
const PIECE_BYTES: usize = 256 << 10;

/// Bytes fetched by one request: it costs the same whatever its size.
const FETCH_BYTES: usize = 16 * PIECE_BYTES;

const CHECKSUM: usize = size_of::<u64>();

/// Length of the fields after the checksums of the pieces.
const TRAILER: usize = 3 * CHECKSUM;

/// No container is larger: its file has at most 64 MiB of regions and a directory.
const CONTAINER_MAX: u64 = 1 << 30;

const DAY_MS: i64 = 24 * 3_600_000;

/// A copy with less time left than this (or half of the time for which copies are kept, if that is less) counts as
/// cold: a restore of terabytes takes a day, and its copies must not expire in the middle.
const ENOUGH_MS: i64 = DAY_MS;

/// Share of the volume that stays free, in percent: backups come first.
const FREE_MIN_PCT: u64 = 10;

/// Limits of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThawCacheLimits {
    pub bytes: u64,
    pub days: u32,
}

/// Totals of the cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThawCacheTotals {
    pub containers: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Length of the container.
    len: u64,
    until_ms: i64,
    /// When it was last used, as far as this process knows.
    used_ms: i64,
}

impl Entry {
    fn file_len(self) -> u64 {
        self.len.saturating_add(table_len(self.len))
    }
}

/// The cache (see the module documentation).
#[derive(Debug)]
pub(crate) struct ThawCache {
    folder: Arc<dyn Volume>,
    limits: ThawCacheLimits,
    clock: Arc<dyn Clock>,
    kept: Mutex<BTreeMap<BlobName, Entry>>,
    /// One container is fetched at a time, to bound memory and space.
    fetching: Mutex<()>,
}

fn pieces(len: u64) -> u64 {
    len.div_ceil(PIECE_BYTES as u64)
}

/// Length of everything after the container.
fn table_len(len: u64) -> u64 {
    pieces(len) * CHECKSUM as u64 + TRAILER as u64
}

fn crc(parts: &[&[u8]]) -> u64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    for part in parts {
        digest.update(part);
    }
    digest.finalize()
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(CHECKSUM)?)?.try_into().ok()?))
}

impl ThawCache {
    /// Opens the cache, with the intact copies of an earlier process. (T16) Empties it unless it `is_up_to_date`: a
    /// container may have been removed since, and its name reused.
    ///
    /// # Errors
    /// The folder's.
    pub(crate) fn open(
        folder: Arc<dyn Volume>,
        limits: ThawCacheLimits,
        clock: Arc<dyn Clock>,
        is_up_to_date: bool,
    ) -> Result<Self, VolumeError> {
        folder.discard_unfinished()?;
        let mut kept = BTreeMap::new();
        if let Some(containers) = Kind::Container.folder() {
            for entry in list_all(&*folder, &containers) {
                let name = entry?.name;
                match entry_of(&*folder, &name).filter(|_| is_up_to_date) {
                    Some(entry) => drop(kept.insert(name, entry)),
                    None => folder.remove(&name)?,
                }
            }
        }
        let cache = Self { folder, limits, clock, kept: Mutex::new(kept), fetching: Mutex::default() };
        cache.trim(0, i64::MAX)?;
        Ok(cache)
    }

    /// Returns true if a copy is kept under this name, of whatever length.
    pub(crate) fn may_have(&self, name: &BlobName) -> bool {
        self.kept.lock().contains_key(name)
    }

    /// Returns true if a container of this length can be read from the cache now.
    pub(crate) fn has(&self, name: &BlobName, len: u64) -> bool {
        self.lasts(name, len, MARGIN_MS)
    }

    /// Returns true if a copy of a container of this length lasts long enough that a restore about to begin
    /// need not thaw it.
    pub(crate) fn has_for_long(&self, name: &BlobName, len: u64) -> bool {
        let days_ms = i64::from(self.limits.days).saturating_mul(DAY_MS);
        self.lasts(name, len, ENOUGH_MS.min(days_ms / 2))
    }

    fn lasts(&self, name: &BlobName, len: u64, at_least_ms: i64) -> bool {
        let now_ms = self.clock.now_ms();
        let lasts =
            |entry: &&mut Entry| entry.len == len && entry.until_ms.saturating_sub(at_least_ms) > now_ms;
        // The caller is going to count on it.
        self.kept.lock().get_mut(name).filter(lasts).map(|entry| entry.used_ms = now_ms).is_some()
    }

    pub(crate) fn totals(&self) -> ThawCacheTotals {
        let kept = self.kept.lock();
        let bytes = kept.values().fold(0_u64, |sum, entry| sum.saturating_add(entry.file_len()));
        ThawCacheTotals { containers: kept.len() as u64, bytes }
    }

    /// (T16) Reads part of a container of this length; `false`: it is not kept, or not intact any more.
    pub(crate) fn read(&self, name: &BlobName, len: u64, offset: u64, buffer: &mut [u8]) -> bool {
        if !self.has(name, len) {
            return false;
        }
        let is_read = self.read_checked(name, len, offset, buffer).unwrap_or(false);
        // Removed meanwhile: treated as never kept.
        if !is_read && self.kept.lock().contains_key(name) {
            tracing::warn!(%name, "a thawed copy that was kept here is damaged: the bucket is read instead");
            if let Err(error) = self.forget(name) {
                tracing::warn!(%name, %error, "cannot remove a damaged copy");
            }
        }
        is_read
    }

    fn read_checked(&self, name: &BlobName, len: u64, offset: u64, buffer: &mut [u8]) -> Option<bool> {
        let blob = self.folder.open(name).ok()?;
        // Read each time: bytes damaged since must not pass for the checksum of a piece.
        let (_, sums) = table(&*blob, name, len)?;
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= len)?;
        let mut piece = Vec::new();
        let mut at = offset;
        while at < end {
            let index = at / PIECE_BYTES as u64;
            let begin = index * PIECE_BYTES as u64;
            let piece_len = usize::try_from((len - begin).min(PIECE_BYTES as u64)).ok()?;
            piece.resize(piece_len, 0);
            blob.read_at(begin, &mut piece).ok()?;
            // (T16)
            if sums.get(usize::try_from(index).ok()?) != Some(&crc(&[&piece])) {
                return Some(false);
            }
            let until = end.min(begin + piece_len as u64);
            let from = piece.get(usize::try_from(at - begin).ok()?..usize::try_from(until - begin).ok()?)?;
            let to = usize::try_from(at - offset).ok()?..usize::try_from(until - offset).ok()?;
            buffer.get_mut(to)?.copy_from_slice(from);
            at = until;
        }
        Some(true)
    }

    /// (T16) Fetches a container that is readable in the bucket. Copies kept or used since `begun_ms` are not evicted
    /// for it. Returns `false` if there is no room, or if the checksum it was sent with is unknown: nothing would tell
    /// it from something else.
    ///
    /// # Errors
    /// When it cannot be read from the bucket or written here; [`VolumeError::BadAnswer`]: it is not what was sent.
    pub(crate) fn keep(&self, known: &Known, there: &dyn Volume, begun_ms: i64) -> Result<bool, VolumeError> {
        let Known { name, len, .. } = known;
        let Some(sum) = known.sum else { return Ok(false) };
        let _fetching = self.fetching.lock();
        if self.has_for_long(name, *len) {
            return Ok(true);
        }
        let wanted = len.saturating_add(table_len(*len));
        if *len > CONTAINER_MAX || !self.trim(wanted, begun_ms)? {
            return Ok(false);
        }
        // An existing copy is about to expire, or of another container.
        self.forget(name)?;
        let blob = there.open(name)?;
        let until_ms = self.clock.now_ms().saturating_add(i64::from(self.limits.days).saturating_mul(DAY_MS));
        self.write((name, *len, sum), &*blob, until_ms)?;
        self.kept.lock().insert(name.clone(), Entry { len: *len, until_ms, used_ms: 0 });
        Ok(true)
    }

    fn write(
        &self,
        (name, len, sum): (&BlobName, u64, BlobChecksum),
        blob: &dyn Blob,
        until_ms: i64,
    ) -> Result<(), VolumeError> {
        let wrong = |found: String| VolumeError::BadAnswer { action: "keep", name: name.to_string(), found };
        if blob.len() != len {
            return Err(wrong(format!("{} bytes, where {len} were put", blob.len())));
        }
        let mut writer = self.folder.create_for(name, Owner::REPOSITORY)?;
        let (mut behind, mut offset) = (Vec::new(), 0_u64);
        let algorithm = match sum {
            BlobChecksum::Crc32c(_) => CrcAlgorithm::Crc32Iscsi,
            BlobChecksum::Crc64Nvme(_) => CrcAlgorithm::Crc64Nvme,
        };
        let mut whole = Digest::new(algorithm);
        while offset < len {
            let wanted = usize::try_from(len - offset).unwrap_or(FETCH_BYTES).min(FETCH_BYTES);
            let mut bytes = vec![0; wanted];
            blob.read_at(offset, &mut bytes)?;
            whole.update(&bytes);
            for piece in bytes.chunks(PIECE_BYTES) {
                behind.extend_from_slice(&crc(&[piece]).to_le_bytes());
            }
            writer.append(&bytes)?;
            offset += wanted as u64;
        }
        let found = whole.finalize();
        let is_same = match sum {
            BlobChecksum::Crc64Nvme(sum) => sum == found,
            BlobChecksum::Crc32c(sum) => u64::from(sum) == found,
        };
        // (T16)
        if !is_same {
            return Err(wrong("another content than was put".to_owned()));
        }
        behind.extend_from_slice(&u64::try_from(until_ms).unwrap_or_default().to_le_bytes());
        behind.extend_from_slice(&len.to_le_bytes());
        let sum = crc(&[name.as_str().as_bytes(), &behind]);
        behind.extend_from_slice(&sum.to_le_bytes());
        writer.append(&behind)?;
        writer.seal()
    }

    /// (T16) Removes a copy: its container is being removed, or it must not be read any more.
    ///
    /// # Errors
    /// The folder's.
    pub(crate) fn forget(&self, name: &BlobName) -> Result<(), VolumeError> {
        self.kept.lock().remove(name);
        match self.folder.remove(name) {
            Err(VolumeError::NotFound { .. }) => Ok(()),
            removed => removed,
        }
    }

    /// Removes expired copies, and then the least recently used ones among those neither kept nor used since
    /// `begun_ms`, until there is room for `wanted` more bytes. Returns true if there is.
    ///
    /// # Errors
    /// The folder's.
    pub(crate) fn trim(&self, wanted: u64, begun_ms: i64) -> Result<bool, VolumeError> {
        let now_ms = self.clock.now_ms();
        let days_ms = i64::from(self.limits.days).saturating_mul(DAY_MS);
        let described = |(name, entry): (&BlobName, &Entry)| {
            let made_ms = entry.until_ms.saturating_sub(days_ms);
            // Kept longer than configured: a clock was wrong, or the settings changed.
            let has_expired = entry.until_ms <= now_ms || made_ms > now_ms;
            (made_ms.max(entry.used_ms), name.clone(), has_expired)
        };
        let mut by_use: Vec<(i64, BlobName, bool)> = self.kept.lock().iter().map(described).collect();
        by_use.sort_unstable();
        let mut has_room = self.has_room(wanted)?;
        for (used_ms, name, has_expired) in by_use {
            if has_expired || (!has_room && used_ms < begun_ms) {
                self.forget(&name)?;
                has_room = self.has_room(wanted)?;
            }
        }
        Ok(has_room)
    }

    fn has_room(&self, wanted: u64) -> Result<bool, VolumeError> {
        if self.totals().bytes.saturating_add(wanted) > self.limits.bytes {
            return Ok(false);
        }
        let Some(space) = self.folder.space()? else { return Ok(true) };
        let least = space.total_bytes / 100 * FREE_MIN_PCT;
        Ok(space.free_bytes >= least.saturating_add(wanted))
    }
}

/// Reads the entry of a copy from an earlier process. `None`: it is not intact.
fn entry_of(folder: &dyn Volume, name: &BlobName) -> Option<Entry> {
    let blob = folder.open(name).ok()?;
    let mut trailer = [0; TRAILER];
    blob.read_at(blob.len().checked_sub(TRAILER as u64)?, &mut trailer).ok()?;
    let len = number(&trailer, CHECKSUM)?;
    let (until_ms, _) = table(&*blob, name, len)?;
    Some(Entry { len, until_ms, used_ms: 0 })
}

/// Reads the table behind a kept container of this length: its expiry, and the checksums of its pieces. `None`: it
/// is not intact.
fn table(blob: &(dyn Blob + 'static), name: &BlobName, len: u64) -> Option<(i64, Vec<u64>)> {
    if len > CONTAINER_MAX || len.checked_add(table_len(len))? != blob.len() {
        return None;
    }
    let behind = blob.read_vec(name, len, usize::try_from(table_len(len)).ok()?).ok()?;
    let (checked, sum) = behind.split_at_checked(behind.len().checked_sub(CHECKSUM)?)?;
    if number(sum, 0)? != crc(&[name.as_str().as_bytes(), checked]) {
        return None;
    }
    let (sums, told) = checked.split_at_checked(checked.len().checked_sub(2 * CHECKSUM)?)?;
    let until_ms = i64::try_from(number(told, 0)?).ok().filter(|_| number(told, CHECKSUM) == Some(len))?;
    Some((until_ms, sums.chunks_exact(CHECKSUM).filter_map(|sum| number(sum, 0)).collect()))
}
