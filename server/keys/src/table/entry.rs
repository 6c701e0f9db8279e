//! One data key in a table, wrapped by the repository key.

use zerocopy::little_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::crypto::{CryptoError, SALT_BYTES, WRAPPED_BYTES, Wrapping};
use crate::data_key::DataKey;
use crate::id::{DataKeyId, KeyNumber, Owner};
use crate::layout::{DecodeError, check};
use crate::random::{RandomError, SecretRandom};
use crate::repository_key::RepositoryKey;

const STRUCTURE: &str = "wrapped data key";
const LABEL: &[u8] = b"holdfast wrapped data key v1\0";

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = size_of::<RawEntry>();
/// What the wrapped key is bound to: all before it, the repository and the repository key's id.
const BOUND_BYTES: usize = std::mem::offset_of!(RawEntry, wrapped);

/// Whether new blobs are sealed with a data key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKeyState {
    /// The one of its owner that seals new blobs.
    Current,
    /// Opens blobs that were sealed with it, until none is left.
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

/// What a table says of a data key without being unlocked.
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

/// A data key that only the repository key opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) info: DataKeyInfo,
    raw: RawEntry,
}

impl Entry {
    /// Wraps `key` with a salt of its own. `info.id` is the key's.
    pub(super) fn seal(
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

    /// The data key; `None`: it is not what was wrapped there.
    pub(super) fn open(&self, by: &RepositoryKey) -> Result<Option<DataKey>, CryptoError> {
        let secret = wrapping(&self.raw, by, &bound(&self.raw, by)).unwrap(&self.raw.wrapped)?;
        Ok(secret.map(DataKey::new).filter(|key| key.id() == self.info.id))
    }

    pub(super) fn encode(&self) -> [u8; ENTRY_BYTES] {
        zerocopy::transmute!(self.raw)
    }

    pub(super) fn decode(bytes: &[u8; ENTRY_BYTES]) -> Result<Self, DecodeError> {
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

/// Why a data key is not wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WrapError {
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
