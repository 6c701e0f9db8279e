//! Slots: the repository key, wrapped once for each secret that opens it. Each secret, together with the slots, yields
//! the repository key, which opens everything. [`crate::KeyTable`] stores them. Passphrases and the output of commands
//! are stretched to 256 bits by Argon2id.

use std::fmt;

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zerocopy::little_endian::{I64, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zeroize::Zeroizing;

use crate::crypto::{CryptoError, SALT_BYTES, WRAPPED_BYTES, Wrapping};
use crate::data_key::RepositoryKey;
use crate::id::RepositoryKeyId;
use crate::layout::{DecodeError, check};
use crate::secret::{KEY_BYTES, RandomError, Secret, SecretBytes};

/// Most slots of a repository.
pub const SLOTS_MAX: usize = 16;

/// Input for a new slot.
#[derive(Debug, Clone, Copy)]
pub struct NewSlot<'a> {
    pub secret: &'a SlotSecret,
    /// Description for people: which file, whose passphrase, where the kit is. At most [`LABEL_MAX_BYTES`], without
    /// control characters. Not secret.
    pub label: &'a str,
    /// Cost of a guess, for passphrases and commands.
    pub cost: KdfCost,
}

impl<'a> NewSlot<'a> {
    /// Creates one with [`KdfCost::DEFAULT`].
    pub const fn new(secret: &'a SlotSecret, label: &'a str) -> Self {
        Self { secret, label, cost: KdfCost::DEFAULT }
    }

    pub(crate) fn check(&self) -> Result<(), SlotError> {
        if self.label.len() > LABEL_MAX_BYTES || self.label.contains(char::is_control) {
            return Err(SlotError::Label);
        }
        self.secret.check()
    }

    pub(crate) fn info(&self, id: SlotId, created_ms: i64) -> SlotInfo {
        let cost = self.secret.is_stretched().then_some(self.cost);
        SlotInfo { id, kind: self.secret.kind(), label: self.label.to_owned(), created_ms, cost }
    }
}

/// Why slots cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnlockError {
    #[error(
        "repository key {key} has no slot for a {kind}; what was made before a 'key rotate' opens only older copies of \
         the volume"
    )]
    NoSlot { key: RepositoryKeyId, kind: SlotKind },
    /// The table is intact; the secret is wrong.
    #[error("it is the wrong {kind}: slots of repository key {key} that it was tried on: {tried}")]
    WrongSecret { key: RepositoryKeyId, kind: SlotKind, tried: usize },
    /// A slot opens, but other parts of the table were not written with the repository key.
    #[error("the keys under repository key {key} were changed without it: use another copy of them")]
    Forged { key: RepositoryKeyId },
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Why slots were not changed. They are unchanged then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    #[error("there are {SLOTS_MAX} key slots already: remove one first")]
    Full,
    #[error("there is no key slot {0}")]
    Missing(SlotId),
    #[error("key slot {0} is the last one: without it nothing could open the repository; add another first")]
    Last(SlotId),
    #[error("a rotation needs at least one secret that is to open the new repository key")]
    NoSecret,
    #[error("the label of a key slot has at most {LABEL_MAX_BYTES} bytes and no control characters")]
    Label,
    #[error("a passphrase has at least {PASSPHRASE_MIN_BYTES} bytes; this one has {found}")]
    ShortPassphrase { found: usize },
    #[error("the secret of a {kind} is empty")]
    Empty { kind: SlotKind },
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Limits of the cost that a file may demand: the cost this version writes. A planted slot must not make a start take
/// all memory, or hours.
pub const MEMORY_MAX_KIB: u32 = 64 << 10;
pub const PASSES_MAX: u32 = 3;
pub const LANES_MAX: u32 = 1;

const COST_STRUCTURE: &str = "key slot";

