//! The table of keys: slots and all data keys of a repository in one small blob.
//!
//! Without a secret it shows the number, kinds and labels of slots, and how many data keys each owner has. With one it
//! opens everything. It is never changed in place: a changed table is a new one with the next sequence number, durably
//! written as a whole before the older ones are removed, so a crash leaves the one before.
//!
//! The repository key authenticates all of it: an attacker who can write to the volume can restore an older table, or
//! remove all, but cannot drop, swap or add a key or a slot. [`KeyTable::sequence`] serves to detect an older one.
//!
//! A repository created without encryption has unsealed blobs until reclaim has converted them; only until then does
//! its table say that these are accepted. Otherwise an attacker who can write to the volume could replace sealed blobs
//! by plain ones.
//!
//! **Rotating the repository key** creates a table with a new key, in which all data keys are rewrapped at once, so
//! there is no intermediate state. A slot is kept only if its secret is at hand, because nothing in a table leads from
//! an earlier repository key, or an earlier slot, to a later key. (A slot with a key pair, or with a key of its own
//! that the repository key wraps, would spare typing passphrases; but then anyone who ever saw a repository key would
//! see all later ones, and a discarded kit would go on working.) Slots that are not kept are named, so that the kit is
//! exported and passphrases are added again.
//!
//! Limits of rotation: an older table still opens with an older secret, and then yields its data keys. So for a
//! destroyed namespace to be unreadable, there must be no older table left, or no secret that opens one: a key file
//! gets new bits, the old kit is burnt, and a passphrase is replaced.

mod open;

use holdfast_types::ids::RepositoryId;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::crypto::{self, CryptoError, MAC_BYTES, SALT_BYTES, WRAPPED_BYTES, Wrapping};
use crate::data_key::{DataKey, RepositoryKey};
use crate::id::{DataKeyId, KeyNumber, Owner, RepositoryKeyId};
use crate::layout::{DecodeError, check, check_version, crc64};
use crate::secret::{RandomError, Secret, SecretRandom};
use crate::slots::{SLOT_BYTES, SLOTS_MAX, Slot, SlotId, SlotInfo, SlotSecret, UnlockError};

pub use open::{KeyError, OpenKeys, UnknownKey};

/// Most data keys of a repository: 4,096 namespaces with 15 keys each are fewer. A table of so many has 9 MiB.
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
    /// Authentication code of everything else, by the repository key.
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

    /// Sequence number: one more than that of the table it was made from. A new repository's first table has 1.
    pub const fn sequence(&self) -> u64 {
        self.sequence
    }

    pub const fn changed_ms(&self) -> i64 {
        self.changed_ms
    }

    /// Returns true if the repository may have unsealed blobs. Trust it only after the table was unlocked.
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

    /// Encodes the table.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = body(self);
        bytes.extend_from_slice(&self.mac);
        let crc = crc64(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a table. Allocations are bounded by the length of `bytes`, and that by [`KEY_TABLE_MAX_BYTES`].
    ///
    /// # Errors
    /// [`DecodeError`]. Deliberate changes are detected only when the table is unlocked.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let damaged = |what: &str| DecodeError::damaged(TABLE_STRUCTURE, what);
        if bytes.len() > KEY_TABLE_MAX_BYTES {
            return Err(damaged("it is too long"));
        }
        let (before, crc) = bytes.split_last_chunk().ok_or_else(|| damaged("it is too short"))?;
        let (header, rest) =
            before.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| damaged("it is too short"))?;
        let header: &RawHeader = zerocopy::transmute_ref!(header);
        check(TABLE_STRUCTURE, "magic", &header.magic, &MAGIC)?;
        check(TABLE_STRUCTURE, "checksum", &u64::from_le_bytes(*crc), &crc64(before))?;
        check_version(TABLE_STRUCTURE, header.version.get(), VERSION)?;
        check(TABLE_STRUCTURE, "reserved flags", &(header.flags & !ACCEPTS_PLAIN), &0)?;
        let slot_count = usize::from(header.slots);
        if slot_count == 0 || slot_count > SLOTS_MAX {
            return Err(damaged("it has no slots or too many"));
        }
        let (slots, entries, mac) =
            sections(rest, slot_count).ok_or_else(|| damaged("its length is not that of what it has"))?;
        check(
            TABLE_STRUCTURE,
            "number of data keys",
            &(entries.len() as u64),
            &header.data_keys.get().into(),
        )?;
        Ok(Self {
            repository: RepositoryId::from_bytes(header.repository),
            key: RepositoryKeyId(header.key),
            sequence: header.sequence.get(),
            changed_ms: header.changed_ms.get(),
            accepts_plain: header.flags == ACCEPTS_PLAIN,
            next_slot: header.next_slot.get(),
            slots: slots.iter().map(Slot::decode).collect::<Result<_, _>>()?,
            entries: entries.iter().map(Entry::decode).collect::<Result<_, _>>()?,
            mac: *mac,
        })
    }
}

