//! The three constructions that everything is made of: deriving a key from another (HKDF-SHA-256), the id of a key
//! (HMAC-SHA-256) and sealing one key with another (AES-256-GCM).
//!
//! Each use has a label of its own that ends with a zero byte, and everything behind the label has a fixed length, so
//! no two uses have the same input.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, hkdf, hmac};

use crate::secret::{KEY_BYTES, Secret};

/// Bytes of every salt.
pub const SALT_BYTES: usize = 32;
/// Bytes of the tag behind everything sealed.
pub const TAG_BYTES: usize = 16;
/// Bytes of a key's id.
pub(crate) const ID_BYTES: usize = 16;
/// Bytes of a key sealed with another.
pub(crate) const WRAPPED_BYTES: usize = KEY_BYTES + TAG_BYTES;
/// Bytes of a message authentication code.
pub(crate) const MAC_BYTES: usize = 32;

/// AWS-LC refused: it is out of memory, or the input exceeds a limit of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cryptographic library refused to work")]
pub struct CryptoError;

impl From<aws_lc_rs::error::Unspecified> for CryptoError {
    fn from(_: aws_lc_rs::error::Unspecified) -> Self {
        Self
    }
}

struct KeyLength;

impl hkdf::KeyType for KeyLength {
    fn len(&self) -> usize {
        KEY_BYTES
    }
}

/// HKDF-SHA-256 (RFC 5869) of `secret`, with `label` and `context` as info.
pub(crate) fn derive(
    secret: &Secret,
    salt: &[u8; SALT_BYTES],
    label: &[u8],
    context: &[u8],
) -> Result<Secret, CryptoError> {
    let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret.expose());
    let mut key = Secret::zero();
    extracted.expand(&[label, context], KeyLength)?.fill(key.expose_mut())?;
    Ok(key)
}

/// The id of a key: the first half of HMAC-SHA-256 with it. Reveals nothing about the key's bits, and is unique to it.
pub(crate) fn identify(key: &Secret, label: &[u8], context: &[u8]) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    id.iter_mut().zip(mac(key, label, context)).for_each(|(to, from)| *to = from);
    id
}

/// HMAC-SHA-256 of `label` and `bytes`.
pub(crate) fn mac(key: &Secret, label: &[u8], bytes: &[u8]) -> [u8; MAC_BYTES] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key.expose()));
    context.update(label);
    context.update(bytes);
    let mut code = [0; MAC_BYTES];
    code.iter_mut().zip(context.sign().as_ref()).for_each(|(to, from)| *to = *from);
    code
}

/// Compares in constant time.
pub(crate) fn equal(a: &[u8], b: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(a, b).is_ok()
}

/// An AES-256-GCM key, ready for use. AWS-LC wipes it when it is dropped.
pub(crate) fn cipher(key: &Secret) -> Result<LessSafeKey, CryptoError> {
    Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose())?))
}

/// The nonce of the `piece`-th piece: four zero bytes and its number.
pub(crate) fn nonce(piece: u64) -> Nonce {
    let mut nonce = [0; NONCE_LEN];
    if let Some(last) = nonce.last_chunk_mut() {
        *last = piece.to_le_bytes();
    }
    Nonce::assume_unique_for_key(nonce)
}

/// Inputs of wrapping one key: the key that its wrapping key is derived from, and the data it is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wrapping<'a> {
    pub(crate) outer: &'a Secret,
    /// Random, so that every wrapped key has a wrapping key of its own, with which nonce 0 is used once.
    pub(crate) salt: &'a [u8; SALT_BYTES],
    pub(crate) label: &'static [u8],
    /// Associated data.
    pub(crate) bound_to: &'a [u8],
}

impl Wrapping<'_> {
    fn cipher(&self) -> Result<LessSafeKey, CryptoError> {
        cipher(&derive(self.outer, self.salt, self.label, &[])?)
    }

    /// Seals `inner`.
    pub(crate) fn wrap(&self, inner: &Secret) -> Result<[u8; WRAPPED_BYTES], CryptoError> {
        let mut wrapped = [0; WRAPPED_BYTES];
        let (bits, tag) = wrapped.split_at_mut(KEY_BYTES);
        // Sealed out of place: the bits are never in a buffer that is not wiped.
        let aad = Aad::from(self.bound_to);
        self.cipher()?.seal_out_of_place_scatter(nonce(0), aad, inner.expose(), bits, &[], tag)?;
        Ok(wrapped)
    }

    /// Unwraps the result of [`Wrapping::wrap`]; `None`: the outer key is wrong, or the wrapped key or the bound
    /// data have changed.
    pub(crate) fn unwrap(&self, wrapped: &[u8; WRAPPED_BYTES]) -> Result<Option<Secret>, CryptoError> {
        let (bits, tag) = wrapped.split_at(KEY_BYTES);
        let mut inner = Secret::zero();
        let aad = Aad::from(self.bound_to);
        let opened = self.cipher()?.open_separate_gather(nonce(0), aad, bits, tag, inner.expose_mut());
        Ok(opened.is_ok().then_some(inner))
    }
}
