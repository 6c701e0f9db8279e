//! The keys of a repository, unlocked, in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_types::ids::RepositoryId;

use super::{DATA_KEYS_MAX, DataKeyInfo, DataKeyState, Entry, KeyTable, WrapError};
use crate::crypto::{CryptoError, SALT_BYTES};
use crate::data_key::{DataKey, RepositoryKey};
use crate::id::{DataKeyId, KeyNumber, Owner, RepositoryKeyId};
use crate::secret::{RandomError, SecretRandom};
use crate::slots::{NewSlot, SLOTS_MAX, Slot, SlotError, SlotId, SlotInfo, UnlockError};
use crate::table;

/// A blob is sealed with a data key that is missing here: it was destroyed, or the blob or the table belongs to
/// another repository, or the table is an older one. The blob is not damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("data key {wanted} is not among the keys under repository key {have}")]
pub struct UnknownKey {
    pub wanted: DataKeyId,
    pub have: RepositoryKeyId,
}

/// Why data keys were not changed. They are unchanged then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error(
        "there are {DATA_KEYS_MAX} data keys already: let reclaim convert what old ones have, and drop these"
    )]
    Full,
    #[error("there is no data key {0}")]
    Missing(DataKeyId),
    #[error("data key {0} seals new blobs: add another for its owner first")]
    Current(DataKeyId),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// A table with its keys, unlocked. Changes are made in memory: change a clone, write its [`OpenKeys::table`] durably,
/// and only then use it, so that no blob is ever sealed with a key that is not durable.
#[derive(Debug, Clone)]
pub struct OpenKeys {
    table: KeyTable,
    key: RepositoryKey,
    data_keys: BTreeMap<DataKeyId, Arc<DataKey>>,
}

impl OpenKeys {
    /// Creates new keys: a repository key with its first slot, and no data key. `accepts_plain`: the repository has
    /// unsealed blobs.
    ///
    /// # Errors
    /// [`SlotError`].
    pub fn create(
        repository: RepositoryId,
        first: &NewSlot<'_>,
        accepts_plain: bool,
        now_ms: i64,
        random: &dyn SecretRandom,
    ) -> Result<Self, SlotError> {
        let key = RepositoryKey::generate(repository, random)?;
        let table = KeyTable {
            repository,
            key: key.id(),
            sequence: 0,
            changed_ms: now_ms,
            next_slot: 1,
            accepts_plain,
            slots: Vec::new(),
            entries: Vec::new(),
            mac: [0; _],
        };
        let mut keys = Self { table, key, data_keys: BTreeMap::new() };
        keys.add_slot(first, now_ms, random)?;
        Ok(keys)
    }

    /// Unlocks a table with the repository key from a slot.
    pub(super) fn new(table: KeyTable, key: RepositoryKey) -> Result<Self, UnlockError> {
        let forged = UnlockError::Forged { key: table.key };
        if key.id() != table.key || !table::is_authentic(&table, &key)? {
            return Err(forged);
        }
        let mut data_keys = BTreeMap::new();
        for entry in &table.entries {
            let data_key = entry.open(&key)?.ok_or_else(|| forged.clone())?;
            data_keys.insert(data_key.id(), Arc::new(data_key));
        }
        Ok(Self { table, key, data_keys })
    }

    /// The table to be written.
    pub const fn table(&self) -> &KeyTable {
        &self.table
    }

    pub const fn repository(&self) -> RepositoryId {
        self.table.repository()
    }

    /// Returns the data key with this id, which opens blobs.
    ///
    /// # Errors
    /// [`UnknownKey`].
    pub fn data_key(&self, wanted: DataKeyId) -> Result<&Arc<DataKey>, UnknownKey> {
        self.data_keys.get(&wanted).ok_or(UnknownKey { wanted, have: self.key.id() })
    }

    /// Returns the data key that seals new blobs of `owner`; `None`: it needs [`OpenKeys::add_data_key`] first.
    pub fn current_for(&self, owner: Owner) -> Option<&Arc<DataKey>> {
        let is_current = |info: &&DataKeyInfo| info.owner == owner && info.state == DataKeyState::Current;
        let info = self.table.data_keys().find(is_current)?;
        self.data_keys.get(&info.id)
    }