const STRUCTURE: &str = "wrapped data key";
const LABEL: &[u8] = b"holdfast wrapped data key v1\0";

/// Bytes of an entry.
const ENTRY_BYTES: usize = size_of::<RawEntry>();
/// Length of the part that the wrapped key is bound to: everything before it; besides, the repository and the
/// repository key's id.
const BOUND_BYTES: usize = std::mem::offset_of!(RawEntry, wrapped);

/// Role of a data key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKeyState {
    /// Seals new blobs; each owner has at most one such key.
    Current,
    /// Only opens blobs that were sealed with it, until none is left.
    Old,
}

impl DataKeyState {
    const fn number(self) -> u8 {
        match self {
            Self::Current => 1,
            Self::Old => 2,
        }
    }
}

/// Properties of a data key that a locked table shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataKeyInfo {
    pub id: DataKeyId,
    pub owner: Owner,
    pub number: KeyNumber,
    pub state: DataKeyState,
    pub created_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawEntry {
    id: [u8; 16],
    owner: [u8; 16],
    number: U32,
    state: u8,
    zero: [u8; 3],
    created_ms: I64,
    salt: [u8; SALT_BYTES],
    wrapped: [u8; WRAPPED_BYTES],
}

/// A wrapped data key, which only the repository key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    info: DataKeyInfo,
    raw: RawEntry,
}

impl Entry {
    /// Wraps `key` with a salt of its own. `info.id` must be the key's.
    fn seal(
        info: DataKeyInfo,
        key: &DataKey,
        by: &RepositoryKey,
        random: &dyn SecretRandom,
    ) -> Result<Self, WrapError> {
        let mut raw = RawEntry {
            id: info.id.0,
            owner: info.owner.to_bytes(),
            number: U32::new(info.number.0),
            state: info.state.number(),
            zero: [0; 3],
            created_ms: I64::new(info.created_ms),
            salt: [0; SALT_BYTES],
            wrapped: [0; WRAPPED_BYTES],
        };
        random.fill(&mut raw.salt)?;
        raw.wrapped = wrapping(&raw, by, &bound(&raw, by)).wrap(key.secret())?;
        Ok(Self { info, raw })
    }

    /// Unwraps the data key; `None`: it is not the one that was wrapped there.
    fn open(&self, by: &RepositoryKey) -> Result<Option<DataKey>, CryptoError> {
        let secret = wrapping(&self.raw, by, &bound(&self.raw, by)).unwrap(&self.raw.wrapped)?;
        Ok(secret.map(DataKey::new).filter(|key| key.id() == self.info.id))
    }

