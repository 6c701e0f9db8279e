//! What a slot says of itself.

use std::fmt;

use super::kdf::KdfCost;

/// Bytes of a label at most.
pub const LABEL_MAX_BYTES: usize = 64;

/// A slot's number: counted up, never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Where the secret of a slot comes from.
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

    pub(super) fn number(self) -> u8 {
        Self::ALL.iter().find(|(kind, ..)| *kind == self).map_or(0, |(_, number, _)| *number)
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().find(|(_, known, _)| *known == number).map(|(kind, ..)| *kind)
    }

    pub(super) const fn is_stretched(self) -> bool {
        matches!(self, Self::Passphrase | Self::Command)
    }
}

impl fmt::Display for SlotKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(kind, ..)| kind == self).map_or("", |(.., name)| name))
    }
}

/// What a slot says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotInfo {
    pub id: SlotId,
    pub kind: SlotKind,
    /// For people: which file, whose passphrase, where the kit lies.
    pub label: String,
    pub created_ms: i64,
    /// `None`: the secret is random.
    pub cost: Option<KdfCost>,
}

impl SlotInfo {
    /// Whether `new` is this slot with another repository key.
    pub(crate) fn replaced_by(&self, new: &Self) -> bool {
        self.kind == new.kind && self.label == new.label
    }
}