    /// Adds a new current data key of `owner`; the one before becomes an old one.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn add_data_key(
        &mut self,
        owner: Owner,
        now_ms: i64,
        random: &dyn SecretRandom,
    ) -> Result<DataKeyId, KeyError> {
        if self.table.entries.len() >= DATA_KEYS_MAX {
            return Err(KeyError::Full);
        }
        let data_key = DataKey::generate(random)?;
        let id = data_key.id();
        let number =
            self.table.data_keys().filter(|info| info.owner == owner).map(|info| info.number.0).max();
        let number = KeyNumber(number.unwrap_or(0).saturating_add(1));
        let info = DataKeyInfo { id, owner, number, state: DataKeyState::Current, created_ms: now_ms };
        let entry = Entry::seal(info, &data_key, &self.key, random)?;
        let mut table = self.retired(owner, random)?;
        table.entries.push(entry);
        self.adopt(table, now_ms)?;
        self.data_keys.insert(id, Arc::new(data_key));
        Ok(id)
    }

    /// Makes the current data key of `owner` an old one: it seals nothing more. Returns `false` if there is none.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn retire(&mut self, owner: Owner, now_ms: i64, random: &dyn SecretRandom) -> Result<bool, KeyError> {
        if self.current_for(owner).is_none() {
            return Ok(false);
        }
        let table = self.retired(owner, random)?;
        self.adopt(table, now_ms)?;
        Ok(true)
    }

    /// Destroys an old data key: no blob is sealed with it any more, or none is to be read again.
    ///
    /// # Errors
    /// [`KeyError::Missing`], [`KeyError::Current`].
    pub fn drop_data_key(&mut self, id: DataKeyId, now_ms: i64) -> Result<(), KeyError> {
        match self.table.data_keys().find(|info| info.id == id) {
            None => return Err(KeyError::Missing(id)),
            Some(info) if info.state == DataKeyState::Current => return Err(KeyError::Current(id)),
            Some(_) => {}
        }
        let mut table = self.table.clone();
        table.entries.retain(|entry| entry.info.id != id);
        self.adopt(table, now_ms)?;
        self.data_keys.remove(&id);
        Ok(())
    }

    /// Destroys all data keys of `owner`, and thereby everything they sealed. Returns their ids. Rotate the repository
    /// key afterwards: older tables still have them ([`crate::KeyTable`]).
    ///
    /// # Errors
    /// [`KeyError::Crypto`].
    pub fn drop_owner(&mut self, owner: Owner, now_ms: i64) -> Result<Vec<DataKeyId>, KeyError> {
        let mut table = self.table.clone();
        let gone: Vec<_> = table.entries.extract_if(.., |entry| entry.info.owner == owner).collect();
        if gone.is_empty() {
            return Ok(Vec::new());
        }
        self.adopt(table, now_ms)?;
        let gone: Vec<_> = gone.iter().map(|entry| entry.info.id).collect();
        gone.iter().for_each(|id| drop(self.data_keys.remove(id)));
        Ok(gone)
    }

    /// Permanently stops accepting unsealed blobs. Returns `false` if that was so already.
    ///
    /// # Errors
    /// [`CryptoError`].
    pub fn refuse_plain(&mut self, now_ms: i64) -> Result<bool, CryptoError> {
        if !self.table.accepts_plain {
            return Ok(false);
        }
        let mut table = self.table.clone();
        table.accepts_plain = false;
        self.adopt(table, now_ms)?;
        Ok(true)
    }

    /// Adds a slot.
    ///
    /// # Errors
    /// [`SlotError`].
    pub fn add_slot(
        &mut self,
        new: &NewSlot<'_>,
        now_ms: i64,
        random: &dyn SecretRandom,
    ) -> Result<SlotId, SlotError> {
        let mut table = self.table.clone();
        let id = push_slot(&mut table, &self.key, new, now_ms, random)?;
        self.adopt(table, now_ms)?;
        Ok(id)
    }

    /// Removes a slot, but never the last. Older tables still have it: rotate the repository key if that matters.
    ///
    /// # Errors
    /// [`SlotError`].
    pub fn remove_slot(&mut self, id: SlotId, now_ms: i64) -> Result<(), SlotError> {
        let mut table = self.table.clone();
        table.slots.retain(|slot| slot.info.id != id);
        if table.slots.len() == self.table.slots.len() {
            return Err(SlotError::Missing(id));
        }
        if table.slots.is_empty() {
            return Err(SlotError::Last(id));
        }
        self.adopt(table, now_ms)?;
        Ok(())
    }

    /// Creates a new repository key, with a slot for each of `keep`, and rewraps all data keys. Returns the slots that
    /// none of these replaces (by kind and label): they open nothing from now on.
    ///
    /// # Errors
    /// [`SlotError`].
    pub fn rotate_repository_key(
        &mut self,
        keep: &[NewSlot<'_>],
        now_ms: i64,
        random: &dyn SecretRandom,
    ) -> Result<Vec<SlotInfo>, SlotError> {
        if keep.is_empty() {
            return Err(SlotError::NoSecret);
        }
        let key = RepositoryKey::generate(self.repository(), random)?;
        let mut table = self.table.clone();
        table.key = key.id();
        table.slots.clear();
        for new in keep {
            push_slot(&mut table, &key, new, now_ms, random)?;
        }
        for entry in &mut table.entries {
            // Every entry was opened, or created, by this process.
            let data_key = self.data_keys.get(&entry.info.id).ok_or(CryptoError)?;
            *entry = Entry::seal(entry.info, data_key, &key, random)?;
        }
        let gone = self.table.slots().filter(|old| !table.slots().any(|new| old.replaced_by(new)));
        let gone = gone.cloned().collect();
        close(&mut table, &key, now_ms)?;
        (self.table, self.key) = (table, key);
        Ok(gone)
    }

    #[cfg(test)]
    pub(super) const fn key(&self) -> &RepositoryKey {
        &self.key
    }

    /// Returns the table without a current data key of `owner`.
    fn retired(&self, owner: Owner, random: &dyn SecretRandom) -> Result<KeyTable, KeyError> {
        let mut table = self.table.clone();
        for entry in &mut table.entries {
            if entry.info.owner == owner && entry.info.state == DataKeyState::Current {
                let info = DataKeyInfo { state: DataKeyState::Old, ..entry.info };
                let data_key = self.data_keys.get(&info.id).ok_or(KeyError::Missing(info.id))?;
                *entry = Entry::seal(info, data_key, &self.key, random)?;
            }
        }
        Ok(table)
    }

    /// Replaces the table by a changed one.
    fn adopt(&mut self, mut table: KeyTable, now_ms: i64) -> Result<(), CryptoError> {
        close(&mut table, &self.key, now_ms)?;
        self.table = table;
        Ok(())
    }
}

