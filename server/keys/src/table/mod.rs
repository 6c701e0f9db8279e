//! The table of keys: slots and all data keys of a repository in one small blob.
//!
//! Without a secret it tells how many slots there are, of what kind and with what label, and which owners have how many
//! data keys. With one it opens everything. It is never changed in place: a changed table is a new one with the next
//! sequence number, written durably as a whole before the older ones are removed, so a crash leaves the one before.
//!
//! The repository key authenticates all of it: who can write to the volume can put back an older table, or none, but
//! cannot drop, swap or add a key or a slot. [`KeyTable::sequence`] is for noticing an older one.
//!
//! A repository that was made without encryption has blobs that are not sealed until reclaim has converted them; only
//! until then does its table say that these are accepted. Who can write to the volume could otherwise put plain blobs in
//! the place of sealed ones.
//!
//! **Rotating the repository key** makes a table with a new key, in which all data keys are wrapped anew at once, so no
//! state lies between. A slot is taken over only if its secret is at hand, because nothing in a table leads from an
//! earlier repository key, or an earlier slot, to a later key. (A slot with a key pair, or with a key of its own that the
//! repository key wraps, would spare typing passphrases; but then anyone who ever saw a repository key would see all later
//! ones, and a kit that was given up would go on working.) Slots that are not taken over are named, so that the kit is
//! exported and passphrases are added again.
//!
//! What rotation cannot do: an older table still opens with an older secret, and then gives the data keys it has. So for
//! a destroyed namespace to be unreadable, either no older table is left, or no secret that opens one: a key file gets
//! new bits, the old kit is burnt, and a passphrase is changed for another.

mod entry;
mod file;
mod open;

use holdfast_types::ids::RepositoryId;

use crate::crypto::MAC_BYTES;
use crate::id::RepositoryKeyId;
use crate::repository_key::RepositoryKey;
use crate::secret::Secret;
use crate::slots::{Slot, SlotId, SlotInfo, SlotSecret, UnlockError};

use entry::Entry;
pub use entry::{DataKeyInfo, DataKeyState};
pub use file::KEY_TABLE_MAX_BYTES;
pub use open::{KeyError, OpenKeys, UnknownKey};

/// Data keys of a repository at most: 4,096 namespaces with 15 keys each are fewer. A table of so many has 9 MiB.
pub const DATA_KEYS_MAX: usize = 1 << 16;

/// All keys of a repository, locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTable {
    repository: RepositoryId,
    key: RepositoryKeyId,
    sequence: u64,
    changed_ms: i64,
    next_slot: u32,
    accepts_plain: bool,
    slots: Vec<Slot>,
    entries: Vec<Entry>,
    /// By the repository key, over everything else.
    mac: [u8; MAC_BYTES],
}

impl KeyTable {
    pub const fn repository(&self) -> RepositoryId {
        self.repository
    }

    /// The id of the repository key.
    pub const fn key(&self) -> RepositoryKeyId {
        self.key
    }

    /// One more than that of the table it was made of. A new repository's first table has 1.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub const fn changed_ms(&self) -> i64 {
        self.changed_ms
    }

    /// Whether the repository may have blobs that are not sealed. Believe it only of a table that was unlocked.
    pub const fn accepts_plain(&self) -> bool {
        self.accepts_plain
    }

    /// The slots, oldest first.
    pub fn slots(&self) -> impl Iterator<Item = &SlotInfo> {
        self.slots.iter().map(|slot| &slot.info)
    }

    /// The data keys, oldest first.
    pub fn data_keys(&self) -> impl Iterator<Item = &DataKeyInfo> {
        self.entries.iter().map(|entry| &entry.info)
    }

    /// Tries `secret` on every slot of its kind. Returns the keys and the slot that opened.
    ///
    /// # Errors
    /// [`UnlockError`].
    pub fn unlock(self, secret: &SlotSecret) -> Result<(OpenKeys, SlotId), UnlockError> {
        let (key, kind, repository) = (self.key, secret.kind(), self.repository);
        let mut tried = 0;
        let slots = self.slots.iter().filter(|slot| slot.info.kind == kind);
        let mut opened: Option<(Secret, SlotId)> = None;
        for slot in slots {
            tried += 1;
            if let Some(bits) = slot.open(secret, repository.to_bytes(), key.0)? {
                opened = Some((bits, slot.info.id));
                break;
            }
        }
        match opened {
            Some((bits, slot)) => {
                let keys = OpenKeys::new(self, RepositoryKey::new(repository, bits))?;
                Ok((keys, slot))
            }
            None if tried == 0 => Err(UnlockError::NoSlot { key, kind }),
            None => Err(UnlockError::WrongSecret { key, kind, tried }),
        }
    }
}

#[cfg(test)]
mod tests;
