//! Random values that must not be guessed, their text and their hash.

use aws_lc_rs::{digest, rand};
use holdfast_proto::ErrorCode;

use crate::error::ServiceError;

/// Bytes of a cookie and of a CSRF token.
const SECRET_BYTES: usize = 32;

/// A random value. It has no `Debug`.
pub(super) struct Secret([u8; SECRET_BYTES]);

impl Secret {
    /// A new one.
    ///
    /// # Errors
    /// `Internal` when the operating system provides no random numbers.
    pub(super) fn random() -> Result<Self, ServiceError> {
        let mut bytes = [0; SECRET_BYTES];
        rand::fill(&mut bytes).map_err(|_| {
            ServiceError::new(ErrorCode::Internal, "the operating system provides no random numbers")
        })?;
        Ok(Self(bytes))
    }

    /// Its SHA-256.
    pub(super) fn hash(&self) -> [u8; 32] {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, &self.0).as_ref());
        hash
    }

    /// In lower-case hexadecimal.
    pub(super) fn hex(&self) -> String {
        use std::fmt::Write as _;
        self.0.iter().fold(String::with_capacity(2 * SECRET_BYTES), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// Reads [`Secret::hex`]; lower case only.
    pub(super) fn from_hex(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != SECRET_BYTES || !rest.is_empty() {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut bytes = [0; SECRET_BYTES];
        for (to, [high, low]) in bytes.iter_mut().zip(pairs) {
            *to = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let secret = Secret(std::array::from_fn(|at| u8::try_from(at * 8).unwrap()));
        let text = secret.hex();
        assert!(text.starts_with("000810") && text.len() == 64, "{text}");
        assert_eq!(Secret::from_hex(&text).unwrap().0, secret.0);
        for bad in ["", &text[1..], &text[2..], &format!("{text}00"), &text.to_uppercase(), &"g".repeat(64)] {
            assert!(Secret::from_hex(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn no_two_are_alike() {
        let (one, two) = (Secret::random().unwrap(), Secret::random().unwrap());
        assert_ne!(one.hex(), two.hex());
        assert_ne!(one.hash(), two.hash());
    }
}
