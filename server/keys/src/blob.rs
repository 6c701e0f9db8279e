//! Sealing blobs: one key for each written blob, derived from a data key and a random salt; one nonce for each page.
//!
//! **No pair of key and nonce is used twice.** A nonce is the number of a page. Within one [`BlobSealer`] numbers only
//! increase; it cannot be copied, and only a fresh salt creates one: a key derived from a salt that was read
//! ([`BlobKey`]) seals nothing. So writing the same blob again (a container's number reused after a crash, two servers
//! that take each other for dead) uses another key. The blobs of one data key differ by 256 random bits of salt: the
//! probability that two among 2⁶⁴ blobs share a salt is below 2⁻¹²⁸.
//!
//! **No blob or page passes for another.** Repository and name of the blob are part of its key; the number of the page
//! is its nonce; whether it is the last page is associated data, so that truncating or extending a blob is detected.
//!
//! This module writes nothing: a crash leaves nothing.

use std::fmt;

use aws_lc_rs::aead::{Aad, LessSafeKey};
use holdfast_types::ids::RepositoryId;

use crate::crypto::{self, CryptoError, SALT_BYTES, TAG_BYTES, nonce};
use crate::secret::{RandomError, Secret};

const KEY_LABEL: &[u8] = b"holdfast blob key v1\0";

/// Associated data of a page.
const fn place(is_last: bool) -> [u8; 1] {
    [is_last as u8]
}

/// Why a page was not sealed. Nothing of it may be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("page {page} of a blob cannot be sealed after page {last}: numbers only go up")]
    Order { page: u64, last: u64 },
    #[error("page {page} of a blob cannot be sealed after its last one")]
    Ended { page: u64 },
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error(transparent)]
    Crypto(#[from] CryptoError),
}

/// A page was not sealed at this place: this repository, blob and number, as the last page or not. Or the blob's key
/// id or salt were changed, which the checksum of its header must rule out first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("page {page} is damaged: it is not what was encrypted there")]
pub struct DamagedPage {
    pub page: u64,
}

/// Seals the pages of one blob, once. Created by [`crate::DataKey::blob_sealer`].
pub struct BlobSealer {
    salt: [u8; SALT_BYTES],
    key: BlobKey,
    last: Option<u64>,
    is_ended: bool,
}

impl BlobSealer {
    /// `key` must be derived from `salt`, which nothing else was ever derived from.
    pub(crate) const fn new(salt: [u8; SALT_BYTES], key: BlobKey) -> Self {
        Self { salt, key, last: None, is_ended: false }
    }

    /// The salt, for the blob's header.
    pub const fn salt(&self) -> &[u8; SALT_BYTES] {
        &self.salt
    }

    /// Seals `bytes` in place and appends the tag of [`TAG_BYTES`]. `page` must be greater than in all calls before.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal_page(&mut self, page: u64, is_last: bool, bytes: &mut Vec<u8>) -> Result<(), SealError> {
        let tag = self.seal_detached(page, is_last, bytes)?;
        bytes.extend_from_slice(&tag);
        Ok(())
    }

    /// Same as above, but returns the tag separately, for bytes in a larger buffer.
    ///
    /// # Errors
    /// [`SealError`].
    pub fn seal_detached(
        &mut self,
        page: u64,
        is_last: bool,
        bytes: &mut [u8],
    ) -> Result<[u8; TAG_BYTES], SealError> {
        if self.is_ended {
            return Err(SealError::Ended { page });
        }
        if let Some(last) = self.last.filter(|&last| last >= page) {
            return Err(SealError::Order { page, last });
        }
        // Used up before sealing: an error below does not give it back.
        (self.last, self.is_ended) = (Some(page), is_last);
        let aad = Aad::from(place(is_last));
        let sealed = self.key.cipher.seal_in_place_separate_tag(nonce(page), aad, bytes);
        let made = sealed.map_err(CryptoError::from)?;
        let mut tag = [0; TAG_BYTES];
        tag.iter_mut().zip(made.as_ref()).for_each(|(to, from)| *to = *from);
        Ok(tag)
    }

    /// The key that opens the pages.
    pub const fn key(&self) -> &BlobKey {
        &self.key
    }
}

impl fmt::Debug for BlobSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobSealer").field("last", &self.last).finish_non_exhaustive()
    }
}

/// Opens the pages of one blob, in any order and from several threads. Created by [`crate::DataKey::blob_key`]. AWS-LC
/// wipes it when it is dropped.
pub struct BlobKey {
    cipher: LessSafeKey,
}

impl BlobKey {
    pub(crate) fn derive(
        secret: &Secret,
        salt: &[u8; SALT_BYTES],
        repository: RepositoryId,
        name: &str,
    ) -> Result<Self, CryptoError> {
        // The name comes last, so that its length is unambiguous.
        let context = [&repository.to_bytes()[..], name.as_bytes()].concat();
        let cipher = crypto::cipher(&crypto::derive(secret, salt, KEY_LABEL, &context)?)?;
        Ok(Self { cipher })
    }

    /// Opens a page in place, with its tag behind it; returns the plaintext, which is the beginning of `bytes`.
    ///
    /// # Errors
    /// [`DamagedPage`]; `bytes` must not be used then.
    pub fn open_page<'a>(
        &self,
        page: u64,
        is_last: bool,
        bytes: &'a mut [u8],
    ) -> Result<&'a mut [u8], DamagedPage> {
        let opened = self.cipher.open_in_place(nonce(page), Aad::from(place(is_last)), bytes);
        opened.map_err(|_| DamagedPage { page })
    }

    /// Opens a page, with its tag behind it, into `out`, which has the length of the plaintext.
    ///
    /// # Errors
    /// [`DamagedPage`], also when the lengths do not fit; `out` must not be used then.
    pub fn open_page_to(
        &self,
        page: u64,
        is_last: bool,
        bytes: &[u8],
        out: &mut [u8],
    ) -> Result<(), DamagedPage> {
        let (sealed, tag) = bytes
            .split_last_chunk::<TAG_BYTES>()
            .filter(|(sealed, _)| sealed.len() == out.len())
            .ok_or(DamagedPage { page })?;
        let aad = Aad::from(place(is_last));
        let opened = self.cipher.open_separate_gather(nonce(page), aad, sealed, tag, out);
        opened.map_err(|_| DamagedPage { page })
    }
}

impl fmt::Debug for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobKey(…)")
    }
}

#[cfg(test)]
mod tests;