    fn encode(&self) -> [u8; ENTRY_BYTES] {
        zerocopy::transmute!(self.raw)
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Self, DecodeError> {
        let raw: RawEntry = zerocopy::transmute!(*bytes);
        check(STRUCTURE, "reserved field", &raw.zero, &[0; 3])?;
        let state = match raw.state {
            1 => DataKeyState::Current,
            2 => DataKeyState::Old,
            other => return Err(DecodeError::damaged(STRUCTURE, format_args!("its state is {other}"))),
        };
        let info = DataKeyInfo {
            id: DataKeyId(raw.id),
            owner: Owner::from_bytes(raw.owner),
            number: KeyNumber(raw.number.get()),
            state,
            created_ms: raw.created_ms.get(),
        };
        Ok(Self { info, raw })
    }
}

/// Why a data key was not wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum WrapError {
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

fn bound(raw: &RawEntry, by: &RepositoryKey) -> Vec<u8> {
    let before = raw.as_bytes().get(..BOUND_BYTES).unwrap_or_default();
    [before, &by.repository().to_bytes(), &by.id().0].concat()
}

fn wrapping<'a>(raw: &'a RawEntry, by: &'a RepositoryKey, bound_to: &'a [u8]) -> Wrapping<'a> {
    Wrapping { outer: by.secret(), salt: &raw.salt, label: LABEL, bound_to }
}

const MAGIC: [u8; 4] = *b"HFKT";
const VERSION: u16 = 1;
const TABLE_STRUCTURE: &str = "table of keys";
const MAC_KEY_LABEL: &[u8] = b"holdfast key table authentication v1\0";
const MAC_LABEL: &[u8] = b"holdfast key table v1\0";

/// The only flag.
const ACCEPTS_PLAIN: u8 = 1;

const HEADER_BYTES: usize = size_of::<RawHeader>();
const CRC_BYTES: usize = size_of::<u64>();

/// Longest table, in bytes: read no more of a blob that claims to be one.
pub const KEY_TABLE_MAX_BYTES: usize =
    HEADER_BYTES + SLOTS_MAX * SLOT_BYTES + DATA_KEYS_MAX * ENTRY_BYTES + MAC_BYTES + CRC_BYTES;

#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 4],
    version: U16,
    slots: u8,
    flags: u8,
    data_keys: U32,
    next_slot: U32,
    sequence: U64,
    changed_ms: I64,
    repository: [u8; 16],
    key: [u8; 16],
}

/// Everything before the authentication code.
fn body(table: &KeyTable) -> Vec<u8> {
    let header = RawHeader {
        magic: MAGIC,
        version: U16::new(VERSION),
        slots: u8::try_from(table.slots.len()).unwrap_or(u8::MAX),
        flags: if table.accepts_plain { ACCEPTS_PLAIN } else { 0 },
        data_keys: U32::new(u32::try_from(table.entries.len()).unwrap_or(u32::MAX)),
        next_slot: U32::new(table.next_slot),
        sequence: U64::new(table.sequence),
        changed_ms: I64::new(table.changed_ms),
        repository: table.repository.to_bytes(),
        key: table.key.0,
    };
    let mut bytes = header.as_bytes().to_vec();
    table.slots.iter().for_each(|slot| bytes.extend_from_slice(&slot.encode()));
    table.entries.iter().for_each(|entry| bytes.extend_from_slice(&entry.encode()));
    bytes
}

/// The authentication code of a table.
fn authenticate(table: &KeyTable, key: &RepositoryKey) -> Result<[u8; MAC_BYTES], CryptoError> {
    let no_salt = [0; SALT_BYTES];
    let mac_key = crypto::derive(key.secret(), &no_salt, MAC_KEY_LABEL, &key.repository().to_bytes())?;
    Ok(crypto::mac(&mac_key, MAC_LABEL, &body(table)))
}

/// Returns true if it was written with `key`.
fn is_authentic(table: &KeyTable, key: &RepositoryKey) -> Result<bool, CryptoError> {
    Ok(crypto::equal(&table.mac, &authenticate(table, key)?))
}

type Sections<'a> = (&'a [[u8; SLOT_BYTES]], &'a [[u8; ENTRY_BYTES]], &'a [u8; MAC_BYTES]);

/// Splits off the sections between header and checksum; `None`: the length does not fit.
fn sections(bytes: &[u8], slots: usize) -> Option<Sections<'_>> {
    let (keys, mac) = bytes.split_last_chunk::<MAC_BYTES>()?;
    let (slots, entries) = keys.split_at_checked(slots * SLOT_BYTES)?;
    let (entries, rest) = entries.as_chunks();
    rest.is_empty().then_some((slots.as_chunks().0, entries, mac))
}

#[cfg(test)]
mod tests;
