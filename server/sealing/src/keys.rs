//! The keys of a repository in use.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use holdfast_keys::{
    BlobKey, BlobSealer, DataKeyId, DataKeyState, KeyError, KeyTable, OpenKeys, Owner as KeyOwner,
    SecretRandom, UnknownKey,
};
use holdfast_types::clock::Clock;
use holdfast_volume::{BlobName, Owner, Volume, VolumeError};
use parking_lot::{Mutex, RwLock};

use crate::layout::SealedHeader;
use crate::table::{Mended, TableError, settle_table, write_table};

/// How often an owner's first key may become an old one before it is used.
const FIRST_TRIES: u32 = 3;

/// Errors of a change of keys.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Why a table of keys made elsewhere is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// Another change came first: make the change again.
    #[error("it was made of table {based_on} of the keys, and there is table {present} now")]
    Outdated { based_on: u64, present: u64 },
    #[error("it has number {sequence}, and the table of keys that counts has {present}")]
    Older { sequence: u64, present: u64 },
    #[error("it is a table of keys of another repository")]
    OfAnother,
    #[error("data key {0} is missing from it")]
    Lost(DataKeyId),
    #[error("by it blobs that lie in the open would be believed again")]
    BelievesPlain,
    #[error(transparent)]
    Keys(#[from] KeysError),
}

/// Data keys in use by writers whose blobs no listing shows yet: these are not dropped.
#[derive(Debug, Default)]
struct Writers(Mutex<BTreeMap<DataKeyId, u64>>);

/// Marks a data key as in use by a writer, until dropped.
#[derive(Debug)]
pub(crate) struct Writing {
    writers: Arc<Writers>,
    key: DataKeyId,
}

impl Writing {
    fn begin(writers: &Arc<Writers>, key: DataKeyId) -> Self {
        *writers.0.lock().entry(key).or_default() += 1;
        Self { writers: Arc::clone(writers), key }
    }

    pub(crate) const fn key(&self) -> DataKeyId {
        self.key
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        let mut writers = self.writers.0.lock();
        if let Some(count) = writers.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                writers.remove(&self.key);
            }
        }
    }
}

/// Callback for a new table.
type Watcher = Box<dyn Fn(&KeyTable) + Send + Sync>;

/// The open keys of a repository. Shared by all readers and writers.
pub struct Keys {
    open: RwLock<OpenKeys>,
    /// Volume that has the table, unencrypted.
    volume: Arc<dyn Volume>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn SecretRandom>,
    /// Held while the table is replaced: readers are not blocked.
    changing: Mutex<()>,
    writers: Arc<Writers>,
    /// `true` if an owner has had more than one data key: blobs may have been sealed anew.
    was_rotated: AtomicBool,
    /// `true` if there may be blobs that are plain, or sealed with old data keys.
    is_to_convert: AtomicBool,
    watcher: OnceLock<Watcher>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("open", &self.open).finish_non_exhaustive()
    }
}

/// Ids of the data keys that seal nothing new.
fn old_keys(table: &KeyTable) -> Vec<DataKeyId> {
    table.data_keys().filter(|key| key.state == DataKeyState::Old).map(|key| key.id).collect()
}

impl Keys {
    /// Creates it from `open`, whose table is on `volume`.
    pub fn new(
        open: OpenKeys,
        volume: Arc<dyn Volume>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn SecretRandom>,
    ) -> Self {
        let keys = Self {
            open: RwLock::new(open),
            volume,
            clock,
            random,
            changing: Mutex::new(()),
            writers: Arc::default(),
            was_rotated: AtomicBool::new(false),
            is_to_convert: AtomicBool::new(false),
            watcher: OnceLock::new(),
        };
        keys.look(keys.open.read().table());
        keys
    }

    /// Registers `watcher`, which is called with each new table once it is durable. Only the first one is registered.
    pub fn on_change(&self, watcher: Watcher) {
        let _ = self.watcher.set(watcher);
    }

    /// Caches the flags that every call needs, as the table may be long.
    fn look(&self, table: &KeyTable) {
        // Stored first: a caller that finds nothing to convert looks for the forms that a conversion left.
        self.was_rotated.store(table.data_keys().any(|key| key.number.0 > 1), Ordering::SeqCst);
        let is_to_convert =
            table.accepts_plain() || table.data_keys().any(|key| key.state == DataKeyState::Old);
        self.is_to_convert.store(is_to_convert, Ordering::SeqCst);
    }

    /// Returns true if there may be blobs that were sealed anew, under the other name.
    pub(crate) fn was_rotated(&self) -> bool {
        self.was_rotated.load(Ordering::SeqCst)
    }

    /// Returns true if a conversion has work: plain blobs, or old data keys.
    pub fn is_to_convert(&self) -> bool {
        self.is_to_convert.load(Ordering::SeqCst)
    }

    /// Data keys that seal nothing new, but open what was sealed with them.
    #[cfg(test)]
    pub(crate) fn old(&self) -> Vec<DataKeyId> {
        old_keys(self.open.read().table())
    }

    /// (K3) Old data keys with which nothing is being written. That is final: a new writer takes the current one. So a
    /// pass that begins now sees every blob sealed with them.
    pub(crate) fn old_and_quiet(&self) -> Vec<DataKeyId> {
        let open = self.open.read();
        let writers = self.writers.0.lock();
        old_keys(open.table()).into_iter().filter(|id| !writers.contains_key(id)).collect()
    }

