//! Copies of containers that were thawed, in a folder of this machine: what was brought back and paid for once is read here
//! until it expires, so that a second restore in the same week asks the bucket for nothing.
//!
//! (T16) They never count as copies of anything: all that they hold lies in the archive, and losing the folder costs
//! requests. Each is written as a whole, with the checksum of what was once sent, before it is read; each piece of it is
//! checked whenever it is read; and it goes before its container does. There is room for so many bytes, for so many days,
//! and only while the volume has plenty; what was of no use for longest goes first.
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

/// What is checked at once. A read of some chunks reads this much more.
const PIECE_BYTES: usize = 256 << 10;

/// What is asked of the bucket at once: a request costs the same whatever its size.
const FETCH_BYTES: usize = 16 * PIECE_BYTES;

const CHECKSUM: usize = size_of::<u64>();

/// Behind the checksums of the pieces.
const TRAILER: usize = 3 * CHECKSUM;

/// No container is larger: its file has at most 64 MiB of regions and a directory.
const CONTAINER_MAX: u64 = 1 << 30;

const DAY_MS: i64 = 24 * 3_600_000;

/// What is kept for less than this counts as cold (or half of what it is kept for, if that is less): a restore of terabytes takes
/// a day, and one that is about to begin must not find in the middle that its copies have expired.
const ENOUGH_MS: i64 = DAY_MS;

/// Of the volume, at least this share stays free, in percent: backups come first.
const FREE_MIN_PCT: u64 = 10;

/// How much of what was thawed is kept here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThawCacheLimits {
    pub bytes: u64,
    pub days: u32,
}

/// What is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThawCacheTotals {
    pub containers: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// Of the container.
    len: u64,
    until_ms: i64,
    /// When it was last of use, as far as this process knows.
    used_ms: i64,
}

impl Entry {
    fn file_len(self) -> u64 {
        self.len.saturating_add(table_len(self.len))
    }
}

/// See the module's text.
#[derive(Debug)]
pub(crate) struct ThawCache {
    folder: Arc<dyn Volume>,
    limits: ThawCacheLimits,
    clock: Arc<dyn Clock>,
    kept: Mutex<BTreeMap<BlobName, Entry>>,
    /// One is fetched at a time: that is memory, and what there is room for.
    fetching: Mutex<()>,
}

fn pieces(len: u64) -> u64 {
    len.div_ceil(PIECE_BYTES as u64)
}

/// Of everything behind the container.
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
    /// What an earlier process kept in `folder` is kept on, as far as it is whole. (T16) Not if something may have been removed
    /// since that is still in it (`is_up_to_date`): its name may be another's now.
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

    /// Whether anything is kept under this name, whatever it is.
    pub(crate) fn may_have(&self, name: &BlobName) -> bool {
        self.kept.lock().contains_key(name)
    }

    /// Whether a container of this length can be read here now.
    pub(crate) fn has(&self, name: &BlobName, len: u64) -> bool {
        self.lasts(name, len, MARGIN_MS)
    }

    /// Whether a container of this length is kept for long enough that a restore which is yet to begin need not thaw it.
    pub(crate) fn has_for_long(&self, name: &BlobName, len: u64) -> bool {
        let days_ms = i64::from(self.limits.days).saturating_mul(DAY_MS);
        self.lasts(name, len, ENOUGH_MS.min(days_ms / 2))
    }

    fn lasts(&self, name: &BlobName, len: u64, at_least_ms: i64) -> bool {
        let now_ms = self.clock.now_ms();
        let lasts =
            |entry: &&mut Entry| entry.len == len && entry.until_ms.saturating_sub(at_least_ms) > now_ms;
        // Who asks is going to count on it.
        self.kept.lock().get_mut(name).filter(lasts).map(|entry| entry.used_ms = now_ms).is_some()
    }

    pub(crate) fn totals(&self) -> ThawCacheTotals {
        let kept = self.kept.lock();
        let bytes = kept.values().fold(0_u64, |sum, entry| sum.saturating_add(entry.file_len()));
        ThawCacheTotals { containers: kept.len() as u64, bytes }
    }

    /// (T16) Reads a part of a container of this length; `false`: it is not kept, or not whole any more.
    pub(crate) fn read(&self, name: &BlobName, len: u64, offset: u64, buffer: &mut [u8]) -> bool {
        if !self.has(name, len) {
            return false;
        }
        let is_read = self.read_checked(name, len, offset, buffer).unwrap_or(false);
        // Removed meanwhile is as good as never kept.
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
        // Anew each time: what is damaged since must not pass for the checksum of a piece.
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

    /// (T16) Fetches a container that can be read in the bucket. What was kept or used since `begun_ms` does not go for it.
    /// `false`: there is no room, or no checksum of what was sent is known: nothing would tell it from something else.
    ///
    /// # Errors
    /// When it cannot be read there or written here; [`VolumeError::BadAnswer`]: it is not what was sent.
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
        // What is kept of it expires, or is of another.
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

    /// (T16) Its container goes, or it is not to be read any more.
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

    /// Removes what has expired, and of what was neither kept nor used since `begun_ms` what was not for longest, until there
    /// is room for `wanted` bytes more. Whether there is.
    ///
    /// # Errors
    /// The folder's.
    pub(crate) fn trim(&self, wanted: u64, begun_ms: i64) -> Result<bool, VolumeError> {
        let now_ms = self.clock.now_ms();
        let days_ms = i64::from(self.limits.days).saturating_mul(DAY_MS);
        let described = |(name, entry): (&BlobName, &Entry)| {
            let made_ms = entry.until_ms.saturating_sub(days_ms);
            // Kept longer than is said: a clock was wrong, or the settings changed.
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

/// What an earlier process kept. `None`: it is not whole.
fn entry_of(folder: &dyn Volume, name: &BlobName) -> Option<Entry> {
    let blob = folder.open(name).ok()?;
    let mut trailer = [0; TRAILER];
    blob.read_at(blob.len().checked_sub(TRAILER as u64)?, &mut trailer).ok()?;
    let len = number(&trailer, CHECKSUM)?;
    let (until_ms, _) = table(&*blob, name, len)?;
    Some(Entry { len, until_ms, used_ms: 0 })
}

/// What is behind a kept container of this length: until when it is kept, and the checksums of its pieces. `None`: it is not
/// whole.
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
