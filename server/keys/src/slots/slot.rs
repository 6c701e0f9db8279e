//! One slot: the repository key, wrapped by what one secret gives.

use zerocopy::little_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::info::{LABEL_MAX_BYTES, SlotId, SlotInfo, SlotKind};
use super::kdf::KdfCost;
use super::secret::{Bits, SlotSecret};
use crate::crypto::{CryptoError, SALT_BYTES, WRAPPED_BYTES, Wrapping};
use crate::layout::{DecodeError, check};
use crate::repository_key::RepositoryKey;
use crate::secret::Secret;

const STRUCTURE: &str = "key slot";
const LABEL: &[u8] = b"holdfast key slot v1\0";

/// Bytes of a slot.
pub(crate) const SLOT_BYTES: usize = size_of::<RawSlot>();

#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawSlot {
    id: U32,
    kind: u8,
    label_bytes: u8,
    zero: [u8; 2],
    created_ms: I64,
    /// Memory in KiB, passes, lanes; zero when the secret is random.
    cost: [U32; 3],
    zero_too: [u8; 4],
    label: [u8; LABEL_MAX_BYTES],
    salt: [u8; SALT_BYTES],
    wrapped: [u8; WRAPPED_BYTES],
}

/// What the wrapped key is bound to: all before it, the repository and the repository key's id.
const BOUND_BYTES: usize = std::mem::offset_of!(RawSlot, wrapped);

/// A slot, locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) info: SlotInfo,
    raw: RawSlot,
}

impl Slot {
    /// Wraps `key`. `salt` is random and used for nothing else; `info.label` fits.
    pub(crate) fn seal(
        info: SlotInfo,
        secret: &SlotSecret,
        salt: [u8; SALT_BYTES],
        key: &RepositoryKey,
    ) -> Result<Self, CryptoError> {
        let mut label = [0; LABEL_MAX_BYTES];
        label.iter_mut().zip(info.label.bytes()).for_each(|(to, from)| *to = from);
        let mut raw = RawSlot {
            id: U32::new(info.id.0),
            kind: info.kind.number(),
            label_bytes: u8::try_from(info.label.len()).unwrap_or(u8::MAX),
            zero: [0; 2],
            created_ms: I64::new(info.created_ms),
            cost: info.cost.map_or([0; 3], KdfCost::encode).map(U32::new),
            zero_too: [0; 4],
            label,
            salt,
            wrapped: [0; WRAPPED_BYTES],
        };
        let outer = outer(info.cost, secret, &salt)?;
        raw.wrapped = wrapping(&outer, &raw, &bound(&raw, key.repository().to_bytes(), key.id().0))
            .wrap(key.secret())?;
        Ok(Self { info, raw })
    }

    /// The repository key; `None`: the secret is another, or the slot is forged.
    pub(crate) fn open(
        &self,
        secret: &SlotSecret,
        repository: [u8; 16],
        key: [u8; 16],
    ) -> Result<Option<Secret>, CryptoError> {
        let outer = outer(self.info.cost, secret, &self.raw.salt)?;
        wrapping(&outer, &self.raw, &bound(&self.raw, repository, key)).unwrap(&self.raw.wrapped)
    }

    pub(crate) fn encode(&self) -> [u8; SLOT_BYTES] {
        zerocopy::transmute!(self.raw)
    }

    pub(crate) fn decode(bytes: &[u8; SLOT_BYTES]) -> Result<Self, DecodeError> {
        let raw: RawSlot = zerocopy::transmute!(*bytes);
        check(STRUCTURE, "reserved field", &(raw.zero, raw.zero_too), &([0; 2], [0; 4]))?;
        let kind = SlotKind::from_number(raw.kind)
            .ok_or_else(|| DecodeError::damaged(STRUCTURE, format_args!("its kind is {}", raw.kind)))?;
        let cost = raw.cost.map(U32::get);
        let cost = match kind.is_stretched() {
            true => Some(KdfCost::decode(cost)?),
            false => {
                check(STRUCTURE, "cost", &cost, &[0; 3])?;
                None
            }
        };
        let label = raw
            .label
            .split_at_checked(raw.label_bytes.into())
            .filter(|(_, rest)| rest.iter().all(|&byte| byte == 0))
            .and_then(|(label, _)| std::str::from_utf8(label).ok())
            .ok_or_else(|| DecodeError::damaged(STRUCTURE, "its label is no text"))?;
        let info = SlotInfo {
            id: SlotId(raw.id.get()),
            kind,
            label: label.to_owned(),
            created_ms: raw.created_ms.get(),
            cost,
        };
        Ok(Self { info, raw })
    }
}

fn bound(raw: &RawSlot, repository: [u8; 16], key: [u8; 16]) -> Vec<u8> {
    [raw.as_bytes().get(..BOUND_BYTES).unwrap_or_default(), &repository, &key].concat()
}

fn wrapping<'a>(outer: &'a Secret, raw: &'a RawSlot, bound_to: &'a [u8]) -> Wrapping<'a> {
    Wrapping { outer, salt: &raw.salt, label: LABEL, bound_to }
}

/// The 256 bits that a secret gives with this cost.
fn outer(cost: Option<KdfCost>, secret: &SlotSecret, salt: &[u8]) -> Result<Secret, CryptoError> {
    match (&secret.bits, cost) {
        (Bits::Random(secret), _) => Ok(secret.clone()),
        (Bits::Text(text), cost) => cost.unwrap_or_default().stretch(text, salt).ok_or(CryptoError),
    }
}