    /// Owner of a data key, and whether it is its current one; `None`: there is no such key.
    pub(crate) fn of(&self, id: DataKeyId) -> Option<(Owner, bool)> {
        let open = self.open.read();
        let key = open.table().data_keys().find(|key| key.id == id)?;
        Some((Owner::namespace(key.owner.to_bytes()), key.state == DataKeyState::Current))
    }

    /// (K3) Records that no blob is plain, or sealed with these old data keys: from now on neither is accepted.
    ///
    /// # Errors
    /// As [`Keys::change`].
    pub(crate) fn converted(&self, old: &[DataKeyId]) -> Result<(), KeysError> {
        self.change(|keys, now_ms, _| {
            keys.refuse_plain(now_ms).map_err(KeyError::from)?;
            let still_old = old_keys(keys.table());
            for id in still_old.into_iter().filter(|id| old.contains(id)) {
                keys.drop_data_key(id, now_ms)?;
            }
            Ok(())
        })
    }

    /// Returns true if blobs from before the repository was encrypted may be plain.
    pub fn accepts_plain(&self) -> bool {
        self.open.read().table().accepts_plain()
    }

    /// Passes the current table to `read`.
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
        // The new table is in force from here on, even if older ones could not be removed.
        let mut open = self.open.write();
        *open = changed;
        let table = open.table().clone();
        self.look(&table);
        drop(open);
        if let Some(watcher) = self.watcher.get() {
            watcher(&table);
        }
        settle_table(&*self.volume, &table).map_err(failed)?;
        Ok(answer)
    }

    /// (K1) Switches to keys that another process derived from the table with number `based_on`.
    ///
    /// # Errors
    /// [`TakeOverError`]; nothing was changed then, unless the error is from [`settle_table`].
    pub fn take_over(&self, based_on: u64, keys: OpenKeys) -> Result<(), TakeOverError> {
        self.change(|present, _, _| {
            let sequence = present.table().sequence();
            if sequence != based_on {
                return Err(TakeOverError::Outdated { based_on, present: sequence });
            }
            if keys.repository() != present.repository() {
                return Err(TakeOverError::OfAnother);
            }
            if keys.table().sequence() <= sequence {
                return Err(TakeOverError::Older { sequence: keys.table().sequence(), present: sequence });
            }
            // A change of key slots must not lose data keys.
            if let Some(lost) = present.table().data_keys().find(|key| keys.data_key(key.id).is_err()) {
                return Err(TakeOverError::Lost(lost.id));
            }
            if !present.table().accepts_plain() && keys.table().accepts_plain() {
                return Err(TakeOverError::BelievesPlain);
            }
            *present = keys;
            Ok(())
        })
    }

    /// (K8) Checks the table on the volume, and rewrites damaged or missing blobs of it, which are returned.
    ///
    /// # Errors
    /// The volume's.
    pub fn mend(&self) -> Result<Mended, TableError> {
        let _changing = self.changing.lock();
        let table = self.open.read().table().clone();
        settle_table(&*self.volume, &table)
    }

    /// Returns the sealer for a new blob `name` of `owner`.
    pub(crate) fn sealer(&self, owner: Owner, name: &BlobName) -> Result<(Writing, BlobSealer), VolumeError> {
        let owner = KeyOwner::from_bytes(owner.to_bytes());
        let current = || {
            let open = self.open.read();
            let key = Arc::clone(open.current_for(owner)?);
            // (K3) Marked while it is the current one.
            let writing = Writing::begin(&self.writers, key.id());
            Some((key, writing))
        };
        let mut found = current();
        // Keys may change again before the new one is taken.
        for _ in 0..FIRST_TRIES {
            if found.is_some() {
                break;
            }
            self.add_first(owner).map_err(|error| failed(name, error))?;
            found = current();
        }
        let (key, writing) = found.ok_or_else(|| failed(name, "its key went away"))?;
        let sealer = key.blob_sealer(self.repository(), name.as_str(), &*self.random);
        Ok((writing, sealer.map_err(|error| failed(name, error))?))
    }

    /// Creates the first key of an owner, unless another thread did.
    fn add_first(&self, owner: KeyOwner) -> Result<(), KeysError> {
        self.change(|keys, now_ms, random| {
            if keys.current_for(owner).is_none() {
                keys.add_data_key(owner, now_ms, random)?;
            }
            Ok(())
        })
    }

    /// Returns the key that opens the blob `name` with this header.
    pub(crate) fn blob_key(&self, header: SealedHeader, name: &BlobName) -> Result<BlobKey, VolumeError> {
        let key = self.open.read().data_key(header.key).cloned();
        // Nothing is known about the blob: with that key it may be intact.
        let key = key.map_err(|error: UnknownKey| VolumeError::without_key(name, unknown(error)))?;
        let blob_key = key.blob_key(&header.salt, self.repository(), name.as_str());
        blob_key.map_err(|error| failed(name, error))
    }

    fn repository(&self) -> holdfast_types::ids::RepositoryId {
        self.open.read().repository()
    }
}

/// Message for a missing key, with what to do.
fn unknown(error: UnknownKey) -> String {
    format!(
        "{error}. Either it is left over from a namespace that was destroyed; or the keys are older than what they are to open: \
         put the newest copy of the folder keys there"
    )
}

/// Error for a failure before anything was written: a retry may succeed.
fn failed(name: &BlobName, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> VolumeError {
    VolumeError::Unavailable { action: "encrypt", name: name.to_string(), source: why.into() }
}
