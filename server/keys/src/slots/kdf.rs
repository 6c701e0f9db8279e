//! Stretching what people, or commands, know into 256 bits: Argon2id.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use zeroize::Zeroizing;

use crate::layout::DecodeError;
use crate::secret::{KEY_BYTES, Secret, SecretBytes};

/// Limits of the cost that a file may ask for: the cost this version writes. A start must not be made to take all memory, or hours, by a
/// slot that someone planted.
pub const MEMORY_MAX_KIB: u32 = 64 << 10;
pub const PASSES_MAX: u32 = 3;
pub const LANES_MAX: u32 = 1;

const STRUCTURE: &str = "key slot";

/// What one guess costs: kept in the slot, so that it can be raised for new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KdfCost {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
}

impl KdfCost {
    /// 64 MiB and three passes are the second recommendation of RFC 9106 (section 4), and above what OWASP asks for (46
    /// MiB, one pass). One lane instead of four: lanes are computed one after another here, so more would help only who
    /// guesses on many cores.
    pub const DEFAULT: Self = Self { memory_kib: MEMORY_MAX_KIB, passes: PASSES_MAX, lanes: LANES_MAX };

    /// `None`: less than Argon2 needs (8 KiB a lane, one pass) or more than is ever accepted.
    pub const fn new(memory_kib: u32, passes: u32, lanes: u32) -> Option<Self> {
        let lanes_fit = lanes >= 1 && lanes <= LANES_MAX;
        let passes_fit = passes >= 1 && passes <= PASSES_MAX;
        if lanes_fit && passes_fit && memory_kib >= 8 * lanes && memory_kib <= MEMORY_MAX_KIB {
            return Some(Self { memory_kib, passes, lanes });
        }
        None
    }

    /// From a file, which may ask for anything.
    pub(crate) fn decode([memory_kib, passes, lanes]: [u32; 3]) -> Result<Self, DecodeError> {
        Self::new(memory_kib, passes, lanes).ok_or_else(|| {
            let what = format!(
                "it asks for {memory_kib} KiB, {passes} passes and {lanes} lanes, more than {MEMORY_MAX_KIB} KiB, \
                 {PASSES_MAX} and {LANES_MAX} or too little"
            );
            DecodeError::damaged(STRUCTURE, what)
        })
    }

    pub(crate) const fn encode(self) -> [u32; 3] {
        [self.memory_kib, self.passes, self.lanes]
    }

    /// Argon2id, version 1.3. `None`: the parameters or the length of `secret` are none that Argon2 takes.
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

    /// A vector of the reference implementation's own tests.
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
