//! The keys of a repository at work.

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

/// How often a new key may be made an old one before anyone has used it.
const FIRST_TRIES: u32 = 3;

/// Why keys were not changed.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error(transparent)]
    Table(#[from] TableError),
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Why keys that someone else made are not taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// Someone was faster: make the change again.
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

/// Which data keys blobs are being written with that no listing shows yet: these are not dropped.
#[derive(Debug, Default)]
struct Writers(Mutex<BTreeMap<DataKeyId, u64>>);

/// A blob being written with a data key, until this is dropped.
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

/// Who is told of a new table.
type Watcher = Box<dyn Fn(&KeyTable) + Send + Sync>;

/// The keys of a repository, opened. Shared by all that read and write.
pub struct Keys {
    open: RwLock<OpenKeys>,
    /// Where the table lies, in the open.
    volume: Arc<dyn Volume>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn SecretRandom>,
    /// Held while the table is replaced: readers go on.
    changing: Mutex<()>,
    writers: Arc<Writers>,
    /// Whether an owner has had more than one data key: blobs may have been sealed anew.
    was_rotated: AtomicBool,
    /// Whether there are blobs in the open, or with old data keys.
    is_to_convert: AtomicBool,
    watcher: OnceLock<Watcher>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("open", &self.open).finish_non_exhaustive()
    }
}

/// The ids of data keys that seal nothing new.
fn old_keys(table: &KeyTable) -> Vec<DataKeyId> {
    table.data_keys().filter(|key| key.state == DataKeyState::Old).map(|key| key.id).collect()
}

impl Keys {
    /// `open`, whose table lies on `volume`.
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

    /// Tells `watcher` of each table that replaces the one before, once it is durable. Only the first one is told.
    pub fn on_change(&self, watcher: Watcher) {
        let _ = self.watcher.set(watcher);
    }

    /// What every call asks of the table, which may be long.
    fn look(&self, table: &KeyTable) {
        // Before the other: a caller that finds nothing to convert looks for all that a conversion left.
        self.was_rotated.store(table.data_keys().any(|key| key.number.0 > 1), Ordering::SeqCst);
        let is_to_convert =
            table.accepts_plain() || table.data_keys().any(|key| key.state == DataKeyState::Old);
        self.is_to_convert.store(is_to_convert, Ordering::SeqCst);
    }

    /// Whether blobs may lie there that were sealed anew, under the other name.
    pub(crate) fn was_rotated(&self) -> bool {
        self.was_rotated.load(Ordering::SeqCst)
    }

    /// Whether a conversion has anything to do: blobs in the open, or old data keys.
    pub fn is_to_convert(&self) -> bool {
        self.is_to_convert.load(Ordering::SeqCst)
    }

    /// Data keys that seal nothing new, and open what was sealed with them.
    #[cfg(test)]
    pub(crate) fn old(&self) -> Vec<DataKeyId> {
        old_keys(self.open.read().table())
    }

    /// (K3) Those of the old data keys with which nothing is being written any more. That stays so: who begins to write
    /// takes the current one. So a pass that begins now sees every blob that was sealed with them.
    pub(crate) fn old_and_quiet(&self) -> Vec<DataKeyId> {
        let open = self.open.read();
        let writers = self.writers.0.lock();
        old_keys(open.table()).into_iter().filter(|id| !writers.contains_key(id)).collect()
    }

    /// Whose a data key is, and whether it seals what is new; `None`: there is none.
    pub(crate) fn of(&self, id: DataKeyId) -> Option<(Owner, bool)> {
        let open = self.open.read();
        let key = open.table().data_keys().find(|key| key.id == id)?;
        Some((Owner::namespace(key.owner.to_bytes()), key.state == DataKeyState::Current))
    }

    /// (K3) Nothing lies in the open any more, and nothing is sealed with these old data keys: from now on neither is
    /// believed.
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
        self.look(&table);
        drop(open);
        if let Some(watcher) = self.watcher.get() {
            watcher(&table);
        }
        settle_table(&*self.volume, &table).map_err(failed)?;
        Ok(answer)
    }

    /// (K1) Goes on with keys that someone else made of these: of the table with number `based_on`.
    ///
    /// # Errors
    /// [`TakeOverError`]; nothing was changed then, unless it is of [`settle_table`].
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
            // Who changes what opens the repository gives up no data.
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

    /// (K8) Looks at the table on the volume, and writes anew what is damaged or missing of it, which is returned.
    ///
    /// # Errors
    /// The volume's.
    pub fn mend(&self) -> Result<Mended, TableError> {
        let _changing = self.changing.lock();
        let table = self.open.read().table().clone();
        settle_table(&*self.volume, &table)
    }

    /// What seals one writing of the blob `name`, of `owner`.
    pub(crate) fn sealer(&self, owner: Owner, name: &BlobName) -> Result<(Writing, BlobSealer), VolumeError> {
        let owner = KeyOwner::from_bytes(owner.to_bytes());
        let current = || {
            let open = self.open.read();
            let key = Arc::clone(open.current_for(owner)?);
            // (K3) While it is the current one.
            let writing = Writing::begin(&self.writers, key.id());
            Some((key, writing))
        };
        let mut found = current();
        // Keys may be changed again before it is taken.
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
        let key = key.map_err(|error: UnknownKey| VolumeError::without_key(name, unknown(error)))?;
        let blob_key = key.blob_key(&header.salt, self.repository(), name.as_str());
        blob_key.map_err(|error| failed(name, error))
    }

    fn repository(&self) -> holdfast_types::ids::RepositoryId {
        self.open.read().repository()
    }
}

/// What is missing, and what to do.
fn unknown(error: UnknownKey) -> String {
    format!(
        "{error}. Either it is left over from a namespace that was destroyed; or the keys are older than what they are to open: \
         put the newest copy of the folder keys there"
    )
}

/// Nothing was written, and it may work later.
fn failed(name: &BlobName, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> VolumeError {
    VolumeError::Unavailable { action: "encrypt", name: name.to_string(), source: why.into() }
}