/// Cost of one guess: stored in the slot, so that it can be raised for new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KdfCost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl KdfCost {
    /// 64 MiB and three passes are the second recommendation of RFC 9106 (section 4), and above OWASP's (46 MiB, one
    /// pass). One lane instead of four: this code computes lanes one after another, so more would only help an
    /// attacker with many cores.
    pub const DEFAULT: Self = Self { memory_kib: MEMORY_MAX_KIB, passes: PASSES_MAX, lanes: LANES_MAX };

    /// Returns `None` for less than Argon2 needs (8 KiB a lane, one pass) or more than is ever accepted.
    pub const fn new(memory_kib: u32, passes: u32, lanes: u32) -> Option<Self> {
        let lanes_fit = lanes >= 1 && lanes <= LANES_MAX;
        let passes_fit = passes >= 1 && passes <= PASSES_MAX;
        if lanes_fit && passes_fit && memory_kib >= 8 * lanes && memory_kib <= MEMORY_MAX_KIB {
            return Some(Self { memory_kib, passes, lanes });
        }
        None
    }

    /// Decodes a cost from a file, which may demand anything.
    pub(crate) fn decode([memory_kib, passes, lanes]: [u32; 3]) -> Result<Self, DecodeError> {
        Self::new(memory_kib, passes, lanes).ok_or_else(|| {
            let what = format!(
                "it asks for {memory_kib} KiB, {passes} passes and {lanes} lanes, more than {MEMORY_MAX_KIB} KiB, \
                 {PASSES_MAX} and {LANES_MAX} or too little"
            );
            DecodeError::damaged(COST_STRUCTURE, what)
        })
    }

    pub(crate) const fn encode(self) -> [u32; 3] {
        [self.memory_kib, self.passes, self.lanes]
    }

    /// Stretches with Argon2id, version 1.3. `None`: Argon2 does not accept the parameters or the length of `secret`.
    pub(crate) fn stretch(self, secret: &SecretBytes, salt: &[u8]) -> Option<Secret> {
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(KEY_BYTES)).ok()?;
        let mut memory = Zeroizing::new(vec![Block::default(); params.block_count()]);
        let mut key = Secret::zero();
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into_with_memory(secret.expose(), salt, key.expose_mut(), memory.as_mut_slice())
            .ok()?;
        Some(key)
    }
}

impl Default for KdfCost {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Most bytes of a label.
pub const LABEL_MAX_BYTES: usize = 64;

/// Number of a slot: counted up, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Source of a slot's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotKind {
    KeyFile,
    Passphrase,
    Command,
    RecoveryKit,
}

impl SlotKind {
    const ALL: [(Self, u8, &str); 4] = [
        (Self::KeyFile, 1, "key file"),
        (Self::Passphrase, 2, "passphrase"),
        (Self::Command, 3, "command"),
        (Self::RecoveryKit, 4, "recovery kit"),
    ];

    fn number(self) -> u8 {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or(0, |(_, number, _)| *number)
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == number).map(|(kind, ..)| *kind)
    }

    const fn is_stretched(self) -> bool {
        matches!(self, Self::Passphrase | Self::Command)
    }
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(kind, ..)| kind == self).map_or("", |(.., name)| name))
    }
}

/// Facts about a slot that are readable without a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotInfo {
    pub id: SlotId,
    pub kind: SlotKind,
    /// Description for people: which file, whose passphrase, where the kit is.
    pub label: String,
    pub created_ms: i64,
    /// `None`: the secret is random.
    pub cost: Option<KdfCost>,
}

impl SlotInfo {
    /// Returns true if `new` is this slot with another repository key.
    pub(crate) fn replaced_by(&self, new: &Self) -> bool {
        self.kind == new.kind && self.label == new.label
    }
}

/// Shortest passphrase, in bytes: it may have to withstand guessing by someone with a copy of the slots.
pub const PASSPHRASE_MIN_BYTES: usize = 12;

/// A secret with the kind of slot it opens.
pub struct SlotSecret {
    kind: SlotKind,
    bits: Bits,
}

enum Bits {
    /// Random bits, which need no stretching.
    Random(Secret),
    /// Text chosen by people, or printed by a command, which may also be chosen by a person.
    Text(SecretBytes),
}

impl SlotSecret {
    /// Wraps a secret read by [`crate::source::key_file`].
    pub const fn key_file(secret: Secret) -> Self {
        Self { kind: SlotKind::KeyFile, bits: Bits::Random(secret) }
    }