/// Updates sequence, time and authentication code after a change.
fn close(table: &mut KeyTable, key: &RepositoryKey, now_ms: i64) -> Result<(), CryptoError> {
    table.sequence = table.sequence.saturating_add(1);
    table.changed_ms = now_ms;
    table.mac = table::authenticate(table, key)?;
    Ok(())
}

fn push_slot(
    table: &mut KeyTable,
    key: &RepositoryKey,
    new: &NewSlot<'_>,
    now_ms: i64,
    random: &dyn SecretRandom,
) -> Result<SlotId, SlotError> {
    if table.slots.len() >= SLOTS_MAX {
        return Err(SlotError::Full);
    }
    new.check()?;
    let mut salt = [0; SALT_BYTES];
    random.fill(&mut salt)?;
    let id = SlotId(table.next_slot);
    table.slots.push(Slot::seal(new.info(id, now_ms), new.secret, salt, key)?);
    table.next_slot = table.next_slot.saturating_add(1);
    Ok(id)
}

impl From<WrapError> for KeyError {
    fn from(error: WrapError) -> Self {
        match error {
            WrapError::Random(error) => Self::Random(error),
            WrapError::Crypto(error) => Self::Crypto(error),
        }
    }
}

impl From<WrapError> for SlotError {
    fn from(error: WrapError) -> Self {
        match error {
            WrapError::Random(error) => Self::Random(error),
            WrapError::Crypto(error) => Self::Crypto(error),
        }
    }
}
