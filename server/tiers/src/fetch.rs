//! Fetches blobs from the bucket that a server made from the bucket alone should have locally.

use std::num::NonZeroUsize;

use holdfast_volume::{BlobName, Owner, VolumeError};
use parking_lot::Mutex;

use crate::compare::{Expected, PIECE_BYTES, crc64, pieces};
use crate::evict::ends_name;
use crate::record::RecordError;
use crate::shared::Shared;
use crate::volume::TieredVolume;
use crate::waiting::Kind;

/// Names read at a time.
const PAGE: usize = 1024;

/// Errors of a fetch.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Totals of a fetch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fetched {
    pub blobs: u64,
    pub bytes: u64,
    /// Blobs that cannot be read now: archived, refused, or damaged.
    pub unreadable: u64,
}

impl TieredVolume {
    /// Fetches all blobs that are small and always needed (everything but containers), and the containers that are
    /// `wanted`, `threads` at a time. Local blobs are skipped, so a repeated call resumes.
    ///
    /// # Errors
    /// When the bucket cannot be reached, or nothing can be written here.
    pub fn fetch(&self, wanted: fn(&BlobName) -> bool, threads: NonZeroUsize) -> Result<Fetched, FetchError> {
        let mut fetched = Fetched::default();
        for kind in Kind::ALL {
            let Some(folder) = kind.folder() else { continue };
            if kind == Kind::Mark {
                self.fetch_all(vec![folder], threads, &mut fetched)?;
                continue;
            }
            let mut after = None;
            loop {
                let page = self.shared.record.page(&folder, after.as_ref(), PAGE)?;
                after = page.entries.last().map(|entry| entry.name.clone());
                let names = page.entries.into_iter().map(|entry| entry.name);
                let names = names.filter(|name| kind != Kind::Container || wanted(name)).collect();
                self.fetch_all(names, threads, &mut fetched)?;
                if !page.more {
                    break;
                }
            }
        }
        self.fetch_ends(threads, &mut fetched)?;
        Ok(fetched)
    }

    /// Fetches the ends of containers that cannot be read without being thawed.
    ///
    /// # Errors
    /// Same as [`TieredVolume::fetch`].
    pub fn fetch_ends(&self, threads: NonZeroUsize, fetched: &mut Fetched) -> Result<(), FetchError> {
        for names in self.archive().names()?.chunks(PAGE) {
            self.fetch_all(names.iter().filter_map(ends_name).collect(), threads, fetched)?;
        }
        Ok(())
    }

    fn fetch_all(
        &self,
        names: Vec<BlobName>,
        threads: NonZeroUsize,
        fetched: &mut Fetched,
    ) -> Result<(), FetchError> {
        let left = Mutex::new(names);
        let sum = Mutex::new(*fetched);
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..threads.get() {
                scope.spawn(|| {
                    while failed.lock().is_none() {
                        let Some(name) = left.lock().pop() else { return };
                        match self.fetch_one(&name) {
                            Ok(bytes) => {
                                let mut sum = sum.lock();
                                sum.blobs += u64::from(bytes.is_some());
                                sum.bytes += bytes.unwrap_or(0);
                            }
                            // Archived objects are only thawed on request.
                            Err(VolumeError::NotReadableNow { .. }) => sum.lock().unreadable += 1,
                            // (R10) Left in the bucket: later readers find the damage.
                            Err(error) if error.proves_damage() => {
                                tracing::error!(%name, %error, "an object of the bucket is damaged and stays there alone");
                                sum.lock().unreadable += 1;
                            }
                            Err(error) => {
                                failed.lock().get_or_insert(error);
                            }
                        }
                    }
                });
            }
        });
        *fetched = sum.into_inner();
        failed.into_inner().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Fetches a blob, once more if it arrived damaged. `None`: it is local already, or nowhere.
    fn fetch_one(&self, name: &BlobName) -> Result<Option<u64>, VolumeError> {
        match self.copy_here(name) {
            // (R10) A single answer may be corrupted in transit.
            Err(error) if error.proves_damage() => self.copy_here(name),
            copied => copied,
        }
    }

    fn copy_here(&self, name: &BlobName) -> Result<Option<u64>, VolumeError> {
        let Shared { local, remote, .. } = &*self.shared;
        let mut writer = match local.create_for(name, Owner::REPOSITORY) {
            Ok(writer) => writer,
            Err(VolumeError::Exists { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let there = match remote.reads.open(name) {
            Ok(there) => there,
            Err(VolumeError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        // (R10) The client of the bucket verifies a blob that is read in one piece.
        let mut expected = match there.len() > PIECE_BYTES as u64 {
            true => Some(Expected::new(match remote.store.stat(name)?.checksum {
                Some(checksum) => checksum,
                None => crc64(&*there)?,
            })),
            false => None,
        };
        pieces(&*there, |piece| {
            if let Some(expected) = &mut expected {
                expected.update(piece);
            }
            writer.append(piece)
        })?;
        if expected.is_some_and(|expected| !expected.is_met()) {
            return Err(VolumeError::altered(
                name,
                "it did not arrive with the checksum that the bucket keeps of it",
            ));
        }
        match writer.seal() {
            Ok(()) => Ok(Some(there.len())),
            Err(VolumeError::Exists { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
