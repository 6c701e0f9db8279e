//! Decoding: the checks that all encoded forms of this crate share.

use std::fmt;

/// Why bytes cannot be decoded. Keys are not involved: a whole structure that a key does not open is another error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Made by a newer version.
    #[error("{structure} has version {version}; this version of Holdfast reads {supported}: use a newer one")]
    Unsupported { structure: &'static str, version: u16, supported: u16 },
    /// The bytes were changed since they were written.
    #[error("{structure} is damaged: {what}")]
    Damaged { structure: &'static str, what: String },
}

impl DecodeError {
    pub(crate) fn damaged(structure: &'static str, what: impl fmt::Display) -> Self {
        Self::Damaged { structure, what: what.to_string() }
    }
}

/// Fails unless `found` is the expected value.
pub(crate) fn check<T: PartialEq + fmt::Debug>(
    structure: &'static str,
    field: &'static str,
    found: &T,
    expected: &T,
) -> Result<(), DecodeError> {
    if found == expected {
        return Ok(());
    }
    Err(DecodeError::damaged(structure, format_args!("{field} is {found:?} instead of {expected:?}")))
}

/// Fails unless a version is the one this build supports.
pub(crate) fn check_version(
    structure: &'static str,
    version: u16,
    supported: u16,
) -> Result<(), DecodeError> {
    if version == supported {
        return Ok(());
    }
    Err(DecodeError::Unsupported { structure, version, supported })
}

/// CRC-32C.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-64/NVME.
pub(crate) fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::crc64_nvme(bytes)
}
