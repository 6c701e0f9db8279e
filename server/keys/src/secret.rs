//! Secrets in memory: wiped when dropped, compared in constant time, never shown.
//!
//! They are on the heap and are not moved there, so that no copy stays on a stack. Swap and core dumps are out of
//! scope. Their randomness is passed in, so that tests control it.

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use zeroize::Zeroize as _;

/// Bytes of every key.
pub const KEY_BYTES: usize = 32;

/// A secret of 256 bits.
pub struct Secret(Box<[u8; KEY_BYTES]>);

impl Secret {
    /// Generates random bits.
    ///
    /// # Errors
    /// When no randomness is available.
    pub fn random(random: &dyn SecretRandom) -> Result<Self, RandomError> {
        let mut secret = Self::zero();
        random.fill(secret.0.as_mut_slice())?;
        Ok(secret)
    }

    /// Copies `bytes`, which the caller must wipe.
    pub fn from_bytes(bytes: &[u8; KEY_BYTES]) -> Self {
        let mut secret = Self::zero();
        secret.0.copy_from_slice(bytes);
        secret
    }

    /// Returns the bits, for code that writes them to their destination.
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns zeros, to be filled in place.
    pub(crate) fn zero() -> Self {
        Self(Box::new([0; KEY_BYTES]))
    }

    pub(crate) fn expose_mut(&mut self) -> &mut [u8; KEY_BYTES] {
        &mut self.0
    }
}

impl Clone for Secret {
    fn clone(&self) -> Self {
        Self::from_bytes(&self.0)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(self.0.as_slice(), other.0.as_slice()).is_ok()
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A secret of any length: a passphrase, the output of a command.
pub struct SecretBytes(Vec<u8>);

impl SecretBytes {
    /// Takes ownership of the bytes, and wipes the whole capacity of the vector on drop.
    pub const fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for code that writes them to their destination.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SecretBytes {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl PartialEq for SecretBytes {
    fn eq(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl Eq for SecretBytes {}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBytes(…)")
    }
}

/// A source of random bytes fit for keys and salts.
pub trait SecretRandom: Send + Sync + fmt::Debug {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When no randomness is available; `bytes` must not be used then.
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError>;
}

/// The system gave no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system's source of random numbers failed")]
pub struct RandomError;

/// AWS-LC's generator, seeded by the system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl SecretRandom for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
        aws_lc_rs::rand::fill(bytes).map_err(|_| RandomError)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::{RandomError, SecretRandom};

    /// Encodes bytes as lower-case hexadecimal digits.
    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// A source that counts up from a byte, for golden bytes.
    #[derive(Debug)]
    pub(crate) struct Counting(AtomicU8);

    impl Counting {
        pub(crate) const fn from(first: u8) -> Self {
            Self(AtomicU8::new(first))
        }
    }

    impl SecretRandom for Counting {
        fn fill(&self, bytes: &mut [u8]) -> Result<(), RandomError> {
            bytes.fill_with(|| self.0.fetch_add(1, Ordering::Relaxed));
            Ok(())
        }
    }

    /// A source that always fails.
    #[derive(Debug)]
    pub(crate) struct Broken;

    impl SecretRandom for Broken {
        fn fill(&self, _: &mut [u8]) -> Result<(), RandomError> {
            Err(RandomError)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_compared_and_never_shown() {
        let secret = Secret::from_bytes(&[0xAB; KEY_BYTES]);
        assert_eq!(secret, secret.clone());
        assert_ne!(secret, Secret::from_bytes(&[0xAC; KEY_BYTES]));
        assert_eq!(format!("{secret:?}"), "Secret(…)");
        let text = SecretBytes::new(b"hunter2".to_vec());
        assert_eq!(text, SecretBytes::new(b"hunter2".to_vec()));
        assert_ne!(text, SecretBytes::new(b"hunter".to_vec()));
        assert_eq!(format!("{text:?}"), "SecretBytes(…)");
    }
}
