//! Randomness for secrets, passed in so that tests own it.

use std::fmt;

/// A source of random bytes fit for keys and salts.
pub trait SecretRandom: Send + Sync + fmt::Debug {
    /// Fills `bytes`.
    ///
    /// # Errors
    /// When there is no randomness; `bytes` are then not to be used.
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

    /// Counts up from a byte: what golden bytes are made with.
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

    /// Has none.
    #[derive(Debug)]
    pub(crate) struct Broken;

    impl SecretRandom for Broken {
        fn fill(&self, _: &mut [u8]) -> Result<(), RandomError> {
            Err(RandomError)
        }
    }
}
