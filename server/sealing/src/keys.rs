//! The keys of a repository at work.

use std::sync::Arc;

use holdfast_keys::{
    BlobKey, BlobSealer, DataKeyId, KeyError, OpenKeys, Owner as KeyOwner, SecretRandom, UnknownKey,
};
use holdfast_types::clock::Clock;
use holdfast_volume::{BlobName, Owner, Volume, VolumeError};
use parking_lot::{Mutex, RwLock};

use crate::layout::SealedHeader;
use crate::table::{TableError, remove_older, write_table};

/// Why keys were not changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// The keys of a repository, opened. Shared by all that read and write.
#[derive(Debug)]
pub struct Keys {
    open: RwLock<OpenKeys>,
    /// Where the table lies, in the open.
    volume: Arc<dyn Volume>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn SecretRandom>,
    /// Held while the table is replaced: readers go on.
    changing: Mutex<()>,
}

impl Keys {
    /// `open`, whose table lies on `volume`.
    pub fn new(
        open: OpenKeys,
        volume: Arc<dyn Volume>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn SecretRandom>,
    ) -> Self {
        Self { open: RwLock::new(open), volume, clock, random, changing: Mutex::new(()) }
    }

    /// Whether blobs may lie in the open that were written before the repository was encrypted.
    pub fn accepts_plain(&self) -> bool {
        self.open.read().table().accepts_plain()
    }

    /// What the table says now, for those who tell of it.
    pub fn with_table<T>(&self, read: impl FnOnce(&holdfast_keys::KeyTable) -> T) -> T {
        read(self.open.read().table())
    }

    /// (K1) Changes the keys: the new table is durable before anything is sealed with what is new in it.
    ///
    /// # Errors
    /// Those of `change`; the volume's: nothing was changed, or an older table is left beside the new one.
    pub fn change<T, E: From<KeysError>>(
        &self,
        change: impl FnOnce(&mut OpenKeys, i64, &dyn SecretRandom) -> Result<T, E>,
    ) -> Result<T, E> {
        let _changing = self.changing.lock();
        let mut changed = self.open.read().clone();
        let answer = change(&mut changed, self.clock.now_ms(), &*self.random)?;
        let is_same = changed.table().sequence() == self.open.read().table().sequence();
        if is_same {
            return Ok(answer);
        }
        let failed = |error: TableError| E::from(KeysError::from(error));
        write_table(&*self.volume, changed.table()).map_err(failed)?;
        // It counts from here on, whatever becomes of the older ones.
        let mut open = self.open.write();
        *open = changed;
        let table = open.table().clone();
        drop(open);
        remove_older(&*self.volume, &table).map_err(failed)?;
        Ok(answer)
    }

    /// What seals one writing of the blob `name`, of `owner`.
    pub(crate) fn sealer(
        &self,
        owner: Owner,
        name: &BlobName,
    ) -> Result<(DataKeyId, BlobSealer), VolumeError> {
        let owner = KeyOwner::from_bytes(owner.to_bytes());
        let current = || self.open.read().current_for(owner).cloned();
        let key = match current() {
            Some(key) => key,
            None => {
                self.add_first(owner).map_err(|error| failed(name, error))?;
                current().ok_or_else(|| failed(name, "its key went away"))?
            }
        };
        let sealer = key.blob_sealer(self.repository(), name.as_str(), &*self.random);
        Ok((key.id(), sealer.map_err(|error| failed(name, error))?))
    }

    /// The first key of an owner, unless someone else was faster.
    fn add_first(&self, owner: KeyOwner) -> Result<(), KeysError> {
        self.change(|keys, now_ms, random| {
            if keys.current_for(owner).is_none() {
                keys.add_data_key(owner, now_ms, random)?;
            }
            Ok(())
        })
    }

    /// What opens the blob `name`, whose header this is.
    pub(crate) fn blob_key(&self, header: SealedHeader, name: &BlobName) -> Result<BlobKey, VolumeError> {
        let key = self.open.read().data_key(header.key).cloned();
        // It says nothing of the blob: with that key it may be whole.
        let key = key.map_err(|error: UnknownKey| VolumeError::NotReadableNow {
            name: name.to_string(),
            source: error.into(),
        })?;
        let blob_key = key.blob_key(&header.salt, self.repository(), name.as_str());
        blob_key.map_err(|error| failed(name, error))
    }

    fn repository(&self) -> holdfast_types::ids::RepositoryId {
        self.open.read().repository()
    }
}

/// Nothing was written, and it may work later.
fn failed(name: &BlobName, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> VolumeError {
    VolumeError::Unavailable { action: "encrypt", name: name.to_string(), source: why.into() }
}
