//! Planned faults and crashes.

use crate::{BlobName, VolumeError};

/// A kind of operation; each is counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OpKind {
    Create,
    Append,
    Seal,
    Remove,
    Open,
    Read,
    List,
}

impl OpKind {
    /// Returns true if it changes the volume, and so can be interrupted by a crash.
    pub const fn mutates(self) -> bool {
        matches!(self, Self::Create | Self::Append | Self::Seal | Self::Remove)
    }

    /// A local disk's failure of this operation.
    pub(super) fn local_failure(self, name: &BlobName, cause: &str) -> VolumeError {
        let (action, name, source) = (self.verb(), name.to_string(), cause.into());
        if self.mutates() {
            VolumeError::WriteFailed { action, name, source }
        } else {
            VolumeError::Io { action, name, source }
        }
    }

    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Append => "append to",
            Self::Seal => "seal",
            Self::Remove => "remove",
            Self::Open => "open",
            Self::Read => "read",
            Self::List => "list",
        }
    }
}

/// How an operation fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// [`VolumeError::WriteFailed`] of operations that change something, else [`VolumeError::Io`]; the
    /// operation is not done.
    Io,
    /// [`VolumeError::Full`]; the operation is not done.
    Full,
    /// [`VolumeError::NotDurable`]. A seal or removal may have been done nevertheless.
    NotDurable { applied: bool },
    /// [`VolumeError::Unavailable`]; the operation is not done.
    Unavailable,
    /// [`VolumeError::OutcomeUnknown`]. A seal or removal may have been done nevertheless.
    OutcomeUnknown { applied: bool },
    /// [`VolumeError::NotReadableNow`]; the operation is not done.
    NotReadableNow,
    /// A read "succeeds", but the second half of the bytes is zero. Any other operation fails as with
    /// [`Fault::Io`].
    Torn,
}

impl Fault {
    pub(super) const fn is_applied(self) -> bool {
        matches!(self, Self::NotDurable { applied: true } | Self::OutcomeUnknown { applied: true })
    }

    pub(super) fn error(self, kind: OpKind, name: &BlobName) -> VolumeError {
        const CAUSE: &str = "planned failure";
        let (action, text, source) = (kind.verb(), name.to_string(), CAUSE.into());
        match self {
            Self::Io | Self::Torn => kind.local_failure(name, CAUSE),
            Self::Full => VolumeError::Full { name: text, source },
            Self::NotDurable { .. } => VolumeError::NotDurable { name: text, source },
            Self::Unavailable => VolumeError::Unavailable { action, name: text, source },
            Self::OutcomeUnknown { .. } => VolumeError::OutcomeUnknown { action, name: text, source },
            Self::NotReadableNow => VolumeError::NotReadableNow { name: text, source },
        }
    }
}

/// Fails the `nth` operation of a kind, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    pub kind: OpKind,
    pub nth: u64,
    pub fault: Fault,
}

impl Failure {
    /// `count` failures of writing, each among the first `span` operations of its kind; the same for the same
    /// seed.
    pub fn seeded(seed: u64, count: usize, span: u64) -> Vec<Self> {
        const KINDS: [OpKind; 4] = [OpKind::Create, OpKind::Append, OpKind::Seal, OpKind::Remove];
        const FAULTS: [Fault; 4] = [
            Fault::Io,
            Fault::Full,
            Fault::NotDurable { applied: true },
            Fault::NotDurable { applied: false },
        ];
        let mut state = seed;
        let mut below = |bound: u64| splitmix64(&mut state) % bound.max(1);
        let mut pick = || {
            let kind = KINDS.iter().cycle().nth(usize::try_from(below(4)).unwrap_or(0)).copied()?;
            let fault = FAULTS.iter().cycle().nth(usize::try_from(below(4)).unwrap_or(0)).copied()?;
            Some(Self { kind, nth: below(span) + 1, fault })
        };
        (0..count).filter_map(|_| pick()).collect()
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
const fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Moment of a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// This many creates, appends, seals and removals are done; the next one is interrupted.
    pub after_mutations: u64,
    pub in_flight: InFlight,
}

/// Fate of a seal or removal that a power failure interrupts. Creates and appends are lost either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InFlight {
    Lost,
    Done,
}

/// Damage to the bytes of a sealed blob. Offsets past the end damage nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// Flips bit `bit` (0 to 7) of the byte at `offset`.
    FlipBit { offset: u64, bit: u8 },
    /// Cuts the blob to `len` bytes.
    Truncate { len: u64 },
    /// Overwrites a range with zeros.
    Zero { offset: u64, len: u64 },
    /// Adds bytes at the end.
    Extend { tail: Vec<u8> },
    /// Replaces everything, for example by another blob's bytes.
    Replace { bytes: Vec<u8> },
}

impl Damage {
    /// Damages `bytes`.
    pub fn apply(&self, bytes: &mut Vec<u8>) {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        match self {
            Self::FlipBit { offset, bit } => {
                if let Some(byte) = bytes.get_mut(at(*offset)) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Truncate { len } => bytes.truncate(at(*len)),
            Self::Zero { offset, len } => {
                bytes.iter_mut().skip(at(*offset)).take(at(*len)).for_each(|byte| *byte = 0);
            }
            Self::Extend { tail } => bytes.extend_from_slice(tail),
            Self::Replace { bytes: new } => bytes.clone_from(new),
        }
    }
}
