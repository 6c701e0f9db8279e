//! A table as bytes: header, slots, data keys, authentication code, checksum.

use holdfast_types::ids::RepositoryId;
use zerocopy::little_endian::{I64, U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::entry::{ENTRY_BYTES, Entry};
use super::{DATA_KEYS_MAX, KeyTable};
use crate::crypto::{self, CryptoError, MAC_BYTES, SALT_BYTES};
use crate::id::RepositoryKeyId;
use crate::layout::{DecodeError, check, check_version, crc64};
use crate::repository_key::RepositoryKey;
use crate::slots::{SLOT_BYTES, SLOTS_MAX, Slot};

const MAGIC: [u8; 4] = *b"HFKT";
const VERSION: u16 = 1;
const STRUCTURE: &str = "table of keys";
const MAC_KEY_LABEL: &[u8] = b"holdfast key table authentication v1\0";
const MAC_LABEL: &[u8] = b"holdfast key table v1\0";

/// The only flag.
const ACCEPTS_PLAIN: u8 = 1;

const HEADER_BYTES: usize = size_of::<RawHeader>();
const CRC_BYTES: usize = size_of::<u64>();

/// Bytes of a table at most: read no more of what claims to be one.
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
pub(super) fn authenticate(table: &KeyTable, key: &RepositoryKey) -> Result<[u8; MAC_BYTES], CryptoError> {
    let no_salt = [0; SALT_BYTES];
    let mac_key = crypto::derive(key.secret(), &no_salt, MAC_KEY_LABEL, &key.repository().to_bytes())?;
    Ok(crypto::mac(&mac_key, MAC_LABEL, &body(table)))
}

/// Whether one who had `key` wrote it.
pub(super) fn is_authentic(table: &KeyTable, key: &RepositoryKey) -> Result<bool, CryptoError> {
    Ok(crypto::equal(&table.mac, &authenticate(table, key)?))
}

impl KeyTable {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = body(self);
        bytes.extend_from_slice(&self.mac);
        let crc = crc64(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// From bytes. What it allocates is bounded by their length, and that by [`KEY_TABLE_MAX_BYTES`].
    ///
    /// # Errors
    /// [`DecodeError`]. That nothing was changed on purpose is known only once it is unlocked.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let damaged = |what: &str| DecodeError::damaged(STRUCTURE, what);
        if bytes.len() > KEY_TABLE_MAX_BYTES {
            return Err(damaged("it is too long"));
        }
        let (before, crc) = bytes.split_last_chunk().ok_or_else(|| damaged("it is too short"))?;
        let (header, rest) =
            before.split_first_chunk::<HEADER_BYTES>().ok_or_else(|| damaged("it is too short"))?;
        let header: &RawHeader = zerocopy::transmute_ref!(header);
        check(STRUCTURE, "magic", &header.magic, &MAGIC)?;
        check(STRUCTURE, "checksum", &u64::from_le_bytes(*crc), &crc64(before))?;
        check_version(STRUCTURE, header.version.get(), VERSION)?;
        check(STRUCTURE, "reserved flags", &(header.flags & !ACCEPTS_PLAIN), &0)?;
        let slot_count = usize::from(header.slots);
        if slot_count == 0 || slot_count > SLOTS_MAX {
            return Err(damaged("it has no slots or too many"));
        }
        let (slots, entries, mac) =
            sections(rest, slot_count).ok_or_else(|| damaged("its length is not that of what it has"))?;
        check(STRUCTURE, "number of data keys", &(entries.len() as u64), &header.data_keys.get().into())?;
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

type Sections<'a> = (&'a [[u8; SLOT_BYTES]], &'a [[u8; ENTRY_BYTES]], &'a [u8; MAC_BYTES]);

/// What lies between header and checksum; `None`: not just that.
fn sections(bytes: &[u8], slots: usize) -> Option<Sections<'_>> {
    let (keys, mac) = bytes.split_last_chunk::<MAC_BYTES>()?;
    let (slots, entries) = keys.split_at_checked(slots * SLOT_BYTES)?;
    let (entries, rest) = entries.as_chunks();
    rest.is_empty().then_some((slots.as_chunks().0, entries, mac))
}
