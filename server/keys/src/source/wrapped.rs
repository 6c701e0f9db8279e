//! A key file wrapped by a passphrase: useless without it.
//!
//! One line like that of a [key file](super::key_file): `holdfast-wrapped-key-1`, a blank, 92 bytes as hexadecimal
//! digits, a blank, a checksum, a line feed. The bytes are the cost of one guess (Argon2id: memory in KiB, passes,
//! lanes; u32 each), a salt, and the sealed secret.
//!
//! A crash during creation leaves the same as for a key file.

use std::path::Path;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use zeroize::Zeroizing;

use super::key_file::{KeyFileError, checked_line, checked_line_bytes, make, parse_checked_line, read_up_to};
use crate::crypto::{CryptoError, SALT_BYTES, WRAPPED_BYTES, Wrapping};
use crate::layout::DecodeError;
use crate::secret::{Secret, SecretBytes, SecretRandom};
use crate::slots::{KdfCost, PASSPHRASE_MIN_BYTES};

const BEGIN: &str = "holdfast-wrapped-key-1 ";
const LABEL: &[u8] = b"holdfast wrapped key file v1\0";
const LINE_BYTES: usize = checked_line_bytes(BEGIN, size_of::<Raw>());

/// Errors of wrapping or unwrapping a secret.
#[derive(Debug, thiserror::Error)]
pub enum WrappedKeyError {
    #[error(transparent)]
    File(#[from] KeyFileError),
    #[error("the wrapped key cannot be used: {0}")]
    Decode(#[from] DecodeError),
    #[error("the passphrase has {found} bytes: take one of {PASSPHRASE_MIN_BYTES} or more")]
    ShortPassphrase { found: usize },
    #[error("the passphrase does not open the key, or the key was changed")]
    WrongPassphrase,
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Raw {
    /// Memory in KiB, passes, lanes.
    cost: [U32; 3],
    salt: [u8; SALT_BYTES],
    wrapped: [u8; WRAPPED_BYTES],
}

/// Length of the part that the sealed secret is bound to: everything before it.
const BOUND_BYTES: usize = std::mem::offset_of!(Raw, wrapped);

/// A secret wrapped by a passphrase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    cost: KdfCost,
    raw: Raw,
}

impl WrappedKey {
    /// Wraps `secret`.
    ///
    /// # Errors
    /// [`WrappedKeyError::ShortPassphrase`]; no randomness, no memory.
    pub fn wrap(
        secret: &Secret,
        passphrase: &SecretBytes,
        cost: KdfCost,
        random: &dyn SecretRandom,
    ) -> Result<Self, WrappedKeyError> {
        let found = passphrase.expose().len();
        if found < PASSPHRASE_MIN_BYTES {
            return Err(WrappedKeyError::ShortPassphrase { found });
        }
        let mut salt = [0; SALT_BYTES];
        random.fill(&mut salt).map_err(KeyFileError::from)?;
        let mut raw = Raw { cost: cost.encode().map(U32::new), salt, wrapped: [0; WRAPPED_BYTES] };
        let outer = cost.stretch(passphrase, &salt).ok_or(CryptoError)?;
        raw.wrapped = wrapping(&outer, &raw).wrap(secret)?;
        Ok(Self { cost, raw })
    }

    /// Unwraps the secret.
    ///
    /// # Errors
    /// [`WrappedKeyError::WrongPassphrase`]; no memory.
    pub fn open(&self, passphrase: &SecretBytes) -> Result<Secret, WrappedKeyError> {
        let outer = self.cost.stretch(passphrase, &self.raw.salt).ok_or(WrappedKeyError::WrongPassphrase)?;
        wrapping(&outer, &self.raw).unwrap(&self.raw.wrapped)?.ok_or(WrappedKeyError::WrongPassphrase)
    }

    /// Durably creates its file. The folder must exist.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`]: the existing file is unchanged. Any other: there is no file, or it is intact and its
    /// name may not be durable.
    pub fn create(&self, path: &Path, random: &dyn SecretRandom) -> Result<(), WrappedKeyError> {
        Ok(make(path, &self.line(), random)?)
    }

    fn line(&self) -> Zeroizing<Vec<u8>> {
        checked_line(BEGIN, self.raw.as_bytes())
    }

    /// Parses a line, with or without its line feed; `None`: it is something else, or damaged.
    ///
    /// # Errors
    /// It demands a higher cost than is ever accepted.
    pub fn parse(line: &[u8]) -> Result<Option<Self>, WrappedKeyError> {
        let mut bytes = [0; size_of::<Raw>()];
        if parse_checked_line(line, BEGIN, &mut bytes).is_none() {
            return Ok(None);
        }
        let raw: Raw = zerocopy::transmute!(bytes);
        let cost = KdfCost::decode(raw.cost.map(U32::get))?;
        Ok(Some(Self { cost, raw }))
    }

    /// Reads its file; `None`: it is something else, or damaged.
    ///
    /// # Errors
    /// Same as [`super::key_file::read`] and [`WrappedKey::parse`].
    pub fn read(path: &Path) -> Result<Option<Self>, WrappedKeyError> {
        Self::parse(&read_up_to(path, LINE_BYTES)?)
    }
}

fn wrapping<'a>(outer: &'a Secret, raw: &'a Raw) -> Wrapping<'a> {
    let bound_to = raw.as_bytes().get(..BOUND_BYTES).unwrap_or_default();
    Wrapping { outer, salt: &raw.salt, label: LABEL, bound_to }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SystemRandom;
    use crate::secret::testing::Counting;

    fn cheap() -> KdfCost {
        KdfCost::new(8, 1, 1).unwrap()
    }

    fn phrase(text: &str) -> SecretBytes {
        SecretBytes::new(text.as_bytes().to_vec())
    }

    /// Computed by another implementation from the same inputs.
    #[test]
    fn golden_line_of_a_wrapped_key() {
        let secret = Secret::random(&Counting::from(0)).unwrap();
        let wrapped =
            WrappedKey::wrap(&secret, &phrase("correct horse"), cheap(), &Counting::from(100)).unwrap();
        assert_eq!(String::from_utf8_lossy(&wrapped.line()), GOLDEN);
        let read = WrappedKey::parse(GOLDEN.as_bytes()).unwrap().unwrap();
        assert_eq!(read.open(&phrase("correct horse")).unwrap(), secret);
    }

    const GOLDEN: &str = "holdfast-wrapped-key-1 \
        080000000100000001000000\
        6465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f80818283\
        804ea62e19457d864a9e1fef51f0020dcce603600aa3ac3e4aafb8176e8543d98195ff387706981bbf66ffbc8557be0b \
        40328bb0\n";

    #[test]
    fn a_wrapped_key_opens_with_its_passphrase_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("vault.key");
        let secret = Secret::random(&SystemRandom).unwrap();
        let wrapped =
            WrappedKey::wrap(&secret, &phrase("a long passphrase"), cheap(), &SystemRandom).unwrap();
        wrapped.create(&path, &SystemRandom).unwrap();
        let read = WrappedKey::read(&path).unwrap().unwrap();
        assert_eq!(read, wrapped);
        assert_eq!(read.open(&phrase("a long passphrase")).unwrap(), secret);
        let wrong = read.open(&phrase("another passphrase"));
        assert!(matches!(wrong, Err(WrappedKeyError::WrongPassphrase)), "{wrong:?}");
        let again = wrapped.create(&path, &SystemRandom);
        assert!(matches!(again, Err(WrappedKeyError::File(KeyFileError::Exists { .. }))), "{again:?}");
        let text = std::fs::read(&path).unwrap();
        let plain = checked_line("", secret.expose());
        assert!(
            !text.windows(16).any(|part| plain.windows(16).any(|other| part == other)),
            "it is not in it"
        );
        let short = WrappedKey::wrap(&secret, &phrase("short"), cheap(), &SystemRandom);
        assert!(matches!(short, Err(WrappedKeyError::ShortPassphrase { found: 5 })), "{short:?}");
        // Neither format is accepted as the other.
        assert!(super::super::key_file::parse(&text).is_none());
        assert_eq!(WrappedKey::parse(b"holdfast-key-1 00 00\n").unwrap(), None);
    }

    #[test]
    fn whatever_is_changed_of_a_wrapped_key_is_noticed() {
        let secret = Secret::random(&SystemRandom).unwrap();
        let phrase = phrase("a long passphrase");
        let wrapped = WrappedKey::wrap(&secret, &phrase, cheap(), &SystemRandom).unwrap();
        let line = wrapped.line();
        for at in 0..line.len() - 1 {
            let mut changed = line.to_vec();
            changed[at] ^= 1;
            assert!(!matches!(WrappedKey::parse(&changed), Ok(Some(_))), "byte {at}");
        }
        // Changed on purpose, with a matching checksum.
        for at in 0..size_of::<Raw>() {
            let mut bytes: [u8; size_of::<Raw>()] = zerocopy::transmute!(wrapped.raw);
            bytes[at] ^= 1;
            let Ok(found) = WrappedKey::parse(&checked_line(BEGIN, &bytes)) else { continue };
            assert!(found.unwrap().open(&phrase).is_err(), "byte {at}");
        }
        let much = Raw { cost: [U32::new(u32::MAX), U32::new(1), U32::new(1)], ..wrapped.raw };
        let refused = WrappedKey::parse(&checked_line(BEGIN, much.as_bytes()));
        assert!(matches!(refused, Err(WrappedKeyError::Decode(_))), "{refused:?}");
    }
}
