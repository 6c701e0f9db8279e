//! What opens a slot.

use std::fmt;

use super::SlotError;
use super::info::SlotKind;
use crate::secret::{Secret, SecretBytes};

/// A passphrase has at least so many bytes: it may have to withstand guessing by someone who has a copy of the slots.
pub const PASSPHRASE_MIN_BYTES: usize = 12;

/// A secret with the kind of slot it opens.
pub struct SlotSecret {
    kind: SlotKind,
    pub(super) bits: Bits,
}

pub(super) enum Bits {
    /// Random: needs no stretching.
    Random(Secret),
    /// Of people, or of a command that may hand out what a person chose.
    Text(SecretBytes),
}

impl SlotSecret {
    /// What [`crate::source::key_file`] reads.
    pub const fn key_file(secret: Secret) -> Self {
        Self { kind: SlotKind::KeyFile, bits: Bits::Random(secret) }
    }

    /// What [`crate::kit`] reads.
    pub const fn recovery_kit(secret: Secret) -> Self {
        Self { kind: SlotKind::RecoveryKit, bits: Bits::Random(secret) }
    }

    /// As typed, without the line's end.
    pub const fn passphrase(text: SecretBytes) -> Self {
        Self { kind: SlotKind::Passphrase, bits: Bits::Text(text) }
    }

    /// What [`crate::source::command`] reads.
    pub const fn command(output: SecretBytes) -> Self {
        Self { kind: SlotKind::Command, bits: Bits::Text(output) }
    }

    /// Fails unless a slot can be made with it.
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

    /// Which slots it is for.
    pub const fn kind(&self) -> SlotKind {
        self.kind
    }
}

impl fmt::Debug for SlotSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotSecret({})", self.kind)
    }
}
