//! Bytes ↔ structs, for everything on disk. Pure: nothing here reads or writes a file. `docs/FORMAT.md` has
//! the byte maps.
//!
//! Integers are little-endian. Every structure has a magic, a version and a checksum, and keeps the three in
//! their places in every later version: so a structure that is whole but newer is known as
//! [`FormatError::Unsupported`], and only one that is not whole is [`FormatError::Corrupt`] (A9).

pub mod container;
pub mod index_manifest;
pub mod parity;
pub mod point;
pub mod recipe;
pub mod snapshot;
pub mod sorted_run;

/// Error of decoding or encoding a structure. A caller that knows the file adds its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// Whole, but written by a newer build (A9): upgrade, nothing is damaged.
    #[error(
        "{structure} has format version {version}, this build knows version {supported}; use a newer build"
    )]
    Unsupported { structure: &'static str, version: u16, supported: u16 },
    #[error("{structure} is damaged: {defect}")]
    Corrupt { structure: &'static str, defect: Defect },
}

/// Defects of a damaged structure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    #[error("it begins with {found:08x}, not with {expected:08x}")]
    Magic { found: u32, expected: u32 },
    #[error("its checksum is {computed:x}, but {stored:x} was stored")]
    Checksum { stored: u64, computed: u64 },
    #[error("{len} bytes are there, but {needed} are needed")]
    TooShort { len: u64, needed: u64 },
    #[error("its {field} is {found}; the limit is {limit}")]
    OverLimit { field: &'static str, found: u64, limit: u64 },
    #[error("its {field} is {found}, but should be {expected}")]
    Mismatch { field: &'static str, found: u64, expected: u64 },
    #[error("it belongs to {field} {found}, not to {expected}")]
    Foreign { field: &'static str, found: String, expected: String },
}

impl FormatError {
    /// Shorthand for [`FormatError::Corrupt`].
    pub const fn corrupt(structure: &'static str, defect: Defect) -> Self {
        Self::Corrupt { structure, defect }
    }
}

/// Fails unless `found` is `expected`.
///
/// # Errors
/// [`Defect::Mismatch`].
pub fn check_equal(
    structure: &'static str,
    field: &'static str,
    found: u64,
    expected: u64,
) -> Result<(), FormatError> {
    if found == expected {
        return Ok(());
    }
    Err(FormatError::corrupt(structure, Defect::Mismatch { field, found, expected }))
}

/// Fails when `found` is above `limit`.
///
/// # Errors
/// [`Defect::OverLimit`].
pub fn check_limit(
    structure: &'static str,
    field: &'static str,
    found: u64,
    limit: u64,
) -> Result<(), FormatError> {
    if found <= limit {
        return Ok(());
    }
    Err(FormatError::corrupt(structure, Defect::OverLimit { field, found, limit }))
}

/// Fails unless a structure begins with its magic.
///
/// # Errors
/// [`Defect::Magic`].
fn check_magic(structure: &'static str, found: u32, expected: u32) -> Result<(), FormatError> {
    if found == expected {
        return Ok(());
    }
    Err(FormatError::corrupt(structure, Defect::Magic { found, expected }))
}

/// Fills in the CRC-32C in the last four bytes.
fn with_crc<const N: usize>(mut bytes: [u8; N]) -> [u8; N] {
    if let Some((before, crc)) = bytes.split_last_chunk_mut::<4>() {
        *crc = crc32c(before).to_le_bytes();
    }
    bytes
}

/// CRC-32C (CRC-32/ISCSI).
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-64/NVME.
pub fn crc64(bytes: &[u8]) -> u64 {
    crc_fast::crc64_nvme(bytes)
}

/// CRC-64/NVME of bytes that come in pieces.
#[derive(Debug, Clone)]
pub struct Crc64(crc_fast::Digest);

impl Default for Crc64 {
    fn default() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc64Nvme))
    }
}

impl Crc64 {
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(&self) -> u64 {
        self.0.finalize()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check values of the catalogue of parametrised CRC algorithms.
    #[test]
    fn checksums_are_the_catalogued_ones() {
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc64(b"123456789"), 0xAE8B_1486_0A79_9888);
    }
}