    /// Wraps a secret read by [`crate::kit`].
    pub const fn recovery_kit(secret: Secret) -> Self {
        Self { kind: SlotKind::RecoveryKit, bits: Bits::Random(secret) }
    }

    /// Wraps a passphrase as typed, without the line's end.
    pub const fn passphrase(text: SecretBytes) -> Self {
        Self { kind: SlotKind::Passphrase, bits: Bits::Text(text) }
    }

    /// Wraps a secret read by [`crate::source::command`].
    pub const fn command(output: SecretBytes) -> Self {
        Self { kind: SlotKind::Command, bits: Bits::Text(output) }
    }

    /// Fails unless a slot can be created for it.
    pub(crate) fn check(&self) -> Result<(), SlotError> {
        let Bits::Text(text) = &self.bits else { return Ok(()) };
        match text.expose().len() {
            0 => Err(SlotError::Empty { kind: self.kind }),
            found if self.kind == SlotKind::Passphrase && found < PASSPHRASE_MIN_BYTES => {
                Err(SlotError::ShortPassphrase { found })
            }
            _ => Ok(()),
        }
    }

    pub(crate) const fn is_stretched(&self) -> bool {
        matches!(self.bits, Bits::Text(_))
    }

    /// The kind of slots that it opens.
    pub const fn kind(&self) -> SlotKind {
        self.kind
    }
}

impl fmt::Debug for SlotSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotSecret({})", self.kind)
    }
}

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

/// Length of the part that the wrapped key is bound to: everything before it; besides, the repository and the
/// repository key's id.
const BOUND_BYTES: usize = std::mem::offset_of!(RawSlot, wrapped);

/// A locked slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Slot {
    pub(crate) info: SlotInfo,
    raw: RawSlot,
}

impl Slot {
    /// Wraps `key`. `salt` must be random and used for nothing else; `info.label` must fit.
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

    /// Unwraps the repository key; `None`: the secret is wrong, or the slot is forged.
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

/// Derives the 256 bits of a secret with this cost.
fn outer(cost: Option<KdfCost>, secret: &SlotSecret, salt: &[u8]) -> Result<Secret, CryptoError> {
    match (&secret.bits, cost) {
        (Bits::Random(secret), _) => Ok(secret.clone()),
        (Bits::Text(text), cost) => cost.unwrap_or_default().stretch(text, salt).ok_or(CryptoError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_bounded() {
        assert!(KdfCost::new(MEMORY_MAX_KIB, PASSES_MAX, LANES_MAX).is_some());
        for (memory_kib, passes, lanes) in [
            (MEMORY_MAX_KIB + 1, 1, 1),
            (64, PASSES_MAX + 1, 1),
            (1024, 1, LANES_MAX + 1),
            (7, 1, 1),
            (8, 0, 1),
            (8, 1, 0),
            (15, 1, 2),
        ] {
            assert_eq!(KdfCost::new(memory_kib, passes, lanes), None);
            assert!(KdfCost::decode([memory_kib, passes, lanes]).is_err());
        }
        let KdfCost { memory_kib, passes, lanes } = KdfCost::DEFAULT;
        assert_eq!(KdfCost::new(memory_kib, passes, lanes), Some(KdfCost::DEFAULT));
    }

    /// A test vector of the reference implementation.
    #[test]
    fn stretching_is_argon2id() {
        let cost = KdfCost::new(256, 2, 1).unwrap();
        let key = cost.stretch(&SecretBytes::new(b"password".to_vec()), b"somesalt").unwrap();
        let expected = [
            0x9d, 0xfe, 0xb9, 0x10, 0xe8, 0x0b, 0xad, 0x03, 0x11, 0xfe, 0xe2, 0x0f, 0x9c, 0x0e, 0x2b, 0x12,
            0xc1, 0x79, 0x87, 0xb4, 0xca, 0xc9, 0x0c, 0x2e, 0xf5, 0x4d, 0x5b, 0x30, 0x21, 0xc6, 0x8b, 0xfe,
        ];
        assert_eq!(*key.expose(), expected);
    }
}
