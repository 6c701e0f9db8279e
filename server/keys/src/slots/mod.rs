//! Slots: the repository key, wrapped once for each secret that opens it. Anyone who has one of the secrets and the slots
//! has the repository key, so each opens everything. [`crate::KeyTable`] keeps them.

mod info;
mod kdf;
mod secret;
mod slot;

use crate::crypto::CryptoError;
use crate::id::RepositoryKeyId;
use crate::random::RandomError;

pub use info::{LABEL_MAX_BYTES, SlotId, SlotInfo, SlotKind};
pub use kdf::{KdfCost, LANES_MAX, MEMORY_MAX_KIB, PASSES_MAX};
pub use secret::{PASSPHRASE_MIN_BYTES, SlotSecret};
pub(crate) use slot::{SLOT_BYTES, Slot};

/// Slots of a repository at most.
pub const SLOTS_MAX: usize = 16;

/// A slot to be made.
#[derive(Debug, Clone, Copy)]
pub struct NewSlot<'a> {
    pub secret: &'a SlotSecret,
    /// For people: which file, whose passphrase, where the kit lies. At most [`LABEL_MAX_BYTES`], without control
    /// characters. Anyone can read it.
    pub label: &'a str,
    /// What a guess costs, for passphrases and commands.
    pub cost: KdfCost,
}

impl<'a> NewSlot<'a> {
    /// With [`KdfCost::DEFAULT`].
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

/// Why slots do not open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnlockError {
    #[error(
        "repository key {key} has no slot for a {kind}; what was made before a 'key rotate' opens only older copies of \
         the volume"
    )]
    NoSlot { key: RepositoryKeyId, kind: SlotKind },
    /// The table is whole; the secret is another.
    #[error("it is the wrong {kind}: slots of repository key {key} that it was tried on: {tried}")]
    WrongSecret { key: RepositoryKeyId, kind: SlotKind, tried: usize },
    /// A slot opens, but what is beside it was not written by one who had the repository key.
    #[error("the keys under repository key {key} were changed without it: use another copy of them")]
    Forged { key: RepositoryKeyId },
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// Why slots are not changed. They are then as they were.
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
